// SPDX-License-Identifier: Apache-2.0
//! A ToR: BIRD in a namespace of its own, which puts what it learns into its kernel, as a real one does.
//!
//! Input: the node that it is linked to. Output: what it learned, how often it was told to forget something, and what it logged.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{Namespace, Process, wait_until};

const PATIENCE: Duration = Duration::from_secs(30);

/// The ToR and its namespace.
pub(crate) struct Tor {
    bird: Process,
    directory: TempDir,
    number: u8,
    pub(crate) namespace: Namespace,
}

impl Tor {
    /// Links the node to a new ToR by the networks `10.99.NUMBER.0/24` and `2001:db8:99:NUMBER::/64`, and starts BIRD there.
    pub(crate) fn new(tag: &str, node: &Namespace, number: u8) -> Self {
        let namespace = Namespace::new(&format!("{tag}-tor{number}"));
        let (near, far) = (format!("eth{number}"), "eth0");
        node.veth(&near, &namespace, far);
        for (side, device, last) in [(node, near.as_str(), 1), (&namespace, far, 2)] {
            side.ip(&format!("address add 10.99.{number}.{last}/24 dev {device}"));
            side.ip(&format!("address add 2001:db8:99:{number}::{last}/64 dev {device}"));
        }
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join("bird.conf"), configuration(number)).unwrap();
        let bird = start(&namespace, &directory);
        let tor = Self { bird, directory, number, namespace };
        tor.wait_until_it_answers();
        tor
    }

    pub(crate) fn address(&self) -> IpAddr {
        Ipv4Addr::new(10, 99, self.number, 2).into()
    }

    /// Ends BIRD as `kill -9` does, and starts it again.
    pub(crate) fn restart(&mut self) {
        self.bird.kill();
        self.bird = start(&self.namespace, &self.directory);
        self.wait_until_it_answers();
    }

    /// Ends BIRD as `kill -9` does; its port refuses connections.
    pub(crate) fn kill(&self) {
        self.bird.kill();
    }

    /// Gives BIRD a configuration in which this stands in the place of that.
    pub(crate) fn reconfigure(&self, that: &str, this: &str) {
        let file = self.directory.path().join("bird.conf");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(that), "{text}");
        fs::write(&file, text.replace(that, this)).unwrap();
        self.birdc("configure");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.bird.signal(signal);
    }

    /// What it logged since it was started.
    pub(crate) fn log(&self) -> String {
        self.bird.log()
    }

    /// The destinations that it learned from the node.
    pub(crate) fn learned(&self) -> BTreeSet<IpAddr> {
        let routes = self.birdc("show route protocol node");
        routes.lines().filter_map(|line| line.split_once('/')).filter_map(|(address, _)| address.parse().ok()).collect()
    }

    /// Each prefix that it learned from a node, with the attributes that are not on every route.
    pub(crate) fn routes(&self, protocol: &str) -> BTreeMap<String, String> {
        let mut routes = BTreeMap::new();
        let mut prefix = String::new();
        for line in self.birdc(&format!("show route all protocol {protocol}")).lines() {
            if let Some(attribute) = line.trim().strip_prefix("BGP.").filter(|_| line.starts_with(char::is_whitespace)) {
                let told: &mut String = routes.get_mut(&prefix).unwrap();
                let (name, value) = attribute.split_once(": ").unwrap_or((attribute, ""));
                if !matches!(name, "origin" | "as_path:" | "as_path" | "next_hop") && attribute != "local_pref: 100" {
                    told.push_str(&format!("{name} {} ", value.trim()));
                }
            } else if line.contains(" unicast ") && !line.starts_with(char::is_whitespace) {
                prefix = line.split_whitespace().next().unwrap().to_owned();
                routes.insert(prefix.clone(), String::new());
            }
        }
        routes
    }

    /// How many routes the node has told on the session that there is, those that it told again among them.
    pub(crate) fn updates(&self) -> u64 {
        self.counted("Import updates:")
    }

    /// Links one more node to it, by the network `10.99.NUMBER.0/24`: protocol `another`.
    pub(crate) fn link(&self, node: &Namespace, number: u8) {
        node.veth("eth0", &self.namespace, "eth1");
        for (side, device, last) in [(node, "eth0", 1), (&self.namespace, "eth1", 2)] {
            side.ip(&format!("address add 10.99.{number}.{last}/24 dev {device}"));
        }
        let file = self.directory.path().join("bird.conf");
        let text = fs::read_to_string(&file).unwrap() + &protocol("another", number, "ipv4 { import all; export none; };");
        fs::write(&file, text).unwrap();
        self.birdc("configure");
    }

    /// The destinations in its kernel that BIRD put there.
    pub(crate) fn kernel_routes(&self) -> BTreeSet<IpAddr> {
        let of_family = |family: &str| {
            let json = self.namespace.output(&["ip", "-j", family, "route", "show", "proto", "bird"]);
            let routes: Vec<Value> = serde_json::from_str(&json).unwrap();
            routes.into_iter().map(|route| route["dst"].as_str().unwrap().parse().unwrap()).collect::<BTreeSet<IpAddr>>()
        };
        &of_family("-4") | &of_family("-6")
    }

    /// How often the node has told it to forget a destination on the session that there is.
    pub(crate) fn withdrawals(&self) -> u64 {
        self.counted("Import withdraws:")
    }

    fn counted(&self, what: &str) -> u64 {
        let text = self.birdc("show protocols all node");
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix(what));
        lines.map(|numbers| numbers.split_whitespace().next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// How often a session came up since it was started.
    pub(crate) fn sessions(&self) -> usize {
        self.log().matches("node: BGP session established").count()
    }

    /// Its log lines about messages by which either side ended a session.
    pub(crate) fn notifications(&self) -> Vec<String> {
        let words = ["node: Error:", "node: Received:", "NOTIFICATION"];
        self.log().lines().filter(|line| words.iter().any(|word| line.contains(word))).map(str::to_owned).collect()
    }

    fn birdc(&self, words: &str) -> String {
        let output = birdc(&self.directory).args(words.split(' ')).output().unwrap();
        assert!(output.status.success(), "birdc {words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn wait_until_it_answers(&self) {
        wait_until("BIRD answers", PATIENCE, || {
            assert!(self.bird.is_running(), "BIRD has ended:\n{}", self.log());
            birdc(&self.directory).args(["show", "status"]).output().unwrap().status.success()
        });
    }
}

fn configuration(number: u8) -> String {
    format!(
        "router id 10.99.{number}.2;\nlog stderr all;\ntimeformat log iso long us;\ntimeformat protocol iso long us;\n\
         protocol device {{}}\nprotocol direct {{ ipv4; ipv6; }}\n\
         protocol kernel {{ ipv4 {{ import none; export where source = RTS_BGP; }}; }}\n\
         protocol kernel {{ ipv6 {{ import none; export where source = RTS_BGP; }}; }}\n\
         {}",
        protocol("node", number, "ipv4 { import all; export none; };\n  ipv6 { import all; export none; };")
    )
}

fn protocol(name: &str, number: u8, families: &str) -> String {
    format!(
        "protocol bgp {name} {{\n  debug {{ states, events, packets }};\n  local 10.99.{number}.2 as 65001;\n  neighbor 10.99.{number}.1 as 65001;\n  direct;\n\
         \x20 hold time 9;\n  connect delay time 1;\n  error wait time 0, 1;\n  {families}\n}}\n"
    )
}

fn start(namespace: &Namespace, directory: &TempDir) -> Process {
    let path = |name: &str| -> PathBuf { directory.path().join(name) };
    let mut command = namespace.command("bird");
    command.arg("-f").arg("-c").arg(path("bird.conf")).arg("-s").arg(path("bird.ctl")).arg("-P").arg(path("bird.pid"));
    namespace.spawn(&mut command)
}

fn birdc(directory: &TempDir) -> Command {
    let mut command = Command::new("birdc");
    command.arg("-s").arg(directory.path().join("bird.ctl"));
    command
}

/// Asks a VIP for an answer, fifty times a second.
pub(crate) fn ping(tor: &Namespace, vip: &str) -> Process {
    let ping = tor.spawn(tor.command("ping").args(["-n", "-i", "0.02", vip]));
    wait_until("the VIP answers", PATIENCE, || ping.log().contains("icmp_seq=1 "));
    ping
}

/// Ends that, and finds that nothing was lost.
pub(crate) fn assert_no_loss(ping: &Process) {
    ping.signal(Signal::SIGINT);
    wait_until("ping ends", PATIENCE, || ping.log().contains("packet loss"));
    assert!(ping.log().contains(" 0% packet loss"), "{}", ping.log());
}
