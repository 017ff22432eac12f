// SPDX-License-Identifier: Apache-2.0
//! Reads and changes IPVS.
//!
//! Inputs: the steps about virtual services, and under which mark each range of ports is recorded. Outputs: the [`Balancer`]. The kernel tells nobody
//! of changes: the whole table is read when it is not trusted, else only what we changed, and what has connections to lose. Invariant: what is known is
//! what was read.

mod entries;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::{Duration, Instant};

use ::ipvs::client::{Client, Error};
use ::ipvs::{
    Command, Encapsulation, EncapsulationFlags, ForwardingMethod as Forwarding, RealServer, Refusal, ServerAddress, ServiceAddress,
    ServiceEntry, SyncDaemon, SyncRole, TableEntry, Timeouts,
};

use self::entries::{address, foreign_mark, observed, service};
pub(crate) use self::entries::{by_mark, retired_address, service_key};
use crate::api::ForwardingMethod;
use crate::desired::ServiceKey;
use crate::observed::{Balancer, IpvsAvailability, ObservedRealServer, ObservedVirtualService, Record, RetiredRange};
use crate::plan::{RealServerChange, Step, VirtualServiceChange};

/// How often it is looked whether a service of ours is there still.
const PROBE: Duration = Duration::from_secs(1);

/// The mark of each range of ports, as recorded.
type Marks = BTreeMap<ServiceKey, u32>;

/// The socket, the table as last read, and what may be ours in it.
pub(super) struct Ipvs {
    client: Option<Client>,
    known: Balancer,
    /// Services to be read again; everything where the table as a whole is not trusted.
    suspects: BTreeSet<ServiceKey>,
    trusted: bool,
    /// The marks by which the table was read as a whole.
    marks: Marks,
    /// Services that this process made, or found recorded at its start, as long as they are there.
    known_as_ours: BTreeSet<ServiceKey>,
    /// Services that were there when the record was lost: ours where they are as wanted.
    unproven: BTreeSet<ServiceKey>,
    /// Those known as ours of which the kernel has told us that it made them for us.
    made: BTreeSet<ServiceKey>,
    /// The UDP port of real servers with forwarding method `gue`.
    gue_port: u16,
    given_timeouts: Timeouts,
    /// The daemons of connection synchronisation that this process started, or the record proved ours, as long as one of their role runs.
    our_daemons: BTreeMap<SyncRole, SyncDaemon>,
    /// Ranges without ports, according to the record, in whose place somebody else has made a service.
    replaced: BTreeSet<RetiredRange>,
    /// Whether the daemons are as they were read.
    daemons_known: bool,
    /// There was no record at the start of this process: what is in the table when it is first read may be ours.
    record_was_lost: bool,
    probe: Probe,
}

/// Looks for one service after the other.
#[derive(Default)]
struct Probe {
    /// Nobody else asks by this one, so that no answer is left unread by somebody who has stopped waiting.
    client: Option<Client>,
    /// The one that was looked for last.
    last: Option<ServiceKey>,
    next: Option<Instant>,
}

/// Why a virtual service was not changed as planned.
#[derive(Debug, thiserror::Error)]
pub enum IpvsError {
    /// Nothing came of it, or nobody knows.
    #[error(transparent)]
    Client(#[from] Error),
    /// The kernel refused.
    #[error("cannot {action}")]
    Refused {
        /// What was to be done.
        action: String,
        /// Why not.
        #[source]
        source: Refusal,
    },
    /// A range of ports has no mark yet.
    #[error("{0} has no firewall mark in the record")]
    NoMark(ServiceKey),
    /// Since it was read.
    #[error("{0} is a virtual service of somebody else now, who has made it in the place of ours")]
    Replaced(String),
    /// Since it was read.
    #[error("the {0} is somebody else's, who has started it in the place of ours")]
    OtherDaemon(SyncDaemon),
}

impl Probe {
    async fn look_for(&mut self, service: &ServiceAddress) -> Result<bool, Error> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::connect().await?,
        };
        let found = client.service(service).await?;
        self.client = Some(client);
        Ok(found.is_some())
    }
}

impl Ipvs {
    /// With the record as it is at the start of this process, and whether that tells of tables of nft as well.
    pub(super) fn new(record: &Record, beside_nft: bool) -> Self {
        let recorded = || record.pending_services.union(&record.confirmed_services).copied().collect();
        Self {
            client: None,
            known: Balancer::default(),
            suspects: BTreeSet::new(),
            trusted: false,
            marks: Marks::new(),
            unproven: BTreeSet::new(),
            known_as_ours: if beside_nft { record.in_ipvs.clone() } else { recorded() },
            made: BTreeSet::new(),
            gue_port: 0,
            given_timeouts: Timeouts::default(),
            our_daemons: BTreeMap::new(),
            replaced: BTreeSet::new(),
            daemons_known: false,
            record_was_lost: !record.exists,
            probe: Probe::default(),
        }
    }

    /// Resolves when a service of ours is there no more, and has the table read as a whole then. The kernel tells nobody, so that one of them is looked for each
    /// second: who empties the table, as `ipvsadm -C` and kube-proxy in IPVS mode do, takes all of them. Cancel safe.
    pub(super) async fn lost(&mut self) {
        loop {
            let next = *self.probe.next.get_or_insert_with(|| Instant::now() + PROBE);
            tokio::time::sleep_until(next.into()).await;
            self.probe.next = None;
            let Some(address) = self.next_to_probe() else { continue };
            match self.probe.look_for(&address).await {
                Ok(true) => {}
                // Who reads the table is told the error, too.
                Ok(false) | Err(_) => return self.distrust(),
            }
        }
    }

    /// A service of ours, each in turn; none where the table is not known, and then the kernel is not asked.
    fn next_to_probe(&mut self) -> Option<ServiceAddress> {
        let ours = |key: &&ServiceKey| !self.known.foreign.contains(key);
        let known = Some(&self.known.services).filter(|_| self.trusted && self.client.is_some())?;
        let after = self.probe.last.and_then(|last| known.range((Bound::Excluded(last), Bound::Unbounded)).map(|(key, _)| key).find(ours));
        let key = *after.or_else(|| known.keys().find(ours))?;
        self.probe.last = Some(key);
        address(key, &self.marks)
    }

    /// Whether something of ours is there that the record need not tell of.
    pub(super) fn has_made(&self) -> bool {
        !self.made.is_empty() || !self.our_daemons.is_empty()
    }

    /// What was taken for ours without proof is ours once the record of what IPVS balances has it.
    pub(super) fn adopt(&mut self, record: &Record) {
        self.known_as_ours.extend(self.unproven.extract_if(.., |key| record.has_service(*key)));
    }

    /// From now on the record tells what something else balances: what it has not proved to be ours by now is somebody else's.
    pub(super) fn take_for_theirs(&mut self) {
        self.record_was_lost = false;
        self.unproven.clear();
    }

    /// The table is read as a whole next time.
    pub(super) const fn distrust(&mut self) {
        self.trusted = false;
    }

    /// The UDP port of real servers with forwarding method `gue`; such with another port are none that we would make.
    pub(super) const fn deliver_to(&mut self, gue_port: u16) {
        if self.gue_port != gue_port {
            (self.gue_port, self.trusted) = (gue_port, false);
        }
    }

    /// Sets the timeouts that are not 0.
    pub(super) async fn set_timeouts(&mut self, timeouts: Timeouts) -> Result<(), IpvsError> {
        let client = self.client.as_mut().ok_or(Error::NoIpvs)?;
        self.known.timeouts = None;
        for outcome in client.execute(&[Command::SetTimeouts(timeouts)]).await? {
            outcome.map_err(|source| IpvsError::Refused { action: "set the timeouts".to_owned(), source })?;
        }
        self.given_timeouts.give(timeouts);
        Ok(())
    }

    /// Starts or stops a daemon of connection synchronisation. One that runs already is somebody else's.
    pub(super) async fn change_daemon(&mut self, command: Command) -> Result<(), IpvsError> {
        let client = self.client.as_mut().ok_or(Error::NoIpvs)?;
        self.daemons_known = false;
        if let Command::StopDaemon(role) = command
            && let Some(started) = self.our_daemons.get(&role)
            && let Some(runs) = client.daemons().await?.into_iter().find(|daemon| daemon.role == role && !started.is_shown_as(daemon))
        {
            return Err(IpvsError::OtherDaemon(runs));
        }
        for outcome in client.execute(std::slice::from_ref(&command)).await? {
            match (outcome, &command) {
                (Ok(()), Command::StartDaemon(daemon)) => drop(self.our_daemons.insert(daemon.role, daemon.clone())),
                (Err(source), _) if !is_as_wanted(&command, &source) => {
                    return Err(IpvsError::Refused { action: describe(&command), source });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The table. Where it is not needed, nothing is asked: that would make the kernel load IPVS.
    pub(super) async fn observe(&mut self, needed: bool, record: &Record) -> Result<Balancer, Error> {
        if !needed {
            (self.client, self.trusted) = (None, false);
            return Ok(Balancer::default());
        }
        match self.read(record).await {
            Ok(()) => {}
            Err(Error::NoIpvs) => {
                self.known = Balancer { availability: IpvsAvailability::Missing, ..Balancer::default() };
            }
            Err(error) => {
                (self.client, self.trusted) = (None, false);
                return Err(error);
            }
        }
        Ok(self.known.clone())
    }

    async fn read(&mut self, record: &Record) -> Result<(), Error> {
        if self.client.is_none() {
            self.client = Some(Client::connect().await?);
            self.trusted = false;
        }
        // Which service of a mark is whose depends on the record.
        if self.trusted && self.marks == record.marks {
            self.read_what_changes(record).await?;
        } else {
            self.read_whole(record).await?;
        }
        self.read_retired(record).await?;
        let client = self.client.as_mut().ok_or(Error::NoIpvs)?;
        if std::mem::take(&mut self.record_was_lost) {
            self.unproven.extend(self.known.services.keys());
        }
        if self.known.timeouts.is_none() {
            self.known.timeouts = Some(client.timeouts().await?);
        }
        self.known.given_timeouts = self.given_timeouts;
        if !std::mem::replace(&mut self.daemons_known, true) {
            self.known.daemons = client.daemons().await?.into_iter().map(|daemon| (daemon.role, daemon)).collect();
        }
        self.our_daemons.retain(|role, _| self.known.daemons.contains_key(role));
        for role in &record.confirmed_daemons {
            if let Some(found) = self.known.daemons.get(role) {
                self.our_daemons.entry(*role).or_insert_with(|| found.clone());
            }
        }
        // The kernel edits none that runs.
        let runs = |(role, started): (&SyncRole, &SyncDaemon)| {
            (*role, self.known.daemons.get(role).is_some_and(|found| started.is_shown_as(found)))
        };
        let (ours, foreign): (Vec<_>, Vec<_>) = self.our_daemons.iter().map(runs).partition(|(_, runs)| *runs);
        self.known.started_daemons = ours.into_iter().map(|(role, _)| role).collect();
        self.known.foreign_daemons = foreign.into_iter().map(|(role, _)| role).collect();
        for ours in [&mut self.known_as_ours, &mut self.unproven, &mut self.made] {
            ours.retain(|key| self.known.services.contains_key(key));
        }
        self.known.made.clone_from(&self.made);
        let may_be_ours = |key: &ServiceKey| self.known_as_ours.contains(key) || self.unproven.contains(key);
        self.known.foreign = self.known.services.keys().filter(|key| !may_be_ours(key)).copied().collect();
        Ok(())
    }

    /// What we have changed, and what changes by itself.
    async fn read_what_changes(&mut self, record: &Record) -> Result<(), Error> {
        let draining = self.known.services.iter().filter(|(_, service)| service.real_servers.iter().any(is_draining));
        let relieved = record.relieved().into_iter().filter(|key| self.known.services.contains_key(key));
        let again: BTreeSet<ServiceKey> = draining.map(|(key, _)| *key).chain(relieved).chain(self.suspects.iter().copied()).collect();
        for key in again {
            if let Some(address) = address(key, &record.marks) {
                self.read_again(key, address).await?;
            }
        }
        self.suspects.clear();
        Ok(())
    }

    async fn read_whole(&mut self, record: &Record) -> Result<(), Error> {
        let marks = &record.marks;
        let client = self.client.as_mut().ok_or(Error::NoIpvs)?;
        let by_mark = by_mark(marks);
        let table = client.table().await?;
        let before = std::mem::take(&mut self.known.services);
        let services =
            table.iter().filter_map(|entry| Some((service_key(&entry.service.service.address, &by_mark)?, observed(entry, self.gue_port))));
        self.known = Balancer {
            availability: IpvsAvailability::Available,
            services: services.collect(),
            foreign_marks: table
                .iter()
                .filter(|entry| !record.retired.iter().any(|range| retired_address(*range) == Some(entry.service.service.address)))
                .filter_map(|entry| foreign_mark(&entry.service.service.address, &by_mark))
                .collect(),
            foreign: BTreeSet::new(),
            made: BTreeSet::new(),
            taken: BTreeSet::new(),
            timeouts: None,
            given_timeouts: self.given_timeouts,
            daemons: BTreeMap::new(),
            started_daemons: BTreeSet::new(),
            foreign_daemons: BTreeSet::new(),
            former: BTreeMap::new(),
            retired: std::mem::take(&mut self.known.retired),
        };
        for ours in [&mut self.known_as_ours, &mut self.unproven, &mut self.made] {
            follow(ours, &self.marks, &by_mark);
            // What we have changed ourselves need not be as it was.
            ours.retain(|key| {
                let (before, after) = (before.get(key), self.known.services.get(key));
                let replaced = before.zip(after).is_some_and(|(before, after)| after.has_replaced(before));
                !replaced || self.suspects.contains(key) || self.marks.get(key) != marks.get(key)
            });
        }
        self.suspects.clear();
        (self.trusted, self.daemons_known) = (true, false);
        self.marks.clone_from(marks);
        Ok(())
    }

    /// Those that have no ports any more, but for what somebody has made in their place.
    async fn read_retired(&mut self, record: &Record) -> Result<(), Error> {
        let before = std::mem::take(&mut self.known.retired);
        self.replaced.retain(|range| record.retired.contains(range));
        for range in &record.retired {
            self.read_retired_again(*range, before.get(range)).await?;
        }
        Ok(())
    }

    async fn read_retired_again(&mut self, range: RetiredRange, before: Option<&ObservedVirtualService>) -> Result<(), Error> {
        let client = self.client.as_mut().ok_or(Error::NoIpvs)?;
        let Some(address) = retired_address(range) else { return Ok(()) };
        let Some(service) = client.service(&address).await? else { return Ok(()) };
        let after = observed(&TableEntry { service, servers: client.servers(&address).await? }, self.gue_port);
        if before.is_some_and(|before| after.has_replaced(before)) {
            self.replaced.insert(range);
        }
        if !self.replaced.contains(&range) {
            self.known.retired.insert(range, after);
        }
        Ok(())
    }

    /// One service, as it is now. What of it somebody else has made in place of ours is ours no more.
    async fn read_again(&mut self, key: ServiceKey, address: ServiceAddress) -> Result<(), Error> {
        let client = self.client.as_mut().ok_or(Error::NoIpvs)?;
        let Some(service) = client.service(&address).await? else {
            self.known.services.remove(&key);
            return Ok(());
        };
        let after = observed(&TableEntry { service, servers: client.servers(&address).await? }, self.gue_port);
        let before = self.known.services.get(&key);
        // What we have changed ourselves need not be as it was.
        if before.is_some_and(|before| after.has_replaced(before)) && !self.suspects.contains(&key) {
            self.disown(&key);
        }
        self.known.services.insert(key, after);
        Ok(())
    }

    /// What is there is not ours any more.
    fn disown(&mut self, key: &ServiceKey) {
        for ours in [&mut self.known_as_ours, &mut self.unproven, &mut self.made] {
            ours.remove(key);
        }
    }

    /// Whether the service that a step changes is still the one that was read, which may be ten seconds ago.
    async fn look_before(&mut self, step: &Step, marks: &Marks) -> Result<(), IpvsError> {
        if let Step::RemoveRetired(range) = step {
            let before = self.known.retired.remove(range);
            self.read_retired_again(*range, before.as_ref()).await?;
            return if self.replaced.contains(range) { Err(IpvsError::Replaced(range.to_string())) } else { Ok(()) };
        }
        let changed = subject(step).filter(|key| !matches!(step, Step::AddVirtualService(..)) && !self.suspects.contains(key));
        let Some((key, address)) = changed.and_then(|key| Some((key, address(key, marks)?))) else { return Ok(()) };
        let client = self.client.as_mut().ok_or(Error::NoIpvs)?;
        let as_it_was = |found: ServiceEntry| {
            let mode = observed(&TableEntry { service: found, servers: Vec::new() }, self.gue_port).mode;
            self.known.services.get(&key).is_some_and(|known| known.mode == mode)
        };
        // Many go at once where a node leaves.
        if client.service(&address).await?.is_none_or(as_it_was) {
            return Ok(());
        }
        self.read_again(key, address).await?;
        let is_theirs = self.known.services.contains_key(&key) && !self.known_as_ours.contains(&key) && !self.unproven.contains(&key);
        if is_theirs { Err(IpvsError::Replaced(key.to_string())) } else { Ok(()) }
    }

    /// Carries out steps about virtual services, and gives the result of each. First the services of all of them, then their real servers: what is
    /// there already under the name of a service that was to be made is somebody else's, and gets none.
    pub(super) async fn execute(&mut self, steps: &[Step], marks: &Marks) -> Vec<Result<(), IpvsError>> {
        let mut results = Vec::with_capacity(steps.len());
        for step in steps {
            results.push(self.look_before(step, marks).await);
        }
        for commands_of in [service_commands as fn(&Step, ServiceAddress, u16) -> Vec<Command>, server_commands] {
            let mut commands = Vec::new();
            let mut step_of = Vec::new();
            for (index, (step, result)) in steps.iter().zip(&mut results).enumerate().filter(|(_, (_, result))| result.is_ok()) {
                let key = subject(step);
                self.suspects.extend(key);
                let address = match (step, key) {
                    (Step::RemoveRetired(range), _) => retired_address(*range),
                    (_, Some(key)) => address(key, marks),
                    _ => continue,
                };
                let Some(address) = address else {
                    *result = Err(key.map_or_else(|| Error::NoIpvs.into(), IpvsError::NoMark));
                    continue;
                };
                let of_step = commands_of(step, address, self.gue_port);
                step_of.extend(std::iter::repeat_n((index, key), of_step.len()));
                commands.extend(of_step);
            }
            let Some(client) = &mut self.client else { return steps.iter().map(|_| Err(Error::NoIpvs.into())).collect() };
            match client.execute(&commands).await {
                Ok(outcomes) => {
                    for ((outcome, command), (index, key)) in outcomes.into_iter().zip(&commands).zip(step_of) {
                        let Err(source) = outcome else {
                            match command {
                                Command::AddService(_) => {
                                    self.known_as_ours.extend(key);
                                    self.made.extend(key);
                                }
                                // Whoever waits for the place has it from now on.
                                Command::DeleteService(_) => key.iter().for_each(|key| self.disown(key)),
                                _ => {}
                            }
                            continue;
                        };
                        if !is_as_wanted(command, &source)
                            && let Some(result) = results.get_mut(index).filter(|result| result.is_ok())
                        {
                            *result = Err(IpvsError::Refused { action: describe(command), source });
                        }
                    }
                }
                Err(error) => {
                    // They may have been made: that somebody else made one in this very moment is less likely.
                    let asked_for = commands.iter().zip(step_of).filter(|(command, _)| matches!(command, Command::AddService(_)));
                    self.known_as_ours.extend(asked_for.filter_map(|(_, (_, key))| key));
                    let told = error.to_string();
                    (self.client, self.trusted) = (None, false);
                    let failed = |_| Err(IpvsError::Client(Error::Receive(std::io::Error::other(told.clone()))));
                    return steps.iter().map(failed).collect();
                }
            }
        }
        results
    }
}

/// The virtual service that a step is about.
const fn subject(step: &Step) -> Option<ServiceKey> {
    match step {
        Step::AddVirtualService(key, _)
        | Step::ChangeVirtualService(key, _)
        | Step::RemoveVirtualService(key)
        | Step::RemoveFormer(key) => Some(*key),
        _ => None,
    }
}

const fn is_draining(server: &ObservedRealServer) -> bool {
    server.weight.is_quiesced()
}

fn service_commands(step: &Step, address: ServiceAddress, _gue_port: u16) -> Vec<Command> {
    let command = match step {
        Step::AddVirtualService(_, change) => change.mode.map(|mode| Command::AddService(service(address, mode))),
        Step::ChangeVirtualService(_, change) => change.mode.map(|mode| Command::EditService(service(address, mode))),
        Step::RemoveVirtualService(_) | Step::RemoveFormer(_) | Step::RemoveRetired(_) => Some(Command::DeleteService(address)),
        _ => None,
    };
    command.into_iter().collect()
}

fn server_commands(step: &Step, address: ServiceAddress, gue_port: u16) -> Vec<Command> {
    let (Step::AddVirtualService(_, change) | Step::ChangeVirtualService(_, change)) = step else { return Vec::new() };
    change.real_servers.iter().map(|server| server_command(address, *server, change, gue_port)).collect()
}

fn server_command(service: ServiceAddress, change: RealServerChange, whole: &VirtualServiceChange, gue_port: u16) -> Command {
    let forwarding = match whole.forwarding {
        ForwardingMethod::Masquerade => Forwarding::Masquerade,
        ForwardingMethod::DirectRouting => Forwarding::DirectRouting,
        ForwardingMethod::Tunnel => Forwarding::Tunnel(Encapsulation::Ipip),
        ForwardingMethod::Gue => Forwarding::Tunnel(Encapsulation::Gue { port: gue_port, flags: EncapsulationFlags::NO_CHECKSUM }),
    };
    match change {
        RealServerChange::Add(address, weight) => Command::AddServer(service, RealServer::new(address, forwarding, weight)),
        RealServerChange::Weigh(address, weight) => Command::EditServer(service, RealServer::new(address, forwarding, weight)),
        RealServerChange::Remove(address) => Command::DeleteServer(service, ServerAddress::new(address)),
    }
}

/// Whether the refusal says that what was asked for is so already. What is there under our name will be read, and set right where it differs.
fn is_as_wanted(command: &Command, refusal: &Refusal) -> bool {
    match command {
        Command::DeleteService(_) | Command::DeleteServer(..) | Command::StopDaemon(_) => refusal.is_already_gone(),
        Command::AddServer(..) => matches!(refusal, Refusal::AlreadyExists),
        _ => false,
    }
}

fn describe(command: &Command) -> String {
    match command {
        Command::AddService(service) => format!("add {} with scheduler {}", service.address, service.scheduler),
        Command::EditService(service) => format!("set {} to scheduler {}", service.address, service.scheduler),
        Command::DeleteService(service) => format!("remove {service}"),
        Command::AddServer(service, server) => format!("add {} to {service}", server.address),
        Command::EditServer(service, server) => format!("weigh {} of {service}", server.address),
        Command::DeleteServer(service, server) => format!("remove {server} from {service}"),
        Command::StartDaemon(daemon) => format!("start the {daemon}"),
        Command::StopDaemon(role) => format!("stop the {role} sync daemon"),
        Command::Zero(_) | Command::Flush | Command::SetTimeouts(_) => format!("{command:?}"),
    }
}

/// A range of ports that has become another one is the same service, as its mark tells.
fn follow(keys: &mut BTreeSet<ServiceKey>, before: &Marks, by_mark: &BTreeMap<(u32, bool), ServiceKey>) {
    let becomes = |from: &ServiceKey| {
        let to = by_mark.get(&(*before.get(from)?, from.vip.is_ipv4()))?;
        from.overlapping(&[*to].into()).next().map(|_| (*from, *to))
    };
    let moved: Vec<(ServiceKey, ServiceKey)> = keys.iter().filter_map(becomes).collect();
    for (from, to) in moved {
        keys.remove(&from);
        keys.insert(to);
    }
}
