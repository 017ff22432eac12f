// SPDX-License-Identifier: Apache-2.0
//! What the virtual routers report: immutable snapshots, whose waiters wake when more than a counter changed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use vrrp::router::{Config, Counters, Discard, Heard, Hindrance, Holding, State};
use vrrp::wire::ChecksumForm;
use vrrp::{Addresses, Family, Priority, Vrid};

use crate::desired::DesiredVrrp;

/// All virtual routers of this node at one moment.
#[derive(Clone, Debug, Default)]
pub struct VrrpStatus {
    /// What was taken last as the whole configuration; `None` before the first, and after they were stopped.
    pub configured: Option<Arc<DesiredVrrp>>,
    /// They were told to stop, and nothing else since.
    pub stopping: bool,
    /// They were stopped: no address is there any more, and no record of one.
    pub stopped: bool,
    /// What the record says: the addresses on each interface that are ours where they are there. `None` until that was read.
    pub recorded: Option<BTreeMap<String, BTreeSet<IpAddr>>>,
    /// The links with a virtual router MAC that are there and ours.
    pub links: BTreeSet<String>,
    /// Why addresses cannot be recorded, so that none can be placed that is not recorded already.
    pub record_problem: Option<String>,
    /// The groups by name, those that are handing over their addresses behind the one of the same name that comes after them.
    pub groups: Vec<GroupStatus>,
}

impl VrrpStatus {
    /// The group of that name.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<&GroupStatus> {
        self.groups.iter().find(|group| group.name == name)
    }
}

/// One group.
#[derive(Clone, Debug)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub interface: String,
    /// Its VRID.
    pub vrid: Vrid,
    /// It is to be no more, and waits for a router that follows.
    pub leaving: bool,
    /// Why it is not as it is configured to be; what was in force before stays so.
    pub problem: Option<String>,
    /// Why it hands over to any other node, and has the lowest priority.
    pub unserving: Option<String>,
    /// Why the last advertisement could not be sent.
    pub send_error: Option<String>,
    /// Its virtual routers; none before it can be configured for the first time.
    pub routers: BTreeMap<Family, RouterStatus>,
}

impl GroupStatus {
    /// Active, where all of its virtual routers are; else the state of the first that is not.
    #[must_use]
    pub fn state(&self) -> State {
        let mut states = self.routers.values().map(|router| router.state);
        let first = states.next().unwrap_or(State::Initialize);
        if first == State::Active { states.find(|state| *state != first).unwrap_or(first) } else { first }
    }
}

/// One virtual router.
#[derive(Clone, Debug)]
pub struct RouterStatus {
    /// As it is configured, with the source of its advertisements.
    pub config: Config,
    /// Its priority now: the one of the configuration, unless it hands over to any other node.
    pub priority: Priority,
    /// Its state.
    pub state: State,
    /// Since when.
    pub since: SystemTime,
    /// What keeps it in Initialize.
    pub hindrances: Vec<Hindrance>,
    /// What is to become of its addresses; `None` until that has been said.
    pub holding: Option<Holding>,
    /// Those of its addresses that are on the interface.
    pub placed: BTreeSet<IpAddr>,
    /// Those of them that somebody else has placed: they are never removed.
    pub foreign: BTreeSet<IpAddr>,
    /// The last advertisement of another router.
    pub heard: Option<Heard>,
    /// What that lists.
    pub listed: Option<Addresses>,
    /// The other routers with this VRID on the link, by the addresses that they advertise from.
    pub others: BTreeMap<IpAddr, OtherRouter>,
    /// The form of the checksum that is sent to each destination.
    pub checksums: BTreeMap<IpAddr, ChecksumForm>,
    /// What was counted.
    pub counters: Counters,
}

impl RouterStatus {
    /// The last advertisement of the Active Router, as long as a Backup Router takes it for there.
    #[must_use]
    pub fn heard_lately(&self, now: Instant) -> Option<&Heard> {
        self.heard.as_ref().filter(|heard| is_lately(heard, now))
    }
}

/// A Backup Router waits for nearly four intervals (RFC 9568 §6.1, Active_Down_Interval); what is told of it is a moment old.
fn is_lately(heard: &Heard, now: Instant) -> bool {
    const STATUS_AGE: Duration = Duration::from_secs(1);
    heard.priority.is_some() && now.saturating_duration_since(heard.at) < heard.interval.duration() * 4 + STATUS_AGE
}

/// Another router with the same VRID.
#[derive(Clone, Debug, Default)]
pub struct OtherRouter {
    /// Its last advertisement that was taken.
    pub heard: Option<Heard>,
    /// What it lists, where that is not what this router does: it may be of another virtual router.
    pub lists: Option<Addresses>,
    /// Why its last datagram was not taken, if one was not.
    pub discarded: Option<Discard>,
    /// How many were not.
    pub discards: u64,
}

#[cfg(test)]
mod tests {
    use vrrp::Interval;

    use super::*;

    #[test]
    fn who_has_resigned_or_been_silent_for_longer_than_a_backup_waits_is_not_heard() {
        let at = Instant::now();
        let interval = Interval::from_centiseconds(100).unwrap();
        let heard = Heard { source: IpAddr::from([10, 9, 0, 1]), priority: Some(Priority::DEFAULT), interval, at };
        assert!(is_lately(&heard, at));
        assert!(is_lately(&heard, at + Duration::from_millis(4999)));
        assert!(!is_lately(&heard, at + Duration::from_secs(5)));
        assert!(!is_lately(&Heard { priority: None, ..heard }, at));
    }
}
