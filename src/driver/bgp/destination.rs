// SPDX-License-Identifier: Apache-2.0
//! Which address of a peer is dialled next.
//!
//! Input: where the peer may be, and how the dials went. Output: an address. One that worked is dialled again first; after one that did not the next one is
//! tried, so that a router which has been replaced, or a second one on the link, does not keep the session down.

use std::sync::Arc;

use super::whereabouts::{Found, Whereabouts, candidates};
use crate::desired::PeerAddress;

/// The addresses of one peer.
#[derive(Debug)]
pub(super) struct Destination {
    peer: PeerAddress,
    last: Option<Found>,
    /// A session with the last one has come up since it was dialled.
    worked: bool,
}

impl Destination {
    pub(super) const fn new(peer: PeerAddress) -> Self {
        Self { peer, last: None, worked: false }
    }

    /// Where the peer may be, or why it is nowhere.
    pub(super) fn candidates(&self, whereabouts: &Whereabouts) -> Result<Vec<Found>, Arc<str>> {
        candidates(&self.peer, whereabouts)
    }

    /// The next address to dial, or why there is none.
    pub(super) fn next(&mut self, whereabouts: &Whereabouts) -> Result<Found, Arc<str>> {
        let found = candidates(&self.peer, whereabouts)?;
        let after = match found.iter().position(|found| Some(*found) == self.last) {
            Some(last) if self.worked => last,
            Some(last) => last + 1,
            None => 0,
        };
        let next = found.get(after).or_else(|| found.first()).copied().ok_or_else(|| Arc::<str>::from("it is nowhere"))?;
        (self.last, self.worked) = (Some(next), false);
        Ok(next)
    }

    /// A session has come up, with the peer at this address.
    pub(super) const fn worked(&mut self, peer: Found) {
        (self.last, self.worked) = (Some(peer), true);
    }

    /// What an operator should know of where the peer is: that it is nowhere, or in several places. Nothing before it was looked for.
    pub(super) fn problem(&self, whereabouts: &Whereabouts) -> Option<String> {
        whereabouts.get(&self.peer)?;
        match (&self.peer, candidates(&self.peer, whereabouts)) {
            (_, Err(reason)) => Some(reason.to_string()),
            (PeerAddress::Unnumbered(interface), Ok(found)) if found.len() > 1 => {
                let routers: Vec<String> = found.iter().map(|found| found.address.to_string()).collect();
                Some(format!("{} routers are heard on {interface}: {}; the session is with one of them", found.len(), routers.join(", ")))
            }
            (_, Ok(_)) => None,
        }
    }

    /// Whether a connection to this address is one to the peer no more: the default gateway is another one.
    pub(super) fn has_left(&self, address: Found, whereabouts: &Whereabouts) -> bool {
        let elsewhere = || candidates(&self.peer, whereabouts).is_ok_and(|found| !found.contains(&address));
        self.peer == PeerAddress::Gateway && elsewhere()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn router(last: u16) -> Found {
        Found::new(IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, last]), 7)
    }

    fn eth1() -> PeerAddress {
        PeerAddress::Unnumbered("eth1".to_owned())
    }

    fn heard(routers: &[Found]) -> Whereabouts {
        Whereabouts::from([(eth1(), Ok(routers.to_vec()))])
    }

    #[test]
    fn what_worked_is_dialled_again_and_what_did_not_is_passed_over() {
        let (a, b) = (router(1), router(2));
        let mut destination = Destination::new(eth1());
        let both = heard(&[a, b]);
        assert_eq!(destination.next(&both), Ok(a), "the first heard");
        destination.worked(a);
        assert_eq!(destination.next(&both), Ok(a));
        assert_eq!(destination.next(&both), Ok(b), "a did not answer");
        assert_eq!(destination.next(&both), Ok(a));
        assert_eq!(destination.next(&heard(&[b])), Ok(b), "a is forgotten");
        destination.worked(a);
        assert_eq!(destination.next(&both), Ok(a), "it has dialled us");
    }

    #[test]
    fn a_peer_that_is_nowhere_or_in_two_places_is_told() {
        let mut destination = Destination::new(eth1());
        assert_eq!(destination.problem(&Whereabouts::new()), None);
        let silent = Whereabouts::from([(eth1(), Err("no router has been heard on eth1".into()))]);
        assert_eq!(destination.next(&silent).unwrap_err().as_ref(), "no router has been heard on eth1");
        assert_eq!(destination.problem(&silent).as_deref(), Some("no router has been heard on eth1"));
        assert_eq!(destination.problem(&heard(&[router(1)])), None);
        assert_eq!(
            destination.problem(&heard(&[router(1), router(2)])).as_deref(),
            Some("2 routers are heard on eth1: fe80::1, fe80::2; the session is with one of them")
        );
    }

    #[test]
    fn only_a_gateway_that_is_another_one_has_left() {
        let (a, b) = (router(1), router(2));
        let gateway = Destination::new(PeerAddress::Gateway);
        let is = |found: Result<Vec<Found>, Arc<str>>| Whereabouts::from([(PeerAddress::Gateway, found)]);
        assert!(!gateway.has_left(a, &is(Ok(vec![a]))));
        assert!(gateway.has_left(a, &is(Ok(vec![b]))));
        assert!(!gateway.has_left(a, &is(Err("no default route".into()))), "a route that comes and goes ends no session");
        assert!(!Destination::new(eth1()).has_left(a, &heard(&[b])), "an unnumbered session ends by itself");
    }
}
