// SPDX-License-Identifier: Apache-2.0
//! How sessions come up, and how they end.

use bgp::BgpIdentifier;
use bgp::peer::State;
use vipherald::driver::bgp::Operation;

use crate::common::wait_until;
use crate::peers::{Router, Software};
use crate::rig::{
    AS, LARGE_AS, OURS, OURS_V4, PATIENCE, Rig, SESSIONS, THEIR_AS, both_sessions, is_up, operate, peer, peer_of, reason, set, wait_for,
    wait_until_up,
};

/// Two sessions over IPv4 and IPv6, which the peer's crash ends, and which end when we stop.
pub(crate) fn life(software: Software) {
    let rig = Rig::dual_stack("life");
    let mut router = Router::start(software, &rig.theirs, peer_of(AS, AS));
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7", "2001:db8:7::7"]));
    speaker.configure(both_sessions(AS, AS), None);
    let status = wait_until_up(&speaker);
    assert_eq!(status.router_id, BgpIdentifier::try_from(OURS_V4).ok());
    let has_all = |router: &Router| OURS.iter().all(|ours| router.count(*ours) == 2);
    for ours in OURS {
        wait_until(&format!("End-of-RIB of both families from {ours}"), PATIENCE, || router.end_of_ribs(ours) == 2);
    }
    assert!(has_all(&router));

    router.restart();
    wait_for("the sessions come up again", &speaker, |status| {
        SESSIONS.iter().all(|(name, _)| is_up(status, name) && peer(status, name).counters.established == 2)
    });
    wait_until("the routes are back", PATIENCE, || has_all(&router));

    speaker.stop();
    wait_for("all is closed", &speaker, |status| status.configured.is_none() && status.open_sessions() == 0);
    wait_until("the routes are gone", PATIENCE, || OURS.iter().all(|ours| router.count(*ours) == 0));
}

/// RFC 9003: the text of our operator reaches that of the peer, and only that session ends.
pub(crate) fn shutdown(software: Software) {
    const TEXT: &str = "new power supply in rack 7";
    let rig = Rig::dual_stack("farewell");
    let router = Router::start(software, &rig.theirs, peer_of(AS, AS));
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7"]));
    speaker.configure(both_sessions(AS, AS), None);
    let before = wait_until_up(&speaker);
    wait_until("the routes are learned", PATIENCE, || OURS.iter().all(|ours| router.count(*ours) == 1));
    assert_eq!(router.farewell(OURS[0]), None);

    operate(&speaker, "v4", Operation::Shutdown { message: Some(TEXT.to_owned()) });
    wait_until("the text is seen", PATIENCE, || router.farewell(OURS[0]).is_some_and(|line| line.contains(TEXT)));
    wait_until("the route is gone", PATIENCE, || router.count(OURS[0]) == 0);
    assert_eq!(router.count(OURS[1]), 1);
    let after = speaker.status();
    assert_eq!(peer(&after, "v4").state, State::Idle);
    assert_eq!(peer(&after, "v6").established_since, peer(&before, "v6").established_since);
}

/// RFC 4271 §6.2: neither side takes a peer of another AS than configured, and our status names the reason.
pub(crate) fn wrong_as(software: Software) {
    let refused = |expected_by_it: u32, our_as: u32, expected_by_us: u32, why: &str| {
        let rig = Rig::dual_stack("wrong-as");
        let _router = Router::start(software, &rig.theirs, peer_of(THEIR_AS, expected_by_it));
        let speaker = rig.speaker();
        speaker.advertise(set(["10.0.0.7"]));
        speaker.configure(both_sessions(our_as, expected_by_us), None);
        for (name, _) in SESSIONS {
            let status = wait_for(why, &speaker, |status| reason(status, name).contains("AS"));
            assert!(reason(&status, name).contains(why), "{}", reason(&status, name));
            assert_eq!(peer(&status, name).counters.established, 0);
        }
    };
    refused(AS, LARGE_AS, THEIR_AS, "the peer refused our OPEN: OPEN Message Error/Bad Peer AS");
    refused(AS, AS, 65009, "the peer is in AS 65000, not in 65009 as configured");
}
