// SPDX-License-Identifier: Apache-2.0
//! Routers of which a test has several: each a namespace with the daemon.
//!
//! Input: links, manifests and the section `dataplane`. Output: what the kernel holds. It needs a kernel with IPVS.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::common::{Namespace, Process, wait_until};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const VIP: &str = "10.232.35.199";
pub(crate) const VIP6: &str = "2001:db8:7::1";

/// A namespace with the daemon.
pub(crate) struct Router {
    pub(crate) namespace: Namespace,
    files: TempDir,
    pub(crate) daemon: Option<Process>,
}

impl Router {
    /// With the links that the closure makes.
    pub(crate) fn new(tag: &str, connect: impl FnOnce(&Namespace)) -> Self {
        let namespace = Namespace::new(tag);
        connect(&namespace);
        let files = tempfile::tempdir().unwrap();
        fs::create_dir(files.path().join("manifests")).unwrap();
        Self { namespace, files, daemon: None }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    pub(crate) fn publish(&self, name: &str, manifest: &str) {
        fs::write(self.path("unfinished"), manifest).unwrap();
        fs::rename(self.path("unfinished"), self.path("manifests").join(format!("{name}.yaml"))).unwrap();
    }

    /// With these keys of the section `dataplane`.
    pub(crate) fn start(&mut self, dataplane: &str) {
        let configuration = format!(
            "node: {{name: node-1}}\nbgp: {{asn: 65001}}\ndataplane: {{{dataplane}}}\ndrain: {{fabricDelay: 100ms, timeout: 5s}}\nstateDir: {}\n\
             http: {{address: \"127.0.0.1:0\"}}\nlog: {{level: info, format: text}}\n",
            self.path("state").display()
        );
        fs::write(self.path("config.yaml"), configuration).unwrap();
        let mut command = self.namespace.command(env!("CARGO_BIN_EXE_vipherald"));
        command.args(["run", "--config"]).arg(self.path("config.yaml")).arg("--manifests").arg(self.path("manifests"));
        self.daemon = Some(self.namespace.spawn(&mut command));
    }

    pub(crate) fn drain(&mut self) {
        let daemon = self.daemon.take().unwrap();
        daemon.signal(Signal::SIGTERM);
        assert!(daemon.wait(PATIENCE).success());
    }

    /// The real servers of this virtual service in the order of the table, each with its weight.
    pub(crate) fn servers(&self, vip: &str) -> Vec<String> {
        let table = self.namespace.output(&["ipvsadm", "-Ln"]);
        let of_vip = table.lines().skip_while(|line| !line.contains(vip)).skip(1).take_while(|line| line.contains("->"));
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        of_vip.map(words).map(|words| format!("{} {}", words[1], words[3])).collect()
    }

    pub(crate) fn wait_for_vip(&self) {
        self.wait_for(VIP);
    }

    pub(crate) fn wait_for(&self, vip: &str) {
        let shown = || self.namespace.ip("-o addr show dev lo").contains(&format!(" {vip}/"));
        wait_until(&format!("{vip} is there"), PATIENCE, shown);
    }

    pub(crate) fn sysctl(&self, name: &str) -> String {
        self.namespace.run(|| fs::read_to_string(format!("/proc/sys/{name}")).unwrap().trim().to_owned())
    }

    /// What it says beside its VIPs.
    pub(crate) fn said_aside(&self) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vipherald"));
        command.args(["show", "vips", "--socket"]).arg(self.path("state").join("admin.sock"));
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    }
}

/// Takes packets to the VIPs that come as they were sent, or in a tunnel too.
pub(crate) fn become_target(host: &Namespace, forwarding: &str) {
    let mut words = vec![env!("CARGO_BIN_EXE_vipherald"), "target", "--vip", VIP, VIP6];
    if forwarding == "tun" {
        words.extend(["--tunnel", "ipip"]);
    }
    host.output(&words);
}
