// SPDX-License-Identifier: Apache-2.0
//! Two daemons with virtual routers beside each other: stops, kills, pauses and reloads, and what they say of themselves.

#![allow(clippy::unwrap_used, reason = "a failed test says where")]

mod common;
#[path = "common/link.rs"]
mod link;
#[path = "common/neighbours.rs"]
mod neighbours;
#[path = "vrrp_daemon/virtual_mac.rs"]
mod virtual_mac;

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use common::{Namespace, Process, wait_until};
use link::{Link, PATIENCE, has};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

const VIP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 97, 0, 100));
const ADDED: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 97, 0, 101));

/// A node with its files.
struct Node<'a> {
    host: &'a Namespace,
    directory: TempDir,
}

impl<'a> Node<'a> {
    fn new(host: &'a Namespace, group: &str) -> Self {
        let node = Self { host, directory: tempfile::tempdir().unwrap() };
        fs::create_dir(node.path("manifests")).unwrap();
        node.configure(group);
        node
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// The keys of the group besides its name, its interface and its VRID.
    fn configure(&self, group: &str) {
        let text = format!(
            "node: {{name: node-1}}\nbgp: {{asn: 65001}}\nstateDir: {}\nlog: {{format: text}}\nvrrp:\n  groups:\n  - {{name: main, interface: eth0, virtualRouterId: 106, {group}}}\n",
            self.path("state")
        );
        fs::write(self.path("new.yaml"), text).unwrap();
        fs::rename(self.path("new.yaml"), self.path("config.yaml")).unwrap();
    }

    fn keep_on_termination(&self) {
        let text = fs::read_to_string(self.path("config.yaml")).unwrap();
        fs::write(self.path("config.yaml"), format!("drain: {{onTermination: keep}}\n{text}")).unwrap();
    }

    fn run(&self) -> Process {
        let mut command = self.host.command(env!("CARGO_BIN_EXE_vipherald"));
        command.args(["run", "--config", &self.path("config.yaml"), "--manifests", &self.path("manifests")]);
        self.host.spawn(&mut command)
    }

    /// What `show vrrp` says, while the daemon answers.
    fn shown(&self) -> Option<Value> {
        let mut command = self.host.command(env!("CARGO_BIN_EXE_vipherald"));
        let output = command.args(["show", "vrrp", "-o", "json", "--socket", &self.path("state/admin.sock")]).output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    fn router(&self) -> Option<Value> {
        self.shown().map(|shown| shown["vrrp"][0]["routers"][0].clone())
    }

    fn wait_for(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut router = None;
        wait_until(what, PATIENCE, || {
            router = self.router();
            router.as_ref().is_some_and(&wanted)
        });
        router.unwrap()
    }

    fn wait_until(&self, state: &str) -> Value {
        self.wait_for(state, |router| router["state"] == state)
    }
}

fn fast(priority: u8) -> String {
    every("100ms", priority)
}

fn every(interval: &str, priority: u8) -> String {
    format!("addresses: [{VIP}], priority: {priority}, advertisementInterval: {interval}")
}

/// Ours is better, and Active; theirs is Backup.
fn pair<'a>(link: &'a Link) -> [(Node<'a>, Process); 2] {
    pair_of(link, &fast(200), &fast(100))
}

fn pair_of<'a>(link: &'a Link, better: &str, other: &str) -> [(Node<'a>, Process); 2] {
    let ours = Node::new(&link.ours, better);
    let running = ours.run();
    ours.wait_until("Active");
    let theirs = Node::new(&link.theirs, other);
    let other = theirs.run();
    theirs.wait_for("it hears ours", |router| router["state"] == "Backup" && router["activeRouter"] == "10.97.0.1");
    link.ping(VIP);
    link.wait_until_known_at(VIP, &link.ours);
    [(ours, running), (theirs, other)]
}

#[test]
fn who_is_stopped_hands_over_and_leaves_nothing() {
    let link = Link::new("stop");
    let [(ours, running), (theirs, _other)] = pair(&link);
    assert_eq!(ours.wait_until("Active")["placed"], serde_json::json!([VIP]));
    running.signal(Signal::SIGTERM);
    assert!(running.wait(PATIENCE).success());
    assert!(!has(&link.ours, VIP));
    assert_eq!(link.ours.output(&["nft", "list", "tables"]), "");
    let router = theirs.wait_until("Active");
    assert_eq!(router["receivedPriorityZero"], 1);
    link.wait_until_known_at(VIP, &link.theirs);
    link.ping(VIP);
}

/// A stop for the next process: whoever is alone leaves its addresses answered for, and the next process goes on with them.
#[test]
fn what_is_kept_stays_where_nobody_follows() {
    let link = Link::new("keep");
    let ours = Node::new(&link.ours, &fast(100));
    ours.keep_on_termination();
    let monitor = link.ours.spawn(link.ours.command("ip").args(["monitor", "address"]));
    for _ in 0..2 {
        let running = ours.run();
        ours.wait_until("Active");
        link.ping(VIP);
        running.signal(Signal::SIGTERM);
        assert!(running.wait(PATIENCE).success());
        assert!(has(&link.ours, VIP));
        link.client.ip("neigh flush dev eth0");
        link.ping(VIP);
    }
    assert!(!monitor.log().contains("Deleted"), "{}", monitor.log());
    // Where somebody follows, it is not left.
    let running = ours.run();
    ours.wait_until("Active");
    let theirs = Node::new(&link.theirs, &fast(50));
    let _other = theirs.run();
    theirs.wait_for("it hears ours", |router| router["state"] == "Backup" && router["activeRouter"] == "10.97.0.1");
    running.signal(Signal::SIGTERM);
    assert!(running.wait(PATIENCE).success());
    theirs.wait_until("Active");
    assert!(!has(&link.ours, VIP));
    assert_eq!(link.ours.output(&["nft", "list", "tables"]), "");
}

#[test]
fn what_a_kill_has_left_goes_when_it_starts_again() {
    let link = Link::new("kill");
    // A process that a busy machine lets wait is silent for no longer than this allows.
    let [(ours, running), (theirs, _other)] = pair_of(&link, &every("1s", 200), &every("1s", 100));
    running.kill();
    theirs.wait_until("Active");
    assert!(has(&link.ours, VIP), "the leftover");
    link.wait_until_known_at(VIP, &link.theirs);
    ours.configure(&format!("{}, preempt: false", every("1s", 200)));
    let _again = ours.run();
    ours.wait_for("it hears theirs", |router| router["activeRouter"] == "10.97.0.2");
    wait_until("the leftover is gone", PATIENCE, || !has(&link.ours, VIP));
    link.ping(VIP);
    link.wait_until_known_at(VIP, &link.theirs);
}

#[test]
fn cleanup_takes_away_what_a_kill_has_left() {
    let link = Link::new("cleanup");
    let ours = Node::new(&link.ours, &fast(200));
    let running = ours.run();
    ours.wait_until("Active");
    running.kill();
    let cleanup = |arguments: &[&str]| {
        let words = [&[env!("CARGO_BIN_EXE_vipherald"), "cleanup", "--instance", "vipherald"], arguments].concat();
        link.ours.output(&words)
    };
    let line = "remove 10.97.0.100 of a virtual router from eth0\n";
    assert_eq!(cleanup(&["--dry-run"]), line);
    assert!(has(&link.ours, VIP));
    assert_eq!(cleanup(&[]), line);
    assert!(!has(&link.ours, VIP));
    assert_eq!(link.ours.output(&["nft", "list", "tables"]), "");
    assert_eq!(cleanup(&[]), "nothing to do\n");
}

/// The others follow a process that is suspended. When it wakes, one is left within an advertisement interval.
#[test]
fn of_two_that_are_active_after_a_pause_one_is_left() {
    let link = Link::new("pause");
    let [(ours, running), (theirs, _other)] = pair(&link);
    running.signal(Signal::SIGSTOP);
    theirs.wait_until("Active");
    link.wait_until_known_at(VIP, &link.theirs);
    // As long as the process that was suspended has missed all its deadlines by far.
    let paused = Instant::now();
    wait_until("two seconds have passed", PATIENCE, || paused.elapsed() > Duration::from_secs(2));
    running.signal(Signal::SIGCONT);
    theirs.wait_until("Backup");
    wait_until("one has the address", PATIENCE, || has(&link.ours, VIP) && !has(&link.theirs, VIP));
    assert_eq!(ours.wait_until("Active")["becameActive"], 1, "the better one did not step down");
    link.wait_until_known_at(VIP, &link.ours);
}

#[test]
fn a_reload_changes_it_in_its_state() {
    let link = Link::new("reload");
    let [(ours, _running), (theirs, _other)] = pair(&link);
    ours.configure(&format!("addresses: [{VIP}, {ADDED}], priority: 150, advertisementInterval: 100ms"));
    wait_until("the new address is there", PATIENCE, || has(&link.ours, ADDED));
    let other = |router: &Value| router["others"][0].clone();
    let router = theirs.wait_for("theirs is told of it", |router| other(router)["problem"].is_string());
    assert_eq!(other(&router)["problem"], "it lists other addresses: it may be of another virtual router");
    assert_eq!((&other(&router)["priority"], &router["state"]), (&150.into(), &"Backup".into()));
    // A mistake leaves all as it is.
    ours.configure("addresses: []");
    let refused = || ours.shown().is_some_and(|shown| shown["warnings"].to_string().contains("vrrp.groups[0].addresses"));
    wait_until("the mistake is told", PATIENCE, refused);
    assert!(has(&link.ours, VIP) && has(&link.ours, ADDED));
    ours.configure(&format!("addresses: [{ADDED}], priority: 150, advertisementInterval: 100ms"));
    wait_until("the old address is gone", PATIENCE, || !has(&link.ours, VIP));
    let router = ours.wait_until("Active");
    assert_eq!((&router["becameActive"], &router["addresses"]), (&1.into(), &serde_json::json!([ADDED])));
}

/// A group that is taken out of the file hands over, too; metrics tell where the address is.
#[test]
fn a_group_that_is_gone_hands_over() {
    let link = Link::new("gone");
    let [(ours, _running), (theirs, _other)] = pair(&link);
    let metrics = |host: &Namespace| {
        host.output(&["python3", "-c", "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9479/metrics').read().decode())"])
    };
    let held = |number: u8| format!("vipherald_vrrp_address_held{{address=\"10.97.0.100\",group=\"main\"}} {number}");
    assert!(metrics(&link.ours).contains(&held(1)) && metrics(&link.theirs).contains(&held(0)));
    let text = fs::read_to_string(ours.path("config.yaml")).unwrap();
    fs::write(ours.path("config.yaml"), text.split("vrrp:").next().unwrap()).unwrap();
    theirs.wait_until("Active");
    wait_until("ours has nothing left", PATIENCE, || ours.shown().is_some_and(|shown| shown["vrrp"] == serde_json::json!([])));
    assert!(!has(&link.ours, VIP));
    wait_until("its record is gone", PATIENCE, || !link.ours.output(&["nft", "list", "tables"]).contains("vrrp"));
    assert!(metrics(&link.theirs).contains(&held(1)));
}
