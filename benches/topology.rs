// SPDX-License-Identifier: Apache-2.0
//! Who is who where routes are measured: addresses, AS numbers, and what this speaker, in a process of its own (`speaker.rs`), is told to be.
#![allow(dead_code, reason = "each of the two programs uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bgp::{Asn, BgpIdentifier, Family, HoldTime};
use vipherald::desired::{DesiredBgp, DesiredExport, DesiredPeer};

/// The argument with which the speaker is a sender of so many routes.
pub(crate) const AS_SENDER: &str = "sender";
/// The argument with which it is a reflector, [`PLAIN`] or with [`ADD_PATH`].
pub(crate) const AS_REFLECTOR: &str = "reflector";
pub(crate) const FIRST_ROUTE: Ipv4Addr = Ipv4Addr::new(11, 0, 0, 0);
pub(crate) const RECEIVER_AS: u32 = 65000;
/// Of the reflector too, and of all whom it serves.
pub(crate) const SENDER_AS: u32 = 65001;
pub(crate) const SENDER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
pub(crate) const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
pub(crate) const REFLECTOR: Ipv4Addr = SENDER;
pub(crate) const PLAIN: &str = "plain";
pub(crate) const ADD_PATH: &str = "add-path";
pub(crate) const CLIENTS: u8 = 8;
/// Last octets of addresses.
const FIRST_CLIENT: u8 = 11;
pub(crate) const RECEIVERS: [u8; 2] = [31, 32];
pub(crate) const LATECOMERS: [u8; 2] = [33, 34];

pub(crate) const fn address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, host)
}

pub(crate) fn clients() -> impl Iterator<Item = u8> {
    FIRST_CLIENT..FIRST_CLIENT + CLIENTS
}

pub(crate) fn hosts() -> impl Iterator<Item = u8> {
    clients().chain(RECEIVERS).chain(LATECOMERS)
}

/// Whether this one is told all paths (RFC 7911).
pub(crate) fn several_paths(mode: &str, host: u8) -> bool {
    mode == ADD_PATH && !clients().any(|client| client == host)
}

/// A sender with one neighbour.
pub(crate) fn speaker_of(address: Ipv4Addr, port: u16, asn: u32) -> Arc<DesiredBgp> {
    let peer = DesiredPeer {
        port,
        families: BTreeSet::from([Family::Ipv4Unicast]),
        hold_time: HoldTime::from_secs(90).unwrap(),
        connect_retry: Duration::from_secs(1),
        export: DesiredExport { next_hop_ipv4: Some(SENDER), ..DesiredExport::default() },
        ..DesiredPeer::new(address.into(), Asn::new(asn).unwrap())
    };
    let peers = BTreeMap::from([("peer".to_owned(), peer)]);
    Arc::new(DesiredBgp { router_id: BgpIdentifier::try_from(SENDER).ok(), peers, ..DesiredBgp::new(Asn::new(SENDER_AS).unwrap()) })
}
