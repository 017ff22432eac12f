// SPDX-License-Identifier: Apache-2.0
//! Goldens of the planner: each directory of `tests/plan` holds an `input.yaml` (the rule in a comment, intent and observation, times counted from
//! now) and the plan that must come of it, `expected.txt`. `UPDATE_GOLDENS=1` writes the latter anew; the difference is reviewed like code.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bgp::{Asn, Family, HoldTime, Prefix};
use serde::Deserialize;
use vipherald::desired::{
    Desired, DesiredBgp, DesiredExport, DesiredPeer, DesiredVip, DrainTimes, Lifecycle, PeerAddress, Transport, VipIntent, WithholdReason,
};
use vipherald::observed::{
    ADDRESS_PROTOCOL, Announcement, Failure, InterfaceState, KernelState, Observed, ObservedAddress, ObservedSpeaker, Record, Since,
};
use vipherald::plan::{StepKey, has_left, plan};

#[test]
fn every_case_plans_as_written() {
    let update = std::env::var_os("UPDATE_GOLDENS").is_some();
    let cases = cases();
    assert!(cases.len() >= 20, "only {} cases found", cases.len());
    let mut failed = Vec::new();
    for case in cases {
        let printed = run(&case);
        let golden = case.join("expected.txt");
        if update {
            fs::write(&golden, &printed).unwrap();
        } else if fs::read_to_string(&golden).unwrap_or_default() != printed {
            failed.push(format!("{}:\n{printed}", golden.display()));
        }
    }
    assert!(failed.is_empty(), "these plans are not as written (UPDATE_GOLDENS=1 accepts them):\n{}", failed.join("\n"));
}

fn cases() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plan");
    let mut cases: Vec<PathBuf> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases
}

fn run(case: &Path) -> String {
    let text = fs::read_to_string(case.join("input.yaml")).unwrap_or_else(|error| panic!("{}: {error}", case.display()));
    let input: Input = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", case.display()));
    // Times before now must not fall before the clock's own beginning.
    let now = Instant::now() + Duration::from_secs(3600);
    let desired = input.desired.typed();
    let observed = input.observed.typed(&desired, now);
    let over = if has_left(&desired, &observed) { "drained\n" } else { "" };
    format!("{}{over}", plan(&desired, &observed, now).display(now))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    #[serde(default)]
    desired: DesiredInput,
    #[serde(default)]
    observed: ObservedInput,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct DesiredInput {
    serve: Vec<IpAddr>,
    withhold: Vec<IpAddr>,
    found: Vec<IpAddr>,
    complete: bool,
    drain: bool,
    peers: Vec<String>,
    fabric_delay: Time,
    timeout: Time,
}

impl Default for DesiredInput {
    fn default() -> Self {
        Self {
            serve: Vec::new(),
            withhold: Vec::new(),
            found: Vec::new(),
            complete: true,
            drain: false,
            peers: vec!["rr1".to_owned()],
            fabric_delay: Time(Duration::from_secs(1)),
            timeout: Time(Duration::from_secs(25)),
        }
    }
}

impl DesiredInput {
    fn typed(self) -> Desired {
        let vip = |intent| DesiredVip { owners: BTreeSet::new(), intent };
        let serve = self.serve.into_iter().map(|address| (address, vip(VipIntent::Serve { without_endpoints: false })));
        let withhold = self.withhold.into_iter().map(|address| (address, vip(VipIntent::Withhold(WithholdReason::NoEndpoints))));
        Desired {
            complete: self.complete,
            lifecycle: if self.drain { Lifecycle::Drain } else { Lifecycle::Run },
            vips: serve.chain(withhold).collect(),
            found: self.found.into_iter().map(Prefix::host).collect(),
            bgp: neighbours(&self.peers),
            drain: DrainTimes { fabric_delay: self.fabric_delay.0, timeout: self.timeout.0 },
        }
    }
}

fn neighbours(names: &[String]) -> DesiredBgp {
    let peer = DesiredPeer {
        address: PeerAddress::Known("192.0.2.254".parse().unwrap()),
        port: 179,
        transport: Transport::default(),
        asn: Asn::new(65001).unwrap(),
        families: BTreeSet::from([Family::Ipv4Unicast]),
        hold_time: HoldTime::from_secs(9).unwrap(),
        connect_retry: Duration::from_secs(5),
        restart_time: None,
        export: DesiredExport::default(),
        reflector_client: false,
        add_path: None,
        keep_received: 0,
    };
    let peers = names.iter().map(|name| (name.clone(), peer.clone())).collect();
    DesiredBgp { asn: Asn::new(65001).unwrap(), router_id: None, cluster_id: None, listen: None, peers }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct ObservedInput {
    started: Time,
    /// `address[/length] setter`, the setter being `ours`, `none` or a protocol number.
    interface: Vec<String>,
    /// `up`, `down` or `missing`.
    state: String,
    protocols: bool,
    elsewhere: BTreeSet<IpAddr>,
    /// Whether the table exists; of itself where something is in it.
    record: bool,
    pending: BTreeSet<IpAddr>,
    confirmed: BTreeSet<IpAddr>,
    advertised: Option<Vec<IpAddr>>,
    withdrawing: Vec<IpAddr>,
    /// The neighbours in force.
    peers: Option<Vec<String>>,
    open_sessions: usize,
    /// `withdrawn 3s`: for how long; what is advertised is so since the start.
    announcements: BTreeMap<IpAddr, String>,
    /// `address 10.0.0.1: 3 1s`: how often, and how long ago.
    failures: BTreeMap<String, String>,
}

impl Default for ObservedInput {
    fn default() -> Self {
        Self {
            started: Time(Duration::from_secs(60)),
            interface: Vec::new(),
            state: "up".to_owned(),
            protocols: true,
            elsewhere: ["192.0.2.10", "2001:db8:ffff::10"].map(|own| own.parse().unwrap()).into(),
            record: false,
            pending: BTreeSet::new(),
            confirmed: BTreeSet::new(),
            advertised: None,
            withdrawing: Vec::new(),
            peers: None,
            open_sessions: 0,
            announcements: BTreeMap::new(),
            failures: BTreeMap::new(),
        }
    }
}

impl ObservedInput {
    fn typed(self, desired: &Desired, now: Instant) -> Observed {
        let started = now - self.started.0;
        let advertised = self.advertised.iter().flatten().map(|vip| (*vip, Since { value: Announcement::Advertised, since: started }));
        let others = self.announcements.iter().map(|(vip, text)| (*vip, announcement(text, now)));
        let interface = match self.state.as_str() {
            "up" => InterfaceState::Up,
            "down" => InterfaceState::Down,
            "missing" => InterfaceState::Missing,
            other => panic!("{other} is no state"),
        };
        Observed {
            kernel: KernelState {
                interface,
                addresses: self.interface.iter().map(|text| address(text)).collect(),
                address_protocols: self.protocols,
                claimed_by_others: BTreeSet::new(),
                gateways: BTreeSet::new(),
                unusable: BTreeSet::new(),
                elsewhere: self.elsewhere,
                record: Record {
                    exists: self.record || !self.pending.is_empty() || !self.confirmed.is_empty(),
                    pending: self.pending,
                    confirmed: self.confirmed,
                },
            },
            announcements: advertised.chain(others).collect(),
            started: Some(started),
            failures: self.failures.iter().map(|(key, text)| failure(key, text, now)).collect(),
            speaker: ObservedSpeaker {
                advertised: self.advertised.map(|vips| Arc::new(vips.into_iter().map(Prefix::host).collect())),
                configured: self.peers.map(|names| Arc::new(DesiredBgp { asn: desired.bgp.asn, ..neighbours(&names) })),
                withdrawing: self.withdrawing.into_iter().map(Prefix::host).collect(),
                open_sessions: self.open_sessions,
            },
        }
    }
}

fn address(text: &str) -> (IpAddr, ObservedAddress) {
    let (address, setter) = text.split_once(' ').unwrap();
    let (address, length) = address.split_once('/').unwrap_or((address, ""));
    let address: IpAddr = address.parse().unwrap();
    let prefix_length = if length.is_empty() { Prefix::host(address).length() } else { length.parse().unwrap() };
    let protocol = match setter {
        "ours" => Some(ADDRESS_PROTOCOL),
        "none" => None,
        number => Some(number.parse().unwrap()),
    };
    (address, ObservedAddress { prefix_length, protocol })
}

fn announcement(text: &str, now: Instant) -> Since<Announcement> {
    let (value, since) = text.split_once(' ').unwrap();
    let value = match value {
        "withdrawing" => Announcement::Withdrawing,
        "withdrawn" => Announcement::Withdrawn,
        other => panic!("{other} is no announcement"),
    };
    Since { value, since: now - humantime::parse_duration(since).unwrap() }
}

fn failure(key: &str, text: &str, now: Instant) -> (StepKey, Failure) {
    let key = match key.split_once(' ') {
        Some(("address", address)) => StepKey::Address(address.parse().unwrap()),
        None if key == "advertise" => StepKey::Advertise,
        None if key == "record" => StepKey::Record,
        None if key == "speaker" => StepKey::Speaker,
        _ => panic!("{key} is no key"),
    };
    let (count, last) = text.split_once(' ').unwrap();
    let last = now - humantime::parse_duration(last).unwrap();
    (key, Failure { error: "refused".to_owned(), count: count.parse().unwrap(), last })
}

/// A length of time as `1s 500ms`.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct Time(Duration);

impl TryFrom<String> for Time {
    type Error = humantime::DurationError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        humantime::parse_duration(&text).map(Self)
    }
}
