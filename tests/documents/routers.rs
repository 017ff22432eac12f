// SPDX-License-Identifier: Apache-2.0
//! The configurations of ToRs that docs/tor-configuration.md shows, in the real programs: two daemons with the example of that page are their router nodes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::ROOT;
use super::common::{Namespace, Process, run, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);
const NODES: [&str; 2] = ["10.211.1.2", "10.211.1.3"];

/// VIPs that the filter lets in, one that it does not, and more than the limit allows.
const SERVED: &str = "10.0.0.7, \"2001:db8:7::7\"";
const OUTSIDE: &str = "10.0.1.7";

#[derive(Clone, Copy)]
enum Program {
    Bird,
    Frr,
}

/// Two router nodes and their ToR on a switch.
struct Rack {
    nodes: Vec<Node>,
    daemons: Vec<Process>,
    _files: TempDir,
    tor: Namespace,
    _switch: Namespace,
}

struct Node {
    daemon: Process,
    files: TempDir,
    namespace: Namespace,
}

impl Rack {
    fn new(program: Program, tag: &str) -> Self {
        let switch = Namespace::new(&format!("{tag}-sw"));
        switch.ip("link add br0 type bridge");
        switch.ip("link set br0 up");
        let host = |name: &str, address: &str| {
            let namespace = Namespace::new(&format!("{tag}-{name}"));
            switch.veth(name, &namespace, "eth1");
            switch.ip(&format!("link set {name} master br0"));
            namespace.ip(&format!("address add {address}/24 dev eth1"));
            namespace.ip(&format!("address add 2001:db8:211:1::{}/64 dev eth1 nodad", address.rsplit('.').next().unwrap()));
            namespace
        };
        let (tor, files) = (host("tor", "10.211.1.254"), TempDir::new().unwrap());
        let daemons = match program {
            Program::Bird => bird(&tor, files.path()),
            Program::Frr => frr(&tor, files.path()),
        };
        let nodes = NODES.iter().zip(["node1", "node2"]).map(|(address, name)| Node::new(host(name, address))).collect();
        Self { nodes, daemons, _files: files, tor, _switch: switch }
    }

    /// The next hops that the ToR's kernel has for a destination.
    fn next_hops(&self, destination: &str) -> Vec<String> {
        let family = if destination.contains(':') { "-6" } else { "-4" };
        let words = self.tor.ip(&format!("{family} route show {destination}"));
        let mut hops: Vec<String> =
            words.split("via ").skip(1).filter_map(|rest| rest.split_whitespace().next()).map(str::to_owned).collect();
        hops.sort();
        hops
    }

    fn log(&self) -> String {
        self.daemons.iter().map(Process::log).collect()
    }
}

impl Node {
    fn new(namespace: Namespace) -> Self {
        let files = TempDir::new().unwrap();
        fs::create_dir(files.path().join("manifests")).unwrap();
        // The page's file, with one more prefix: a slip that the ToR is to catch.
        let example = fs::read_to_string(Path::new(ROOT).join("examples/config/tor.yaml")).unwrap();
        assert!(example.contains("{prefix: 10.0.0.0/24}"), "{example}");
        let text = example.replace("{prefix: 10.0.0.0/24}", "{prefix: 10.0.0.0/24}, {prefix: 10.0.1.0/24}");
        fs::write(files.path().join("config.yaml"), text).unwrap();
        let node = Self { daemon: Self::start(&namespace, files.path()), files, namespace };
        node.publish(&format!("{SERVED}, {OUTSIDE}"));
        node
    }

    fn start(namespace: &Namespace, files: &Path) -> Process {
        let mut command = namespace.command("unshare");
        command.args(["--mount", "sh", "-c", "mount --bind \"$0\" /run && exec \"$@\""]).arg(state(files));
        command
            .args([env!("CARGO_BIN_EXE_vipherald"), "run", "--config"])
            .arg(files.join("config.yaml"))
            .arg("--manifests")
            .arg(files.join("manifests"));
        namespace.spawn(command.env("NODE_NAME", "node"))
    }

    /// One Service with these VIPs.
    fn publish(&self, vips: &str) {
        let slice = |family: &str, address: &str| {
            format!(
                "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web-{}, labels: {{kubernetes.io/service-name: web}}}}\n\
                 addressType: {family}\nports: [{{port: 80}}]\nendpoints: [{{addresses: [\"{address}\"]}}]\n",
                family.to_lowercase()
            )
        };
        let service = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {{clusterIP: 10.96.0.7, externalIPs: [{vips}], ports: [{{port: 80}}]}}\n"
        );
        let text = service + &slice("IPv4", "192.168.1.1") + &slice("IPv6", "2001:db8:168::1");
        fs::write(self.files.path().join("new"), text).unwrap();
        fs::rename(self.files.path().join("new"), self.files.path().join("manifests/web.yaml")).unwrap();
    }

    fn restart(&mut self) {
        self.daemon = Self::start(&self.namespace, self.files.path());
    }
}

/// What the node has for /run: it outlives the daemon.
fn state(files: &Path) -> PathBuf {
    let state = files.join("run");
    fs::create_dir_all(&state).unwrap();
    state
}

fn bird(tor: &Namespace, files: &Path) -> Vec<Process> {
    let mut command = tor.command("bird");
    command.arg("-f").arg("-c").arg(Path::new(ROOT).join("examples/routers/bird.conf"));
    command.arg("-s").arg(files.join("bird.ctl")).arg("-P").arg(files.join("bird.pid"));
    vec![tor.spawn(&mut command)]
}

fn frr(tor: &Namespace, files: &Path) -> Vec<Process> {
    fs::copy(Path::new(ROOT).join("examples/routers/frr.conf"), files.join("bgpd.conf")).unwrap();
    fs::write(files.join("zebra.conf"), "").unwrap();
    // It is read line by line, and what is not understood would only be logged.
    run(Command::new("vtysh").arg("--dryrun").arg("--inputfile").arg(files.join("bgpd.conf")));
    run(Command::new("chown").arg("-R").arg("frr:frrvty").arg(files));
    let daemon = |name: &str| {
        let mut command = tor.command("unshare");
        command
            .args(["--mount", "sh", "-c", "mount -t tmpfs -o mode=1777 none /var/tmp && exec \"$0\" \"$@\""])
            .arg(format!("/usr/lib/frr/{name}"));
        command.arg("-f").arg(files.join(format!("{name}.conf"))).arg("-i").arg(files.join(format!("{name}.pid")));
        command.arg("-z").arg(files.join("zserv.api")).arg("--vty_socket").arg(files);
        command.args(["-u", "frr", "-g", "frr", "-P", "0", "--log", "stdout", "--log-level", "debug"]);
        tor.spawn(&mut command)
    };
    let zebra = daemon("zebra");
    wait_until("zebra has its socket", PATIENCE, || files.join("zserv.api").exists());
    vec![daemon("bgpd"), zebra]
}

/// ECMP over both nodes, the filter, the helper of a node that restarts, and the limit.
fn is_the_tor_of_two_nodes(program: Program, tag: &str) {
    let mut rack = Rack::new(program, tag);
    for vip in ["10.0.0.7", "2001:db8:7::7"] {
        wait_until(&format!("{vip} has two next hops"), PATIENCE, || rack.next_hops(vip).len() == NODES.len());
    }
    assert_eq!(rack.next_hops("10.0.0.7"), NODES);
    assert_eq!(rack.next_hops(OUTSIDE), [""; 0], "it is outside of the filter");

    // RFC 4724: the session goes down, and the routes stay. It is down where its connection is no more.
    let connected = |tor: &Namespace| tor.output(&["ss", "-Htn", "state", "established", "dst", NODES[0]]);
    assert!(!connected(&rack.tor).is_empty());
    rack.nodes[0].daemon.kill();
    wait_until("the session is down", PATIENCE, || connected(&rack.tor).is_empty());
    assert_eq!(rack.next_hops("10.0.0.7"), NODES, "the routes of a node that restarts stay:\n{}", rack.log());
    rack.nodes[0].restart();
    wait_until("the session is up again", PATIENCE, || !connected(&rack.tor).is_empty());

    let many: Vec<String> = (1..=110).map(|host| format!("10.0.0.{host}")).collect();
    rack.nodes[1].publish(&many.join(", "));
    let words = "Maximum Number of Prefixes Reached";
    wait_until("the limit ends the session", PATIENCE, || rack.nodes[1].daemon.log().contains(words));
    assert!(!rack.nodes[0].daemon.log().contains(words));
    assert!(rack.next_hops("10.0.0.7").contains(&NODES[0].to_owned()), "the other node goes on");
}

#[test]
fn the_bird_of_the_page_is_the_tor_of_two_nodes() {
    is_the_tor_of_two_nodes(Program::Bird, "exbird");
}

#[test]
fn the_frr_of_the_page_is_the_tor_of_two_nodes() {
    is_the_tor_of_two_nodes(Program::Frr, "exfrr");
}
