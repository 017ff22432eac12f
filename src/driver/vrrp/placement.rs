// SPDX-License-Identifier: Apache-2.0
//! Which addresses of an interface are ours, which of them are to come or to go, and from which address advertisements are sent. Values only.
//!
//! Input: what is on the interface, what the record says of it, and what the virtual routers want. Output: [`Change`]s, and the source address.
//!
//! Invariant: what the record does not prove ours is never removed. An address is recorded while it is not there, or was ours before: so one that is
//! there and recorded was placed by us, unless the kernel names another who set it, or refused to add it since it was there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use vrrp::Family;
use vrrp::router::Holding;

use crate::observed::ADDRESS_PROTOCOL;

/// An address that is on an interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Present {
    pub(super) prefix_length: u8,
    /// Who set it, where the kernel tells.
    pub(super) protocol: Option<u8>,
    /// Duplicate address detection is over, and has found nobody (RFC 4862 §5.4).
    pub(super) usable: bool,
    /// It is neither deprecated nor temporary (RFC 4862 §5.5.4, RFC 8981).
    pub(super) lasting: bool,
}

/// A change of the /32 or /128 of an address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Change {
    Add(IpAddr),
    Remove(IpAddr),
}

/// What is on an interface.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Inventory {
    present: BTreeMap<IpAddr, Present>,
    /// Somebody else placed them while we looked on.
    foreign: BTreeSet<IpAddr>,
    /// It was read, and all that we did since is in it.
    known: bool,
    /// Whether the kernel tells who set an address, as it does from 5.18 on.
    protocols: bool,
}

impl Inventory {
    /// What was read. Where an address is there with several lengths, the longest counts. One that has come since it was read before is somebody else's.
    pub(super) fn replace(&mut self, read: Vec<(IpAddr, Present)>) {
        let before = std::mem::take(&mut self.present);
        for (address, found) in read {
            self.protocols |= found.protocol.is_some();
            let entry = self.present.entry(address).or_insert(found);
            if found.prefix_length > entry.prefix_length {
                *entry = found;
            }
        }
        self.foreign.retain(|address| self.present.contains_key(address));
        if std::mem::replace(&mut self.known, true) {
            self.foreign.extend(self.present.keys().filter(|address| !before.contains_key(address)));
        }
    }

    /// What we have done may not be in it: when it is read next, the record alone tells what is ours.
    pub(super) const fn distrust(&mut self) {
        self.known = false;
    }

    /// The kernel is known to tell who set an address.
    pub(super) const fn expect_protocols(&mut self) {
        self.protocols = true;
    }

    /// A change that the kernel has made.
    pub(super) fn apply(&mut self, change: Change) {
        match change {
            Change::Add(address) => {
                let prefix_length = if address.is_ipv4() { 32 } else { 128 };
                let protocol = self.protocols.then_some(ADDRESS_PROTOCOL);
                self.present.insert(address, Present { prefix_length, protocol, usable: true, lasting: false });
            }
            Change::Remove(address) => {
                self.present.remove(&address);
            }
        }
    }

    /// Somebody else has placed it.
    pub(super) fn disown(&mut self, address: IpAddr) {
        self.foreign.insert(address);
    }

    /// The addresses with a length of /32 or /128, as virtual addresses have.
    pub(super) fn host_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.present.iter().filter(|(address, found)| is_host(**address, found)).map(|(address, _)| *address)
    }

    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.present.contains_key(&address)
    }

    /// Whether the record and the kernel prove that we have placed what is there.
    pub(super) fn is_ours(&self, address: IpAddr, recorded: &BTreeSet<IpAddr>) -> bool {
        let is_ours = |found: &Present| match found.protocol {
            Some(protocol) => protocol == ADDRESS_PROTOCOL,
            None => !self.protocols,
        };
        recorded.contains(&address)
            && !self.foreign.contains(&address)
            && self.present.get(&address).is_some_and(|found| is_host(address, found) && is_ours(found))
    }

    /// What the record is to say, of the addresses that are `wanted` there: those that are not there, so that they will be ours, and those that are ours.
    pub(super) fn to_record(&self, wanted: &BTreeSet<IpAddr>, recorded: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
        let left = recorded.iter().copied().filter(|address| self.is_ours(*address, recorded));
        wanted.iter().copied().filter(|address| !self.has(*address)).chain(left).collect()
    }

    /// Whether everything of these is either ours to place, or there already.
    pub(super) fn is_prepared(&self, wanted: &BTreeSet<IpAddr>, recorded: &BTreeSet<IpAddr>) -> bool {
        wanted.iter().all(|address| recorded.contains(address) || self.has(*address))
    }

    /// What is to change, the additions first: who takes over is waited for.
    pub(super) fn changes(&self, wanted: &Wanted, recorded: &BTreeSet<IpAddr>) -> Vec<Change> {
        let added = wanted.held.iter().filter(|address| !self.has(**address) && recorded.contains(address));
        let stays = |address: &IpAddr| wanted.held.contains(address) || wanted.left.contains(address);
        let removed = recorded.iter().filter(|address| self.is_ours(**address, recorded) && !stays(address));
        added.copied().map(Change::Add).chain(removed.copied().map(Change::Remove)).collect()
    }

    /// The address that advertisements to these are sent from; `None` while there is none that can.
    pub(super) fn source(
        &self,
        family: Family,
        link_local: bool,
        configured: Option<IpAddr>,
        virtual_addresses: &[IpAddr],
    ) -> Option<IpAddr> {
        let is_link_local = |address: &IpAddr| matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        let own = || {
            let of_family =
                self.present.iter().filter(|(address, _)| Family::of(**address) == family && !virtual_addresses.contains(address));
            of_family.filter(|(_, found)| found.usable)
        };
        if let Some(configured) = configured {
            return own().find(|(address, _)| **address == configured).map(|(address, _)| *address);
        }
        let suitable = own().filter(|(address, found)| is_link_local(address) == link_local && found.lasting && !address.is_loopback());
        // One that has hosts beside it is the address of the node on this link; the lowest, so that it stays the same.
        suitable.min_by_key(|(_, found)| found.prefix_length >= if family == Family::Ipv4 { 32 } else { 128 }).map(|(address, _)| *address)
    }
}

const fn is_host(address: IpAddr, found: &Present) -> bool {
    found.prefix_length == if address.is_ipv4() { 32 } else { 128 }
}

/// What the virtual routers on one interface want.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Wanted {
    /// To be there.
    pub(super) held: BTreeSet<IpAddr>,
    /// To stay where they are there.
    pub(super) left: BTreeSet<IpAddr>,
    /// Those of them that are not answered for.
    pub(super) silent: BTreeSet<IpAddr>,
    /// To go where they are there.
    released: BTreeSet<IpAddr>,
}

impl Wanted {
    /// One virtual router wants this; `None` where it has not said.
    pub(super) fn add(&mut self, addresses: impl Iterator<Item = IpAddr>, holding: Option<Holding>) {
        match holding {
            Some(Holding::Held) => self.held.extend(addresses),
            Some(Holding::Silent) => {
                let addresses: Vec<IpAddr> = addresses.collect();
                self.left.extend(&addresses);
                self.silent.extend(&addresses);
            }
            Some(Holding::Left) | None => self.left.extend(addresses),
            Some(Holding::Released) => self.released.extend(addresses),
        }
    }

    /// What no virtual router speaks of stays, and is not answered for.
    pub(super) fn leave_others(&mut self, recorded: &BTreeSet<IpAddr>) {
        let is_spoken_of = |address: &IpAddr| [&self.held, &self.left, &self.released].iter().any(|set| set.contains(address));
        let others: Vec<IpAddr> = recorded.iter().copied().filter(|address| !is_spoken_of(address)).collect();
        self.left.extend(&others);
        self.silent.extend(&others);
    }

    /// What no virtual router speaks of stays as it is, for the next process.
    pub(super) fn keep_others(&mut self, recorded: &BTreeSet<IpAddr>) {
        self.left.extend(recorded.iter().filter(|address| !self.released.contains(address)));
    }

    /// Those that are there and not answered for.
    pub(super) fn silent_on(&self, inventory: &Inventory) -> BTreeSet<IpAddr> {
        self.silent.iter().copied().filter(|address| !self.held.contains(address) && inventory.has(*address)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Option<u8> = Some(ADDRESS_PROTOCOL);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn set(texts: &[&str]) -> BTreeSet<IpAddr> {
        texts.iter().map(|text| ip(text)).collect()
    }

    fn inventory(addresses: &[(&str, u8, Option<u8>)]) -> Inventory {
        let found = |prefix_length, protocol| Present { prefix_length, protocol, usable: true, lasting: true };
        let mut inventory = Inventory::default();
        inventory.replace(addresses.iter().map(|(address, length, protocol)| (ip(address), found(*length, *protocol))).collect());
        inventory
    }

    #[test]
    fn ours_is_what_the_record_and_the_kernel_say_so_of() {
        let recorded = set(&["10.0.0.7", "2001:db8::7"]);
        for (address, length, protocol, elsewhere, is_ours) in [
            ("10.0.0.7", 32, OURS, OURS, true),
            ("2001:db8::7", 128, OURS, OURS, true),
            ("10.0.0.7", 32, None, None, true),
            ("10.0.0.7", 32, None, Some(2), false),
            ("10.0.0.7", 32, Some(2), OURS, false),
            ("10.0.0.7", 24, OURS, OURS, false),
            ("10.0.0.8", 32, OURS, OURS, false),
        ] {
            let inventory = inventory(&[(address, length, protocol), ("fe80::1", 64, elsewhere)]);
            assert_eq!(inventory.is_ours(ip(address), &recorded), is_ours, "{address}/{length} of {protocol:?}");
            let removed = inventory.changes(&Wanted::default(), &recorded);
            assert_eq!(removed, if is_ours { vec![Change::Remove(ip(address))] } else { vec![] });
        }
    }

    #[test]
    fn what_somebody_else_placed_first_is_not_ours_until_it_goes() {
        let recorded = set(&["10.0.0.7"]);
        let mut inventory = inventory(&[("10.0.0.7", 32, None)]);
        assert!(inventory.is_ours(ip("10.0.0.7"), &recorded));
        inventory.disown(ip("10.0.0.7"));
        assert!(!inventory.is_ours(ip("10.0.0.7"), &recorded));
        assert_eq!(inventory.to_record(&recorded, &recorded), set(&[]));
        inventory.replace(vec![]);
        assert_eq!(inventory.to_record(&recorded, &set(&[])), recorded);
        inventory.replace(vec![(ip("10.0.0.7"), Present { prefix_length: 32, protocol: None, usable: true, lasting: true })]);
        assert!(!inventory.is_ours(ip("10.0.0.7"), &recorded), "it has come without us");
        inventory.replace(vec![]);
        inventory.apply(Change::Add(ip("10.0.0.7")));
        assert!(inventory.is_ours(ip("10.0.0.7"), &recorded));
    }

    #[test]
    fn only_what_is_not_there_or_ours_is_recorded() {
        let inventory = inventory(&[("10.0.0.7", 32, OURS), ("10.0.0.8", 32, None), ("10.0.0.9", 32, OURS)]);
        let recorded = set(&["10.0.0.7", "10.0.0.9"]);
        let wanted = set(&["10.0.0.7", "10.0.0.8", "10.0.0.10"]);
        assert_eq!(inventory.to_record(&wanted, &recorded), set(&["10.0.0.7", "10.0.0.9", "10.0.0.10"]), "10.0.0.9 goes first");
        assert!(!inventory.is_prepared(&wanted, &recorded), "10.0.0.10 cannot be placed yet");
        assert!(inventory.is_prepared(&wanted, &set(&["10.0.0.7", "10.0.0.10"])));
    }

    #[test]
    fn of_two_routers_the_one_that_holds_an_address_decides() {
        let inventory = inventory(&[("10.0.0.7", 32, OURS), ("10.0.0.8", 32, OURS), ("10.0.0.9", 32, OURS)]);
        let recorded = set(&["10.0.0.7", "10.0.0.8", "10.0.0.9", "10.0.0.10"]);
        let mut wanted = Wanted::default();
        wanted.add([ip("10.0.0.7"), ip("10.0.0.8"), ip("10.0.0.9")].into_iter(), Some(Holding::Released));
        wanted.add([ip("10.0.0.7")].into_iter(), Some(Holding::Silent));
        wanted.add([ip("10.0.0.8"), ip("10.0.0.10"), ip("10.0.0.11")].into_iter(), Some(Holding::Held));
        wanted.add([ip("10.0.0.8")].into_iter(), Some(Holding::Silent));
        let expected = [Change::Add(ip("10.0.0.10")), Change::Remove(ip("10.0.0.9"))];
        assert_eq!(inventory.changes(&wanted, &recorded), expected, "what is not recorded is not placed");
        assert_eq!(wanted.silent_on(&inventory), set(&["10.0.0.7"]));
        // What has not been said yet leaves things as they are.
        let mut wanted = Wanted::default();
        wanted.add(recorded.iter().copied(), None);
        assert_eq!((inventory.changes(&wanted, &recorded), wanted.silent_on(&inventory)), (vec![], set(&[])));
    }

    #[test]
    fn the_source_is_an_address_of_the_node() {
        let inventory = inventory(&[
            ("10.0.0.7", 32, OURS),
            ("10.9.0.2", 24, None),
            ("10.8.0.2", 32, None),
            ("2001:db8::7", 128, OURS),
            ("2001:db8:9::2", 64, None),
            ("fe80::2", 64, None),
        ]);
        let vips = [ip("10.0.0.7"), ip("2001:db8::7")];
        let source = |family, link_local, configured: Option<&str>| inventory.source(family, link_local, configured.map(ip), &vips);
        assert_eq!(source(Family::Ipv4, false, None), Some(ip("10.9.0.2")));
        assert_eq!(source(Family::Ipv4, false, Some("10.8.0.2")), Some(ip("10.8.0.2")));
        assert_eq!(source(Family::Ipv4, false, Some("10.9.0.3")), None, "it is not there");
        assert_eq!(source(Family::Ipv4, false, Some("10.0.0.7")), None, "daemons must not advertise from a virtual address");
        assert_eq!(source(Family::Ipv6, true, None), Some(ip("fe80::2")));
        assert_eq!(source(Family::Ipv6, false, None), Some(ip("2001:db8:9::2")));
    }

    #[test]
    fn an_address_that_may_be_somebody_elses_or_goes_soon_is_no_source() {
        let mut inventory = Inventory::default();
        let found = Present { prefix_length: 64, protocol: None, usable: true, lasting: true };
        inventory
            .replace(vec![(ip("fe80::2"), Present { usable: false, ..found }), (ip("2001:db8::2"), Present { lasting: false, ..found })]);
        assert_eq!((inventory.source(Family::Ipv6, true, None, &[]), inventory.source(Family::Ipv6, false, None, &[])), (None, None));
        assert_eq!(inventory.source(Family::Ipv6, false, Some(ip("2001:db8::2")), &[]), Some(ip("2001:db8::2")), "unless somebody says so");
    }
}
