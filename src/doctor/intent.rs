// SPDX-License-Identifier: Apache-2.0
//! What a configuration means on this node: addresses, links, keys, and what a loss of the node would cost.

use std::net::IpAddr;
use std::time::Duration;

use bgp::Prefix;

use super::node::{Interface, Node};
use super::{Finding, State};
use crate::actuator::Abandoned;
use crate::config::Config;
use crate::desired::{DesiredPeer, DesiredRestart};
use crate::observed::ADDRESS_PROTOCOL;

/// Whether source address selection has something better to take than a VIP: on a node whose links have no address of a family the kernel takes the first
/// global one of `lo`.
pub(super) fn own_addresses(node: &Node, config: Option<&Config>) -> Vec<Finding> {
    let interfaces = match &node.interfaces {
        Ok(interfaces) => interfaces,
        Err(error) => return vec![Finding::ok("own addresses", format!("they cannot be seen: {error}"))],
    };
    let of_family = |ipv4: bool| own_address(interfaces, config, ipv4);
    vec![of_family(true), of_family(false)]
}

fn own_address(interfaces: &[Interface], config: Option<&Config>, ipv4: bool) -> Finding {
    let family = if ipv4 { "IPv4" } else { "IPv6" };
    let check = format!("own {family} address");
    let carrier = config.map_or("lo", |config| config.vips.interface.as_str());
    let global = |interface: &&Interface| {
        interface.addresses.iter().find(|found| found.address.is_ipv4() == ipv4 && is_global(found.address)).copied()
    };
    let elsewhere =
        interfaces.iter().filter(|interface| interface.name != carrier).find_map(|interface| Some((interface, global(&interface)?)));
    if let Some((interface, found)) = elsewhere {
        return Finding::ok(check, format!("{} on {}", found.address, interface.name));
    }
    let first = interfaces.iter().find(|interface| interface.name == carrier).and_then(|interface| global(&interface));
    let allowed = config.and_then(|config| config.vips.allow.as_ref());
    let is_vip = |address: IpAddr| allowed.is_some_and(|allowed| allowed.iter().any(|allowed| allowed.prefix.contains(address)));
    match first {
        Some(first) if first.protocol != Some(ADDRESS_PROTOCOL) && !is_vip(first.address) => Finding::ok(
            check,
            format!("{} stands first on {carrier}, so that no VIP is the source of the node's own connections", first.address),
        ),
        _ if allowed.is_some_and(|allowed| !allowed.iter().any(|allowed| allowed.prefix.address().is_ipv4() == ipv4)) => {
            Finding::ok(check, format!("there is none, and vips.allow has no {family} VIPs"))
        }
        _ => {
            let state = if ipv4 || allowed.is_some() { State::Problem } else { State::Warning };
            let detail = format!(
                "there is none that is not a VIP, so that the kernel would take a VIP as the source of the node's own connections; {family} VIPs are not placed"
            );
            Finding::new(
                state,
                check,
                detail,
                format!("give the node an address outside vips.allow, on a link or as the first of {carrier}"),
            )
        }
    }
}

const fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    }
}

pub(super) fn examine(node: &Node, config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Ok(interfaces) = &node.interfaces {
        findings.push(carrier(interfaces, config));
        findings.extend(connected(interfaces, config));
    }
    findings.extend(node.abandoned.iter().flatten().filter(|left| left.instance != config.instance).map(abandoned));
    for (path, reason) in &node.unreadable_keys {
        let check = format!("key file {}", path.display());
        findings.push(Finding::new(
            State::Problem,
            check,
            format!("{reason}; its peers stay down"),
            "put the key there, readable for the daemon",
        ));
    }
    let dynamic = config.bgp.listen.iter().filter(|listen| !listen.prefixes.is_empty()).map(|listen| ("bgp.listen", &listen.template));
    let peers = config.bgp.peers.iter().map(|(name, peer)| (name.as_str(), peer)).chain(dynamic);
    findings.extend(peers.filter_map(|(name, peer)| Some(black_hole(name, peer, peer.graceful_restart?))));
    findings
}

/// One that was renamed, for example. Its virtual services are nobody else's as long as they are there.
fn abandoned(left: &Abandoned) -> Finding {
    let name = &left.instance;
    Finding::new(
        State::Warning,
        format!("instance {name}"),
        format!("it does not run, and has left {left}"),
        format!("start it, or give the one that follows it its name, or take it away: vipherald cleanup --instance {name}"),
    )
}

fn carrier(interfaces: &[Interface], config: &Config) -> Finding {
    let name = &config.vips.interface;
    let check = format!("interface {name}");
    match interfaces.iter().find(|interface| interface.name == *name) {
        Some(interface) if interface.up => Finding::ok(check, "it is up"),
        Some(_) => Finding::new(
            State::Problem,
            check,
            "it is down: the kernel delivers nothing to its addresses",
            format!("ip link set {name} up"),
        ),
        None => Finding::new(State::Problem, check, "there is none of this name, so that no VIP is placed", "correct vips.interface"),
    }
}

/// VIPs that hosts of a link take for neighbours: these ask for them by ARP or neighbour discovery, and nobody answers.
fn connected(interfaces: &[Interface], config: &Config) -> Vec<Finding> {
    let others = interfaces.iter().filter(|interface| interface.name != config.vips.interface);
    let mut subnets: Vec<(&str, Prefix)> = Vec::new();
    for interface in others {
        let global = interface.addresses.iter().filter(|found| is_global(found.address));
        let subnets_of = global.filter_map(|found| Prefix::truncated(found.address, found.prefix_length).ok());
        subnets
            .extend(subnets_of.filter(|subnet| *subnet != Prefix::host(subnet.address())).map(|subnet| (interface.name.as_str(), subnet)));
    }
    subnets.dedup();
    let mut findings = Vec::new();
    for (name, subnet) in subnets {
        for allowed in config.vips.allow.iter().flatten().map(|allowed| allowed.prefix).filter(|allowed| overlap(*allowed, subnet)) {
            findings.push(Finding::new(
                State::Warning,
                format!("subnet {subnet}"),
                format!("vips.allow has {allowed}, which overlaps this subnet of {name}: hosts of that link ask for such a VIP by ARP or ND, and nobody answers"),
                "take VIPs from prefixes that are routed, not connected",
            ));
        }
    }
    findings
}

fn overlap(one: Prefix, other: Prefix) -> bool {
    one.contains(other.address()) || other.contains(one.address())
}

/// How long a peer goes on sending packets to a node that is no more.
fn black_hole(name: &str, peer: &DesiredPeer, restart: DesiredRestart) -> Finding {
    let check = format!("graceful restart {name}");
    let Some(hold) = peer.hold_time.duration() else {
        let detail = "with timers.hold 0s the peer never finds out that this node is gone";
        return Finding::new(State::Warning, check, detail, "a hold time, so that a loss without a word ends");
    };
    let words = humantime::format_duration;
    let restart_time = Duration::from_secs(restart.restart_time.into());
    let mut detail = format!(
        "if this node dies without a word, packets to its VIPs are lost for up to {}: hold time {}, then restart time {}",
        words(hold.saturating_add(restart_time)),
        words(hold),
        words(restart_time)
    );
    if restart.long_lived_stale_time > 0 {
        let stale = Duration::from_secs(restart.long_lived_stale_time.into());
        detail.push_str(&format!("; where there is no other way, for {} more", words(stale)));
    }
    Finding::new(State::Warning, check, detail, "a restart time that is no longer than a restart takes, and a short hold time")
}
