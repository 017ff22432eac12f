// SPDX-License-Identifier: Apache-2.0
//! A neighbour that has stopped reading (RFC 9687).

use super::*;

#[test]
fn rfc9687_4_who_reads_nothing_within_the_send_hold_time_is_given_up_and_nobody_else_is() {
    const SEND_HOLD: Duration = Duration::from_secs(1);
    let (deaf, reader) = (FakePeer::listening(), FakePeer::listening());
    deaf.shrink_receive_buffer();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    let timed = |fake: &FakePeer| DesiredPeer { send_hold_time: Some(SEND_HOLD), ..neighbour(fake.address()) };
    speaker.configure(desired([("deaf", timed(&deaf)), ("reader", timed(&reader))]));
    let mut stuck = deaf.establish(OUR_AS);
    stuck.expect_empty_table();
    let mut conversation = reader.establish(OUR_AS);
    conversation.expect_empty_table();
    wait_for(&speaker, |status| is_up(status, "deaf") && is_up(status, "reader"));

    let start = Instant::now();
    speaker.advertise(many(100_000));
    let mut told = 0;
    while told < 100_000 {
        told += conversation.expect_update().announced.len();
    }
    let status = wait_for(&speaker, |status| peer(status, "deaf").failures.transport > 0);
    assert!(start.elapsed() >= SEND_HOLD);
    assert_eq!(last_error(&status, "deaf"), "Send Hold Timer Expired (8/0): the peer did not read what it was sent");
    assert_eq!((is_up(&status, "reader"), peer(&status, "reader").counters.established), (true, 1), "{}", last_error(&status, "reader"));
    drop(stuck);
}
