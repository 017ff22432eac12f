// SPDX-License-Identifier: Apache-2.0
//! What is known of a node: values, as they were read. What could not be read holds the words of the error.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

use ipvs::{ServiceAddress, SyncDaemon};

use crate::actuator::Abandoned;
use crate::sysctl::{InterfaceSetting, Sysctl};

/// A node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Node {
    /// Release of the kernel.
    pub kernel: String,
    /// Every setting that balancing needs.
    pub sysctls: BTreeMap<Sysctl, Setting>,
    /// Settings of the external interfaces, as they take effect.
    pub external: BTreeMap<(String, InterfaceSetting), Setting>,
    /// `net.ipv6.conf.all.forwarding`; `None` where there is no IPv6.
    pub ipv6_forwarding: Option<String>,
    /// Whether there is IPVS.
    pub ipvs: IpvsModule,
    /// Modules of schedulers that are neither loaded nor on the disk; empty where that cannot be seen.
    pub missing_schedulers: BTreeSet<String>,
    /// The virtual services; none while IPVS is not loaded.
    pub virtual_services: Result<Vec<ServiceAddress>, String>,
    /// The daemons of connection synchronisation, whoever started them; none while IPVS is not loaded.
    pub sync_daemons: Result<Vec<SyncDaemon>, String>,
    /// The version of `nft`, which could list the tables.
    pub nft: Result<String, String>,
    /// Rights of this process.
    pub capabilities: Result<BTreeSet<Capability>, String>,
    /// Whether the kernel signs TCP segments by MD5 (RFC 2385).
    pub tcp_md5: Result<bool, String>,
    /// Whether it has TCP-AO (RFC 5925).
    pub tcp_ao: Result<bool, String>,
    /// The interfaces of this network namespace, in the kernel's order.
    pub interfaces: Result<Vec<Interface>, String>,
    /// What instances have left that do not run.
    pub abandoned: Result<Vec<Abandoned>, String>,
    /// Key files of the configuration that cannot be read, and why.
    pub unreadable_keys: BTreeMap<PathBuf, String>,
}

/// A setting below `/proc/sys`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Setting {
    /// What it is; `None` where the kernel has none of that name now.
    pub value: Option<String>,
    /// Whether this process could set it.
    pub writable: bool,
}

/// Where the kernel's IPVS is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IpvsModule {
    /// In the kernel.
    Loaded,
    /// On the disk: the kernel loads it when it is first used.
    Loadable,
    /// Neither.
    Missing,
    /// Not loaded, and the disk with the kernel's modules cannot be seen from here.
    Unseen,
}

/// An interface.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Whether an administrator has set it up.
    pub up: bool,
    /// Its addresses, in the kernel's order.
    pub addresses: Vec<InterfaceAddress>,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Length of its prefix.
    pub prefix_length: u8,
    /// Who set it (`IFA_PROTO`).
    pub protocol: Option<u8>,
}

/// The rights that some part of the daemon needs (capabilities(7)).
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Capability {
    /// `CAP_NET_BIND_SERVICE`
    NetBindService,
    /// `CAP_NET_ADMIN`
    NetAdmin,
    /// `CAP_NET_RAW`
    NetRaw,
}

impl Capability {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::NetAdmin, Self::NetRaw, Self::NetBindService];

    /// As capabilities(7) has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NetBindService => "CAP_NET_BIND_SERVICE",
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
        }
    }

    /// Its bit in the kernel's sets.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::NetBindService => 10,
            Self::NetAdmin => 12,
            Self::NetRaw => 13,
        }
    }
}
