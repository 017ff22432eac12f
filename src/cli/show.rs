// SPDX-License-Identifier: Apache-2.0
//! `vipherald show`: the status of the daemon as a table, JSON or YAML.
//!
//! Whatever is asked for, what keeps the node from doing what its files say is told beside it on standard error.

mod ipvs;
mod peer;
mod routes;
mod vrrp;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::table::table;
use super::{Failure, Noun, Output, Show, Shown, block_on, complain, print};
use crate::admin::{self, SOCKET};
use crate::config::instance_name;
use crate::desired::{Rejection, Subject};
use crate::driver::bgp::OperatorError;
use crate::status::{
    Envelope, FailureStatus, LastError, MessageCounts, NodeStatus, PeerStatus, RouteState, RouteStatus, Time, VipStatus, VrrpGroupStatus,
};

/// How long a daemon may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Which daemon is asked.
#[derive(Args, Debug)]
pub(super) struct Daemon {
    /// The admin socket of the daemon
    #[arg(long, global = true, value_name = "PATH", conflicts_with = "instance")]
    socket: Option<PathBuf>,
    /// The instance whose socket is in its default place
    #[arg(long, global = true, value_name = "NAME", default_value = "vipherald", value_parser = instance_name)]
    instance: String,
}

impl Daemon {
    pub(super) fn socket(&self) -> PathBuf {
        let default = || Path::new("/run/vipherald").join(&self.instance).join(SOCKET);
        self.socket.clone().unwrap_or_else(default)
    }
}

pub(super) fn show(Show { what, output, daemon }: Show) -> Result<(), Failure> {
    let noun = match what {
        Shown::Ipvs => return ipvs::show(output, &daemon),
        Shown::Status(Noun::Routes { of: Some(of) }) => return routes::show(of, output, &daemon),
        Shown::Status(noun) => noun,
    };
    let fetched = block_on("show", admin::fetch(&daemon.socket(), PATIENCE))?;
    let mut status = fetched.map_err(|source| Failure::Daemon { verb: "show", source })?;
    complain(&envelope(&status, &noun).warnings);
    if let Noun::Peers { name: Some(name) } | Noun::Peer { name } = &noun {
        only(&mut status, name)?;
    }
    print(&render(&status, &noun, output)?)
}

/// Leaves this peer.
fn only(status: &mut NodeStatus, name: &str) -> Result<(), Failure> {
    if !status.peers.iter().any(|peer| peer.name == name) {
        let waits = status.failures.iter().find(|failure| failure.step == "speaker" && status.peers.is_empty());
        if let Some(FailureStatus { error, .. }) = waits {
            return Err(Failure::verb("show", OperatorError::Impossible(format!("no peer is known yet: {error}"))));
        }
        if let Some(selector) = status.config.peers_elsewhere.get(name) {
            return Err(Failure::verb("show", OperatorError::Impossible(elsewhere(name, selector))));
        }
        let known = status.peers.iter().map(|peer| peer.name.clone()).collect();
        return Err(Failure::verb("show", OperatorError::Unknown { name: name.to_owned(), known }));
    }
    status.peers.retain(|peer| peer.name == name);
    status.config.peers_elsewhere.clear();
    Ok(())
}

fn elsewhere(name: &str, selector: &str) -> String {
    format!("{name} is not for this node: its nodeSelector is {selector}")
}

/// What a person should know before believing the rest.
fn envelope(status: &NodeStatus, noun: &Noun) -> Envelope {
    if *noun == Noun::Rejections { Envelope::without_rejections(status) } else { Envelope::of(status) }
}

fn render(status: &NodeStatus, noun: &Noun, output: Option<Output>) -> Result<String, Failure> {
    let wide = output == Some(Output::Wide);
    match (noun, output) {
        (Noun::Vips, None | Some(Output::Wide)) => Ok(vips(status, wide)),
        (Noun::Peers { .. }, None | Some(Output::Wide)) => Ok(peers(status, wide)),
        (Noun::Peer { .. }, None | Some(Output::Wide)) => {
            Ok(status.peers.iter().map(|peer| peer::text(peer, status.observed_at)).collect())
        }
        (Noun::Routes { .. }, None | Some(Output::Wide)) => Ok(routes(status)),
        (Noun::Vrrp, None | Some(Output::Wide)) => Ok(vrrp::text(status, wide)),
        (Noun::Rejections, None | Some(Output::Wide)) => Ok(rejections(&status.rejections)),
        (_, Some(form)) => write(envelope(status, noun), Content::new(status, noun), form),
    }
}

/// As JSON or YAML.
pub(super) fn write(envelope: Envelope, content: impl Serialize, form: Output) -> Result<String, Failure> {
    let document = Document { envelope, content };
    match form {
        Output::Yaml => serde_saphyr::to_string(&document).map_err(|error| Failure::verb("show", error)),
        Output::Json | Output::Wide => {
            serde_json::to_string_pretty(&document).map(|text| text + "\n").map_err(|error| Failure::verb("show", error))
        }
    }
}

/// What JSON and YAML hold: whose it is, and the part of the status that the noun is about.
#[derive(Serialize)]
struct Document<T> {
    #[serde(flatten)]
    envelope: Envelope,
    #[serde(flatten)]
    content: T,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Vips { vips: &'a [VipStatus], unclaimed: &'a [IpAddr], rejections: &'a [Rejection] },
    Peers { peers: &'a [PeerStatus] },
    Routes { routes: Vec<PeerRoute<'a>> },
    Vrrp { vrrp: &'a [VrrpGroupStatus] },
    Rejections { rejections: &'a [Rejection] },
}

/// A route and whom it is about.
#[derive(Serialize)]
struct PeerRoute<'a> {
    peer: &'a str,
    #[serde(flatten)]
    route: &'a RouteStatus,
}

impl<'a> Content<'a> {
    fn new(status: &'a NodeStatus, noun: &Noun) -> Self {
        let NodeStatus { vips, unclaimed, rejections, peers, vrrp, .. } = status;
        match noun {
            Noun::Vips => Self::Vips { vips, unclaimed, rejections },
            Noun::Peers { .. } | Noun::Peer { .. } => Self::Peers { peers },
            Noun::Routes { .. } => Self::Routes { routes: peer_routes(status) },
            Noun::Vrrp => Self::Vrrp { vrrp },
            Noun::Rejections => Self::Rejections { rejections },
        }
    }
}

/// All routes, those of one prefix together.
fn peer_routes(status: &NodeStatus) -> Vec<PeerRoute<'_>> {
    let mut routes: Vec<PeerRoute<'_>> = Vec::new();
    for peer in &status.peers {
        routes.extend(peer.routes.iter().map(|route| PeerRoute { peer: &peer.name, route }));
    }
    let address = |route: &PeerRoute<'_>| route.route.prefix.split('/').next().and_then(|address| address.parse::<IpAddr>().ok());
    routes.sort_by_cached_key(address);
    routes
}

fn vips(status: &NodeStatus, wide: bool) -> String {
    let mut rows: Vec<(IpAddr, Vec<String>)> = status.vips.iter().map(|vip| (vip.address, vip_row(vip))).collect();
    rows.extend(status.rejections.iter().filter_map(rejected_vip_row));
    rows.sort_by_key(|(address, _)| *address);
    let mut headings = vec!["VIP", "STATE", "REASON", "OWNER", "ADDRESS", "SINCE"];
    if wide {
        headings.extend(["PEERS", "MESSAGE"]);
    }
    table(&headings, &rows.into_iter().map(|(_, row)| row).collect::<Vec<_>>())
}

fn vip_row(vip: &VipStatus) -> Vec<String> {
    let owners: Vec<String> = vip.owners.iter().map(ToString::to_string).collect();
    vec![
        vip.address.to_string(),
        match &vip.graceful_shutdown {
            Some(stage) => format!("{} (GRACEFUL_SHUTDOWN, {}s left)", vip.state.as_str(), stage.withdrawn_in_seconds),
            None => vip.state.as_str().to_owned(),
        },
        vip.reason.clone(),
        owners.join(", "),
        vip.placement.map(|placement| format!("{placement:?}")).unwrap_or_default(),
        vip.since.to_string(),
        vip.peers.join(","),
        vip.message.clone(),
    ]
}

/// A VIP that somebody asks for in vain belongs into the list of VIPs.
fn rejected_vip_row(rejection: &Rejection) -> Option<(IpAddr, Vec<String>)> {
    let Subject::Object { object, vip: Some(vip) } = &rejection.subject else { return None };
    let empty = String::new;
    let (state, reason) = ("Rejected".to_owned(), format!("{:?}", rejection.reason));
    Some((*vip, vec![vip.to_string(), state, reason, object.to_string(), empty(), empty(), empty(), rejection.message.clone()]))
}

fn peers(status: &NodeStatus, wide: bool) -> String {
    let mut headings = vec!["NAME", "ADDRESS", "ASN", "STATE", "UPTIME", "HOLD", "FAMILIES", "ADVERTISED"];
    if wide {
        headings.extend(["LOCAL ADDRESS", "SESSIONS", "SINCE", "CAPABILITIES", "MESSAGES IN/OUT", "PREFIXES +/-", "MALFORMED"]);
    }
    headings.push("LAST ERROR");
    let row = |peer: &PeerStatus| {
        let own = peer.routes.iter().filter(|route| route.state == RouteState::Advertised).count();
        let advertised = own + peer.reflected.values().sum::<usize>();
        let mut row = vec![
            peer.name.clone(),
            peer.address.map_or_else(|| "unknown".to_owned(), |address| address.to_string()),
            peer.asn.to_string(),
            if peer.shut { format!("{} (shut down)", peer.state) } else { peer.state.clone() },
            peer.established_since.map(|since| age(since, status.observed_at)).unwrap_or_default(),
            peer.hold_seconds.map(|seconds| format!("{seconds}s")).unwrap_or_default(),
            peer.families.join(","),
            advertised.to_string(),
        ];
        if wide {
            let local = peer.local_address.map(|address| address.to_string()).unwrap_or_default();
            row.extend([local, peer.established_count.to_string(), peer.since.to_string()]);
            row.extend([peer.capabilities.join(","), format!("{}/{}", total(&peer.received), total(&peer.sent))]);
            let announced: u64 = peer.prefixes.values().map(|counts| counts.announced).sum();
            let withdrawn: u64 = peer.prefixes.values().map(|counts| counts.withdrawn).sum();
            let malformed = peer.malformed.treated_as_withdraw + peer.malformed.attributes_discarded;
            row.extend([format!("{announced}/{withdrawn}"), malformed.to_string()]);
        }
        row.push(last_errors(peer, wide, status.observed_at));
        row
    };
    let mut text = table(&headings, &status.peers.iter().map(row).collect::<Vec<_>>());
    for (name, selector) in &status.config.peers_elsewhere {
        text.push_str(&elsewhere(name, selector));
        text.push('\n');
    }
    text
}

const fn total(counts: &MessageCounts) -> u64 {
    counts.open + counts.update + counts.notification + counts.keepalive + counts.route_refresh
}

/// What is wrong with a peer, and how attempts have ended since.
fn last_errors(peer: &PeerStatus, wide: bool, now: Time) -> String {
    let errors = [&peer.last_error, &peer.last_attempt_error].into_iter().flatten();
    errors.map(|error| last_error(error, wide, now)).collect::<Vec<_>>().join("; since then ")
}

fn last_error(error: &LastError, wide: bool, now: Time) -> String {
    let ago = age(error.at, now);
    match (wide, error.count) {
        (false, _) => format!("{} ({ago} ago)", error.reason),
        (true, 0 | 1) => format!("{} ({ago} ago, at {})", error.reason, error.at),
        (true, count) => format!("{} ({count} times, last {ago} ago at {})", error.reason, error.at),
    }
}

fn routes(status: &NodeStatus) -> String {
    let row = |PeerRoute { peer, route }: PeerRoute<'_>| {
        let next_hop = match route.state {
            RouteState::Advertised => route.next_hop.map(|address| address.to_string()).unwrap_or_default(),
            RouteState::Withdrawing | RouteState::Withheld => String::new(),
        };
        vec![route.prefix.clone(), peer.to_owned(), next_hop, format!("{:?}", route.state), route.message.clone().unwrap_or_default()]
    };
    let own = table(&["PREFIX", "PEER", "NEXT HOP", "STATE", "REASON"], &peer_routes(status).into_iter().map(row).collect::<Vec<_>>());
    let reflected = status.peers.iter().filter_map(|peer| {
        let count = peer.reflected.values().sum::<usize>();
        (count > 0).then(|| format!("{}: {count} reflected routes besides, see 'show routes advertised {}'\n", peer.name, peer.name))
    });
    std::iter::once(own).chain(reflected).collect()
}

fn rejections(rejections: &[Rejection]) -> String {
    let row = |rejection: &Rejection| {
        let (subject, vip) = match &rejection.subject {
            Subject::Object { object, vip } => (object.to_string(), *vip),
            Subject::File { file, document: Some(document) } => (format!("file {file}, document {document}"), None),
            Subject::File { file, document: None } => (format!("file {file}"), None),
        };
        vec![subject, vip.map(|vip| vip.to_string()).unwrap_or_default(), format!("{:?}", rejection.reason), rejection.message.clone()]
    };
    table(&["OBJECT", "VIP", "REASON", "MESSAGE"], &rejections.iter().map(row).collect::<Vec<_>>())
}

/// The two largest units of a time.
fn age(since: Time, now: Time) -> String {
    let seconds = now.seconds().saturating_sub(since.seconds());
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{}s", seconds % 60),
        3600..86_400 => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::Node;

    fn nouns() -> [Noun; 6] {
        let peer = Noun::Peer { name: "rr1".to_owned() };
        [Noun::Vips, Noun::Peers { name: None }, peer, Noun::Routes { of: None }, Noun::Rejections, Noun::Vrrp]
    }

    #[test]
    fn tables() {
        let status = Node::eventful().status(None);
        let mut all = String::new();
        for noun in nouns() {
            for output in [None, Some(Output::Wide)] {
                all.push_str(&format!("{noun:?} {output:?}\n{}\n", render(&status, &noun, output).unwrap()));
            }
        }
        all.push_str(&envelope(&status, &Noun::Vips).warnings.join("\n"));
        insta::assert_snapshot!(all);
    }

    /// What the document shows is what is printed.
    #[test]
    fn the_document_shows_real_output() {
        let document = include_str!("../../docs/show.md");
        let mut status = Node::eventful().status(None);
        let peers = render(&status, &Noun::Peers { name: None }, None).unwrap();
        only(&mut status, "rr1").unwrap();
        for text in [peers, render(&status, &Noun::Peer { name: "rr1".to_owned() }, None).unwrap()] {
            assert!(document.contains(&format!("```text\n{text}```")), "docs/show.md lacks:\n{text}");
        }
    }

    #[test]
    fn peers_of_other_nodes_are_named_below() {
        let mut status = Node::eventful().status(None);
        let table = render(&status, &Noun::Peers { name: None }, None).unwrap();
        status.config.peers_elsewhere.insert("rr2".to_owned(), "rack=b".to_owned());
        let words = "rr2 is not for this node: its nodeSelector is rack=b";
        assert_eq!(render(&status, &Noun::Peers { name: None }, None).unwrap(), format!("{table}{words}\n"));
        assert_eq!(only(&mut status, "rr2").unwrap_err().lines(), [format!("show: {words}")]);
        only(&mut status, "rr1").unwrap();
        assert!(!render(&status, &Noun::Peers { name: Some("rr1".to_owned()) }, None).unwrap().contains(words));
    }

    #[test]
    fn only_a_peer_that_is_there_can_be_shown() {
        let mut status = Node::eventful().status(None);
        let refused = only(&mut status, "rr2").unwrap_err();
        assert_eq!(refused.lines(), ["show: there is no peer 'rr2'; did you mean 'rr1'?"]);
        only(&mut status, "tor").unwrap();
        assert_eq!(status.peers.len(), 1);
    }

    #[test]
    fn json_and_yaml_hold_the_same() {
        let status = Node::eventful().status(None);
        for noun in nouns() {
            let json: serde_json::Value = serde_json::from_str(&render(&status, &noun, Some(Output::Json)).unwrap()).unwrap();
            let yaml: serde_json::Value = serde_saphyr::from_str(&render(&status, &noun, Some(Output::Yaml)).unwrap()).unwrap();
            assert_eq!(json, yaml);
            assert_eq!((&json["apiVersion"], &json["observedAt"]), (&"vipherald.io/v1alpha1".into(), &"2026-11-28T00:01:00Z".into()));
        }
        insta::assert_snapshot!(render(&status, &Noun::Routes { of: None }, Some(Output::Yaml)).unwrap());
    }

    #[test]
    fn ages() {
        let at = |seconds| Time::from(std::time::UNIX_EPOCH + Duration::from_secs(seconds));
        let ages = [0, 59, 60, 3599, 3600, 86_399, 86_400, 1_000_000].map(|seconds| age(at(0), at(seconds)));
        assert_eq!(ages, ["0s", "59s", "1m0s", "59m59s", "1h0m", "23h59m", "1d0h", "11d13h"]);
        assert_eq!(age(at(9), at(0)), "0s");
    }
}
