// SPDX-License-Identifier: Apache-2.0
//! The daemon as a router, and traffic through it: a client, a router with the daemon, and a host with all real servers.
//!
//! Input: manifests and the `dataplane` section. Output: what the kernel holds, and what a client gets for an answer: address and port of the real
//! server, and the address that this one saw. It needs a kernel with what the dataplane needs.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use crate::common::{Namespace, Process, wait_until};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const VIP: &str = "10.232.35.199";
pub(crate) const ROUTER: &str = "192.168.0.1";

/// A client of [`VIP`] that goes on with one socket.
pub(crate) struct UdpClient(UdpSocket);

impl UdpClient {
    /// Who answers a datagram to this port, as `ADDRESS:PORT`.
    pub(crate) fn ask(&self, port: u16) -> Option<String> {
        let mut answer = [0; 64];
        self.0.send_to(b"?", (VIP, port)).unwrap();
        self.0.recv(&mut answer).ok().map(|length| String::from_utf8_lossy(&answer[..length]).into_owned())
    }
}

/// Client, router and real servers.
pub(crate) struct Stage {
    pub(crate) client: Namespace,
    pub(crate) router: Namespace,
    pub(crate) servers: Namespace,
    pub(crate) files: TempDir,
    pub(crate) daemon: Option<Process>,
    /// More keys of the section `bgp`.
    pub(crate) bgp: &'static str,
    /// `dataplane.type`.
    pub(crate) dataplane: &'static str,
    /// Programs that the daemon finds before those of the same name in its PATH.
    pub(crate) programs: Option<PathBuf>,
    /// The root file system that it has, as a container has one; its own binary is in it.
    pub(crate) root: Option<PathBuf>,
}

/// `sh -c IN_ROOT sh ROOT FILES PROGRAM ...`: the program in that root, which it cannot write to, with those files at their place and what a container runtime mounts.
const IN_ROOT: &str = r#"
set -e
root=$1 files=$2
shift 2
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount --rbind /proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs none "$root/tmp"
mount -t tmpfs none "$root/run"
mkdir -p "$root$files"
mount --bind "$files" "$root$files"
exec chroot "$root" "$@"
"#;

impl Stage {
    /// With IPVS.
    pub(crate) fn new(tag: &str, servers: &[&str]) -> Self {
        Self::with("ipvs", tag, servers)
    }

    /// With this dataplane.
    pub(crate) fn with(dataplane: &'static str, tag: &str, servers: &[&str]) -> Self {
        let [client, router, hosts] = ["client", "router", "servers"].map(|name| Namespace::new(&format!("{tag}-{name}")));
        client.veth("eth0", &router, "front");
        hosts.veth("eth0", &router, "back");
        client.ip("addr add 10.99.0.2/24 dev eth0");
        client.ip("addr add 2001:db8:99::2/64 dev eth0");
        router.ip("addr add 10.99.0.1/24 dev front");
        router.ip("addr add 2001:db8:99::1/64 dev front");
        client.ip("route add default via 10.99.0.1");
        client.ip("-6 route add default via 2001:db8:99::1");
        router.ip(&format!("addr add {ROUTER}/16 dev back"));
        router.ip("addr add 2001:db8:1::1/64 dev back");
        router.sysctl("net/ipv6/conf/all/forwarding", "1");
        for server in servers {
            let length = if server.contains(':') { 64 } else { 16 };
            hosts.ip(&format!("addr add {server}/{length} dev eth0"));
        }
        let files = tempfile::tempdir().unwrap();
        Self { client, router, servers: hosts, files, daemon: None, bgp: "", dataplane, programs: None, root: None }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Writes or replaces a manifest file.
    pub(crate) fn publish(&self, name: &str, manifest: &str) {
        self.publish_for("vipherald", name, manifest);
    }

    /// As [`Self::publish`], for one of several instances.
    pub(crate) fn publish_for(&self, instance: &str, name: &str, manifest: &str) {
        let unfinished = self.path("unfinished");
        fs::write(&unfinished, manifest).unwrap();
        fs::rename(unfinished, self.manifests(instance).join(format!("{name}.yaml"))).unwrap();
    }

    fn manifests(&self, instance: &str) -> PathBuf {
        let directory = self.path(&format!("manifests-{instance}"));
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    /// Starts the daemon with the stage's dataplane, and more keys of that section.
    pub(crate) fn start(&mut self, dataplane: &str) {
        self.start_with(&format!("type: {}{dataplane}", self.dataplane));
    }

    /// As [`Self::start`], with all keys of the section.
    pub(crate) fn start_with(&mut self, dataplane: &str) {
        self.daemon = Some(self.start_instance("vipherald", dataplane));
    }

    /// Starts one more daemon, which reads the manifests of [`Self::publish_for`] and of no other.
    pub(crate) fn start_instance(&self, instance: &str, dataplane: &str) -> Process {
        let file = self.configure(instance, dataplane);
        let mut command = match &self.root {
            Some(root) => {
                let mut command = self.router.command("unshare");
                command
                    .args(["--mount", "sh", "-c", IN_ROOT, "sh"])
                    .args([root, self.files.path()])
                    .arg("vipherald")
                    .env("PATH", "/usr/sbin:/usr/bin");
                command
            }
            None => self.router.command(env!("CARGO_BIN_EXE_vipherald")),
        };
        command.args(["run", "--config"]).arg(file).arg("--manifests").arg(self.manifests(instance));
        if let Some(programs) = &self.programs {
            command.env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap()));
        }
        self.router.spawn(&mut command)
    }

    /// Another dataplane from now on, with more keys of that section.
    pub(crate) fn change_dataplane(&self, kind: &str, more: &str) {
        self.configure("vipherald", &format!("type: {kind}{more}"));
    }

    /// Writes or replaces the configuration of an instance.
    pub(crate) fn configure(&self, instance: &str, dataplane: &str) -> PathBuf {
        let state = if instance == "vipherald" { "state".to_owned() } else { format!("state-{instance}") };
        let configuration = format!(
            "instance: {instance}\nnode: {{name: node-1}}\nbgp: {{asn: 65001{}}}\ndataplane: {{{dataplane}}}\ndrain: {{fabricDelay: 100ms, timeout: 5s}}\n\
             stateDir: {}\nhttp: {{address: \"127.0.0.1:0\"}}\nlog: {{level: \"info,vipherald=debug\", format: text}}\n",
            self.bgp,
            self.path(&state).display()
        );
        let file = self.path(&format!("{instance}.yaml"));
        let unfinished = self.path("unfinished");
        fs::write(&unfinished, configuration).unwrap();
        fs::rename(unfinished, &file).unwrap();
        file
    }

    /// `ipvsadm -Ln` without its three header lines.
    pub(crate) fn table(&self) -> String {
        let table = self.router.output(&["ipvsadm", "-Ln"]);
        table.lines().skip(3).map(|line| format!("{}\n", line.trim_end())).collect()
    }

    pub(crate) fn wait_for_table(&self, expected: &str) {
        let expected: String = expected.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        wait_until(&format!("the table is\n{expected}"), PATIENCE, || self.table() == expected);
    }

    pub(crate) fn wait_for_vip(&self, vip: &str, is_there: bool) {
        let shown = || self.router.ip("-o addr show dev lo").contains(&format!(" {vip}/"));
        wait_until(&format!("{vip} on lo: {is_there}"), PATIENCE, || shown() == is_there);
    }

    /// What it says of its VIPs.
    pub(crate) fn said(&self) -> String {
        self.show("vips -o wide")
    }

    /// What it shows of this.
    pub(crate) fn show(&self, words: &str) -> String {
        String::from_utf8(self.asked(words).stdout).unwrap()
    }

    /// What it says beside that.
    pub(crate) fn said_aside(&self, words: &str) -> String {
        String::from_utf8(self.asked(words).stderr).unwrap()
    }

    fn asked(&self, words: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vipherald"));
        command.arg("show").args(words.split(' ')).arg("--socket").arg(self.path("state").join("admin.sock"));
        command.output().unwrap()
    }

    /// What `show ipvs` prints must be what `ipvsadm -Ln` prints, and owners; these are returned, each behind its line.
    pub(crate) fn owners(&self) -> Vec<String> {
        let (ours, theirs) = (self.show("ipvs"), self.router.output(&["ipvsadm", "-Ln"]));
        assert_eq!(ours.lines().count(), theirs.lines().count(), "{ours}\n{theirs}");
        let owner = |(ours, theirs): (&str, &str)| {
            let more = ours.strip_prefix(theirs).unwrap_or_else(|| panic!("{ours:?} does not begin with {theirs:?}"));
            format!("{}: {}", theirs.trim(), more.trim())
        };
        ours.lines().zip(theirs.lines()).skip(3).map(owner).collect()
    }

    /// SIGTERM, and a clean end.
    pub(crate) fn drain(&mut self) {
        self.drain_beside("");
    }

    /// As [`Self::drain`], where others have this in IPVS.
    pub(crate) fn drain_beside(&mut self, theirs: &str) {
        let daemon = self.daemon.take().unwrap();
        daemon.signal(Signal::SIGTERM);
        assert!(daemon.wait(PATIENCE).success());
        if self.dataplane == "ipvs" {
            assert_eq!(self.table(), theirs);
        }
        assert_eq!(self.router.output(&["nft", "list", "tables"]), "");
    }

    /// Answers each TCP connection to this port with who answers and who asked.
    pub(crate) fn answer_tcp(&self, port: u16) {
        Self::answer_tcp_in(&self.servers, port);
    }

    /// As [`Self::answer_tcp`], on another host.
    pub(crate) fn answer_tcp_in(host: &Namespace, port: u16) {
        let listen = || TcpListener::bind(SocketAddr::new("::".parse().unwrap(), port)).unwrap();
        let listener = host.run(listen);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let words = format!("{} {}\n", plain(stream.local_addr().unwrap()), plain(stream.peer_addr().unwrap()).ip());
                thread::spawn(move || {
                    stream.write_all(words.as_bytes()).ok();
                    // Until the client has had enough.
                    let mut octets = [0; 64];
                    while let Ok(1..) = stream.read(&mut octets) {
                        stream.write_all(b"more\n").ok();
                    }
                });
            }
        });
    }

    /// Answers each datagram to this address and port with who answers.
    pub(crate) fn answer_udp(&self, address: &str, port: u16) {
        let address = SocketAddr::new(address.parse().unwrap(), port);
        let socket = self.servers.run(|| UdpSocket::bind(address).unwrap());
        thread::spawn(move || {
            let mut octets = [0; 64];
            while let Ok((_, client)) = socket.recv_from(&mut octets) {
                socket.send_to(address.to_string().as_bytes(), client).ok();
            }
        });
    }

    /// One that waits so long for an answer.
    pub(crate) fn udp_client(&self, patience: Duration) -> UdpClient {
        let socket = self.client.run(|| UdpSocket::bind("0.0.0.0:0").unwrap());
        socket.set_read_timeout(Some(patience)).unwrap();
        UdpClient(socket)
    }

    pub(crate) fn connect(&self, vip: &str, port: u16) -> std::io::Result<Connection> {
        Self::connect_in(&self.client, None, vip, port)
    }

    /// From this port of the client.
    pub(crate) fn connect_from(&self, source: u16, vip: &str, port: u16) -> std::io::Result<Connection> {
        Self::connect_at(&self.client, SocketAddr::new([0; 4].into(), source), vip, port)
    }

    /// From this address, or any, of this host.
    pub(crate) fn connect_in(host: &Namespace, from: Option<&str>, vip: &str, port: u16) -> std::io::Result<Connection> {
        let any = if vip.contains(':') { "::" } else { "0.0.0.0" };
        Self::connect_at(host, SocketAddr::new(from.unwrap_or(any).parse().unwrap(), 0), vip, port)
    }

    fn connect_at(host: &Namespace, from: SocketAddr, vip: &str, port: u16) -> std::io::Result<Connection> {
        let vip = SocketAddr::new(vip.parse::<IpAddr>().unwrap(), port);
        host.run(|| {
            let socket = Socket::new(Domain::for_address(vip), Type::STREAM, None)?;
            socket.bind(&from.into())?;
            socket.connect_timeout(&vip.into(), Duration::from_secs(2))?;
            let stream = TcpStream::from(socket);
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            let mut connection = Connection { stream, server: String::new(), client: String::new() };
            let line = connection.line()?;
            let (server, client) = line.split_once(' ').unwrap();
            (connection.server, connection.client) = (server.to_owned(), client.to_owned());
            Ok(connection)
        })
    }

    /// How many of so many connections each real server gets.
    pub(crate) fn spread(&self, vip: &str, port: u16, connections: usize) -> BTreeMap<String, usize> {
        let mut spread = BTreeMap::new();
        for _ in 0..connections {
            *spread.entry(self.connect(vip, port).unwrap().server).or_default() += 1;
        }
        spread
    }
}

/// A connection that is open, and what the real server said.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    pub(crate) server: String,
    pub(crate) client: String,
}

impl Connection {
    pub(crate) fn line(&mut self) -> std::io::Result<String> {
        let (mut line, mut octet) = (Vec::new(), [0]);
        loop {
            self.stream.read_exact(&mut octet)?;
            if octet == *b"\n" {
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            line.extend(octet);
        }
    }

    /// Whether it still carries a question and its answer.
    pub(crate) fn works(&mut self) -> bool {
        self.stream.write_all(b"?").is_ok() && self.line().is_ok()
    }
}

fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

pub(crate) fn service(name: &str, ports: &str) -> String {
    format!("---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{clusterIP: None, ports: [{ports}]}}\n")
}

pub(crate) fn slice(service: &str, ports: &str, endpoints: &[&str]) -> String {
    let family = if endpoints.iter().any(|endpoint| endpoint.split(' ').next().is_some_and(|address| address.contains(':'))) {
        "IPv6"
    } else {
        "IPv4"
    };
    let endpoints: Vec<String> = endpoints
        .iter()
        .map(|endpoint| match endpoint.split_once(' ') {
            Some((address, conditions)) => format!("{{addresses: [\"{address}\"], conditions: {{{conditions}}}}}"),
            None => format!("{{addresses: [\"{endpoint}\"]}}"),
        })
        .collect();
    format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {service}-{}, labels: {{kubernetes.io/service-name: \
         {service}}}}}\naddressType: {family}\nports: [{ports}]\nendpoints: [{}]\n",
        family.to_lowercase(),
        endpoints.join(", ")
    )
}

/// One mapping: ports of the VIP, ports of the Service, and the rest.
pub(crate) fn eric(name: &str, vip: &str, service: &str, mappings: &[(&str, &str, &str)]) -> String {
    let range = |text: &str| {
        let (start, end) = text.split_once('-').unwrap_or((text, text));
        format!("{{start: {start}, end: {end}}}")
    };
    let mapping = |(vip, service, more): &(&str, &str, &str)| {
        format!("      - {{portRange: {{vipPortRange: {}, svcPortRange: {}}}, {more}}}\n", range(vip), range(service))
    };
    format!(
        "---\napiVersion: routing.ericingress.ericsson.com/v1alpha1\nkind: EricIngress\nmetadata: {{name: {name}}}\nspec:\n  virtualServiceIP: \
         \"{vip}\"\n  backends:\n    name: {service}\n    config:\n{}",
        mappings.iter().map(mapping).collect::<String>()
    )
}
