// SPDX-License-Identifier: Apache-2.0
//! What peers of `bgp.peers` take from each other: names, and the addresses that tell whose a connection is.
//!
//! Input: the peers in the order of the list. Output: a mistake on the line of the later one of two that cannot both be, which names the earlier one.

use std::collections::{BTreeMap, BTreeSet};

use super::read::{Reader, Section};
use crate::desired::{DesiredPeer, PeerAddress};

/// Where a peer is, and by which interface.
type Place = (PeerAddress, Option<String>);

/// What earlier peers of the list have taken.
#[derive(Default)]
pub(super) struct Seen {
    names: BTreeSet<String>,
    endpoints: BTreeMap<(PeerAddress, u16, Option<String>), usize>,
    /// Whether each of the peers at one place is passive, in the order of the list.
    places: BTreeMap<Place, Vec<(usize, bool)>>,
    peers: usize,
}

impl Seen {
    /// Names are keys everywhere; and of two sessions between the same two addresses collision detection closes one (RFC 4271 §6.8). On another link, or
    /// in a VRF, the same address is another host's.
    pub(super) fn check(&mut self, reader: &mut Reader<'_>, section: &Section<'_>, name: Option<&str>, peer: Option<&DesiredPeer>) {
        if let Some(name) = name
            && !self.names.insert(name.to_owned())
        {
            reader.report(section.place_of("name"), section.key("name"), format!("another peer is named '{name}'"));
        }
        if let Some(peer) = peer {
            let other = *self.endpoints.entry((peer.address.clone(), peer.port, peer.transport.interface.clone())).or_insert(self.peers);
            if other != self.peers {
                let message = format!(
                    "bgp.peers[{other}] has {} and port {} too: of two sessions between the same two addresses one is closed as a collision (RFC 4271 §6.8)",
                    peer.address, peer.port
                );
                let key = place_key(peer);
                reader.report(section.place_of(key), section.key(key), message);
            } else {
                self.check_dialled(reader, section, peer);
            }
        }
        self.peers += 1;
    }

    /// A connection that a peer dials comes from any port: only its address says whose it is.
    fn check_dialled(&mut self, reader: &mut Reader<'_>, section: &Section<'_>, peer: &DesiredPeer) {
        let passive = peer.transport.passive;
        let earlier = self.places.entry((peer.address.clone(), peer.transport.interface.clone())).or_default();
        if let Some((other, _)) = earlier.iter().find(|(_, other_passive)| passive || *other_passive) {
            let message = format!(
                "bgp.peers[{other}] has {} too, and one of both is passive: a connection that is dialled from there could be of either, whatever their ports",
                peer.address
            );
            let key = place_key(peer);
            reader.report(section.place_of(key), section.key(key), message);
        }
        earlier.push((self.peers, passive));
    }
}

/// The key that says where a peer is.
const fn place_key(peer: &DesiredPeer) -> &'static str {
    match peer.address {
        PeerAddress::Known(_) => "address",
        PeerAddress::Gateway => "gateway",
        PeerAddress::Unnumbered(_) => "interface",
    }
}
