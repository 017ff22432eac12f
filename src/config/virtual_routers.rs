// SPDX-License-Identifier: Apache-2.0
//! The section `vrrp`, and what it is to hold for the key `mode`: virtual routers that hold VIPs, or addresses of the node's own choosing.
//!
//! Input: the section. Output: the groups, each of which can be as it is written; what a virtual router cannot be, its core says in words.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use vrrp::router::{Announcing, ChecksumChoice, Config, ConfigError, Preempt};
use vrrp::wire::TTL;
use vrrp::{Addresses, Family, Interval, Priority, Version, Vrid};

use bgp::Prefix;

use super::kinds;
use super::kinds::vrrp as kinds_of_vrrp;
use super::parse::set;
use super::read::{Reader, Section};
use super::{Dataplane, DataplaneType, Vips};
use crate::desired::{DesiredGroup, DesiredTransport, Mode, VirtualRouting};

/// Stand for the addresses that the interface will have, where it is checked what else there is.
const SOME_IPV4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const SOME_IPV6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0));
/// Stand for the VIPs that a group will have.
const SOME_VIPS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

/// Where a mistake is reported, the group that has it is left out.
pub(super) fn virtual_routing(
    reader: &mut Reader<'_>,
    root: &Section<'_>,
    mode: Mode,
    vips: Option<&Vips>,
    dataplane: Option<&Dataplane>,
) -> VirtualRouting {
    let section = reader.section(root, "vrrp");
    let elements = reader.list(&section, "groups").unwrap_or_default();
    let mut routing = VirtualRouting { mode, ..VirtualRouting::default() };
    let mut some_have_vips = false;
    for element in &elements {
        let section = reader.element(element);
        some_have_vips |= section.has("vips");
        let name = reader.required(&section, "name", &kinds_of_vrrp::GROUP_NAME);
        let of_vips = section.has("vips").then(|| prefixes(reader, &section, &routing));
        let group = group(reader, &section);
        let (Some(name), Some(group)) = (name, group) else { continue };
        if routing.groups.contains_key(&name) {
            reader.report(section.place_of("name"), section.key("name"), format!("another group is named '{name}'"));
        }
        check(reader, &section, &group, &routing.groups, vips.map(|vips| vips.interface.as_str()));
        routing.vips.extend(of_vips.map(|prefixes| (name.clone(), prefixes)));
        routing.groups.insert(name, group);
    }
    if mode == Mode::Vrrp {
        let mut report = |message: &str| reader.report(root.place_of("mode"), root.key("mode"), message.to_owned());
        if !some_have_vips {
            report("with 'vrrp' a group of vrrp.groups has to say by 'vips' which VIPs are its own");
        }
        if dataplane.is_some_and(|dataplane| dataplane.kind == DataplaneType::None) {
            report(
                "with dataplane.type 'none' there are no VIPs that a virtual router could have; 'bgp' announces what is found on vips.interface",
            );
        }
    }
    routing
}

/// Which VIPs are those of a group.
fn prefixes(reader: &mut Reader<'_>, section: &Section<'_>, earlier: &VirtualRouting) -> BTreeSet<Prefix> {
    let prefixes = set(reader, section, "vips", &kinds::PREFIX);
    if section.has("addresses") {
        let message = "the group has 'vips': its addresses are those of them that are served; leave one of both out".to_owned();
        reader.report(section.place_of("addresses"), section.key("addresses"), message);
    }
    if section.is_empty_list("vips") {
        reader.report(section.place_of("vips"), section.key("vips"), "expected at least one prefix such as 0.0.0.0/0".to_owned());
    }
    for (name, others) in &earlier.vips {
        if let Some(prefix) = prefixes.intersection(others).next() {
            reader.report(section.place_of("vips"), section.key("vips"), format!("VIPs in {prefix} are those of group '{name}' already"));
        }
    }
    prefixes
}

fn group(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<DesiredGroup> {
    let interface = reader.required(section, "interface", &kinds::INTERFACE);
    let vrid: Option<Vrid> = reader.required(section, "virtualRouterId", &kinds_of_vrrp::VRID);
    let addresses = if section.has("vips") { Some(Vec::new()) } else { addresses(reader, section) };
    let version = reader.or(section, "version", &kinds_of_vrrp::VERSION, Version::V3);
    let priority = reader.or(section, "priority", &kinds_of_vrrp::PRIORITY, Priority::DEFAULT);
    let interval = reader.or(section, "advertisementInterval", &kinds_of_vrrp::INTERVAL, Interval::DEFAULT);
    let preempt = preempt(reader, section);
    let transport = transport(reader, section);
    let source = reader.section(section, "source");
    let source_ipv4 = reader.optional(&source, "ipv4", &kinds_of_vrrp::SOURCE_IPV4);
    let source_ipv6 = reader.optional(&source, "ipv6", &kinds_of_vrrp::SOURCE_IPV6);
    let checksum = reader.or(section, "checksum", &kinds_of_vrrp::CHECKSUM, ChecksumChoice::AsHeard);
    let least_ttl = reader.or(section, "leastTtl", &kinds_of_vrrp::LEAST_TTL, TTL);
    let virtual_mac = reader.flag(section, "virtualMac", false);
    let announcing = announcing(reader, section);
    Some(DesiredGroup {
        interface: interface?,
        vrid: vrid?,
        version: version?,
        priority: priority?,
        interval: interval?,
        preempt: preempt?,
        transport,
        source_ipv4,
        source_ipv6,
        checksum: checksum?,
        announcing: announcing?,
        least_ttl: least_ttl?,
        virtual_mac: virtual_mac?,
        addresses: addresses?,
        troubles: BTreeSet::new(),
    })
}

fn addresses(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<Vec<IpAddr>> {
    let elements = reader.list(section, "addresses").unwrap_or_default();
    let addresses: Vec<IpAddr> = elements.iter().filter_map(|element| reader.scalar(element, &kinds_of_vrrp::ADDRESS)).collect();
    if elements.is_empty() {
        let message = "expected at least one address such as 10.0.0.9, or 'vips' instead".to_owned();
        reader.report(section.place_of("addresses"), section.key("addresses"), message);
    }
    (!addresses.is_empty() && addresses.len() == elements.len()).then_some(addresses)
}

fn preempt(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<Preempt> {
    let preempts = reader.flag(section, "preempt", true)?;
    if !preempts && section.has("preemptDelay") {
        let message = "without preempt there is nothing to delay; leave one of both out".to_owned();
        reader.report(section.place_of("preemptDelay"), section.key("preemptDelay"), message);
    }
    let delay = reader.or(section, "preemptDelay", &kinds_of_vrrp::DELAY, Duration::ZERO)?;
    Some(if preempts { Preempt::After(delay) } else { Preempt::Never })
}

/// A list makes it unicast. An empty one says that there is nobody else, and a word that others will be known.
fn transport(reader: &mut Reader<'_>, section: &Section<'_>) -> DesiredTransport {
    if section.says("peers", "auto") {
        return DesiredTransport::AUTO;
    }
    let Some(elements) = reader.list(section, "peers") else { return DesiredTransport::Multicast };
    let peers: BTreeSet<IpAddr> = elements.iter().filter_map(|element| reader.scalar(element, &kinds_of_vrrp::PEER)).collect();
    DesiredTransport::Unicast { single: peers.is_empty(), peers }
}

fn announcing(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<Announcing> {
    let section = reader.section(section, "gratuitousArp");
    let times = reader.or(&section, "repeats", &kinds_of_vrrp::REPEATS, Announcing::DEFAULT.times);
    let spacing = reader.or(&section, "interval", &kinds_of_vrrp::SPACING, Announcing::DEFAULT.spacing);
    let refresh = reader.or(&section, "refresh", &kinds_of_vrrp::REFRESH, Announcing::DEFAULT.refresh);
    Some(Announcing { times: times?, spacing: spacing?, refresh: refresh? })
}

/// What several keys, or several groups, say together.
fn check(
    reader: &mut Reader<'_>,
    section: &Section<'_>,
    group: &DesiredGroup,
    earlier: &BTreeMap<String, DesiredGroup>,
    vips_interface: Option<&str>,
) {
    let mut report = |key: &str, message: String| reader.report(section.place_of(key), section.key(key), message);
    if Some(group.interface.as_str()) == vips_interface {
        report(
            "interface",
            format!("{} is vips.interface: an address there is placed while it is served, not while a router is Active", group.interface),
        );
    }
    if let Some((other, _)) = earlier.iter().find(|(_, other)| (&other.interface, other.vrid) == (&group.interface, group.vrid)) {
        report("virtualRouterId", format!("group '{other}' is virtual router {} on {} already", group.vrid, group.interface));
    }
    for address in &group.addresses {
        if let Some((other, _)) = earlier.iter().find(|(_, other)| other.addresses.contains(address)) {
            report("addresses", format!("{address} is an address of group '{other}' already"));
        }
    }
    for (family, some, source) in
        [(Family::Ipv4, SOME_IPV4, group.source_ipv4.map(IpAddr::V4)), (Family::Ipv6, SOME_IPV6, group.source_ipv6.map(IpAddr::V6))]
    {
        let of_vips = section.has("vips");
        // What VIPs there will be is not known; those of a family that the group can have no router of are told of one by one.
        let stand_in = SOME_VIPS.into_iter().filter(|_| of_vips && (group.version == Version::V3 || family == Family::Ipv4));
        let addresses = group.addresses.iter().copied().chain(stand_in).filter(|address| Family::of(*address) == family);
        let addresses: Vec<IpAddr> = addresses.collect();
        let key = if family == Family::Ipv4 { "source.ipv4" } else { "source.ipv6" };
        if addresses.is_empty() {
            if source.is_some() {
                report(key, format!("the group has no {family} address"));
            }
            continue;
        }
        if let DesiredTransport::Unicast { peers, single: false } = &group.transport
            && group.transport != DesiredTransport::AUTO
            && !of_vips
            && !peers.iter().any(|peer| Family::of(*peer) == family)
        {
            report("peers", format!("none of them is an {family} address, as some of addresses are"));
        }
        match Addresses::new(&addresses).map(|addresses| config(group, source.unwrap_or(some), addresses)) {
            Err(error) => report("addresses", error.to_string()),
            Ok(config) => {
                if let Err(error) = config.check() {
                    report(blamed(&error), format!("its virtual router of {family} cannot be so: {error}"));
                }
            }
        }
    }
}

/// The key that an error of the core is about.
const fn blamed(error: &ConfigError) -> &'static str {
    match error {
        ConfigError::Version2Ipv6 => "version",
        ConfigError::Interval { .. } => "advertisementInterval",
        ConfigError::OwnPeer(_) | ConfigError::Family { .. } => "peers",
        ConfigError::NotLinkLocal(_) | ConfigError::VirtualPrimary(_) => "source",
        ConfigError::NoAnnouncement | ConfigError::Time { .. } => "gratuitousArp",
        ConfigError::OtherRouter => "virtualRouterId",
    }
}

/// What of a virtual router the rules tie together.
fn config(group: &DesiredGroup, primary: IpAddr, addresses: Addresses) -> Config {
    let family = addresses.family();
    let transport = match &group.transport {
        DesiredTransport::Multicast => vrrp::router::Transport::Multicast,
        DesiredTransport::Unicast { peers, single } => {
            let peers = peers.iter().copied().filter(|peer| Family::of(*peer) == family).collect();
            vrrp::router::Transport::Unicast { peers, single: *single }
        }
    };
    Config {
        version: group.version,
        priority: group.priority,
        interval: group.interval,
        transport,
        preempt: group.preempt,
        announcing: group.announcing,
        ..Config::new(group.vrid, primary, addresses)
    }
}
