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
    speaker.configure(desired([("deaf", timed(&deaf)), ("reader", timed(&reader))]), None);
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
    assert_eq!(
        last_error(&status, "deaf"),
        "Send Hold Timer Expired (8/0): the peer has taken nothing of what it was sent: it does not read, or nothing reaches it"
    );
    assert_eq!((is_up(&status, "reader"), peer(&status, "reader").counters.established), (true, 1), "{}", last_error(&status, "reader"));
    drop(stuck);
}

#[test]
fn rfc9687_4_who_takes_nothing_is_given_up_though_the_kernel_has_taken_all_that_there_is_to_tell() {
    const SEND_HOLD: Duration = Duration::from_secs(1);
    let deaf = FakePeer::listening();
    deaf.shrink_receive_buffer();
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(set([]));
    speaker.configure(desired([("deaf", DesiredPeer { send_hold_time: Some(SEND_HOLD), ..neighbour(deaf.address()) })]), None);
    let mut stuck = deaf.establish(OUR_AS);
    stuck.expect_empty_table();
    wait_for(&speaker, |status| is_up(status, "deaf"));
    poll("nothing is outstanding", || peer(&speaker.status(), "deaf").timers.send_hold.is_none());

    let start = Instant::now();
    // More than the peer's host has room for, and far less than our own has.
    speaker.advertise(many(3000));
    let status = wait_for(&speaker, |status| peer(status, "deaf").failures.transport > 0);
    assert!(start.elapsed() >= SEND_HOLD);
    assert_eq!(
        last_error(&status, "deaf"),
        "Send Hold Timer Expired (8/0): the peer has taken nothing of what it was sent: it does not read, or nothing reaches it"
    );
    drop(stuck);
}

#[test]
fn rfc9687_3_3_who_reads_slowly_and_steadily_keeps_its_session() {
    const SEND_HOLD: Duration = Duration::from_secs(2);
    // Our own buffers are full long before the end: what the speaker has written last takes longer than the send hold time to get into them.
    const OCTETS: usize = 160 * 1024;
    let slow = FakePeer::listening();
    slow.set_receive_buffer(16 * 1024);
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(many(100_000));
    speaker.configure(desired([("slow", DesiredPeer { send_hold_time: Some(SEND_HOLD), ..neighbour(slow.address()) })]), None);
    let mut conversation = slow.establish(OUR_AS);
    wait_for(&speaker, |status| is_up(status, "slow"));
    let (start, mut read) = (Instant::now(), 0);
    while read < OCTETS {
        read += conversation.swallow(4096);
        // As fast as a peer at 20 kB/s.
        std::thread::sleep(Duration::from_millis(200));
        let status = speaker.status();
        assert!(is_up(&status, "slow"), "after {:?} and {read} octets: {}", start.elapsed(), last_error(&status, "slow"));
    }
    assert!(start.elapsed() > 3 * SEND_HOLD);
}
