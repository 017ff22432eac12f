// SPDX-License-Identifier: Apache-2.0
//! Real BGP routers for tests: BIRD, FRR, GoBGP and OpenBGPD, by the binaries of Debian's packages.
//!
//! Input: a namespace and the neighbours that the router is to have. Output: a running router of which a test can ask what it learned from each of them.
//! Configuration, sockets, logs and what a router writes to fixed places are private to it; it ends with its value, and nothing of it stays.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bgp::{Family, Prefix};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{Namespace, Process, run, wait_until};

/// How long a router may take to start, on a busy machine.
const START: Duration = Duration::from_secs(30);

/// Which router.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Software {
    /// CZ.NIC's BIRD.
    Bird,
    /// FRRouting's zebra and bgpd.
    Frr,
    /// GoBGP.
    GoBgp,
    /// OpenBSD's bgpd.
    OpenBgpd,
}

/// The configuration of a router: one BGP session, for both families, to each neighbour.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Its AS.
    pub(crate) asn: u32,
    /// Its BGP Identifier.
    pub(crate) router_id: Ipv4Addr,
    /// The AS that it expects its neighbours in.
    pub(crate) neighbour_asn: u32,
    /// The neighbours.
    pub(crate) neighbours: Vec<IpAddr>,
    /// The TCP-MD5 key that it demands (RFC 2385).
    pub(crate) password: Option<&'static str>,
    /// It drops packets of neighbours that are more than so many hops away (RFC 5082).
    pub(crate) ttl_security: Option<u8>,
    /// What it announces to its neighbours; BIRD and FRR only.
    pub(crate) announced: Vec<Prefix>,
    /// It takes several paths to one destination (RFC 7911); BIRD only.
    pub(crate) add_paths: bool,
}

impl Setup {
    fn configuration(&self, software: Software) -> String {
        match software {
            Software::Bird => bird::configuration(self),
            Software::Frr => frr::configuration(self),
            Software::GoBgp => gobgp::configuration(self),
            Software::OpenBgpd => openbgpd::configuration(self),
        }
    }
}

/// What a router learned of one destination from one neighbour.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Learned {
    /// The global next hop.
    pub(crate) next_hop: IpAddr,
    /// AS_PATH, which is one sequence or empty.
    pub(crate) as_path: Vec<u32>,
    /// ORIGIN is IGP.
    pub(crate) is_igp: bool,
    /// LOCAL_PREF; `None` where the router shows none of an external peer, or shows its own default.
    pub(crate) local_preference: Option<u32>,
    /// MULTI_EXIT_DISC; some routers show 0 for none.
    pub(crate) med: Option<u32>,
}

/// A running router.
pub(crate) struct Router {
    software: Software,
    configuration: String,
    namespace: String,
    directory: TempDir,
    /// The one with the log first.
    processes: Vec<Process>,
}

impl Router {
    /// Starts it, and waits until it answers.
    pub(crate) fn start(software: Software, namespace: &Namespace, setup: Setup) -> Self {
        Self::start_with(software, namespace, &setup.configuration(software))
    }

    /// Starts one with a configuration of its own.
    pub(crate) fn start_with(software: Software, namespace: &Namespace, configuration: &str) -> Self {
        let directory = TempDir::new().unwrap();
        // FRR's daemons give up root before they make their sockets.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let configuration = configuration.to_owned();
        let mut router = Self { software, configuration, namespace: namespace.name().to_owned(), directory, processes: Vec::new() };
        router.launch(namespace);
        router
    }

    /// Ends it, without any farewell, and starts it again.
    pub(crate) fn restart(&mut self, namespace: &Namespace) {
        self.kill();
        self.launch(namespace);
    }

    /// Ends it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        for process in self.processes.drain(..) {
            process.kill();
        }
    }

    /// What it learned of the destination from the neighbour.
    pub(crate) fn learned(&self, neighbour: IpAddr, prefix: Prefix) -> Option<Learned> {
        match self.software {
            Software::Bird => bird::learned(&self.bird(&format!("show route all {prefix} protocol {}", bird::protocol(neighbour)))),
            Software::Frr => {
                let family = frr::family(prefix.family());
                frr::learned(&self.vtysh(&format!("show bgp {family} {prefix} json")), neighbour)
            }
            Software::GoBgp => {
                let family = gobgp::family(prefix.family());
                gobgp::learned(&self.gobgp(&["neighbor", &neighbour.to_string(), "adj-in", "-a", family]), prefix)
            }
            Software::OpenBgpd => openbgpd::learned(&self.bgpctl(&["show", "rib", "neighbor", &neighbour.to_string(), "in"]), prefix),
        }
    }

    /// What BIRD shows of a destination that it learned from the neighbour: the value of one attribute.
    pub(crate) fn bird_attribute(&self, neighbour: IpAddr, prefix: Prefix, name: &str) -> Option<String> {
        let output = self.bird(&format!("show route all {prefix} protocol {}", bird::protocol(neighbour)));
        output.lines().find_map(|line| Some(line.trim().strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
    }

    /// The global next hops of all paths to the destination that BIRD learned from the neighbour.
    pub(crate) fn next_hops(&self, neighbour: IpAddr, prefix: Prefix) -> BTreeSet<IpAddr> {
        let details = self.details(neighbour, prefix);
        let hops = details.lines().filter_map(|line| line.trim().strip_prefix("BGP.next_hop:")?.split_whitespace().next());
        hops.map(|hop| hop.parse().unwrap()).collect()
    }

    /// All that BIRD shows of the destination as the neighbour told it, or FRR of all paths to it.
    pub(crate) fn details(&self, neighbour: IpAddr, prefix: Prefix) -> String {
        match self.software {
            Software::Frr => run(&mut self.vtysh_command(&format!("show bgp {} {prefix}", frr::family(prefix.family())))),
            Software::Bird | Software::GoBgp | Software::OpenBgpd => {
                self.bird(&format!("show route all {prefix} protocol {}", bird::protocol(neighbour)))
            }
        }
    }

    /// How many destinations of both families it learned from the neighbour.
    pub(crate) fn count(&self, neighbour: IpAddr) -> usize {
        match self.software {
            Software::Bird => bird::count(&self.bird(&format!("show route protocol {} count", bird::protocol(neighbour)))),
            Software::Frr => frr::count(&self.vtysh(&format!("show bgp neighbors {neighbour} json")), neighbour),
            Software::GoBgp => gobgp::count(&self.gobgp(&["neighbor", &neighbour.to_string()])),
            Software::OpenBgpd => openbgpd::rib(&self.bgpctl(&["show", "rib", "neighbor", &neighbour.to_string(), "in"])).len(),
        }
    }

    /// Whether it has seen the neighbour's End-of-RIB of both families.
    pub(crate) fn has_end_of_ribs(&self, neighbour: IpAddr) -> bool {
        let log = self.log();
        let found = |words: &[String]| log.lines().filter(|line| words.iter().all(|word| line.contains(word.as_str()))).count();
        match self.software {
            Software::Bird => found(&[format!("{}: Got END-OF-RIB", bird::protocol(neighbour))]) == Family::ALL.len(),
            Software::Frr => ["IPv4 Unicast", "IPv6 Unicast"]
                .iter()
                .all(|family| found(&[format!("rcvd End-of-RIB for {family} from {neighbour} ")]) == 1),
            Software::GoBgp => Family::ALL.iter().all(|family| {
                let key = if neighbour.is_ipv4() { format!("Key={neighbour} ") } else { format!("Key=\"{neighbour}\" ") };
                found(&["EOR received".to_owned(), format!("AddressFamily={family} "), key]) == 1
            }),
            Software::OpenBgpd => ["IPv4 unicast", "IPv6 unicast"]
                .iter()
                .all(|family| found(&[format!("neighbor {neighbour}: received {family} EOR marker")]) == 1),
        }
    }

    /// How many routes the neighbour has told it, each time counted. BIRD and FRR only; FRR counts UPDATEs.
    pub(crate) fn updates_received(&self, neighbour: IpAddr) -> u64 {
        match self.software {
            Software::Bird => {
                let text = self.bird(&format!("show protocols all {}", bird::protocol(neighbour)));
                let counts = text.lines().filter_map(|line| line.trim().strip_prefix("Import updates:"));
                counts.map(|counts| counts.split_whitespace().next().unwrap().parse::<u64>().unwrap()).sum()
            }
            Software::Frr => {
                let json = self.vtysh(&format!("show bgp neighbors {neighbour} json"));
                json[neighbour.to_string()]["messageStats"]["updatesRecv"].as_u64().unwrap()
            }
            Software::GoBgp | Software::OpenBgpd => panic!("nobody has needed that yet"),
        }
    }

    /// Makes it ask the neighbour for all routes again (RFC 2918). GoBGP cannot.
    pub(crate) fn ask_for_refresh(&self, neighbour: IpAddr) {
        match self.software {
            Software::Bird => drop(self.bird(&format!("reload in {}", bird::protocol(neighbour)))),
            Software::Frr => {
                for family in Family::ALL {
                    self.vtysh(&format!("clear bgp {} {neighbour} soft in", frr::family(family)));
                }
            }
            Software::GoBgp => panic!("GoBGP has no command that sends a ROUTE-REFRESH"),
            Software::OpenBgpd => drop(run(&mut self.bgpctl_command(&["neighbor", &neighbour.to_string(), "refresh"]))),
        }
    }

    /// What it logged since it was started.
    pub(crate) fn log(&self) -> String {
        self.processes.first().map_or_else(String::new, Process::log)
    }

    fn launch(&mut self, namespace: &Namespace) {
        match self.software {
            Software::Bird => self.launch_bird(namespace),
            Software::Frr => self.launch_frr(namespace),
            Software::GoBgp => self.launch_gobgp(namespace),
            Software::OpenBgpd => self.launch_openbgpd(namespace),
        }
    }

    fn launch_bird(&mut self, namespace: &Namespace) {
        self.write("bird.conf", &self.configuration);
        let mut command = namespace.command("bird");
        command.arg("-f").arg("-c").arg(self.path("bird.conf")).arg("-s").arg(self.path("bird.ctl")).arg("-P").arg(self.path("bird.pid"));
        self.processes.push(Process::start(&mut command));
        self.wait_for_answer(|| birdc(&self.path("bird.ctl"), "show status"));
    }

    fn launch_frr(&mut self, namespace: &Namespace) {
        drop(fs::remove_file(self.path("zserv.api")));
        self.write("zebra.conf", "");
        self.write("bgpd.conf", &self.configuration);
        run(Command::new("chown").arg("-R").arg("frr:frrvty").arg(self.directory.path()));
        let daemon = |name: &str| {
            // Its buffers of log lines would outlive it.
            let mut command = with_mounts(namespace, "mount -t tmpfs -o mode=1777 none /var/tmp", &format!("/usr/lib/frr/{name}"));
            command.arg("-f").arg(self.path(&format!("{name}.conf"))).arg("-i").arg(self.path(&format!("{name}.pid")));
            command.arg("-z").arg(self.path("zserv.api")).arg("--vty_socket").arg(self.directory.path());
            command.args(["-u", "frr", "-g", "frr", "-P", "0", "--log", "stdout", "--log-level", "debug"]);
            Process::start(&mut command)
        };
        let zebra = daemon("zebra");
        wait_until("zebra has its socket", START, || self.path("zserv.api").exists());
        let bgpd = daemon("bgpd");
        self.processes = vec![bgpd, zebra];
        self.wait_for_answer(|| self.vtysh_command("show bgp summary json"));
    }

    fn launch_gobgp(&mut self, namespace: &Namespace) {
        self.write("gobgpd.toml", &self.configuration);
        let mut command = namespace.command("gobgpd");
        command.arg("-f").arg(self.path("gobgpd.toml")).args(["-l", "debug", "-p", "--pprof-disable", "--api-hosts", "127.0.0.1:50051"]);
        self.processes.push(Process::start(&mut command));
        self.wait_for_answer(|| self.gobgp_command(&["global"]));
    }

    fn launch_openbgpd(&mut self, namespace: &Namespace) {
        let socket = format!("socket \"{}\"\n", self.path("bgpd.sock").display());
        self.write("bgpd.conf", &(socket + &self.configuration));
        // After a kill its listener lives on for a moment, in another process.
        let is_free = || namespace.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 179)).is_ok());
        wait_until("port 179 is free", START, is_free);
        // It refuses a file that others could write.
        fs::set_permissions(self.path("bgpd.conf"), fs::Permissions::from_mode(0o600)).unwrap();
        // Its processes go into the home of their user, which only a service manager would make.
        let mut command = with_mounts(namespace, "mount -t tmpfs -o mode=755 none /run && mkdir -m 755 /run/openbgpd", "/usr/sbin/bgpd");
        command.arg("-d").arg("-v").arg("-f").arg(self.path("bgpd.conf"));
        self.processes.push(Process::start(&mut command));
        self.wait_for_answer(|| self.bgpctl_command(&["show", "summary"]));
    }

    fn wait_for_answer(&self, command: impl Fn() -> Command) {
        wait_until(&format!("{:?} answers", self.software), START, || {
            for process in &self.processes {
                assert!(process.is_running(), "{:?} has ended:\n{}", self.software, process.log());
            }
            command().output().unwrap_or_else(|error| panic!("{:?}: {error}", command())).status.success()
        });
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// What BIRD answers. "Network not found" is an answer too, though birdc reports it as a failure.
    pub(crate) fn bird(&self, words: &str) -> String {
        let output = birdc(&self.path("bird.ctl"), words).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() || text.contains("Network not found"),
            "birdc {words}: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        text
    }

    fn vtysh_command(&self, line: &str) -> Command {
        let mut command = Command::new("vtysh");
        // It would write what it was asked into the history of the user.
        command.env("HOME", self.directory.path()).env("VTYSH_HISTFILE", "/dev/null");
        command.arg("--vty_socket").arg(self.directory.path()).arg("-c").arg(line);
        command
    }

    /// What FRR answers in JSON.
    pub(crate) fn vtysh(&self, line: &str) -> Value {
        let output = run(&mut self.vtysh_command(line));
        serde_json::from_str(&output).unwrap_or(Value::Null)
    }

    fn gobgp_command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace, "gobgp", "-j"]).args(words);
        command
    }

    /// What GoBGP answers.
    pub(crate) fn gobgp(&self, words: &[&str]) -> Value {
        serde_json::from_str(&run(&mut self.gobgp_command(words))).unwrap()
    }

    fn bgpctl_command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("bgpctl");
        command.arg("-s").arg(self.path("bgpd.sock")).arg("-j").args(words);
        command
    }

    fn bgpctl(&self, words: &[&str]) -> Value {
        serde_json::from_str(&run(&mut self.bgpctl_command(words))).unwrap()
    }
}

/// A program with mounts that only it sees: `ip netns exec` gives each command a mount namespace.
fn with_mounts(namespace: &Namespace, mounts: &str, program: &str) -> Command {
    let mut command = namespace.command("sh");
    command.arg("-c").arg(format!("{mounts} && exec \"$0\" \"$@\"")).arg(program);
    command
}

fn birdc(socket: &Path, words: &str) -> Command {
    let mut command = Command::new("birdc");
    command.arg("-s").arg(socket).args(words.split_whitespace());
    command
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok())
}

fn numbers(text: &str) -> Vec<u32> {
    text.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

mod bird {
    use super::{IpAddr, Learned, Setup, numbers};

    /// The protocol of a neighbour.
    pub(super) fn protocol(neighbour: IpAddr) -> String {
        format!("from_{}", neighbour.to_string().replace(['.', ':'], "_"))
    }

    pub(super) fn configuration(setup: &Setup) -> String {
        let mut text =
            format!("router id {};\nlog stderr all;\nprotocol device {{}}\nprotocol direct {{ ipv4; ipv6; }}\n", setup.router_id);
        let mut options = setup.password.map(|key| format!("password \"{key}\"; ")).unwrap_or_default();
        match setup.ttl_security {
            None => options += "direct;",
            Some(1) => options += "direct; ttl security on;",
            Some(hops) => options += &format!("multihop {hops}; ttl security on;"),
        }
        for (family, ipv4) in [("ipv4", true), ("ipv6", false)] {
            let announced = setup.announced.iter().filter(|prefix| prefix.address().is_ipv4() == ipv4);
            let routes: String = announced.map(|prefix| format!("route {prefix} blackhole; ")).collect();
            text += &format!("protocol static {{ {family}; {routes}}}\n");
        }
        let paths = if setup.add_paths { " add paths rx;" } else { "" };
        for neighbour in &setup.neighbours {
            text += &format!(
                "protocol bgp {name} {{ debug {{ states, events, packets }}; local as {asn}; neighbor {neighbour} as {neighbour_asn}; {options} hold time 9; \
                 error wait time 1, 4; ipv4 {{ import all; export where source = RTS_STATIC;{paths} }}; \
                 ipv6 {{ import all; export where source = RTS_STATIC;{paths} }}; }}\n",
                name = protocol(*neighbour),
                asn = setup.asn,
                neighbour_asn = setup.neighbour_asn,
            );
        }
        text
    }

    pub(super) fn learned(output: &str) -> Option<Learned> {
        let field = |name: &str| output.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':').map(str::trim));
        let number = |name| field(name).map(|value| value.parse().unwrap());
        Some(Learned {
            // BIRD shows the link-local address behind the global one.
            next_hop: field("BGP.next_hop")?.split_whitespace().next()?.parse().unwrap(),
            as_path: numbers(field("BGP.as_path").unwrap_or_default()),
            is_igp: field("BGP.origin") == Some("IGP"),
            local_preference: number("BGP.local_pref"),
            med: number("BGP.med"),
        })
    }

    /// "2 of 5 routes for 5 networks in table master4", for each table.
    pub(super) fn count(output: &str) -> usize {
        let tables = output.lines().filter_map(|line| line.split_once(" of ")?.0.parse::<usize>().ok());
        tables.sum()
    }
}

mod frr {
    use super::{Family, IpAddr, Learned, Setup, Value, number, numbers};

    pub(super) fn configuration(setup: &Setup) -> String {
        let asn = setup.asn;
        let mut text = format!(
            "router bgp {asn}\n bgp router-id {}\n no bgp ebgp-requires-policy\n no bgp default ipv4-unicast\n no bgp network import-check\n timers bgp 3 9\n",
            setup.router_id
        );
        let each = |line: &str| -> String { setup.neighbours.iter().map(|neighbour| format!(" neighbor {neighbour} {line}\n")).collect() };
        text += &each(&format!("remote-as {}", setup.neighbour_asn));
        text += &each("timers connect 1");
        if let Some(key) = setup.password {
            text += &each(&format!("password {key}"));
        }
        if let Some(hops) = setup.ttl_security {
            text += &each(&format!("ttl-security hops {hops}"));
        }
        for family in Family::ALL {
            let announced = setup.announced.iter().filter(|prefix| prefix.family() == family);
            let networks: String = announced.map(|prefix| format!("  network {prefix}\n")).collect();
            text += &format!(" address-family {}\n{}{networks} exit-address-family\n", self::family(family), each("activate"));
        }
        text
    }

    pub(super) const fn family(family: Family) -> &'static str {
        match family {
            Family::Ipv4Unicast => "ipv4 unicast",
            Family::Ipv6Unicast => "ipv6 unicast",
        }
    }

    pub(super) fn learned(output: &Value, neighbour: IpAddr) -> Option<Learned> {
        let from = neighbour.to_string();
        let path = output["paths"].as_array()?.iter().find(|path| path["peer"]["peerId"] == from.as_str())?;
        let next_hops = path["nexthops"].as_array()?;
        let global = next_hops.iter().find(|next_hop| next_hop["scope"] != "link-local")?;
        let path_text = path["aspath"]["string"].as_str()?;
        Some(Learned {
            next_hop: global["ip"].as_str()?.parse().unwrap(),
            as_path: if path_text == "Local" { Vec::new() } else { numbers(path_text) },
            is_igp: path["origin"] == "IGP",
            local_preference: number(&path["locPrf"]),
            med: number(&path["metric"]),
        })
    }

    pub(super) fn count(output: &Value, neighbour: IpAddr) -> usize {
        let families = output[neighbour.to_string()]["addressFamilyInfo"].as_object();
        let counts =
            families.into_iter().flat_map(|families| families.values()).filter_map(|family| family["acceptedPrefixCounter"].as_u64());
        counts.map(|count| usize::try_from(count).unwrap()).sum()
    }
}

mod gobgp {
    use super::{Family, Learned, Prefix, Setup, Value, number};

    pub(super) fn configuration(setup: &Setup) -> String {
        let mut text = format!("[global.config]\nas = {}\nrouter-id = \"{}\"\n", setup.asn, setup.router_id);
        for neighbour in &setup.neighbours {
            text += &format!(
                "[[neighbors]]\n[neighbors.config]\nneighbor-address = \"{neighbour}\"\npeer-as = {}\n[neighbors.timers.config]\nhold-time = 9.0\n\
                 keepalive-interval = 3.0\nidle-hold-time-after-reset = 1.0\n[neighbors.transport.config]\npassive-mode = true\n",
                setup.neighbour_asn
            );
            for family in Family::ALL {
                text += &format!("[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = \"{family}\"\n");
            }
        }
        text
    }

    pub(super) const fn family(family: Family) -> &'static str {
        match family {
            Family::Ipv4Unicast => "ipv4",
            Family::Ipv6Unicast => "ipv6",
        }
    }

    pub(super) fn learned(output: &Value, prefix: Prefix) -> Option<Learned> {
        let attributes = output[prefix.to_string()].get(0)?["attrs"].as_array()?;
        let attribute = |code: u32| attributes.iter().find(|attribute| number(&attribute["type"]) == Some(code));
        let segments = attribute(2)?["as_paths"].as_array().cloned().unwrap_or_default();
        let next_hop = attribute(3).or_else(|| attribute(14))?;
        Some(Learned {
            next_hop: next_hop["nexthop"].as_str()?.parse().unwrap(),
            as_path: segments.iter().flat_map(|segment| segment["asns"].as_array()).flatten().filter_map(number).collect(),
            is_igp: number(&attribute(1)?["value"]) == Some(0),
            local_preference: attribute(5).and_then(|attribute| number(&attribute["value"])),
            med: attribute(4).and_then(|attribute| number(&attribute["metric"])),
        })
    }

    pub(super) fn count(output: &Value) -> usize {
        let families = output["afi_safis"].as_array();
        let counts = families.into_iter().flatten().filter_map(|family| family["state"]["received"].as_u64());
        counts.map(|count| usize::try_from(count).unwrap()).sum()
    }
}

mod openbgpd {
    use super::{Learned, Prefix, Setup, Value, number, numbers};

    pub(super) fn configuration(setup: &Setup) -> String {
        let mut text = format!("AS {}\nrouter-id {}\nfib-update no\nholdtime 9\nallow from any\ndeny to any\n", setup.asn, setup.router_id);
        for neighbour in &setup.neighbours {
            text += &format!(
                "neighbor {neighbour} {{\nremote-as {}\nannounce IPv4 unicast\nannounce IPv6 unicast\npassive\n}}\n",
                setup.neighbour_asn
            );
        }
        text
    }

    pub(super) fn rib(output: &Value) -> Vec<Value> {
        output["rib"].as_array().cloned().unwrap_or_default()
    }

    pub(super) fn learned(output: &Value, prefix: Prefix) -> Option<Learned> {
        let route = rib(output).into_iter().find(|route| route["prefix"] == prefix.to_string())?;
        Some(Learned {
            next_hop: route["exit_nexthop"].as_str()?.parse().unwrap(),
            as_path: numbers(route["aspath"].as_str().unwrap_or_default()),
            is_igp: route["origin"] == "IGP",
            local_preference: number(&route["localpref"]),
            med: number(&route["metric"]),
        })
    }
}
