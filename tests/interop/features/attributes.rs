// SPDX-License-Identifier: Apache-2.0
//! What the peer sees of the attributes that our policy sets.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use bgp::wire::community::GRACEFUL_SHUTDOWN;
use vipherald::desired::{DesiredBgp, DesiredExport};

use crate::common::wait_until;
use crate::peers::{Learned, Router, Software};
use crate::rig::{
    AS, LARGE_AS, OURS, OURS_V4, OURS_V6, PATIENCE, Rig, SESSIONS, THEIR_AS, both_sessions, peer, peer_of, prefix, set, wait_until_up,
};

fn export() -> DesiredExport {
    DesiredExport {
        local_preference: 200,
        med: Some(50),
        prepend: 2,
        communities: BTreeSet::from([AS << 16 | 100, GRACEFUL_SHUTDOWN]),
        large_communities: BTreeSet::from([[LARGE_AS, 1, 2]]),
        ..DesiredExport::default()
    }
}

fn expected(next_hop: IpAddr) -> Learned {
    let DesiredExport { med, communities, large_communities, .. } = export();
    Learned { med, communities, large_communities, ..Learned::by(next_hop) }
}

/// An internal peer gets LOCAL_PREF, and an empty path.
pub(crate) fn internal(software: Software) {
    seen(software, AS, AS, |learned, next_hop| {
        assert_eq!(*learned, Learned { local_preference: Some(200), ..expected(next_hop) });
    });
}

/// An external one gets our AS, as often as is said, and no LOCAL_PREF; some peers show their own default.
pub(crate) fn external(software: Software) {
    seen(software, LARGE_AS, THEIR_AS, |learned, next_hop| {
        assert_ne!(learned.local_preference, Some(200), "LOCAL_PREF went to an external peer");
        let wanted = Learned {
            as_path: vec![LARGE_AS; 3],
            local_preference: learned.local_preference,
            link_local: learned.link_local,
            ..expected(next_hop)
        };
        assert_eq!(*learned, wanted);
    });
}

/// Changes the policy from none to [`export`] in sessions that are up, and checks what is seen of it.
fn seen(software: Software, our_as: u32, their_as: u32, check: impl Fn(&Learned, IpAddr)) {
    let rig = Rig::dual_stack("attributes");
    let router = Router::start(software, &rig.theirs, peer_of(their_as, our_as));
    let speaker = rig.speaker();
    speaker.advertise(set(["10.0.0.7", "2001:db8:7::7"]));
    let mut desired = DesiredBgp::clone(&both_sessions(our_as, their_as));
    speaker.configure(Arc::new(desired.clone()), None);
    let before = wait_until_up(&speaker);
    let routes =
        || OURS.into_iter().flat_map(|ours| [("10.0.0.7", IpAddr::from(OURS_V4)), ("2001:db8:7::7", OURS_V6.into())].map(|to| (ours, to)));
    let learned = |ours, address| router.learned(ours, prefix(address));
    for (ours, (address, _)) in routes() {
        wait_until(&format!("{address} is learned from {ours}"), PATIENCE, || learned(ours, address).is_some());
        assert_eq!(learned(ours, address).unwrap().communities, BTreeSet::new());
    }
    desired.peers.values_mut().for_each(|peer| peer.export = export());
    speaker.configure(Arc::new(desired), None);
    for (ours, (address, next_hop)) in routes() {
        wait_until("the policy is seen", PATIENCE, || learned(ours, address).is_some_and(|path| !path.communities.is_empty()));
        check(&learned(ours, address).unwrap(), next_hop);
    }
    let after = speaker.status();
    for (name, _) in SESSIONS {
        assert_eq!(peer(&after, name).established_since, peer(&before, name).established_since);
    }
}
