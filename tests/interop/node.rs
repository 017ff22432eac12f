// SPDX-License-Identifier: Apache-2.0
//! A node with the real binary, for what only a process can show: its end, and its start after that.
//!
//! Input: a namespace. Output: the daemon with VIPs and one session, which asks its peer to keep its routes over a restart.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use bgp::Prefix;
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::common::{Namespace, Process};
use crate::rig::{AS, PATIENCE};

pub(crate) struct Node<'a> {
    namespace: &'a Namespace,
    directory: TempDir,
    process: Option<Process>,
}

impl<'a> Node<'a> {
    /// Its files are there, and it runs. `drain`: what it is told of its end.
    pub(crate) fn start(namespace: &'a Namespace, (name, address): (&str, IpAddr), vips: &BTreeSet<Prefix>, drain: &str) -> Self {
        let mut node = Self { namespace, directory: TempDir::new().unwrap(), process: None };
        fs::create_dir(node.path("manifests")).unwrap();
        let config = format!(
            "node: {{name: node-1}}\nvips: {{withoutEndpoints: announce}}\nbgp:\n  asn: {AS}\n  peers:\n\
             \x20   - {{name: {name}, address: \"{address}\", asn: {AS}, timers: {{hold: 9s, connectRetry: 3s}}, gracefulRestart: {{restartTime: 60s}}}}\n\
             drain: {{{drain}, fabricDelay: 100ms, timeout: 5s}}\nstateDir: {}\nhttp: {{address: \"127.0.0.1:9479\"}}\n",
            node.path("state").display()
        );
        fs::write(node.path("config.yaml"), config).unwrap();
        node.publish(vips);
        node.run();
        node
    }

    /// Starts the process again.
    pub(crate) fn run(&mut self) {
        let mut command = self.namespace.command(env!("CARGO_BIN_EXE_vipherald"));
        command.arg("run").arg("--config").arg(self.path("config.yaml")).arg("--manifests").arg(self.path("manifests"));
        self.process = Some(self.namespace.spawn(&mut command));
    }

    /// Makes these the VIPs.
    pub(crate) fn publish(&self, vips: &BTreeSet<Prefix>) {
        let addresses: Vec<IpAddr> = vips.iter().map(Prefix::address).collect();
        let service = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {{externalIPs: {:?}, ports: [{{port: 80}}]}}\n",
            addresses.iter().map(ToString::to_string).collect::<Vec<_>>()
        );
        fs::write(self.path("new.yaml.part"), service).unwrap();
        fs::rename(self.path("new.yaml.part"), self.path("manifests").join("web.yaml")).unwrap();
    }

    /// Tells it to end, as a service manager does.
    pub(crate) fn signal_end(&self) {
        self.process.as_ref().unwrap().signal(Signal::SIGTERM);
    }

    /// Ends it as a service manager does.
    pub(crate) fn terminate(&mut self) {
        self.signal_end();
        self.wait_for_end();
    }

    /// Waits until it has ended, as it should.
    pub(crate) fn wait_for_end(&mut self) {
        let process = self.process.take().unwrap();
        assert_eq!(process.wait(PATIENCE).code(), Some(0), "{}", process.log());
    }

    /// Ends it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.process.take().unwrap().kill();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}
