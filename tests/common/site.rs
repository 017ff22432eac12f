// SPDX-License-Identifier: Apache-2.0
//! Two router nodes, a ToR with BIRD that asks VIPs for answers, and a host with the real servers, on one link.
//!
//! Input: for each node a mode, and the keys of its group of virtual routers. Output: what a node says, what BIRD has learned, and how many of a stream of
//! questions were not answered.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{Namespace, Process, inside, wait_until};
use crate::link::{Link, PATIENCE};
use crate::stage::{Stage, eric, service, slice};

/// Ports of VIPs and real servers.
const TCP: &str = "80";
const UDP: &str = "7";
/// A question without an answer for so long is lost.
const LOST: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Site {
    pub(crate) link: Link,
    /// `dataplane.type`.
    dataplane: &'static str,
    servers: Namespace,
    directory: TempDir,
    bird: Process,
}

impl Site {
    pub(crate) fn new(dataplane: &'static str, tag: &str) -> Self {
        let link = Link::new(tag);
        let servers = Namespace::new(&format!("{tag}-s"));
        link.replug(4, &servers);
        Stage::answer_tcp_in(&servers, TCP.parse().unwrap());
        let socket = servers.run(|| UdpSocket::bind(format!("[::]:{UDP}")).unwrap());
        thread::spawn(move || {
            let mut octets = [0; 64];
            while let Ok((length, client)) = socket.recv_from(&mut octets) {
                socket.send_to(octets.get(..length).unwrap(), client).ok();
            }
        });
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("bird.conf"), bird()).unwrap();
        let mut command = link.client.command("bird");
        command.arg("-f").arg("-c").arg(path("bird.conf")).arg("-s").arg(path("bird.ctl")).arg("-P").arg(path("bird.pid"));
        let bird = link.client.spawn(&mut command);
        let site = Self { link, dataplane, servers, directory, bird };
        wait_until("BIRD answers", PATIENCE, || site.birdc("show status").is_some());
        site
    }

    /// The node of this number, 1 or 2, not started yet.
    pub(crate) fn node(&self, host: u8, mode: &str, group: &str) -> Node<'_> {
        let namespace = if host == 1 { &self.link.ours } else { &self.link.theirs };
        namespace.sysctl("net/ipv6/conf/all/forwarding", "1");
        // Nobody is answered for an address of another interface, such as `lo`.
        namespace.sysctl("net/ipv4/conf/all/arp_ignore", "1");
        let node = Node {
            host: namespace,
            dataplane: self.dataplane,
            number: host,
            group: group.to_owned(),
            directory: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(node.path("manifests")).unwrap();
        fs::create_dir(node.path("programs")).unwrap();
        let ports = format!("{{name: tcp, port: {TCP}, protocol: TCP}}, {{name: udp, port: {UDP}, protocol: UDP}}");
        for (family, endpoint) in [("ipv4", "10.97.0.4"), ("ipv6", "2001:db8:97::4")] {
            node.write(family, &(service(family, &ports) + &slice(family, &ports, &[endpoint])));
        }
        node.configure(mode);
        node
    }

    /// Whether a VIP answers to a connection.
    pub(crate) fn asks(&self, vip: IpAddr) -> bool {
        Stage::connect_in(&self.link.client, None, &vip.to_string(), TCP.parse().unwrap()).is_ok()
    }

    /// The VIPs that BIRD has routes to, by way of whichever node.
    pub(crate) fn learned(&self) -> Vec<IpAddr> {
        let routes = self.birdc("show route where source = RTS_BGP").unwrap();
        let addresses = routes.lines().filter_map(|line| line.split_once('/')).filter_map(|(address, _)| address.parse().ok());
        let mut learned: Vec<IpAddr> = addresses.collect();
        learned.dedup();
        learned
    }

    fn birdc(&self, words: &str) -> Option<String> {
        assert!(self.bird.is_running(), "BIRD has ended:\n{}", self.bird.log());
        let mut command = Command::new("birdc");
        let output = command.arg("-s").arg(self.directory.path().join("bird.ctl")).args(words.split(' ')).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }
}

fn bird() -> String {
    let node = |number: u8| {
        format!(
            "protocol bgp node{number} {{ local 10.97.0.3 as 65000; neighbor 10.97.0.{number} as 65001; direct; hold time 9; connect delay time 1; \
             connect retry time 1; error wait time 0, 1; ipv4 {{ import all; export none; }}; }}\n"
        )
    };
    let kernel = "protocol kernel { merge paths on; ipv4 { import none; export where source = RTS_BGP; }; }\n";
    format!("router id 10.97.0.3;\nlog stderr all;\nprotocol device {{}}\nprotocol direct {{ ipv4; }}\n{kernel}{}{}", node(1), node(2))
}

/// A node with its files.
pub(crate) struct Node<'a> {
    pub(crate) host: &'a Namespace,
    dataplane: &'static str,
    number: u8,
    /// Further keys of its group.
    pub(crate) group: String,
    directory: TempDir,
}

impl Node<'_> {
    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, manifest: &str) {
        fs::write(self.path("unfinished"), manifest).unwrap();
        fs::rename(self.path("unfinished"), self.path(&format!("manifests/{name}.yaml"))).unwrap();
    }

    /// Writes or replaces a file with an object for each of these VIPs.
    pub(crate) fn publish(&self, name: &str, vips: &[IpAddr]) {
        let object = |(number, vip): (usize, &IpAddr)| {
            let family = if vip.is_ipv4() { "ipv4" } else { "ipv6" };
            let mappings = [(TCP, TCP, "protocol: tcp, algo: rr"), (UDP, UDP, "protocol: udp, algo: rr")];
            eric(&format!("{name}-{number}"), &vip.to_string(), family, &mappings)
        };
        self.write(name, &vips.iter().enumerate().map(object).collect::<String>());
    }

    /// Takes the objects of such a file away.
    pub(crate) fn unpublish(&self, name: &str) {
        fs::remove_file(self.path(&format!("manifests/{name}.yaml"))).unwrap();
    }

    /// Writes the configuration with this mode.
    pub(crate) fn configure(&self, mode: &str) {
        let text = format!(
            "node: {{name: node-{}}}\nmode: {mode}\nbgp: {{asn: 65001, peers: [{{name: tor, address: 10.97.0.3, asn: 65000, timers: {{hold: 9s, connectRetry: 1s}}}}]}}\n\
             dataplane: {{type: {}}}\ndrain: {{fabricDelay: 200ms, timeout: 5s}}\nstateDir: {}\nhttp: {{address: '127.0.0.1:0'}}\n\
             log: {{level: 'info,vipherald=debug', format: text}}\nvrrp:\n  groups:\n  - {{name: vips, interface: eth0, virtualRouterId: 106, \
             vips: [0.0.0.0/0, '::/0'], advertisementInterval: 100ms, {}}}\n",
            self.number,
            self.dataplane,
            self.path("state"),
            self.group
        );
        fs::write(self.path("new.yaml"), text).unwrap();
        fs::rename(self.path("new.yaml"), self.path("config.yaml")).unwrap();
    }

    /// The same while it runs.
    pub(crate) fn switch(&self, running: &Process, mode: &str) {
        self.configure(mode);
        running.signal(Signal::SIGHUP);
    }

    /// Whatever its daemon asks of `nft` fails from now on, or no more.
    pub(crate) fn break_nft(&self, is_broken: bool) {
        let program = self.path("programs/nft");
        if is_broken {
            let unfinished = self.path("unfinished");
            fs::write(&unfinished, "#!/bin/sh\necho broken >&2\nexit 1\n").unwrap();
            fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o755)).unwrap();
            fs::rename(&unfinished, program).unwrap();
        } else {
            fs::remove_file(program).unwrap();
        }
    }

    pub(crate) fn run(&self) -> Process {
        let mut command = self.host.command(env!("CARGO_BIN_EXE_vipherald"));
        command.env("PATH", format!("{}:{}", self.path("programs"), std::env::var("PATH").unwrap()));
        command.args(["run", "--config", &self.path("config.yaml"), "--manifests", &self.path("manifests")]);
        self.host.spawn(&mut command)
    }

    /// What `vipherald show` says of this, while the daemon answers.
    pub(crate) fn shown(&self, noun: &str) -> Option<Value> {
        let mut command = self.host.command(env!("CARGO_BIN_EXE_vipherald"));
        let output = command.args(["show", noun, "-o", "json", "--socket", &self.path("state/admin.sock")]).output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// What it says of a VIP.
    pub(crate) fn vip(&self, vip: IpAddr) -> Option<Value> {
        let shown = self.shown("vips")?;
        shown["vips"].as_array()?.iter().find(|shown| shown["address"] == vip.to_string()).cloned()
    }
}

/// Questions to a VIP, by UDP, one after another from a port of its own each.
pub(crate) struct Probes {
    over: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    thread: Option<JoinHandle<Vec<String>>>,
}

impl Probes {
    pub(crate) fn start(client: &Namespace, vip: IpAddr) -> Self {
        let (over, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (until, count, name) = (Arc::clone(&over), Arc::clone(&asked), client.name().to_owned());
        let thread = thread::spawn(move || inside(&name, || ask(vip, &until, &count)));
        let probes = Self { over, asked, thread: Some(thread) };
        probes.go_on();
        probes
    }

    /// Waits until so many more were asked that a change would have shown.
    pub(crate) fn go_on(&self) {
        let before = self.asked.load(Ordering::Relaxed);
        wait_until("questions go on", PATIENCE, || self.asked.load(Ordering::Relaxed) >= before + 20);
    }

    /// Ends them; those that were not answered.
    pub(crate) fn lost(mut self) -> (u64, Vec<String>) {
        self.over.store(true, Ordering::Relaxed);
        let lost = self.thread.take().unwrap().join().unwrap();
        (self.asked.load(Ordering::Relaxed), lost)
    }
}

fn ask(vip: IpAddr, over: &AtomicBool, asked: &AtomicU64) -> Vec<String> {
    let (began, mut lost) = (Instant::now(), Vec::new());
    while !over.load(Ordering::Relaxed) {
        let at = began.elapsed();
        if let Err(error) = ask_once(SocketAddr::new(vip, UDP.parse().unwrap())) {
            lost.push(format!("after {at:?}: {error}"));
        }
        asked.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(1));
    }
    lost
}

fn ask_once(vip: SocketAddr) -> std::io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(vip)?;
    socket.set_read_timeout(Some(LOST))?;
    socket.send(b"?")?;
    socket.recv(&mut [0; 8]).map(drop)
}
