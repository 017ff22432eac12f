// SPDX-License-Identifier: Apache-2.0
//! Changes the kernel, one planned step at a time, and says what it holds: addresses on `vips.interface`, and the ownership record.
//!
//! Inputs: the [`Step`]s of a plan that are about addresses and the record. Outputs: a [`KernelState`] read afresh, and hints that it is time to read
//! again. Invariants: no step is chosen here; "already there" and "already gone" are success, and what really is there is read again.

mod abandoned;
pub(crate) mod address;
pub mod conntrack;
mod dnat;
mod handover;
mod hint;
mod ipvs;
mod keeper;
mod moving;
mod nft;
mod others;
mod record;
mod routes;
mod sysctl;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use ::ipvs::Command;
use futures_util::{StreamExt as _, stream};
use nix::errno::Errno;
use rtnetlink::Handle;

pub use self::abandoned::{Abandoned, abandoned};
use self::address::{Addresses, Interface};
use self::dnat::Dnat;
pub use self::dnat::DnatError;
pub use self::handover::left_between;
use self::hint::Hints;
use self::ipvs::Ipvs;
pub use self::ipvs::IpvsError;
pub(crate) use self::ipvs::{by_mark, retired_address, service_key};
use self::keeper::Keeper;
pub use self::keeper::Outcome;
pub use self::nft::NftError;
pub(crate) use self::nft::{nft, sets};
pub use self::record::RecordError;
use self::record::Table;
use self::routes::Routes;
pub(crate) use self::sysctl::{interface_path, read_interfaces};
use crate::desired::{BalancerKind, DesiredBalancing};
use crate::observed::{ADDRESS_PROTOCOL, Balancer, InterfaceState, IpvsAvailability, KernelState, ObservedAddress};
use crate::plan::{Step, StepKey};
use crate::sysctl::{InterfaceSetting, Sysctl};

/// kube-proxy in IPVS mode keeps the addresses of all Services on this interface.
const KUBE_IPVS: &str = "kube-ipvs0";
/// Requests under way at a time; the kernel is the bottleneck, not the number.
const WINDOW: usize = 64;
/// How long [`Kernel::changed`] lets a burst go on before it tells of it.
const SETTLE: Duration = Duration::from_millis(2);

/// The interfaces to which default routes lead, and so where routers and clients are unless somebody says otherwise.
pub(crate) async fn default_interfaces() -> io::Result<BTreeSet<String>> {
    Ok(routes::routes(&address::connect()?).await?.default_interfaces)
}

/// The kernel as one instance uses it: one interface, one nft table, in the network namespace of the thread that made this.
pub struct Kernel {
    interface: String,
    /// Where the record has addresses besides, which are to be moved.
    former: BTreeSet<String>,
    handle: Handle,
    hints: Hints,
    keeper: Keeper,
    /// As last read, the interface having had this index; the kernel tells of each change.
    addresses: Option<(Option<u32>, Addresses)>,
    /// As last read; they change rarely, and reading them takes long where there are many routes.
    routes: Option<Routes>,
    /// Whether the interface of kube-proxy's IPVS mode is there, as last read.
    kube_ipvs: Option<bool>,
    ipvs: Ipvs,
    /// `node.externalInterface`.
    external: Option<String>,
    /// What is to balance, where virtual services are wanted.
    wanted: Option<BalancerKind>,
    /// What the virtual services were read from last.
    balancer: BalancerKind,
}

/// Why the kernel could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// No netlink socket.
    #[error("cannot open a netlink socket")]
    Connect(#[source] io::Error),
    /// The interface could not be asked for.
    #[error("cannot look up interface {interface}")]
    Lookup {
        /// Its name.
        interface: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// `vips.interface` is not there.
    #[error("there is no interface {interface}")]
    NoInterface {
        /// Its name.
        interface: String,
    },
    /// `vips.interface` is down.
    #[error("interface {interface} is down")]
    Down {
        /// Its name.
        interface: String,
    },
    /// The addresses could not be read as a whole.
    #[error("cannot read the node's addresses")]
    Dump(#[source] io::Error),
    /// The routes could not be read.
    #[error("cannot read the node's routes")]
    Routes(#[source] io::Error),
    /// An IPv6 address where IPv6 is off.
    #[error("cannot add {address}: IPv6 is disabled on {interface} (sysctl net.ipv6.conf.{interface}.disable_ipv6)")]
    Ipv6Disabled {
        /// The address.
        address: IpAddr,
        /// The interface.
        interface: String,
    },
    /// An address was not added.
    #[error("cannot add {address} to {interface}")]
    Add {
        /// The address.
        address: IpAddr,
        /// The interface.
        interface: String,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
    /// An address was not removed.
    #[error("cannot remove {address} from {interface}")]
    Remove {
        /// The address.
        address: IpAddr,
        /// The interface.
        interface: String,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
    /// IPVS could not be read.
    #[error("cannot read the virtual services")]
    Balancer(#[source] ::ipvs::client::Error),
    /// A virtual service was not changed.
    #[error(transparent)]
    Ipvs(#[from] IpvsError),
    /// A virtual service of nft was not read or changed.
    #[error(transparent)]
    Dnat(#[from] DnatError),
    /// A kernel setting was not changed.
    #[error("cannot set {setting} to {}", setting.wanted())]
    Sysctl {
        /// Which one.
        setting: Sysctl,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The settings of external interfaces were not changed.
    #[error("cannot set arp_ignore, arp_announce or rp_filter below /proc/sys/net/ipv4/conf")]
    Interfaces(#[source] io::Error),
    /// The connection table could not be read, or an entry not be deleted.
    #[error("cannot forget connections from before virtual services served (is ctnetlink there, kernel module nf_conntrack_netlink?)")]
    Connections(#[source] io::Error),
    /// The record could not be read or changed.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A step about something else than addresses and the record.
    #[error("not a step for the kernel")]
    NotForKernel,
}

impl Kernel {
    /// Connects, and reads the ownership record. Needs a Tokio runtime with I/O and time, and the right CAP_NET_ADMIN.
    ///
    /// # Errors
    /// There is no netlink, `nft` cannot be used, or the instance's name cannot name a table.
    pub async fn new(interface: &str, instance: &str) -> Result<Self, KernelError> {
        let handle = address::connect().map_err(KernelError::Connect)?;
        let hints = Hints::subscribe(interface, instance).map_err(KernelError::Connect)?;
        let (table, former) = Table::open(instance, interface).await?;
        let dnat = Dnat::open(instance, table.known().is_handing_over()).await?;
        // What the chains of nft balance is recorded alike, and proves nothing about IPVS.
        let ipvs = Ipvs::new(table.known(), dnat.known().exists);
        Ok(Self {
            interface: interface.to_owned(),
            former,
            handle,
            hints,
            keeper: Keeper::new(table, dnat).await,
            addresses: None,
            routes: None,
            kube_ipvs: None,
            ipvs,
            external: None,
            wanted: None,
            balancer: BalancerKind::Ipvs,
        })
    }

    /// What is to balance, where virtual services are wanted: they are read only then, and while the record has some.
    pub const fn balance(&mut self, wanted: Option<BalancerKind>) {
        self.wanted = wanted;
    }

    /// What the virtual services were read from last: what the record tells of, where nothing is wanted.
    #[must_use]
    pub const fn balancer(&self) -> BalancerKind {
        self.balancer
    }

    /// What of the configuration matters to how the kernel is read and told.
    pub fn adapt(&mut self, balancing: Option<&DesiredBalancing>) {
        if let Some(balancing) = balancing {
            self.external.clone_from(&balancing.external_interface);
            self.ipvs.deliver_to(balancing.gue_port);
        }
    }

    /// Reads the addresses, where the kernel hints at a change of them, and IPVS, where we balance or have something there, and tells what is known of the
    /// record. Where that may no longer be so, it begins to read it again, and [`Self::changed`] tells of it: a hanging `nft` holds up nothing else.
    ///
    /// # Errors
    /// The addresses could not be read. An interface that is not there is no error but a state, with no addresses.
    pub async fn observe(&mut self) -> Result<KernelState, KernelError> {
        self.keeper.look().await;
        self.hints.follow(self.keeper.others());
        let told = self.hints.drain(self.keeper.own_ports());
        if told.record {
            self.keeper.suspect();
        }
        if told.others {
            self.keeper.suspect_others();
        }
        if told.kernel {
            self.addresses = None;
        }
        self.keeper.forget_ports();
        let found = self.find_interface().await;
        let interface = found.map_err(|source| KernelError::Lookup { interface: self.interface.clone(), source })?;
        self.hints.index = interface.map(|interface| interface.index);
        let known = self.addresses.take().filter(|(index, _)| *index == self.hints.index).map(|(_, addresses)| addresses);
        let addresses = match known {
            Some(addresses) => addresses,
            None => {
                let former = self.former_interfaces().await?.into_values().collect();
                let mut read = address::dump(&self.handle, self.hints.index, &former).await.map_err(KernelError::Dump)?;
                read.settle_former(self.keeper.known());
                read
            }
        };
        self.addresses = Some((self.hints.index, addresses.clone()));
        let (shared, alike) = self.may_be_of_instances(&addresses);
        self.keeper.catch_up(&alike);
        let routes = match self.routes.take() {
            Some(routes) => routes,
            None => routes::routes(&self.handle).await.map_err(KernelError::Routes)?,
        };
        let Routes { gateways, mut links, default_interfaces } = self.routes.insert(routes).clone();
        // What this node itself is needs no frame, nor a route of the main table.
        links.direct.extend(addresses.here.keys().chain(&addresses.elsewhere).copied().map(bgp::Prefix::host));
        let record = self.keeper.known();
        let services = !record.confirmed_services.is_empty() || !record.pending_services.is_empty() || !record.retired.is_empty();
        let recorded = services || record.has_daemons();
        let needed = self.wanted.is_some() || recorded || self.ipvs.has_made();
        if needed && self.kube_ipvs.is_none() {
            let found = address::find_interface(&self.handle, KUBE_IPVS).await;
            self.kube_ipvs = Some(found.map_err(|source| KernelError::Lookup { interface: KUBE_IPVS.to_owned(), source })?.is_some());
        }
        let balancer = self.observe_services(needed).await?;
        let taken = if needed { self.keeper.taken() } else { BTreeSet::new() };
        let orphaned = self.keeper.orphaned(&addresses.here);
        Ok(KernelState {
            balancer: Balancer { taken, ..balancer },
            kube_proxy_in_ipvs_mode: needed && self.kube_ipvs == Some(true),
            external: if needed { self.read_external(&default_interfaces) } else { BTreeMap::new() },
            sysctls: if needed { sysctl::read(self.balancer) } else { BTreeMap::new() },
            interface: match interface {
                // They are delivered where they are.
                _ if !addresses.former.is_empty() => InterfaceState::Up,
                None => InterfaceState::Missing,
                Some(interface) if interface.up => InterfaceState::Up,
                Some(_) => InterfaceState::Down,
            },
            addresses: addresses.here,
            elsewhere: addresses.elsewhere,
            unusable: addresses.unusable,
            address_protocols: addresses.protocols,
            claimed_by_others: self.keeper.claimed(&shared, &alike),
            orphaned,
            gateways,
            links,
            record: self.keeper.known().clone(),
        })
    }

    /// What balances, and what is left of ours where something else did before. Where nothing is to balance any more, what did is what we still have there.
    async fn observe_services(&mut self, needed: bool) -> Result<Balancer, KernelError> {
        let (record, translated) = (self.keeper.known(), self.keeper.translated());
        let of_nft = || if translated.exists { BalancerKind::Nftables } else { BalancerKind::Ipvs };
        self.balancer = self.wanted.unwrap_or_else(of_nft);
        if self.balancer == BalancerKind::Ipvs {
            self.ipvs.adopt(record);
            if record.is_handing_over() {
                // What they have is counted.
                self.ipvs.distrust();
            }
            let balancer = self.ipvs.observe(needed, record).await.map_err(KernelError::Balancer)?;
            return Ok(Balancer { former: translated.services.clone(), ..balancer });
        }
        let services = translated.services.clone();
        // What is left there is counted by its connections.
        self.ipvs.distrust();
        self.ipvs.take_for_theirs();
        let of_ipvs = self.ipvs.observe(is_ipvs_loaded(), record).await.map_err(KernelError::Balancer)?;
        let Balancer { services: mut former, foreign, foreign_marks, daemons, started_daemons, foreign_daemons, retired, .. } = of_ipvs;
        former.retain(|key, _| record.has_service(*key) && !foreign.contains(key));
        let availability = IpvsAvailability::NotNeeded;
        // Nobody else writes into the tables that have our name.
        let made = services.keys().copied().collect();
        let of_nft = Balancer { availability, services, made, former, ..Balancer::default() };
        Ok(Balancer { foreign_marks, daemons, started_daemons, foreign_daemons, retired, ..of_nft })
    }

    /// Makes the next [`Kernel::observe`] read even what nothing hints at a change of: the addresses, the record, those of other instances, and the routes.
    pub fn distrust(&mut self) {
        self.keeper.audit();
        self.keeper.suspect_others();
        self.addresses = None;
        (self.routes, self.kube_ipvs) = (None, None);
        self.ipvs.distrust();
    }

    /// Reads everything, and waits for it.
    ///
    /// # Errors
    /// As of [`Kernel::observe`].
    pub async fn observe_fresh(&mut self) -> Result<KernelState, KernelError> {
        self.keeper.finished().await;
        self.distrust();
        self.observe().await?;
        self.keeper.finished().await;
        self.observe().await
    }

    fn read_external(&self, default_interfaces: &BTreeSet<String>) -> BTreeMap<String, BTreeMap<InterfaceSetting, u8>> {
        match &self.external {
            Some(external) => read_interfaces([external]),
            None => read_interfaces(default_interfaces),
        }
    }

    /// The addresses that instances on this node may have placed: those of which only a record can tell, or that ours has, and those that look like ours.
    fn may_be_of_instances(&self, addresses: &Addresses) -> (BTreeSet<IpAddr>, BTreeSet<IpAddr>) {
        let record = self.keeper.known();
        let may_be = |seen: &ObservedAddress| seen.protocol == Some(ADDRESS_PROTOCOL) || (seen.protocol.is_none() && !addresses.protocols);
        let placed = addresses.here.iter().filter(|(_, seen)| may_be(seen));
        let (alike, shared): (Vec<_>, Vec<_>) = placed.partition(|(address, seen)| {
            seen.protocol.is_some() && !record.confirmed.contains(address) && !record.pending.contains(address)
        });
        let keys = |placed: Vec<(&IpAddr, _)>| placed.into_iter().map(|(address, _)| *address).collect();
        (keys(shared), keys(alike))
    }

    /// Whether a step is carried out beside the loop: about the record, about virtual services where nft balances, or about the connection table.
    #[must_use]
    pub const fn takes_nft(&self, step: &Step) -> bool {
        match step {
            Step::AddVirtualService(..) | Step::ChangeVirtualService(..) | Step::RemoveVirtualService(_) => {
                matches!(self.balancer, BalancerKind::Nftables)
            }
            // Reading a large connection table takes a while, too.
            _ => matches!(step.key(), StepKey::Record | StepKey::Connections),
        }
    }

    /// Begins steps that [`Self::takes_nft`], of one plan. False, with nothing begun, while such steps or a reading are under way. [`Self::changed`]
    /// resolves when they are done, and [`Self::outcomes`] tells what became of them.
    pub fn begin(&mut self, steps: Vec<Step>) -> bool {
        self.keeper.change(steps)
    }

    /// Whether the record is being changed or read.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.keeper.is_busy()
    }

    /// What became of steps that were begun, since the last call.
    pub fn outcomes(&mut self) -> Vec<Outcome> {
        self.keeper.outcomes()
    }

    /// Carries out one step.
    ///
    /// # Errors
    /// The step was not carried out, or is not one about addresses or the record.
    pub async fn execute(&mut self, step: &Step) -> Result<(), KernelError> {
        self.execute_all(std::slice::from_ref(step)).await.pop().unwrap_or(Ok(()))
    }

    /// Carries out steps of one plan, which depend on nothing of each other, and gives the result of each in their order. Many addresses are under
    /// way at a time.
    pub async fn execute_all(&mut self, steps: &[Step]) -> Vec<Result<(), KernelError>> {
        let mut results = Vec::with_capacity(steps.len());
        let kind = |step: &Step| if self.takes_nft(step) { Kind::Record } else { kind(step) };
        let chunks: Vec<&[Step]> = steps.chunk_by(|one, next| kind(one) == kind(next) && kind(one) != Kind::Sysctl).collect();
        let kinds: Vec<Option<Kind>> = chunks.iter().map(|chunk| chunk.first().map(kind)).collect();
        for (chunk, kind) in chunks.into_iter().zip(kinds) {
            match (chunk, kind) {
                ([Step::SetSysctl(setting)], _) => {
                    results.push(sysctl::set(*setting).map_err(|source| KernelError::Sysctl { setting: *setting, source }));
                }
                ([Step::SetInterfaces(settings)], _) => {
                    results.push(sysctl::set_interfaces(settings).map_err(KernelError::Interfaces));
                }
                ([Step::StartDaemon(daemon)], _) => {
                    results.push(self.ipvs.change_daemon(Command::StartDaemon(daemon.clone())).await.map_err(Into::into));
                }
                ([Step::StopDaemon(role)], _) => {
                    results.push(self.ipvs.change_daemon(Command::StopDaemon(*role)).await.map_err(Into::into));
                }
                ([Step::SetTimeouts(timeouts)], _) => results.push(self.ipvs.set_timeouts(*timeouts).await.map_err(Into::into)),
                (_, Some(Kind::Record)) => results.append(&mut self.execute_by_nft(chunk).await),
                (_, Some(Kind::VirtualService)) => {
                    let outcomes = self.ipvs.execute(chunk, &self.keeper.known().marks).await;
                    results.extend(outcomes.into_iter().map(|outcome| outcome.map_err(Into::into)));
                }
                _ => results.append(&mut self.execute_on_addresses(chunk).await),
            }
        }
        results
    }

    /// Since when nft cannot be read, so that what is known of it is from before.
    #[must_use]
    pub const fn unreadable_since(&self) -> Option<Instant> {
        self.keeper.unreadable_since()
    }

    /// Resolves when the kernel hints that something changed since the last [`Kernel::observe`], once for a burst, or a virtual service is missed. Changes of the record by this
    /// instance are no news. Cancel safe.
    pub async fn changed(&mut self) {
        if self.keeper.is_busy() {
            tokio::select! {
                () = self.keeper.finished() => return,
                () = self.ipvs.lost() => return,
                () = self.hints.told(None) => {}
            }
        } else {
            tokio::select! {
                () = self.ipvs.lost() => return,
                () = self.hints.told(self.keeper.own_ports()) => {}
            }
        }
        tokio::time::sleep(SETTLE).await;
        self.hints.collect();
    }

    async fn execute_by_nft(&mut self, steps: &[Step]) -> Vec<Result<(), KernelError>> {
        self.keeper.finished().await;
        self.begin(steps.to_vec());
        self.keeper.finished().await;
        self.outcomes().into_iter().map(|(_, outcome)| outcome).collect()
    }

    async fn execute_on_addresses(&mut self, steps: &[Step]) -> Vec<Result<(), KernelError>> {
        // The kernel tells of an IPv6 address later than it acknowledges the request.
        let unmoved = self.addresses.take().map(|(_, addresses)| addresses.former).unwrap_or_default();
        let found = self.find_interface().await.and_then(|found| found.ok_or_else(|| io::Error::from(Errno::ENODEV)));
        let handle = &self.handle;
        let outcomes: Vec<io::Result<()>> = match found {
            Ok(interface) => {
                let requests: Vec<_> = steps.iter().map(|step| request(handle, interface, &unmoved, step)).collect();
                stream::iter(requests).buffered(WINDOW).collect().await
            }
            Err(error) => steps.iter().map(|_| Err(same(&error))).collect(),
        };
        steps.iter().zip(outcomes).map(|(step, outcome)| judge(step, &self.interface, outcome)).collect()
    }

    /// By name, each time: it may have been made again or renamed. A connection that broke is opened again here, where every use of it begins.
    async fn find_interface(&mut self) -> io::Result<Option<Interface>> {
        match address::find_interface(&self.handle, &self.interface).await {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                self.handle = address::connect()?;
                address::find_interface(&self.handle, &self.interface).await
            }
            found => found,
        }
    }
}

/// By what a step is carried out.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Kind {
    Address,
    VirtualService,
    Sysctl,
    Record,
}

const fn kind(step: &Step) -> Kind {
    match step {
        Step::AddAddress(_) | Step::RemoveAddress(_) => Kind::Address,
        Step::AddVirtualService(..)
        | Step::ChangeVirtualService(..)
        | Step::RemoveVirtualService(_)
        | Step::RemoveFormer(_)
        | Step::RemoveRetired(_) => Kind::VirtualService,
        Step::SetSysctl(_) | Step::SetInterfaces(_) | Step::SetTimeouts(_) | Step::StartDaemon(_) | Step::StopDaemon(_) => Kind::Sysctl,
        _ => Kind::Record,
    }
}

/// Whether the kernel has IPVS now: asking it would make the kernel load it.
pub(crate) fn is_ipvs_loaded() -> bool {
    Path::new("/proc/thread-self/net/ip_vs").exists()
}

/// Whether the kernel has IPVS, or loads it.
///
/// # Errors
/// What is missing.
pub async fn probe_ipvs() -> Result<(), ::ipvs::client::Error> {
    ::ipvs::client::Client::connect().await.map(drop)
}

/// One that has not moved yet goes from where it is.
async fn request(handle: &Handle, interface: Interface, unmoved: &[(u32, IpAddr, ObservedAddress)], step: &Step) -> io::Result<()> {
    match step {
        Step::AddAddress(address) => address::add(handle, interface.index, *address).await,
        Step::RemoveAddress(address) => {
            for (index, ..) in unmoved.iter().filter(|(_, found, _)| found == address) {
                address::remove(handle, *index, *address).await?;
            }
            address::remove(handle, interface.index, *address).await
        }
        _ => Ok(()),
    }
}

/// What the kernel's answer means for the step.
fn judge(step: &Step, interface: &str, outcome: io::Result<()>) -> Result<(), KernelError> {
    let Err(source) = outcome else { return Ok(()) };
    let errno = source.raw_os_error().map(Errno::from_raw);
    let interface = interface.to_owned();
    match (step, errno) {
        (Step::AddAddress(_), Some(Errno::EEXIST)) => Ok(()),
        (Step::AddAddress(_), Some(Errno::ENODEV)) => Err(KernelError::NoInterface { interface }),
        (Step::AddAddress(address @ IpAddr::V6(_)), Some(Errno::EACCES)) => Err(KernelError::Ipv6Disabled { address: *address, interface }),
        (Step::AddAddress(address), _) => Err(KernelError::Add { address: *address, interface, source }),
        // ENXIO: the interface has no IPv6 at all.
        (Step::RemoveAddress(_), Some(Errno::EADDRNOTAVAIL | Errno::ENODEV | Errno::ENXIO)) => Ok(()),
        (Step::RemoveAddress(address), _) => Err(KernelError::Remove { address: *address, interface, source }),
        _ => Err(KernelError::NotForKernel),
    }
}

/// An error that befell several steps, once more.
fn same(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| io::Error::new(error.kind(), error.to_string()), io::Error::from_raw_os_error)
}
