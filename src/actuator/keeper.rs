// SPDX-License-Identifier: Apache-2.0
//! Keeps the loop from waiting for `nft`: what needs it is done by a task that borrows the [`Table`], one job at a time.
//!
//! Inputs: jobs (read again, change, ask for other instances' records). Outputs: the record as last known, at any time, and what became of each step.
//! Invariant: while a job is under way no other is begun, and what is known stays as it was, but that an entry which a job takes out counts as out from
//! its beginning: nothing may be placed on the strength of an entry that is about to go.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::KernelError;
use super::conntrack;
use super::dnat::Dnat;
use super::handover::{self, Stage};
use super::nft::NftError;
use super::others::{self, Claims};
use super::record::{Change, RecordError, Table};
use crate::desired::{Rules, ServiceKey};
use crate::observed::{ObservedAddress, Record, Translated};
use crate::plan::{Entries, RangeMove, Step};
use crate::telemetry::chain;

/// The wait after something could not be read; each further time doubles it.
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// The longest of these waits.
const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Keeper {
    /// Absent while a job has them.
    books: Option<Box<Books>>,
    job: Option<JoinHandle<(Box<Books>, Vec<Outcome>)>>,
    known: Record,
    translated: Translated,
    /// The instance's name.
    name: String,
    beside: Beside,
    tried: BTreeSet<IpAddr>,
    /// Addresses that were left to another instance which has them no more.
    orphaned: BTreeSet<IpAddr>,
    /// The netlink ports from which our finished changes came, until their notifications were taken.
    own: BTreeSet<u32>,
    outcomes: Vec<Outcome>,
    unreadable_since: Option<Instant>,
}

/// A step, and what became of it.
pub type Outcome = (Step, Result<(), KernelError>);

/// All that needs `nft`.
struct Books {
    table: Table,
    dnat: Dnat,
    beside: Beside,
    /// Others may have changed what they have.
    beside_is_stale: bool,
    /// The addresses that were asked about last, in vain or not: what failed is tried again when there is a hint, or an audit.
    tried: BTreeSet<IpAddr>,
    /// Addresses that were taken out of our record since another instance had them, and of which it is to be read again whether it still has.
    released: BTreeSet<IpAddr>,
    orphaned: BTreeSet<IpAddr>,
    /// Our tables could not be read when that was tried last.
    unreadable: Option<Unreadable>,
}

/// Our tables cannot be read.
struct Unreadable {
    since: Instant,
    /// So often in a row.
    count: u32,
    /// What was said of it.
    complaint: String,
}

/// What other instances have, and the addresses about which that was asked.
#[derive(Clone, Debug, Default)]
struct Beside {
    asked: BTreeSet<IpAddr>,
    claims: Claims,
}

/// What a task does with the books.
enum Job {
    CatchUp(BTreeSet<IpAddr>),
    Change(Vec<Step>),
}

impl Keeper {
    /// Reads what other instances have, as far as that can be read.
    pub(super) async fn new(table: Table, dnat: Dnat) -> Self {
        let mut books = Box::new(Books {
            table,
            dnat,
            beside: Beside::default(),
            beside_is_stale: true,
            tried: BTreeSet::new(),
            released: BTreeSet::new(),
            orphaned: BTreeSet::new(),
            unreadable: None,
        });
        books.look_beside(BTreeSet::new()).await;
        Self {
            known: books.record(),
            translated: books.dnat.known().clone(),
            name: books.table.name().to_owned(),
            beside: books.beside.clone(),
            tried: BTreeSet::new(),
            books: Some(books),
            job: None,
            orphaned: BTreeSet::new(),
            own: BTreeSet::new(),
            outcomes: Vec::new(),
            unreadable_since: None,
        }
    }

    /// Since when our tables cannot be read.
    pub(super) const fn unreadable_since(&self) -> Option<Instant> {
        self.unreadable_since
    }

    /// The instance's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The record as last known.
    pub(super) const fn known(&self) -> &Record {
        &self.known
    }

    /// Makes the record name `vips.interface`, and no more those that are `left`, once no other job is under way.
    pub(super) async fn name_interface(&mut self, left: &BTreeSet<String>) -> Result<(), RecordError> {
        self.finished().await;
        let Some(books) = &mut self.books else { return Ok(()) };
        let named = books.table.name_interface(left).await;
        self.own.extend(books.table.take_processes());
        named
    }

    /// The virtual services of nft as last known.
    pub(super) const fn translated(&self) -> &Translated {
        &self.translated
    }

    /// Whether a job is under way.
    pub(super) const fn is_busy(&self) -> bool {
        self.job.is_some()
    }

    /// The netlink ports from which our own changes came; `None` while a job is under way, whose port is not known yet.
    pub(super) const fn own_ports(&self) -> Option<&BTreeSet<u32>> {
        if self.is_busy() { None } else { Some(&self.own) }
    }

    /// All notifications of the finished changes were taken.
    pub(super) fn forget_ports(&mut self) {
        if !self.is_busy() {
            self.own.clear();
        }
    }

    /// What became of steps since the last call.
    pub(super) fn outcomes(&mut self) -> Vec<Outcome> {
        std::mem::take(&mut self.outcomes)
    }

    /// Somebody else may have changed our table.
    pub(super) const fn suspect(&mut self) {
        if let Some(books) = &mut self.books {
            books.table.suspect();
            books.dnat.suspect();
        }
    }

    /// Nothing hints at a change of our tables, but it is time to look.
    pub(super) fn audit(&mut self) {
        if let Some(books) = &mut self.books {
            books.table.suspect();
            books.dnat.audit();
        }
    }

    /// Other instances may have changed what they have.
    pub(super) const fn suspect_others(&mut self) {
        if let Some(books) = &mut self.books {
            books.beside_is_stale = true;
        }
    }

    /// The tables of other instances.
    pub(super) const fn others(&self) -> &BTreeSet<String> {
        &self.beside.claims.tables
    }

    /// Those of the addresses that another instance has: of the `shared` ones where its record says so, of those that look `alike` also where that is not
    /// known yet.
    pub(super) fn claimed(&self, shared: &BTreeSet<IpAddr>, alike: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
        let Beside { asked, claims } = &self.beside;
        let theirs = alike.iter().filter(|address| !asked.contains(address) || claims.addresses.contains(address));
        shared.intersection(&claims.addresses).chain(theirs).copied().collect()
    }

    /// Those of the addresses on the interface which this process has left to another instance that has them no more.
    pub(super) fn orphaned(&mut self, addresses: &BTreeMap<IpAddr, ObservedAddress>) -> BTreeSet<IpAddr> {
        self.orphaned.retain(|address| addresses.contains_key(address) && !self.beside.claims.addresses.contains(address));
        self.orphaned.clone()
    }

    /// The virtual services that another instance has.
    pub(super) fn taken(&self) -> BTreeSet<ServiceKey> {
        self.beside.claims.taken(&self.known, &self.name)
    }

    /// Begins to read again what may differ from what is known, where there is such a thing and nothing else is under way: our table, and who has
    /// these addresses.
    pub(super) fn catch_up(&mut self, addresses: &BTreeSet<IpAddr>) {
        let asks = *addresses != self.tried;
        let is_stale = |books: &Books| books.beside_is_stale || books.table.is_suspect() || books.dnat.is_suspect();
        if self.books.as_ref().is_some_and(|books| asks || is_stale(books)) {
            self.begin(Job::CatchUp(addresses.clone()));
        }
    }

    /// Begins these steps of one plan. False, with nothing done, where another job is under way.
    pub(super) fn change(&mut self, steps: Vec<Step>) -> bool {
        let leaving: Vec<Entries> =
            steps.iter().filter_map(|step| if let Step::RecordRemoved(entries) = step { Some(entries.clone()) } else { None }).collect();
        let begun = self.begin(Job::Change(steps));
        if begun {
            leaving.iter().for_each(|entries| self.known.forget(entries));
        }
        begun
    }

    /// Resolves when the job under way is finished, at once where there is none. Cancel safe.
    pub(super) async fn finished(&mut self) {
        let Some(job) = &mut self.job else { return };
        // A task that panicked took the books along: this one ends likewise.
        let (mut books, outcomes) = job.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        self.known = books.record();
        self.translated.clone_from(books.dnat.known());
        self.beside.clone_from(&books.beside);
        self.tried.clone_from(&books.tried);
        self.orphaned.append(&mut books.orphaned);
        self.unreadable_since = books.unreadable.as_ref().map(|unreadable| unreadable.since);
        self.own.extend(books.table.take_processes());
        self.own.extend(books.dnat.take_processes());
        self.outcomes.extend(outcomes);
        (self.books, self.job) = (Some(books), None);
    }

    /// As [`Self::finished`], but does not wait.
    pub(super) async fn look(&mut self) {
        if self.job.as_ref().is_some_and(JoinHandle::is_finished) {
            self.finished().await;
        }
    }

    fn begin(&mut self, job: Job) -> bool {
        let Some(books) = self.books.take() else { return false };
        self.job = Some(tokio::spawn(books.work(job)));
        true
    }
}

impl Books {
    /// The record, with the rules of all our tables.
    fn record(&self) -> Record {
        let mut record = self.table.known().clone();
        record.rules.extend(self.dnat.known().rules.iter().cloned());
        record
    }

    async fn work(mut self: Box<Self>, job: Job) -> (Box<Self>, Vec<Outcome>) {
        let mut outcomes = Vec::new();
        match job {
            Job::CatchUp(addresses) => self.catch_up(addresses).await,
            Job::Change(steps) => {
                for steps in steps.chunk_by(|one, next| is_of_service(one) && is_of_service(next)) {
                    match steps {
                        [step, ..] if is_of_service(step) => {
                            let results = self.dnat.execute(steps).await.into_iter().map(|result| result.map_err(KernelError::from));
                            outcomes.extend(steps.iter().cloned().zip(results));
                        }
                        _ => {
                            for step in steps {
                                outcomes.push((step.clone(), self.change(step).await));
                            }
                        }
                    }
                }
            }
        }
        (self, outcomes)
    }

    async fn catch_up(&mut self, addresses: BTreeSet<IpAddr>) {
        let mut complaints = Vec::new();
        if let Err(error) = self.table.refresh().await {
            complaints.push(format!("cannot read the ownership record; what was last known of it stands: {}", chain(&error)));
        }
        if let Err(error) = self.dnat.refresh(self.table.known().is_handing_over()).await {
            complaints.push(format!("cannot read the virtual services of nft; what was last known of them stands: {}", chain(&error)));
        }
        if self.beside_is_stale || self.tried != addresses {
            self.look_beside(addresses).await;
        }
        self.complain(complaints.join("; ")).await;
    }

    /// Says once what cannot be read, and that it can again. What failed is tried again only after a while, in which nothing else is begun on the strength of what is not known.
    async fn complain(&mut self, complaint: String) {
        let before = self.unreadable.take();
        if complaint.is_empty() {
            if let Some(Unreadable { since, .. }) = before {
                tracing::info!(after = ?since.elapsed(), "the tables of nft can be read again");
            }
            return;
        }
        if before.as_ref().is_none_or(|before| before.complaint != complaint) {
            tracing::warn!("{complaint}");
        }
        let (since, count) = before.map_or_else(|| (Instant::now(), 0), |before| (before.since, before.count));
        self.unreadable = Some(Unreadable { since, count: count.saturating_add(1), complaint });
        tokio::time::sleep(FIRST_RETRY.saturating_mul(1 << count.min(16)).min(LONGEST_RETRY)).await;
    }

    async fn look_beside(&mut self, addresses: BTreeSet<IpAddr>) {
        self.beside_is_stale = false;
        self.tried.clone_from(&addresses);
        match others::read(self.table.name(), self.table.interface()).await {
            Ok(claims) => {
                let released = std::mem::take(&mut self.released);
                self.orphaned.extend(released.difference(&claims.addresses));
                self.beside = Beside { asked: addresses, claims };
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "cannot read the records of other instances; what looks like ours is taken for theirs");
            }
        }
    }

    async fn write_rules(&mut self, rules: Option<&Rules>) -> Result<(), KernelError> {
        // It reads the tables, which may take a while: none is to pass between the transactions.
        let script = self.dnat.script_of_rules(rules).await?;
        let done = self.carry_out(rules, &script).await;
        match done {
            Ok(()) => self.dnat.have_written(rules),
            Err(_) => self.dnat.suspect(),
        }
        Ok(done?)
    }

    /// Stage by stage, and in the end in all tables at once.
    async fn carry_out(&mut self, rules: Option<&Rules>, script: &str) -> Result<(), RecordError> {
        let before: Vec<String> = self.table.known().rules.iter().chain(&self.dnat.known().rules).cloned().collect();
        for Stage { chains, dispatches } in handover::stages(&before, rules) {
            let dispatch = dispatches.map(|dispatches| self.dnat.script_of_dispatch(dispatches)).unwrap_or_default();
            match self.table.prepare(&chains, &dispatch).await {
                Err(RecordError::Nft(NftError::Refused { .. })) => break,
                done => done?,
            }
        }
        match self.table.change_with(Change::Rules(rules), script).await {
            // The kernel does not move a chain to another hook.
            Err(RecordError::Nft(NftError::Refused { .. })) => self.table.change_with(Change::RulesAnew(rules), script).await,
            done => done,
        }
    }

    /// Where nft balances, the chains of new ranges are there before anything leads to them, and those of former ones until nothing does.
    async fn move_ranges(&mut self, change: &RangeMove) -> Result<(), KernelError> {
        let record = self.table.known();
        let given_up = change.leaving().flat_map(|from| record.given_up(from)).collect();
        let dispatch = self.dnat.prepare_move(change).await?;
        let moved = self.table.change_with(Change::Moved(change), &dispatch).await;
        match moved {
            Ok(()) => self.dnat.finish_move(change, &given_up).await,
            Err(_) => self.dnat.suspect(),
        }
        Ok(moved?)
    }

    async fn change(&mut self, step: &Step) -> Result<(), KernelError> {
        match step {
            Step::RecordPending(entries) => self.table.change(Change::Pending(entries)).await?,
            Step::RecordConfirmed(entries) => self.table.change(Change::Confirmed(entries)).await?,
            Step::RecordRemoved(entries) => {
                self.table.change(Change::Removed(entries)).await?;
                let shared: BTreeSet<IpAddr> = entries.addresses.intersection(&self.beside.claims.addresses).copied().collect();
                self.beside_is_stale |= !shared.is_empty();
                self.released.extend(shared);
            }
            Step::ClosePorts(services) => self.table.change(Change::Closed(services)).await?,
            Step::OpenPorts(services) => self.table.change(Change::Opened(services)).await?,
            Step::MoveRanges(change) => self.move_ranges(change).await?,
            Step::WriteFilters(filters) => self.table.change(Change::Filters(filters)).await?,
            Step::WriteRules(rules) => self.write_rules(rules.as_ref()).await?,
            Step::ForgetConnections(services) => {
                conntrack::forget_strays(services).await.map_err(KernelError::Connections)?;
            }
            Step::DropRecord => {
                self.dnat.remove().await?;
                self.table.remove().await?;
            }
            Step::Advertise(_)
            | Step::AddAddress(_)
            | Step::RemoveAddress(_)
            | Step::SetSysctl(_)
            | Step::SetInterfaces(_)
            | Step::SetTimeouts(_)
            | Step::StartDaemon(_)
            | Step::StopDaemon(_)
            | Step::AddVirtualService(..)
            | Step::ChangeVirtualService(..)
            | Step::RemoveVirtualService(_)
            | Step::RemoveFormer(_)
            | Step::RemoveRetired(_)
            | Step::ConfigureSpeaker(..)
            | Step::StopSpeaker
            | Step::ReleaseSpeaker
            | Step::ConfigureVirtualRouters(_)
            | Step::StopVirtualRouters
            | Step::SuspendVirtualRouters => {
                return Err(KernelError::NotForKernel);
            }
        }
        Ok(())
    }
}

const fn is_of_service(step: &Step) -> bool {
    matches!(step, Step::AddVirtualService(..) | Step::ChangeVirtualService(..) | Step::RemoveVirtualService(_))
}
