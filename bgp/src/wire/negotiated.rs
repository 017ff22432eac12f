// SPDX-License-Identifier: Apache-2.0
//! What two OPENs agree on. Input: the OPEN sent and the one received. Output: what may be sent, and how what is received is read.

use std::collections::{BTreeMap, BTreeSet};

use super::{AddPathMode, BgpRole, Capability, GracefulRestart, LongLivedFamily, MAX_EXTENDED_MESSAGE_LENGTH, MAX_MESSAGE_LENGTH, Open};
use crate::{Asn, Family, HoldTime};

/// What both OPENs agree on; governs encoding and decoding from then on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Negotiated {
    /// AS numbers take four octets in AS_PATH and AGGREGATOR (RFC 6793 §4.1).
    pub four_octet_as: bool,
    /// The families that both sides have (RFC 4760 §8).
    pub families: BTreeSet<Family>,
    /// Both sides understand ROUTE-REFRESH (RFC 2918 §3).
    pub route_refresh: bool,
    /// Both sides mark the beginning and the end of a refresh (RFC 7313 §4).
    pub enhanced_route_refresh: bool,
    /// The families whose routes we send with path identifiers (RFC 7911 §4).
    pub add_path_send: BTreeSet<Family>,
    /// The families whose routes come with path identifiers (RFC 7911 §4).
    pub add_path_receive: BTreeSet<Family>,
    /// Octets that a message to the peer has at most, OPEN and KEEPALIVE aside: over 4,096 where both sides agreed on that (RFC 8654 §4).
    pub max_send_length: usize,
    /// Octets that a message of the peer has at most, OPEN and KEEPALIVE aside: over 4,096 where we said so (RFC 8654 §4).
    pub max_receive_length: usize,
    /// The families whose routes may have IPv6 next hops besides those of IPv6 (RFC 8950 §4).
    pub extended_next_hop: BTreeSet<Family>,
    /// A next hop can be a link-local address alone (draft-ietf-idr-linklocal-capability).
    pub link_local_next_hop: bool,
    /// How the peer restarts, where both sides have the capability (RFC 4724 §3).
    pub graceful_restart: Option<GracefulRestart>,
    /// Both sides keep routes after a NOTIFICATION too (RFC 8538 §3).
    pub graceful_notification: bool,
    /// For how long routes of the peer are kept beyond its restart time, where both sides have the capability (RFC 9494 §4.2).
    pub long_lived: BTreeMap<Family, LongLivedFamily>,
    /// What we are to the peer, where we said so (RFC 9234 §4.1).
    pub local_role: Option<BgpRole>,
    /// What the peer is to us, where it said so (RFC 9234 §4.1).
    pub remote_role: Option<BgpRole>,
    /// The smaller of both hold times (RFC 4271 §4.2).
    pub hold_time: HoldTime,
    /// Our AS.
    pub local_asn: Asn,
    /// The peer's AS.
    pub remote_asn: Asn,
    /// Both are in one AS: the peer is an internal one (RFC 4271 §1.1).
    pub internal: bool,
}

impl Negotiated {
    /// What `local`, the OPEN sent, and `remote`, the one received, agree on.
    #[must_use]
    pub fn new(local: &Open, remote: &Open) -> Self {
        let has = |open: &Open, capability| open.capabilities.contains(capability);
        let both = |capability| has(local, capability) && has(remote, capability);
        let limit = |extended| if extended { MAX_EXTENDED_MESSAGE_LENGTH } else { MAX_MESSAGE_LENGTH };
        let families: BTreeSet<_> = local.families().intersection(&remote.families()).copied().collect();
        let (ours, theirs) = (add_path(local), add_path(remote));
        let add_path = |sender: &BTreeMap<Family, AddPathMode>, receiver: &BTreeMap<Family, AddPathMode>| {
            let agreed = |family: &Family| {
                sender.get(family).is_some_and(|mode| mode.sends()) && receiver.get(family).is_some_and(|mode| mode.receives())
            };
            families.iter().copied().filter(agreed).collect()
        };
        let (our_restart, their_restart) = (graceful_restart(local), graceful_restart(remote));
        let both_restart = our_restart.zip(their_restart);
        let (our_long_lived, their_long_lived) = (long_lived(local), long_lived(remote));
        let long_lived = both_restart.and(our_long_lived).and(their_long_lived).cloned().unwrap_or_default();
        Self {
            four_octet_as: both(&Capability::FourOctetAs),
            route_refresh: both(&Capability::RouteRefresh),
            enhanced_route_refresh: both(&Capability::EnhancedRouteRefresh),
            add_path_send: add_path(&ours, &theirs),
            add_path_receive: add_path(&theirs, &ours),
            max_send_length: limit(both(&Capability::ExtendedMessage)),
            max_receive_length: limit(has(local, &Capability::ExtendedMessage)),
            extended_next_hop: extended_next_hop(local).intersection(&extended_next_hop(remote)).copied().collect(),
            link_local_next_hop: both(&Capability::LinkLocalNextHop),
            graceful_notification: both_restart.is_some_and(|(ours, theirs)| ours.notification && theirs.notification),
            graceful_restart: both_restart.map(|(_, theirs)| theirs.clone()),
            long_lived,
            local_role: local.roles().first().copied(),
            remote_role: remote.roles().first().copied(),
            families,
            hold_time: local.hold_time.min(remote.hold_time),
            local_asn: local.asn,
            remote_asn: remote.asn,
            internal: local.asn == remote.asn,
        }
    }

    /// The family of these numbers where both sides have it.
    pub(super) fn family(&self, afi: u16, safi: u8) -> Option<Family> {
        Family::from_numbers(afi, safi).filter(|family| self.families.contains(family))
    }

    /// What holds before OPENs are exchanged: no capability.
    #[must_use]
    pub const fn before_open(local_asn: Asn) -> Self {
        Self {
            four_octet_as: false,
            families: BTreeSet::new(),
            route_refresh: false,
            enhanced_route_refresh: false,
            add_path_send: BTreeSet::new(),
            add_path_receive: BTreeSet::new(),
            max_send_length: MAX_MESSAGE_LENGTH,
            max_receive_length: MAX_MESSAGE_LENGTH,
            extended_next_hop: BTreeSet::new(),
            link_local_next_hop: false,
            graceful_restart: None,
            graceful_notification: false,
            long_lived: BTreeMap::new(),
            local_role: None,
            remote_role: None,
            hold_time: HoldTime::ZERO,
            local_asn,
            remote_asn: local_asn,
            internal: true,
        }
    }
}

/// The last instance counts (RFC 4724 §3).
fn graceful_restart(open: &Open) -> Option<&GracefulRestart> {
    open.capabilities.iter().rev().find_map(|capability| match capability {
        Capability::GracefulRestart(restart) => Some(restart),
        _ => None,
    })
}

/// The last instance counts (RFC 9494 §3).
fn long_lived(open: &Open) -> Option<&BTreeMap<Family, LongLivedFamily>> {
    open.capabilities.iter().rev().find_map(|capability| match capability {
        Capability::LongLivedGracefulRestart(families) => Some(families),
        _ => None,
    })
}

/// All instances together; of a family that is in several, the last.
fn add_path(open: &Open) -> BTreeMap<Family, AddPathMode> {
    let instances = open.capabilities.iter().filter_map(|capability| match capability {
        Capability::AddPath(families) => Some(families),
        _ => None,
    });
    instances.flatten().map(|(family, mode)| (*family, *mode)).collect()
}

/// All instances together.
fn extended_next_hop(open: &Open) -> BTreeSet<Family> {
    let instances = open.capabilities.iter().filter_map(|capability| match capability {
        Capability::ExtendedNextHop(families) => Some(families),
        _ => None,
    });
    instances.flatten().copied().collect()
}

#[cfg(test)]
mod tests;
