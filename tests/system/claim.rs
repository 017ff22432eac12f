// SPDX-License-Identifier: Apache-2.0
//! Two instances that want the session between the same two addresses: the second is refused with a reason, and the first does not notice.

use std::io::Read as _;
use std::net::TcpStream;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::wait_until;
use crate::rig::{Daemon, PATIENCE, Rig, Settings, vips};

const TAKEN: &str = "the instance vipherald has the session from 10.99.0.1 to 10.99.0.2";

fn second(settings: Settings) -> Daemon {
    Daemon::new(Settings { instance: "second".to_owned(), http_port: 9480, ..settings })
}

/// What it says of the ToR, as soon as it says something.
fn peer(daemon: &Daemon) -> Value {
    if daemon.show_as("peers", "json").status.success() { daemon.peer("tor") } else { Value::Null }
}

/// The last three attempts of the second have failed for the first.
fn wait_until_refused(second: &Daemon) {
    wait_until("the second says who has the session", PATIENCE, || {
        let peer = peer(second);
        let reason = &peer["lastError"]["reason"];
        peer["failures"]["transport"].as_u64().is_some_and(|count| count >= 3)
            && reason.as_str().is_some_and(|text| text.starts_with(TAKEN))
    });
}

fn the_second_waits_for_the_first(tag: &str, restart_time: Option<&'static str>) {
    let both = vips(["10.1.0.1", "2001:db8:7::1"]);
    let settings = Settings { restart_time, on_termination: "drain", ..Settings::default() };
    let mut rig = Rig::serving(tag, settings.clone(), &both);
    let session = rig.session();
    let mut second = second(settings);
    second.start(&rig.node);
    wait_until_refused(&second);
    assert_eq!(rig.session(), session);
    assert_eq!(rig.tor.log().matches("Incoming connection").count(), 1, "the ToR has heard the second");
    let told = second.logged(TAKEN);
    assert!(told.iter().filter(|line| line.contains("WARN")).count() == 1, "{told:?}");

    // Nor may a process of the second be refused for ever because of one that ends.
    rig.daemon.process().signal(Signal::SIGTERM);
    assert_eq!(rig.daemon.process().wait(PATIENCE).code(), Some(0));
    wait_until("the second has the session", PATIENCE, || peer(&second)["state"] == "Established");
    rig.daemon.start(&rig.node);
    wait_until("now the first is refused", PATIENCE, || {
        let reason = &peer(&rig.daemon)["lastError"]["reason"];
        reason.as_str().is_some_and(|text| text.starts_with("the instance second has the session"))
    });
    second.process().signal(Signal::SIGTERM);
    assert_eq!(second.process().wait(PATIENCE).code(), Some(0));
    rig.wait_until_exact(&both);
}

#[test]
fn a_second_session_is_refused_and_the_first_does_not_notice() {
    the_second_waits_for_the_first("claim", None);
}

#[test]
fn rfc4724_a_second_session_is_not_taken_for_a_restart_of_the_first() {
    the_second_waits_for_the_first("claimgr", Some("60s"));
}

#[test]
fn rfc4724_a_first_that_restarts_has_its_session_back_though_a_second_waits_for_it() {
    let both = vips(["10.1.0.1", "2001:db8:7::1"]);
    let settings = Settings { restart_time: Some("60s"), on_termination: "keep", ..Settings::default() };
    let mut rig = Rig::serving("claimback", settings.clone(), &both);
    let mut second = second(settings);
    second.start(&rig.node);
    wait_until_refused(&second);
    for crash in [true, false] {
        if crash {
            rig.daemon.kill();
        } else {
            rig.daemon.process().signal(Signal::SIGTERM);
            assert_eq!(rig.daemon.process().wait(PATIENCE).code(), Some(0));
        }
        let awaited = "the instance vipherald had the session from 10.99.0.1 to 10.99.0.2; it may come back within 60s";
        wait_until("the second says whom it waits for", PATIENCE, || peer(&second)["lastError"]["reason"] == awaited);
        rig.daemon.start(&rig.node);
        rig.wait_until_exact(&both);
        wait_until("the first has it", PATIENCE, || peer(&rig.daemon)["state"] == "Established");
        wait_until("the second knows that", PATIENCE, || {
            peer(&second)["lastError"]["reason"].as_str().is_some_and(|reason| reason.starts_with(TAKEN))
        });
    }
}

#[test]
fn a_peer_that_dials_the_second_instance_is_refused_there() {
    let both = vips(["10.1.0.1", "2001:db8:7::1"]);
    let settings = Settings { restart_time: Some("60s"), ..Settings::default() };
    let rig = Rig::serving("claimpas", settings.clone(), &both);
    let session = rig.session();
    let mut second = second(Settings { routing: "  listen: {address: 10.99.0.1}\n", of_peers: ", passive: true", ..settings });
    second.start(&rig.node);
    wait_until("the second listens", PATIENCE, || peer(&second)["state"] == "Active");
    rig.tor.namespace.run(|| {
        let mut stream = TcpStream::connect("10.99.0.1:179").unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).ok();
        assert_eq!(heard, b"", "the second has spoken");
    });
    let peer = second.peer("tor");
    assert!(peer["warning"].as_str().is_some_and(|text| text.starts_with(TAKEN)), "{peer}");
    assert_eq!(second.logged("a connection of the peer is refused").len(), 1);
    assert_eq!(rig.session(), session);
    assert_eq!(rig.daemon.announced(), Some(both));
}
