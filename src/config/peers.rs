// SPDX-License-Identifier: Apache-2.0
//! What peers of `bgp.peers` take from each other, and have to sign with because of others: names, and the addresses that tell whose a connection is.
//!
//! Input: the peers in the order of the list. Output: a mistake on the line of the later one of two that cannot both be, which names the earlier one.

use std::collections::{BTreeMap, BTreeSet};

use super::read::{Reader, Section};
use crate::desired::{DesiredListen, DesiredPeer, PeerAddress, Transport};

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

/// The kernel demands of what comes from an address the key of the longest prefix that has one, and no address can be left out of a prefix: what dynamic peers
/// sign with counts for a peer among their addresses, too, unless its own key is of the same kind. One by an interface may be in a VRF, where they are not.
pub(super) fn check_signed(reader: &mut Reader<'_>, section: &Section<'_>, peer: &DesiredPeer, listen: Option<&DesiredListen>) {
    let (Some(listen), Some(address), None) = (listen, peer.address.known(), &peer.transport.interface) else { return };
    let ranges = listen.prefixes.iter().filter(|range| range.contains(address));
    let Some(range) = ranges.max_by_key(|range| range.length()).filter(|_| peer.transport.passive) else { return };
    let (Some((demanded, key)), own) = (signature(&listen.template.transport), signature(&peer.transport)) else { return };
    let own = match own {
        Some((own, _)) if own == demanded => return,
        Some((own, _)) => format!("signs with {own}"),
        None => "does not sign".to_owned(),
    };
    let message = format!(
        "the peer cannot dial us: {address} is in {range} of bgp.listen.prefixes, from where the kernel takes only what is signed with {demanded} \
         (bgp.listen.{key}), and the peer {own}; give it a {key} too, or prefixes without its address"
    );
    reader.report(section.place_of("passive"), section.key("passive"), message);
}

/// What signs the segments of a peer, and the key that says so.
const fn signature(transport: &Transport) -> Option<(&'static str, &'static str)> {
    if transport.password_file.is_some() {
        Some(("TCP-MD5", "passwordFile"))
    } else if transport.ao_keys.is_empty() {
        None
    } else {
        Some(("TCP-AO", "tcpAo"))
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
