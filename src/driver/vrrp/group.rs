// SPDX-License-Identifier: Apache-2.0
//! One [`Group`] with its sockets: what it says is done here, but for what becomes of addresses.
//!
//! Input: what it is to be, the interface as it is, and what comes in. Output: advertisements; which addresses are to be where, as the group says; which are
//! to be announced to the neighbours; what is told of it.

mod health;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Instant, SystemTime};

use vrrp::group::{Group, MemberId};
use vrrp::router::{Action, Config, Event, Holding, State, Transport, VirtualRouter};
use vrrp::wire::Endpoints;
use vrrp::{Addresses, Family, Version, Vrid};

use self::health::Reason;
use super::netlink::Link;
use super::others::Others;
use super::placement::{Inventory, Wanted};
use super::socket::RouterSocket;
use super::status::{GroupStatus, RouterStatus};
use super::virtual_link::VirtualLink;
use crate::desired::{DesiredGroup, DesiredTransport};
use crate::telemetry::chain;

/// Datagrams that are read before the clock is looked at again: more than wait in a socket, so that it is empty then unless somebody floods it.
const MOST_READ: usize = 1024;

const FAMILIES: [Family; 2] = [Family::Ipv4, Family::Ipv6];

/// Why addresses that have come a moment ago are not there yet. Where they cannot be recorded, that is told by itself.
const UNRECORDED: &str = "its addresses are not recorded yet";

/// What cannot change of a group: another one is a group that comes while this one goes.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) interface: String,
    pub(super) vrid: Vrid,
    pub(super) version: Version,
    pub(super) virtual_mac: bool,
}

impl Identity {
    pub(super) fn of(name: &str, desired: &DesiredGroup) -> Self {
        let DesiredGroup { interface, vrid, version, virtual_mac, .. } = desired;
        Self { name: name.to_owned(), interface: interface.clone(), vrid: *vrid, version: *version, virtual_mac: *virtual_mac }
    }
}

/// A family of which there are addresses, and no virtual router.
#[derive(Debug)]
struct Lack {
    why: String,
    since: Instant,
}

/// Where addresses are: what is there, and what the record says of it.
#[derive(Clone, Copy)]
pub(super) struct Home<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) recorded: &'a BTreeSet<IpAddr>,
}

/// The home of a name; `None` while there is no such interface.
pub(super) type Homes<'a> = dyn Fn(&str) -> Option<Home<'a>> + 'a;

/// See the module.
pub(super) struct Running {
    identity: Identity,
    desired: DesiredGroup,
    /// It is to be no more.
    leaving: bool,
    /// Until the next process.
    suspended: bool,
    group: Option<Group>,
    /// The index of the interface on which these are.
    index: Option<u32>,
    sockets: BTreeMap<Family, RouterSocket>,
    /// The members that were told last that their interface is up.
    up: BTreeSet<MemberId>,
    since: BTreeMap<MemberId, SystemTime>,
    others: BTreeMap<MemberId, Others>,
    problem: Option<String>,
    /// Why the VRID is somebody else's.
    refused: Option<String>,
    lacking: BTreeMap<Family, Lack>,
    /// What was wrong when it was looked at last, or what was when it still was.
    reasons: BTreeSet<Reason>,
    /// Nothing is wrong any more, and nothing was for long enough then.
    restored_at: Option<Instant>,
    /// When time alone changes what is to be told of it.
    review_at: Option<Instant>,
    /// Why the last advertisement to a destination could not be sent.
    send_errors: BTreeMap<IpAddr, String>,
    /// Addresses of which the neighbours are to be told where they are.
    pub(super) announcements: BTreeSet<IpAddr>,
    /// Something has changed that is to be looked at.
    pub(super) news: bool,
}

impl Running {
    pub(super) fn new(identity: Identity, desired: DesiredGroup) -> Self {
        Self {
            identity,
            desired,
            leaving: false,
            suspended: false,
            group: None,
            index: None,
            sockets: BTreeMap::new(),
            up: BTreeSet::new(),
            since: BTreeMap::new(),
            others: BTreeMap::new(),
            problem: None,
            refused: None,
            lacking: BTreeMap::new(),
            reasons: BTreeSet::new(),
            restored_at: None,
            review_at: None,
            send_errors: BTreeMap::new(),
            announcements: BTreeSet::new(),
            news: true,
        }
    }

    pub(super) fn interface(&self) -> &str {
        &self.identity.interface
    }

    pub(super) const fn vrid(&self) -> Vrid {
        self.identity.vrid
    }

    /// Why the VRID is not this instance's, if so.
    pub(super) fn refuse(&mut self, reason: Option<String>) {
        self.refused = reason;
    }

    /// From now on it is to be like this.
    pub(super) fn desire(&mut self, desired: &DesiredGroup) {
        self.leaving = false;
        if self.desired != *desired {
            self.desired = desired.clone();
        }
    }

    /// From now on it is to be no more, or not until the next process: it hands over.
    pub(super) const fn leave(&mut self, suspended: bool) {
        self.leaving = true;
        self.suspended = suspended;
    }

    /// It is to be no more, and has nothing left.
    pub(super) fn is_gone(&self) -> bool {
        let timers = || self.routers().any(|(_, router)| router.deadline().is_some());
        self.leaving && !timers()
    }

    /// The addresses that are to be its own.
    pub(super) fn desired_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.desired.addresses.iter().copied().filter(|_| !self.leaving)
    }

    /// Those of them that are to be on the interface of this name.
    pub(super) fn desired_on(&self, name: &str) -> impl Iterator<Item = IpAddr> {
        let families = self.families_on(name);
        self.desired_addresses().filter(move |address| families.contains(&Family::of(*address)))
    }

    /// What it says of its addresses on the interface of this name; those that it does not know yet stay as they are.
    pub(super) fn want(&self, name: &str, wanted: &mut Wanted) {
        let families = self.families_on(name);
        let is_known = |address: &IpAddr| self.routers().any(|(_, router)| router.addresses().iter().any(|own| own == *address));
        for address in self.desired_on(name).filter(|address| !is_known(address)) {
            // Nobody is heard where there is no virtual router, so that nobody would ever take it over.
            let is_lost = self.lacking.contains_key(&Family::of(address));
            wanted.add(std::iter::once(address), is_lost.then_some(Holding::Released));
        }
        for (_, router) in self.routers().filter(|(id, _)| families.contains(&id.family)) {
            wanted.add(router.addresses().iter(), router.holding());
        }
    }

    /// The links with a virtual router MAC that it needs on the interface of this index.
    pub(super) fn virtual_links(&self, parent: u32) -> Vec<VirtualLink> {
        let link = |family| VirtualLink { family, vrid: self.vrid(), parent };
        let is_of = |family| move |address: IpAddr| Family::of(address) == family;
        let has = |family| {
            self.desired_addresses().any(is_of(family)) || self.routers().any(|(id, router)| id.family == family && !self.has_left(router))
        };
        let families = FAMILIES.into_iter().filter(|_| self.identity.virtual_mac);
        families.filter(|family| has(*family)).map(link).collect()
    }

    /// The name of the interface that its addresses of a family are on; `None` as long as there is none.
    pub(super) fn home(&self, family: Family) -> Option<String> {
        if !self.identity.virtual_mac {
            return Some(self.identity.interface.clone());
        }
        Some(VirtualLink { family, vrid: self.vrid(), parent: self.index? }.name())
    }

    /// The families of which the addresses are on the interface of this name.
    fn families_on(&self, name: &str) -> Vec<Family> {
        FAMILIES.into_iter().filter(|family| self.home(*family).as_deref() == Some(name)).collect()
    }

    /// Whether a virtual router of it is to be no more, and has given its addresses up.
    fn has_left(&self, router: &VirtualRouter) -> bool {
        self.leaving && router.holding() == Some(Holding::Released)
    }

    /// Its addresses that are not found at the MAC of its interface.
    pub(super) fn behind_virtual_mac(&self) -> impl Iterator<Item = IpAddr> {
        let known = self.routers().filter(|(_, router)| !self.has_left(router)).flat_map(|(_, router)| router.addresses().iter());
        self.desired_addresses().chain(known).filter(|_| self.identity.virtual_mac)
    }

    /// The MAC by which the addresses of a family are found, where that is not the one of the interface.
    pub(super) fn virtual_mac(&self, family: Family) -> Option<[u8; 6]> {
        self.identity.virtual_mac.then(|| self.vrid().mac(family))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.group.as_ref().and_then(Group::deadline).into_iter().chain(self.review_at).min()
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = &RouterSocket> {
        self.sockets.values()
    }

    fn routers(&self) -> impl Iterator<Item = (MemberId, &VirtualRouter)> {
        self.group.iter().flat_map(Group::members)
    }

    fn router(&self, id: MemberId) -> Option<&VirtualRouter> {
        self.routers().find(|(member, _)| *member == id).map(|(_, router)| router)
    }

    /// Makes it as it is to be, as far as the interface and the record of addresses let it.
    pub(super) fn adopt(&mut self, now: Instant, link: Option<Link>, inventory: &Inventory, homes: &Homes<'_>) {
        let before = self.problem.take();
        if self.index != link.map(|link| link.index) {
            self.handle(now, &Event::InterfaceDown);
            self.up.clear();
            self.sockets.clear();
            self.index = link.map(|link| link.index);
        }
        if !self.leaving {
            self.problem = self.take_over(now, link, inventory, homes).unwrap_or_else(Some);
        }
        self.tell(now, link, inventory);
        self.tell_health(now);
        let is_told = |problem: &&String| self.problem != before && *problem != UNRECORDED;
        if let Some(problem) = self.problem.as_ref().filter(is_told) {
            let Identity { name, interface, vrid, .. } = &self.identity;
            tracing::warn!(group = name, %interface, %vrid, problem, "the virtual router cannot be as it is configured yet");
        }
        self.news |= self.problem != before;
    }

    /// Puts the configuration in force. The error is why it cannot be; what is returned else is why it is in part.
    fn take_over(&mut self, now: Instant, link: Option<Link>, inventory: &Inventory, homes: &Homes<'_>) -> Result<Option<String>, String> {
        let Some(link) = link else { return Err(format!("there is no interface {}", self.interface())) };
        if let Some(refused) = self.refused.clone() {
            return Err(refused);
        }
        let configs = self.configs(now, inventory)?;
        let lacking = self.lacking.values().map(|lack| lack.why.as_str()).collect::<Vec<_>>().join("; ");
        let lacking = Some(lacking).filter(|lacking| !lacking.is_empty());
        if !self.is_prepared(homes)? {
            // A family that is lost meanwhile is not to hold the other one back.
            let stays = |config: &Config| configs.iter().any(|other| other.addresses.family() == config.addresses.family());
            let left: Vec<Config> = self.routers().map(|(_, router)| router.config()).filter(|config| stays(config)).cloned().collect();
            if !left.is_empty() {
                self.put_in_force(now, left)?;
            }
            return Err(UNRECORDED.to_owned());
        }
        self.open(link, &configs).map_err(|error| format!("cannot open a socket of VRRP on {}: {error}", self.interface()))?;
        self.put_in_force(now, configs)?;
        Ok(lacking)
    }

    /// Whether its addresses can be placed, all of them. The error is what is missing.
    fn is_prepared(&self, homes: &Homes<'_>) -> Result<bool, String> {
        let mut prepared = true;
        for family in FAMILIES {
            let addresses: BTreeSet<IpAddr> = self.desired_addresses().filter(|address| Family::of(*address) == family).collect();
            let Some(name) = self.home(family).filter(|_| !addresses.is_empty()) else { continue };
            let home =
                homes(&name).ok_or_else(|| format!("there is no link {name} of this instance, which is to have the virtual router MAC"))?;
            prepared &= home.inventory.is_prepared(&addresses, home.recorded);
        }
        Ok(prepared)
    }

    fn put_in_force(&mut self, now: Instant, configs: Vec<Config>) -> Result<(), String> {
        let in_force: Vec<&Config> = self.routers().map(|(_, router)| router.config()).collect();
        if in_force.len() == configs.len() && configs.iter().all(|config| in_force.contains(&config)) {
            return Ok(());
        }
        self.news = true;
        // To whom nothing is sent any more, nothing is lost.
        self.send_errors.clear();
        let actions = match &mut self.group {
            Some(group) => group.configure(now, configs).map_err(|error| chain(&error))?,
            None => {
                self.group = Some(Group::new(configs).map_err(|error| chain(&error))?);
                vec![]
            }
        };
        let members: BTreeSet<MemberId> = self.routers().map(|(id, _)| id).collect();
        self.up.retain(|id| members.contains(id));
        self.others.retain(|id, _| members.contains(id));
        self.sockets.retain(|family, _| members.iter().any(|id| id.family == *family));
        self.carry_out(actions);
        Ok(())
    }

    /// A virtual router for each family of its addresses that can have one here; why there is none for another one is noted. The error is why there is none at all.
    fn configs(&mut self, now: Instant, inventory: &Inventory) -> Result<Vec<Config>, String> {
        let desired = &self.desired;
        let (mut configs, mut lacking) = (vec![], BTreeMap::new());
        for (family, configured) in
            [(Family::Ipv4, desired.source_ipv4.map(IpAddr::V4)), (Family::Ipv6, desired.source_ipv6.map(IpAddr::V6))]
        {
            let of_family: Vec<IpAddr> = desired.addresses.iter().copied().filter(|address| Family::of(*address) == family).collect();
            if of_family.is_empty() {
                continue;
            }
            let transport = transport(&desired.transport, family);
            let link_local = family == Family::Ipv6 && takes_link_local(&transport);
            let Some(primary) = inventory.source(family, link_local, configured, &desired.addresses) else {
                let why = match configured {
                    Some(address) => format!("{} does not have the address {address} to advertise from", desired.interface),
                    None => format!(
                        "{} has no {}{family} address to advertise from",
                        desired.interface,
                        if link_local { "link-local " } else { "" }
                    ),
                };
                let since = self.lacking.get(&family).map_or(now, |lack| lack.since);
                lacking.insert(family, Lack { why, since });
                continue;
            };
            configs.push(Config {
                version: desired.version,
                priority: desired.priority,
                interval: desired.interval,
                transport,
                preempt: desired.preempt,
                checksum: desired.checksum,
                announcing: desired.announcing,
                least_ttl: desired.least_ttl,
                ..Config::new(desired.vrid, primary, Addresses::new(&of_family).map_err(|error| error.to_string())?)
            });
        }
        self.lacking = lacking;
        self.leave_out_unknown(&mut configs);
        if configs.is_empty() {
            let why = self.lacking.values().map(|lack| lack.why.clone()).next();
            return Err(why.unwrap_or_else(|| "it has no virtual address".to_owned()));
        }
        Ok(configs)
    }

    /// A family of which no peers are known waits for them, and the other one does not. One that runs goes on without.
    fn leave_out_unknown(&self, configs: &mut Vec<Config>) {
        let waits = |config: &Config| {
            let runs = |router: &VirtualRouter| router.state() != State::Initialize;
            let is_known = self.routers().any(|(id, router)| id.family == config.addresses.family() && runs(router));
            matches!(&config.transport, Transport::Unicast { peers, single: false } if peers.is_empty()) && !is_known
        };
        if !configs.iter().all(waits) {
            configs.retain(|config| !waits(config));
        }
    }

    fn open(&mut self, link: Link, configs: &[Config]) -> std::io::Result<()> {
        for config in configs {
            let (family, multicast) = (config.addresses.family(), config.transport == Transport::Multicast);
            let is_other = |socket: &RouterSocket| socket.is_multicast() != multicast;
            if self.sockets.get(&family).is_none_or(is_other) {
                let mac = self.virtual_mac(family);
                self.sockets.insert(family, RouterSocket::open(family, &self.identity.interface, link.index, multicast, mac)?);
            }
        }
        Ok(())
    }

    /// Tells the group what is: what it has been told already has no effect.
    fn tell(&mut self, now: Instant, link: Option<Link>, inventory: &Inventory) {
        self.handle(
            now,
            match (self.leaving, self.suspended) {
                (true, true) => &Event::Suspend,
                (true, false) => &Event::Stop,
                (false, _) => &Event::Start,
            },
        );
        let running = link.is_some_and(|link| link.running);
        let is_up = |router: &VirtualRouter| {
            let config = router.config();
            running && self.sockets.contains_key(&config.addresses.family()) && inventory.has(config.primary)
        };
        let up: BTreeSet<MemberId> = self.routers().filter(|(_, router)| is_up(router)).map(|(id, _)| id).collect();
        let all: BTreeSet<MemberId> = self.routers().map(|(id, _)| id).collect();
        if up == self.up {
            return;
        }
        if up == all {
            self.handle(now, &Event::InterfaceUp);
        } else if up.is_empty() {
            self.handle(now, &Event::InterfaceDown);
        } else {
            for id in all {
                let event = if up.contains(&id) { Event::InterfaceUp } else { Event::InterfaceDown };
                let actions = self.group.as_mut().map(|group| group.handle_member(now, id, event)).unwrap_or_default();
                self.carry_out(actions);
            }
        }
        self.up = up;
    }

    /// Takes all that has come in.
    pub(super) fn receive(&mut self) {
        for family in FAMILIES {
            for _ in 0..MOST_READ {
                let Some(received) = self.sockets.get(&family).map(RouterSocket::receive) else { break };
                match received {
                    Ok(Some(datagram)) if datagram.vrid() == Some(self.identity.vrid) => self.take(family, datagram),
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(error) => {
                        tracing::debug!(interface = self.identity.interface, %error, "a socket of VRRP cannot be read");
                        break;
                    }
                }
            }
        }
    }

    fn take(&mut self, family: Family, datagram: vrrp::wire::Datagram) {
        let now = Instant::now();
        let id = MemberId { vrid: self.identity.vrid, family };
        let listed = self.router(id).and_then(VirtualRouter::listed).cloned();
        self.handle(now, &Event::Received(datagram));
        self.news |= listed.as_ref() != self.router(id).and_then(VirtualRouter::listed);
        let heard = self.router(id).and_then(VirtualRouter::heard);
        if let Some(heard) = heard.filter(|heard| heard.at == now) {
            let differing = self.router(id).and_then(|router| router.differing().get(&heard.source)).cloned();
            self.news |= self.others.entry(id).or_default().heard(&self.identity, heard, differing.as_ref());
        }
    }

    /// Lets the timers do what is due.
    pub(super) fn tick(&mut self) {
        let now = Instant::now();
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.news |= self.review_at.is_some_and(|at| at <= now);
            self.handle(now, &Event::Tick);
        }
    }

    fn handle(&mut self, now: Instant, event: &Event) {
        let actions = self.group.as_mut().map(|group| group.handle(now, event.clone())).unwrap_or_default();
        self.carry_out(actions);
    }

    fn carry_out(&mut self, actions: Vec<(MemberId, Action)>) {
        for (id, action) in actions {
            match action {
                Action::Send { endpoints, octets } => self.send(id.family, endpoints, &octets),
                Action::Addresses(_) => self.news = true,
                Action::Announce => {
                    let addresses: Vec<IpAddr> =
                        self.routers().filter(|(member, _)| *member == id).flat_map(|(_, router)| router.addresses().iter()).collect();
                    self.announcements.extend(addresses);
                }
                Action::Transition { from, to } => {
                    let Identity { name, interface, vrid, .. } = &self.identity;
                    tracing::info!(group = name, %interface, %vrid, family = %id.family, %from, %to, "the virtual router has another state");
                    self.since.insert(id, SystemTime::now());
                    // Who is not Active sends nothing, by which it would be known that it works again.
                    if to != State::Active {
                        self.send_errors.retain(|destination, _| Family::of(*destination) != id.family);
                    }
                    self.news = true;
                }
                Action::Discarded { source, reason } => {
                    self.news |= self.others.entry(id).or_default().discarded(&self.identity, source, reason);
                }
                Action::AddressesDiffer { .. } => self.news = true,
            }
        }
    }

    fn send(&mut self, family: Family, endpoints: Endpoints, octets: &[u8]) {
        let Some(socket) = self.sockets.get(&family) else { return };
        let destination = endpoints.destination();
        let Err(error) = socket.send(endpoints, octets) else {
            self.news |= self.send_errors.remove(&destination).is_some();
            return;
        };
        let error = format!("cannot send to {destination}: {error}");
        if self.send_errors.get(&destination) != Some(&error) {
            let Identity { name, interface, vrid, .. } = &self.identity;
            tracing::warn!(group = name, %interface, %vrid, error, "an advertisement is lost");
            self.send_errors.insert(destination, error);
            self.news = true;
        }
    }

    /// Nothing is announced of a router that is not Active.
    pub(super) fn forget_announcements(&mut self) {
        let active: BTreeSet<IpAddr> = self
            .routers()
            .filter(|(_, router)| router.state() == State::Active)
            .flat_map(|(_, router)| router.addresses().iter())
            .collect();
        self.announcements.retain(|address| active.contains(address));
    }

    pub(super) fn status(&self, homes: &Homes<'_>) -> GroupStatus {
        let (nothing, none) = (Inventory::default(), BTreeSet::new());
        let router = |(id, router): (MemberId, &VirtualRouter)| {
            let home = self.home(id.family).and_then(|name| homes(&name));
            let Home { inventory, recorded } = home.unwrap_or(Home { inventory: &nothing, recorded: &none });
            let placed: BTreeSet<IpAddr> = router.addresses().iter().filter(|address| inventory.has(*address)).collect();
            let destinations: Vec<IpAddr> = match &router.config().transport {
                Transport::Multicast => vec![id.family.multicast_group()],
                Transport::Unicast { peers, .. } => peers.iter().copied().collect(),
            };
            let status = RouterStatus {
                config: router.config().clone(),
                priority: router.priority(),
                state: router.state(),
                since: self.since.get(&id).copied().unwrap_or(SystemTime::UNIX_EPOCH),
                hindrances: router.hindrances().collect(),
                holding: router.holding(),
                foreign: placed.iter().copied().filter(|address| !inventory.is_ours(*address, recorded)).collect(),
                placed,
                heard: router.heard(),
                listed: router.listed().cloned(),
                others: self.others.get(&id).map(|others| others.status(router.differing())).unwrap_or_default(),
                checksums: destinations.into_iter().map(|destination| (destination, router.checksum_form(destination))).collect(),
                counters: *router.counters(),
            };
            (id.family, status)
        };
        GroupStatus {
            name: self.identity.name.clone(),
            interface: self.identity.interface.clone(),
            vrid: self.identity.vrid,
            leaving: self.leaving,
            problem: self.problem.clone(),
            unserving: self.unserving(),
            send_error: (!self.send_errors.is_empty()).then(|| self.send_errors.values().cloned().collect::<Vec<_>>().join("; ")),
            routers: self.routers().map(router).collect(),
        }
    }
}

fn transport(desired: &DesiredTransport, family: Family) -> Transport {
    match desired {
        DesiredTransport::Multicast => Transport::Multicast,
        DesiredTransport::Unicast { peers, single } => {
            let of_family = peers.iter().copied().filter(|peer| Family::of(*peer) == family);
            Transport::Unicast { peers: of_family.collect(), single: *single }
        }
    }
}

/// RFC 9568 §5.1.2.1 for the group; to link-local peers nothing else would do.
fn takes_link_local(transport: &Transport) -> bool {
    match transport {
        Transport::Multicast => true,
        Transport::Unicast { peers, .. } => {
            !peers.is_empty() && peers.iter().all(|peer| matches!(peer, IpAddr::V6(peer) if peer.is_unicast_link_local()))
        }
    }
}
