// SPDX-License-Identifier: Apache-2.0
//! keepalived with one VRRP instance, in the foreground of a host.

#![allow(dead_code, reason = "each of those who use it needs a part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::IpAddr;
use std::path::Path;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::common::{Namespace, Process, wait_until};
use crate::link::PATIENCE;

/// What it is to be.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) version: u8,
    pub(crate) vrid: u8,
    pub(crate) priority: u8,
    pub(crate) centiseconds: u16,
    pub(crate) no_preempt: bool,
    /// Its own address, and the peer's; multicast where absent.
    pub(crate) unicast: Option<(IpAddr, IpAddr)>,
    /// The hop limit of unicast; left to itself it is 64 for IPv6.
    pub(crate) unicast_ttl: Option<u8>,
    pub(crate) vips: Vec<IpAddr>,
    /// Whether they are behind the virtual router MAC.
    pub(crate) virtual_mac: bool,
}

impl Setup {
    pub(crate) const fn new(vrid: u8, vips: Vec<IpAddr>) -> Self {
        Self {
            version: 3,
            vrid,
            priority: 100,
            centiseconds: 10,
            no_preempt: false,
            unicast: None,
            unicast_ttl: Some(255),
            vips,
            virtual_mac: false,
        }
    }

    /// With a file that tells by how much the priority is to be higher.
    fn text(&self, weight: &Path) -> String {
        let Self { version, vrid, priority, centiseconds, .. } = self;
        let interval = if *version == 2 { (centiseconds / 100).to_string() } else { format!("{:.2}", f64::from(*centiseconds) / 100.0) };
        let ttl = self.unicast_ttl.map(|ttl| format!("  unicast_ttl {ttl}\n")).unwrap_or_default();
        let unicast = self.unicast.map(|(own, peer)| format!("  unicast_src_ip {own}\n{ttl}  unicast_peer {{\n    {peer}\n  }}\n"));
        let on = if self.virtual_mac { "" } else { " dev eth0" };
        let vips: String = self.vips.iter().map(|vip| format!("    {vip}/{}{on}\n", if vip.is_ipv4() { 32 } else { 128 })).collect();
        format!(
            "global_defs {{\n  vrrp_version {version}\n  vrrp_garp_master_repeat 2\n}}\ntrack_file weight {{\n  file {}\n  weight 1\n  init_file 0\n}}\n\
             vrrp_instance main {{\n  state BACKUP\n  interface eth0\n  virtual_router_id {vrid}\n  priority {priority}\n  advert_int {interval}\n{}{}{}  \
             track_file {{\n    weight\n  }}\n  virtual_ipaddress {{\n{vips}  }}\n}}\n",
            weight.display(),
            if self.virtual_mac { "  use_vmac\n" } else { "" },
            if self.no_preempt { "  nopreempt\n" } else { "" },
            unicast.unwrap_or_default(),
        )
    }
}

/// See the module. Dropping it kills it.
pub(crate) struct Keepalived {
    process: Process,
    directory: TempDir,
}

impl Keepalived {
    pub(crate) fn start(host: &Namespace, setup: &Setup) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("keepalived.conf"), setup.text(&path("weight"))).unwrap();
        let mut command = host.command("keepalived");
        command.args(["--vrrp", "--dont-fork", "--log-console", "--log-detail"]);
        command.arg("--use-file").arg(path("keepalived.conf")).arg("--pid").arg(path("pid")).arg("--vrrp_pid").arg(path("vrrp.pid"));
        let process = host.spawn(&mut command);
        Self { process, directory }
    }

    pub(crate) fn wait_until_active(&self) {
        self.wait_for("Entering MASTER STATE");
    }

    pub(crate) fn wait_until_backup(&self) {
        self.wait_for("Entering BACKUP STATE");
    }

    /// As an operator does who wants the other router to have the addresses.
    pub(crate) fn lower_priority(&self) {
        std::fs::write(self.directory.path().join("weight"), "-100\n").unwrap();
    }

    fn wait_for(&self, words: &str) {
        wait_until(&format!("keepalived says {words:?}"), PATIENCE, || self.process.log().contains(words));
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process.is_running()
    }

    /// Ends both of its processes as `kill -9` does: it says nothing.
    pub(crate) fn crash(&self) {
        let id = std::fs::read_to_string(self.directory.path().join("vrrp.pid")).unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(id.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
        self.process.kill();
    }

    /// Ends it in order: it resigns.
    pub(crate) fn end(&self) {
        self.process.signal(Signal::SIGTERM);
        self.process.wait(PATIENCE);
    }
}
