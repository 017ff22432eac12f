// SPDX-License-Identifier: Apache-2.0
//! What an operator reads of a session that does not come up: the cause, and not only that the peer refuses connections.

use serde_json::json;

use crate::common::wait_until;
use crate::inspect::{told, vipherald};
use crate::rig::{PATIENCE, Rig, Settings, vips};

/// What `vipherald show peer tor` says behind these words, once it is there.
fn line(rig: &Rig, name: &str) -> String {
    let output = vipherald(rig, "show peer tor");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map(|line| line.trim().to_owned()).unwrap_or_default()
}

#[test]
fn the_cause_is_told_though_the_peer_refuses_connections_afterwards() {
    let rig = Rig::serving("cause", Settings::default(), &vips(["10.1.0.1"]));
    rig.tor.reconfigure("local 10.99.0.2 as 65001", "local 10.99.0.2 as 65009");
    let cause = "sent NOTIFICATION OPEN Message Error/Bad Peer AS: the peer is in AS 65009, not in 65001 as configured";
    wait_until("our NOTIFICATION", PATIENCE, || line(&rig, "Last error:").starts_with(cause));
    rig.tor.kill();
    wait_until("refused connections", PATIENCE, || rig.daemon.peer("tor")["lastAttemptError"]["count"].as_u64() > Some(2));
    let peer = rig.daemon.peer("tor");
    assert_eq!((&peer["lastError"]["reason"], &peer["lastAttemptError"]["reason"]), (&json!(cause), &json!("connection refused")));
    assert!(peer["lastError"]["at"].is_string() && peer["lastAttemptError"]["at"].is_string(), "{peer}");
    assert_eq!(peer["lastError"]["notification"]["subcode"], 2);
    let (error, attempt) = (line(&rig, "Last error:"), line(&rig, "Last attempt:"));
    assert!(error.starts_with(cause) && error.contains("s ago"), "{error}");
    assert!(attempt.starts_with("connection refused (") && attempt.contains(" times, last "), "{attempt}");
    let table = told(&rig, "show peers");
    assert!(table.contains(cause) && table.contains(" ago); since then connection refused ("), "{table}");

    let warned: Vec<String> = rig.daemon.logged("BGP session does not come up");
    for reason in ["Bad Peer AS", "connection refused"] {
        assert_eq!(warned.iter().filter(|line| line.contains(reason) && line.contains("WARN")).count(), 1, "{reason}: {warned:#?}");
    }
}

#[test]
fn rfc5082_where_only_we_have_ttl_security_the_operator_reads_what_to_check() {
    let rig = Rig::running("gtsm", Settings { of_peers: ", ttlSecurity: {hops: 1}", ..Settings::default() }, &vips(["10.1.0.1"]));
    // BIRD's kernel answers the SYN and takes our OPEN with TTL 255, and all that follows comes with TTL 1.
    let hint = "the peer has not answered our OPEN; packets were dropped here because their TTL was too low: a peer with ttlSecurity has to \
                send with TTL 255 (GTSM, RFC 5082), and may be 1 hops away at most";
    wait_until("the hint", PATIENCE, || line(&rig, "Warning:").ends_with(hint));
    assert_eq!(line(&rig, "Transport:"), "no signature, TTL security, 1 hops at most (RFC 5082)");
    assert!(line(&rig, "State:").starts_with("OpenSent"));
    rig.tor.reconfigure("  direct;", "  direct;\n  ttl security on;");
    told(&rig, "peer reset tor");
    wait_until("the session", PATIENCE, || rig.daemon.peer("tor")["state"] == "Established");
    assert_eq!(line(&rig, "Warning:"), "");
}

#[test]
fn rfc5082_where_only_the_peer_has_ttl_security_the_operator_reads_what_to_check() {
    let mut rig = Rig::new("gtsm-peer");
    rig.tor.reconfigure("  direct;", "  direct;\n  ttl security on;");
    rig.daemon.publish(&vips(["10.1.0.1"]));
    rig.daemon.start(&rig.node);
    // Its daemon has our OPEN before it sets the option; so that the session comes up here, and nothing follows.
    let hint = "sent NOTIFICATION Hold Timer Expired: nothing was heard within the hold time; its BGP may hang, packets may be lost on the way, \
                or it may have GTSM (RFC 5082) and drop what comes with a lower TTL than 255: then ttlSecurity is needed here too (";
    wait_until("the hint", PATIENCE, || line(&rig, "Last error:").starts_with(hint));
    assert_eq!(line(&rig, "Transport:"), "no signature, TTL of the system");
    rig.daemon.settings.of_peers = ", ttlSecurity: {hops: 1}";
    rig.daemon.write_config();
    // It does not hear that its connection is closed either, and where it has not heard our OPEN it refuses others for four minutes.
    rig.tor.restart();
    wait_until("the session", PATIENCE, || rig.daemon.peer("tor")["state"] == "Established");
}
