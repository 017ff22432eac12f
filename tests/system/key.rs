// SPDX-License-Identifier: Apache-2.0
//! The TCP-MD5 key of a ToR changes (RFC 2385), on one side or on both: the session is re-keyed or reset within five seconds.

use std::fs;
use std::time::{Duration, Instant};

use crate::common::wait_until;
use crate::rig::{Daemon, PATIENCE, Rig, Settings, vips};

const LIMIT: Duration = Duration::from_secs(5);

fn rekey(tag: &str, restart_time: Option<&'static str>) {
    let both = vips(["10.1.0.1", "2001:db8:7::1"]);
    let mut rig = Rig::new(tag);
    let mut daemon = Daemon::new(Settings { restart_time, ..Settings::default() });
    let file = daemon.path("key");
    daemon.settings.of_peers = format!(", passwordFile: {}", file.display()).leak();
    daemon.write_config();
    fs::write(&file, "one\n").unwrap();
    rig.tor.reconfigure("direct;\n", "direct;\n  password \"one\";\n");
    daemon.publish(&both);
    daemon.start(&rig.node);
    rig.daemon = daemon;
    rig.wait_until_exact(&both);

    // Only here: the ToR is told nothing it would take, and keeps the routes as after any loss of TCP until it notices itself.
    let changed = Instant::now();
    fs::write(&file, "two\n").unwrap();
    wait_until("the session is reset", LIMIT, || rig.daemon.peer("tor")["state"] != "Established");
    println!("reset {:.1} s after the change", changed.elapsed().as_secs_f32());
    let peer = rig.daemon.peer("tor");
    let reason = peer["lastError"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("the key was changed here, and the peer does not use it"), "{peer}");
    assert_eq!(peer["sent"]["notification"], 0);
    assert_eq!(rig.tor.learned(), both, "the ToR has not noticed");

    // The ToR follows, and BIRD makes a new session for that.
    rig.tor.reconfigure("\"one\"", "\"two\"");
    wait_until("the session is up again", PATIENCE, || rig.daemon.peer("tor")["state"] == "Established");
    rig.wait_until_exact(&both);

    // Both, one a second after the other.
    let count = rig.daemon.peer("tor")["establishedCount"].as_u64().unwrap();
    fs::write(&file, "three\n").unwrap();
    wait_until("it has changed", PATIENCE, || rig.daemon.peer("tor")["sent"]["keepalive"].as_u64() > Some(1));
    rig.tor.reconfigure("\"two\"", "\"three\"");
    wait_until("the session is up with the third", PATIENCE, || {
        let peer = rig.daemon.peer("tor");
        peer["state"] == "Established" && peer["establishedCount"].as_u64() > Some(count)
    });
    rig.wait_until_exact(&both);
}

#[test]
fn rfc2385_a_change_of_our_key_resets_the_session_unless_the_router_follows() {
    rekey("key", None);
}

#[test]
fn rfc4724_so_it_does_with_graceful_restart() {
    rekey("keygr", Some("60s"));
}
