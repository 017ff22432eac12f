// SPDX-License-Identifier: Apache-2.0
//! The options of a neighbour's sockets: TTL, signature, interface; and from how far somebody dials.
//!
//! Input: a [`Way`], and a fresh or accepted socket. Output: the socket as the configuration wants it, or which option the kernel refuses; then the
//! socket must not be used, since it would be open to somebody who is to be kept out.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::net::if_::if_nametoindex;
use socket2::{SockRef, TcpKeepalive};

use super::signature::Signature;
use super::whereabouts::{Found, is_link_local};
use crate::desired::{Transport, Ttl};

/// How long the peer's host may acknowledge nothing, neither octets nor the question whether it is there, before TCP gives up a connection that is no session
/// yet (RFC 5482 §3, RFC 1122 §4.2.3.6). Longer than any pause of a peer that will be back.
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// After so long without a segment the host is asked, and again at this interval.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(5));

/// So many octets the kernel takes beyond what the peer's host has room for. What it has taken can't be changed any more, and the withdrawals in it are
/// remembered until they are acknowledged: its own measure, megabytes of them, would make a peer that does not read as dear as that. Twice what a
/// session writes at once, so that a peer that does read is never waited for by both sides.
const UNSENT: u32 = 128 * 1024;

/// What packets have under GTSM (RFC 5082 §3).
const SECURE_TTL: u8 = 255;

/// The way to a peer, wherever it is.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) port: u16,
    /// The peer is in another AS.
    pub(super) external: bool,
    pub(super) transport: Transport,
}

/// The kernel refuses a socket what the configuration demands.
#[derive(Debug, thiserror::Error)]
pub(super) enum OptionError {
    /// No such interface.
    #[error("there is no interface {name}")]
    Interface {
        /// As configured.
        name: String,
        #[source]
        source: io::Error,
    },
    /// A socket option.
    #[error("the kernel refuses {what}")]
    Refused {
        /// In words.
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

/// Who has dialled is too far away.
#[derive(Debug, thiserror::Error)]
pub(super) enum DistanceError {
    /// The SYN came from somebody who does not send with TTL 255, or is beyond the hops.
    #[error(
        "with ttlSecurity, the first packet of the peer has to come with a TTL of {least} at least, and came with {ttl}: \
         the peer needs GTSM (RFC 5082) too, or more hops are needed here"
    )]
    TooFar {
        /// What it came with.
        ttl: u8,
        /// What it has to come with.
        least: u8,
    },
    /// The kernel did not keep the SYN, as it does while it is flooded with them.
    #[error("with ttlSecurity, the TTL of the first packet of the peer has to be known, and the kernel has not kept it")]
    Unknown,
    /// The kernel does not say.
    #[error("with ttlSecurity, the TTL of the first packet of the peer has to be known")]
    Unreadable(#[source] io::Error),
}

/// Whether a connection that somebody has dialled comes from near enough (RFC 5082 §3). The option that drops later packets does not see those that came before
/// it was set, and a connection is accepted with all that the peer has sent until then; but who is too far away can't make a SYN with such a TTL either. To
/// be asked once for each connection, before anything of it is read.
pub(super) fn is_near(connection: &impl AsFd, ttl: Ttl) -> Result<(), DistanceError> {
    let Ttl::Security { hops } = ttl else { return Ok(()) };
    let least = least_ttl(hops);
    match sys::ttl_of_syn(connection.as_fd()).map_err(DistanceError::Unreadable)? {
        Some(ttl) if ttl >= least => Ok(()),
        Some(ttl) => Err(DistanceError::TooFar { ttl, least }),
        None => Err(DistanceError::Unknown),
    }
}

/// RFC 5082 §3: from a peer that is one hop away comes 255.
const fn least_ttl(hops: u8) -> u8 {
    SECURE_TTL - (hops - 1)
}

impl Way {
    /// Where the peer listens. A link-local address whose link is not known is one of the configured interface.
    pub(super) fn remote(&self, peer: Found) -> Result<SocketAddr, OptionError> {
        let scope = match &self.transport.interface {
            Some(name) if peer.scope == 0 && is_link_local(peer.address) => {
                let index = if_nametoindex(name.as_str());
                index.map_err(|errno| OptionError::Interface { name: name.clone(), source: errno.into() })?
            }
            _ => peer.scope,
        };
        Ok(Found { scope, ..peer }.socket_address(self.port))
    }

    /// The index of the interface or VRF that the socket is bound to.
    pub(super) fn device(&self) -> Option<u32> {
        if_nametoindex(self.transport.interface.as_deref()?).ok()
    }

    /// Prepares a socket to a peer at this address, before it is used.
    pub(super) fn prepare(&self, socket: &impl AsFd, peer: IpAddr, signature: Option<&Signature>) -> Result<(), OptionError> {
        if let Some(signature) = signature {
            signature.put(socket, peer)?;
        }
        let socket = SockRef::from(socket);
        let refused = |what| move |source| OptionError::Refused { what, source };
        socket.set_tcp_nodelay(true).map_err(refused("TCP_NODELAY"))?;
        // A path that goes dark is noticed, also where no hold timer runs yet (RFC 4271 §8.2.2: it is large in OpenSent), and while nothing is to be sent.
        socket.set_tcp_user_timeout(Some(USER_TIMEOUT)).map_err(refused("TCP_USER_TIMEOUT"))?;
        socket.set_tcp_keepalive(&KEEPALIVE).map_err(refused("SO_KEEPALIVE"))?;
        socket.set_tcp_notsent_lowat(UNSENT).map_err(refused("TCP_NOTSENT_LOWAT"))?;
        if let Some(name) = &self.transport.interface {
            let bound = socket.bind_device(Some(name.as_bytes()));
            bound.map_err(|source| OptionError::Interface { name: name.clone(), source })?;
        }
        match self.transport.ttl {
            Ttl::Customary if self.external => set_ttl(&socket, peer, Ttl::EXTERNAL).map_err(refused("the TTL")),
            Ttl::Customary => Ok(()),
            Ttl::Multihop(ttl) => set_ttl(&socket, peer, ttl).map_err(refused("the TTL")),
            Ttl::Security { hops } => {
                set_ttl(&socket, peer, SECURE_TTL).map_err(refused("the TTL"))?;
                set_least_ttl(&socket, peer, least_ttl(hops)).map_err(refused("TTL security"))
            }
        }
    }
}

/// The socket's session is Established. From now on the hold timer notices a path that goes dark, and the send hold timer a peer that does not read: the
/// kernel would count against the latter that its window is closed, though its host acknowledges every probe (RFC 9293 §3.8.6.1), and would end the
/// session long before (RFC 9687 §4). Where both sides want no hold timer, a session with nothing to tell outlives the path, as they want it (RFC 4271 §4.4).
pub(super) fn established(socket: &impl AsFd) -> Result<(), OptionError> {
    let socket = SockRef::from(socket);
    let refused = |what| move |source| OptionError::Refused { what, source };
    socket.set_tcp_user_timeout(None).map_err(refused("the end of TCP_USER_TIMEOUT"))?;
    socket.set_keepalive(false).map_err(refused("the end of SO_KEEPALIVE"))
}

fn set_ttl(socket: &SockRef<'_>, peer: IpAddr, ttl: u8) -> io::Result<()> {
    if peer.is_ipv4() { socket.set_ttl_v4(ttl.into()) } else { socket.set_unicast_hops_v6(ttl.into()) }
}

fn set_least_ttl(socket: &SockRef<'_>, peer: IpAddr, ttl: u8) -> io::Result<()> {
    if peer.is_ipv4() { sys::set_least_ttl_v4(socket.as_fd(), ttl) } else { sys::set_least_hop_limit_v6(socket.as_fd(), ttl) }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn rfc9687_4_tcp_ends_no_session_whose_peer_acknowledges_and_does_not_read() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).unwrap();
        let way = Way { port: address.port(), external: false, transport: Transport::default() };
        way.prepare(&stream, address.ip(), None).unwrap();
        assert_eq!(SockRef::from(&stream).tcp_user_timeout().unwrap(), Some(USER_TIMEOUT));
        assert!(SockRef::from(&stream).keepalive().unwrap());
        established(&stream).unwrap();
        assert!(!SockRef::from(&stream).keepalive().unwrap());
        assert!(SockRef::from(&stream).tcp_user_timeout().unwrap().is_none_or(|timeout| timeout.is_zero()));
    }

    #[test]
    fn what_the_kernel_takes_for_a_peer_that_does_not_read_is_bounded() {
        use std::io::{ErrorKind, Write as _};
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        SockRef::from(&listener).set_recv_buffer_size(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let way = Way { port: address.port(), external: false, transport: Transport::default() };
        way.prepare(&stream, address.ip(), None).unwrap();
        let _deaf = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut taken = 0;
        let error = loop {
            match stream.write(&[0; 4096]) {
                Ok(count) => taken += count,
                Err(error) => break error,
            }
            assert!(taken < 2 * UNSENT as usize, "more than {taken} octets are taken");
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}
