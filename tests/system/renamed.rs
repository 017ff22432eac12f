// SPDX-License-Identifier: Apache-2.0
//! An instance that does not run any more, and the one that follows it under another name.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::process::Output;

use crate::common::wait_until;
use crate::rig::{Monitor, PATIENCE, Rig, Settings, addresses, record, vips};

fn three() -> BTreeSet<IpAddr> {
    vips(["10.1.0.1", "10.1.0.2", "2001:db8:7::1"])
}

fn cleanup(rig: &Rig, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = rig.node.command(env!("CARGO_BIN_EXE_vipherald"));
    let Output { status, stdout, stderr } = command.args(["cleanup", "--instance"]).args(words).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn what_the_old_name_has_left_is_told_and_taken_away_without_harm_to_the_new_one() {
    let mut rig = Rig::serving("renamed", Settings { restart_time: Some("60s"), ..Settings::default() }, &three());
    rig.node.ip("address add 10.9.9.9/32 dev lo");
    let (code, done, said) = cleanup(&rig, &["vipherald"]);
    assert_eq!((code, done.as_str()), (Some(1), ""), "{said}");
    assert!(said.starts_with("vipherald: cleanup: instance vipherald runs on this node, and takes away what it has"), "{said}");
    let (node, tor) = (Monitor::start(&rig.node, "address"), Monitor::start(&rig.tor.namespace, "route"));
    rig.daemon.kill();
    rig.daemon.settings.instance = "edge".to_owned();
    rig.daemon.write_config();
    rig.daemon.start(&rig.node);
    rig.wait_until_exact_beside(&three(), &vips(["10.9.9.9"]));
    let told = "an instance that does not run has left something on this node";
    wait_until("it is told", PATIENCE, || !rig.daemon.logged(told).is_empty());
    let line = rig.daemon.logged(told).remove(0);
    for words in ["10.1.0.1, 10.1.0.2, 2001:db8:7::1 on lo, table inet vipherald", "vipherald cleanup --instance vipherald"] {
        assert!(line.contains(words), "{line}");
    }
    let (code, foreseen, said) = cleanup(&rig, &["vipherald", "--dry-run"]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert_eq!(record(&rig.node, "vipherald").unwrap().placed, three(), "{foreseen}");
    let (code, done, said) = cleanup(&rig, &["vipherald"]);
    assert_eq!((code, said.as_str(), done.as_str()), (Some(0), "", foreseen.as_str()));
    assert!(record(&rig.node, "vipherald").is_none());
    assert_eq!(cleanup(&rig, &["vipherald"]), (Some(0), "nothing to do\n".to_owned(), String::new()));
    rig.wait_until_exact_beside(&three(), &vips(["10.9.9.9"]));
    assert_eq!((node.removals(), tor.removals()), (vec![], vec![]));
    // Of the last one that has them they go.
    rig.daemon.kill();
    let (code, done, said) = cleanup(&rig, &["edge"]);
    assert_eq!((code, said.as_str()), (Some(0), ""), "{done}");
    assert_eq!((addresses(&rig.node, "lo"), rig.has_record()), (vips(["10.9.9.9"]), false), "{done}");
}
