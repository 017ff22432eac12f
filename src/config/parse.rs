// SPDX-License-Identifier: Apache-2.0
//! From the tree of a file to a [`Config`]: defaults, and the rules that tie several keys together.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipvs::{SyncRole, Timeouts};

use super::read::{Element, Kind, Reader, Section};
use super::{
    Allowed, Config, ConfigError, ConnectionSync, Dataplane, DataplaneType, DrainTaint, Environment, LocalPolicy, Log, LogFormat, OnCordon,
    OnTermination, PeerSelectors, Vips, WithoutEndpoints, kinds, policy, pools, speaker, tree, virtual_routers,
};
use crate::api::{ForwardingMethod, Scheduler};
use crate::desired::{DesiredBgp, DrainTimes, Mode, MssClamp, Scheduling, Scope, UnservedPorts, translated};

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
    let mode = reader.or(&root, "mode", &kinds::MODE, Mode::Bgp);
    let node_name = node_name(reader, &root);
    let node = reader.section(&root, "node");
    let external_interface = reader.optional(&node, "externalInterface", &kinds::INTERFACE);
    let label_external_ip = reader.flag(&node, "labelExternalIP", true);
    let vips = vips(reader, &root);
    let dataplane = dataplane(reader, &root, vips.as_ref());
    let bgp_section = reader.section(&root, "bgp");
    // Virtual routers do without BGP.
    let is_needed = root.has("bgp") || mode != Some(Mode::Vrrp);
    let bgp = if is_needed {
        speaker::bgp(reader, &bgp_section, node_name.as_deref())
    } else {
        Some((DesiredBgp::nobody(), PeerSelectors::new()))
    };
    let (bgp, peer_selectors) = bgp.unzip();
    let routing = policy::routing(reader, &bgp_section, bgp.as_ref());
    let vrrp = mode.map(|mode| virtual_routers::virtual_routing(reader, &root, mode, vips.as_ref(), dataplane.as_ref()));
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
        peer_selectors: peer_selectors?,
        routing,
        vrrp: vrrp?,
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

/// The values of a list, of which the order does not matter; none where it is absent.
pub(super) fn set<T: Ord>(reader: &mut Reader<'_>, section: &Section<'_>, name: &str, kind: &Kind<T>) -> BTreeSet<T> {
    let elements = reader.list(section, name).unwrap_or_default();
    elements.iter().filter_map(|element| reader.scalar(element, kind)).collect()
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
