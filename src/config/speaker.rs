// SPDX-License-Identifier: Apache-2.0
//! The section `bgp` but its policies and aggregates: the speaker, where it listens, and its peers.
//!
//! Input: the section. Output: a [`DesiredBgp`], or `None` where a mistake has been reported.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bgp::peer::{PeerConfig, RoleConfig};
use bgp::wire::AddPathMode;
use bgp::{Asn, Family, HoldTime};

use super::PeerSelectors;
use super::kinds;
use super::parse::set;
use super::peers::{Seen, check_signed};
use super::read::{Reader, Section};
use crate::desired::{
    AoAlgorithm, AoKey, DesiredBgp, DesiredExport, DesiredImport, DesiredListen, DesiredPeer, DesiredRestart, PeerAddress, Transport, Ttl,
};

const DYNAMIC_LIMIT: u32 = 100;

/// The whole section, and which peers only some nodes have.
pub(super) fn bgp(reader: &mut Reader<'_>, section: &Section<'_>, node_name: Option<&str>) -> Option<(DesiredBgp, PeerSelectors)> {
    let asn = reader.required(section, "asn", &kinds::bgp::ASN);
    let router_id = reader.or(section, "routerId", &kinds::bgp::ROUTER_ID, None);
    let cluster_id = reader.optional(section, "clusterId", &kinds::bgp::CLUSTER_ID).filter(|id| router_id.flatten() != Some(*id));
    let send_host_name = reader.flag(section, "sendHostName", true);
    let send_software_version = reader.flag(section, "sendSoftwareVersion", false);
    let listen = if section.has("listen") { listen(reader, section, asn).map(Some) } else { Some(None) };
    let elements = reader.list(section, "peers").unwrap_or_default();
    let (mut peers, mut selectors) = (BTreeMap::new(), PeerSelectors::new());
    let mut seen = Seen::default();
    for element in &elements {
        let section = reader.element(element);
        let name = reader.required(&section, "name", &kinds::bgp::PEER_NAME);
        let selector = reader.or(&section, "nodeSelector", &kinds::LABEL_SELECTOR, None).flatten();
        let peer = peer(reader, &section, asn);
        seen.check(reader, &section, name.as_deref(), peer.as_ref(), selector.as_ref());
        if let (Some(peer), Some(listen)) = (&peer, &listen) {
            check_passive(reader, &section, peer, listen.as_ref());
            check_signed(reader, &section, peer, listen.as_ref());
        }
        if let (Some(name), Some(peer)) = (name, peer) {
            selectors.extend(selector.map(|selector| (name.clone(), selector)));
            peers.insert(name, peer);
        }
    }
    let bgp = DesiredBgp {
        asn: asn?,
        router_id: router_id?,
        cluster_id,
        host_name: node_name.filter(|_| send_host_name == Some(true)).map(ToOwned::to_owned),
        send_software_version: send_software_version?,
        listen: listen?,
        peers,
    };
    Some((bgp, selectors))
}

fn listen(reader: &mut Reader<'_>, bgp: &Section<'_>, local_asn: Option<Asn>) -> Option<DesiredListen> {
    let section = reader.section(bgp, "listen");
    let address = reader.required(&section, "address", &kinds::bgp::LISTEN_ADDRESS);
    let port = reader.or(&section, "port", &kinds::PORT, DesiredPeer::PORT);
    let elements = reader.list(&section, "prefixes");
    if elements.as_ref().map_or_else(|| !section.has("prefixes"), Vec::is_empty) {
        refuse_dynamic_keys(reader, &section);
    }
    let mut prefixes = BTreeSet::new();
    for element in elements.iter().flatten() {
        let Some(prefix) = reader.scalar(element, &kinds::PREFIX) else { continue };
        if address.is_some_and(|address| address.is_ipv4() != prefix.address().is_ipv4()) {
            let message = format!("expected a prefix of the same family as bgp.listen.address, found {prefix}");
            reader.report(section.place_of("prefixes"), section.key("prefixes"), message);
        }
        prefixes.insert(prefix);
    }
    let limit = reader.or(&section, "limit", &kinds::bgp::LIMIT, DYNAMIC_LIMIT);
    let asn = if section.has("asn") { reader.optional(&section, "asn", &kinds::bgp::ASN) } else { local_asn };
    let own = address.map(PeerAddress::Known);
    let export = export(reader, &section, None);
    let template = neighbour(reader, &section, own, asn, local_asn);
    let mut template = DesiredPeer { export: export?, ..template? };
    template.transport.passive = true;
    Some(DesiredListen { address: address?, port: port?, prefixes, limit: limit?, template })
}

/// What dynamic peers are like is said for nobody where none may dial us.
fn refuse_dynamic_keys(reader: &mut Reader<'_>, listen: &Section<'_>) {
    for name in listen.names().filter(|name| !matches!(*name, "address" | "port" | "prefixes")) {
        let message = "it is about dynamic peers, and without bgp.listen.prefixes there are none; a configured peer has keys of its own";
        reader.report(listen.place_of(name), listen.key(name), message.to_owned());
    }
}

/// A peer that only dials needs something to dial.
fn check_passive(reader: &mut Reader<'_>, section: &Section<'_>, peer: &DesiredPeer, listen: Option<&DesiredListen>) {
    let message = match listen {
        _ if !peer.transport.passive => return,
        Some(listen) => match &peer.address {
            PeerAddress::Known(address) if listen.address.is_ipv4() != address.is_ipv4() => {
                format!("the peer cannot dial us: bgp.listen.address {} is of the other family", listen.address)
            }
            PeerAddress::Unnumbered(_) if listen.address.is_ipv4() => {
                format!(
                    "the peer cannot dial us: bgp.listen.address {} is of the other family, unnumbered sessions are over IPv6",
                    listen.address
                )
            }
            PeerAddress::Known(_) | PeerAddress::Gateway | PeerAddress::Unnumbered(_) => return,
        },
        None => "the peer cannot dial us: there is no bgp.listen".to_owned(),
    };
    reader.report(section.place_of("passive"), section.key("passive"), message);
}

fn peer(reader: &mut Reader<'_>, section: &Section<'_>, local_asn: Option<Asn>) -> Option<DesiredPeer> {
    let address = peer_address(reader, section);
    let port = reader.or(section, "port", &kinds::PORT, DesiredPeer::PORT);
    let asn = reader.required(section, "asn", &kinds::bgp::ASN);
    if address.as_ref().and_then(PeerAddress::known).is_some_and(is_link_local) && !section.has("interface") {
        let message = "this link-local address is good on one link only: say on which by interface";
        reader.report(section.place_of("address"), section.key("address"), message.to_owned());
    }
    let export = export(reader, section, address.as_ref().and_then(PeerAddress::known));
    let peer = neighbour(reader, section, address, asn, local_asn);
    Some(DesiredPeer { port: port?, export: export?, ..peer? })
}

/// The keys that configured and dynamic peers share, but for `export`.
fn neighbour(
    reader: &mut Reader<'_>,
    section: &Section<'_>,
    address: Option<PeerAddress>,
    asn: Option<Asn>,
    local_asn: Option<Asn>,
) -> Option<DesiredPeer> {
    let internal = asn.zip(local_asn).map(|(asn, local_asn)| asn == local_asn);
    let transport = transport(reader, section, address.as_ref(), internal);
    let families = families(reader, section);
    let reflector_client = reflector_client(reader, section, asn, local_asn);
    let add_path = add_path(reader, section);
    let keep_received = reader.or(section, "keepReceived", &kinds::bgp::KEEP_RECEIVED, 0);
    let role = role(reader, section, internal);
    let extended_messages = reader.flag(section, "extendedMessages", false);
    let extended_next_hop = reader.flag(section, "extendedNextHop", false);
    let timers = timers(reader, section);
    let graceful_restart = if section.has("gracefulRestart") { graceful_restart(reader, section).map(Some) } else { Some(None) };
    let import = import(reader, section);
    let Timers { hold_time, send_hold_time, connect_retry } = timers?;
    Some(DesiredPeer {
        transport: transport?,
        families,
        hold_time,
        send_hold_time,
        connect_retry,
        graceful_restart: graceful_restart?,
        import: import?,
        reflector_client: reflector_client?,
        add_path: add_path?,
        keep_received: keep_received?,
        role: role?,
        extended_messages: extended_messages?,
        extended_next_hop: extended_next_hop?,
        address: address?,
        ..DesiredPeer::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), asn?)
    })
}

/// Where a peer is: one of three ways to say it.
fn peer_address(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<PeerAddress> {
    let address = reader.optional(section, "address", &kinds::bgp::PEER_ADDRESS);
    let gateway = reader.flag(section, "gateway", false);
    let mut report = |name: &str, message: &str| reader.report(section.place_of(name), section.key(name), message.to_owned());
    match (section.has("address"), gateway?) {
        (true, false) => return address.map(PeerAddress::Known),
        (true, true) => {
            report("gateway", "expected either address or gateway: the peer is at an address, or is the node's default gateway")
        }
        (false, true) if section.has("interface") => {
            report("interface", "expected either gateway or interface: routing says by which interface the default gateway is reached");
        }
        (false, true) => return Some(PeerAddress::Gateway),
        (false, false) if section.has("interface") => {
            return reader.optional(section, "interface", &kinds::INTERFACE).map(PeerAddress::Unnumbered);
        }
        (false, false) => return reader.required(section, "address", &kinds::bgp::PEER_ANYWHERE).map(PeerAddress::Known),
    }
    None
}

/// Reflection is for peers of our own AS (RFC 4456 §4).
fn reflector_client(reader: &mut Reader<'_>, section: &Section<'_>, asn: Option<Asn>, local_asn: Option<Asn>) -> Option<bool> {
    let client = reader.flag(section, "reflectorClient", false);
    if let (Some(true), Some(asn), Some(local_asn)) = (client, asn, local_asn)
        && asn != local_asn
    {
        let message = format!("a client of a route reflector is in its AS, {local_asn}; this peer is in {asn}");
        reader.report(section.place_of("reflectorClient"), section.key("reflectorClient"), message);
    }
    client
}

/// Roles are for external peers (RFC 9234 §4).
fn role(reader: &mut Reader<'_>, section: &Section<'_>, internal: Option<bool>) -> Option<Option<RoleConfig>> {
    let local = reader.optional(section, "localRole", &kinds::bgp::LOCAL_ROLE);
    let strict = reader.flag(section, "strictRole", false)?;
    if strict && !section.has("localRole") {
        let message = "expected localRole too: the peer's role can be demanded only where ours is said".to_owned();
        reader.report(section.place_of("strictRole"), section.key("strictRole"), message);
    }
    if section.has("localRole") && internal == Some(true) {
        let message = "roles are for external peers (RFC 9234 §4), and this one is in our own AS".to_owned();
        reader.report(section.place_of("localRole"), section.key("localRole"), message);
    }
    Some(local.map(|local| RoleConfig { local, strict }))
}

struct Timers {
    hold_time: HoldTime,
    send_hold_time: Option<Duration>,
    connect_retry: Duration,
}

/// A peer may say nothing for the hold time, so it cannot be given up sooner because it does not read (RFC 9687 §5).
fn timers(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<Timers> {
    let section = reader.section(section, "timers");
    let hold_time = reader.or(&section, "hold", &kinds::bgp::HOLD, DesiredPeer::HOLD_TIME);
    let send_hold_time = reader.optional(&section, "sendHold", &kinds::bgp::SEND_HOLD);
    let connect_retry = reader.or(&section, "connectRetry", &kinds::bgp::CONNECT_RETRY, DesiredPeer::CONNECT_RETRY);
    if let (Some(hold), Some(send_hold)) = (hold_time.and_then(HoldTime::duration), send_hold_time)
        && send_hold <= hold
    {
        let (hold, found) = (humantime::format_duration(hold), humantime::format_duration(send_hold));
        let message = format!("expected a time longer than timers.hold, which is {hold}, found {found}");
        reader.report(section.place_of("sendHold"), section.key("sendHold"), message);
    }
    let twice = hold_time.and_then(HoldTime::duration).unwrap_or_default() * 2;
    let send_hold_time = send_hold_time.filter(|time| *time != PeerConfig::SEND_HOLD_TIME || twice > *time);
    Some(Timers { hold_time: hold_time?, send_hold_time, connect_retry: connect_retry? })
}

fn graceful_restart(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<DesiredRestart> {
    let section = reader.section(section, "gracefulRestart");
    let restart_time = reader.required(&section, "restartTime", &kinds::bgp::RESTART_TIME);
    let notification = reader.flag(&section, "notification", true);
    let long_lived_stale_time = reader.or(&section, "longLivedStaleTime", &kinds::bgp::LONG_LIVED_STALE_TIME, 0);
    Some(DesiredRestart { restart_time: restart_time?, notification: notification?, long_lived_stale_time: long_lived_stale_time? })
}

/// What a peer may tell us.
fn import(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<DesiredImport> {
    let section = reader.section(section, "import");
    let limits = reader.section(&section, "maxPrefixes");
    let families = [("ipv4", Family::Ipv4Unicast), ("ipv6", Family::Ipv6Unicast)];
    let limit = |(name, family)| Some((family, reader.optional(&limits, name, &kinds::bgp::MAX_PREFIXES)?));
    let max_prefixes = families.into_iter().filter_map(limit).collect();
    let restart_delay = reader.or(&section, "restartDelay", &kinds::bgp::RESTART_DELAY, DesiredImport::default().restart_delay);
    Some(DesiredImport { max_prefixes, restart_delay: restart_delay? })
}

/// With what routes are announced to a peer, which is here. It is not told its own address as the next hop (RFC 4271 §5.1.3).
fn export(reader: &mut Reader<'_>, peer: &Section<'_>, address: Option<IpAddr>) -> Option<DesiredExport> {
    let default = DesiredExport::default();
    let section = reader.section(peer, "export");
    let local_preference = reader.or(&section, "localPreference", &kinds::bgp::LOCAL_PREFERENCE, default.local_preference);
    let med = reader.optional(&section, "med", &kinds::bgp::MED);
    let prepend = reader.or(&section, "prepend", &kinds::bgp::PREPEND, default.prepend);
    let communities = set(reader, &section, "communities", &kinds::bgp::COMMUNITY);
    let large_communities = set(reader, &section, "largeCommunities", &kinds::bgp::LARGE_COMMUNITY);
    let extended_communities = set(reader, &section, "extendedCommunities", &kinds::bgp::EXTENDED_COMMUNITY);
    let link_bandwidth = reader.optional(&section, "linkBandwidth", &kinds::bgp::LINK_BANDWIDTH);
    let next_hop = reader.section(&section, "nextHop");
    let next_hop_ipv4 = reader.or(&next_hop, "ipv4", &kinds::bgp::NEXT_HOP_IPV4, None);
    let next_hop_ipv6 = reader.or(&next_hop, "ipv6", &kinds::bgp::NEXT_HOP_IPV6, None);
    let (ipv4, ipv6) = (next_hop_ipv4.flatten().map(IpAddr::V4), next_hop_ipv6.flatten().map(IpAddr::V6));
    for (name, own) in [("ipv4", ipv4), ("ipv6", ipv6)] {
        let Some(own) = own.filter(|own| Some(*own) == address) else { continue };
        let message = format!("{own} is the peer's own address, which it is not told as a next hop (RFC 4271 §5.1.3)");
        reader.report(next_hop.place_of(name), next_hop.key(name), message);
    }
    Some(DesiredExport {
        local_preference: local_preference?,
        med,
        prepend: prepend?,
        communities,
        large_communities,
        extended_communities,
        link_bandwidth,
        next_hop_ipv4: next_hop_ipv4?,
        next_hop_ipv6: next_hop_ipv6?,
    })
}

fn add_path(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<Option<AddPathMode>> {
    let section = reader.section(section, "addPath");
    let send = reader.flag(&section, "send", false);
    let receive = reader.flag(&section, "receive", false);
    Some(match (send?, receive?) {
        (true, true) => Some(AddPathMode::Both),
        (true, false) => Some(AddPathMode::Send),
        (false, true) => Some(AddPathMode::Receive),
        (false, false) => None,
    })
}

/// How the connection to a peer at this address is made. What is written down and is the default is the default.
fn transport(reader: &mut Reader<'_>, section: &Section<'_>, peer: Option<&PeerAddress>, internal: Option<bool>) -> Option<Transport> {
    let address = peer.and_then(PeerAddress::known);
    let password_file = reader.optional(section, "passwordFile", &kinds::FILE);
    let ao_keys = ao_keys(reader, section);
    let security = reader.section(section, "ttlSecurity");
    let hops = if section.has("ttlSecurity") { reader.required(&security, "hops", &kinds::bgp::HOPS) } else { None };
    let multihop = reader.optional(section, "multihop", &kinds::bgp::HOPS);
    let source = reader.optional(section, "source", &kinds::bgp::SOURCE);
    // That of an unnumbered peer is read with its address.
    let interface = if section.has("address") { reader.optional(section, "interface", &kinds::INTERFACE) } else { None };
    let passive = reader.flag(section, "passive", false);
    if section.has("ttlSecurity") && section.has("multihop") {
        let message =
            "expected either multihop or ttlSecurity: with ttlSecurity the TTL is 255 (RFC 5082), and its hops say how far the peer is";
        reader.report(section.place_of("multihop"), section.key("multihop"), message.to_owned());
    }
    if let (Some(address), Some(source)) = (address, source)
        && address.is_ipv4() != source.is_ipv4()
    {
        let message = format!("expected an address of the same family as the peer's, which is {address}, found {source}");
        reader.report(section.place_of("source"), section.key("source"), message);
    }
    if let (Some(address), Some(source)) = (address, source)
        && address == source
        && !source.is_loopback()
    {
        let message = format!("{source} is the peer's own address; expected one of this node");
        reader.report(section.place_of("source"), section.key("source"), message);
    }
    if matches!(peer, Some(PeerAddress::Unnumbered(_))) {
        for name in ["source", "multihop"].into_iter().filter(|name| section.has(name)) {
            let message = format!("an unnumbered session is between the link-local addresses of its link; leave {name} out");
            reader.report(section.place_of(name), section.key(name), message);
        }
    }
    let multihop = multihop.filter(|ttl| internal != Some(false) || *ttl != Ttl::EXTERNAL);
    let ttl = hops.map_or_else(|| multihop.map_or(Ttl::Customary, Ttl::Multihop), |hops| Ttl::Security { hops });
    Some(Transport { source, interface, ttl, passive: passive?, password_file, ao_keys })
}

/// The keys of TCP-AO. Of two keys of a peer both numbers differ (RFC 5925 §3.1).
fn ao_keys(reader: &mut Reader<'_>, peer: &Section<'_>) -> Vec<AoKey> {
    let section = reader.section(peer, "tcpAo");
    let elements = reader.list(&section, "keys").unwrap_or_default();
    if peer.has("tcpAo") && elements.is_empty() {
        reader.report(section.place_of("keys"), section.key("keys"), "expected at least one key".to_owned());
    }
    if peer.has("tcpAo") && peer.has("passwordFile") {
        let message = "expected either tcpAo or passwordFile: TCP-MD5 and TCP-AO do not go together (RFC 5925 §2.2)";
        reader.report(peer.place_of("tcpAo"), peer.key("tcpAo"), message.to_owned());
    }
    let (mut keys, mut sent, mut received) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for element in &elements {
        let section = reader.element(element);
        let send_id = reader.required(&section, "sendId", &kinds::bgp::KEY_ID);
        let recv_id = if section.has("recvId") { reader.optional(&section, "recvId", &kinds::bgp::KEY_ID) } else { send_id };
        let algorithm = reader.or(&section, "algorithm", &kinds::bgp::AO_ALGORITHM, AoAlgorithm::default());
        let password_file = reader.required(&section, "passwordFile", &kinds::FILE);
        for (name, id, seen) in [("sendId", send_id, &mut sent), ("recvId", recv_id, &mut received)] {
            if let Some(id) = id.filter(|id| !seen.insert(*id)) {
                reader.report(section.place_of(name), section.key(name), format!("another key has {id} (RFC 5925 §3.1)"));
            }
        }
        if let (Some(send_id), Some(recv_id), Some(algorithm), Some(password_file)) = (send_id, recv_id, algorithm, password_file) {
            keys.push(AoKey { send_id, recv_id, algorithm, password_file });
        }
    }
    keys
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

fn families(reader: &mut Reader<'_>, section: &Section<'_>) -> BTreeSet<Family> {
    let Some(elements) = reader.list(section, "families") else { return BTreeSet::from(Family::ALL) };
    if elements.is_empty() {
        reader.report(
            section.place_of("families"),
            section.key("families"),
            "expected at least one of ipv4-unicast, ipv6-unicast".to_owned(),
        );
    }
    elements.iter().filter_map(|element| reader.scalar(element, &kinds::bgp::FAMILY)).collect()
}
