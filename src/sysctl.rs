// SPDX-License-Identifier: Apache-2.0
//! The kernel settings that balancing needs, in one place: what each must be, and why.
//!
//! All of them belong to the network namespace, and so to the node where we run in its own.

use std::fmt;

use crate::desired::BalancerKind;

/// A setting below `/proc/sys`. Prints as `sysctl` names it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Sysctl {
    /// `net.ipv4.ip_forward`
    Ipv4Forward,
    /// `net.ipv4.vs.conntrack`
    VsConntrack,
    /// `net.ipv4.vs.expire_nodest_conn`
    VsExpireNodestConn,
    /// `net.ipv4.vs.expire_quiescent_template`
    VsExpireQuiescentTemplate,
    /// `net.ipv4.vs.snat_reroute`
    VsSnatReroute,
    /// `net.ipv4.vs.sloppy_tcp`
    VsSloppyTcp,
    /// `net.ipv4.vs.schedule_icmp`
    VsScheduleIcmp,
    /// `net.ipv4.vs.sync_threshold`, of which the second number is the period
    VsSyncThreshold,
    /// `net.ipv4.vs.sync_refresh_period`
    VsSyncRefreshPeriod,
    /// `net.ipv4.vs.sync_retries`
    VsSyncRetries,
    /// `net.netfilter.nf_conntrack_tcp_be_liberal`
    ConntrackTcpBeLiberal,
}

impl Sysctl {
    /// Those that every node needs which balances.
    pub const ALL: [Self; 5] =
        [Self::Ipv4Forward, Self::VsConntrack, Self::VsExpireNodestConn, Self::VsExpireQuiescentTemplate, Self::VsSnatReroute];

    /// Those that it needs besides where real servers answer clients themselves (dr, tun), and a hash of the client chooses them.
    pub const FOR_MOVED_FLOWS: [Self; 2] = [Self::VsSloppyTcp, Self::VsScheduleIcmp];

    /// Those that it needs besides where routers tell each other of connections.
    pub const FOR_CONNECTION_SYNC: [Self; 4] =
        [Self::VsSyncThreshold, Self::VsSyncRefreshPeriod, Self::VsSyncRetries, Self::ConntrackTcpBeLiberal];

    /// All of them.
    pub fn each() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().chain(Self::FOR_MOVED_FLOWS).chain(Self::FOR_CONNECTION_SYNC)
    }

    /// Below `/proc/sys`.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Ipv4Forward => "net/ipv4/ip_forward",
            Self::VsConntrack => "net/ipv4/vs/conntrack",
            Self::VsExpireNodestConn => "net/ipv4/vs/expire_nodest_conn",
            Self::VsExpireQuiescentTemplate => "net/ipv4/vs/expire_quiescent_template",
            Self::VsSnatReroute => "net/ipv4/vs/snat_reroute",
            Self::VsSloppyTcp => "net/ipv4/vs/sloppy_tcp",
            Self::VsScheduleIcmp => "net/ipv4/vs/schedule_icmp",
            Self::VsSyncThreshold => "net/ipv4/vs/sync_threshold",
            Self::VsSyncRefreshPeriod => "net/ipv4/vs/sync_refresh_period",
            Self::VsSyncRetries => "net/ipv4/vs/sync_retries",
            Self::ConntrackTcpBeLiberal => "net/netfilter/nf_conntrack_tcp_be_liberal",
        }
    }

    /// What it must be; numbers are separated by one tab, as the kernel shows them.
    #[must_use]
    pub const fn wanted(self) -> &'static str {
        match self {
            Self::VsSyncThreshold => "0\t0",
            Self::VsSyncRefreshPeriod => "10",
            _ => "1",
        }
    }

    /// Why.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Ipv4Forward => "answers of real servers pass through this node",
            Self::VsConntrack => "nft sees, and masquerades, what IPVS translates",
            Self::VsExpireNodestConn => "connections to a real server that is gone end at once instead of hanging",
            Self::VsExpireQuiescentTemplate => "a client that is bound to a quiesced real server gets another one",
            Self::VsSnatReroute => "answers leave by the way that leads to the client from the VIP",
            Self::VsSloppyTcp => {
                "with dr, tun and gue, a connection that the fabric moves to this node in its middle goes on to the real server that it had"
            }
            Self::VsScheduleIcmp => {
                "with dr, tun and gue, a message that a packet was too large reaches the real server that sent it, whatever router the fabric gives it to"
            }
            Self::VsSyncThreshold => "other routers are told of a connection once it is established, not after some packets",
            Self::VsSyncRefreshPeriod => "other routers are told again of a connection every so many seconds, not every so many packets",
            Self::VsSyncRetries => "other routers are told once more, should a message be lost",
            Self::ConntrackTcpBeLiberal => {
                "a connection that comes back to this node has gone on meanwhile, beyond what nft's connection table saw of it"
            }
        }
    }

    /// Whether this one matters where that balances.
    #[must_use]
    pub const fn is_for(self, balancer: BalancerKind) -> bool {
        match self {
            Self::Ipv4Forward => true,
            _ => matches!(balancer, BalancerKind::Ipvs),
        }
    }

    /// Whether no VIP is served without it.
    #[must_use]
    pub const fn is_required(self) -> bool {
        matches!(self, Self::Ipv4Forward | Self::VsConntrack)
    }
}

/// A setting of an interface where routers and clients are, below `/proc/sys/net/ipv4/conf`. What counts is the greater of this and that of `all`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum InterfaceSetting {
    /// `arp_ignore`
    ArpIgnore,
    /// `arp_announce`
    ArpAnnounce,
    /// `rp_filter`
    RpFilter,
}

impl InterfaceSetting {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ArpIgnore, Self::ArpAnnounce, Self::RpFilter];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ArpIgnore => "arp_ignore",
            Self::ArpAnnounce => "arp_announce",
            Self::RpFilter => "rp_filter",
        }
    }

    /// What it is set to where it is not good.
    #[must_use]
    pub const fn wanted(self) -> u8 {
        match self {
            Self::ArpIgnore => 1,
            Self::ArpAnnounce | Self::RpFilter => 2,
        }
    }

    /// Whether it can stay so. What an administrator has switched off is not switched on.
    #[must_use]
    pub const fn is_good(self, value: u8) -> bool {
        match self {
            Self::ArpIgnore => value != 0,
            Self::ArpAnnounce => value == 2,
            Self::RpFilter => value != 1,
        }
    }

    /// Why.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::ArpIgnore => "no host of the link takes this node for the only one that has a VIP",
            Self::ArpAnnounce => "a VIP is not told to the link in a question for somebody else",
            Self::RpFilter => "packets of clients come by one router and answers leave by another",
        }
    }
}

impl fmt::Display for Sysctl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path().replace('/', "."))
    }
}
