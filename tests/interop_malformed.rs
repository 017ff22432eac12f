// SPDX-License-Identifier: Apache-2.0
//! RFC 7606 on the wire: ExaBGP sends each line of `malformed_attributes.txt`, and our speaker does with it what the line says.
//!
//! One session gets every UPDATE that must leave it up, and a good route behind them; each line that must end its session has a session of its own.
//! ExaBGP takes a raw attribute of any type and flags, with two exceptions: it cannot send a NEXT_HOP that is not four octets with the usual flags, and it
//! keeps LOCAL_PREF from an external peer. Those lines are left to the test of the codec, which reads the same table.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

mod common;
#[path = "interop/peers/mod.rs"]
mod peers;
#[path = "../bgp/tests/malformed_attributes/table.rs"]
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bgp::peer::State;
use bgp::{Asn, Family, HoldTime};
use common::{Namespace, Process, wait_until};
use peers::exabgp_with_settings;
use table::{Case, cases};
use tempfile::TempDir;
use vipherald::desired::{DesiredBgp, DesiredPeer, Transport};
use vipherald::driver::bgp::{PeerStatus, Speaker};

/// How long anything may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const OUR_AS: u32 = 65001;
/// The name of the session that stays up.
const LASTING: &str = "lasting";
/// UPDATEs beside those of the table: the good route at the end, and End-of-RIB of both families.
const OTHER_UPDATES: u64 = 3;

/// An ExaBGP of one AS, and a node that has several sessions with it.
struct ExaBgp {
    asn: u32,
    /// What it is to send on each session.
    sessions: Vec<(Ends, Vec<String>)>,
    directory: TempDir,
}

/// The addresses of a session. ExaBGP knows a neighbour by its address alone, so that both ends need one each.
#[derive(Clone, Copy)]
struct Ends {
    ours: Ipv4Addr,
    theirs: Ipv4Addr,
}

impl ExaBgp {
    fn new(asn: u32) -> Self {
        Self { asn, sessions: Vec::new(), directory: TempDir::new().unwrap() }
    }

    /// A further session, on which it sends these routes.
    fn add(&mut self, routes: Vec<String>) -> Ends {
        let number = u8::try_from(self.sessions.len() + 1).unwrap();
        let ends = Ends { ours: Ipv4Addr::new(10, 99, 1, number), theirs: Ipv4Addr::new(10, 99, 2, number) };
        self.sessions.push((ends, routes));
        ends
    }

    fn start(&self, ours: &Namespace, theirs: &Namespace) -> Process {
        for (ends, _) in &self.sessions {
            ours.ip(&format!("address add {}/16 dev eth0", ends.ours));
            theirs.ip(&format!("address add {}/16 dev eth0", ends.theirs));
        }
        let file = self.directory.path().join("exabgp.conf");
        std::fs::write(&file, self.configuration()).unwrap();
        theirs.spawn(&mut exabgp_with_settings(theirs.command("exabgp"), &file))
    }

    /// Where it writes what it hears, as lines of JSON.
    fn heard(&self) -> PathBuf {
        self.directory.path().join("heard")
    }

    /// The addresses of ours that told it of an UPDATE Message Error.
    fn told_of_errors(&self) -> BTreeSet<String> {
        let text = std::fs::read_to_string(self.heard()).unwrap_or_default();
        let whole = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let notifications = whole.filter(|line| line["type"] == "notification" && line["neighbor"]["notification"]["code"] == 3);
        notifications.filter_map(|line| Some(line["neighbor"]["address"]["peer"].as_str()?.to_owned())).collect()
    }

    fn configuration(&self) -> String {
        let heard = self.heard();
        let mut text = format!("process heard {{ run /bin/sh -c \"cat > {}; exit\"; encoder json; }}\n", heard.display());
        for (Ends { ours, theirs }, routes) in &self.sessions {
            let asn = self.asn;
            write!(
                text,
                "neighbor {ours} {{\n router-id {theirs};\n local-address {theirs};\n local-as {asn};\n peer-as {OUR_AS};\n passive;\n listen 179;\n \
                 api {{ processes [ heard ]; receive {{ parsed; notification; }} }}\n capability {{ extended-message disable; }}\n family {{ ipv4 unicast; ipv6 unicast; }}\n static {{\n"
            )
            .unwrap();
            for route in routes {
                writeln!(text, "  {route};").unwrap();
            }
            text += " }\n}\n";
        }
        text
    }
}

/// The route of a line, with a number of its own; `None` where ExaBGP cannot send it.
fn route(number: usize, case: &Case<'_>, external: bool) -> Option<String> {
    const NEXT_HOP: u8 = 3;
    const LOCAL_PREF: u8 = 5;
    let Case { type_code, flags, value, .. } = case;
    let destination = format!("route 10.1.{number}.0/24");
    if *type_code == NEXT_HOP {
        let address = <[u8; 4]>::try_from(value.as_slice()).ok().filter(|_| *flags == 0x40)?;
        return Some(format!("{destination} next-hop {}", Ipv4Addr::from(address)));
    }
    if *type_code == LOCAL_PREF && external {
        return None;
    }
    let digits: String = value.iter().map(|octet| format!("{octet:02X}")).collect();
    Some(format!("{destination} next-hop 10.99.2.1 attribute [ 0x{type_code:02X} 0x{flags:02X} 0x{digits} ]"))
}

fn neighbour(ends: Ends, asn: u32) -> DesiredPeer {
    DesiredPeer {
        transport: Transport { source: Some(ends.ours.into()), ..Transport::default() },
        hold_time: HoldTime::from_secs(90).unwrap(),
        connect_retry: Duration::from_secs(1),
        ..DesiredPeer::new(ends.theirs.into(), Asn::new(asn).unwrap())
    }
}

fn peer(speaker: &Speaker, name: &str) -> Option<Arc<PeerStatus>> {
    speaker.status().peers.get(name).cloned()
}

/// Sends the whole table from a peer in this AS. `sent_at_least` is how many of its lines ExaBGP must be able to send.
fn every_line_has_its_outcome(their_as: u32, sent_at_least: usize) {
    let external = their_as != OUR_AS;
    let cases = cases();
    let outcome = |case: &Case<'static>| if external { case.external } else { case.internal };
    let sent: Vec<(&Case<'_>, String)> =
        cases.iter().enumerate().filter_map(|(number, case)| Some((case, route(number, case, external)?))).collect();
    assert!(sent.len() >= sent_at_least, "only {} of {} lines are sent", sent.len(), cases.len());
    let (fatal, harmless): (Vec<_>, Vec<_>) = sent.into_iter().partition(|(case, _)| outcome(case) == "reset");
    let count = |wanted: &str| u64::try_from(harmless.iter().filter(|(case, _)| outcome(case) == wanted).count()).unwrap();

    let mut exabgp = ExaBgp::new(their_as);
    let good = "route 10.2.0.0/16 next-hop 10.99.2.1".to_owned();
    let lasting = exabgp.add(harmless.iter().map(|(_, route)| route.clone()).chain([good]).collect());
    let mut peers = BTreeMap::from([(LASTING.to_owned(), neighbour(lasting, their_as))]);
    for (case, route) in &fatal {
        let ends = exabgp.add(vec![route.clone()]);
        peers.insert(format!("{:02X} {:02X} {}", case.type_code, case.flags, case.what), neighbour(ends, their_as));
    }
    let doomed: Vec<String> = peers.keys().filter(|name| *name != LASTING).cloned().collect();
    assert_eq!(doomed.len(), fatal.len());

    let (ours, theirs) = (Namespace::new("malformed-n"), Namespace::new("malformed-x"));
    ours.veth("eth0", &theirs, "eth0");
    let _process = exabgp.start(&ours, &theirs);
    let speaker = ours.run(|| Speaker::spawn("vipherald", 7)).unwrap();
    speaker.advertise(Arc::default());
    speaker.configure(Arc::new(DesiredBgp { peers, ..DesiredBgp::new(Asn::new(OUR_AS).unwrap()) }), None);

    wait_until("the session is up", PATIENCE, || peer(&speaker, LASTING).is_some_and(|peer| peer.state == State::Established));
    let since = peer(&speaker, LASTING).unwrap().established_since;
    let updates = u64::try_from(harmless.len()).unwrap() + OTHER_UPDATES;
    wait_until("every UPDATE has come", PATIENCE, || {
        peer(&speaker, LASTING).is_some_and(|peer| peer.counters.received.update >= updates || peer.established_since != since)
    });
    let status = peer(&speaker, LASTING).unwrap();
    assert_eq!((status.state, status.established_since), (State::Established, since), "{:?}", status.last_error);
    assert_eq!(status.counters.received.update, updates);
    assert_eq!(status.counters.treated_as_withdraw, count("withdraw"), "UPDATEs treated as withdraw");
    assert_eq!(status.counters.attributes_discarded, count("discard"), "attributes discarded");
    let announced = status.counters.prefixes.get(&Family::Ipv4Unicast).unwrap().announced;
    assert_eq!(announced, count("keep") + count("discard") + 1, "IPv4 routes that count");

    for name in &doomed {
        wait_until(&format!("the session ends: {name}"), PATIENCE, || {
            let error = peer(&speaker, name).and_then(|peer| peer.last_error.clone());
            error.is_some_and(|error| error.reason.starts_with("sent NOTIFICATION UPDATE Message Error"))
        });
    }
    wait_until("ExaBGP has seen a NOTIFICATION for each", PATIENCE, || exabgp.told_of_errors().len() == doomed.len());
    assert_eq!(peer(&speaker, LASTING).unwrap().established_since, since);
}

#[test]
fn rfc7606_every_line_from_an_external_peer() {
    every_line_has_its_outcome(65002, 130);
}

#[test]
fn rfc7606_every_line_from_an_internal_peer() {
    every_line_has_its_outcome(OUR_AS, 140);
}
