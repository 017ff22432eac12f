// SPDX-License-Identifier: Apache-2.0
//! A client of the kernel's family: one socket, in the network namespace of the thread that opens it.
//!
//! Input: commands and queries. Output: one result for each command, or values. Invariants: commands take effect in their order; what a query returns was
//! read in one piece, or read again; a future that is dropped half-way leaves the client usable. Speed: commands go in windows of many messages, of
//! which the kernel answers only those that it refuses, and a barrier at the end. Dumps cannot be bundled so, because a socket has one at a time (a second one is
//! `EBUSY`), and the kernel shows the servers of one service a dump.

mod refusal;
#[cfg(test)]
mod tests;

use std::io;

use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket};

use crate::command::{Command, Refusal};
use crate::entry::{ServerEntry, ServiceEntry, TableEntry};
use crate::service::ServiceAddress;
use crate::settings::{Info, SyncDaemon, Timeouts};
use crate::wire::{DecodeError, Frame, Frames, Message, Payload, Query, encode_barrier, encode_command, encode_family_query, encode_query};

/// Commands that go in one datagram. Were all of them refused, their answers must fit the socket's receive buffer, of which the kernel counts about 800
/// octets for each.
const WINDOW: usize = 128;
/// More than the kernel puts in one datagram.
const DATAGRAM: usize = 1 << 16;
/// How often a dump that the kernel calls interrupted is read.
const MAX_DUMPS: u32 = 8;

/// One socket to the kernel.
pub struct Client {
    socket: TokioSocket,
    family: u16,
    /// Number of the last request.
    sequence: u32,
    /// The dump whose end has not been read; before, the kernel takes no other.
    unfinished: Option<u32>,
    received: Vec<u8>,
}

/// Why nothing is known of what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel has no IPVS, and could not load it.
    #[error("the kernel has no IPVS (module ip_vs)")]
    NoIpvs,
    /// The socket could not be made.
    #[error("no generic-netlink socket")]
    Socket(#[source] io::Error),
    /// Nothing could be sent.
    #[error("cannot send to the kernel")]
    Send(#[source] io::Error),
    /// Answers were lost, as the receive buffer was full, or the socket failed. Commands may have taken effect: read the table again.
    #[error("cannot receive from the kernel")]
    Receive(#[source] io::Error),
    /// The kernel's answer is not understood.
    #[error("the kernel's answer is not understood")]
    Decode(#[from] DecodeError),
    /// The table changed whenever it was read.
    #[error("the table changed during each of {MAX_DUMPS} readings")]
    Interrupted,
    /// The kernel does not show it.
    #[error("the kernel does not show its table")]
    Refused(#[source] Refusal),
    /// The kernel closed its answer without having given one.
    #[error("the kernel gave no answer")]
    NoAnswer,
}

impl Client {
    /// Opens a socket in the current network namespace, and makes the kernel load IPVS where it can. To be called within a tokio runtime.
    ///
    /// # Errors
    /// [`Error::NoIpvs`] where the kernel has none.
    pub async fn connect() -> Result<Self, Error> {
        let socket = open().map_err(Error::Socket)?;
        let mut client = Self { socket, family: 0, sequence: 0, unfinished: None, received: Vec::with_capacity(DATAGRAM) };
        let sequence = client.next_number();
        let mut request = Vec::new();
        encode_family_query(&mut request, sequence);
        client.send(&request).await?;
        let mut family = None;
        while family.is_none() {
            client.receive().await?;
            for frame in client.frames() {
                match frame?.payload {
                    Payload::Family(number) => family = Some(number),
                    Payload::Acknowledged(Err(error)) if error.raw_os_error() == Some(libc::ENOENT) => return Err(Error::NoIpvs),
                    Payload::Acknowledged(Err(error)) => return Err(Error::Refused(refusal::of_query(error))),
                    _ => {}
                }
            }
        }
        client.family = family.unwrap_or_default();
        Ok(client)
    }

    /// Carries out commands in their order, and goes on after one that is refused. The results are in the same order.
    ///
    /// # Errors
    /// Where results are unknown, those that are known are lost with them; the table must be read again.
    pub async fn execute(&mut self, commands: &[Command]) -> Result<Vec<Result<(), Refusal>>, Error> {
        let mut results = Vec::with_capacity(commands.len());
        let mut datagram = Vec::new();
        for window in commands.chunks(WINDOW) {
            datagram.clear();
            let first = self.sequence.wrapping_add(1);
            for command in window {
                let sequence = self.next_number();
                encode_command(&mut datagram, self.family, sequence, command);
            }
            let last = self.next_number();
            encode_barrier(&mut datagram, last);
            self.send(&datagram).await?;
            results.extend(self.outcomes(window, first, last).await?);
        }
        Ok(results)
    }

    /// All services with their servers. Services are not read at one instant; one that is removed meanwhile may show no servers.
    pub async fn table(&mut self) -> Result<Vec<TableEntry>, Error> {
        let services = self.services().await?;
        let mut table = Vec::with_capacity(services.len());
        for service in services {
            let servers = self.servers(&service.service.address).await?;
            table.push(TableEntry { service, servers });
        }
        Ok(table)
    }

    /// All services, without their servers, in no particular order.
    pub async fn services(&mut self) -> Result<Vec<ServiceEntry>, Error> {
        self.dump(&Query::Services, |message| match message {
            Message::Service(entry) => Some(entry),
            _ => None,
        })
        .await
    }

    /// The servers of a service in the kernel's order, the one that was added last first; none where there is no such service.
    pub async fn servers(&mut self, service: &ServiceAddress) -> Result<Vec<ServerEntry>, Error> {
        self.dump(&Query::Servers(*service), |message| match message {
            Message::Server(entry) => Some(entry),
            _ => None,
        })
        .await
    }

    /// One service, if it is there.
    pub async fn service(&mut self, address: &ServiceAddress) -> Result<Option<ServiceEntry>, Error> {
        match self.ask(&Query::Service(*address)).await {
            Ok(Message::Service(entry)) => Ok(Some(entry)),
            Ok(_) => Err(Error::NoAnswer),
            Err(Error::Refused(Refusal::NoSuchService)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The synchronisation daemons that run.
    pub async fn daemons(&mut self) -> Result<Vec<SyncDaemon>, Error> {
        self.dump(&Query::Daemons, |message| match message {
            Message::Daemon(daemon) => Some(daemon),
            _ => None,
        })
        .await
    }

    /// The timeouts of connections.
    pub async fn timeouts(&mut self) -> Result<Timeouts, Error> {
        match self.ask(&Query::Timeouts).await? {
            Message::Timeouts(timeouts) => Ok(timeouts),
            _ => Err(Error::NoAnswer),
        }
    }

    /// Version of IPVS and size of its table of connections.
    pub async fn info(&mut self) -> Result<Info, Error> {
        match self.ask(&Query::Info).await? {
            Message::Info(info) => Ok(info),
            _ => Err(Error::NoAnswer),
        }
    }

    /// What became of a window of commands.
    async fn outcomes(&mut self, window: &[Command], first: u32, last: u32) -> Result<Vec<Result<(), Refusal>>, Error> {
        let mut results: Vec<_> = window.iter().map(|_| Ok(())).collect();
        loop {
            self.receive().await?;
            for frame in self.frames() {
                let Frame { sequence, payload: Payload::Acknowledged(outcome), .. } = frame? else { continue };
                if sequence == last {
                    return Ok(results);
                }
                let at = usize::try_from(sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
                if let (Some(result), Some(command)) = (results.get_mut(at), window.get(at)) {
                    *result = outcome.map_err(|error| refusal::of_command(command, error));
                }
            }
        }
    }

    /// The values that a dump shows; it is read again where the kernel says that the table changed meanwhile.
    async fn dump<T>(&mut self, query: &Query, pick: impl Fn(Message) -> Option<T>) -> Result<Vec<T>, Error> {
        for _ in 0..MAX_DUMPS {
            let mut values = Vec::new();
            if self.dump_once(query, |message| values.extend(pick(message))).await? == Reading::Whole {
                return Ok(values);
            }
        }
        Err(Error::Interrupted)
    }

    async fn dump_once(&mut self, query: &Query, mut take: impl FnMut(Message)) -> Result<Reading, Error> {
        self.finish().await?;
        let sequence = self.request(query).await?;
        self.unfinished = Some(sequence);
        let mut reading = Reading::Whole;
        while self.unfinished.is_some() {
            self.receive().await?;
            // All of the datagram is looked at, also after an error: its end may be the end of the dump.
            let mut outcome = Ok(());
            let mut over = false;
            for frame in self.frames() {
                match frame {
                    Ok(frame) if frame.sequence != sequence => {}
                    Ok(Frame { interrupted, payload, .. }) => {
                        if interrupted {
                            reading = Reading::Interrupted;
                        }
                        match payload {
                            Payload::Message(message) => take(message),
                            Payload::Done(Ok(())) => over = true,
                            Payload::Done(Err(error)) | Payload::Acknowledged(Err(error)) => {
                                over = true;
                                outcome = Err(Error::Refused(refusal::of_query(error)));
                            }
                            Payload::Acknowledged(Ok(())) | Payload::Family(_) | Payload::Nothing => {}
                        }
                    }
                    Err(error) => outcome = Err(error.into()),
                }
            }
            if over {
                self.unfinished = None;
            }
            outcome?;
        }
        Ok(reading)
    }

    /// Reads the rest of a dump that nobody waited for.
    async fn finish(&mut self) -> Result<(), Error> {
        while let Some(sequence) = self.unfinished {
            self.receive().await?;
            let over = self
                .frames()
                .flatten()
                .any(|frame| frame.sequence == sequence && matches!(frame.payload, Payload::Done(_) | Payload::Acknowledged(Err(_))));
            if over {
                self.unfinished = None;
            }
        }
        Ok(())
    }

    /// The one message that answers a query.
    async fn ask(&mut self, query: &Query) -> Result<Message, Error> {
        self.finish().await?;
        let sequence = self.request(query).await?;
        loop {
            self.receive().await?;
            for frame in self.frames() {
                let frame = frame?;
                match frame.payload {
                    _ if frame.sequence != sequence => {}
                    Payload::Message(message) => return Ok(message),
                    Payload::Acknowledged(Err(error)) => return Err(Error::Refused(refusal::of_query(error))),
                    _ => return Err(Error::NoAnswer),
                }
            }
        }
    }

    async fn request(&mut self, query: &Query) -> Result<u32, Error> {
        let sequence = self.next_number();
        let mut datagram = Vec::new();
        encode_query(&mut datagram, self.family, sequence, query);
        self.send(&datagram).await?;
        Ok(sequence)
    }

    const fn next_number(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    async fn send(&self, datagram: &[u8]) -> Result<(), Error> {
        self.socket.send(datagram).await.map(|_octets| ()).map_err(Error::Send)
    }

    /// Waits for the next datagram.
    async fn receive(&mut self) -> Result<(), Error> {
        self.received.clear();
        self.received.reserve(DATAGRAM);
        self.socket.recv(&mut self.received).await.map_err(Error::Receive)
    }

    const fn frames(&self) -> Frames<'_> {
        Frames::new(self.received.as_slice())
    }
}

/// Whether a dump showed one state of the table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Reading {
    Whole,
    Interrupted,
}

/// A socket that speaks with the kernel only. A refusal does not repeat the request.
fn open() -> io::Result<TokioSocket> {
    let mut socket = TokioSocket::new(NETLINK_GENERIC)?;
    let inner = socket.socket_mut();
    inner.bind_auto()?;
    inner.connect(&SocketAddr::new(0, 0))?;
    inner.set_cap_ack(true)?;
    Ok(socket)
}
