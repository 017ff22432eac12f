// SPDX-License-Identifier: Apache-2.0
//! The lookup table of Maglev hashing (Eisenbud and others, "Maglev: A Fast and Reliable Software Network Load Balancer", NSDI 2016, §3.4).
//!
//! Input: real servers and their weights. Output: which of them has each place of the table. Invariants: the table depends on nothing but its input, so
//! that all router nodes have the same; each server has a share of the places according to its weight, to one place in a round; where a server
//! leaves, nearly all places of the others stay, as long as the size of the table does.
//!
//! The paper wants a prime size of 100 times the number of servers. Here every place costs the kernel about 100 octets for each virtual service,
//! so the sizes are: 251 places for up to 8 servers (25 kB; shares differ by a thirtieth at most), 1,021 for up to 32, 4,093 for up to 128,
//! 16,381 beyond. Where the number of servers crosses one of these bounds, most places change hands.

use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The sizes, all prime, and for how many servers each is.
const SIZES: [(usize, usize); 4] = [(8, 251), (32, 1_021), (128, 4_093), (usize::MAX, 16_381)];

/// Who has each place. Empty where nobody has a weight.
pub(super) fn table(servers: &BTreeMap<SocketAddr, u32>) -> Vec<SocketAddr> {
    let heaviest = servers.values().copied().max().unwrap_or(0);
    if heaviest == 0 {
        return Vec::new();
    }
    let size = SIZES.iter().find(|(most, _)| servers.len() <= *most).map_or(16_381, |(_, size)| *size);
    let mut preferences: Vec<Preferences> = servers.iter().map(|(server, weight)| Preferences::new(*server, *weight, size)).collect();
    let mut places: Vec<Option<SocketAddr>> = vec![None; size];
    let mut free = size;
    while free > 0 {
        for server in &mut preferences {
            // One of half the weight takes its turn in every second round.
            server.credit += server.weight;
            if server.credit < heaviest {
                continue;
            }
            server.credit -= heaviest;
            if let Some(place) = server.find(|place| places.get(*place).is_some_and(Option::is_none))
                && let Some(entry) = places.get_mut(place)
            {
                *entry = Some(server.address);
                free -= 1;
            }
        }
    }
    places.into_iter().flatten().collect()
}

/// In which order a server wants the places: a permutation that its address alone decides.
struct Preferences {
    address: SocketAddr,
    weight: u32,
    credit: u32,
    next: usize,
    skip: usize,
    size: usize,
    left: usize,
}

impl Preferences {
    fn new(address: SocketAddr, weight: u32, size: usize) -> Self {
        let name = address.to_string();
        let below = |seed, bound: usize| usize::try_from(hash(seed, &name) % u64::try_from(bound).unwrap_or(1)).unwrap_or(0);
        Self { address, weight, credit: 0, next: below(1, size), skip: 1 + below(2, size - 1), size, left: size }
    }
}

impl Iterator for Preferences {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let place = self.next;
        self.next = (self.next + self.skip) % self.size;
        Some(place)
    }
}

/// FNV-1a, 64 bits, and its result stirred (the finalizer of SplitMix64): addresses that differ in one digit are far apart.
fn hash(seed: u64, name: &str) -> u64 {
    let mut hash = name.bytes().fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash, octet| (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3));
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn servers(numbers: impl IntoIterator<Item = u16>) -> BTreeMap<SocketAddr, u32> {
        let address = |number: u16| SocketAddr::new([10, 1, number.to_be_bytes()[0], number.to_be_bytes()[1]].into(), 8080);
        numbers.into_iter().map(|number| (address(number), 1)).collect()
    }

    fn shares(table: &[SocketAddr]) -> BTreeMap<SocketAddr, usize> {
        let mut shares = BTreeMap::new();
        table.iter().for_each(|server| *shares.entry(*server).or_default() += 1);
        shares
    }

    /// How many places of servers that stay have changed hands.
    fn moved(before: &[SocketAddr], after: &[SocketAddr], gone: SocketAddr) -> usize {
        before.iter().zip(after).filter(|(before, after)| **before != gone && before != after).count()
    }

    #[test]
    fn nobody_and_one() {
        assert_eq!(table(&BTreeMap::new()), []);
        let one = servers([7]);
        assert_eq!(shares(&table(&one)).into_values().collect::<Vec<_>>(), [251]);
        let quiesced = one.into_keys().map(|server| (server, 0)).collect();
        assert_eq!(table(&quiesced), []);
    }

    #[test]
    fn weights_are_shares() {
        let mut servers = servers([1, 2, 3]);
        *servers.values_mut().next().unwrap() = 2;
        let shares: Vec<usize> = shares(&table(&servers)).into_values().collect();
        assert!((124..=128).contains(&shares[0]), "{shares:?}");
        assert!(shares[1..].iter().all(|share| (61..=65).contains(share)), "{shares:?}");
    }

    /// The table is an interface between router nodes of different versions: it must not change.
    #[test]
    fn the_table_of_three_servers_is_this() {
        let servers = servers([1, 2, 3]);
        let places: Vec<usize> =
            table(&servers).iter().take(20).map(|place| servers.keys().position(|server| server == place).unwrap()).collect();
        assert_eq!(places, [1, 1, 0, 1, 2, 0, 0, 1, 2, 0, 0, 1, 0, 2, 2, 1, 0, 0, 2, 2]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn shares_are_equal_to_one_place(numbers in prop::collection::btree_set(any::<u16>(), 1..80)) {
            let shares = shares(&table(&servers(numbers.iter().copied())));
            prop_assert_eq!(shares.len(), numbers.len());
            let (least, most) = (shares.values().min().unwrap(), shares.values().max().unwrap());
            prop_assert!(most - least <= 1, "{shares:?}");
        }

        #[test]
        fn a_server_that_leaves_moves_few_places_of_the_others(numbers in prop::collection::btree_set(any::<u16>(), 9..33)) {
            let before = servers(numbers);
            for gone in before.keys() {
                let mut after = before.clone();
                after.remove(gone);
                let (before, after) = (table(&before), table(&after));
                if before.len() == after.len() {
                    prop_assert!(moved(&before, &after, *gone) * 100 <= before.len() * 15, "{} of {}", moved(&before, &after, *gone), before.len());
                }
            }
        }
    }

    /// Two servers of which the permutations have the same skip follow one another: with 251 places that happens to one pair in 250.
    #[test]
    fn it_is_rare_that_few_servers_move_many_places() {
        let (mut many, mut all) = (0_usize, 0_usize);
        for count in 2_u16..9 {
            for first in 0..60 {
                let before = servers((0..count).map(|number| first * 1_000 + number * 37));
                for gone in before.keys() {
                    let mut after = before.clone();
                    after.remove(gone);
                    let (before, after) = (table(&before), table(&after));
                    many += usize::from(moved(&before, &after, *gone) * 100 > before.len() * 12);
                    all += 1;
                }
            }
        }
        assert!(many * 100 <= all * 2, "{many} of {all}");
    }

    #[test]
    fn on_average_few_places_of_servers_that_stay_change_hands() {
        for count in [2_u16, 3, 4, 6, 8, 12, 16, 32, 100] {
            let (mut moves, mut places) = (0_usize, 0_usize);
            for first in 0..20 {
                let all = servers(first * 100..first * 100 + count);
                for gone in all.keys() {
                    let mut left = all.clone();
                    left.remove(gone);
                    let (before, after) = (table(&all), table(&left));
                    if before.len() == after.len() {
                        moves += moved(&before, &after, *gone);
                        places += before.len();
                    }
                }
            }
            assert!(moves * 100 <= places * 5, "{count} servers: {moves} of {places}");
        }
    }
}
