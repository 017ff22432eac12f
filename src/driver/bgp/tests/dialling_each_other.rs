// SPDX-License-Identifier: Apache-2.0
//! Two speakers that dial each other, as two reflectors do.

use super::listening::{address_of_its_own, listening_on};
use super::*;

const RETRY: Duration = Duration::from_secs(1);

/// A speaker at this address that dials the other one, and may be dialled by it.
fn of_two(address: SocketAddr, other: SocketAddr) -> Arc<DesiredBgp> {
    let transport = Transport { source: Some(address.ip()), ..Transport::default() };
    let peer = DesiredPeer { transport, connect_retry: RETRY, ..neighbour(other) };
    let (configuration, _) = listening_on(address, &[], [("other", peer)]);
    let IpAddr::V4(identifier) = address.ip() else { unreachable!() };
    Arc::new(DesiredBgp { router_id: BgpIdentifier::try_from(identifier).ok(), ..(*configuration).clone() })
}

/// The later of a refusal and of a dial is one rest and one retry time away; what is more is a slow machine.
#[test]
fn rfc4486_4_two_that_dial_each_other_are_up_again_soon_after_each_reset() {
    const SOON: Duration = Duration::from_secs(6);
    let addresses = [address_of_its_own(), address_of_its_own()];
    let speakers = [0, 1].map(|number: usize| {
        let speaker = Speaker::spawn("vipherald", number as u64).unwrap();
        speaker.advertise(Arc::default());
        speaker.configure(of_two(addresses[number], addresses[1 - number]), None);
        speaker
    });
    let established = |speaker: &Speaker, count: u64| {
        let status = wait_for(speaker, |status| is_up(status, "other") && peer(status, "other").counters.established > count);
        peer(&status, "other").counters.established
    };
    let mut sessions = speakers.each_ref().map(|speaker| established(speaker, 0));
    for turn in 0..8 {
        let start = Instant::now();
        operate(&speakers[turn % 2], "other", Operation::Reset).unwrap();
        sessions = [0, 1].map(|number| established(&speakers[number], sessions[number]));
        assert!(start.elapsed() < SOON, "turn {turn}: {:?}", start.elapsed());
    }
}
