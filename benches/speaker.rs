// SPDX-License-Identifier: Apache-2.0
//! This speaker in a process of its own, beside those of others: what the benchmark starts, with what `topology.rs` says, until it is killed.
//!
//! Input: `sender COUNT`, or `reflector MODE`. It holds nothing of the daemon but the speaker, as the others hold nothing but theirs, so that what a
//! process takes of memory can be compared.
#![allow(clippy::unwrap_used, reason = "a benchmark ends where it cannot go on")]

#[path = "../tests/common/light.rs"]
mod light;
mod topology;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bgp::wire::AddPathMode;
use bgp::{Asn, BgpIdentifier, Family, HoldTime};
use vipherald::desired::{DesiredBgp, DesiredListen, DesiredPeer, RouteSet, Transport};
use vipherald::driver::bgp::Speaker;

use crate::light::routes;
use crate::topology::{FIRST_ROUTE, RECEIVER, RECEIVER_AS, REFLECTOR, SENDER_AS, address, hosts, several_paths, speaker_of};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (set, desired) = match words.as_slice() {
        [topology::AS_SENDER, count] => {
            let set = routes(FIRST_ROUTE, count.parse().unwrap()).collect::<RouteSet>();
            (set, speaker_of(RECEIVER, 179, RECEIVER_AS))
        }
        [topology::AS_REFLECTOR, mode] => (RouteSet::default(), reflector(mode)),
        other => panic!("{other:?} is neither '{} COUNT' nor '{} MODE'", topology::AS_SENDER, topology::AS_REFLECTOR),
    };
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(Arc::new(set));
    speaker.configure(desired, None);
    loop {
        thread::park();
    }
}

fn reflector(mode: &str) -> Arc<DesiredBgp> {
    let peer = |host: u8| DesiredPeer {
        transport: Transport { passive: true, ..Transport::default() },
        families: BTreeSet::from([Family::Ipv4Unicast]),
        hold_time: HoldTime::from_secs(90).unwrap(),
        connect_retry: Duration::from_secs(1),
        reflector_client: true,
        add_path: several_paths(mode, host).then_some(AddPathMode::Send),
        ..DesiredPeer::new(address(host).into(), Asn::new(SENDER_AS).unwrap())
    };
    let listen = DesiredListen { address: Ipv4Addr::UNSPECIFIED.into(), port: 179, prefixes: BTreeSet::new(), limit: 1, template: peer(0) };
    let peers: BTreeMap<_, _> = hosts().map(|host| (format!("peer{host}"), peer(host))).collect();
    let router_id = BgpIdentifier::try_from(REFLECTOR).ok();
    Arc::new(DesiredBgp { router_id, listen: Some(listen), peers, ..DesiredBgp::new(Asn::new(SENDER_AS).unwrap()) })
}
