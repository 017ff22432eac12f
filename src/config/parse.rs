// SPDX-License-Identifier: Apache-2.0
//! From the tree of a file to a [`Config`]: defaults, and the rules that tie several keys together.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bgp::peer::{PeerConfig, RoleConfig};
use bgp::wire::AddPathMode;
use bgp::{Asn, Family, HoldTime};
use ipvs::{SyncRole, Timeouts};

use super::peers::{Seen, check_signed};
use super::read::{Element, Kind, Reader, Section};
use super::{
    Allowed, Config, ConfigError, ConnectionSync, Dataplane, DataplaneType, DrainTaint, Environment, LocalPolicy, Log, LogFormat, OnCordon,
    OnTermination, Vips, WithoutEndpoints, kinds, policy, pools, tree,
};
use crate::api::{ForwardingMethod, Scheduler};
use crate::desired::{
    AoAlgorithm, AoKey, DesiredBgp, DesiredExport, DesiredImport, DesiredListen, DesiredPeer, DesiredRestart, DrainTimes, MssClamp,
    PeerAddress, Scheduling, Scope, Transport, Ttl, UnservedPorts, translated,
};

const INSTANCE: &str = "vipherald";
const INTERFACE: &str = "lo";
const FABRIC_DELAY: Duration = Duration::from_secs(1);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(25);
const REAL_SERVER_DRAIN: Duration = Duration::from_secs(30);
const FIRST_MARK: u32 = 64;
/// Above the 20 minutes for which connections of customers are idle, in seconds.
const TCP_TIMEOUT: u32 = 1800;
/// A timeout that is left as the kernel has it.
const AS_IT_IS: u32 = 0;
/// Of the Internet's register of ports.
const GUE_PORT: u16 = 6080;
/// What the kernel's daemons of connection synchronisation speak to unless told otherwise.
const SYNC_GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(224, 0, 0, 81));
const SYNC_PORT: u16 = 8848;
const PATIENCE: Duration = Duration::from_secs(5);
const DYNAMIC_LIMIT: u32 = 100;
const HTTP_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9479);
const LEVEL: &str = "info";

/// Reads a whole file, or returns all its mistakes in the order of their places.
pub(super) fn parse(text: &str, environment: &Environment) -> Result<Config, Vec<ConfigError>> {
    let tree = tree::parse(text).map_err(|error| vec![error])?;
    let mut reader = Reader::new(environment);
    let config = whole(&mut reader, &tree);
    let errors = reader.into_errors();
    match config {
        Some(config) if errors.is_empty() => Ok(config),
        _ => Err(errors),
    }
}

/// `None` only where a mistake has been reported, here and below.
fn whole(reader: &mut Reader<'_>, tree: &tree::Node) -> Option<Config> {
    let root = reader.root(tree);
    let instance = reader.or(&root, "instance", &kinds::INSTANCE, INSTANCE.to_owned());
    let scope = scope(reader, &root);
    let node_name = node_name(reader, &root);
    let node = reader.section(&root, "node");
    let external_interface = reader.optional(&node, "externalInterface", &kinds::INTERFACE);
    let label_external_ip = reader.flag(&node, "labelExternalIP", true);
    let vips = vips(reader, &root);
    let dataplane = dataplane(reader, &root, vips.as_ref());
    let bgp_section = reader.section(&root, "bgp");
    let bgp = bgp(reader, &bgp_section, node_name.as_deref());
    let routing = policy::routing(reader, &bgp_section, bgp.as_ref());
    let drain_section = reader.section(&root, "drain");
    let on_termination = reader.or(&drain_section, "onTermination", &kinds::ON_TERMINATION, OnTermination::Auto);
    let workload = reader.optional(&drain_section, "workload", &kinds::WORKLOAD);
    let on_cordon = reader.or(&drain_section, "onCordon", &kinds::ON_CORDON, OnCordon::Auto);
    let drain_taints = drain_taints(reader, &drain_section);
    let drain = drain(reader, &drain_section);
    let startup = reader.section(&root, "startup");
    let startup_patience = reader.or(&startup, "patience", &kinds::TIME, PATIENCE);
    let default = PathBuf::from(format!("/run/vipherald/{}", instance.as_deref().unwrap_or(INSTANCE)));
    let state_dir = reader.or(&root, "stateDir", &kinds::STATE_DIR, default);
    let http = reader.section(&root, "http");
    let http_address = reader.or(&http, "address", &kinds::HTTP_ADDRESS, HTTP_ADDRESS);
    let log = log(reader, &root);
    Some(Config {
        instance: instance?,
        scope: scope?,
        node_name: node_name?,
        external_interface,
        label_external_ip: label_external_ip?,
        vips: vips?,
        dataplane: dataplane?,
        bgp: bgp?,
        routing,
        on_termination: on_termination?,
        workload,
        on_cordon: on_cordon?,
        drain_taints,
        drain: drain?,
        startup_patience: startup_patience?,
        state_dir: state_dir?,
        http_address: http_address?,
        log: log?,
    })
}

fn scope(reader: &mut Reader<'_>, root: &Section<'_>) -> Option<Scope> {
    let domain = reader.or(root, "domain", &kinds::DOMAIN, String::new());
    let elements = reader.list(root, "namespaces").unwrap_or_default();
    let namespaces = elements.iter().filter_map(|element| reader.scalar(element, &kinds::NAMESPACE)).collect();
    let namespace_selector = reader.or(root, "namespaceSelector", &kinds::LABEL_SELECTOR, None);
    Some(Scope { domain: domain?, namespaces, namespace_selector: namespace_selector? })
}

fn node_name(reader: &mut Reader<'_>, root: &Section<'_>) -> Option<String> {
    let node = reader.section(root, "node");
    if node.has("name") {
        reader.optional(&node, "name", &kinds::NODE_NAME)
    } else {
        reader.implied(&node, "name", "${NODE_NAME}", &kinds::NODE_NAME)
    }
}

fn vips(reader: &mut Reader<'_>, root: &Section<'_>) -> Option<Vips> {
    let section = reader.section(root, "vips");
    let interface = reader.or(&section, "interface", &kinds::INTERFACE, INTERFACE.to_owned());
    let elements = reader.list(&section, "allow");
    let allow = elements.map(|elements| elements.iter().filter_map(|element| allowed(reader, element)).collect());
    let without_endpoints = reader.or(&section, "withoutEndpoints", &kinds::WITHOUT_ENDPOINTS, WithoutEndpoints::Withdraw);
    let pools = pools::pools(reader, &section);
    Some(Vips { interface: interface?, allow, pools, without_endpoints: without_endpoints? })
}

fn allowed(reader: &mut Reader<'_>, element: &Element<'_>) -> Option<Allowed> {
    let section = reader.element(element);
    let prefix = reader.required(&section, "prefix", &kinds::PREFIX);
    let elements = reader.list(&section, "namespaces").unwrap_or_default();
    let namespaces = elements.iter().filter_map(|element| reader.scalar(element, &kinds::NAMESPACE)).collect();
    Some(Allowed { prefix: prefix?, namespaces })
}

fn dataplane(reader: &mut Reader<'_>, root: &Section<'_>, vips: Option<&Vips>) -> Option<Dataplane> {
    let section = reader.section(root, "dataplane");
    let kind = reader.or(&section, "type", &kinds::dataplane::DATAPLANE, DataplaneType::KubeProxy);
    let scheduler = reader.or(&section, "scheduler", &kinds::dataplane::SCHEDULER, Scheduler::MaglevHashing);
    let forwarding = reader.or(&section, "forwarding", &kinds::dataplane::FORWARDING, ForwardingMethod::Masquerade);
    let drain_timeout = reader.or(&section, "drainTimeout", &kinds::TIME, REAL_SERVER_DRAIN);
    let unserved_ports = reader.or(&section, "unservedPorts", &kinds::dataplane::UNSERVED_PORTS, UnservedPorts::Drop);
    let masquerade = reader.section(&section, "masquerade");
    let except = reader.list(&masquerade, "exceptPrefixes").unwrap_or_default();
    let not_masqueraded = except.iter().filter_map(|element| reader.scalar(element, &kinds::PREFIX)).collect();
    let preserves_client = reader.flag(&section, "preserveClientAddress", false);
    let local = reader.or(&section, "localPolicy", &kinds::dataplane::LOCAL_POLICY, LocalPolicy::EndpointNodes);
    let mss_clamp = reader.or(&section, "mssClamp", &kinds::dataplane::MSS_CLAMP, MssClamp::Off);
    let timeouts = reader.section(&section, "timeouts");
    let timeouts = [("tcp", TCP_TIMEOUT), ("tcpFin", AS_IT_IS), ("udp", AS_IT_IS)]
        .map(|(name, default)| reader.or(&timeouts, name, &kinds::dataplane::IDLE_TIME, default));
    let tunnel = reader.section(&section, "tunnel");
    let tunnel_type = reader.or(&tunnel, "type", &kinds::dataplane::TUNNEL, ForwardingMethod::Tunnel);
    let gue_port = reader.or(&tunnel, "port", &kinds::dataplane::UDP_PORT, GUE_PORT);
    let connection_sync = if section.has("connectionSync") { connection_sync(reader, &section, kind).map(Some) } else { Some(None) };
    let first_mark = reader.or(&section, "fwmarkFrom", &kinds::dataplane::FWMARK, FIRST_MARK);
    let set_sysctls = reader.flag(&section, "setSysctls", true);
    let is_possible = kind != Some(DataplaneType::Nftables) || needs_no_ipvs(reader, &section, scheduler, forwarding);
    // Speaker-only use needs to be told what it may announce.
    if kind == Some(DataplaneType::None) && vips.is_some_and(|vips| vips.allow.is_none()) {
        let message = "'none' announces what it finds on vips.interface, so it needs vips.allow to say which prefixes".to_owned();
        reader.report(section.place_of("type"), section.key("type"), message);
        return None;
    }
    Some(Dataplane {
        kind: kind.filter(|_| is_possible)?,
        scheduler: scheduler?,
        forwarding: forwarding?,
        drain_timeout: drain_timeout?,
        unserved_ports: unserved_ports?,
        not_masqueraded,
        preserves_client: preserves_client?,
        local: local?,
        mss_clamp: mss_clamp?,
        timeouts: Timeouts { tcp: timeouts[0]?, tcp_fin: timeouts[1]?, udp: timeouts[2]? },
        tunnel: tunnel_type?,
        gue_port: gue_port?,
        connection_sync: connection_sync?,
        first_mark: first_mark?,
        set_sysctls: set_sysctls?,
    })
}

/// Whether nft can do what is said for all Services: else none of them would be served.
fn needs_no_ipvs(
    reader: &mut Reader<'_>,
    dataplane: &Section<'_>,
    scheduler: Option<Scheduler>,
    forwarding: Option<ForwardingMethod>,
) -> bool {
    let scheduling = scheduler.map(|scheduler| translated(Scheduling::of(scheduler), ForwardingMethod::Masquerade));
    let delivering = forwarding.map(|forwarding| translated(Scheduling::of(Scheduler::MaglevHashing), forwarding));
    let mut possible = true;
    for (name, translated) in [("scheduler", scheduling), ("forwarding", delivering)] {
        if let Some(Err(message)) = translated {
            reader.report(dataplane.place_of(name), dataplane.key(name), message);
            possible = false;
        }
    }
    possible
}

fn connection_sync(reader: &mut Reader<'_>, dataplane: &Section<'_>, kind: Option<DataplaneType>) -> Option<ConnectionSync> {
    let section = reader.section(dataplane, "connectionSync");
    let interface = reader.required(&section, "interface", &kinds::INTERFACE);
    let roles = match reader.list(&section, "roles") {
        Some(elements) => elements.iter().map(|element| reader.scalar(element, &kinds::dataplane::SYNC_ROLE)).collect(),
        None => Some(SyncRole::ALL.into()).filter(|_| !section.has("roles")),
    };
    let sync_id = reader.or(&section, "syncId", &kinds::dataplane::SYNC_ID, 1);
    let group = reader.or(&section, "group", &kinds::dataplane::MULTICAST_GROUP, SYNC_GROUP);
    let port = reader.or(&section, "port", &kinds::dataplane::UDP_PORT, SYNC_PORT);
    let ttl = reader.or(&section, "ttl", &kinds::dataplane::MULTICAST_TTL, 1);
    let max_length = if section.has("maxLength") {
        reader.optional(&section, "maxLength", &kinds::dataplane::SYNC_LENGTH).map(Some)
    } else {
        Some(None)
    };
    if kind.is_some_and(|kind| !matches!(kind, DataplaneType::Auto | DataplaneType::Ipvs)) {
        let message = "only IPVS tells other routers of connections: dataplane.type ipvs, or auto".to_owned();
        reader.report(dataplane.place_of("connectionSync"), dataplane.key("connectionSync"), message);
        return None;
    }
    Some(ConnectionSync {
        interface: interface?,
        roles: roles?,
        sync_id: sync_id?,
        group: group?,
        port: port?,
        ttl: ttl?,
        max_length: max_length?,
    })
}

fn bgp(reader: &mut Reader<'_>, section: &Section<'_>, node_name: Option<&str>) -> Option<DesiredBgp> {
    let asn = reader.required(section, "asn", &kinds::bgp::ASN);
    let router_id = reader.or(section, "routerId", &kinds::bgp::ROUTER_ID, None);
    let cluster_id = reader.optional(section, "clusterId", &kinds::bgp::CLUSTER_ID).filter(|id| router_id.flatten() != Some(*id));
    let send_host_name = reader.flag(section, "sendHostName", true);
    let send_software_version = reader.flag(section, "sendSoftwareVersion", false);
    let listen = if section.has("listen") { listen(reader, section, asn).map(Some) } else { Some(None) };
    let elements = reader.list(section, "peers").unwrap_or_default();
    let mut peers = BTreeMap::new();
    let mut seen = Seen::default();
    for element in &elements {
        let section = reader.element(element);
        let name = reader.required(&section, "name", &kinds::bgp::PEER_NAME);
        let peer = peer(reader, &section, asn);
        seen.check(reader, &section, name.as_deref(), peer.as_ref());
        if let (Some(peer), Some(listen)) = (&peer, &listen) {
            check_passive(reader, &section, peer, listen.as_ref());
            check_signed(reader, &section, peer, listen.as_ref());
        }
        if let (Some(name), Some(peer)) = (name, peer) {
            peers.insert(name, peer);
        }
    }
    Some(DesiredBgp {
        asn: asn?,
        router_id: router_id?,
        cluster_id,
        host_name: node_name.filter(|_| send_host_name == Some(true)).map(ToOwned::to_owned),
        send_software_version: send_software_version?,
        listen: listen?,
        peers,
    })
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

/// The values of a list, of which the order does not matter; none where it is absent.
pub(super) fn set<T: Ord>(reader: &mut Reader<'_>, section: &Section<'_>, name: &str, kind: &Kind<T>) -> BTreeSet<T> {
    let elements = reader.list(section, name).unwrap_or_default();
    elements.iter().filter_map(|element| reader.scalar(element, kind)).collect()
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

fn drain(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<DrainTimes> {
    let graceful_shutdown = reader.or(section, "gracefulShutdown", &kinds::TIME, Duration::ZERO);
    let fabric_delay = reader.or(section, "fabricDelay", &kinds::TIME, FABRIC_DELAY);
    let timeout = reader.or(section, "timeout", &kinds::TIME, DRAIN_TIMEOUT);
    let (fabric_delay, timeout) = (fabric_delay?, timeout?);
    if fabric_delay >= timeout {
        let (delay, found) = (humantime::format_duration(fabric_delay), humantime::format_duration(timeout));
        let message = format!("expected a time longer than drain.fabricDelay, which is {delay}, found {found}");
        reader.report(section.place_of("timeout"), section.key("timeout"), message);
    }
    Some(DrainTimes { graceful_shutdown: graceful_shutdown?, fabric_delay, timeout })
}

/// Where a mistake is reported, the element that has it is left out.
fn drain_taints(reader: &mut Reader<'_>, section: &Section<'_>) -> Vec<DrainTaint> {
    let elements = reader.list(section, "taints").unwrap_or_default();
    let mut taint = |element| {
        let section = reader.element(element);
        let key = reader.required(&section, "key", &kinds::TAINT_KEY);
        let value = reader.optional(&section, "value", &kinds::TAINT_VALUE);
        let effect = reader.optional(&section, "effect", &kinds::TAINT_EFFECT);
        Some(DrainTaint { key: key?, value, effect })
    };
    elements.iter().filter_map(&mut taint).collect()
}

fn log(reader: &mut Reader<'_>, root: &Section<'_>) -> Option<Log> {
    let section = reader.section(root, "log");
    let level = reader.or(&section, "level", &kinds::LOG_LEVEL, LEVEL.to_owned());
    let format = reader.or(&section, "format", &kinds::LOG_FORMAT, LogFormat::Json);
    Some(Log { level: level?, format: format? })
}
