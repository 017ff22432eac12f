// SPDX-License-Identifier: Apache-2.0
//! What holds for the whole table of a network namespace.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// How long an idle connection is remembered, in seconds. When they are set, 0 leaves a value as it is.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Timeouts {
    /// Established TCP; 900 unless it was set.
    pub tcp: u32,
    /// TCP after a FIN; 120 unless it was set.
    pub tcp_fin: u32,
    /// UDP; 300 unless it was set.
    pub udp: u32,
}

impl Timeouts {
    /// Takes the values that are not 0, as the kernel does.
    pub const fn give(&mut self, given: Self) {
        if given.tcp != 0 {
            self.tcp = given.tcp;
        }
        if given.tcp_fin != 0 {
            self.tcp_fin = given.tcp_fin;
        }
        if given.udp != 0 {
            self.udp = given.udp;
        }
    }
}

/// What the kernel says of itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Info {
    /// Version of IPVS: major, minor, patch.
    pub version: (u8, u8, u8),
    /// Buckets of the table of connections.
    pub connection_table_size: u32,
}

/// A daemon of the kernel that tells other routers of connections, or is told. A namespace may have one of each role.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SyncDaemon {
    /// Which side it is.
    pub role: SyncRole,
    /// Interface of the multicast, at most 15 octets.
    pub interface: String,
    /// Daemons of another number are not listened to; 0 listens to all. 0 to 255.
    pub sync_id: u32,
    /// Largest message in octets; when it is started, `None` is what the interface's MTU allows.
    pub max_length: Option<u16>,
    /// Multicast group; when it is started, `None` is 224.0.0.81.
    pub group: Option<IpAddr>,
    /// UDP port of the first thread; when it is started, `None` is 8848.
    pub port: Option<u16>,
    /// Multicast TTL; when it is started, `None` is 1.
    pub ttl: Option<u8>,
}

impl SyncDaemon {
    /// Group, port and TTL of a daemon that was not told any.
    const DEFAULTS: (IpAddr, u16, u8) = (IpAddr::V4(Ipv4Addr::new(224, 0, 0, 81)), 8848, 1);

    /// What the kernel has a backup daemon take at least, in octets (Linux, `net/netfilter/ipvs/ip_vs_sync.c`).
    const LEAST_ROOM: u16 = 1024;

    /// Whether the kernel shows a daemon that was started with this as the other one: what was left open, it has chosen.
    #[must_use]
    pub fn is_shown_as(&self, shown: &Self) -> bool {
        let (group, port, ttl) = Self::DEFAULTS;
        let addressed = |daemon: &Self| (daemon.group.unwrap_or(group), daemon.port.unwrap_or(port), daemon.ttl.unwrap_or(ttl));
        self.role == shown.role
            && self.interface == shown.interface
            && self.sync_id == shown.sync_id
            && addressed(self) == addressed(shown)
            && self.max_length.is_none_or(|length| Some(self.room_for(length)) == shown.max_length)
    }

    /// A backup daemon takes messages of a length that another router may send, whatever it is asked for.
    fn room_for(&self, length: u16) -> u16 {
        if self.role == SyncRole::Backup { length.max(Self::LEAST_ROOM) } else { length }
    }
}

impl fmt::Display for SyncDaemon {
    /// As `ipvsadm -L --daemon` prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { role, interface, sync_id, max_length, group, port, ttl } = self;
        write!(f, "{role} sync daemon (mcast={interface}, syncid={sync_id}")?;
        let mut more = |name: &str, value: Option<String>| value.map_or(Ok(()), |value| write!(f, ", {name}={value}"));
        more("maxlen", max_length.map(|length| length.to_string()))?;
        more("group", group.map(|group| group.to_string()))?;
        more("port", port.map(|port| port.to_string()))?;
        more("ttl", ttl.map(|ttl| ttl.to_string()))?;
        f.write_str(")")
    }
}

/// Side of connection synchronisation.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum SyncRole {
    /// Tells.
    Master,
    /// Is told.
    Backup,
}

impl SyncRole {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Master, Self::Backup];

    /// As `ipvsadm` has it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Master => "master",
            Self::Backup => "backup",
        }
    }
}

impl fmt::Display for SyncRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_shown_as_it_was_started_with_what_the_kernel_chooses() {
        let daemon = |role, max_length| SyncDaemon {
            role,
            interface: "eth0".to_owned(),
            sync_id: 7,
            max_length,
            group: None,
            port: None,
            ttl: None,
        };
        let (master, backup) = (SyncRole::Master, SyncRole::Backup);
        for (started, shown, same) in [
            (daemon(master, None), daemon(master, Some(1472)), true),
            (daemon(master, Some(576)), daemon(master, Some(576)), true),
            (daemon(master, Some(576)), daemon(master, Some(1024)), false),
            (daemon(backup, Some(576)), daemon(backup, Some(1024)), true),
            (daemon(backup, Some(2000)), daemon(backup, Some(2000)), true),
            (daemon(backup, Some(2000)), daemon(backup, Some(1024)), false),
            (daemon(backup, None), daemon(master, None), false),
            (daemon(master, None), SyncDaemon { group: Some(IpAddr::V4(Ipv4Addr::new(224, 0, 0, 81))), ..daemon(master, None) }, true),
            (daemon(master, None), SyncDaemon { port: Some(8849), ..daemon(master, None) }, false),
        ] {
            assert_eq!(started.is_shown_as(&shown), same, "{started} {shown}");
        }
    }
}
