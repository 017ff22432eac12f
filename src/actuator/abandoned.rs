// SPDX-License-Identifier: Apache-2.0
//! What instances that do not run have left on this node: one that was renamed or uninstalled without a drain, for example.
//!
//! Input: the records of all instances, and which of them run. Output: what each of the others has recorded. Nothing is changed. While it stays, a virtual
//! service of it is one that nobody else may have.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use super::others::{self, Recorded};
use super::record::RecordError;
use crate::admin;

/// So many addresses are named.
const NAMED: usize = 5;

/// What an instance has left. Prints as `10.0.0.7 and 3 more addresses on lo, 2 virtual services, table inet old`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Abandoned {
    /// Its name.
    pub instance: String,
    /// The addresses in its record; another instance may have them as well.
    pub addresses: BTreeSet<IpAddr>,
    /// Where they are.
    pub interfaces: BTreeSet<String>,
    /// How many virtual services its record has.
    pub services: usize,
}

/// What the instances have left that do not run in this network namespace, in order.
///
/// # Errors
/// `nft` cannot be asked, or says something unexpected.
pub async fn abandoned() -> Result<Vec<Abandoned>, RecordError> {
    Ok(left(others::records(|instance| !admin::is_running(instance)).await?))
}

/// In order.
fn left(records: BTreeMap<String, Recorded>) -> Vec<Abandoned> {
    let left = |(instance, Recorded { addresses, interfaces, services }): (String, Recorded)| Abandoned {
        instance,
        addresses,
        interfaces,
        services: services.len(),
    };
    records.into_iter().map(left).collect()
}

impl fmt::Display for Abandoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { instance, addresses, interfaces, services } = self;
        if !addresses.is_empty() {
            let named: Vec<String> = addresses.iter().take(NAMED).map(ToString::to_string).collect();
            let more = addresses.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more addresses") } else { String::new() };
            let on = interfaces.iter().cloned().collect::<Vec<_>>().join(", ");
            write!(f, "{}{more} on {on}, ", named.join(", "))?;
        }
        match services {
            0 => {}
            1 => write!(f, "1 virtual service, ")?,
            _ => write!(f, "{services} virtual services, ")?,
        }
        write!(f, "table inet {instance}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_run_is_told_with_what_it_has() {
        let json = br#"{"nftables": [
            {"set": {"table": "old", "name": "placed4", "comment": "placed by vipherald", "elem":
                ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7"]}},
            {"set": {"table": "old", "name": "interface", "comment": "where the addresses are", "elem": ["lo"]}},
            {"set": {"table": "old", "name": "services4", "comment": "virtual services of vipherald", "elem": [{"concat": ["10.0.0.1", "tcp", 80]}]}},
            {"set": {"table": "bare", "name": "placed6", "comment": "placed by vipherald"}},
            {"set": {"table": "theirs", "name": "placed4", "elem": ["10.0.0.9"]}}]}"#;
        let left = left(others::recorded(json).unwrap());
        let words: Vec<String> = left.iter().map(ToString::to_string).collect();
        let old = "10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4, 10.0.0.5 and 2 more addresses on lo, 1 virtual service, table inet old";
        assert_eq!(words, ["table inet bare", old]);
    }
}
