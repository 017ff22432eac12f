// SPDX-License-Identifier: Apache-2.0
//! What a run is of: the routers, the link, and the trouble that they meet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use vrrp::router::{Announcing, Config, Preempt, Transport};
use vrrp::{Addresses, Family, Interval, Priority, Vrid};

use crate::dice::Dice;

/// What goes wrong for a while.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Trouble {
    /// Nothing comes from the first to the second.
    Cut(usize, usize),
    /// Nothing of one family does.
    Filter(usize, usize, Family),
    /// One of five packets is lost.
    Loss,
    /// The process is suspended.
    Pause(usize),
    /// The process ends without a word; its addresses stay.
    Kill(usize),
    /// The host is gone.
    Crash(usize),
    LinkDown(usize),
    NotServing(usize),
    Stopped(usize),
    /// Health takes half of the priority.
    Unwell(usize),
}

impl Trouble {
    /// Whether packets and ticks do not come as they should meanwhile.
    pub(crate) const fn is_of_the_link(self) -> bool {
        matches!(self, Self::Cut(..) | Self::Filter(..) | Self::Loss | Self::Pause(_))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    /// The configurations of each router's members.
    pub(crate) nodes: Vec<Vec<Config>>,
    pub(crate) longest_delay: Duration,
    /// When trouble begins and ends.
    pub(crate) troubles: Vec<(Duration, Duration, Trouble)>,
    /// A driver that does not keep to what it should: after a pause it ticks before it reads.
    pub(crate) tick_first: bool,
    /// The addresses are always somewhere, from the first Active Router on.
    pub(crate) never_lost: bool,
    /// Of all routers.
    pub(crate) longest_interval: Duration,
    pub(crate) preempt: Preempt,
}

/// Trouble ends by then, in intervals.
const QUIET_AFTER: u32 = 60;

impl Scenario {
    pub(crate) fn new(seed: u64, families: usize) -> Self {
        let mut scenario = Self::without_trouble_for(seed, families);
        let mut dice = Dice::new(!seed);
        for _ in 0..=dice.below(8) {
            let trouble = scenario.trouble(&mut dice);
            scenario.add(&mut dice, trouble);
        }
        // What a neighbour was told is put right by a refresh alone where the routers cannot know of it.
        if !scenario.troubles.iter().any(|(.., trouble)| matches!(trouble, Trouble::Cut(..) | Trouble::Filter(..) | Trouble::Loss)) {
            scenario.nodes.iter_mut().flatten().for_each(|config| config.announcing.refresh = None);
        }
        scenario
    }

    pub(crate) fn of_pauses(seed: u64) -> Self {
        Self::of(seed, Trouble::Pause)
    }

    pub(crate) fn of_kills(seed: u64) -> Self {
        Self { never_lost: true, ..Self::of(seed, Trouble::Kill) }
    }

    pub(crate) fn of_health(seed: u64) -> Self {
        Self::of(seed, Trouble::NotServing)
    }

    fn of(seed: u64, trouble: fn(usize) -> Trouble) -> Self {
        let mut scenario = Self::without_trouble(seed);
        let mut dice = Dice::new(!seed);
        for _ in 0..4 {
            let trouble = trouble(dice.below(scenario.nodes.len()));
            scenario.add(&mut dice, trouble);
        }
        scenario
    }

    pub(crate) fn without_trouble(seed: u64) -> Self {
        Self::without_trouble_for(seed, 1 + usize::from(seed % 2 == 1))
    }

    fn without_trouble_for(seed: u64, families: usize) -> Self {
        let mut dice = Dice::new(seed);
        let count = 2 + dice.below(2);
        let interval = dice.of(&[1_u16, 10, 100]);
        let longest_interval = Interval::from_centiseconds(interval * 2).unwrap().duration();
        let one = Interval::from_centiseconds(interval).unwrap().duration();
        let preempt = dice.of(&[Preempt::Never, Preempt::After(Duration::ZERO), Preempt::After(one * 7)]);
        let equal = dice.one_in(2);
        let unicast = dice.one_in(2);
        // The order of their addresses is not the same in both families.
        let crossed = dice.one_in(2);
        let nodes = (0..count)
            .map(|node| {
                let slow = u16::from(dice.one_in(6));
                let priority = if equal { 100 } else { [100, 150, 99][node] };
                let of_family = |family| Config {
                    priority: Priority::new(priority).unwrap(),
                    interval: Interval::from_centiseconds(interval * (1 + slow)).unwrap(),
                    preempt,
                    transport: transport(family, node, count, unicast, crossed),
                    announcing: Announcing { times: 2, spacing: one.max(Duration::from_millis(10)), refresh: Some(one * 10) },
                    ..Config::new(Vrid::new(106).unwrap(), address(family, node, crossed), virtual_addresses(family))
                };
                [Family::Ipv4, Family::Ipv6].into_iter().take(families).map(of_family).collect()
            })
            .collect();
        let longest_delay = one / dice.of(&[1000, 100, 20, 5]);
        Self { seed, nodes, longest_delay, troubles: vec![], tick_first: dice.one_in(4), never_lost: false, longest_interval, preempt }
    }

    pub(crate) fn quiet_after(&self) -> Duration {
        self.longest_interval / 2 * QUIET_AFTER
    }

    fn trouble(&self, dice: &mut Dice) -> Trouble {
        let node = dice.below(self.nodes.len());
        let other = (node + 1 + dice.below(self.nodes.len() - 1)) % self.nodes.len();
        let choices = [
            Trouble::Cut(node, other),
            Trouble::Cut(other, node),
            Trouble::Filter(node, other, dice.of(&[Family::Ipv4, Family::Ipv6])),
            Trouble::Loss,
            Trouble::Pause(node),
            Trouble::Kill(node),
            Trouble::Crash(node),
            Trouble::LinkDown(node),
            Trouble::NotServing(node),
            Trouble::Stopped(node),
            Trouble::Unwell(node),
        ];
        dice.of(&choices)
    }

    /// For some time before all is quiet. The same trouble does not come twice at once.
    fn add(&mut self, dice: &mut Dice, trouble: Trouble) {
        let end = self.quiet_after();
        let begins = dice.between(Duration::ZERO, end - Duration::from_millis(1));
        let ends = dice.between(begins, end.min(begins + self.longest_interval * 10));
        let free = |(begun, ended, other): &(Duration, Duration, Trouble)| *other != trouble || *ended < begins || ends < *begun;
        if self.troubles.iter().all(free) {
            self.troubles.push((begins, ends, trouble));
        }
    }
}

pub(crate) fn virtual_addresses(family: Family) -> Addresses {
    Addresses::new(&match family {
        Family::Ipv4 => vec![IpAddr::V4(Ipv4Addr::new(10, 9, 0, 100))],
        Family::Ipv6 => {
            vec![IpAddr::V6(Ipv6Addr::from_bits(0xFE80 << 112 | 0x64)), IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | 0x64))]
        }
    })
    .unwrap()
}

fn address(family: Family, node: usize, crossed: bool) -> IpAddr {
    let number = u8::try_from(node).unwrap();
    match family {
        Family::Ipv4 => IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1 + number)),
        Family::Ipv6 => IpAddr::V6(Ipv6Addr::from_bits(0xFE80 << 112 | u128::from(if crossed { 9 - number } else { 1 + number }))),
    }
}

fn transport(family: Family, node: usize, count: usize, unicast: bool, crossed: bool) -> Transport {
    if unicast {
        let peers = (0..count).filter(|other| *other != node).map(|other| address(family, other, crossed)).collect();
        Transport::Unicast { peers, single: false }
    } else {
        Transport::Multicast
    }
}
