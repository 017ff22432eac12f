// SPDX-License-Identifier: Apache-2.0
//! Serves HTTP to whoever can reach the address, without letting them use up what BGP and the kernel need.
//!
//! Input: a listener and a router. Invariants: at most [`MOST`] connections are open; one more ends the oldest, so that a probe is always answered;
//! a client that does not send its request in time, or does not take its answer, is cut off.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Scrapers and probes are a handful.
const MOST: usize = 32;
/// From the first octet of a request to the end of its header.
const HEADER_TIME: Duration = Duration::from_secs(5);
/// The life of a connection.
const LIFE: Duration = Duration::from_secs(60);
/// After a failure to accept, such as too many open files.
const REST: Duration = Duration::from_millis(100);

/// Serves until the future is dropped.
pub(super) async fn serve(listener: TcpListener, router: Router) -> io::Result<()> {
    let mut open: VecDeque<Connection> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(REST).await;
            continue;
        };
        open.retain(|connection| !connection.0.is_finished());
        if open.len() >= MOST {
            open.pop_front();
        }
        open.push_back(Connection(tokio::spawn(converse(stream, router.clone()))));
    }
}

/// Ends when it is dropped.
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn converse(stream: TcpStream, router: Router) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME);
    let conversation = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // How it ended is the client's concern.
    tokio::time::timeout(LIFE, conversation).await.ok();
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn many_silent_clients_keep_nobody_from_an_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(listener, Router::new().route("/", get(async || "here"))));
        let mut silent = Vec::new();
        for _ in 0..3 * MOST {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(b"GET / HT").await.unwrap();
            silent.push(client);
        }
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("here"), "{answer}");
        let cut_off = silent.first_mut().unwrap().read(&mut [0; 64]).await;
        assert!(!cut_off.is_ok_and(|octets| octets > 0), "the oldest is cut off");
        server.abort();
    }
}
