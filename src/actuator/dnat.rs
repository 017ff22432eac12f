// SPDX-License-Identifier: Apache-2.0
//! Reads and changes the virtual services of the dataplane `nftables`: destination NAT by nft, for kernels without IPVS.
//!
//! Inputs: steps about virtual services, and the rules. Outputs: the virtual services as read, in canonical order, with the changes that were made since.
//! They are in tables of their own, `ip <instance>` and `ip6 <instance>`, so that a change of the ownership record lists none of them. There each
//! service has a chain, to which a map dispatches new connections by VIP, protocol and port; the chain chooses a real server by a table that is a map of its own.
//! Established connections never come here: the kernel's connection table knows where they go.
//!
//! Invariants: every change is one transaction that replaces exactly the chains and tables of its services; it says the same whatever they held before. What
//! a real server that is gone had is forgotten by the connection table, after no new connection can get there. Speed: a change costs what `nft` costs,
//! 20 to 40 ms beside 3,000 services; a reading takes half a second for each 1,000 of them, and so is done again only where somebody else changed the tables,
//! or where it takes less than a two-hundredth of the time since the last one.

mod chain;
mod listing;
mod maglev;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ipvs::Weight;

use self::chain::{FAMILIES, Family, chain_name, service_chain};
use self::listing::Listed;
use super::conntrack::{self, Flows, ServerPort};
use super::nft::{NftError, nft, nft_within};
use crate::api::Protocol;
use crate::desired::{Rules, ServiceKey};
use crate::observed::{ObservedRealServer, ObservedVirtualService, Translated};
use crate::plan::{RangeMove, RealServerChange, Step, VirtualServiceChange};

/// Services that one transaction changes at most: what `nft` is given grows with them, and has to be done within its time.
const BATCH: usize = 200;
/// Which part of the time may go into readings that nothing hints at a need of.
const READING_SHARE: u32 = 200;
/// How long a reading may take: about half a second for each 1,000 services.
const READING: Duration = Duration::from_secs(120);
/// Real servers are never counted: one that is quiesced may have connections.
const UNCOUNTED: u64 = 1;

/// The tables of one instance, and what is known of them.
#[derive(Debug)]
pub(super) struct Dnat {
    name: String,
    known: Translated,
    /// Services that are dispatched to somewhere else.
    misdirected: BTreeSet<ServiceKey>,
    /// Those that have a chain to which nothing is dispatched.
    orphans: BTreeSet<ServiceKey>,
    /// Those that have a table of ours.
    present: Vec<Family>,
    /// What somebody has put in the place of a part of a table, with the family of that: until it is gone, nothing is changed.
    not_ours: Option<(&'static str, String)>,
    stale: bool,
    last_reading: Option<(Instant, Duration)>,
    /// The processes that changed the tables for us and were not taken yet.
    processes: BTreeSet<u32>,
}

/// Why virtual services were not read or changed.
#[derive(Debug, thiserror::Error)]
pub enum DnatError {
    /// `nft` did not do it.
    #[error(transparent)]
    Nft(#[from] NftError),
    /// `nft` wrote something unexpected.
    #[error("cannot understand what nft lists of table {family} {table}")]
    Listing {
        /// Its family.
        family: &'static str,
        /// The table.
        table: String,
        /// Where it went wrong.
        #[source]
        source: serde_json::Error,
    },
    /// Something has the name of one of our maps or chains, and somebody else made it.
    #[error(
        "table {family} {table} has a map, set or chain {name} which vipherald did not make, in the place of its own; nothing of the table is changed: give \
         this instance another name, or take {name} out of the table"
    )]
    NotOurs {
        /// The family of the table.
        family: &'static str,
        /// The table.
        table: String,
        /// The name.
        name: String,
    },
    /// A change to a service that is not there, and has no settings.
    #[error("{0} is not in the kernel")]
    Absent(ServiceKey),
}

impl Dnat {
    /// Reads the tables of this instance.
    /// `undispatched` as of [`Self::refresh`].
    pub(super) async fn open(instance: &str, undispatched: bool) -> Result<Self, DnatError> {
        let mut dnat = Self {
            name: instance.to_owned(),
            known: Translated::default(),
            misdirected: BTreeSet::new(),
            orphans: BTreeSet::new(),
            present: Vec::new(),
            not_ours: None,
            stale: true,
            last_reading: None,
            processes: BTreeSet::new(),
        };
        dnat.refresh(undispatched).await?;
        Ok(dnat)
    }

    /// The virtual services as last read, with the changes that were made since.
    pub(super) const fn known(&self) -> &Translated {
        &self.known
    }

    /// The ids, and netlink ports, of the processes that changed the tables for us since the last call.
    pub(super) fn take_processes(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.processes)
    }

    /// Somebody else may have changed the tables.
    pub(super) const fn suspect(&mut self) {
        self.stale = true;
    }

    /// Nothing hints at a change, but it is time to look.
    pub(super) fn audit(&mut self) {
        self.stale |= self.last_reading.is_none_or(|(at, took)| at.elapsed() >= took * READING_SHARE);
    }

    /// Whether the tables may differ from what is known.
    pub(super) const fn is_suspect(&self) -> bool {
        self.stale
    }

    /// Reads the tables where they may differ from what is known. Where nothing dispatches to them, services are there only if they are to be so as yet.
    pub(super) async fn refresh(&mut self, undispatched: bool) -> Result<(), DnatError> {
        if !self.stale {
            return Ok(());
        }
        let begun = Instant::now();
        let mut known = Translated::default();
        self.misdirected.clear();
        self.orphans.clear();
        self.present.clear();
        self.not_ours = None;
        for family in FAMILIES {
            let listed = self.list(family).await?;
            known.exists |= listed.exists;
            self.present.extend(listed.exists.then_some(family));
            known.foreign |= listed.foreign;
            if undispatched || Rules::dispatches(family.ip, &listed.dispatch) {
                known.services.extend(listed.services());
            }
            self.misdirected.extend(listed.misdirected());
            self.orphans.extend(listed.orphans());
            self.not_ours = self.not_ours.take().or_else(|| listed.not_ours.map(|name| (family.ip, name)));
            known.rules.extend(listed.dispatch);
        }
        self.known = known;
        self.stale = false;
        self.last_reading = Some((begun, begun.elapsed()));
        Ok(())
    }

    /// The lines that make the chains which dispatch what these rules say; where they say nothing of it, both tables go. Where somebody else has new
    /// connections, only what is in the tables goes: as long as the record tells of it, they tell that it was not in IPVS. Connections go on by the
    /// connection table alone.
    pub(super) async fn script_of_rules(&mut self, rules: Option<&Rules>) -> Result<String, DnatError> {
        let Some(rules) = rules.filter(|rules| rules.translates() || rules.hands_over) else { return self.removal().await };
        if rules.hands_over {
            let removal = self.removal().await?;
            return Ok(removal + &self.layout_of_present());
        }
        self.check_ours()?;
        Ok(self.script_of_dispatch(true))
    }

    fn check_ours(&self) -> Result<(), DnatError> {
        let not_ours =
            |(family, name): &(&'static str, String)| DnatError::NotOurs { family, table: self.name.clone(), name: name.clone() };
        self.not_ours.as_ref().map_or(Ok(()), |found| Err(not_ours(found)))
    }

    /// The lines that make the tables where they are not there yet, and the chains which dispatch do so, or nothing.
    pub(super) fn script_of_dispatch(&self, dispatches: bool) -> String {
        let mut script = String::new();
        for family in FAMILIES {
            script += &self.layout(family);
            for mut chain in Rules::dispatch(family.ip) {
                chain.rules.retain(|_| dispatches);
                script += &chain.script(family.ip, &self.name);
            }
        }
        script
    }

    /// The script of [`Self::script_of_rules`] was carried out.
    pub(super) fn have_written(&mut self, rules: Option<&Rules>) {
        if rules.is_some_and(Rules::translates) {
            // What is in the kernel already counts from now on.
            self.stale |= !FAMILIES.iter().all(|family| Rules::dispatches(family.ip, &self.known.rules));
            (self.known.exists, self.known.rules) = (true, Rules::dispatch_fingerprint());
            return;
        }
        let exists = self.known.exists && rules.is_some_and(|rules| rules.hands_over);
        self.known = Translated { exists, ..Translated::default() };
    }

    /// Carries out steps about virtual services, and gives the result of each.
    pub(super) async fn execute(&mut self, steps: &[Step]) -> Vec<Result<(), DnatError>> {
        let mut results = Vec::with_capacity(steps.len());
        for batch in steps.chunks(BATCH) {
            match self.execute_batch(batch).await {
                Ok(()) => results.extend(batch.iter().map(|_| Ok(()))),
                // One that is refused must not hold up the others.
                Err(error) if batch.len() == 1 => results.push(Err(error)),
                Err(_) => {
                    for step in batch {
                        results.push(self.execute_batch(std::slice::from_ref(step)).await);
                    }
                }
            }
        }
        results
    }

    async fn execute_batch(&mut self, steps: &[Step]) -> Result<(), DnatError> {
        let mut script = FAMILIES.map(|family| self.layout(family)).concat();
        let mut gone = BTreeSet::new();
        let mut changed = Vec::new();
        let orphans = std::mem::take(&mut self.orphans);
        orphans.iter().for_each(|key| self.write(&mut script, *key, None));
        for step in steps {
            let (key, after) = match step {
                Step::AddVirtualService(key, change) | Step::ChangeVirtualService(key, change) => (*key, Some(self.after(*key, change)?)),
                Step::RemoveVirtualService(key) => (*key, None),
                _ => continue,
            };
            self.write(&mut script, key, after.as_ref());
            // While nothing dispatches there, somebody else has new connections, maybe with the same real servers: they and those from before go on.
            let is_met = after.is_some() || Rules::dispatches(Family::of(key.vip).ip, &self.known.rules);
            let before = self.known.services.get(&key).filter(|_| is_met).into_iter().flat_map(|service| &service.real_servers);
            let remaining = || after.iter().flat_map(|after| &after.real_servers).map(|server| server.address);
            for server in before.map(|server| server.address).filter(|server| !remaining().any(|other| other == *server)) {
                // Once its host is gone, so is what it had from a time when the ports went to others of it.
                let port = if remaining().any(|other| other.ip() == server.ip()) { port_of(server) } else { ServerPort::Any };
                gone.insert(Flows { service: key, host: server.ip(), port });
            }
            changed.push((key, after));
        }
        self.transact(&script, "change virtual services").await?;
        for (key, after) in changed {
            self.misdirected.remove(&key);
            match after {
                Some(after) => drop(self.known.services.insert(key, after)),
                None => drop(self.known.services.remove(&key)),
            }
        }
        self.known.exists = true;
        let kept = self.kept(&gone);
        forget(&gone, &kept).await;
        Ok(())
    }

    /// The connections of virtual services which are there, for ports of services that are among those of `gone`: these may go to another port of the same
    /// host now. What knows no connections goes where new ones go.
    fn kept(&self, gone: &BTreeSet<Flows>) -> BTreeSet<Flows> {
        let services: BTreeSet<ServiceKey> = gone.iter().map(|flows| flows.service).collect();
        let covering =
            services.iter().flat_map(|service| service.overlapping_in(&self.known.services).filter(move |other| *other != service));
        let servers = |service: &ServiceKey| self.known.services.get(service).into_iter().flat_map(|service| &service.real_servers);
        let flows = |service: ServiceKey, server: SocketAddr| {
            let port = if service.protocol == Protocol::Udp { port_of(server) } else { ServerPort::Any };
            Flows { service, host: server.ip(), port }
        };
        covering.flat_map(|service| servers(service).map(move |server| flows(*service, server.address))).collect()
    }

    /// Makes the chains of ranges of ports that are to take the places of others, as far as these are here. Gives the lines that change over to them.
    pub(super) async fn prepare_move(&mut self, change: &RangeMove) -> Result<String, DnatError> {
        let leaving = self.leaving(change);
        if leaving.is_empty() {
            return Ok(String::new());
        }
        let arriving = self.arriving(change)?;
        let mut script = FAMILIES.map(|family| self.layout(family)).concat();
        arriving.iter().for_each(|(to, service)| self.write_chain(&mut script, *to, service));
        self.transact(&script, "make the chains of ranges of ports").await?;
        let mut dispatch = String::new();
        for from in leaving {
            let (Family { ip, .. }, map) = (Family::of(from.vip), Rules::dispatch_map(from));
            line(&mut dispatch, &format!("delete element {ip} {} {map} {{ {} }}", self.name, element(from)));
        }
        for to in arriving.into_keys() {
            let (Family { ip, .. }, map, chain) = (Family::of(to.vip), Rules::dispatch_map(to), chain_name(to));
            line(&mut dispatch, &format!("add element {ip} {} {map} {{ {} : goto {chain} }}", self.name, element(to)));
        }
        Ok(dispatch)
    }

    fn leaving(&self, change: &RangeMove) -> Vec<ServiceKey> {
        change.leaving().filter(|from| self.known.services.contains_key(from)).collect()
    }

    /// What the ranges of ports are that are to be there then. A new one lists the real servers of those whose ports it gets, which have connections there, as
    /// quiesced.
    fn arriving(&self, change: &RangeMove) -> Result<BTreeMap<ServiceKey, ObservedVirtualService>, DnatError> {
        let moved = change.moved.iter().filter_map(|(from, to)| Some((*to, self.known.services.get(from)?.clone())));
        let mut arriving: BTreeMap<ServiceKey, ObservedVirtualService> = moved.collect();
        for (made, settings) in &change.made {
            arriving.insert(*made, self.after(*made, settings)?);
        }
        let leaving: BTreeSet<ServiceKey> = change.leaving().collect();
        for (to, service) in &mut arriving {
            let before = to.overlapping(&leaving).filter_map(|from| self.known.services.get(from)).flat_map(|before| &before.real_servers);
            let mut servers: BTreeMap<SocketAddr, Weight> = before.map(|server| (server.address, Weight::QUIESCE)).collect();
            servers.extend(service.real_servers.iter().map(|server| (server.address, server.weight)));
            service.real_servers = servers.into_iter().map(|(server, weight)| real_server(server, weight)).collect();
        }
        Ok(arriving)
    }

    /// The lines of [`Self::prepare_move`] were carried out. Takes the former chains away, and what the ports have that were given up.
    pub(super) async fn finish_move(&mut self, change: &RangeMove, given_up: &BTreeSet<ServiceKey>) {
        let leaving = self.leaving(change);
        let Ok(arriving) = self.arriving(change) else { return };
        if leaving.is_empty() {
            return;
        }
        let mut flows: BTreeSet<Flows> = BTreeSet::new();
        let mut script = String::new();
        for from in leaving {
            let Some(service) = self.known.services.remove(&from) else { continue };
            for part in from.overlapping(given_up) {
                let hosts = service.real_servers.iter().map(|server| server.address.ip());
                flows.extend(hosts.map(|host| Flows { service: *part, host, port: ServerPort::Any }));
            }
            self.write(&mut script, from, None);
        }
        self.known.services.extend(arriving);
        if let Err(error) = self.transact(&script, "remove the chains of ranges of ports").await {
            tracing::warn!(error = &error as &dyn std::error::Error, "chains to which nothing leads stay until virtual services change");
        }
        forget(&flows, &BTreeSet::new()).await;
    }

    /// The service after a change, in canonical order.
    fn after(&self, key: ServiceKey, change: &VirtualServiceChange) -> Result<ObservedVirtualService, DnatError> {
        let before = self.known.services.get(&key);
        let mode = change.mode.or_else(|| before?.mode).ok_or(DnatError::Absent(key))?;
        let mut servers: BTreeMap<SocketAddr, Weight> =
            before.into_iter().flat_map(|service| &service.real_servers).map(|server| (server.address, server.weight)).collect();
        for change in &change.real_servers {
            match *change {
                RealServerChange::Add(server, weight) | RealServerChange::Weigh(server, weight) => drop(servers.insert(server, weight)),
                RealServerChange::Remove(server) => drop(servers.remove(&server)),
            }
        }
        let real_servers = servers.into_iter().map(|(server, weight)| real_server(server, weight)).collect();
        Ok(ObservedVirtualService { mode: Some(mode), real_servers })
    }

    /// The lines that make a service, or take it away.
    fn write(&self, script: &mut String, key: ServiceKey, service: Option<&ObservedVirtualService>) {
        let Family { ip, .. } = Family::of(key.vip);
        let (name, chain) = (&self.name, chain_name(key));
        let (map, element) = (Rules::dispatch_map(key), element(key));
        let is_dispatched = self.known.services.contains_key(&key) || self.misdirected.contains(&key);
        if is_dispatched && (service.is_none() || self.misdirected.contains(&key)) {
            line(script, &format!("delete element {ip} {name} {map} {{ {element} }}"));
        }
        if let Some(service) = service.filter(|service| service.mode.is_some()) {
            self.write_chain(script, key, service);
            line(script, &format!("add element {ip} {name} {map} {{ {element} : goto {chain} }}"));
        } else {
            self.empty_chain(script, key);
            line(script, &format!("delete chain {ip} {name} {chain}"));
        }
    }

    /// The lines that make the chain of a service where it is not there yet, and leave nothing in it.
    fn empty_chain(&self, script: &mut String, key: ServiceKey) {
        let Family { ip, .. } = Family::of(key.vip);
        let (name, chain) = (&self.name, chain_name(key));
        line(script, &format!("add chain {ip} {name} {chain}"));
        line(script, &format!("flush chain {ip} {name} {chain}"));
        // A table that is not there can be deleted only after it was added.
        let empty =
            format!("typeof numgen inc mod 2 : {ip} daddr{}; flags constant;", if key.ports.count() == 1 { " . th dport" } else { "" });
        line(script, &format!("add map {ip} {name} {chain} {{ {empty} }}"));
        line(script, &format!("delete map {ip} {name} {chain}"));
    }

    /// The lines that make the chain of a service.
    fn write_chain(&self, script: &mut String, key: ServiceKey, service: &ObservedVirtualService) {
        let Family { ip, .. } = Family::of(key.vip);
        let (name, chain) = (&self.name, chain_name(key));
        self.empty_chain(script, key);
        let Some(mode) = service.mode else { return };
        let text = service_chain(key, mode, service);
        if let Some(table) = text.table {
            line(script, &format!("add map {ip} {name} {chain} {{ {} elements = {{ {} }} }}", table.kind, table.elements));
        }
        for (rule, comment) in text.rules {
            line(script, &format!("add rule {ip} {name} {chain} {rule} comment \"{comment}\""));
        }
    }

    /// Table and maps, made where they are not there yet.
    fn layout(&self, family: Family) -> String {
        let Family { ip, address, .. } = family;
        let name = &self.name;
        let [services, ranges] = Rules::DISPATCH_MAPS;
        let mut script = String::new();
        line(&mut script, &format!("add table {ip} {name} {{ comment \"vipherald: virtual services\"; }}"));
        for (map, flags) in [(services, ""), (ranges, " flags interval;")] {
            let shape = format!("type {address} . inet_proto . inet_service : verdict;{flags} comment \"{}\";", listing::COMMENT);
            line(&mut script, &format!("add map {ip} {name} {map} {{ {shape} }}"));
        }
        script
    }

    /// As [`Self::layout`], of the tables that are there.
    fn layout_of_present(&self) -> String {
        self.present.iter().map(|family| self.layout(*family)).collect()
    }

    /// Removes both tables, or what is ours of them where somebody put something into one.
    pub(super) async fn remove(&mut self) -> Result<(), DnatError> {
        let script = self.removal().await?;
        if !script.is_empty() {
            self.transact(&script, "remove virtual services").await?;
        }
        self.known = Translated::default();
        Ok(())
    }

    /// The lines of [`Self::remove`].
    async fn removal(&mut self) -> Result<String, DnatError> {
        self.stale = true;
        self.refresh(true).await?;
        let mut script = String::new();
        if self.known.foreign {
            script = self.layout_of_present();
            self.known.services.keys().for_each(|key| self.write(&mut script, *key, None));
        }
        for Family { ip, .. } in &self.present {
            for (kind, name) in self.leftovers() {
                line(&mut script, &format!("add {kind} {ip} {}{name}", self.name));
                line(&mut script, &format!("delete {kind} {ip} {}{name}", self.name));
            }
        }
        Ok(script)
    }

    /// What goes at the end: the table, or what is ours of one that others use.
    fn leftovers(&self) -> Vec<(&'static str, String)> {
        if !self.known.foreign {
            return vec![("table", String::new())];
        }
        let chains = Rules::DISPATCH_CHAINS.map(|chain| ("chain", format!(" {chain}")));
        chains.to_vec()
    }

    async fn list(&self, family: Family) -> Result<Listed, DnatError> {
        let mut listed = Listed::default();
        let Family { ip, .. } = family;
        let failed = |source| DnatError::Listing { family: ip, table: self.name.clone(), source };
        // To list one table, nft 1.0.6 reads all elements of its maps, of which each service has hundreds, and then does not print them; to list the family, it
        // does not.
        let action = format!("list ruleset {ip}");
        let tables = nft_within(READING, &["-j", "-t", "list", "ruleset", ip], &action).await?;
        listed.take_table(&tables.stdout, family, &self.name).map_err(failed)?;
        if !listed.exists {
            return Ok(listed);
        }
        for map in Rules::DISPATCH_MAPS {
            match nft_within(READING, &["-j", "list", "map", ip, &self.name, map], &action).await {
                Ok(elements) => listed.take_map(&elements.stdout).map_err(failed)?,
                // Somebody has removed it: nothing is dispatched by it.
                Err(NftError::Refused { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(listed)
    }

    /// Carries out a script as one transaction. Until that is known to be done, nothing is known.
    async fn transact(&mut self, script: &str, action: &str) -> Result<(), DnatError> {
        self.check_ours()?;
        let was_stale = std::mem::replace(&mut self.stale, true);
        let done = nft(&["-f", "-"], script, action).await?;
        self.processes.extend(done.process);
        self.stale = was_stale;
        Ok(())
    }
}

const fn real_server(address: SocketAddr, weight: Weight) -> ObservedRealServer {
    ObservedRealServer {
        address,
        forwarding: Some(listing::FORWARDING),
        weight,
        connections: if weight.is_quiesced() { UNCOUNTED } else { 0 },
    }
}

/// The port of a real server that new connections get.
const fn port_of(server: SocketAddr) -> ServerPort {
    if server.port() == 0 { ServerPort::AsOfVip } else { ServerPort::Is(server.port()) }
}

/// What the maps that dispatch know a service by.
fn element(key: ServiceKey) -> String {
    format!("{} . {} . {}", key.vip, key.protocol, key.ports)
}

async fn forget(gone: &BTreeSet<Flows>, kept: &BTreeSet<Flows>) {
    if let Err(error) = conntrack::forget(gone, kept).await {
        tracing::warn!(%error, "connections to real servers that are gone cannot be forgotten; they hang until they time out");
    }
}

fn line(script: &mut String, text: &str) {
    // Writing to a String cannot fail.
    let _infallible = writeln!(script, "{text}");
}
