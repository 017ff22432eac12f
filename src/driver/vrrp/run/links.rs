// SPDX-License-Identifier: Apache-2.0
//! The links with a virtual router MAC as the loop has them: which are made, which go, and when they are up.
//!
//! Input: the groups, the record, and the links that are there. Invariants: a link that another instance has made, by its alias, or that a living process of this
//! one may have, by its claim, is not touched; one that is ours and needed by no group goes, whoever has left it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::time::Instant;

use super::super::claim::ClaimError;
use super::super::group::Home;
use super::super::netlink::{Link, Netlink};
use super::super::placement::Change;
use super::super::record::Recorded;
use super::super::virtual_link::VirtualLink;
use super::{Claims, Driver, Interface, RETRY};

impl Driver {
    /// Knows the links of this instance that are there, whoever has left them.
    pub(super) fn find_links(&mut self) {
        match self.netlink.macvlans() {
            Ok(found) => {
                let ours = found.iter().filter(|(name, link)| VirtualLink::named(name).is_some_and(|known| known.is(*link)));
                for (name, _) in ours.filter(|(name, _)| !self.interfaces.contains_key(name)).cloned().collect::<Vec<_>>() {
                    self.know(&name);
                    self.news = true;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "links that an earlier process may have left cannot be read; it is tried again");
                self.retry_at.get_or_insert_with(|| Instant::now() + RETRY);
            }
        }
    }

    /// Makes the links with a virtual router MAC that the groups need, and removes those that nobody needs any more. `names`: of all other interfaces
    /// there are to be.
    pub(super) fn make_links(&mut self, mut names: BTreeSet<String>, recorded: &Recorded) {
        self.remove_unrecorded(recorded);
        let mut needed = Vec::new();
        for group in self.groups.values() {
            let link = self.interfaces.get(group.interface()).and_then(|interface| interface.link);
            let claimed = link.filter(|link| matches!(self.claims.get(&(link.index, group.vrid())), Some(Ok(_))));
            needed.extend(claimed.iter().flat_map(|link| group.virtual_links(link.index)));
        }
        for link in needed {
            let name = link.name();
            self.know(&name);
            if self.interfaces.get(&name).is_some_and(|interface| interface.link.is_none()) {
                if let Err(error) = self.netlink.add_link(link) {
                    tracing::warn!(interface = name, %error, "the link with the virtual router MAC cannot be made; it is tried again");
                    self.retry_at.get_or_insert_with(|| Instant::now() + RETRY);
                }
                self.read_interface(&name);
            }
            names.insert(name);
        }
        let mut unneeded = Vec::new();
        self.interfaces.retain(|name, interface| {
            let link = interface.virtual_link(name).filter(|_| !names.contains(name));
            unneeded.extend(link.map(|link| (name.clone(), link)));
            names.contains(name) || link.is_some()
        });
        for (name, link) in unneeded {
            if is_free(&self.claims, &name) && self.remove(&name, link) {
                self.interfaces.remove(&name);
            }
        }
    }

    /// Where a link that was found has an address that is not recorded, nobody knows whether it may be answered for: the link goes, and is made anew where it is
    /// needed.
    fn remove_unrecorded(&mut self, recorded: &Recorded) {
        let none = BTreeSet::new();
        let mut unrecorded = Vec::new();
        for (name, interface) in &mut self.interfaces {
            let Some(link) = interface.virtual_link(name).filter(|_| interface.as_found && is_free(&self.claims, name)) else { continue };
            let recorded = recorded.get(name).unwrap_or(&none);
            interface.as_found = false;
            if !interface.inventory.host_addresses().all(|address| recorded.contains(&address)) {
                unrecorded.push((name.clone(), link));
            }
        }
        for (name, link) in unrecorded {
            let gone = self.remove(&name, link);
            self.interfaces.insert(name.clone(), Interface { as_found: !gone, ..Interface::default() });
            self.read_interface(&name);
        }
    }

    /// The addresses that are on links with a virtual router MAC, by the index of the interface that each link is on.
    pub(super) fn on_links(&self) -> BTreeMap<u32, BTreeSet<IpAddr>> {
        let mut on_links: BTreeMap<u32, BTreeSet<IpAddr>> = BTreeMap::new();
        for (name, interface) in &self.interfaces {
            if let Some(parent) = interface.virtual_link(name).and_then(|link| link.parent) {
                on_links.entry(parent).or_default().extend(interface.inventory.host_addresses());
            }
        }
        on_links
    }

    /// Whether the link is gone; else it is tried again.
    fn remove(&mut self, name: &str, link: Link) -> bool {
        let removed = self.netlink.remove_link(link.index);
        if let Err(error) = &removed {
            tracing::warn!(interface = name, %error, "the link with the virtual router MAC cannot be removed; it is tried again");
            self.retry_at.get_or_insert_with(|| Instant::now() + RETRY);
        }
        removed.is_ok()
    }
}

impl Interface {
    /// The link, where this is one with a virtual router MAC.
    pub(super) fn virtual_link(&self, name: &str) -> Option<Link> {
        self.link.filter(|link| VirtualLink::named(name).is_some_and(|known| known.is(*link)))
    }

    /// A link with a virtual router MAC comes up with its first address.
    pub(super) fn come_up(&mut self, name: &str, netlink: &mut Netlink) -> io::Result<()> {
        let adds = self.queue.iter().any(|change| matches!(change, Change::Add(_)));
        if let Some(link) = self.virtual_link(name).filter(|link| adds && !link.up) {
            netlink.set_up(link.index, true)?;
            self.link = Some(Link { up: true, ..link });
        }
        Ok(())
    }

    /// And goes down before its last one goes: the kernel would tell the link of that by Multicast Listener Discovery (RFC 3810 §6.1), from the virtual
    /// router MAC, and switches would send here what is for another router by then.
    pub(super) fn go_down_before_the_last(&mut self, name: &str, netlink: &mut Netlink) {
        let removed: BTreeSet<IpAddr> =
            self.queue.iter().filter_map(|change| if let Change::Remove(address) = change { Some(*address) } else { None }).collect();
        if removed.len() == self.queue.len() && self.inventory.host_addresses().all(|address| removed.contains(&address)) {
            self.go_down(name, netlink);
        }
    }

    /// Where it has none.
    pub(super) fn go_down_where_empty(&mut self, name: &str, netlink: &mut Netlink) {
        if self.queue.is_empty() && self.inventory.host_addresses().next().is_none() {
            self.go_down(name, netlink);
        }
    }

    fn go_down(&mut self, name: &str, netlink: &mut Netlink) {
        let Some(link) = self.virtual_link(name).filter(|link| link.up) else { return };
        match netlink.set_up(link.index, false) {
            Ok(()) => self.link = Some(Link { up: false, ..link }),
            Err(error) => tracing::warn!(interface = name, %error, "the link with the virtual router MAC does not go down"),
        }
    }
}

/// Whether no other process of this instance can have the link of this name: a link of another instance has another alias.
pub(super) fn is_free(claims: &Claims, name: &str) -> bool {
    let Some(link) = VirtualLink::named(name) else { return true };
    matches!(claims.get(&(link.parent, link.vrid)), Some(Ok(_) | Err(ClaimError::Instance(_))))
}

/// Where addresses on the interface of this name are, if it is there. One that has the name of a link with a virtual router MAC is to be one.
pub(super) fn home<'a>(
    interfaces: &'a BTreeMap<String, Interface>,
    recorded: &'a Recorded,
    none: &'a BTreeSet<IpAddr>,
    name: &str,
) -> Option<Home<'a>> {
    let interface = interfaces.get(name)?;
    let is_as_named = VirtualLink::named(name).is_none() || interface.virtual_link(name).is_some();
    (interface.link.is_some() && is_as_named)
        .then(|| Home { inventory: &interface.inventory, recorded: recorded.get(name).unwrap_or(none) })
}
