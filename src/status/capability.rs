// SPDX-License-Identifier: Apache-2.0
//! The capabilities of two OPENs side by side, in the words of the registry.
//!
//! Input: both OPENs and what they agree on. Output: one row for each code that either side has, in ascending order.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use bgp::Family;
use bgp::wire::{AddPathMode, BgpRole, Capability, MAX_MESSAGE_LENGTH, Negotiated, Open};
use serde::{Deserialize, Serialize};

/// One capability (RFC 5492).
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CapabilityStatus {
    /// Capability Code.
    pub code: u8,
    /// Its name.
    pub name: String,
    /// What we say with it; empty where it says all by being there, absent where we do not send it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,
    /// What the peer says with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// What both agree on; absent where that is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub negotiated: Option<String>,
}

/// The rows of these OPENs.
pub(crate) fn exchange(local: &Open, remote: Option<&(Open, Negotiated)>) -> Vec<CapabilityStatus> {
    let codes = |open: &Open| open.capabilities.iter().map(Capability::code).collect::<BTreeSet<u8>>();
    let all = codes(local).into_iter().chain(remote.iter().flat_map(|(open, _)| codes(open))).collect::<BTreeSet<u8>>();
    all.into_iter()
        .map(|code| CapabilityStatus {
            code,
            name: name(code),
            local: said(local, code),
            remote: remote.and_then(|(open, _)| said(open, code)),
            negotiated: remote.and_then(|(_, negotiated)| agreed(negotiated, code)),
        })
        .collect()
}

/// The name in the registry, with the standard.
fn name(code: u8) -> String {
    let name = match code {
        1 => "Multiprotocol Extensions (RFC 4760)",
        2 => "Route Refresh (RFC 2918)",
        3 => "Outbound Route Filtering (RFC 5291)",
        5 => "Extended Next Hop Encoding (RFC 8950)",
        6 => "Extended Message (RFC 8654)",
        7 => "BGPsec (RFC 8205)",
        8 => "Multiple Labels (RFC 8277)",
        9 => "BGP Role (RFC 9234)",
        64 => "Graceful Restart (RFC 4724)",
        65 => "4-octet AS number (RFC 6793)",
        67 => "Dynamic Capability (draft)",
        68 => "Multisession (draft)",
        69 => "ADD-PATH (RFC 7911)",
        70 => "Enhanced Route Refresh (RFC 7313)",
        71 => "Long-Lived Graceful Restart (RFC 9494)",
        73 => "FQDN (draft)",
        75 => "Software Version (draft)",
        76 => "Paths Limit (draft)",
        77 => "Link-Local Next Hop (draft)",
        128 => "Route Refresh, before RFC 2918",
        _ => return format!("code {code}"),
    };
    name.to_owned()
}

/// What an OPEN says with all instances of a capability.
fn said(open: &Open, code: u8) -> Option<String> {
    let mut said: Option<Vec<String>> = None;
    for capability in open.capabilities.iter().filter(|capability| capability.code() == code) {
        let words = value(capability, open);
        let all = said.get_or_insert_default();
        if !words.is_empty() && !all.contains(&words) {
            all.push(words);
        }
    }
    said.map(|all| all.join(", "))
}

fn value(capability: &Capability, open: &Open) -> String {
    match capability {
        Capability::Multiprotocol(family) => family.to_string(),
        Capability::RouteRefresh | Capability::ExtendedMessage | Capability::EnhancedRouteRefresh | Capability::LinkLocalNextHop => {
            String::new()
        }
        Capability::ExtendedNextHop(families) => list(families.iter().map(ToString::to_string)),
        Capability::Role(role) => role_name(*role),
        Capability::GracefulRestart(restart) => {
            let mut words = format!("restart time {} s", restart.restart_time);
            for (set, flag) in [(restart.restarting, ", R"), (restart.notification, ", N")] {
                words.push_str(if set { flag } else { "" });
            }
            for (family, forwarding) in &restart.families {
                words.push_str(&format!(", {family}{}", if *forwarding { " F" } else { "" }));
            }
            words
        }
        Capability::FourOctetAs => format!("AS {}", open.asn),
        Capability::AddPath(families) => list(families.iter().map(|(family, mode)| format!("{family} {}", mode_name(*mode)))),
        Capability::LongLivedGracefulRestart(families) => {
            list(families.iter().map(|(family, long_lived)| {
                format!("{family} {} s{}", long_lived.stale_time, if long_lived.forwarding { " F" } else { "" })
            }))
        }
        Capability::Fqdn { host, domain } if domain.is_empty() => host.clone(),
        Capability::Fqdn { host, domain } => format!("{host}.{domain}"),
        Capability::SoftwareVersion(version) => version.clone(),
        Capability::Unknown { value, .. } => hexadecimal(value),
    }
}

/// What both sides agree on, by code.
fn agreed(negotiated: &Negotiated, code: u8) -> Option<String> {
    let flag = |agreed: bool| agreed.then(|| "yes".to_owned());
    let families = |families: &BTreeSet<Family>| (!families.is_empty()).then(|| list(families.iter().map(ToString::to_string)));
    match code {
        1 => families(&negotiated.families),
        2 => flag(negotiated.route_refresh),
        5 => families(&negotiated.extended_next_hop),
        6 => flag(negotiated.max_send_length > MAX_MESSAGE_LENGTH),
        9 => negotiated.local_role.and(negotiated.remote_role).map(|_| "yes".to_owned()),
        64 => flag(negotiated.graceful_restart.is_some()),
        65 => flag(negotiated.four_octet_as),
        69 => {
            let directions = [("send", &negotiated.add_path_send), ("receive", &negotiated.add_path_receive)];
            let words: Vec<String> =
                directions.iter().flat_map(|(mode, families)| families.iter().map(move |family| format!("{family} {mode}"))).collect();
            (!words.is_empty()).then(|| words.join(", "))
        }
        70 => flag(negotiated.enhanced_route_refresh),
        71 => (!negotiated.long_lived.is_empty()).then(|| list(negotiated.long_lived.keys().map(ToString::to_string))),
        77 => flag(negotiated.link_local_next_hop),
        _ => None,
    }
}

fn list(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(", ")
}

const fn mode_name(mode: AddPathMode) -> &'static str {
    match mode {
        AddPathMode::Receive => "receive",
        AddPathMode::Send => "send",
        AddPathMode::Both => "send and receive",
    }
}

fn role_name(role: BgpRole) -> String {
    let name = match role {
        BgpRole::Provider => "provider",
        BgpRole::RouteServer => "route server",
        BgpRole::RouteServerClient => "route server client",
        BgpRole::Customer => "customer",
        BgpRole::Peer => "peer",
        BgpRole::Unassigned(number) => return format!("role {number}"),
    };
    name.to_owned()
}

/// The first octets.
pub(super) fn hexadecimal(octets: &[u8]) -> String {
    const SHOWN: usize = 32;
    let mut text = String::new();
    for octet in octets.iter().take(SHOWN) {
        write!(text, "{octet:02X}").ok();
    }
    if octets.len() > SHOWN { text + "…" } else { text }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bgp::wire::{GracefulRestart, LongLivedFamily};
    use bgp::{Asn, BgpIdentifier, HoldTime};

    use super::*;

    fn open(capabilities: Vec<Capability>) -> Open {
        let (asn, identifier) = (Asn::new(65_001).unwrap(), BgpIdentifier::new(1).unwrap());
        Open { asn, hold_time: HoldTime::DEFAULT, identifier, capabilities }
    }

    #[test]
    fn both_sides_and_what_counts() {
        let (v4, v6) = (Family::Ipv4Unicast, Family::Ipv6Unicast);
        let restart =
            GracefulRestart { restarting: true, notification: true, restart_time: 120, families: [(v4, true), (v6, false)].into() };
        let local = open(vec![
            Capability::Multiprotocol(v4),
            Capability::Multiprotocol(v6),
            Capability::RouteRefresh,
            Capability::GracefulRestart(restart.clone()),
            Capability::FourOctetAs,
            Capability::AddPath(BTreeMap::from([(v4, AddPathMode::Both)])),
        ]);
        let remote = open(vec![
            Capability::Multiprotocol(v4),
            Capability::Role(BgpRole::Unassigned(7)),
            Capability::GracefulRestart(GracefulRestart { restarting: false, notification: false, families: [].into(), ..restart }),
            Capability::AddPath(BTreeMap::from([(v4, AddPathMode::Receive)])),
            Capability::LongLivedGracefulRestart(BTreeMap::from([(v4, LongLivedFamily { forwarding: true, stale_time: 60 })])),
            Capability::Fqdn { host: "tor".to_owned(), domain: "dc1".to_owned() },
            Capability::Unknown { code: 200, value: vec![0xAB; 33].into() },
        ]);
        let negotiated = Negotiated::new(&local, &remote);
        let text: Vec<String> = exchange(&local, Some(&(remote, negotiated)))
            .iter()
            .map(|row| format!("{} {}: {:?} {:?} {:?}\n", row.code, row.name, row.local, row.remote, row.negotiated))
            .collect();
        insta::assert_snapshot!(text.concat());
        assert!(exchange(&local, None).iter().all(|row| row.remote.is_none() && row.negotiated.is_none()));
    }
}
