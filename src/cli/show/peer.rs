// SPDX-License-Identifier: Apache-2.0
//! `vipherald show peer NAME`: all about one neighbour, for a person. What is not there has no line.

use std::net::IpAddr;

use super::super::table::{printable, table};
use super::{age, last_error};
use crate::status::{
    FailureCounts, LastError, MessageCounts, MessageDirection, PeerDetails, PeerStatus, RestartOffer, RouteState, Time, TimerStatus,
    TransportStatus,
};

/// The whole view.
pub(super) fn text(peer: &PeerStatus, now: Time) -> String {
    let details = &peer.details;
    let mut lines = Lines::default();
    lines.put("Peer", peer.name.clone());
    session(&mut lines, peer, now);
    lines.put("Transport", transport(&details.transport));
    timers(&mut lines, &details.timers, details.transport.passive && peer.state == "Active", now);
    restart(&mut lines, details);
    errors(&mut lines, peer, now);
    let tables = [capabilities(details), families(peer), messages(peer)];
    format!("{}\n{}", lines.text(), tables.join("\n"))
}

/// A name and a value on each line.
#[derive(Default)]
struct Lines(Vec<(&'static str, String)>);

impl Lines {
    fn put(&mut self, name: &'static str, value: String) {
        if !value.is_empty() {
            self.0.push((name, value));
        }
    }

    fn text(&self) -> String {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 1;
        self.0.iter().map(|(name, value)| format!("{:<width$} {}\n", format!("{name}:"), printable(value))).collect()
    }
}

fn session(lines: &mut Lines, peer: &PeerStatus, now: Time) {
    let details = &peer.details;
    let kind = if details.internal { "internal" } else { "external" };
    let address = peer.address.map_or_else(|| "unknown".to_owned(), |address| socket(address, details.port));
    lines.put("Address", format!("{address}, AS {} ({kind})", peer.asn));
    lines.put("BGP Identifier", details.router_id.clone().unwrap_or_default());
    lines.put("Host name", details.host_name.clone().unwrap_or_default());
    lines.put("Software", details.software_version.clone().unwrap_or_default());
    let shut = if peer.shut { ", shut down by an operator" } else { "" };
    lines.put("State", format!("{}{shut}, since {} ({})", peer.state, peer.since, age(peer.since, now)));
    let resets = format!("{} established, {} lost", peer.established_count, details.resets);
    lines.put("Sessions", resets);
    let FailureCounts { sent, received, transport } = details.failures;
    lines.put("Ended", format!("{sent} by a NOTIFICATION of ours, {received} by one of the peer, {transport} without"));
    let connection = details.connection.as_ref();
    lines.put("Connection", connection.map(|ends| format!("{} to {}", ends.local, ends.remote)).unwrap_or_default());
    lines.put("Warning", peer.warning.clone().unwrap_or_default());
}

fn socket(address: IpAddr, port: u16) -> String {
    std::net::SocketAddr::new(address, port).to_string()
}

fn transport(transport: &TransportStatus) -> String {
    let TransportStatus { tcp_md5, tcp_ao, ttl_security_hops, ttl, passive, source, interface } = transport;
    let signature = match (tcp_md5, tcp_ao) {
        (true, _) => "TCP-MD5 (RFC 2385)",
        (false, true) => "TCP-AO (RFC 5925)",
        (false, false) => "no signature",
    };
    let mut words = vec![signature.to_owned()];
    match (ttl_security_hops, ttl) {
        (Some(hops), _) => words.push(format!("TTL security, {hops} hops at most (RFC 5082)")),
        (None, Some(ttl)) => words.push(format!("TTL {ttl}")),
        (None, None) => words.push("TTL of the system".to_owned()),
    }
    words.extend(passive.then(|| "passive".to_owned()));
    words.extend(source.as_ref().map(|source| format!("from {source}")));
    words.extend(interface.as_ref().map(|interface| format!("on {interface}")));
    words.join(", ")
}

fn timers(lines: &mut Lines, timers: &TimerStatus, waits: bool, now: Time) {
    let hold = |seconds: u16| if seconds == 0 { "off".to_owned() } else { format!("{seconds}s") };
    let mut times = vec![format!("hold {} offered", hold(timers.configured_hold_seconds))];
    times.extend(timers.remote_hold_seconds.map(|seconds| format!("{} by the peer", hold(seconds))));
    times.extend(timers.hold_seconds.map(|seconds| format!("{} in force", hold(seconds))));
    times.extend(timers.keepalive_seconds.filter(|seconds| *seconds > 0).map(|seconds| format!("keepalive {seconds}s")));
    times.push(format!("send hold {}s", timers.send_hold_seconds));
    times.push(format!("connect retry {}s", timers.connect_retry_seconds));
    lines.put("Times", times.join(", "));
    let running = [
        ("hold timer ends the session", timers.hold_expires_in_seconds),
        ("KEEPALIVE", timers.keepalive_in_seconds),
        ("send hold timer ends the session", timers.send_hold_expires_in_seconds),
        ("next attempt to connect", timers.connect_retry_in_seconds),
        ("rest is over", timers.idle_hold_expires_in_seconds),
    ];
    let mut running: Vec<String> = running.iter().filter_map(|(name, left)| Some(format!("{name} in {}s", (*left)?))).collect();
    running.extend(waits.then(|| "waits for the peer to dial".to_owned()));
    lines.put("Timers", running.join(", "));
    let ago = |time: Option<Time>| time.map(|time| format!("{} ago", age(time, now)));
    lines.put("Last received", ago(timers.last_received).unwrap_or_default());
    lines.put("Last sent", ago(timers.last_sent).unwrap_or_default());
}

fn restart(lines: &mut Lines, details: &PeerDetails) {
    let restart = &details.graceful_restart;
    if let Some(local) = &restart.local {
        let state = if restart.negotiated { "negotiated" } else { "not negotiated" };
        let notification = if restart.notification { ", also after a NOTIFICATION" } else { "" };
        lines.put("Graceful restart", format!("{state}{notification}; ours: {}", offer(local)));
    }
    lines.put("Peer's restart", restart.remote.as_ref().map(offer).unwrap_or_default());
    lines.put(
        "Kept routes",
        restart.routes_kept_until.map(|until| format!("the peer may hold old routes until {until}")).unwrap_or_default(),
    );
}

fn offer(offer: &RestartOffer) -> String {
    let mut words = vec![format!("restart time {}s", offer.restart_time_seconds)];
    words.extend(offer.restarting.then(|| "R (has restarted)".to_owned()));
    words.extend(offer.notification.then(|| "N".to_owned()));
    let kept = |forwarding: bool| if forwarding { "F (forwarding kept)" } else { "no F" };
    words.extend(offer.forwarding.iter().map(|(family, forwarding)| format!("{family} {}", kept(*forwarding))));
    words.join(", ")
}

fn errors(lines: &mut Lines, peer: &PeerStatus, now: Time) {
    if let Some(error) = &peer.last_error {
        lines.put("Last error", last_error(error, true, now));
        notification(lines, error);
    }
    if let Some(error) = &peer.last_attempt_error {
        lines.put("Last attempt", last_error(error, true, now));
        notification(lines, error);
    }
}

fn notification(lines: &mut Lines, error: &LastError) {
    let Some(notification) = &error.notification else { return };
    let direction = match notification.direction {
        MessageDirection::Sent => "sent",
        MessageDirection::Received => "received",
    };
    let numbers = format!("{direction}, code {}, subcode {}: {}", notification.code, notification.subcode, notification.name);
    lines.put("NOTIFICATION", numbers);
    lines.put("Its text", notification.communication.clone().unwrap_or_default());
}

fn capabilities(details: &PeerDetails) -> String {
    let said = |value: &Option<String>| match value.as_deref() {
        None => String::new(),
        Some("") => "yes".to_owned(),
        Some(value) => value.to_owned(),
    };
    let row = |row: &crate::status::CapabilityStatus| {
        vec![row.name.clone(), said(&row.local), said(&row.remote), row.negotiated.clone().unwrap_or_default()]
    };
    table(&["CAPABILITY", "OURS", "THE PEER'S", "IN FORCE"], &details.capability_exchange.iter().map(row).collect::<Vec<_>>())
}

fn families(peer: &PeerStatus) -> String {
    let mut names: Vec<&String> = peer.families.iter().chain(peer.prefixes.keys()).chain(peer.held.keys()).collect();
    names.sort();
    names.dedup();
    let row = |family: &&String| {
        let counts = peer.prefixes.get(*family).copied().unwrap_or_default();
        let of = |state| peer.routes.iter().filter(|route| route.state == state && route.family == **family).count();
        let reflected = peer.reflected.get(*family).copied().unwrap_or_default();
        let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
        vec![
            (*family).clone(),
            (of(RouteState::Advertised) + reflected).to_string(),
            of(RouteState::Withheld).to_string(),
            counts.announced.to_string(),
            counts.withdrawn.to_string(),
            number(peer.held.get(*family).map(|held| u64::from(*held))),
            number(peer.details.omitted.get(*family).copied()),
        ]
    };
    let headings = ["FAMILY", "ADVERTISED", "WITHHELD", "ANNOUNCED BY IT", "WITHDRAWN BY IT", "KEPT", "NOT KEPT"];
    table(&headings, &names.iter().map(row).collect::<Vec<_>>())
}

fn messages(peer: &PeerStatus) -> String {
    let row = |name: &str, count: fn(&MessageCounts) -> u64| {
        vec![name.to_owned(), count(&peer.received).to_string(), count(&peer.sent).to_string()]
    };
    let rows = [
        row("OPEN", |counts| counts.open),
        row("UPDATE", |counts| counts.update),
        row("NOTIFICATION", |counts| counts.notification),
        row("KEEPALIVE", |counts| counts.keepalive),
        row("ROUTE-REFRESH", |counts| counts.route_refresh),
    ];
    table(&["MESSAGES", "RECEIVED", "SENT"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_says_commands_no_terminal() {
        let mut lines = Lines::default();
        lines.put("Software", "evil\u{1b}[2J\nState: Established".to_owned());
        lines.put("Host name", String::new());
        assert_eq!(lines.text(), "Software: evil [2J State: Established\n");
    }
}
