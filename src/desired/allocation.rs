// SPDX-License-Identifier: Apache-2.0
//! Which addresses each Service of our load balancer class is to have in `status.loadBalancer.ingress`.
//!
//! Inputs: a complete snapshot, the configuration, what was compiled of both, and what was recorded since the snapshot was made. Output: an
//! [`Assignment`] for each such Service. Pure and total. It is carried out by one node, which writes it down; all others see it there.
//!
//! Invariants: what is recorded stays as it is, whatever becomes of pools and other objects; first all of that is taken in, and only then something new is
//! given, to the oldest Service first; an address that anybody wants, has or is reserved for is not given to anybody else, unless both share it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bgp::Prefix;

use super::Compiled;
use super::addresses::{Reserved, unfit};
use super::claims::{Claimant, claimants};
use super::load_balancer::{IpFamily, LoadBalancer};
use crate::api::{IPS_KEY, ObjectRef, POOL_KEY, quoted};
use crate::config::{Config, Vips};
use crate::source::Snapshot;

/// So many addresses that somebody has in spite of the pool are tried before it counts as used up.
const MOST_RESERVED: usize = 65_536;

/// What a Service gets.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Assignment {
    /// Its addresses, in the order of its families.
    pub addresses: Vec<IpAddr>,
    /// What it should have and does not get, for the person who has to mend it.
    pub lacking: Option<Lacking>,
}

/// See [`Assignment::lacking`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lacking {
    /// A CamelCase word: `NoPool` or `PoolExhausted`.
    pub reason: &'static str,
    /// In words.
    pub message: String,
    /// The Service has an address of another family, and only prefers to have this one too.
    pub is_tolerable: bool,
}

/// Addresses of Services that a snapshot may not show yet.
pub type Records = BTreeMap<ObjectRef, Vec<IpAddr>>;

/// See the module.
#[must_use]
pub fn allocate(snapshot: &Snapshot, config: &Config, compiled: &Compiled, records: &Records) -> BTreeMap<ObjectRef, Assignment> {
    let mut ignored = Vec::new();
    let claimants = claimants(snapshot, config, &mut ignored);
    let mut balancers: Vec<Balancer<'_>> =
        claimants.iter().filter_map(|claimant| Balancer::new(claimant, snapshot, compiled, records)).collect();
    balancers.sort_by_key(|balancer| balancer.claimant.age());
    let mut users: BTreeMap<IpAddr, Vec<&Claimant<'_>>> = BTreeMap::new();
    for claimant in &claimants {
        claimant.vips.keys().for_each(|vip| users.entry(*vip).or_default().push(claimant));
    }
    for address in records.values().flatten() {
        users.entry(*address).or_default();
    }
    for balancer in &balancers {
        balancer.assignment.addresses.iter().for_each(|address| users.entry(*address).or_default().push(balancer.claimant));
    }
    if balancers.iter().any(|balancer| !balancer.missing.is_empty()) {
        let in_pool = |address| config.vips.pools.iter().flat_map(|pool| &pool.prefixes).any(|prefix| prefix.contains(address));
        let reserved = Reserved::new(snapshot, config, &in_pool, &mut ignored);
        let mut pools = Pools { vips: &config.vips, reserved, users, next: BTreeMap::new() };
        balancers.iter_mut().for_each(|balancer| balancer.complete(&mut pools));
    }
    balancers.into_iter().map(|balancer| (balancer.claimant.object.clone(), balancer.assignment)).collect()
}

/// A Service of our class.
struct Balancer<'a> {
    claimant: &'a Claimant<'a>,
    asks: LoadBalancer<'a>,
    assignment: Assignment,
    /// The families of which it is still to get an address.
    missing: Vec<IpFamily>,
}

impl<'a> Balancer<'a> {
    /// With what it has already.
    fn new(claimant: &'a Claimant<'a>, snapshot: &'a Snapshot, compiled: &Compiled, records: &Records) -> Option<Self> {
        let service = snapshot.services.get(claimant.object)?;
        let asks = LoadBalancer::new(service, &mut |_| {})?;
        let mut addresses: Vec<IpAddr> = if asks.by_name {
            let owns = |vip: &IpAddr| compiled.desired.vips.get(vip).is_some_and(|desired| desired.owners.contains(claimant.object));
            asks.requested.keys().copied().filter(owns).collect()
        } else if asks.recorded.is_empty() {
            records.get(claimant.object).cloned().unwrap_or_default()
        } else {
            asks.recorded.keys().copied().collect()
        };
        let rank = |address: &IpAddr| asks.families.iter().position(|family| *family == IpFamily::of(*address));
        addresses.retain(|address| rank(address).is_some());
        addresses.sort_by_key(|address| (rank(address), *address));
        let has = |family: &IpFamily| addresses.iter().any(|address| IpFamily::of(*address) == *family);
        let missing = asks.families.iter().copied().filter(|family| !asks.by_name && !has(family)).collect();
        let lacking = (asks.by_name && addresses.is_empty()).then(|| Lacking {
            reason: "RequestRefused",
            message: format!("none of the addresses that it asks for by {IPS_KEY} or spec.loadBalancerIP can be had"),
            is_tolerable: false,
        });
        Some(Self { claimant, asks, assignment: Assignment { addresses, lacking }, missing })
    }

    /// Gives it what it misses.
    fn complete(&mut self, pools: &mut Pools<'a, '_>) {
        for family in std::mem::take(&mut self.missing) {
            match pools.take(self.claimant, &self.asks, family) {
                Ok(address) => self.assignment.addresses.push(address),
                Err(lacking) => self.assignment.lacking = Some(lacking),
            }
        }
        let rank = |address: &IpAddr| self.asks.families.iter().position(|family| *family == IpFamily::of(*address));
        self.assignment.addresses.sort_by_key(|address| (rank(address), *address));
        if let Some(lacking) = &mut self.assignment.lacking {
            lacking.is_tolerable = self.asks.prefers_dual_stack && !self.assignment.addresses.is_empty();
        }
    }
}

/// The pools and who has what.
struct Pools<'a, 'c> {
    vips: &'c Vips,
    reserved: Reserved<'a>,
    users: BTreeMap<IpAddr, Vec<&'a Claimant<'a>>>,
    /// Where nothing before this is free, of each range of addresses.
    next: BTreeMap<Prefix, Option<IpAddr>>,
}

impl<'a> Pools<'a, '_> {
    /// An address of this family for a Service, which has it from now on.
    fn take(&mut self, claimant: &'a Claimant<'a>, asks: &LoadBalancer<'_>, family: IpFamily) -> Result<IpAddr, Lacking> {
        let ranges = self.ranges(&claimant.object.namespace, asks.pool, family)?;
        let shared =
            || self.users.iter().find(|(address, users)| self.is_shared(**address, users, claimant, &ranges)).map(|(address, _)| *address);
        let shared = asks.sharing_key.and_then(|_| shared());
        let found = shared.or_else(|| ranges.iter().find_map(|range| self.free(*range, claimant)));
        let address = found.ok_or_else(|| Lacking {
            reason: "PoolExhausted",
            message: format!(
                "no {family} address is free in {} of vips.pools: give it more prefixes, or free addresses",
                asks.pool.map_or_else(|| "any pool".to_owned(), |pool| format!("pool {}", quoted(pool)))
            ),
            is_tolerable: false,
        })?;
        self.users.entry(address).or_default().push(claimant);
        Ok(address)
    }

    /// From where it may be given an address: of the pools, what is for its namespace.
    fn ranges(&self, namespace: &str, pool: Option<&str>, family: IpFamily) -> Result<Vec<Prefix>, Lacking> {
        let lacking = |message| Lacking { reason: "NoPool", message, is_tolerable: false };
        let names: Vec<&str> = self.vips.pools.iter().map(|pool| pool.name.as_str()).collect();
        if names.is_empty() {
            return Err(lacking(format!(
                "there is no pool in vips.pools; configure one, or ask for an address by the annotation {IPS_KEY}"
            )));
        }
        if let Some(pool) = pool.filter(|pool| !names.contains(pool)) {
            return Err(lacking(format!("{POOL_KEY}: there is no pool {} in vips.pools, which has {}", quoted(pool), names.join(", "))));
        }
        let pools = self.vips.pools.iter().filter(|candidate| pool.is_none_or(|pool| candidate.name == pool));
        let prefixes = pools.flat_map(|pool| &pool.prefixes).filter(|prefix| IpFamily::of(prefix.address()) == family);
        let ranges: Vec<Prefix> = prefixes.flat_map(|prefix| self.allowed(*prefix, namespace)).collect();
        if ranges.is_empty() {
            let pools =
                pool.map_or_else(|| "no pool of vips.pools has".to_owned(), |pool| format!("pool {} of vips.pools has no", quoted(pool)));
            return Err(lacking(format!("{pools} {family} addresses that vips.allow lets namespace {namespace} have")));
        }
        Ok(ranges)
    }

    /// What of a prefix `vips.allow` lets this namespace have.
    fn allowed(&self, prefix: Prefix, namespace: &str) -> Vec<Prefix> {
        let Some(allow) = &self.vips.allow else { return vec![prefix] };
        let for_it =
            allow.iter().filter(|allowed| allowed.namespaces.is_empty() || allowed.namespaces.iter().any(|name| name == namespace));
        let common = for_it.filter_map(|allowed| {
            if allowed.prefix.contains(prefix.address()) && allowed.prefix.length() <= prefix.length() {
                Some(prefix)
            } else {
                prefix.contains(allowed.prefix.address()).then_some(allowed.prefix)
            }
        });
        common.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whether an address in one of these ranges is had by load balancers only that share it with this one.
    fn is_shared(&self, address: IpAddr, users: &[&Claimant<'_>], claimant: &Claimant<'_>, ranges: &[Prefix]) -> bool {
        ranges.iter().any(|range| range.contains(address)) && !users.is_empty() && users.iter().all(|user| user.shares_with(claimant))
    }

    /// The lowest address of a range that nobody has or wants.
    fn free(&mut self, range: Prefix, claimant: &Claimant<'_>) -> Option<IpAddr> {
        let mut next = *self.next.entry(range).or_insert_with(|| Some(range.address()));
        let mut reserved = 0;
        let found = loop {
            let Some(address) = next.filter(|address| range.contains(*address) && reserved < MOST_RESERVED) else { break None };
            next = successor(address);
            if self.users.contains_key(&address) {
                continue;
            }
            let created = claimant.created;
            if unfit(address).is_some() || self.reserved.holder(address, claimant.object, created).is_some() {
                reserved += 1;
                continue;
            }
            break Some(address);
        };
        self.next.insert(range, next);
        found
    }
}

fn successor(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => address.to_bits().checked_add(1).map(|bits| Ipv4Addr::from_bits(bits).into()),
        IpAddr::V6(address) => address.to_bits().checked_add(1).map(|bits| Ipv6Addr::from_bits(bits).into()),
    }
}

#[cfg(test)]
mod tests;
