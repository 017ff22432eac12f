// SPDX-License-Identifier: Apache-2.0
//! The way of our addresses to another `vips.interface`: added there and read back, then taken from where an earlier process has placed them.
//!
//! Inputs: the interfaces that the record names, what it has, and the addresses of the node. Output: our addresses on `vips.interface`, and a record that
//! names it alone. Invariants: each address is on one of both at any time; nothing is removed but what record and kernel say is ours; what another
//! instance has there as well stays. The record names both interfaces until all is done, so that the next process goes on where this one ended.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bgp::Prefix;
use futures_util::{StreamExt as _, stream};

use super::address::{self, Addresses, Interface};
use super::{Kernel, KernelError, WINDOW, judge, others};
use crate::observed::{ADDRESS_PROTOCOL, ObservedAddress, Record};
use crate::plan::Step;

impl Kernel {
    /// Whether the record has addresses on another interface than `vips.interface`, where an earlier process has placed them.
    #[must_use]
    pub fn has_to_move(&self) -> bool {
        !self.former.is_empty()
    }

    /// Moves them, if `vips.interface` is up. Until then, and where one cannot be moved, they count as they are.
    ///
    /// # Errors
    /// There is no such interface or it is down, or kernel or record cannot be read or changed. What could be moved is; the next call goes on.
    pub async fn move_addresses(&mut self) -> Result<(), KernelError> {
        let found = self.find_interface().await.map_err(|source| KernelError::Lookup { interface: self.interface.clone(), source })?;
        if !self.has_to_move() {
            return Ok(());
        }
        let interface = found.ok_or_else(|| KernelError::NoInterface { interface: self.interface.clone() })?;
        if !interface.up {
            return Err(KernelError::Down { interface: self.interface.clone() });
        }
        self.keeper.name_interface(&BTreeSet::new()).await?;
        self.addresses = None;
        let former = self.former_interfaces().await?;
        let addresses = self.dump(Some(interface), &former).await?;
        let ours = addresses.ours_on_former(self.keeper.known());
        let added =
            self.add_all(interface, ours.iter().map(|(_, address)| *address).filter(|address| !addresses.here.contains_key(address))).await;
        let there = self.dump(Some(interface), &former).await?.here;
        for (name, index) in &former {
            let shared = others::read(self.keeper.name(), name).await?.addresses;
            let moved = ours.iter().filter(|(on, address)| on == index && there.contains_key(address) && !shared.contains(address));
            for (_, address) in moved {
                let removed = address::remove(&self.handle, *index, *address).await;
                judge(&Step::RemoveAddress(*address), name, removed)?;
            }
        }
        added?;
        self.keeper.name_interface(&self.former).await?;
        let from = self.former.iter().cloned().collect::<Vec<_>>().join(", ");
        if !ours.is_empty() {
            tracing::info!(vips = ours.len(), from, to = self.interface, "vips.interface is another one; the VIPs have moved there");
        }
        self.former.clear();
        Ok(())
    }

    /// The indices of the interfaces from which addresses are to be moved; one that is gone has taken them along.
    pub(super) async fn former_interfaces(&self) -> Result<BTreeMap<String, u32>, KernelError> {
        let mut found = BTreeMap::new();
        for name in &self.former {
            let interface = address::find_interface(&self.handle, name).await;
            let interface = interface.map_err(|source| KernelError::Lookup { interface: name.clone(), source })?;
            found.extend(interface.map(|interface| (name.clone(), interface.index)));
        }
        Ok(found)
    }

    async fn dump(&self, interface: Option<Interface>, former: &BTreeMap<String, u32>) -> Result<Addresses, KernelError> {
        let former: BTreeSet<u32> = former.values().copied().collect();
        address::dump(&self.handle, interface.map(|interface| interface.index), &former).await.map_err(KernelError::Dump)
    }

    /// The first error, once all were tried.
    async fn add_all(&self, interface: Interface, addresses: impl Iterator<Item = IpAddr>) -> Result<(), KernelError> {
        let handle = &self.handle;
        let requests: Vec<_> =
            addresses.map(|address| async move { (address, address::add(handle, interface.index, address).await) }).collect();
        let outcomes: Vec<_> = stream::iter(requests).buffered(WINDOW).collect().await;
        outcomes.into_iter().try_for_each(|(address, outcome)| judge(&Step::AddAddress(address), &self.interface, outcome))
    }
}

impl Addresses {
    /// Those that we have placed on a former interface, with its index.
    pub(super) fn ours_on_former(&self, record: &Record) -> Vec<(u32, IpAddr)> {
        let ours = self.former.iter().filter(|(_, address, seen)| self.is_ours(*address, *seen, record));
        ours.map(|(index, address, _)| (*index, *address)).collect()
    }

    /// Counts those among the addresses of `vips.interface`: they are what is served until they have moved. All others are elsewhere.
    pub(super) fn settle_former(&mut self, record: &Record) {
        for (index, address, seen) in std::mem::take(&mut self.former) {
            if self.is_ours(address, seen, record) {
                self.here.entry(address).or_insert(seen);
                self.former.push((index, address, seen));
            } else {
                self.elsewhere.insert(address);
            }
        }
    }

    fn is_ours(&self, address: IpAddr, seen: ObservedAddress, record: &Record) -> bool {
        let is_recorded = match seen.protocol {
            Some(protocol) => protocol == ADDRESS_PROTOCOL && (record.confirmed.contains(&address) || record.pending.contains(&address)),
            // Before that is confirmed it may be somebody else's.
            None => !self.protocols && record.confirmed.contains(&address),
        };
        is_recorded && seen.prefix_length == Prefix::host(address).length()
    }
}
