// SPDX-License-Identifier: Apache-2.0
//! A neighbour that asks for everything again and again (RFC 2918).

use std::thread;

use bgp::wire::RouteRefresh;

use super::*;

#[test]
fn rfc2918_a_flood_of_refreshes_is_answered_a_few_times_and_costs_no_other_session() {
    const ROUTES: u32 = 100_000;
    const HOLD: Duration = Duration::from_secs(3);
    /// 64 KiB of them.
    const FLOOD: usize = 64 * 1024 / 23;
    /// Each may begin before the next part of the flood is read.
    const ANSWERS: usize = 8;

    let (flooder, brisk) = (FakePeer::listening(), FakePeer::listening());
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.advertise(many(ROUTES));
    let v4 = |fake: &FakePeer| DesiredPeer { families: BTreeSet::from([Family::Ipv4Unicast]), ..neighbour(fake.address()) };
    speaker.configure(desired([("flooder", v4(&flooder)), ("brisk", v4(&brisk))]), None);
    let mut other = brisk.accept();
    let theirs = other.expect_open();
    other.establish_as(&Open { hold_time: HoldTime::from_secs(3).unwrap(), ..open(OUR_AS) }, &theirs);
    let (over, ended) = std::sync::mpsc::channel::<()>();
    let other = thread::spawn(move || {
        let (mut heard, mut silence) = (Instant::now(), Duration::ZERO);
        while ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            let said = Instant::now();
            other.send(&Message::Keepalive);
            while said.elapsed() < Duration::from_millis(500) {
                let message = other.next_within(Duration::from_millis(500));
                silence = silence.max(heard.elapsed());
                if message.is_some() {
                    heard = Instant::now();
                }
            }
        }
        (other, silence)
    });

    let all = usize::try_from(ROUTES).unwrap();
    let mut conversation = flooder.establish(OUR_AS);
    let mut told = 0;
    while told < all {
        told += conversation.expect_update().announced.len();
    }
    assert_eq!(conversation.expect_update().is_end_of_rib(), Some(Family::Ipv4Unicast));
    let status = wait_for(&speaker, |status| peer(status, "flooder").advertised == all);
    let once = peer(&status, "flooder").counters.sent.update;
    conversation.send_octets(&RouteRefresh::request(Family::Ipv4Unicast).encode().repeat(FLOOD));
    // While the flooder reads nothing, what is made for it is no more than one answer, and what its socket takes of the next.
    let received = u64::try_from(FLOOD).unwrap();
    poll("the whole flood", || peer(&speaker.status(), "flooder").counters.received.route_refresh == received);
    let status = speaker.status();
    assert!(peer(&status, "flooder").counters.sent.update <= once * u64::try_from(1 + ANSWERS).unwrap());
    let mut again = 0;
    while again < all {
        again += conversation.expect_update().announced.len();
    }
    while let Some(message) = conversation.next_within(Duration::from_secs(1)) {
        if let Message::Update(update) = message {
            again += update.announced.len();
        }
        assert!(again <= ANSWERS * all, "{again} routes");
    }
    drop(over);
    let (_other, silence) = other.join().unwrap();
    assert!(silence < HOLD, "a hold timer would have expired: nothing was heard for {silence:?}");
    let status = speaker.status();
    for name in ["flooder", "brisk"] {
        assert_eq!((is_up(&status, name), peer(&status, name).counters.established), (true, 1), "{}", last_error(&status, name));
    }
    assert_eq!(peer(&status, "flooder").counters.received.route_refresh, u64::try_from(FLOOD).unwrap());
}
