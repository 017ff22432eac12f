// SPDX-License-Identifier: Apache-2.0
//! Connections on which the peer, or its whole host, says nothing.

use super::*;

#[test]
fn a_host_that_is_gone_before_the_session_is_up_is_noticed_without_a_hold_timer() {
    let (unheard, heard) = (FakePeer::listening(), FakePeer::listening());
    let speaker = Speaker::spawn("vipherald", 1).unwrap();
    speaker.configure(desired([("unheard", neighbour(unheard.address())), ("heard", neighbour(heard.address()))]));
    let mut in_open_sent = unheard.accept();
    in_open_sent.expect_open();
    let mut in_open_confirm = heard.accept();
    let theirs = in_open_confirm.expect_open();
    in_open_confirm.answer(&open(OUR_AS), &theirs);
    assert_eq!(in_open_confirm.next(), Some(Message::Keepalive));
    let status = wait_for(&speaker, |status| peer(status, "heard").state == State::OpenConfirm);
    assert_eq!((peer(&status, "unheard").state, peer(&status, "heard").hold_time), (State::OpenSent, Some(HoldTime::ZERO)));
    in_open_sent.forget();
    in_open_confirm.forget();
    for (name, fake) in [("unheard", &unheard), ("heard", &heard)] {
        let _conversation = fake.establish(OUR_AS);
        wait_for(&speaker, |status| is_up(status, name));
    }
}
