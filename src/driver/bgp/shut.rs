// SPDX-License-Identifier: Apache-2.0
//! Which neighbours an operator has shut down.
//!
//! Input: orders, and the configuration as it changes. Output: whether a neighbour is to have a session. An order is about a neighbour, not about its
//! name: it holds for whoever is at that place, whatever it is called and whatever else is configured of it, until `peer start` or until nobody at
//! that place is configured any more. It does not outlive the process.

use std::collections::BTreeSet;

use crate::desired::{DesiredBgp, DesiredListen, DesiredPeer, PeerAddress};

/// Where a neighbour is; no two neighbours of a configuration are at the same place.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Place {
    address: PeerAddress,
    port: u16,
    /// The link, or the VRF.
    interface: Option<String>,
}

impl Place {
    pub(super) fn of(peer: &DesiredPeer) -> Self {
        Self { address: peer.address.clone(), port: peer.port, interface: peer.interface().map(ToOwned::to_owned) }
    }

    fn dynamic(&self, listen: &DesiredListen) -> Option<DesiredPeer> {
        listen.dynamic_peer(self.address.known()?, self.interface.as_deref())
    }

    /// Whether a neighbour is configured there, or may come from there as a dynamic one.
    fn is_configured(&self, desired: &DesiredBgp) -> bool {
        let dynamic = || self.dynamic(desired.listen.as_ref()?);
        desired.peers.values().any(|peer| Self::of(peer) == *self) || dynamic().is_some_and(|peer| Self::of(&peer) == *self)
    }
}

/// The orders that hold.
#[derive(Debug, Default)]
pub(super) struct Shut(BTreeSet<Place>);

impl Shut {
    pub(super) fn contains(&self, peer: &DesiredPeer) -> bool {
        self.0.contains(&Place::of(peer))
    }

    /// From now on it has no session, or may have one again.
    pub(super) fn set(&mut self, peer: &DesiredPeer, shut: bool) {
        let place = Place::of(peer);
        if shut {
            self.0.insert(place);
        } else {
            self.0.remove(&place);
        }
    }

    /// The orders about neighbours that are not in this configuration end.
    pub(super) fn retain(&mut self, desired: &DesiredBgp) {
        self.0.retain(|place| {
            let stays = place.is_configured(desired);
            if !stays {
                tracing::info!(address = %place.address, "the neighbour is not configured any more: the order that shut it down has ended");
            }
            stays
        });
    }

    /// Dynamic neighbours among those in this configuration, which need not have been heard of since.
    pub(super) fn dynamic(&self, desired: &DesiredBgp) -> Vec<DesiredPeer> {
        let listen = desired.listen.iter();
        let peers = listen.flat_map(|listen| self.0.iter().filter_map(|place| place.dynamic(listen)));
        peers.filter(|peer| self.contains(peer) && desired.peers.values().all(|other| Place::of(other) != Place::of(peer))).collect()
    }
}
