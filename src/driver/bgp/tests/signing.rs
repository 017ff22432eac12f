// SPDX-License-Identifier: Apache-2.0
//! What is demanded of signatures is had, or there is no session: TCP-AO (RFC 5925), on whichever kernel this is.

use super::*;
use crate::desired::{AoAlgorithm, AoKey};

/// The peer of the test signs nothing. A kernel without TCP-AO says so; one with it takes no unsigned answer.
#[test]
fn rfc5925_7_3_a_peer_that_is_to_sign_is_never_spoken_to_without() {
    let directory = tempfile::tempdir().unwrap();
    let password_file = directory.path().join("key");
    std::fs::write(&password_file, "secret\n").unwrap();
    let fake = FakePeer::listening();
    let key = AoKey { send_id: 1, recv_id: 1, algorithm: AoAlgorithm::HmacSha1, password_file };
    let speaker = Speaker::spawn(1).unwrap();
    let transport = Transport { ao_keys: vec![key.clone()], ..Transport::default() };
    speaker.configure(desired([("tor", DesiredPeer { transport, ..neighbour(fake.address()) })]));
    let available = sys::has_tcp_ao().unwrap();
    let lacks = "this kernel lacks TCP-AO (CONFIG_TCP_AO, Linux 6.7 and newer)";
    let expected = if available { "did not answer" } else { lacks };
    let status = wait_for(&speaker, |status| last_error(status, "tor").contains(expected));
    assert_eq!(peer(&status, "tor").warning.as_deref(), (!available).then_some(lacks));
    assert!(fake.accept_within(Duration::from_millis(200)).is_none(), "a connection without a signature");

    let missing = AoKey { send_id: 2, recv_id: 2, password_file: directory.path().join("missing"), ..key };
    let transport = Transport { ao_keys: vec![key, missing], ..Transport::default() };
    speaker.configure(desired([("tor", DesiredPeer { transport, ..neighbour(fake.address()) })]));
    let expected = if available { "no TCP-AO key in" } else { lacks };
    wait_for(&speaker, |status| last_error(status, "tor").contains(expected));
    assert!(fake.accept_within(Duration::from_millis(1200)).is_none(), "a connection without a signature");
}
