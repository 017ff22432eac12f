// SPDX-License-Identifier: Apache-2.0
//! Plans in words, one line a step: for `vipherald plan`, logs and golden files. Equal plans print equally.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use ipvs::Timeouts;

use super::{Entries, Plan, RangeMove, RealServerChange, Step, VirtualServiceChange};
use crate::desired::{DesiredGroup, Filter, Scheduling, ServiceKey};
use crate::observed::ServiceMode;
use crate::sysctl::InterfaceSetting;

impl Plan {
    /// The steps, and when to look again counted from `now`.
    pub fn display(&self, now: Instant) -> impl fmt::Display {
        fmt::from_fn(move |f| {
            fmt::Display::fmt(self, f)?;
            let Some(wake_at) = self.wake_at else { return Ok(()) };
            let millis = wake_at.saturating_duration_since(now).as_millis();
            let rest = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
            writeln!(f, "look again in {}", humantime::format_duration(rest))
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            writeln!(f, "nothing to do")?;
        }
        for step in &self.steps {
            match step {
                Step::RemoveAddress(address) if self.forced.contains(address) => {
                    writeln!(f, "{step}, though a peer has not acknowledged its withdrawal")?;
                }
                _ => writeln!(f, "{step}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Advertise(prefixes) => write!(f, "advertise {prefixes}"),
            Self::RecordPending(entries) => write!(f, "record as pending {entries}"),
            Self::AddAddress(address) => write!(f, "add address {address}"),
            Self::RecordConfirmed(entries) => write!(f, "record as ours {entries}"),
            Self::RemoveAddress(address) => write!(f, "remove address {address}"),
            Self::RecordRemoved(entries) => write!(f, "take out of the record {entries}"),
            Self::ClosePorts(services) => write!(f, "close the ports of {}", list(services)),
            Self::OpenPorts(services) => write!(f, "open the ports of {}", list(services)),
            Self::MoveRanges(change) => write!(f, "{change}"),
            Self::WriteFilters(filters) => {
                write!(f, "filter {}", list(filters.iter().map(|(key, filter)| format!("{key} {filter}")).collect::<Vec<_>>()))
            }
            Self::WriteRules(Some(rules)) if rules.hands_over => f.write_str("leave new connections to somebody else by the rules of nft"),
            Self::WriteRules(Some(_)) => f.write_str("write the rules of nft"),
            Self::WriteRules(None) => f.write_str("remove the rules of nft"),
            Self::SetSysctl(setting) => write!(f, "set {setting} to {}: {}", setting.wanted(), setting.reason()),
            Self::SetInterfaces(settings) => {
                let of = |(interface, settings): (&String, &BTreeSet<InterfaceSetting>)| {
                    let words = |setting: &InterfaceSetting| format!("{} {}", setting.name(), setting.wanted());
                    format!("{interface}: {}", settings.iter().map(words).collect::<Vec<_>>().join(" "))
                };
                write!(f, "set on interfaces {}", list(settings.iter().map(of).collect::<Vec<_>>()))
            }
            Self::SetTimeouts(Timeouts { tcp, tcp_fin, udp }) => {
                let given = [("tcp", tcp), ("tcpFin", tcp_fin), ("udp", udp)].into_iter().filter(|(_, seconds)| **seconds != 0);
                write!(f, "set timeouts {}", list(given.map(|(name, seconds)| format!("{name} {seconds}s")).collect::<Vec<_>>()))
            }
            Self::StartDaemon(daemon) => write!(f, "start the {daemon}"),
            Self::StopDaemon(role) => write!(f, "stop the {role} sync daemon"),
            Self::AddVirtualService(service, change) => write!(f, "add virtual service {service}: {change}"),
            Self::ChangeVirtualService(service, change) => write!(f, "change virtual service {service}: {change}"),
            Self::RemoveVirtualService(service) => write!(f, "remove virtual service {service}"),
            Self::RemoveFormer(service) => write!(f, "remove virtual service {service} from the dataplane that balanced before"),
            Self::RemoveRetired(retired) => write!(f, "remove virtual service {retired}"),
            Self::ForgetConnections(services) => {
                write!(f, "forget connections of these that no real server of theirs answers: {}", list(services.keys()))
            }
            Self::ConfigureSpeaker(bgp, set) => {
                write!(f, "configure the speaker: AS {}, peers {}", bgp.asn, list(bgp.peers.keys()))?;
                set.iter().try_for_each(|set| write!(f, "; with it, announce {set}"))
            }
            Self::ReleaseSpeaker => f.write_str("close the sessions; peers keep the routes"),
            Self::StopSpeaker => f.write_str("stop the speaker"),
            Self::ConfigureVirtualRouters(vrrp) => {
                let group = |(name, group): (&String, &DesiredGroup)| {
                    let troubles = group.troubles.iter().map(|trouble| format!(", handing over as {trouble}")).collect::<String>();
                    format!("{name} (VRID {} on {}): {}{troubles}", group.vrid, group.interface, list(&group.addresses))
                };
                write!(f, "configure virtual routers {}", list(vrrp.groups.iter().map(group).collect::<Vec<_>>()))?;
                f.write_str(if vrrp.complete { "" } else { "; what else an earlier process has left stays" })
            }
            Self::StopVirtualRouters => f.write_str("resign in all virtual routers"),
            Self::SuspendVirtualRouters => f.write_str("resign in all virtual routers; where nobody follows, their addresses stay"),
            Self::DropRecord => f.write_str("drop the record"),
        }
    }
}

impl fmt::Display for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let service = |service: &ServiceKey| match self.marks.get(service) {
            Some(mark) => format!("{service} by mark {mark}"),
            None => service.to_string(),
        };
        let entries = self.addresses.iter().map(ToString::to_string).chain(self.services.iter().map(service));
        let entries = entries.chain(self.in_ipvs.iter().map(|service| format!("{service} in IPVS")));
        let entries = entries.chain(self.daemons.iter().map(|role| format!("{role} sync daemon")));
        let entries = entries.chain(self.retired.iter().map(ToString::to_string));
        list(entries.collect::<Vec<_>>()).fmt(f)
    }
}

impl fmt::Display for RangeMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filter = |key: &ServiceKey| {
            let filter = self.filters.get(key).filter(|filter| **filter != Filter::NONE);
            filter.map(|filter| format!(" {filter}")).unwrap_or_default()
        };
        let moved = self.moved.iter().map(|(from, to)| format!("give virtual service {from} the ports {}{}", to.ports, filter(to)));
        let made = self.made.keys().map(|made| format!("let clients in to {made}{}", filter(made)));
        let retired = self.retired.keys().map(|retired| format!("leave {retired} the connections that it has"));
        list(moved.chain(made).chain(retired).collect::<Vec<_>>()).fmt(f)
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let masquerade = if self.preserves_client { ", not masqueraded" } else { "" };
        match &self.sources {
            None => write!(f, "from everybody{masquerade}"),
            Some(sources) if sources.is_empty() => write!(f, "from nobody{masquerade}"),
            Some(sources) => {
                let sources: Vec<String> = sources.iter().map(ToString::to_string).collect();
                write!(f, "from {}{masquerade}", sources.join(" or "))
            }
        }
    }
}

impl fmt::Display for VirtualServiceChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = self.mode.iter().map(ToString::to_string);
        let servers = self.real_servers.iter().map(|change| match change {
            RealServerChange::Add(address, weight) => format!("add {address} {} {weight}", self.forwarding),
            RealServerChange::Weigh(address, weight) => format!("weigh {address} {weight}"),
            RealServerChange::Remove(address) => format!("remove {address}"),
        });
        list(mode.chain(servers).collect::<Vec<_>>()).fmt(f)
    }
}

impl fmt::Display for ServiceMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scheduling { scheduler, by_port, persistence } = self.scheduling;
        write!(f, "{scheduler}")?;
        f.write_str(if self.fallback { " with fallback" } else { "" })?;
        f.write_str(if by_port { " by port" } else { "" })?;
        persistence.map_or(Ok(()), |time| write!(f, " persistent for {}", humantime::format_duration(time)))
    }
}

/// Items with commas between them, or "nothing".
fn list<T: fmt::Display>(items: impl IntoIterator<Item = T> + Clone) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let mut items = items.clone().into_iter();
        let Some(first) = items.next() else { return f.write_str("nothing") };
        write!(f, "{first}")?;
        items.try_for_each(|item| write!(f, ", {item}"))
    })
}
