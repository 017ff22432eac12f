// SPDX-License-Identifier: Apache-2.0
//! A scripted neighbour on a loopback socket: it says what the test tells it to, and nothing of its own accord.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use bgp::wire::{Capability, Deframer, Message, Negotiated, Open, Update};
use bgp::{Asn, BgpIdentifier, Family, HoldTime};
use socket2::{Domain, Socket, Type};

/// Longer than anything here takes, on any machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A port that the speaker can dial.
pub(super) struct FakePeer {
    socket: Socket,
}

impl FakePeer {
    /// A port that refuses connections until [`listen`](Self::listen).
    pub(super) fn closed() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        Self { socket }
    }

    pub(super) fn listening() -> Self {
        let peer = Self::closed();
        peer.listen();
        peer
    }

    pub(super) fn listen(&self) {
        self.socket.listen(8).unwrap();
    }

    /// Makes later connections take in as little as the kernel allows.
    pub(super) fn shrink_receive_buffer(&self) {
        self.set_receive_buffer(1);
    }

    /// So many octets of later connections wait for their reader.
    pub(super) fn set_receive_buffer(&self, octets: usize) {
        self.socket.set_recv_buffer_size(octets).unwrap();
    }

    /// Takes only connections that are signed with this key (RFC 2385).
    pub(super) fn demand_key(&self, key: &[u8]) {
        sys::set_tcp_md5_key(self.socket.as_fd(), Ipv4Addr::LOCALHOST.into(), 32, key).unwrap();
    }

    /// What its packets have.
    pub(super) fn set_ttl(&self, ttl: u32) {
        self.socket.set_ttl_v4(ttl).unwrap();
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.socket.local_addr().unwrap().as_socket().unwrap()
    }

    /// The next connection.
    pub(super) fn accept(&self) -> Conversation {
        self.accept_within(PATIENCE).expect("nobody dialled")
    }

    pub(super) fn accept_within(&self, patience: Duration) -> Option<Conversation> {
        let listener: TcpListener = self.socket.try_clone().unwrap().into();
        listener.set_nonblocking(true).unwrap();
        let deadline = Instant::now() + patience;
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).unwrap();
                    return Some(Conversation::new(stream));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) => panic!("accept: {error}"),
            }
        }
    }

    /// The next connection, up to Established with a neighbour of this AS.
    pub(super) fn establish(&self, asn: u32) -> Conversation {
        let mut conversation = self.accept();
        conversation.establish(asn);
        conversation
    }
}

/// An OPEN of this AS, with both families and without a hold timer.
pub(super) fn open(asn: u32) -> Open {
    Open {
        asn: Asn::new(asn).unwrap(),
        hold_time: HoldTime::ZERO,
        identifier: BgpIdentifier::new(0xC000_02FE).unwrap(),
        capabilities: vec![
            Capability::Multiprotocol(Family::Ipv4Unicast),
            Capability::Multiprotocol(Family::Ipv6Unicast),
            Capability::RouteRefresh,
            Capability::FourOctetAs,
        ],
    }
}

/// One connection, from the neighbour's side.
pub(super) struct Conversation {
    stream: TcpStream,
    deframer: Deframer,
    negotiated: Negotiated,
}

impl Conversation {
    fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, deframer: Deframer::default(), negotiated: Negotiated::before_open(Asn::new(1).unwrap()) }
    }

    /// Dials the speaker from this address, signed with this key if there is one. `None` where it does not answer.
    pub(super) fn dial(from: Ipv4Addr, to: SocketAddr, key: &[u8]) -> Option<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        if !key.is_empty() {
            sys::set_tcp_md5_key(socket.as_fd(), to.ip(), 32, key).unwrap();
        }
        Self::connect(socket, to)
    }

    /// Dials the speaker from this address, of either family, with packets of this TTL or hop limit.
    pub(super) fn dial_with_ttl(from: IpAddr, to: SocketAddr, ttl: u32) -> Option<Self> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        if to.is_ipv4() { socket.set_ttl_v4(ttl) } else { socket.set_unicast_hops_v6(ttl) }.unwrap();
        Self::connect(socket, to)
    }

    fn connect(socket: Socket, to: SocketAddr) -> Option<Self> {
        socket.connect_timeout(&to.into(), Duration::from_millis(500)).ok()?;
        Some(Self::new(socket.into()))
    }

    /// Whether the speaker closes it, or resets it, and says nothing before.
    pub(super) fn is_closed_without_a_word(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }

    /// Goes up to Established, as a neighbour of this AS.
    pub(super) fn establish(&mut self, asn: u32) {
        let theirs = self.expect_open();
        self.establish_as(&open(asn), &theirs);
    }

    /// Goes from the speaker's OPEN up to Established, with this OPEN.
    pub(super) fn establish_as(&mut self, ours: &Open, theirs: &Open) {
        self.answer(ours, theirs);
        assert_eq!(self.next(), Some(Message::Keepalive));
        self.send(&Message::Keepalive);
    }

    /// Sends our OPEN; from now on messages are those that both OPENs agree on.
    pub(super) fn answer(&mut self, ours: &Open, theirs: &Open) {
        self.send(&Message::Open(ours.clone()));
        self.negotiated = Negotiated::new(ours, theirs);
    }

    pub(super) fn change_key(&self, key: &[u8]) {
        sys::set_tcp_md5_key(self.stream.as_fd(), Ipv4Addr::LOCALHOST.into(), 32, key).unwrap();
    }

    pub(super) fn send(&mut self, message: &Message) {
        self.send_octets(&message.encode(&self.negotiated).unwrap());
    }

    pub(super) fn send_octets(&mut self, octets: &[u8]) {
        self.stream.write_all(octets).unwrap();
    }

    /// Reads so many octets at most, whatever they mean. 0 once the speaker has closed its side.
    pub(super) fn swallow(&mut self, most: usize) -> usize {
        self.stream.read(&mut vec![0; most]).expect("the speaker stays silent, or has reset the connection")
    }

    /// The next message; `None` once the speaker has closed its side.
    pub(super) fn next(&mut self) -> Option<Message> {
        let mut buffer = [0; 65_536];
        loop {
            if let Some(message) = self.deframer.next(&self.negotiated).unwrap() {
                return Some(message);
            }
            match self.stream.read(&mut buffer).expect("the speaker stays silent") {
                0 => return None,
                count => self.deframer.push(&buffer[..count]),
            }
        }
    }

    /// The next message, if one comes in this time. The speaker must not close the connection.
    pub(super) fn next_within(&mut self, time: Duration) -> Option<Message> {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let mut buffer = [0; 65_536];
        let message = loop {
            if let Some(message) = self.deframer.next(&self.negotiated).unwrap() {
                break Some(message);
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => panic!("the speaker has closed the connection"),
                Ok(count) => self.deframer.push(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break None,
                Err(error) => panic!("{error}"),
            }
        };
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        message
    }

    pub(super) fn expect_open(&mut self) -> Open {
        match self.next() {
            Some(Message::Open(open)) => open,
            other => panic!("{other:?} instead of OPEN"),
        }
    }

    /// The next UPDATE; KEEPALIVEs before it are passed over.
    pub(super) fn expect_update(&mut self) -> Update {
        loop {
            match self.next() {
                Some(Message::Update(update)) => return update,
                Some(Message::Keepalive) => {}
                other => panic!("{other:?} instead of UPDATE"),
            }
        }
    }

    /// The End-of-RIB of both families and nothing else.
    pub(super) fn expect_empty_table(&mut self) {
        for family in Family::ALL {
            assert_eq!(self.expect_update().is_end_of_rib(), Some(family));
        }
    }

    /// The End-of-RIB of both families, after the routes.
    pub(super) fn expect_rest_of_table(&mut self) {
        for _ in Family::ALL {
            assert!(self.expect_update().is_end_of_rib().is_some());
        }
    }

    /// The host of the peer knows nothing of the connection any more, and has told nobody.
    pub(super) fn forget(self) {
        // While it is being repaired a socket ends without a word (tcp(7)).
        nix::sys::socket::setsockopt(&self.stream, nix::sys::socket::sockopt::TcpRepair, &1).unwrap();
    }

    /// Whether nothing more arrives for a while.
    pub(super) fn is_silent_for(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let result = self.stream.peek(&mut [0]);
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        result.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}
