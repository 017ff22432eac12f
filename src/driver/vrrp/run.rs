// SPDX-License-Identifier: Apache-2.0
//! The loop of the thread: sleeps once, reads all sockets empty, lets timers do what is due, then works on addresses for a moment.
//!
//! A thousand addresses take longer to place than a short advertisement interval lasts. So they are placed, removed and announced a few at a time, and
//! clock and sockets are looked at in between.

mod links;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use tokio::sync::watch;
use vrrp::wire::{gratuitous_arp, unsolicited_neighbor_advertisement};
use vrrp::{Family, Vrid};

use self::links::{home, is_free};
use super::Target;
use super::bell::Ear;
use super::claim::{Claim, ClaimError};
use super::clerk::{Clerk, Done, Order};
use super::group::{Identity, Running};
use super::netlink::{Link, Monitor, Netlink, Told};
use super::placement::{Change, Inventory, Wanted};
use super::record::Recorded;
use super::status::VrrpStatus;
use super::virtual_link::VirtualLink;
use crate::desired::DesiredVrrp;

/// Changes of addresses in one go: about a millisecond.
const CHANGES: usize = 16;
/// Announcements in one go.
const ANNOUNCEMENTS: usize = 64;
/// The queue of the interface was full: until it has sent something.
const FULL: Duration = Duration::from_millis(1);
/// After something that has failed.
const RETRY: Duration = Duration::from_secs(1);
/// Counters alone are told so often.
const COUNTERS: Duration = Duration::from_millis(200);
/// All is read again so often, whatever was told.
const AUDIT: Duration = Duration::from_secs(60);
/// The loopback interface has this index in every network namespace.
const LOOPBACK: u32 = 1;

/// An interface with virtual routers, or with addresses that are recorded.
#[derive(Default)]
struct Interface {
    link: Option<Link>,
    inventory: Inventory,
    queue: Vec<Change>,
    /// It could not be read, or not be changed.
    failed: bool,
    /// It was there before, and what is on it has not been compared with the record.
    as_found: bool,
}

/// By the index of the link and the VRID.
type Claims = BTreeMap<(u32, Vrid), Result<Claim, ClaimError>>;

/// See the module.
pub(super) struct Driver {
    instance: String,
    target: Arc<Mutex<Target>>,
    ear: Ear,
    netlink: Netlink,
    monitor: Monitor,
    /// Once there is something to tell: a node without virtual routers needs no right to have it.
    frames: Option<OwnedFd>,
    clerk: Clerk,
    done: Done,
    board: watch::Sender<Arc<VrrpStatus>>,
    current: Target,
    interfaces: BTreeMap<String, Interface>,
    groups: BTreeMap<Identity, Running>,
    /// The VRIDs of links that they have, or why one is not theirs.
    claims: Claims,
    /// Something is to be looked at as a whole.
    news: bool,
    /// The addresses that are not answered for, by their interface.
    silent: BTreeSet<(String, IpAddr)>,
    /// What was ordered.
    ordered: Order,
    protocols: bool,
    retry_at: Option<Instant>,
    audit_at: Instant,
    posted: Instant,
}

impl Driver {
    pub(super) fn new(
        instance: &str,
        target: Arc<Mutex<Target>>,
        ear: Ear,
        netlink: Netlink,
        monitor: Monitor,
        clerk: Clerk,
        board: watch::Sender<Arc<VrrpStatus>>,
    ) -> Self {
        let now = Instant::now();
        Self {
            instance: instance.to_owned(),
            target,
            ear,
            netlink,
            monitor,
            frames: None,
            clerk,
            done: Done::default(),
            board,
            current: Target::Nothing,
            interfaces: BTreeMap::new(),
            groups: BTreeMap::new(),
            claims: BTreeMap::new(),
            news: true,
            silent: BTreeSet::new(),
            ordered: Order::default(),
            protocols: false,
            retry_at: None,
            audit_at: now + AUDIT,
            posted: now,
        }
    }

    pub(super) fn run(mut self) {
        self.find_links();
        loop {
            self.sleep();
            self.hear();
            if self.current == Target::Quit {
                return;
            }
            for group in self.groups.values_mut() {
                group.receive();
                group.tick();
                self.news |= std::mem::take(&mut group.news);
            }
            let news = std::mem::take(&mut self.news);
            if news {
                self.review();
            }
            let worked = self.work();
            self.announce();
            self.post(news || worked);
        }
    }

    /// Until there is something to do.
    fn sleep(&self) {
        let now = Instant::now();
        let deadlines = self.groups.values().filter_map(Running::deadline);
        let wake_at = deadlines.chain(self.retry_at).chain([self.audit_at]).min().unwrap_or(now);
        let mut wait = wake_at.saturating_duration_since(now);
        if self.news || self.interfaces.values().any(|interface| !interface.queue.is_empty() && !interface.failed) {
            wait = Duration::ZERO;
        } else if self.is_announcing() {
            wait = wait.min(FULL);
        }
        let sockets = self.groups.values().flat_map(Running::sockets).map(|socket| socket.as_fd());
        let descriptors = [self.ear.as_fd(), self.monitor.as_fd()].into_iter().chain(sockets);
        let mut descriptors: Vec<PollFd<'_>> = descriptors.map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN)).collect();
        match ppoll(&mut descriptors, Some(wait.into()), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => tracing::error!(%error, "the VRRP thread cannot wait"),
        }
    }

    /// Takes what was ordered, what the clerk has done, and what the kernel tells.
    fn hear(&mut self) {
        self.ear.clear();
        let target = self.target.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.news |= target != self.current;
        self.current = target;
        let done = self.clerk.done();
        let as_before = (&self.done.recorded, &self.done.silent, &self.done.problem) == (&done.recorded, &done.silent, &done.problem);
        self.news |= !as_before;
        self.done = done;
        let mut told = self.monitor.told(self.netlink.port());
        let now = Instant::now();
        if self.audit_at <= now || self.retry_at.is_some_and(|at| at <= now) {
            (self.audit_at, self.retry_at, told.lost) = (now + AUDIT, None, true);
            self.news |= self.claims.values().any(Result::is_err);
            self.find_links();
        }
        if told != Told::default() {
            self.read(&told);
        }
    }

    /// Reads again what may have changed.
    fn read(&mut self, told: &Told) {
        let names: Vec<String> = self.interfaces.keys().cloned().collect();
        for name in names {
            let is_told =
                |interface: &Interface| told.links || told.lost || interface.link.is_some_and(|link| told.addresses.contains(&link.index));
            if self.interfaces.get(&name).is_some_and(is_told) {
                self.read_interface(&name);
            }
        }
    }

    fn read_interface(&mut self, name: &str) {
        let Some(interface) = self.interfaces.get_mut(name) else { return };
        let read = self.netlink.link(name).and_then(|link| {
            let addresses = link.map(|link| self.netlink.addresses(link.index)).transpose()?.unwrap_or_default();
            Ok((link, addresses))
        });
        match read {
            Ok((link, addresses)) => {
                let before = (interface.link, interface.inventory.clone());
                if link.map(|link| link.index) != interface.link.map(|link| link.index) {
                    interface.inventory = Inventory::default();
                }
                if self.protocols {
                    interface.inventory.expect_protocols();
                }
                interface.link = link;
                interface.inventory.replace(addresses);
                interface.failed = false;
                self.news |= before != (interface.link, interface.inventory.clone());
            }
            Err(error) => {
                tracing::warn!(interface = name, %error, "an interface cannot be read; what was last known of it stands");
                self.retry_at.get_or_insert_with(|| Instant::now() + RETRY);
            }
        }
    }

    /// Looks at all of it: what groups are to be, which addresses are to come or go, and what is to be recorded.
    fn review(&mut self) {
        let desired = match &self.current {
            Target::Run(desired) => Arc::clone(desired),
            Target::Stop | Target::Suspend => Arc::new(DesiredVrrp { complete: true, ..DesiredVrrp::default() }),
            Target::Nothing | Target::Quit => return,
        };
        // What an earlier process has left is not known before.
        let Some(recorded) = self.done.recorded.clone() else { return };
        let names = self.meet(&desired, recorded.keys());
        self.claim();
        self.make_links(names, &recorded);
        let none = BTreeSet::new();
        let now = Instant::now();
        for group in self.groups.values_mut() {
            if let Some(interface) = self.interfaces.get(group.interface()) {
                let claim = interface.link.and_then(|link| self.claims.get(&(link.index, group.vrid())));
                group.refuse(claim.and_then(|claim| claim.as_ref().err()).map(ToString::to_string));
                group.adopt(now, interface.link, &interface.inventory, &|name| home(&self.interfaces, &recorded, &none, name));
                group.news = false;
            }
            group.forget_announcements();
        }
        let suspends = self.current == Target::Suspend;
        // What they have left stays as long as they say so.
        self.groups.retain(|_, group| suspends || !group.is_gone());
        let mut order = Order::default();
        let mut silent = BTreeSet::new();
        let on_links = self.on_links();
        for (name, interface) in &mut self.interfaces {
            let recorded = recorded.get(name).unwrap_or(&none);
            let mut wanted = Wanted::default();
            self.groups.values().for_each(|group| group.want(name, &mut wanted));
            if suspends {
                wanted.keep_others(recorded);
            } else if !desired.complete {
                wanted.leave_others(recorded);
            }
            interface.queue = interface.inventory.changes(&wanted, recorded);
            let addresses = self.groups.values().flat_map(|group| group.desired_on(name)).collect();
            let to_record = interface.inventory.to_record(&addresses, recorded);
            if !to_record.is_empty() {
                order.recorded.insert(name.clone(), to_record);
            }
            let mut quiet = wanted.silent_on(&interface.inventory);
            // What is silent and goes stays silent until it is gone.
            let going =
                interface.queue.iter().filter_map(|change| if let Change::Remove(address) = change { Some(*address) } else { None });
            quiet.extend(going.filter(|address| self.silent.contains(&(name.clone(), *address))));
            silent.extend(quiet.iter().map(|address| (name.clone(), *address)));
            // What is behind a virtual router MAC has another one for the neighbours than the interface.
            let behind = self.groups.values().filter(|group| group.interface() == name).flat_map(Running::behind_virtual_mac);
            let on_links = interface.link.and_then(|link| on_links.get(&link.index)).unwrap_or(&none);
            let hidden: BTreeSet<IpAddr> =
                behind.chain(on_links.iter().copied()).filter(|address| !wanted.held.contains(address)).collect();
            let everywhere = quiet.iter().copied().filter(|address| interface.virtual_link(name).is_none() && !hidden.contains(address));
            order.silence(None, everywhere.collect());
            if interface.virtual_link(name).is_some() {
                order.silent.entry(Some(name.clone())).or_default();
            }
            let here = quiet.iter().copied().filter(|_| interface.virtual_link(name).is_some());
            order.silence(Some(name), here.chain(hidden.iter().copied()).collect());
            if is_free(&self.claims, name) {
                interface.go_down_where_empty(name, &mut self.netlink);
            }
        }
        self.silent = silent;
        self.ordered.clone_from(&order);
        self.clerk.order(order);
    }

    /// Claims what the groups need, and the links that are there, and leaves what they do not need any more. What another instance has is tried again.
    fn claim(&mut self) {
        let index = |group: &Running| self.interfaces.get(group.interface())?.link.map(|link| link.index);
        let of_groups = self.groups.values().filter_map(|group| Some((index(group)?, group.vrid())));
        let of_links = self.interfaces.iter().filter(|(name, interface)| interface.virtual_link(name).is_some());
        let of_links = of_links.filter_map(|(name, _)| VirtualLink::named(name)).map(|link| (link.parent, link.vrid));
        let needed: BTreeSet<(u32, Vrid)> = of_groups.chain(of_links).collect();
        self.claims.retain(|key, claim| needed.contains(key) && claim.is_ok());
        for key @ (index, vrid) in needed {
            self.claims.entry(key).or_insert_with(|| Claim::new(index, vrid, &self.instance));
        }
        if self.claims.values().any(Result::is_err) {
            self.retry_at.get_or_insert_with(|| Instant::now() + RETRY);
        }
    }

    /// Makes the groups those that there are to be, and knows their interfaces and those of the record. The names of all these.
    fn meet<'a>(&mut self, desired: &DesiredVrrp, recorded: impl Iterator<Item = &'a String>) -> BTreeSet<String> {
        let identities: BTreeSet<Identity> = desired.groups.iter().map(|(name, group)| Identity::of(name, group)).collect();
        for (identity, group) in &mut self.groups {
            if !identities.contains(identity) {
                group.leave(self.current == Target::Suspend);
            }
        }
        for (name, group) in &desired.groups {
            let identity = Identity::of(name, group);
            self.groups.entry(identity.clone()).or_insert_with(|| Running::new(identity, group.clone())).desire(group);
        }
        let names: BTreeSet<String> = recorded.cloned().chain(self.groups.values().map(|group| group.interface().to_owned())).collect();
        names.iter().for_each(|name| self.know(name));
        names
    }

    fn know(&mut self, name: &str) {
        if !self.interfaces.contains_key(name) {
            self.learn_protocols();
            self.interfaces.insert(name.to_owned(), Interface { as_found: true, ..Interface::default() });
            self.read_interface(name);
        }
    }

    /// Whether the kernel tells who set an address: it says so of those of the loopback interface, which it set itself.
    fn learn_protocols(&mut self) {
        if let Ok(addresses) = self.netlink.addresses(LOOPBACK) {
            self.protocols |= addresses.iter().any(|(_, found)| found.protocol.is_some());
        }
    }

    /// Changes some addresses. Whether there was one.
    fn work(&mut self) -> bool {
        let mut worked = false;
        let (mut suspect, mut foreign) = (Vec::new(), Vec::new());
        for (name, interface) in &mut self.interfaces {
            let Some(link) = interface.link.filter(|_| !interface.failed && !interface.queue.is_empty()) else { continue };
            worked = true;
            if let Err(error) = interface.come_up(name, &mut self.netlink) {
                tracing::warn!(interface = name, %error, "the link with the virtual router MAC does not come up; it is tried again");
                suspect.push(name.clone());
                continue;
            }
            if is_free(&self.claims, name) {
                interface.go_down_before_the_last(name, &mut self.netlink);
            }
            let rest = interface.queue.split_off(interface.queue.len().min(CHANGES));
            let changes = std::mem::replace(&mut interface.queue, rest);
            let outcomes = match self.netlink.change(link.index, &changes) {
                Ok(outcomes) => outcomes,
                Err(error) => {
                    tracing::warn!(interface = name, %error, "addresses cannot be changed; it is tried again");
                    interface.inventory.distrust();
                    suspect.push(name.clone());
                    continue;
                }
            };
            for (change, outcome) in changes.into_iter().zip(outcomes) {
                match settle(interface, change, outcome) {
                    Settled::Done => {}
                    Settled::Foreign => foreign.push(name.clone()),
                    Settled::Failed => suspect.push(name.clone()),
                }
            }
            self.news |= interface.queue.is_empty();
        }
        foreign.iter().for_each(|name| self.read_interface(name));
        for name in suspect {
            self.read_interface(&name);
            self.news = true;
            if let Some(interface) = self.interfaces.get_mut(&name) {
                interface.failed = true;
                self.retry_at.get_or_insert_with(|| Instant::now() + RETRY);
            }
        }
        worked
    }

    fn is_announcing(&self) -> bool {
        let has = |group: &Running, address: &IpAddr| {
            let home = group.home(Family::of(*address)).and_then(|name| self.interfaces.get(&name));
            home.is_some_and(|interface| interface.link.is_some() && interface.inventory.has(*address))
        };
        self.groups.values().any(|group| group.announcements.iter().any(|address| has(group, address)))
    }

    /// Tells the neighbours of some addresses that are there by now.
    fn announce(&mut self) {
        if self.frames.is_none() && self.groups.values().any(|group| !group.announcements.is_empty()) {
            match sys::frame_socket() {
                Ok(socket) => self.frames = Some(socket),
                Err(error) => {
                    tracing::warn!(%error, "neighbours cannot be told where addresses are: is CAP_NET_RAW there?");
                    self.groups.values_mut().for_each(|group| group.announcements.clear());
                }
            }
        }
        let Some(frames) = &self.frames else { return };
        for group in self.groups.values_mut() {
            let Some(interface) = self.interfaces.get(group.interface()) else { continue };
            let Some(Link { index, mac: Some(mac), .. }) = interface.link else {
                group.announcements.clear();
                continue;
            };
            let homes = [Family::Ipv4, Family::Ipv6].map(|family| (family, group.home(family).and_then(|name| self.interfaces.get(&name))));
            let is_there = |address: &IpAddr| {
                homes.iter().any(|(family, home)| *family == Family::of(*address) && home.is_some_and(|home| home.inventory.has(*address)))
            };
            let due: Vec<IpAddr> = group.announcements.iter().copied().filter(is_there).take(ANNOUNCEMENTS).collect();
            for address in due {
                let mac = group.virtual_mac(Family::of(address)).unwrap_or(mac);
                let frame = match address {
                    IpAddr::V4(address) => gratuitous_arp(mac, address),
                    IpAddr::V6(address) => unsolicited_neighbor_advertisement(mac, address),
                };
                let sent = sys::send_frame(frames.as_fd(), index, &frame);
                if sent.as_ref().is_err_and(is_full) {
                    break;
                }
                group.announcements.remove(&address);
                if let Err(error) = sent {
                    tracing::debug!(interface = group.interface(), %address, %error, "neighbours cannot be told where an address is");
                }
            }
        }
    }

    fn post(&mut self, news: bool) {
        let waits = self.interfaces.values().any(|interface| !interface.queue.is_empty() && !interface.failed);
        if news && !waits {
            self.board.send_replace(Arc::new(self.status()));
            self.posted = Instant::now();
        } else if self.posted.elapsed() >= COUNTERS {
            let status = Arc::new(self.status());
            self.board.send_if_modified(|posted| {
                *posted = status;
                false
            });
            self.posted = Instant::now();
        }
    }

    fn status(&self) -> VrrpStatus {
        let (none, nothing) = (BTreeSet::new(), Recorded::new());
        let recorded = self.done.recorded.as_ref().unwrap_or(&nothing);
        let group = |group: &Running| group.status(&|name| home(&self.interfaces, recorded, &none, name));
        let mut groups: Vec<_> = self.groups.values().map(group).collect();
        groups.sort_by(|one, other| (&one.name, one.leaving).cmp(&(&other.name, other.leaving)));
        VrrpStatus {
            configured: if let Target::Run(desired) = &self.current { Some(Arc::clone(desired)) } else { None },
            stopping: matches!(self.current, Target::Stop | Target::Suspend),
            stopped: self.has_stopped(),
            recorded: self.done.recorded.clone(),
            links: self
                .interfaces
                .iter()
                .filter(|(name, interface)| interface.virtual_link(name).is_some())
                .map(|(name, _)| name.clone())
                .collect(),
            record_problem: self.done.problem.clone(),
            groups,
        }
    }
}

impl Driver {
    /// Nothing is left, or, for the next process, what is to be.
    fn has_stopped(&self) -> bool {
        let is_done = self.done.problem.is_none()
            && self.done.recorded.as_ref() == Some(&self.ordered.recorded)
            && self.done.silent.as_ref() == Some(&self.ordered.silent);
        match self.current {
            Target::Stop => {
                let has_link = |(name, interface): (&String, &Interface)| interface.virtual_link(name).is_some();
                let is_clean = self.ordered == Order::default() && !self.interfaces.iter().any(has_link);
                is_done && self.groups.is_empty() && is_clean
            }
            Target::Suspend => {
                let is_settled = self.interfaces.values().all(|interface| interface.queue.is_empty()) && !self.news;
                is_done && self.groups.values().all(Running::is_gone) && is_settled && self.silent.is_empty()
            }
            Target::Nothing | Target::Run(_) | Target::Quit => false,
        }
    }
}

/// What has become of a change.
enum Settled {
    Done,
    /// Somebody else has placed the address.
    Foreign,
    Failed,
}

fn settle(interface: &mut Interface, change: Change, outcome: io::Result<()>) -> Settled {
    let Err(error) = outcome else {
        interface.inventory.apply(change);
        return Settled::Done;
    };
    match (change, error.raw_os_error().map(Errno::from_raw)) {
        (Change::Remove(_), Some(Errno::EADDRNOTAVAIL)) => {
            interface.inventory.apply(change);
            Settled::Done
        }
        (Change::Add(address), Some(Errno::EEXIST)) => {
            tracing::warn!(%address, "a virtual address was there already: it is used, and never removed");
            interface.inventory.disown(address);
            Settled::Foreign
        }
        (change, _) => {
            tracing::warn!(?change, %error, "an address cannot be changed; it is tried again");
            Settled::Failed
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(Errno::ENOBUFS as i32)
}
