// SPDX-License-Identifier: Apache-2.0
//! What a plan is made of: one change to the node each, and what it is about.
//!
//! Output: [`Step`], its [`StepKey`], and the [`Entries`] of the record. Invariant: a step says all that whoever carries it out has to know.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipvs::{SyncDaemon, SyncRole, Timeouts};

use super::VirtualServiceChange;
use crate::desired::{DesiredBgp, DesiredVrrp, Filter, RouteSet, Rules, ServiceKey};
use crate::observed::RetiredRange;
use crate::sysctl::{InterfaceSetting, Sysctl};

/// One change to the node. Steps that carry a whole set can be repeated without effect.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// Make this the whole set that the speaker advertises.
    Advertise(Arc<RouteSet>),
    /// Write into the record that these are about to be placed.
    RecordPending(Entries),
    /// Place one address on `vips.interface`.
    AddAddress(IpAddr),
    /// Write into the record that these are placed and ours.
    RecordConfirmed(Entries),
    /// Remove one address, which is ours, from `vips.interface`.
    RemoveAddress(IpAddr),
    /// Take these, which are gone or not ours, out of the record.
    RecordRemoved(Entries),
    /// Let nothing more come to the ports of these, which are to go while their VIPs stay: without them, packets would reach this node itself.
    ClosePorts(BTreeSet<ServiceKey>),
    /// Let packets come to the ports of these again, which serve.
    OpenPorts(BTreeSet<ServiceKey>),
    /// Let ports lead to other virtual services of ranges of ports, all at once, and those that none of them has any more to nobody.
    MoveRanges(RangeMove),
    /// Make these the filters of their virtual services.
    WriteFilters(BTreeMap<ServiceKey, Filter>),
    /// Make these the rules of our chains; `None` for no chains.
    WriteRules(Option<Rules>),
    /// Give a kernel setting the value that it must have.
    SetSysctl(Sysctl),
    /// Give these settings of interfaces the values that they must have.
    SetInterfaces(BTreeMap<String, BTreeSet<InterfaceSetting>>),
    /// Set how long IPVS remembers idle connections, in seconds; 0 leaves one as it is.
    SetTimeouts(Timeouts),
    /// Start a daemon of connection synchronisation.
    StartDaemon(SyncDaemon),
    /// Stop one that is ours.
    StopDaemon(SyncRole),
    /// Make a virtual service, with its real servers.
    AddVirtualService(ServiceKey, VirtualServiceChange),
    /// Change one that is ours, in place.
    ChangeVirtualService(ServiceKey, VirtualServiceChange),
    /// Remove one that is ours.
    RemoveVirtualService(ServiceKey),
    /// Remove one that is ours from the dataplane that balanced before.
    RemoveFormer(ServiceKey),
    /// Remove the virtual service of a range of ports that has no ports any more.
    RemoveRetired(RetiredRange),
    /// Forget what the connection table has of these that none of their real servers, which are these, answers: packets of such connections would go on to
    /// nobody.
    ForgetConnections(BTreeMap<ServiceKey, BTreeSet<SocketAddr>>),
    /// Make this the speaker's whole configuration of neighbours; the first one starts the sessions. Where there is a set, it is the whole set that peers are
    /// told from then on, and goes into force with the configuration.
    ConfigureSpeaker(Arc<DesiredBgp>, Option<Arc<RouteSet>>),
    /// Close all sessions with Cease, Administrative Shutdown.
    StopSpeaker,
    /// Close all sessions so that peers which agreed on graceful restart keep our routes.
    ReleaseSpeaker,
    /// Make these all virtual routers of this node.
    ConfigureVirtualRouters(Arc<DesiredVrrp>),
    /// Let the virtual routers resign, and have none any more.
    StopVirtualRouters,
    /// Resign in all virtual routers; where nobody follows, their addresses stay for the next process.
    SuspendVirtualRouters,
    /// Remove the instance's nft table, which is empty.
    DropRecord,
}

impl Step {
    /// The ranges of ports whose virtual services go on as others by it.
    pub(crate) fn moved(&self) -> impl Iterator<Item = (&ServiceKey, &ServiceKey)> {
        let change = if let Self::MoveRanges(change) = self { Some(change) } else { None };
        change.into_iter().flat_map(|change| &change.moved)
    }

    /// What its failures are counted under.
    #[must_use]
    pub const fn key(&self) -> StepKey {
        match self {
            Self::Advertise(_) => StepKey::Advertise,
            Self::RecordPending(_)
            | Self::RecordConfirmed(_)
            | Self::RecordRemoved(_)
            | Self::DropRecord
            | Self::ClosePorts(_)
            | Self::OpenPorts(_)
            | Self::MoveRanges(_)
            | Self::WriteFilters(_)
            | Self::WriteRules(_) => StepKey::Record,
            Self::AddAddress(address) | Self::RemoveAddress(address) => StepKey::Address(*address),
            Self::AddVirtualService(service, _)
            | Self::ChangeVirtualService(service, _)
            | Self::RemoveVirtualService(service)
            | Self::RemoveFormer(service) => StepKey::VirtualService(*service),
            Self::RemoveRetired(retired) => StepKey::Retired(*retired),
            Self::ForgetConnections(_) => StepKey::Connections,
            Self::SetSysctl(setting) => StepKey::Sysctl(*setting),
            Self::SetInterfaces(_) => StepKey::Interfaces,
            Self::SetTimeouts(_) => StepKey::Timeouts,
            Self::StartDaemon(SyncDaemon { role, .. }) | Self::StopDaemon(role) => StepKey::Daemon(*role),
            Self::ConfigureSpeaker(..) | Self::StopSpeaker | Self::ReleaseSpeaker => StepKey::Speaker,
            Self::ConfigureVirtualRouters(_) | Self::StopVirtualRouters | Self::SuspendVirtualRouters => StepKey::VirtualRouters,
        }
    }
}

/// Which ranges of ports take the places of others with which they have ports in common. Whoever has some ports before and after is served all the while.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RangeMove {
    /// Ranges whose virtual services go on with all their connections, and which range each is from then on.
    pub moved: BTreeMap<ServiceKey, ServiceKey>,
    /// New ones beside these, with what makes each of them where nft balances. In IPVS they are there already.
    pub made: BTreeMap<ServiceKey, VirtualServiceChange>,
    /// Ranges that are no more, and what is left of the virtual service of each, with the connections that it has; nothing where nft balances, and connections
    /// go on by themselves.
    pub retired: BTreeMap<ServiceKey, Option<RetiredRange>>,
    /// The filters of those that have ports then.
    pub filters: BTreeMap<ServiceKey, Filter>,
}

impl RangeMove {
    /// The ranges that were there before.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = ServiceKey> {
        self.moved.keys().chain(self.retired.keys()).copied()
    }

    /// Those that are there after it, with their marks as the record has them.
    pub(crate) fn arriving(&self, marks: &BTreeMap<ServiceKey, u32>) -> impl Iterator<Item = (ServiceKey, Option<u32>)> {
        let moved = self.moved.iter().map(|(from, to)| (*to, marks.get(from).copied()));
        moved.chain(self.made.keys().map(|made| (*made, marks.get(made).copied())))
    }
}

/// What the record lists.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Entries {
    /// Addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// Virtual services.
    pub services: BTreeSet<ServiceKey>,
    /// Daemons of connection synchronisation.
    pub daemons: BTreeSet<SyncRole>,
    /// Virtual services of ours in IPVS, where tables of nft are there too.
    pub in_ipvs: BTreeSet<ServiceKey>,
    /// Of the virtual services, the ranges of ports, and the firewall mark of each.
    pub marks: BTreeMap<ServiceKey, u32>,
    /// Virtual services of ranges of ports that have no ports any more.
    pub retired: BTreeSet<RetiredRange>,
}

impl From<BTreeSet<IpAddr>> for Entries {
    fn from(addresses: BTreeSet<IpAddr>) -> Self {
        Self { addresses, ..Self::default() }
    }
}

impl Entries {
    pub(super) fn is_empty(&self) -> bool {
        self.addresses.is_empty()
            && self.services.is_empty()
            && self.daemons.is_empty()
            && self.in_ipvs.is_empty()
            && self.retired.is_empty()
    }
}

/// What a step is about, for counting failures and spacing retries.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum StepKey {
    /// The advertised set.
    Advertise,
    /// The record.
    Record,
    /// One address.
    Address(IpAddr),
    /// One virtual service.
    VirtualService(ServiceKey),
    /// One that has no ports any more.
    Retired(RetiredRange),
    /// The connection table.
    Connections,
    /// One kernel setting.
    Sysctl(Sysctl),
    /// The settings of external interfaces.
    Interfaces,
    /// The timeouts of IPVS.
    Timeouts,
    /// A daemon of connection synchronisation.
    Daemon(SyncRole),
    /// The neighbours.
    Speaker,
    /// The virtual routers.
    VirtualRouters,
}
