// SPDX-License-Identifier: Apache-2.0
//! What signs the segments of a session: one key of TCP-MD5 (RFC 2385), or several of TCP-AO (RFC 5925).
//!
//! Input: what the configuration demands, and the content of its key files. Output: keys on sockets. Invariant: where a signature is demanded and cannot be
//! had there is a reason and no connection, never one without a signature.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use bgp::Prefix;
use sys::{TcpAoAlgorithm, TcpAoKey, TcpAoKeyIds};

use super::keyring::{Key, Keys};
use super::listener::Arrival;
use super::socket::OptionError;
use crate::desired::{AoAlgorithm, Transport};

/// The keys of one peer, or of a range of peers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Signature {
    Md5(Key),
    /// The first is the one that we sign with and ask for.
    Ao(Vec<MasterKey>),
}

/// A master key tuple (RFC 5925 §3.1).
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct MasterKey {
    ids: TcpAoKeyIds,
    algorithm: TcpAoAlgorithm,
    key: Key,
}

impl MasterKey {
    fn as_sys(&self) -> TcpAoKey<'_> {
        TcpAoKey { ids: self.ids, algorithm: self.algorithm, key: self.key.octets() }
    }
}

impl Signature {
    /// What is demanded; `None` where nothing is, and why there is none where something is.
    pub(super) fn demanded(transport: &Transport, keys: &Keys) -> Result<Option<Self>, String> {
        let key = |what: &str, path: &std::path::Path| match keys.get(path) {
            Some(Ok(key)) => Ok(key.clone()),
            Some(Err(reason)) => Err(format!("no {what} key in {}: {reason}", path.display())),
            None => Err(format!("no {what} key in {}: it is not read yet", path.display())),
        };
        if let Some(path) = &transport.password_file {
            return key("TCP-MD5", path).map(|key| Some(Self::Md5(key)));
        }
        if transport.ao_keys.is_empty() {
            return Ok(None);
        }
        match sys::has_tcp_ao() {
            Ok(true) => {}
            Ok(false) => return Err("this kernel lacks TCP-AO (CONFIG_TCP_AO, Linux 6.7 and newer)".to_owned()),
            Err(error) => return Err(format!("it is not known whether this kernel has TCP-AO: {error}")),
        }
        let master = |wanted: &crate::desired::AoKey| {
            let algorithm = match wanted.algorithm {
                AoAlgorithm::HmacSha1 => TcpAoAlgorithm::HmacSha1,
                AoAlgorithm::Aes128Cmac => TcpAoAlgorithm::Aes128Cmac,
            };
            let ids = TcpAoKeyIds { send: wanted.send_id, recv: wanted.recv_id };
            Ok(MasterKey { ids, algorithm, key: key("TCP-AO", &wanted.password_file)? })
        };
        Ok(Some(Self::Ao(transport.ao_keys.iter().map(master).collect::<Result<_, String>>()?)))
    }

    /// Signs what goes to this peer, on a fresh socket or on a connection that is signed already; there the keys that are no longer wanted go.
    pub(super) fn put(&self, socket: &impl AsFd, peer: IpAddr) -> Result<(), OptionError> {
        let (socket, range) = (socket.as_fd(), Prefix::host(peer));
        match self {
            Self::Md5(key) => set_md5(socket, range, key.octets()),
            Self::Ao(keys) => put_ao(socket, range, keys),
        }
    }

    /// Demands this signature of connections that a listener takes from the range, instead of another one.
    pub(super) fn demand(&self, listener: &impl AsFd, range: Prefix, instead_of: Option<&Self>) -> Result<(), OptionError> {
        let socket = listener.as_fd();
        if let Some(old) = instead_of.filter(|old| !matches!((old, self), (Self::Md5(_), Self::Md5(_)))) {
            old.release(listener, range)?;
        }
        match self {
            Self::Md5(key) => set_md5(socket, range, key.octets()),
            Self::Ao(keys) => keys.iter().try_for_each(|key| add_ao(socket, range, key, false)),
        }
    }

    /// Demands nothing of the range any more.
    pub(super) fn release(&self, listener: &impl AsFd, range: Prefix) -> Result<(), OptionError> {
        let socket = listener.as_fd();
        match self {
            Self::Md5(_) => set_md5(socket, range, &[]),
            Self::Ao(keys) => keys.iter().try_for_each(|key| {
                let removed = sys::remove_tcp_ao_key(socket, range.address(), range.length(), key.ids, None);
                removed.map_err(|source| OptionError::Refused { what: "to forget a TCP-AO key", source })
            }),
        }
    }

    /// Whether a connection that a peer has dialled is signed as it must be, from its beginning. With TCP-MD5 that is so where the kernel has demanded it: a key
    /// that the socket gets only now says nothing of what has come already.
    pub(super) fn is_on(&self, connection: &Arrival) -> bool {
        match self {
            Self::Md5(_) => connection.demanded.as_ref() == Some(self),
            Self::Ao(_) => sys::tcp_ao_in_use(connection.stream.as_fd()).is_some(),
        }
    }
}

fn set_md5(socket: BorrowedFd<'_>, range: Prefix, key: &[u8]) -> Result<(), OptionError> {
    let set = sys::set_tcp_md5_key(socket, range.address(), range.length(), key);
    set.map_err(|source| OptionError::Refused { what: "the TCP-MD5 key", source })
}

fn add_ao(socket: BorrowedFd<'_>, range: Prefix, key: &MasterKey, preferred: bool) -> Result<(), OptionError> {
    let added = sys::add_tcp_ao_key(socket, range.address(), range.length(), &key.as_sys(), preferred);
    added.map_err(|source| OptionError::Refused { what: "a TCP-AO key", source })
}

/// A key whose numbers are there already stays as it is: a key tuple does not change while a connection has it (RFC 5925 §3.1).
fn put_ao(socket: BorrowedFd<'_>, peer: Prefix, keys: &[MasterKey]) -> Result<(), OptionError> {
    let refused = |source| OptionError::Refused { what: "a TCP-AO key", source };
    let present = sys::tcp_ao_keys(socket).map_err(refused)?;
    let Some(first) = keys.first() else { return Ok(()) };
    for key in keys.iter().filter(|key| !present.contains(&key.ids)) {
        add_ao(socket, peer, key, present.is_empty() && key.ids == first.ids)?;
    }
    if present.is_empty() {
        return Ok(());
    }
    sys::request_tcp_ao_key(socket, first.ids.recv).map_err(refused)?;
    for ids in present.into_iter().filter(|ids| keys.iter().all(|key| key.ids != *ids)) {
        let remove = |instead| sys::remove_tcp_ao_key(socket, peer.address(), peer.length(), ids, instead);
        // A key that is taken away is not to be used a moment longer, even where the peer has not come to the next one.
        let removed = remove(None).or_else(|_in_use| remove(Some(first.ids)));
        removed.map_err(|source| OptionError::Refused { what: "to forget a TCP-AO key", source })?;
    }
    Ok(())
}
