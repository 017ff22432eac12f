// SPDX-License-Identifier: Apache-2.0
//! A daemon that is killed between two transactions of a hand-over, after each of them in turn, while a client's traffic goes on.
//!
//! Input: the dataplane. Invariants: what is there when the daemon dies goes on serving; the next one ends what was begun, and leaves exactly what is there
//! where nothing happened on the way. Whoever calls it has a kernel with what that dataplane needs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use super::{OF_BOTH, PATIENCE, Traffic, beside_kube_proxy, has_nothing};
use crate::common::wait_until;
use crate::stage::{Stage, VIP, eric, service, slice};

/// Fewer transactions than this are no hand-over.
const FEWEST: u32 = 5;
/// Longer than a short connection takes.
const DRAIN_TIMEOUT: &str = ", drainTimeout: 2s";

/// From kube-proxy to us and back. Connections of IPVS end with their time to drain; those of nft go on with the connection table.
pub(crate) fn no_error_where_a_hand_over_ends_halfway(dataplane: &'static str) {
    let [ours, theirs] = OF_BOTH;
    let mut stage = beside_kube_proxy(dataplane, "halfway");
    let life = Life::new(&mut stage);
    stage.start(DRAIN_TIMEOUT);
    stage.wait_for_vip(VIP, true);
    // What is over has to leave room in the connection table.
    stage.router.sysctl("net/netfilter/nf_conntrack_tcp_timeout_time_wait", "1");
    let traffic = Traffic::start(&stage.client);
    traffic.goes_to(ours);
    let with_us = words(&stage);
    stage.change_dataplane("kube-proxy", DRAIN_TIMEOUT);
    traffic.goes_to(theirs);
    wait_until("nothing of ours balances", PATIENCE, || has_nothing(&stage));
    let with_them = words(&stage);
    let side = |kind, servers, at_rest| Side { kind, servers, at_rest };
    let sides = [side("kube-proxy", theirs, &with_them), side(dataplane, ours, &with_us)];
    for [from, to] in [[&sides[0], &sides[1]], [&sides[1], &sides[0]]] {
        let mut transactions = 1;
        while dies_after(transactions, &mut stage, &traffic, &life, from, to) {
            transactions += 1;
        }
        assert!(transactions > FEWEST, "{} to {}: only {transactions} transactions", from.kind, to.kind);
    }
    let ended: &[&str] = if dataplane == "ipvs" { ours } else { &[] };
    traffic.finish(&format!("{dataplane} and kube-proxy, halfway"), ended);
    stage.router.nft("delete table ip kube-proxy");
    stage.change_dataplane(dataplane, "");
    wait_until("we balance", PATIENCE, || stage.router.output(&["nft", "list", "ruleset"]).contains("chain claim "));
    stage.drain();
}

/// One of the two that balance.
struct Side<'a> {
    /// `dataplane.type`.
    kind: &'static str,
    servers: &'static [&'static str],
    at_rest: &'a [String],
}

/// A real server of UDP is replaced by a transaction after which the daemon dies, so that it cannot tell the connection table: the next one has to, or a client that goes
/// on with one socket is sent to nobody for ever.
pub(crate) fn a_udp_client_is_answered_where_the_daemon_dies_once_its_server_is_replaced(dataplane: &'static str) {
    let mut stage = Stage::with(dataplane, "replaced", &["192.168.1.1", "192.168.1.2"]);
    ["192.168.1.1", "192.168.1.2"].iter().for_each(|server| stage.answer_udp(server, 162));
    let ports = "{port: 162, protocol: UDP}";
    let publish = |stage: &Stage, server: &str| stage.publish("pods", &(service("traps", ports) + &slice("traps", ports, &[server])));
    stage.publish("traps", &eric("traps", VIP, "traps", &[("162", "162", "protocol: udp, algo: rr")]));
    publish(&stage, "192.168.1.1");
    let life = Life::new(&mut stage);
    stage.start("");
    stage.wait_for_vip(VIP, true);
    let client = stage.udp_client(Duration::from_millis(100));
    let is_answered_by = |server: &str| client.ask(162).is_some_and(|answer| answer == format!("{server}:162"));
    wait_until("the first one answers", PATIENCE, || is_answered_by("192.168.1.1"));
    wait_until("the daemon is at rest", PATIENCE, || stage.daemon.as_ref().unwrap().log().contains("done step=forget connections"));
    life.ends_after(1);
    publish(&stage, "192.168.1.2");
    wait_until("it dies", PATIENCE, || !stage.daemon.as_ref().unwrap().is_running());
    assert!(life.is_over() && is_answered_by("192.168.1.1"), "the connection table knows the first one still");
    life.has_no_end();
    stage.start("");
    wait_until("the second one answers", PATIENCE, || is_answered_by("192.168.1.2"));
    stage.drain();
}

/// From one to the other, with a daemon that lives for so many transactions, and another one after it. False where it had fewer to do.
fn dies_after(transactions: u32, stage: &mut Stage, traffic: &Traffic, life: &Life, from: &Side<'_>, to: &Side<'_>) -> bool {
    let what = format!("{} to {}, {transactions} transactions", from.kind, to.kind);
    stage.change_dataplane(from.kind, DRAIN_TIMEOUT);
    traffic.goes_to(from.servers);
    wait_until(&format!("{what}: before it"), PATIENCE, || words(stage) == from.at_rest);
    life.ends_after(transactions);
    stage.change_dataplane(to.kind, DRAIN_TIMEOUT);
    wait_until(&format!("{what}: an end"), PATIENCE, || life.is_over() || (words(stage) == to.at_rest && life.goes_on()));
    if life.goes_on() {
        life.has_no_end();
        return false;
    }
    traffic.goes_on();
    stage.daemon.take().unwrap().kill();
    life.has_no_end();
    stage.start_with(&format!("type: {}{DRAIN_TIMEOUT}", to.kind));
    wait_until(&format!("{what}: as ever after it"), PATIENCE, || words(stage) == to.at_rest);
    traffic.goes_to(to.servers);
    true
}

/// All that nft and IPVS have, in whatever order: elements of sets and maps are listed in none.
fn words(stage: &Stage) -> Vec<String> {
    let of_ipvs = if stage.dataplane == "ipvs" { stage.router.output(&["ipvsadm", "-Sn"]) } else { String::new() };
    let listed = stage.router.output(&["nft", "-y", "list", "ruleset"]) + &of_ipvs;
    let words = listed.split([' ', ',', '\t', '\n']).filter(|word| !word.is_empty());
    let mut words: Vec<String> = words.map(str::to_owned).collect();
    words.sort();
    words
}

/// How many transactions of `nft` a daemon lives for: a program of that name, which it finds first, ends it.
struct Life {
    directory: PathBuf,
}

impl Life {
    fn new(stage: &mut Stage) -> Self {
        let life = Self { directory: stage.path("programs") };
        fs::create_dir(&life.directory).unwrap();
        let (program, directory) = (life.directory.join("nft"), life.directory.display().to_string());
        // It counts before it begins, so that no last transaction is taken for one that others follow.
        let script = format!(
            "#!/bin/sh\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\ncd {directory}\nif [ \"$*\" = '-f -' ] && [ -s left ]; then\n  left=$(($(cat left) - 1))\n  \
             echo $left > left\nfi\nnft \"$@\"\nstatus=$?\nif [ \"$left\" = 0 ]; then\n  touch over\n  kill -KILL $PPID\nfi\nexit $status\n"
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        life.has_no_end();
        stage.programs = Some(life.directory.clone());
        life
    }

    fn ends_after(&self, transactions: u32) {
        fs::write(self.directory.join("left"), transactions.to_string()).unwrap();
    }

    fn has_no_end(&self) {
        fs::write(self.directory.join("left"), "").unwrap();
        drop(fs::remove_file(self.directory.join("over")));
    }

    /// Whether it has not begun its last transaction.
    fn goes_on(&self) -> bool {
        fs::read_to_string(self.directory.join("left")).unwrap().trim() != "0"
    }

    fn is_over(&self) -> bool {
        self.directory.join("over").exists()
    }
}
