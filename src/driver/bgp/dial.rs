// SPDX-License-Identifier: Apache-2.0
//! Dialling a peer.
//!
//! Input: the way to the peer and the key. Output: a connection that may be used, with the local addresses that its next hops come from, or why there
//! is none. A connection from a VIP is given up, since it would break when the VIP moves; where another instance has the session, the peer is not dialled.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bgp::peer::{LocalAddresses, Role};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;

use super::Routes;
use super::addresses::{self, AddressError, Ends};
use super::claim::{ClaimError, Claims, Pair, source};
use super::connection::Connection;
use super::signature::Signature;
use super::socket::{OptionError, Way};
use super::whereabouts::Found;
use super::words;
use crate::desired::RouteSet;

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
    /// There is to be a key, and there is none.
    #[error("{0}")]
    Key(String),
    /// The socket is not what the configuration demands.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The configured source address is not to be had.
    #[error("cannot use {address} as the source address")]
    Source {
        /// As configured.
        address: IpAddr,
        #[source]
        source: io::Error,
    },
    /// The session would be one of a VIP.
    #[error("our address on the connection is the VIP {0}; give the node an address of its own towards this peer")]
    SourceIsVip(IpAddr),
    /// A VIP is configured as the source.
    #[error("the configured source {0} is a VIP; a session from it would break when it moves")]
    ConfiguredSourceIsVip(IpAddr),
    /// The peer's segments are not signed, or were not at first.
    #[error("the peer's connection is not signed with its key from the beginning")]
    Unsigned,
    /// The peer dialled another address of ours.
    #[error("the peer dialled {dialled}, and the session's source is {source_address}")]
    OtherDestination {
        /// What it dialled.
        dialled: IpAddr,
        /// As configured.
        source_address: IpAddr,
    },
    /// The session is another process's.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The next hops of the connection cannot be determined.
    #[error(transparent)]
    Addresses(#[from] AddressError),
}

/// Connects; the caller bounds the time that it may take.
pub(super) async fn dial(
    way: Way,
    peer: Found,
    signature: Result<Option<Signature>, String>,
    routes: watch::Receiver<Option<Routes>>,
    claims: Claims,
) -> Result<Dialled, DialError> {
    let signature = signature.map_err(DialError::Key)?;
    let advertised: Arc<RouteSet> = routes.borrow().as_ref().map(|routes| Arc::clone(&routes.set)).unwrap_or_default();
    if let Some(source) = way.transport.source
        && advertised.serves(source)
    {
        return Err(DialError::ConfiguredSourceIsVip(source));
    }
    if let Some(local) = source(&way, peer) {
        claim(&claims, Role::Active, local, peer, &way).await?;
    }
    let (stream, local) = connect(&way, peer, signature.as_ref()).await?;
    claim(&claims, Role::Active, local.ip(), peer, &way).await?;
    if advertised.serves(local.ip()) {
        return Err(DialError::SourceIsVip(local.ip()));
    }
    let ends = Ends { local, remote: peer.address, device: way.device() };
    let local = addresses::local_addresses(ends, &advertised).await?;
    Ok(Dialled { connection: Connection::new(stream).signed(signature), local })
}

/// Takes in a connection that the peer has dialled, and that is signed with this.
pub(super) async fn arrive(
    stream: TcpStream,
    signature: Option<Signature>,
    way: Way,
    peer: Found,
    routes: watch::Receiver<Option<Routes>>,
    claims: Claims,
) -> Result<Dialled, DialError> {
    let advertised: Arc<RouteSet> = routes.borrow().as_ref().map(|routes| Arc::clone(&routes.set)).unwrap_or_default();
    let local = stream.local_addr().map_err(DialError::Connect)?;
    let dialled = local.ip();
    if let Some(source_address) = way.transport.source.filter(|source| *source != dialled) {
        return Err(DialError::OtherDestination { dialled, source_address });
    }
    if advertised.serves(dialled) {
        return Err(DialError::SourceIsVip(dialled));
    }
    claim(&claims, Role::Passive, dialled, peer, &way).await?;
    let ends = Ends { local, remote: peer.address, device: way.device() };
    let local = addresses::local_addresses(ends, &advertised).await?;
    Ok(Dialled { connection: Connection::new(stream).signed(signature), local })
}

async fn claim(claims: &Claims, role: Role, local: IpAddr, peer: Found, way: &Way) -> Result<(), ClaimError> {
    claims.hold(role, Pair::new(local, peer, way).await?).await
}

async fn connect(way: &Way, peer: Found, signature: Option<&Signature>) -> Result<(TcpStream, SocketAddr), DialError> {
    let remote = way.remote(peer)?;
    let socket = if remote.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.map_err(DialError::Connect)?;
    way.prepare(&socket, peer.address, signature)?;
    if let Some(address) = way.transport.source {
        let bound = socket.bind(SocketAddr::new(address, 0));
        bound.map_err(|source| DialError::Source { address, source })?;
    }
    let stream = socket.connect(remote).await.map_err(DialError::Connect)?;
    let local = stream.local_addr().map_err(DialError::Connect)?;
    Ok((stream, local))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::time::Duration;

    use super::super::claim::Registry;
    use super::super::keyring::Key;
    use super::*;
    use crate::desired::Transport;
    use crate::telemetry::chain;

    /// Why a listener is not reached with this transport, and that nothing was sent to it.
    async fn refusal(transport: Transport, signature: Result<Option<Signature>, String>) -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let way = Way { port, external: false, transport };
        let claims = Claims::new(Registry::new("test".into()), "tor", Duration::ZERO);
        let error = dial(way, Found::new(Ipv4Addr::LOCALHOST.into(), 0), signature, watch::channel(None).1, claims).await.unwrap_err();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "dialled all the same");
        chain(&error)
    }

    #[tokio::test]
    async fn without_what_protects_it_the_peer_is_not_dialled() {
        let no_key = Err("no TCP-MD5 key in /k: it is empty".to_owned());
        assert_eq!(refusal(Transport::default(), no_key).await, "no TCP-MD5 key in /k: it is empty");
        let refused = refusal(Transport::default(), Ok(Some(Signature::Md5(Key::unusable())))).await;
        assert_eq!(refused, "the kernel refuses the TCP-MD5 key: invalid input parameter");
        let elsewhere = Transport { interface: Some("nowhere0".to_owned()), ..Transport::default() };
        assert_eq!(refusal(elsewhere, Ok(None)).await, "there is no interface nowhere0: No such device (os error 19)");
        let foreign = Transport { source: Some(Ipv4Addr::new(192, 0, 2, 77).into()), ..Transport::default() };
        assert_eq!(
            refusal(foreign, Ok(None)).await,
            "cannot use 192.0.2.77 as the source address: Cannot assign requested address (os error 99)"
        );
    }
}
