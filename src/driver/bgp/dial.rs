// SPDX-License-Identifier: Apache-2.0
//! Dialling a peer.
//!
//! Input: the peer's address and port. Output: a connection that may be used, with the local addresses that its next hops come from, or why there is
//! none. The kernel chooses the source address; a connection from a VIP is given up, since it would break when the VIP moves.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bgp::Prefix;
use bgp::peer::LocalAddresses;
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;

use super::Routes;
use super::addresses::{self, AddressError};
use super::connection::Connection;
use super::words;

/// How long octets may stay unacknowledged before TCP gives the connection up (RFC 5482). Longer than any pause of a peer that will be back; a session
/// with a shorter hold time ends by that.
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// What dialling led to.
#[derive(Debug)]
pub(super) struct Dialled {
    /// The connection.
    pub(super) connection: Connection,
    /// "Self" on this connection.
    pub(super) local: LocalAddresses,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    /// The peer or the network refused.
    #[error("{}", words::io_error(.0))]
    Connect(io::Error),
    /// The kernel chose a VIP as the source.
    #[error("the kernel chose the VIP {0} as source address; give the node an address of its own towards this peer")]
    SourceIsVip(IpAddr),
    /// The next hops of the connection cannot be determined.
    #[error(transparent)]
    Addresses(#[from] AddressError),
}

/// Connects; the caller bounds the time that it may take.
pub(super) async fn dial(remote: SocketAddr, routes: watch::Receiver<Option<Routes>>) -> Result<Dialled, DialError> {
    let (stream, local) = connect(remote).await.map_err(DialError::Connect)?;
    let advertised: Arc<BTreeSet<Prefix>> = routes.borrow().as_ref().map(|routes| Arc::clone(&routes.set)).unwrap_or_default();
    if addresses::is_advertised(local, &advertised) {
        return Err(DialError::SourceIsVip(local));
    }
    let local = addresses::local_addresses(local, remote.ip(), &advertised).await?;
    Ok(Dialled { connection: Connection::new(stream), local })
}

async fn connect(remote: SocketAddr) -> io::Result<(TcpStream, IpAddr)> {
    let socket = if remote.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_nodelay(true)?;
    // A path that goes dark is noticed, also where no hold timer runs yet (RFC 4271 §8.2.2: it is large in OpenSent).
    SockRef::from(&socket).set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    let stream = socket.connect(remote).await?;
    let local = stream.local_addr()?.ip();
    Ok((stream, local))
}
