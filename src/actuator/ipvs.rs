// SPDX-License-Identifier: Apache-2.0
//! Reads and changes IPVS.
//!
//! Inputs: the steps about virtual services, and under which mark each range of ports is recorded. Outputs: the [`Balancer`]. The kernel tells nobody
//! of changes: the whole table is read when it is not trusted, else only what we changed, and what has connections to lose. Invariant: what is known is
//! what was read.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::Bound;
use std::time::{Duration, Instant};

use ::ipvs::client::{Client, Error};
use ::ipvs::{
    AddressFamily, Command, Encapsulation, EncapsulationFlags, ForwardingMethod as Forwarding, Netmask, Persistence, RealServer, Refusal,
    ServerAddress, ServerEntry, ServiceAddress, ServiceFlags, SyncRole, TableEntry, Timeouts, VirtualService,
};

use crate::api::{ForwardingMethod, PortRange, Protocol, Scheduler};
use crate::desired::{Scheduling, ServiceKey};
use crate::observed::{Balancer, IpvsAvailability, ObservedRealServer, ObservedVirtualService, Record, RetiredRange, ServiceMode};
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
    /// The daemons of connection synchronisation that this process started, as long as they run.
    started_daemons: BTreeSet<SyncRole>,
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
            started_daemons: BTreeSet::new(),
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
        !self.made.is_empty() || !self.started_daemons.is_empty()
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
        for outcome in client.execute(std::slice::from_ref(&command)).await? {
            match (outcome, &command) {
                (Ok(()), Command::StartDaemon(daemon)) => drop(self.started_daemons.insert(daemon.role)),
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
        let marks = &record.marks;
        if self.client.is_none() {
            self.client = Some(Client::connect().await?);
            self.trusted = false;
        }
        let Some(client) = &mut self.client else { return Ok(()) };
        // Which service of a mark is whose depends on the record.
        if self.trusted && self.marks == *marks {
            let draining = self.known.services.iter().filter(|(_, service)| service.real_servers.iter().any(is_draining));
            let relieved = record.relieved().into_iter().filter(|key| self.known.services.contains_key(key));
            let again: BTreeSet<ServiceKey> =
                draining.map(|(key, _)| *key).chain(relieved).chain(std::mem::take(&mut self.suspects)).collect();
            for key in again {
                let Some(address) = address(key, marks) else { continue };
                match client.service(&address).await? {
                    Some(service) => {
                        let entry = TableEntry { service, servers: client.servers(&address).await? };
                        self.known.services.insert(key, observed(&entry, self.gue_port));
                    }
                    None => drop(self.known.services.remove(&key)),
                }
            }
            let mut retired = BTreeMap::new();
            for range in &record.retired {
                let Some(address) = retired_address(*range) else { continue };
                if let Some(service) = client.service(&address).await? {
                    let entry = TableEntry { service, servers: client.servers(&address).await? };
                    retired.insert(*range, observed(&entry, self.gue_port));
                }
            }
            self.known.retired = retired;
        } else {
            let by_mark = by_mark(marks);
            let table = client.table().await?;
            let services = table
                .iter()
                .filter_map(|entry| Some((service_key(&entry.service.service.address, &by_mark)?, observed(entry, self.gue_port))));
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
                former: BTreeMap::new(),
                retired: record
                    .retired
                    .iter()
                    .filter_map(|range| {
                        let address = retired_address(*range)?;
                        let entry = table.iter().find(|entry| entry.service.service.address == address)?;
                        Some((*range, observed(entry, self.gue_port)))
                    })
                    .collect(),
            };
            for ours in [&mut self.known_as_ours, &mut self.unproven, &mut self.made] {
                follow(ours, &self.marks, &by_mark);
            }
            self.suspects.clear();
            (self.trusted, self.daemons_known) = (true, false);
            self.marks.clone_from(marks);
        }
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
        self.started_daemons.retain(|role| self.known.daemons.contains_key(role));
        self.known.started_daemons.clone_from(&self.started_daemons);
        for ours in [&mut self.known_as_ours, &mut self.unproven, &mut self.made] {
            ours.retain(|key| self.known.services.contains_key(key));
        }
        self.known.made.clone_from(&self.made);
        let may_be_ours = |key: &ServiceKey| self.known_as_ours.contains(key) || self.unproven.contains(key);
        self.known.foreign = self.known.services.keys().filter(|key| !may_be_ours(key)).copied().collect();
        Ok(())
    }

    /// Carries out steps about virtual services, and gives the result of each. First the services of all of them, then their real servers: what is
    /// there already under the name of a service that was to be made is somebody else's, and gets none.
    pub(super) async fn execute(&mut self, steps: &[Step], marks: &Marks) -> Vec<Result<(), IpvsError>> {
        let mut results: Vec<Result<(), IpvsError>> = steps.iter().map(|_| Ok(())).collect();
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
                            if matches!(command, Command::AddService(_)) {
                                self.known_as_ours.extend(key);
                                self.made.extend(key);
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

/// Where the kernel has the service; a range of ports by its mark.
fn address(key: ServiceKey, marks: &Marks) -> Option<ServiceAddress> {
    if key.ports.count() == 1 {
        return Some(ServiceAddress::transport(protocol(key.protocol), SocketAddr::new(key.vip, key.ports.start())));
    }
    let mark = NonZeroU32::new(*marks.get(&key)?)?;
    Some(ServiceAddress::Fwmark { mark, family: AddressFamily::of(key.vip) })
}

/// Where the kernel has one that has no ports any more.
pub(crate) fn retired_address(range: RetiredRange) -> Option<ServiceAddress> {
    Some(ServiceAddress::Fwmark { mark: NonZeroU32::new(range.mark)?, family: AddressFamily::of(range.vip) })
}

/// Which range of ports each mark stands for; one of IPv4 and one of IPv6 may share it.
pub(crate) fn by_mark(marks: &BTreeMap<ServiceKey, u32>) -> BTreeMap<(u32, bool), ServiceKey> {
    marks.iter().map(|(key, mark)| ((*mark, key.vip.is_ipv4()), *key)).collect()
}

/// What a service takes in, as we call it; `None` for what we would never make.
pub(crate) fn service_key(address: &ServiceAddress, by_mark: &BTreeMap<(u32, bool), ServiceKey>) -> Option<ServiceKey> {
    match *address {
        ServiceAddress::Transport { protocol, address, port } => {
            let protocol = *Protocol::ALL.iter().find(|known| self::protocol(**known) == protocol)?;
            Some(ServiceKey { vip: address, protocol, ports: PortRange::new(port.into(), port.into()).ok()? })
        }
        ServiceAddress::Fwmark { mark, family } => by_mark.get(&(mark.get(), family == AddressFamily::Ipv4)).copied(),
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

/// The mark of a service that is not ours.
fn foreign_mark(address: &ServiceAddress, by_mark: &BTreeMap<(u32, bool), ServiceKey>) -> Option<u32> {
    match *address {
        ServiceAddress::Fwmark { mark, .. } => Some(mark.get()).filter(|_| service_key(address, by_mark).is_none()),
        ServiceAddress::Transport { .. } => None,
    }
}

const fn protocol(protocol: Protocol) -> ::ipvs::Protocol {
    match protocol {
        Protocol::Tcp => ::ipvs::Protocol::TCP,
        Protocol::Udp => ::ipvs::Protocol::UDP,
        Protocol::Sctp => ::ipvs::Protocol::SCTP,
    }
}

/// A service with these settings.
fn service(address: ServiceAddress, mode: ServiceMode) -> VirtualService {
    let Scheduling { scheduler, by_port, persistence } = mode.scheduling;
    let (port, fallback) = match scheduler {
        Scheduler::MaglevHashing => (ServiceFlags::MH_PORT, ServiceFlags::MH_FALLBACK),
        Scheduler::SourceHashing => (ServiceFlags::SH_PORT, ServiceFlags::SH_FALLBACK),
        _ => (ServiceFlags::NONE, ServiceFlags::NONE),
    };
    let flag = |on, flag| if on { flag } else { ServiceFlags::NONE };
    VirtualService {
        flags: flag(by_port, port) | flag(mode.fallback, fallback),
        persistence: persistence.map(|time| Persistence {
            timeout: u32::try_from(time.as_secs()).unwrap_or(u32::MAX),
            netmask: Netmask::host(address.family()),
        }),
        ..VirtualService::new(address, ::ipvs::Scheduler::named(scheduler.word()))
    }
}

fn observed(entry: &TableEntry, gue_port: u16) -> ObservedVirtualService {
    let shown = &entry.service.service;
    let scheduler = Scheduler::ALL.iter().find(|scheduler| scheduler.word() == shown.scheduler.name());
    let modes = scheduler.into_iter().flat_map(|scheduler| {
        let persistence = shown.persistence.map(|persistence| Duration::from_secs(persistence.timeout.into()));
        let all = [(false, false), (false, true), (true, false), (true, true)];
        all.map(|(by_port, fallback)| ServiceMode { scheduling: Scheduling { scheduler: *scheduler, by_port, persistence }, fallback })
    });
    // One that no mode of ours would make is none of them.
    let mode = modes.into_iter().find(|mode| service(shown.address, *mode) == *shown);
    ObservedVirtualService { mode, real_servers: entry.servers.iter().map(|server| real_server(server, gue_port)).collect() }
}

fn real_server(entry: &ServerEntry, gue_port: u16) -> ObservedRealServer {
    let server = &entry.server;
    let plain = server.thresholds == ::ipvs::Thresholds::default();
    let forwarding = match server.forwarding {
        // The kernel says so of a target that is one of this node's own addresses.
        Forwarding::Masquerade | Forwarding::LocalNode => Some(ForwardingMethod::Masquerade),
        Forwarding::DirectRouting => Some(ForwardingMethod::DirectRouting),
        Forwarding::Tunnel(Encapsulation::Ipip) => Some(ForwardingMethod::Tunnel),
        Forwarding::Tunnel(Encapsulation::Gue { port, flags: EncapsulationFlags::NO_CHECKSUM }) if port == gue_port => {
            Some(ForwardingMethod::Gue)
        }
        Forwarding::Tunnel(_) | Forwarding::Bypass | Forwarding::Other(_) => None,
    };
    let address: IpAddr = server.address.address;
    ObservedRealServer {
        address: SocketAddr::new(address, server.address.port),
        forwarding: forwarding.filter(|_| plain),
        weight: server.weight,
        connections: u64::from(entry.active_connections) + u64::from(entry.inactive_connections),
    }
}
