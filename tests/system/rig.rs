// SPDX-License-Identifier: Apache-2.0
//! The stage of the system tests: a namespace with the real daemon, and BIRD as its ToR in another.
//!
//! Input: what the node's files say. Output: what the node carries, what the ToR learned, and what happened meanwhile. Invariants: everything is asked from
//! outside: the kernel, BIRD, and the binary itself; at the end the machine's own addresses are what they were.

use std::collections::BTreeSet;
use std::fmt::{Debug, Write as _};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{Namespace, Process, machine_addresses, wait_until};
use crate::tor::Tor;

/// How long anything may take, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// One node, and its ToR.
pub(crate) struct Rig {
    pub(crate) daemon: Daemon,
    pub(crate) tor: Tor,
    pub(crate) node: Namespace,
    machine: Vec<String>,
}

impl Rig {
    /// Link and ToR are up; the daemon has its files and does not run yet.
    pub(crate) fn new(tag: &str) -> Self {
        let machine = machine_addresses();
        let node = Namespace::new(&format!("{tag}-node"));
        let tor = Tor::new(tag, &node, 0);
        Self { daemon: Daemon::new(Settings::default()), tor, node, machine }
    }

    /// As [`Rig::new`], with these VIPs served and announced.
    pub(crate) fn serving(tag: &str, settings: Settings, vips: &BTreeSet<IpAddr>) -> Self {
        let rig = Self::running(tag, settings, vips);
        rig.wait_until_exact(vips);
        rig
    }

    /// As [`Rig::new`], with the daemon on its way to serve these VIPs.
    pub(crate) fn running(tag: &str, settings: Settings, vips: &BTreeSet<IpAddr>) -> Self {
        let mut rig = Self::new(tag);
        rig.daemon = Daemon::new(settings);
        rig.daemon.publish(vips);
        rig.daemon.start(&rig.node);
        rig
    }

    /// Waits until the daemon says that it announces these VIPs and no others, and they are on `lo`, in the record, in BIRD and in the ToR's kernel.
    pub(crate) fn wait_until_exact(&self, vips: &BTreeSet<IpAddr>) {
        self.wait_until_exact_beside(vips, &BTreeSet::new());
    }

    /// As [`Self::wait_until_exact`], where `lo` holds addresses of others too, some of them perhaps VIPs.
    pub(crate) fn wait_until_exact_beside(&self, vips: &BTreeSet<IpAddr>, foreign: &BTreeSet<IpAddr>) {
        wait_until_equal("VIPs that are announced, and no others", &Some(vips.clone()), || self.daemon.announced());
        wait_until_equal("addresses on the interface", &(vips | foreign), || addresses(&self.node, &self.daemon.settings.interface));
        wait_until_equal("the record", &Record { placed: vips - foreign, pending: BTreeSet::new() }, || self.record());
        wait_until_equal("routes of BIRD", vips, || self.tor.learned());
        wait_until_equal("routes in the ToR's kernel", vips, || self.tor.kernel_routes());
    }

    /// What both ends say of the session, which must be up.
    pub(crate) fn session(&self) -> Session {
        let peer = self.daemon.peer("tor");
        let notifications = |direction: &str| peer[direction]["notification"].as_u64().unwrap();
        Session {
            since: peer["establishedSince"].as_str().expect("the session is up").to_owned(),
            count: peer["establishedCount"].as_u64().unwrap(),
            count_at_tor: self.tor.sessions(),
            notifications: notifications("received") + notifications("sent"),
        }
    }

    /// What the nft table of the instance says.
    pub(crate) fn record(&self) -> Record {
        record(&self.node, &self.daemon.settings.instance).unwrap_or_default()
    }

    /// Whether the nft table of the instance is there.
    pub(crate) fn has_record(&self) -> bool {
        record(&self.node, &self.daemon.settings.instance).is_some()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !thread::panicking() {
            assert_eq!(machine_addresses(), self.machine, "the machine's own addresses have changed");
        }
    }
}

/// One life of a session: equal as long as it is the same.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Session {
    since: String,
    count: u64,
    count_at_tor: usize,
    notifications: u64,
}

/// Which addresses are ours, as the nft table says.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Record {
    pub(crate) placed: BTreeSet<IpAddr>,
    pub(crate) pending: BTreeSet<IpAddr>,
}

/// The record of an instance; `None` where there is no such table.
pub(crate) fn record(node: &Namespace, instance: &str) -> Option<Record> {
    let listed = node.command("nft").args(["-j", "list", "table", "inet", instance]).output().unwrap();
    if !listed.status.success() {
        let message = String::from_utf8_lossy(&listed.stderr).into_owned();
        assert!(message.contains("No such file or directory"), "{message}");
        return None;
    }
    let json: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let objects = json["nftables"].as_array().unwrap();
    let elements = |set: &str| {
        let set = objects.iter().map(|object| &object["set"]).find(|found| found["name"] == set);
        let elements = set.and_then(|set| set["elem"].as_array()).cloned().unwrap_or_default();
        elements.into_iter().map(|element| element.as_str().unwrap().parse().unwrap()).collect::<BTreeSet<IpAddr>>()
    };
    Some(Record { placed: &elements("placed4") | &elements("placed6"), pending: &elements("pending4") | &elements("pending6") })
}

/// The global addresses of an interface, which are host addresses all.
pub(crate) fn addresses(node: &Namespace, interface: &str) -> BTreeSet<IpAddr> {
    let json: Value = serde_json::from_str(&node.output(&["ip", "-j", "address", "show", "dev", interface])).unwrap();
    let entries = json[0]["addr_info"].as_array().unwrap();
    let global = entries.iter().filter(|entry| entry["scope"] == "global");
    global
        .map(|entry| {
            let address: IpAddr = entry["local"].as_str().unwrap().parse().unwrap();
            assert_eq!(entry["prefixlen"], if address.is_ipv4() { 32 } else { 128 }, "{entry}");
            address
        })
        .collect()
}

/// What the node's configuration says.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) instance: String,
    pub(crate) interface: String,
    /// Names and addresses.
    pub(crate) peers: Vec<(String, IpAddr)>,
    /// Further keys of `bgp`, as lines that begin with two spaces.
    pub(crate) routing: &'static str,
    pub(crate) graceful_shutdown: &'static str,
    pub(crate) fabric_delay: &'static str,
    pub(crate) drain_timeout: &'static str,
    pub(crate) on_termination: &'static str,
    /// Further keys of each peer, each after a comma.
    pub(crate) of_peers: &'static str,
    /// Of each peer; no graceful restart where absent.
    pub(crate) restart_time: Option<&'static str>,
    pub(crate) patience: &'static str,
    pub(crate) without_endpoints: &'static str,
    pub(crate) http_port: u16,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            instance: "vipherald".to_owned(),
            interface: "lo".to_owned(),
            peers: vec![("tor".to_owned(), Ipv4Addr::new(10, 99, 0, 2).into())],
            routing: "",
            graceful_shutdown: "0s",
            fabric_delay: "100ms",
            drain_timeout: "5s",
            on_termination: "auto",
            of_peers: "",
            restart_time: None,
            patience: "5s",
            without_endpoints: "withdraw",
            http_port: 9479,
        }
    }
}

impl Settings {
    fn text(&self, state_dir: &Path) -> String {
        let restart = self.restart_time.map(|time| format!(", gracefulRestart: {{restartTime: {time}}}")).unwrap_or_default();
        let of_peers = self.of_peers;
        let peers: String = self
            .peers
            .iter()
            .map(|(name, address)| {
                format!("    - {{name: {name}, address: \"{address}\", asn: 65001, timers: {{hold: 9s, connectRetry: 1s}}{restart}{of_peers}}}\n")
            })
            .collect();
        format!(
            "instance: {}\nnode: {{name: node-1}}\nvips: {{interface: {}, withoutEndpoints: {}}}\nbgp:\n  asn: 65001\n  peers:{}\n{}\
             drain: {{onTermination: {}, gracefulShutdown: {}, fabricDelay: {}, timeout: {}}}\nstartup: {{patience: {}}}\nstateDir: {}\nhttp: {{address: \"127.0.0.1:{}\"}}\n\
             log: {{level: \"info,vipherald=debug\", format: json}}\n",
            self.instance,
            self.interface,
            self.without_endpoints,
            if peers.is_empty() { " []".to_owned() } else { format!("\n{}", peers.trim_end()) },
            self.routing,
            self.on_termination,
            self.graceful_shutdown,
            self.fabric_delay,
            self.drain_timeout,
            self.patience,
            state_dir.display(),
            self.http_port,
        )
    }
}

/// The daemon: its files, and its process while it runs.
pub(crate) struct Daemon {
    process: Option<Process>,
    pub(crate) settings: Settings,
    state_dir: PathBuf,
    directory: TempDir,
}

impl Daemon {
    /// Its files are written; there is no manifest.
    pub(crate) fn new(settings: Settings) -> Self {
        let directory = TempDir::new().unwrap();
        let state_dir = directory.path().join("state");
        Self::with(settings, state_dir, directory)
    }

    /// As [`Self::new`], with the state directory of another one.
    pub(crate) fn with_state_of(other: &Self, settings: Settings) -> Self {
        Self::with(settings, other.state_dir.clone(), TempDir::new().unwrap())
    }

    fn with(settings: Settings, state_dir: PathBuf, directory: TempDir) -> Self {
        fs::create_dir(directory.path().join("manifests")).unwrap();
        let daemon = Self { process: None, settings, state_dir, directory };
        daemon.write_config();
        daemon
    }

    /// Starts the binary, and does not wait for anything.
    pub(crate) fn start(&mut self, node: &Namespace) {
        self.process = Some(node.spawn(&mut self.command(node)));
    }

    /// As [`Self::start`], with this `nft` in the place of the real one.
    pub(crate) fn start_with_nft(&mut self, node: &Namespace, script: &str) {
        let programs = self.path("programs");
        fs::create_dir(&programs).unwrap();
        fs::write(programs.join("nft"), script).unwrap();
        fs::set_permissions(programs.join("nft"), fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        self.process = Some(node.spawn(self.command(node).env("PATH", path)));
    }

    /// The command that runs it.
    pub(crate) fn command(&self, node: &Namespace) -> Command {
        let mut command = node.command(env!("CARGO_BIN_EXE_vipherald"));
        command.arg("run").arg("--config").arg(self.path("config.yaml")).arg("--manifests").arg(self.manifests());
        command
    }

    pub(crate) fn process(&self) -> &Process {
        self.process.as_ref().expect("it was started")
    }

    /// Ends it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.process.take().expect("it was started").kill();
    }

    pub(crate) fn manifests(&self) -> PathBuf {
        self.path("manifests")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Puts the settings into the configuration file.
    pub(crate) fn write_config(&self) {
        self.replace("config.yaml", &self.settings.text(&self.state_dir));
    }

    /// Replaces a file of the node in one step.
    pub(crate) fn replace(&self, name: &str, text: &str) {
        let path = self.path(name);
        let unfinished = path.with_extension("unfinished");
        fs::write(&unfinished, text).unwrap();
        fs::rename(unfinished, path).unwrap();
    }

    /// Makes these the external addresses of a Service that has endpoints of both families.
    pub(crate) fn publish(&self, vips: &BTreeSet<IpAddr>) {
        self.replace("manifests/vips.yaml", &(service("web", vips) + &endpoints("web")));
    }

    /// Runs `vipherald show NOUN -o json` with this daemon; its output and what it says on standard error.
    pub(crate) fn show(&self, noun: &str) -> (Value, String) {
        let Output { status, stdout, stderr } = self.show_as(noun, "json");
        assert!(status.success(), "show {noun}: {}", String::from_utf8_lossy(&stderr));
        (serde_json::from_slice(&stdout).unwrap(), String::from_utf8(stderr).unwrap())
    }

    /// As [`Self::show`], in any form, successful or not.
    pub(crate) fn show_as(&self, noun: &str, form: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vipherald"));
        command.args(["show", noun, "-o", form, "--socket"]).arg(self.state_dir.join("admin.sock")).output().unwrap()
    }

    /// The VIPs of which it says that they are announced; all its VIPs must be. Nothing where it does not answer, or knows none.
    pub(crate) fn announced(&self) -> Option<BTreeSet<IpAddr>> {
        let output = self.show_as("vips", "json");
        if !output.status.success() {
            return None;
        }
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        let vips = json["vips"].as_array().unwrap();
        let announced = vips.iter().all(|vip| vip["state"] == "Announced");
        announced.then(|| vips.iter().map(|vip| vip["address"].as_str().unwrap().parse().unwrap()).collect())
    }

    /// What it says of one VIP.
    pub(crate) fn vip(&self, vip: IpAddr) -> Value {
        let (json, _) = self.show("vips");
        json["vips"].as_array().unwrap().iter().find(|found| found["address"] == vip.to_string()).cloned().unwrap_or_default()
    }

    /// What it says of one peer.
    pub(crate) fn peer(&self, name: &str) -> Value {
        let (json, _) = self.show("peers");
        json["peers"].as_array().unwrap().iter().find(|peer| peer["name"] == name).cloned().unwrap_or_default()
    }

    /// The messages of its log that contain these words.
    pub(crate) fn logged(&self, words: &str) -> Vec<String> {
        self.process().log().lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
    }
}

/// A Service with these external addresses.
pub(crate) fn service(name: &str, vips: &BTreeSet<IpAddr>) -> String {
    let vips: Vec<String> = vips.iter().map(|vip| format!("\"{vip}\"")).collect();
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec:\n  externalIPs: [{}]\n  ports: [{{name: http, port: 80}}]\n---\n",
        vips.join(", ")
    )
}

/// Endpoints of a Service, of both families.
pub(crate) fn endpoints(name: &str) -> String {
    let mut text = String::new();
    for (family, address) in [("IPv4", "10.233.0.1"), ("IPv6", "2001:db8:233::1")] {
        write!(
            text,
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-{}, labels: {{kubernetes.io/service-name: {name}}}}}\n\
             addressType: {family}\nports: [{{name: http, port: 80}}]\nendpoints: [{{addresses: [\"{address}\"]}}]\n---\n",
            family.to_lowercase()
        )
        .unwrap();
    }
    text
}

/// Waits until what is read is this; else fails and shows the difference.
pub(crate) fn wait_until_equal<T: Debug + PartialEq>(what: &str, expected: &T, mut read: impl FnMut() -> T) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = read();
        if found == *expected {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: expected\n  {expected:?}\nand there are still\n  {found:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn vips<'a>(addresses: impl IntoIterator<Item = &'a str>) -> BTreeSet<IpAddr> {
    addresses.into_iter().map(|address| address.parse().unwrap()).collect()
}

/// `count` VIPs of each family, the same ones each time.
pub(crate) fn many(count: u16) -> Vec<IpAddr> {
    let v4 = (0..count).map(|number| IpAddr::V4(Ipv4Addr::from_bits(0x0A01_0000 + u32::from(number))));
    let v6 = (0..count).map(|number| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, number)));
    v4.chain(v6).collect()
}

/// What happens to addresses or routes of a namespace, as the kernel tells it.
pub(crate) struct Monitor(Process);

/// One event: seconds since 1970, and the words.
pub(crate) type Event = (f64, String);

impl Monitor {
    /// Follows "address" or "route" from now on.
    pub(crate) fn start(namespace: &Namespace, object: &str) -> Self {
        let mut command = namespace.command("ip");
        command.args(["-ts", "-o", "-rcvbuf", "33554432", "monitor", object]).env("TZ", "UTC");
        let monitor = Self(namespace.spawn(&mut command));
        // It follows once an event that we make is told.
        let (words, probe) = match object {
            "address" => ("address add 127.9.9.9/32 dev lo", "127.9.9.9"),
            _ => ("route add blackhole 127.9.9.9/32", "127.9.9.9"),
        };
        wait_until(&format!("ip monitor {object} follows"), PATIENCE, || {
            namespace.ip(words);
            namespace.ip(&words.replace(" add ", " delete "));
            monitor.0.log().contains(probe)
        });
        monitor
    }

    /// All events so far that contain these words.
    pub(crate) fn events(&self, words: &str) -> Vec<Event> {
        let log = self.0.log();
        assert!(!log.contains("netlink receive error"), "events were lost");
        let lines = log.lines().filter(|line| line.contains(words) && !line.contains("127.9.9.9"));
        lines.map(|line| (seconds(line), line.to_owned())).collect()
    }

    /// All removals so far.
    pub(crate) fn removals(&self) -> Vec<Event> {
        self.events("Deleted ")
    }
}

/// The time of a line that begins with `[2026-11-28T01:02:03.000004]`, as seconds of its day.
fn seconds(line: &str) -> f64 {
    let clock = line.split(['T', ']']).nth(1).unwrap();
    clock.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap())
}

/// Now, as [`Monitor`] tells it.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() % 86_400.0
}

/// A sequence of random numbers that its seed repeats (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    /// From the variable VIPHERALD_TEST_SEED, else from the clock; it prints which.
    pub(crate) fn new() -> Self {
        let clock = || u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() % (1 << 32)).unwrap();
        let seed = std::env::var("VIPHERALD_TEST_SEED").map_or_else(|_| clock(), |seed| seed.parse().unwrap());
        println!("VIPHERALD_TEST_SEED={seed}");
        Self(seed)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    /// Each of these with this chance in percent.
    pub(crate) fn subset(&mut self, all: &[IpAddr], percent: u64) -> BTreeSet<IpAddr> {
        all.iter().filter(|_| self.below(100) < percent).copied().collect()
    }

    /// A random moment of the test, not a wait for anything.
    pub(crate) fn pause(&mut self, at_most: Duration) {
        thread::sleep(Duration::from_millis(self.below(u64::try_from(at_most.as_millis()).unwrap() + 1)));
    }
}

/// `GET` of the daemon's HTTP address: status code and body.
pub(crate) fn get(node: &Namespace, port: u16, path: &str) -> Option<(u16, String)> {
    node.run(|| {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    })
}
