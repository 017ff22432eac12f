// SPDX-License-Identifier: Apache-2.0
//! What kernel, tools and rights there are, and who else uses IPVS.

use std::net::IpAddr;

use ipvs::ServiceAddress;

use super::node::{Capability, IpvsModule, Node, Setting};
use super::{Finding, State};
use crate::api::ForwardingMethod;
use crate::config::{Config, DataplaneType};
use crate::desired::{BalancerKind, PeerAddress, Scheduling};
use crate::observed::ADDRESS_PROTOCOL;
use crate::sysctl::{InterfaceSetting, Sysctl};

/// kube-proxy in IPVS mode puts the addresses of all Services there.
const KUBE_IPVS: &str = "kube-ipvs0";

/// Programs that may balance Services in place of kube-proxy, each by an interface that it makes. Calico makes this one only where it does; Cilium always.
const BY_PROGRAM: [(&str, &str); 2] = [("Cilium", "cilium_host"), ("Calico", "bpfin.cali")];

const SERVICE_PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";

/// What the configuration needs of the kernel. Without one nothing is known to be needed, and balancing by IPVS is assumed.
#[derive(Default)]
struct Needs {
    /// Who is to balance here.
    balancer: Option<BalancerKind>,
    /// IPVS is asked for, and nothing else will do.
    ipvs_only: bool,
    nft: bool,
    /// What is missing is a problem, not a warning.
    known: bool,
    set_sysctls: bool,
    /// Services are balanced by default so that connections which the fabric moves can go on.
    moved_flows: bool,
    md5: bool,
    ao: bool,
    listens_below_1024: bool,
    unnumbered: bool,
    ipv6_vips: bool,
}

impl Needs {
    fn of(config: Option<&Config>, ipvs: IpvsModule) -> Self {
        let Some(config) = config else {
            return Self { balancer: Some(BalancerKind::Ipvs), nft: true, set_sysctls: true, ..Self::default() };
        };
        let balancer = match config.dataplane.kind {
            DataplaneType::Auto if ipvs == IpvsModule::Missing => Some(BalancerKind::Nftables),
            DataplaneType::Auto | DataplaneType::Ipvs => Some(BalancerKind::Ipvs),
            DataplaneType::Nftables => Some(BalancerKind::Nftables),
            DataplaneType::KubeProxy | DataplaneType::None => None,
        };
        let template = config.bgp.listen.iter().map(|listen| &listen.template);
        let peers: Vec<_> = config.bgp.peers.values().chain(template).collect();
        Self {
            balancer,
            ipvs_only: config.dataplane.kind == DataplaneType::Ipvs,
            nft: config.dataplane.kind != DataplaneType::None,
            known: true,
            set_sysctls: config.dataplane.set_sysctls,
            moved_flows: config.dataplane.forwarding != ForwardingMethod::Masquerade
                && Scheduling::of(config.dataplane.scheduler).hashes_client(),
            md5: peers.iter().any(|peer| peer.transport.password_file.is_some()),
            ao: peers.iter().any(|peer| !peer.transport.ao_keys.is_empty()),
            listens_below_1024: config.bgp.listen.as_ref().is_some_and(|listen| listen.port < 1024),
            ipv6_vips: config.vips.allow.iter().flatten().any(|allowed| !allowed.prefix.address().is_ipv4()),
            unnumbered: peers.iter().any(|peer| matches!(peer.address, PeerAddress::Unnumbered(_))),
        }
    }

    /// Of something that is missing.
    const fn missing(&self, needed: bool) -> State {
        if needed && self.known {
            State::Problem
        } else if needed {
            State::Warning
        } else {
            State::Ok
        }
    }
}

pub(super) fn examine(node: &Node, config: Option<&Config>) -> Vec<Finding> {
    let needs = Needs::of(config, node.ipvs);
    let mut findings: Vec<Finding> = Capability::ALL.into_iter().map(|capability| right(node, capability, &needs)).collect();
    findings.push(nft(node, &needs));
    findings.push(address_protocol(node));
    if needs.balancer == Some(BalancerKind::Ipvs) || config.is_some_and(|config| config.dataplane.kind == DataplaneType::Auto) {
        findings.push(ipvs(node, &needs));
        findings.extend(schedulers(node));
    }
    if let Some(balancer) = needs.balancer {
        let synchronises = config.is_some_and(|config| config.dataplane.connection_sync.is_some());
        let counts = |setting: &Sysctl| setting.is_for(balancer) && (synchronises || !Sysctl::FOR_CONNECTION_SYNC.contains(setting));
        let settings = node.sysctls.iter().filter(|(setting, _)| counts(setting));
        findings.extend(settings.map(|(setting, found)| sysctl(*setting, found, node.ipvs, &needs)));
        findings.extend(node.external.iter().map(|((interface, setting), found)| of_interface(interface, *setting, found, &needs)));
        findings.extend(node.ipv6_forwarding.as_deref().map(|value| ipv6_forwarding(value, &needs)));
    }
    findings.extend(by_program(node).filter(|_| needs.balancer.is_some()));
    if needs.balancer == Some(BalancerKind::Ipvs) {
        findings.push(kube_proxy(node, &needs));
        findings.extend(others(node, config));
        findings.extend(config.and_then(|config| sync_daemons(node, config)));
    }
    findings.push(signing("TCP-MD5", &node.tcp_md5, needs.md5, "a kernel with CONFIG_TCP_MD5SIG", &needs));
    findings.push(signing("TCP-AO", &node.tcp_ao, needs.ao, "a kernel with CONFIG_TCP_AO (Linux 6.7 and newer)", &needs));
    findings
}

fn right(node: &Node, capability: Capability, needs: &Needs) -> Finding {
    let (needed, purpose) = match capability {
        Capability::NetAdmin => (true, "to place addresses and to program IPVS and nft"),
        Capability::NetRaw => (needs.unnumbered, "to find the router of an unnumbered peer"),
        Capability::NetBindService => (needs.listens_below_1024, "to listen on port 179 for peers that dial us"),
    };
    let check = format!("capability {}", capability.name());
    match &node.capabilities {
        Err(error) => Finding::ok(check, format!("it cannot be seen whether this process has it: {error}")),
        Ok(held) if held.contains(&capability) => Finding::ok(check, format!("this process has it, {purpose}")),
        Ok(_) if !needed => Finding::ok(check, format!("this process has it not; it is not needed {purpose}")),
        Ok(_) => {
            let state = if capability == Capability::NetAdmin { State::Problem } else { needs.missing(needed) };
            Finding::new(
                state,
                check,
                format!("this process has it not; it is needed {purpose}"),
                "run as the daemon runs: root, with this capability",
            )
        }
    }
}

fn nft(node: &Node, needs: &Needs) -> Finding {
    match &node.nft {
        Ok(version) => Finding::ok("nft", version.clone()),
        Err(error) if needs.nft => {
            Finding::new(State::Problem, "nft", error.clone(), "install nftables 1.0 or newer; nf_tables must be in the kernel")
        }
        Err(error) => Finding::ok("nft", format!("not needed with dataplane.type none: {error}")),
    }
}

fn address_protocol(node: &Node) -> Finding {
    const CHECK: &str = "IFA_PROTO";
    match &node.interfaces {
        Err(error) => Finding::ok(CHECK, format!("it cannot be seen: {error}")),
        Ok(interfaces) if interfaces.iter().any(|interface| interface.addresses.iter().any(|address| address.protocol.is_some())) => {
            Finding::ok(CHECK, format!("addresses carry who set them; ours have protocol {ADDRESS_PROTOCOL}"))
        }
        Ok(_) => Finding::ok(CHECK, format!("kernel {} does not keep it (5.18 and newer do); the record in nft suffices", node.kernel)),
    }
}

fn ipvs(node: &Node, needs: &Needs) -> Finding {
    const CHECK: &str = "IPVS";
    const OTHERWISE: &str = "dataplane.type auto and nftables do without";
    match node.ipvs {
        IpvsModule::Loaded => Finding::ok(CHECK, "it is in the kernel"),
        IpvsModule::Loadable => Finding::ok(CHECK, "the kernel loads module ip_vs when it is first used"),
        IpvsModule::Missing => Finding::new(
            if needs.ipvs_only { State::Problem } else { State::Warning },
            CHECK,
            format!("kernel {} has no module ip_vs", node.kernel),
            format!("install the kernel package that has it (linux-modules-extra, kernel-modules-extra); {OTHERWISE}"),
        ),
        IpvsModule::Unseen => Finding::new(
            State::Warning,
            CHECK,
            "module ip_vs is not loaded, and /lib/modules is not seen from here",
            format!("'modprobe ip_vs' on the node, or mount /lib/modules; {OTHERWISE}"),
        ),
    }
}

fn schedulers(node: &Node) -> Option<Finding> {
    let missing: Vec<&str> = node.missing_schedulers.iter().map(String::as_str).collect();
    (!missing.is_empty()).then(|| {
        let detail = format!("modules that are neither loaded nor on the disk: {}", missing.join(", "));
        Finding::new(State::Warning, "IPVS schedulers", detail, "install them before an object asks for one of them")
    })
}

fn sysctl(setting: Sysctl, found: &Setting, ipvs: IpvsModule, needs: &Needs) -> Finding {
    let (check, wanted, reason) = (format!("sysctl {setting}"), setting.wanted(), setting.reason());
    let remedy = format!("sysctl -w {setting}={wanted}");
    match &found.value {
        Some(value) if value == wanted => Finding::ok(check, format!("{value}: {reason}")),
        Some(value) if Sysctl::FOR_MOVED_FLOWS.contains(&setting) => {
            // Which objects ask for it is not known here.
            let once = "once a TCP port is served with dr, tun or gue, and by mh or sh";
            if found.writable && needs.set_sysctls {
                return Finding::ok(check, format!("{value}; the daemon sets it to {wanted} {once}: {reason}"));
            }
            let why = if needs.set_sysctls { "it cannot be set from here" } else { "dataplane.setSysctls is false" };
            let detail = format!("{value}; must be {wanted} {once}, and {why}: {reason}");
            if needs.moved_flows { Finding::new(State::Warning, check, detail, remedy) } else { Finding::ok(check, detail) }
        }
        Some(value) if found.writable && needs.set_sysctls => {
            Finding::ok(check, format!("{value}, and the daemon sets it to {wanted}: {reason}"))
        }
        Some(value) => {
            let why = if needs.set_sysctls { "it cannot be set from here" } else { "dataplane.setSysctls is false" };
            let state = if setting.is_required() { needs.missing(true) } else { State::Warning };
            Finding::new(state, check, format!("{value}, must be {wanted}, and {why}: {reason}"), remedy)
        }
        None if ipvs != IpvsModule::Loaded => Finding::ok(check, format!("there as soon as IPVS is loaded, must be {wanted}: {reason}")),
        None => {
            let state = if setting.is_required() { needs.missing(true) } else { State::Warning };
            Finding::new(state, check, format!("this kernel lacks it; must be {wanted}: {reason}"), "use a newer kernel")
        }
    }
}

fn of_interface(interface: &str, setting: InterfaceSetting, found: &Setting, needs: &Needs) -> Finding {
    let (name, wanted, reason) = (format!("net.ipv4.conf.{interface}.{}", setting.name()), setting.wanted(), setting.reason());
    let check = format!("sysctl {name}");
    let value = found.value.as_deref().unwrap_or_default();
    if value.parse().is_ok_and(|value| setting.is_good(value)) {
        return Finding::ok(check, format!("{value}: {reason}"));
    }
    if found.writable && needs.set_sysctls {
        return Finding::ok(check, format!("{value}, and the daemon sets it to {wanted}: {reason}"));
    }
    let why = if needs.set_sysctls { "it cannot be set from here" } else { "dataplane.setSysctls is false" };
    Finding::new(State::Warning, check, format!("{value}, should be {wanted}, and {why}: {reason}"), format!("sysctl -w {name}={wanted}"))
}

/// Never set by us: with it the kernel ignores router advertisements, which may be where the node has its routes from.
fn ipv6_forwarding(value: &str, needs: &Needs) -> Finding {
    const CHECK: &str = "sysctl net.ipv6.conf.all.forwarding";
    const REASON: &str = "answers of real servers of IPv6 VIPs pass through this node";
    match value {
        "0" if needs.ipv6_vips => Finding::new(
            State::Warning,
            CHECK,
            format!("0, must be 1 for IPv6 VIPs, and the daemon never sets it: {REASON}"),
            "sysctl -w net.ipv6.conf.all.forwarding=1, and accept_ra=2 on interfaces that have their routes from router advertisements",
        ),
        "0" => Finding::ok(CHECK, format!("0; IPv6 VIPs need 1: {REASON}")),
        _ => Finding::ok(CHECK, format!("{value}: {REASON}")),
    }
}

fn kube_proxy(node: &Node, needs: &Needs) -> Finding {
    const CHECK: &str = "kube-proxy";
    let interfaces = node.interfaces.as_deref().unwrap_or_default();
    if !interfaces.iter().any(|interface| interface.name == KUBE_IPVS) {
        return Finding::ok(CHECK, format!("no sign of its IPVS mode (interface {KUBE_IPVS})"));
    }
    Finding::new(
        needs.missing(true),
        CHECK,
        format!("interface {KUBE_IPVS} is there: kube-proxy runs in IPVS mode, and deletes virtual services that are not its own"),
        format!(
            "give the Services the label {SERVICE_PROXY_NAME}, and kube-proxy --ipvs-exclude-cidrs with the VIPs (ipvs.excludeCIDRs); or run it in another mode"
        ),
    )
}

/// Who may take packets to external IPs where they arrive, before nft and IPVS see them. Of the VIPs of other objects they know nothing.
fn by_program(node: &Node) -> impl Iterator<Item = Finding> {
    let interfaces = node.interfaces.as_deref().unwrap_or_default();
    let found = BY_PROGRAM.into_iter().filter(|(_, name)| interfaces.iter().any(|interface| interface.name == *name));
    found.map(|(program, name)| {
        Finding::new(
            State::Warning,
            "eBPF",
            format!(
                "interface {name} is there: where {program} replaces kube-proxy, its eBPF programs take packets to external IPs of Services before nft and IPVS \
                 see them"
            ),
            format!("give the Services the label {SERVICE_PROXY_NAME}, or leave them to it: dataplane.type kube-proxy"),
        )
    })
}

/// Virtual services of addresses that no vipherald has placed.
fn others(node: &Node, config: Option<&Config>) -> Option<Finding> {
    const CHECK: &str = "foreign services";
    let interface = config.map_or("lo", |config| config.vips.interface.as_str());
    let services = match &node.virtual_services {
        Ok(services) => services,
        Err(error) => return Some(Finding::ok(CHECK, format!("the table of IPVS cannot be read: {error}"))),
    };
    let interfaces = node.interfaces.as_deref().unwrap_or_default();
    let carrier = interfaces.iter().find(|found| found.name == interface);
    let is_ours = |vip: IpAddr| {
        let found = carrier.into_iter().flat_map(|carrier| &carrier.addresses).find(|found| found.address == vip);
        found.is_some_and(|found| found.protocol.is_none_or(|protocol| protocol == ADDRESS_PROTOCOL))
    };
    let foreign = services.iter().filter(|service| match service {
        ServiceAddress::Transport { address, .. } => !is_ours(*address),
        // Whose a mark is, only the record says.
        ServiceAddress::Fwmark { .. } => false,
    });
    let foreign: Vec<String> = foreign.map(ToString::to_string).collect();
    let first = foreign.first()?;
    let detail =
        format!("{} virtual services are of addresses that we have not placed, {first} among them; they are never touched", foreign.len());
    let remedy = "if they are kube-proxy's, see there; a VIP and port that somebody else has is not served by us";
    Some(Finding::new(State::Warning, CHECK, detail, remedy))
}

/// Whether the daemons of connection synchronisation that are asked for can run, or run.
fn sync_daemons(node: &Node, config: &Config) -> Option<Finding> {
    const CHECK: &str = "connection synchronisation";
    let wanted = config.dataplane.connection_sync.as_ref()?.daemons();
    let interfaces = node.interfaces.as_deref().unwrap_or_default();
    for daemon in wanted.values() {
        if node.interfaces.is_ok() && !interfaces.iter().any(|interface| interface.name == daemon.interface) {
            let detail = format!("there is no interface {}, on which other routers are to be told of connections", daemon.interface);
            return Some(Finding::new(State::Problem, CHECK, detail, "set dataplane.connectionSync.interface to one that is there"));
        }
    }
    let found = match &node.sync_daemons {
        Ok(found) => found,
        Err(error) => return Some(Finding::ok(CHECK, format!("its daemons cannot be seen: {error}"))),
    };
    let others = found.iter().find(|found| wanted.get(&found.role).is_some_and(|wanted| !wanted.is_shown_as(found)));
    if let Some(found) = others {
        let detail = format!("the {found} runs, and is not what the configuration asks for; one of somebody else is never touched");
        return Some(Finding::new(State::Warning, CHECK, detail, "leave it to keepalived (lvs_sync_daemon) or to us, not to both"));
    }
    let running: Vec<String> = found.iter().map(ToString::to_string).collect();
    Some(Finding::ok(CHECK, if running.is_empty() { "no daemon runs yet".to_owned() } else { running.join("; ") }))
}

fn signing(check: &str, found: &Result<bool, String>, needed: bool, remedy: &str, needs: &Needs) -> Finding {
    match found {
        Ok(true) => Finding::ok(check, "the kernel has it"),
        Ok(false) if needed => Finding::new(needs.missing(true), check, "the kernel has it not; peers that need it stay down", remedy),
        Ok(false) => Finding::ok(check, "the kernel has it not, and no peer needs it"),
        Err(error) => Finding::ok(check, format!("it cannot be seen whether the kernel has it: {error}")),
    }
}
