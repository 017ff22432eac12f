// SPDX-License-Identifier: Apache-2.0
//! What peers of `bgp.peers` take from each other, and have to sign with because of others: names, and the addresses that tell whose a connection is.
//!
//! Input: the peers in the order of the list. Output: a mistake on the line of the later one of two that cannot both be, which names the earlier one.

use std::collections::{BTreeMap, BTreeSet};

use super::read::{Reader, Section};
use crate::api::LabelSelector;
use crate::desired::{DesiredListen, DesiredPeer, PeerAddress, Transport};

/// Where a peer is, and by which interface.
type Place = (PeerAddress, Option<String>);

/// Some peer of the list, in the order of the list.
struct Earlier {
    index: usize,
    port: u16,
    passive: bool,
    selector: Option<LabelSelector>,
}

impl Earlier {
    /// Whether some node may have both.
    fn may_be_beside(&self, selector: Option<&LabelSelector>) -> bool {
        !self.selector.as_ref().zip(selector).is_some_and(|(one, other)| one.excludes(other))
    }
}

/// What earlier peers of the list have taken.
#[derive(Default)]
pub(super) struct Seen {
    names: BTreeSet<String>,
    places: BTreeMap<Place, Vec<Earlier>>,
    peers: usize,
}

impl Seen {
    /// Names are keys everywhere. Peers that no node has both may be at one address; of others, see [`check_place`].
    pub(super) fn check(
        &mut self,
        reader: &mut Reader<'_>,
        section: &Section<'_>,
        name: Option<&str>,
        peer: Option<&DesiredPeer>,
        selector: Option<&LabelSelector>,
    ) {
        if let Some(name) = name
            && !self.names.insert(name.to_owned())
        {
            reader.report(section.place_of("name"), section.key("name"), format!("another peer is named '{name}'"));
        }
        if let Some(peer) = peer {
            let earlier = self.places.entry((peer.address.clone(), peer.transport.interface.clone())).or_default();
            let message = check_place(peer, &earlier.iter().filter(|earlier| earlier.may_be_beside(selector)).collect::<Vec<_>>());
            if let Some(message) = message {
                let key = place_key(peer);
                reader.report(section.place_of(key), section.key(key), message);
            }
            let passive = peer.transport.passive;
            earlier.push(Earlier { index: self.peers, port: peer.port, passive, selector: selector.cloned() });
        }
        self.peers += 1;
    }
}

/// Of two sessions between the same two addresses collision detection closes one (RFC 4271 §6.8). On another link, or in a VRF, the same address is another
/// host's. A connection that a peer dials comes from any port: only its address says whose it is.
fn check_place(peer: &DesiredPeer, earlier: &[&Earlier]) -> Option<String> {
    if let Some(Earlier { index, .. }) = earlier.iter().find(|earlier| earlier.port == peer.port) {
        return Some(format!(
            "bgp.peers[{index}] has {} and port {} too: of two sessions between the same two addresses one is closed as a collision (RFC 4271 §6.8)",
            peer.address, peer.port
        ));
    }
    let Earlier { index, .. } = earlier.iter().find(|earlier| peer.transport.passive || earlier.passive)?;
    Some(format!(
        "bgp.peers[{index}] has {} too, and one of both is passive: a connection that is dialled from there could be of either, whatever their ports",
        peer.address
    ))
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
