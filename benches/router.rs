// SPDX-License-Identifier: Apache-2.0
//! Routers to measure: their configuration, their processes, and what these use.
//!
//! Input: a namespace, and neighbours or a whole configuration. Output: a running router. Logs are as quiet as each allows. It ends with its value.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::PATIENCE;
use crate::common::{Namespace, Process, run, wait_until};

/// Whose speaker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Software {
    Vipherald,
    Bird,
    Frr,
    GoBgp,
    OpenBgpd,
}

/// A neighbour, which dials the router. One in the AS of the router is a client of its reflection.
pub(crate) struct Neighbour {
    pub(crate) address: Ipv4Addr,
    pub(crate) asn: u32,
    /// It is told several paths.
    pub(crate) add_path: bool,
}

/// A router and its processes.
pub(crate) struct Router {
    directory: TempDir,
    processes: Vec<Process>,
    /// The control socket of a BIRD.
    monitor: Option<Mutex<Monitor>>,
}

impl Router {
    /// This speaker (`speaker.rs`, which is built beside this program), with these arguments.
    pub(crate) fn ourselves(namespace: &Namespace, arguments: &[&str]) -> Self {
        let program = std::env::current_exe().unwrap().with_file_name("speaker");
        let mut command = namespace.command(program.to_str().unwrap());
        Self::of(command.args(arguments))
    }

    /// Whatever this command starts.
    pub(crate) fn of(command: &mut Command) -> Self {
        Self { directory: TempDir::new().unwrap(), processes: vec![Process::start(command)], monitor: None }
    }

    /// One with these neighbours and nothing of its own; it listens when this returns.
    pub(crate) fn with_neighbours(
        software: Software,
        namespace: &Namespace,
        address: Ipv4Addr,
        asn: u32,
        neighbours: &[Neighbour],
    ) -> Self {
        let text = match software {
            Software::Bird => bird(address, asn, neighbours),
            Software::Frr => frr(address, asn, neighbours),
            Software::GoBgp => gobgp(address, asn, neighbours),
            Software::OpenBgpd => openbgpd(address, asn, neighbours),
            Software::Vipherald => unreachable!("it is started in another way"),
        };
        let router = Self::start(software, namespace, &text);
        wait_until(&format!("{software:?} listens"), PATIENCE, || !namespace.output(&["ss", "-Hltn", "sport = :179"]).is_empty());
        router
    }

    /// One with this configuration.
    pub(crate) fn start(software: Software, namespace: &Namespace, configuration: &str) -> Self {
        let directory = TempDir::new().unwrap();
        // FRR's daemons give up root before they make their sockets.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut router = Self { directory, processes: Vec::new(), monitor: None };
        let file = router.path("conf");
        fs::write(&file, configuration).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        match software {
            Software::Bird => {
                let mut command = namespace.command("bird");
                command.arg("-f").arg("-c").arg(file).arg("-s").arg(router.control()).arg("-P").arg(router.path("pid"));
                router.processes.push(Process::start(&mut command));
                wait_until("BIRD answers", PATIENCE, || UnixStream::connect(router.control()).is_ok());
                router.monitor = Some(Mutex::new(Monitor::connect(&router.control())));
            }
            Software::Frr => router.start_frr(namespace),
            Software::GoBgp => {
                let mut command = namespace.command("gobgpd");
                command.arg("-f").arg(file).args(["-l", "error", "--pprof-disable", "--api-hosts", "127.0.0.1:50051"]);
                router.processes.push(Process::start(&mut command));
            }
            Software::OpenBgpd => {
                let mut command =
                    with_mounts(namespace, "mount -t tmpfs -o mode=755 none /run && mkdir -m 755 /run/openbgpd", "/usr/sbin/bgpd");
                router.processes.push(Process::start(command.arg("-d").arg("-f").arg(file)));
            }
            Software::Vipherald => unreachable!("it is started in another way"),
        }
        router
    }

    fn start_frr(&mut self, namespace: &Namespace) {
        fs::write(self.path("zebra.conf"), "").unwrap();
        run(Command::new("chown").arg("-R").arg("frr:frrvty").arg(self.directory.path()));
        let daemon = |name: &str, file: PathBuf, more: &[&str]| {
            // Its buffers of log lines would outlive it.
            let mut command = with_mounts(namespace, "mount -t tmpfs -o mode=1777 none /var/tmp", &format!("/usr/lib/frr/{name}"));
            command.arg("-f").arg(file).arg("-i").arg(self.path(&format!("{name}.pid")));
            command.arg("-z").arg(self.path("zserv.api")).arg("--vty_socket").arg(self.directory.path());
            Process::start(command.args(["-u", "frr", "-g", "frr", "-P", "0", "--log", "stdout", "--log-level", "errors"]).args(more))
        };
        let zebra = daemon("zebra", self.path("zebra.conf"), &[]);
        wait_until("zebra has its socket", PATIENCE, || self.path("zserv.api").exists());
        // Routes are not installed in the kernel.
        self.processes = vec![daemon("bgpd", self.path("conf"), &["-n"]), zebra];
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The control socket of a BIRD.
    pub(crate) fn control(&self) -> PathBuf {
        self.path("ctl")
    }

    /// A BIRD with nothing else to do leaves its last octets for up to three seconds; a question moves it on.
    pub(crate) fn poke(&self) {
        if let Some(monitor) = &self.monitor {
            monitor.lock().unwrap().ask("show status");
        }
    }

    /// Waits until it has nothing to do.
    pub(crate) fn settle(&self) {
        const LOOK: Duration = Duration::from_millis(300);
        let deadline = Instant::now() + PATIENCE;
        let mut used = self.processor_time();
        loop {
            self.poke();
            thread::sleep(LOOK);
            let now = self.processor_time();
            if now.saturating_sub(used) < LOOK / 100 {
                return;
            }
            assert!(Instant::now() < deadline, "it does not come to rest");
            used = now;
        }
    }

    /// CPU time of all threads of all processes.
    pub(crate) fn processor_time(&self) -> Duration {
        let threads = self.all().into_iter().flat_map(|id| entries(&format!("/proc/{id}/task")));
        let nanoseconds = threads.filter_map(|thread| {
            let text = fs::read_to_string(thread.join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(nanoseconds.sum())
    }

    /// What is in memory now.
    pub(crate) fn resident_kib(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// What was in memory at the most.
    pub(crate) fn peak_kib(&self) -> u64 {
        self.status("VmHWM:")
    }

    /// What of it is heap and stacks, not pages of program files, which the page cache can take back and others share.
    pub(crate) fn anonymous_kib(&self) -> u64 {
        self.status("RssAnon:")
    }

    fn status(&self, field: &str) -> u64 {
        let of = |id: &i32| {
            let text = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
            text.lines().find_map(|line| line.strip_prefix(field)?.split_whitespace().next()?.parse::<u64>().ok())
        };
        self.all().iter().filter_map(of).sum()
    }

    /// Its processes and their children.
    fn all(&self) -> BTreeSet<i32> {
        let mut all = BTreeSet::new();
        let mut next: Vec<i32> = self.processes.iter().map(|process| process.id().as_raw()).collect();
        while let Some(id) = next.pop() {
            all.insert(id);
            for thread in entries(&format!("/proc/{id}/task")) {
                let children = fs::read_to_string(thread.join("children")).unwrap_or_default();
                next.extend(children.split_whitespace().filter_map(|id| id.parse::<i32>().ok()));
            }
        }
        all
    }
}

fn entries(directory: &str) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// A program with mounts that only it sees: `ip netns exec` gives each command a mount namespace.
fn with_mounts(namespace: &Namespace, mounts: &str, program: &str) -> Command {
    let mut command = namespace.command("sh");
    command.arg("-c").arg(format!("{mounts} && exec \"$0\" \"$@\"")).arg(program);
    command
}

fn bird(address: Ipv4Addr, asn: u32, neighbours: &[Neighbour]) -> String {
    let mut text = format!("router id {address};\nprotocol device {{}}\n");
    for Neighbour { address: peer, asn: peer_asn, add_path } in neighbours {
        let name = peer.to_string().replace('.', "_");
        let client = if *peer_asn == asn { "rr client;" } else { "" };
        let paths = if *add_path { "add paths tx;" } else { "" };
        text += &format!(
            "protocol bgp peer_{name} {{ local {address} as {asn}; neighbor {peer} as {peer_asn}; passive; direct; {client} \
             ipv4 {{ import all; export where source = RTS_BGP; {paths} }}; }}\n"
        );
    }
    text
}

fn frr(address: Ipv4Addr, asn: u32, neighbours: &[Neighbour]) -> String {
    let mut text = format!("router bgp {asn}\n bgp router-id {address}\n no bgp ebgp-requires-policy\n coalesce-time 10\n");
    for Neighbour { address: peer, asn: peer_asn, add_path } in neighbours {
        text += &format!(" neighbor {peer} remote-as {peer_asn}\n neighbor {peer} passive\n neighbor {peer} advertisement-interval 0\n");
        if *peer_asn == asn {
            text += &format!(" neighbor {peer} route-reflector-client\n");
        }
        if *add_path {
            text += &format!(" neighbor {peer} addpath-tx-all-paths\n");
        }
    }
    text
}

fn gobgp(address: Ipv4Addr, asn: u32, neighbours: &[Neighbour]) -> String {
    let mut text = format!("[global.config]\nas = {asn}\nrouter-id = \"{address}\"\n");
    for Neighbour { address: peer, asn: peer_asn, add_path } in neighbours {
        text += &format!(
            "[[neighbors]]\n[neighbors.config]\nneighbor-address = \"{peer}\"\npeer-as = {peer_asn}\n[neighbors.transport.config]\npassive-mode = true\n"
        );
        if *peer_asn == asn {
            text +=
                &format!("[neighbors.route-reflector.config]\nroute-reflector-client = true\nroute-reflector-cluster-id = \"{address}\"\n");
        }
        text += "[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = \"ipv4-unicast\"\n";
        if *add_path {
            text += "[neighbors.afi-safis.add-paths.config]\nsend-max = 8\n";
        }
    }
    text
}

fn openbgpd(address: Ipv4Addr, asn: u32, neighbours: &[Neighbour]) -> String {
    let mut text = format!("AS {asn}\nrouter-id {address}\nfib-update no\nallow from any\nallow to any\n");
    for Neighbour { address: peer, asn: peer_asn, add_path } in neighbours {
        let client = if *peer_asn == asn { "route-reflector\n" } else { "" };
        let paths = if *add_path { "announce add-path send all\n" } else { "" };
        text += &format!("neighbor {peer} {{\nremote-as {peer_asn}\npassive\nannounce IPv4 unicast\n{client}{paths}}}\n");
    }
    text
}

/// The control socket of a BIRD.
pub(crate) struct Monitor(BufReader<UnixStream>);

impl Monitor {
    pub(crate) fn connect(path: &Path) -> Self {
        let mut monitor = Self(BufReader::new(UnixStream::connect(path).unwrap()));
        monitor.answer();
        monitor
    }

    fn ask(&mut self, words: &str) -> String {
        self.0.get_mut().write_all(format!("{words}\n").as_bytes()).unwrap();
        self.answer()
    }

    /// Lines up to one with a code and a space.
    fn answer(&mut self) -> String {
        let mut text = String::new();
        loop {
            let start = text.len();
            assert!(self.0.read_line(&mut text).unwrap() > 0, "BIRD has closed its socket");
            let line = &text.as_bytes()[start..];
            if line.len() > 4 && line[..4].iter().all(u8::is_ascii_digit) && line[4] == b' ' {
                return text;
            }
        }
    }

    /// How many routes came over the session `peer`; `None` while it is not up.
    pub(crate) fn routes(&mut self) -> Option<u32> {
        let text = self.ask("show protocols all peer");
        let imported = text.lines().find_map(|line| line.trim().strip_prefix("Routes:")?.split_whitespace().next()?.parse().ok());
        text.contains("Established").then(|| imported.unwrap_or_default())
    }
}
