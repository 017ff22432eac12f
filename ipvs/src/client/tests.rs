// SPDX-License-Identifier: Apache-2.0
//! Dumps that are interrupted, which no test can make the kernel do: somebody on another netlink socket stands in for it.

use std::convert::Infallible;

use netlink_packet_core::{NLM_F_DUMP_INTR, NLM_F_MULTIPART, NLMSG_DONE};
use netlink_sys::protocols::NETLINK_USERSOCK;

use super::*;
use crate::settings::SyncRole;

const FAMILY: u16 = 0x20;

/// Two sockets that speak with each other; within a runtime.
fn pair() -> (TokioSocket, TokioSocket) {
    let [mut one, mut other] = [0; 2].map(|_| TokioSocket::new(NETLINK_USERSOCK).unwrap());
    let address = other.socket_mut().bind_auto().unwrap();
    one.socket_mut().bind_auto().unwrap();
    one.socket_mut().connect(&address).unwrap();
    (one, other)
}

/// Answers each dump with one daemon, whose id is the number of the dump from 1 on. The dump of this number is whole, if any; all others are interrupted,
/// in the middle or at the end, by turns.
async fn answer(kernel: TokioSocket, whole: Option<u32>) -> Infallible {
    let mut dump = 0;
    loop {
        dump += 1;
        let (request, client) = kernel.recv_from_full().await.unwrap();
        let sequence = u32::from_ne_bytes(request[8..12].try_into().unwrap());
        let flag = |here: bool| NLM_F_MULTIPART | if here && whole != Some(dump) { NLM_F_DUMP_INTR } else { 0 };
        let shown = framed(FAMILY, flag(dump % 2 == 1), sequence, &Message::Daemon(daemon(dump)).encode());
        let end = framed(NLMSG_DONE, flag(dump % 2 == 0), sequence, &0_i32.to_ne_bytes());
        for datagram in [shown, end] {
            kernel.send_to(&datagram, &client).await.unwrap();
        }
    }
}

fn daemon(sync_id: u32) -> SyncDaemon {
    SyncDaemon { role: SyncRole::Master, interface: "eth0".to_owned(), sync_id, max_length: None, group: None, port: None, ttl: None }
}

fn framed(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(16 + body.len()).unwrap().to_ne_bytes();
    [&length[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &sequence.to_ne_bytes(), &[0; 4], body].concat()
}

fn daemons(whole: Option<u32>) -> Result<Vec<SyncDaemon>, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (socket, kernel) = pair();
        let mut client = Client { socket, family: FAMILY, sequence: 0, unfinished: None, received: Vec::new() };
        tokio::select! {
            outcome = client.daemons() => outcome,
            never = answer(kernel, whole) => match never {},
        }
    })
}

#[test]
fn an_interrupted_dump_is_read_again_and_nothing_of_it_is_kept() {
    for whole in 1..=MAX_DUMPS {
        assert_eq!(daemons(Some(whole)).unwrap(), [daemon(whole)]);
    }
}

#[test]
fn a_table_that_changes_all_the_time_is_an_error() {
    assert!(matches!(daemons(None), Err(Error::Interrupted)));
}
