// SPDX-License-Identifier: Apache-2.0
//! The withdrawals that were written and that TCP has not acknowledged.

use std::collections::{BTreeMap, VecDeque};

use crate::prefix::Prefix;
use crate::wire::Nlri;

/// Which paths the peer may hold though it was told that they are gone.
#[derive(Debug, Default)]
pub(super) struct Withdrawals {
    /// What each UPDATE withdrew, with its end on the connection, in the order written.
    updates: VecDeque<(u64, Vec<Nlri>)>,
    /// The end of the last UPDATE that withdrew the path, unless it was announced again after that.
    last: BTreeMap<Nlri, u64>,
}

impl Withdrawals {
    /// An UPDATE that ends at `end` withdraws these.
    pub(super) fn written(&mut self, end: u64, keys: Vec<Nlri>) {
        self.last.extend(keys.iter().map(|key| (*key, end)));
        self.updates.push_back((end, keys));
    }

    /// The path is announced again.
    pub(super) fn announced(&mut self, key: &Nlri) {
        self.last.remove(key);
    }

    /// TCP has so much.
    pub(super) fn acknowledged(&mut self, octets: u64) {
        while let Some((end, keys)) = self.updates.pop_front_if(|(end, _)| *end <= octets) {
            for key in keys {
                if self.last.get(&key) == Some(&end) {
                    self.last.remove(&key);
                }
            }
        }
    }

    /// The destinations that are not acknowledged as withdrawn.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = Prefix> {
        self.last.keys().map(|key| key.prefix)
    }
}
