// SPDX-License-Identifier: Apache-2.0
//! One TCP connection to a peer, as octets: what is to be written, what arrived, how much the peer's host has acknowledged, and whether it has our key.
//!
//! Input: messages to send, in order. Output: what happens, one [`Happening`] at a time. Nothing here blocks: a peer that reads slowly only makes the
//! list of unwritten messages last longer, and that list is bounded by its caller, who adds UPDATEs only after [`Happening::Drained`].

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use bgp::wire::{Cease, Notification};
use bytes::{Buf as _, Bytes, BytesMut};
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::fatal_panics;
use super::signature::Signature;
use super::socket::OptionError;
use super::words::Loss;

/// Octets read in one go, so that a peer that sends without pause does not keep the task from its other duties.
const READ_SIZE: usize = 64 * 1024;
/// How long a closed connection may take to deliver its last octets.
const LINGER: Duration = Duration::from_secs(2);
/// How long a peer may take to come to another key. With the second after which a file is read again, a session is re-keyed or reset within five. TCP sends
/// the octets that were not acknowledged again after 0.2, 0.6, 1.4 and 3 seconds.
const KEY_PATIENCE: Duration = Duration::from_millis(3500);

/// What happened on a connection.
#[derive(Debug)]
pub(super) enum Happening {
    /// Octets of the peer.
    Received(Bytes),
    /// Everything that was to be sent is in the kernel.
    Drained,
    /// Neither side can use it any more.
    Lost(Loss),
}

/// A connection in use.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    unwritten: VecDeque<Bytes>,
    /// Octets that the kernel took.
    written: u64,
    drained: bool,
    write_error: Option<io::Error>,
    poll: Option<Poll>,
    acknowledged: u64,
    /// What signs it.
    signature: Option<Signature>,
    proof: Option<Proof>,
}

/// The key was changed on this side: something signed with the new one has to come.
#[derive(Debug)]
struct Proof {
    by: Instant,
    /// Segments that had come before.
    segments: u32,
}

/// When the kernel is asked next how much is acknowledged.
#[derive(Debug)]
struct Poll {
    pace: Pace,
    at: Instant,
    interval: Duration,
}

/// How soon it has to be known what the peer's host has acknowledged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pace {
    /// A VIP that is to go waits for it.
    Urgent,
    /// The send hold timer alone goes by it.
    Calm,
}

impl Pace {
    /// Between two looks at the kernel's count while there is progress, and at most.
    const fn intervals(self) -> (Duration, Duration) {
        match self {
            Self::Urgent => (Duration::from_millis(1), Duration::from_millis(50)),
            Self::Calm => (Duration::from_millis(100), Duration::from_secs(1)),
        }
    }
}

/// So many connections may take their time to end before more of them are closed without a word.
const REFUSALS: usize = 8;

/// Tells who has dialled that the connection is not wanted (RFC 4486 §4). One that dials without pause is told so a few times each two seconds.
pub(super) fn refuse(closing: &mut JoinSet<()>, stream: TcpStream, cease: Cease) {
    if closing.len() < REFUSALS {
        let mut connection = Connection::new(stream);
        connection.send(Notification::cease(cease).encode());
        closing.spawn(fatal_panics(connection.close()));
    }
}

impl Connection {
    pub(super) const fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            unwritten: VecDeque::new(),
            written: 0,
            drained: false,
            write_error: None,
            poll: None,
            acknowledged: 0,
            signature: None,
            proof: None,
        }
    }

    /// As it was signed from the beginning.
    pub(super) fn signed(self, signature: Option<Signature>) -> Self {
        Self { signature, ..self }
    }

    /// Signs it with this from now on. Says whether that is another key than before: then something has to be sent, which the peer's host acknowledges
    /// where it has the same one.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(super) fn sign(&mut self, signature: &Signature, now: Instant) -> Result<bool, OptionError> {
        let Ok(peer) = self.stream.peer_addr() else { return Ok(false) };
        signature.put(&self.stream, peer.ip())?;
        if self.signature.as_ref() == Some(signature) {
            return Ok(false);
        }
        self.signature = Some(signature.clone());
        self.proof = sys::segments_received(self.stream.as_fd()).ok().map(|segments| Proof { by: now + KEY_PATIENCE, segments });
        Ok(true)
    }

    /// Why it is of no use any more, when the time is over in which the peer had to use the new key. It then ends with a reset, for which the socket is made ready.
    pub(super) fn unproven(&mut self, now: Instant) -> Option<Loss> {
        let Proof { segments, .. } = self.proof.take_if(|proof| proof.by <= now)?;
        if sys::segments_received(self.stream.as_fd()).is_ok_and(|received| received != segments) {
            return None;
        }
        // What is unsent nobody would take.
        SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).ok();
        let patience = KEY_PATIENCE.as_secs_f32();
        let reason =
            format!("the key was changed here, and the peer does not use it: nothing signed with the new one came within {patience}s");
        Some(Loss { reason, timed_out: false })
    }

    /// Our end of it.
    pub(super) fn local(&self) -> Option<SocketAddr> {
        self.stream.local_addr().ok()
    }

    /// The peer's end of it; `None` where it has just been lost.
    pub(super) fn remote(&self) -> Option<SocketAddr> {
        self.stream.peer_addr().ok()
    }

    /// Our end of it, and the peer's.
    pub(super) fn endpoints(&self) -> Option<(SocketAddr, SocketAddr)> {
        Some((self.stream.local_addr().ok()?, self.stream.peer_addr().ok()?))
    }

    /// The socket, for its options.
    pub(super) const fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// Writes the octets now, or when the kernel takes them.
    pub(super) fn send(&mut self, octets: Bytes) {
        if self.write_error.is_none() && !octets.is_empty() {
            self.unwritten.push_back(octets);
            self.drained = false;
            self.flush();
        }
    }

    /// Whether the kernel takes nothing at present.
    pub(super) fn is_stuck(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Waits for the next happening. Cancelling the wait loses nothing.
    pub(super) async fn next(&mut self) -> Happening {
        loop {
            if self.drained {
                self.drained = false;
                return Happening::Drained;
            }
            if let Some(error) = &self.write_error {
                // What the peer said before it closed, a NOTIFICATION perhaps, is still to be read.
                let loss = Loss::from(error);
                return self.read().unwrap_or(Happening::Lost(loss));
            }
            let interest = if self.unwritten.is_empty() { Interest::READABLE } else { Interest::READABLE | Interest::WRITABLE };
            match self.stream.ready(interest).await {
                Err(error) => return Happening::Lost(Loss::from(&error)),
                Ok(ready) => {
                    if ready.is_writable() && !self.unwritten.is_empty() {
                        self.flush();
                    }
                    if ready.is_readable()
                        && let Some(happening) = self.read()
                    {
                        return happening;
                    }
                }
            }
        }
    }

    /// Asks the kernel at this pace how much is acknowledged, or not at all.
    pub(super) fn watch_acknowledgements(&mut self, pace: Option<Pace>, now: Instant) {
        if self.poll.as_ref().map(|poll| poll.pace) != pace {
            self.poll = pace.map(|pace| {
                let (interval, _) = pace.intervals();
                Poll { pace, at: now + interval, interval }
            });
        }
    }

    /// What is acknowledged is to be known now.
    pub(super) fn expedite(&mut self, now: Instant) {
        if let Some(poll) = &mut self.poll {
            poll.at = poll.at.min(now);
        }
    }

    /// When [`acknowledged`](Self::acknowledged) or [`unproven`](Self::unproven) is due; never at rest.
    pub(super) fn poll_at(&self) -> Option<Instant> {
        self.poll.iter().map(|poll| poll.at).chain(self.proof.iter().map(|proof| proof.by)).min()
    }

    /// How many octets of the connection the peer's host has acknowledged in total, when it is due and more than last time.
    pub(super) fn acknowledged(&mut self, now: Instant) -> Option<u64> {
        let poll = self.poll.as_mut().filter(|poll| poll.at <= now)?;
        let outstanding = sys::unacknowledged_octets(self.stream.as_fd()).ok()?;
        let acknowledged = self.written.saturating_sub(outstanding.into());
        let progress = acknowledged > self.acknowledged;
        let (least, most) = poll.pace.intervals();
        poll.interval = if progress { least } else { (poll.interval * 2).min(most) };
        poll.at = now + poll.interval;
        self.acknowledged = self.acknowledged.max(acknowledged);
        progress.then_some(acknowledged)
    }

    /// Ends it in order: writes what is left, says so to the peer, and reads on until the peer has closed too, so that no reset overtakes the last
    /// message. Gives up after two seconds.
    pub(super) async fn close(mut self) {
        let farewell = async {
            while let Some(octets) = self.unwritten.pop_front() {
                self.stream.write_all(&octets).await?;
            }
            self.stream.shutdown().await?;
            let mut rest = BytesMut::with_capacity(READ_SIZE);
            while self.stream.read_buf(&mut rest).await? > 0 {
                rest.clear();
            }
            io::Result::Ok(())
        };
        match timeout(LINGER, farewell).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the connection ended before its last octets were acknowledged"),
            Err(_) => tracing::debug!("the peer has not closed its side"),
        }
    }

    /// Writes as much as the kernel takes.
    fn flush(&mut self) {
        while let Some(front) = self.unwritten.front_mut() {
            match self.stream.try_write(front) {
                Ok(count) => {
                    self.written = self.written.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
                    front.advance(count);
                    if front.is_empty() {
                        self.unwritten.pop_front();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.unwritten.clear();
                    self.write_error = Some(error);
                    return;
                }
            }
        }
        self.drained = true;
    }

    /// Reads once; `None` where nothing is there.
    fn read(&mut self) -> Option<Happening> {
        let mut buffer = BytesMut::with_capacity(READ_SIZE);
        match self.stream.try_read_buf(&mut buffer) {
            Ok(0) => Some(Happening::Lost(Loss { reason: "the peer closed the connection".to_owned(), timed_out: false })),
            Ok(_) => Some(Happening::Received(buffer.freeze())),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => None,
            Err(error) => Some(Happening::Lost(Loss::from(&error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    async fn pair() -> (Connection, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        SockRef::from(&stream).set_send_buffer_size(4096).unwrap();
        let (far, _) = listener.accept().unwrap();
        far.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        (Connection::new(stream), far)
    }

    async fn next(connection: &mut Connection) -> Happening {
        timeout(Duration::from_secs(30), connection.next()).await.unwrap()
    }

    #[tokio::test]
    async fn drained_only_when_everything_is_in_the_kernel_and_acknowledged_only_when_it_arrived() {
        let (mut connection, mut far) = pair().await;
        const TOTAL: usize = 8 << 20;
        for _ in 0..TOTAL / 65_536 {
            connection.send(Bytes::from(vec![7; 65_536]));
        }
        assert!(timeout(Duration::from_millis(50), connection.next()).await.is_err(), "drained, though nobody reads");
        let reader = std::thread::spawn(move || {
            far.read_exact(&mut vec![0; TOTAL]).unwrap();
            far
        });
        assert!(matches!(next(&mut connection).await, Happening::Drained));
        let start = Instant::now();
        connection.watch_acknowledgements(Some(Pace::Urgent), start);
        let mut acknowledged = 0;
        while acknowledged < TOTAL as u64 {
            assert!(start.elapsed() < Duration::from_secs(30));
            tokio::time::sleep_until(connection.poll_at().unwrap().into()).await;
            let more = connection.acknowledged(Instant::now());
            assert!(more.is_none_or(|more| more > acknowledged), "{more:?} after {acknowledged}");
            acknowledged = more.unwrap_or(acknowledged);
        }
        connection.watch_acknowledgements(None, Instant::now());
        assert_eq!(connection.poll_at(), None);
        drop(reader.join().unwrap());
        assert!(matches!(next(&mut connection).await, Happening::Lost(_)));
    }

    #[tokio::test]
    async fn last_words_are_read_though_writing_fails() {
        let (mut connection, mut far) = pair().await;
        far.write_all(b"farewell").unwrap();
        // It closes with unread octets, so that what is written now meets a reset.
        connection.send(Bytes::from_static(b"unread"));
        assert!(matches!(next(&mut connection).await, Happening::Drained));
        drop(far);
        while connection.write_error.is_none() {
            connection.send(Bytes::from_static(b"too late"));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        connection.drained = false;
        let Happening::Received(bytes) = next(&mut connection).await else { panic!("the last words are lost") };
        assert_eq!(bytes, "farewell");
        assert!(matches!(next(&mut connection).await, Happening::Lost(_)));
    }

    #[tokio::test]
    async fn close_delivers_what_is_unwritten() {
        let (mut connection, mut far) = pair().await;
        connection.send(Bytes::from(vec![7; 1 << 20]));
        far.write_all(b"unread by us").unwrap();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            far.read_to_end(&mut all).unwrap();
            all.len()
        });
        connection.close().await;
        assert_eq!(reader.join().unwrap(), 1 << 20);
    }
}
