// SPDX-License-Identifier: Apache-2.0
//! What other instances on this node have recorded as theirs: their addresses carry the same protocol number as ours.
//!
//! Input: the addresses that carry it and are not in our record. Output: those of them that another table of our layout lists. It is asked of nft only
//! where there are such addresses, and again only when they change or the caller no longer trusts the answer.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;

use super::nft::nft;
use super::record::{RecordError, element, is_address_set};

/// The last answer.
#[derive(Debug, Default)]
pub(super) struct Others {
    asked: BTreeSet<IpAddr>,
    claimed: BTreeSet<IpAddr>,
}

impl Others {
    /// The next question is asked anew.
    pub(super) fn forget(&mut self) {
        self.asked.clear();
    }

    /// Those of the addresses that another instance than `own` has in its record.
    pub(super) async fn claimed(&mut self, addresses: BTreeSet<IpAddr>, own: &str) -> Result<BTreeSet<IpAddr>, RecordError> {
        if addresses != self.asked {
            self.claimed = if addresses.is_empty() { BTreeSet::new() } else { list(own).await? };
            self.claimed.retain(|address| addresses.contains(address));
            self.asked = addresses;
        }
        Ok(self.claimed.clone())
    }
}

async fn list(own: &str) -> Result<BTreeSet<IpAddr>, RecordError> {
    let sets = nft(&["-j", "list", "sets", "inet"], "", "list sets").await?;
    parse(&sets.stdout, own).map_err(|source| RecordError::Listing { table: "of other instances".to_owned(), source })
}

fn parse(json: &[u8], own: &str) -> Result<BTreeSet<IpAddr>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Listing {
        nftables: Vec<Object>,
    }
    #[derive(Deserialize)]
    struct Object {
        set: Option<Set>,
    }
    #[derive(Deserialize)]
    struct Set {
        table: String,
        name: String,
        #[serde(default)]
        elem: Vec<Value>,
    }

    let listing: Listing = serde_json::from_slice(json)?;
    let sets = listing.nftables.into_iter().filter_map(|object| object.set).filter(|set| set.table != own && is_address_set(&set.name));
    let addresses = sets.flat_map(|set| set.elem.iter().filter_map(element).filter_map(|text| text.parse().ok()).collect::<Vec<IpAddr>>());
    Ok(addresses.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sets_of_our_layout_in_other_tables_count() {
        let json = br#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
            {"set": {"family": "inet", "table": "a", "name": "placed4", "type": "ipv4_addr", "elem": ["10.0.0.7", {"elem": {"val": "10.0.0.8"}}]}},
            {"set": {"family": "inet", "table": "a", "name": "pending6", "type": "ipv6_addr", "elem": ["2001:db8::7"]}},
            {"set": {"family": "inet", "table": "own", "name": "placed4", "type": "ipv4_addr", "elem": ["10.0.0.9"]}},
            {"set": {"family": "inet", "table": "filter", "name": "blocked", "type": "ipv4_addr", "elem": ["10.0.0.10"]}}]}"#;
        let claimed: Vec<String> = parse(json, "own").unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(claimed, ["10.0.0.7", "10.0.0.8", "2001:db8::7"]);
    }
}
