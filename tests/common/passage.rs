// SPDX-License-Identifier: Apache-2.0
//! A way for TCP out of a namespace of a test to a server of the machine itself, at the address that the server has.
//!
//! Input: a namespace and an address of 127.0.0.1. Output: whoever connects to that address in the namespace reaches the server outside. Invariants: no link
//! and no route is made; where the server refuses or closes, so does the passage.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::common::Namespace;

/// See the module. Dropping it closes it for new connections.
pub(crate) struct Passage {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// To wake the thread.
    entrance: Box<dyn Fn() + Send + Sync>,
}

impl Passage {
    /// Opens one. A socket belongs to the namespace in which it was made, whoever uses it.
    pub(crate) fn open(namespace: &Namespace, server: SocketAddr) -> Self {
        let listener = namespace.run(|| TcpListener::bind(server).unwrap());
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let thread = thread::spawn(move || {
            for client in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                if let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) {
                    carry(&client, &server);
                    carry(&server, &client);
                }
            }
        });
        let name = namespace.name().to_owned();
        let entrance = Box::new(move || drop(crate::common::inside(&name, || TcpStream::connect(server))));
        Self { over, thread: Some(thread), entrance }
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        (self.entrance)();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Carries octets one way until one of both ends it.
fn carry(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        drop(std::io::copy(&mut from, &mut to));
        // Both directions: what is half closed is of no use to HTTP.
        drop((from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both)));
    });
}
