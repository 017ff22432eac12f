// SPDX-License-Identifier: Apache-2.0
//! Whose an address on `vips.interface` is: one table over what the kernel tells of it, the record, and the intent.
//!
//! Inputs: [`Desired`] and [`Observed`]. Output: an [`Ownership`], which decides whether the address may ever be removed. The kernel deletes an
//! address whoever set it and whatever its protocol, so that nothing but this table stands between us and somebody else's address.
//!
//! Invariants: an address that tells that it is not ours never is, whatever the record says; without a protocol to tell by, a pending entry makes it
//! ours only together with the intent to serve it.

use std::net::IpAddr;

use bgp::Prefix;
use serde::{Deserialize, Serialize};

use super::serves;
use crate::desired::Desired;
use crate::observed::{ADDRESS_PROTOCOL, Observed, ObservedAddress, Record};

/// Whose an address on `vips.interface` is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub enum Ownership {
    /// We placed it; it leaves when it is not wanted any more.
    Ours,
    /// Somebody else placed it and it is wanted: announced, never removed.
    Used,
    /// It looks like ours, but neither record nor intent proves it: kept, and reported.
    Unclaimed,
    /// Somebody else placed it, and it is none of our business.
    Foreign,
}

/// Whose this address is; `None` where it is not on `vips.interface`.
#[must_use]
pub fn ownership(address: IpAddr, desired: &Desired, observed: &Observed) -> Option<Ownership> {
    let mut evidence = evidence(address, observed.kernel.addresses.get(&address)?, observed.kernel.address_protocols);
    let entry = entry(address, &observed.kernel.record);
    // Instances that want the same address have it together: each one's record has it, and it goes with the last.
    if entry == Entry::None && observed.kernel.claimed_by_others.contains(&address) {
        evidence = Evidence::Theirs;
    }
    Some(match (evidence, entry, serves(desired, address)) {
        (Evidence::Ours, Entry::Pending | Entry::Confirmed, _) => Ownership::Ours,
        (Evidence::Ours | Evidence::Unknown, Entry::None, false) if observed.kernel.orphaned.contains(&address) => Ownership::Ours,
        // The record is lost: what matches the intent exactly is adopted.
        (Evidence::Ours, Entry::None, true) => Ownership::Ours,
        (Evidence::Ours, Entry::None, false) => Ownership::Unclaimed,
        (Evidence::Unknown, Entry::Confirmed, _) => Ownership::Ours,
        (Evidence::Unknown, Entry::Pending, true) => Ownership::Ours,
        (Evidence::Unknown, Entry::Pending, false) => Ownership::Unclaimed,
        (Evidence::Unknown, Entry::None, true) | (Evidence::Theirs, _, true) => Ownership::Used,
        (Evidence::Unknown, Entry::None, false) | (Evidence::Theirs, _, false) => Ownership::Foreign,
    })
}

/// What the kernel tells of who set an address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Evidence {
    Ours,
    Unknown,
    Theirs,
}

fn evidence(address: IpAddr, observed: &ObservedAddress, protocols: bool) -> Evidence {
    if observed.prefix_length != Prefix::host(address).length() {
        return Evidence::Theirs;
    }
    match observed.protocol {
        Some(ADDRESS_PROTOCOL) => Evidence::Ours,
        Some(_) => Evidence::Theirs,
        None if protocols => Evidence::Theirs,
        None => Evidence::Unknown,
    }
}

/// What the record tells of an address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Entry {
    None,
    Pending,
    Confirmed,
}

fn entry(address: IpAddr, record: &Record) -> Entry {
    if record.confirmed.contains(&address) {
        Entry::Confirmed
    } else if record.pending.contains(&address) {
        Entry::Pending
    } else {
        Entry::None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::desired::{DesiredVip, VipIntent, WithholdReason};
    use crate::observed::KernelState;
    use crate::plan::tests::{desired, of_kernel};

    #[derive(Clone, Copy, Debug)]
    enum Intent {
        Serve,
        Withhold,
        None,
    }

    const VIP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn owner(length: u8, protocol: Option<u8>, protocols: bool, entry: Entry, intent: Intent) -> Option<Ownership> {
        let mut desired = desired();
        let intent = match intent {
            Intent::Serve => Some(VipIntent::Serve { without_endpoints: false }),
            Intent::Withhold => Some(VipIntent::Withhold(WithholdReason::NoEndpoints)),
            Intent::None => None,
        };
        desired.vips.extend(intent.map(|intent| (VIP, DesiredVip { owners: BTreeSet::new(), intent, policy: None })));
        let pending = if entry == Entry::Pending { BTreeSet::from([VIP]) } else { BTreeSet::new() };
        let confirmed = if entry == Entry::Confirmed { BTreeSet::from([VIP]) } else { BTreeSet::new() };
        let observed = of_kernel(KernelState {
            addresses: BTreeMap::from([(VIP, ObservedAddress { prefix_length: length, protocol })]),
            address_protocols: protocols,
            record: Record { exists: true, pending, confirmed, ..Record::default() },
            ..KernelState::default()
        });
        ownership(VIP, &desired, &observed)
    }

    #[test]
    fn every_row_of_the_table() {
        const OURS: Option<u8> = Some(ADDRESS_PROTOCOL);
        const THEIRS: Option<u8> = Some(16);
        // Protocol of the address, whether the kernel keeps protocols, entry; then whose it is when it is to serve, and when it is not.
        let rows = [
            (OURS, true, Entry::None, Ownership::Ours, Ownership::Unclaimed),
            (OURS, true, Entry::Pending, Ownership::Ours, Ownership::Ours),
            (OURS, true, Entry::Confirmed, Ownership::Ours, Ownership::Ours),
            (None, false, Entry::None, Ownership::Used, Ownership::Foreign),
            (None, false, Entry::Pending, Ownership::Ours, Ownership::Unclaimed),
            (None, false, Entry::Confirmed, Ownership::Ours, Ownership::Ours),
            (None, true, Entry::None, Ownership::Used, Ownership::Foreign),
            (None, true, Entry::Pending, Ownership::Used, Ownership::Foreign),
            (None, true, Entry::Confirmed, Ownership::Used, Ownership::Foreign),
            (THEIRS, true, Entry::None, Ownership::Used, Ownership::Foreign),
            (THEIRS, true, Entry::Pending, Ownership::Used, Ownership::Foreign),
            (THEIRS, true, Entry::Confirmed, Ownership::Used, Ownership::Foreign),
        ];
        for (protocol, protocols, entry, serving, otherwise) in rows {
            let row = format!("protocol {protocol:?}, kept {protocols}, {entry:?}");
            assert_eq!(owner(32, protocol, protocols, entry, Intent::Serve), Some(serving), "{row}");
            assert_eq!(owner(32, protocol, protocols, entry, Intent::Withhold), Some(otherwise), "{row}");
            assert_eq!(owner(32, protocol, protocols, entry, Intent::None), Some(otherwise), "{row}");
            // A protocol that is seen is proof enough that the kernel keeps them.
            if protocol.is_some() {
                assert_eq!(owner(32, protocol, false, entry, Intent::Serve), Some(serving), "{row}");
            }
        }
    }

    #[test]
    fn an_address_with_a_wider_prefix_is_never_ours() {
        for entry in [Entry::None, Entry::Pending, Entry::Confirmed] {
            assert_eq!(owner(24, Some(ADDRESS_PROTOCOL), true, entry, Intent::Serve), Some(Ownership::Used));
            assert_eq!(owner(24, None, false, entry, Intent::None), Some(Ownership::Foreign));
        }
    }

    #[test]
    fn an_address_of_another_instance_is_used_until_our_record_has_it_too() {
        let mut desired = desired();
        let mut observed = of_kernel(KernelState {
            addresses: BTreeMap::from([(VIP, ObservedAddress { prefix_length: 32, protocol: Some(ADDRESS_PROTOCOL) })]),
            address_protocols: true,
            claimed_by_others: BTreeSet::from([VIP]),
            ..KernelState::default()
        });
        assert_eq!(ownership(VIP, &desired, &observed), Some(Ownership::Foreign));
        crate::plan::tests::serve(&mut desired, VIP);
        assert_eq!(ownership(VIP, &desired, &observed), Some(Ownership::Used));
        observed.kernel.record.pending.insert(VIP);
        assert_eq!(ownership(VIP, &desired, &observed), Some(Ownership::Ours));
        observed.kernel.record.pending.clear();
        observed.kernel.claimed_by_others.clear();
        assert_eq!(ownership(VIP, &desired, &observed), Some(Ownership::Ours));
        desired.vips.clear();
        assert_eq!(ownership(VIP, &desired, &observed), Some(Ownership::Unclaimed));
        observed.kernel.orphaned.insert(VIP);
        assert_eq!(ownership(VIP, &desired, &observed), Some(Ownership::Ours), "it was ours, and left to another one that has gone since");
    }

    #[test]
    fn an_absent_address_is_nobodys() {
        assert_eq!(ownership(VIP, &desired(), &Observed::default()), None);
    }
}
