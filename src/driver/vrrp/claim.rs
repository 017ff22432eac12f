// SPDX-License-Identifier: Apache-2.0
//! Which instance has a VRID on a link. Two processes of one node would both be Active: neither hears the other, whose advertisements come from the own address.
//!
//! A claim is the name of an abstract Unix socket in the network namespace: the kernel grants it once, whatever container asks, and takes it back when its
//! process ends in any way. A second socket tells who has the first.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use vrrp::Vrid;

/// A VRID on a link that no other process of this node has.
#[derive(Debug)]
pub(super) struct Claim {
    _lock: UnixDatagram,
    _owner: UnixDatagram,
}

impl Claim {
    /// Of the link with this index.
    ///
    /// # Errors
    /// Another process has it, or that cannot be found out.
    pub(super) fn new(index: u32, vrid: Vrid, instance: &str) -> Result<Self, ClaimError> {
        let name = format!("{index:x}/{vrid}");
        let claimed = bind(&format!("vipherald-vrrp/{name}"));
        let owner = |lock| Ok(Self { _lock: lock, _owner: bind(&format!("{}{instance}", owner_prefix(&name)))? });
        claimed.and_then(owner).map_err(|error: io::Error| {
            if error.kind() != io::ErrorKind::AddrInUse {
                return ClaimError::Socket(error);
            }
            let listing = std::fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default();
            match owner_in(&listing, &name) {
                Some(owner) if owner == instance => ClaimError::SameInstance,
                Some(owner) => ClaimError::Instance(owner.to_owned()),
                None => ClaimError::Unknown,
            }
        })
    }
}

/// Why a VRID on a link cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClaimError {
    #[error("it cannot be claimed for this instance: {0}")]
    Socket(io::Error),
    #[error("another process of this instance has this VRID on the link; it is tried again until that process has ended")]
    SameInstance,
    #[error("the instance {0} has this VRID on the link: give one of the instances another virtualRouterId")]
    Instance(String),
    #[error("another process of this node has this VRID on the link: give one of them another virtualRouterId")]
    Unknown,
}

fn bind(name: &str) -> io::Result<UnixDatagram> {
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

fn owner_prefix(name: &str) -> String {
    format!("vipherald-vrrp-owner/{name}/")
}

/// Who has a claim, by the kernel's list of sockets, of which the last column is the name.
fn owner_in<'l>(listing: &'l str, name: &str) -> Option<&'l str> {
    let prefix = owner_prefix(name);
    listing.lines().filter_map(|line| line.split_whitespace().last()?.strip_prefix('@')).find_map(|of| of.strip_prefix(prefix.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_granted_once_and_the_other_one_is_named() {
        // A link that no machine has.
        let (index, vrid) = (0xFFFF_0000 | std::process::id() & 0xFFFF, Vrid::new(7).unwrap());
        let claim = Claim::new(index, vrid, "a").unwrap();
        let refused = Claim::new(index, vrid, "b").unwrap_err();
        assert_eq!(refused.to_string(), "the instance a has this VRID on the link: give one of the instances another virtualRouterId");
        let refused = Claim::new(index, vrid, "a").unwrap_err();
        assert!(refused.to_string().starts_with("another process of this instance has this VRID"), "{refused}");
        Claim::new(index, Vrid::new(8).unwrap(), "b").expect("another VRID");
        Claim::new(index - 1, vrid, "b").expect("another link");
        drop(claim);
        Claim::new(index, vrid, "b").expect("it was left");
    }

    #[test]
    fn an_owner_that_does_not_say_so_is_not_known() {
        let line = |name: &str| format!("ffff0000: 00000002 00000000 00000000 0002 01 7 {name}\n");
        let listing = line("@vipherald-vrrp/2/7") + &line("@vipherald-vrrp-owner/2/70/b") + &line("@vipherald-vrrp-owner/2/8/c");
        assert_eq!((owner_in(&listing, "2/7"), owner_in(&listing, "2/8"), owner_in("", "2/7")), (None, Some("c"), None));
    }
}
