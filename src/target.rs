// SPDX-License-Identifier: Apache-2.0
//! The other end of forwarding methods `dr`, `tun` and `gue`: a pod takes packets that are for a VIP, and answers clients itself.
//!
//! Input: the VIPs, the tunnel by which packets come if any, and the network namespace of this process, which is the pod's. Output: the VIPs on `lo`,
//! where they are no source of the pod's own connections; settings by which the pod tells nobody on its link that it has them; the tunnel device up, or
//! the UDP port open to it. Invariants: only what differs is changed, so that a second run does nothing; what was there before, and is as it should be,
//! is not touched; an end takes away no address that somebody else placed, and no tunnel that is still in use; nothing is run but system calls.

mod fou;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use nix::errno::Errno;
use rtnetlink::Handle;

use crate::actuator::address::{self, Addresses, Interface};
use crate::admin;
use crate::observed::ADDRESS_PROTOCOL;

/// By which tunnel packets come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tunnel {
    /// IP in IP.
    Ipip,
    /// Generic UDP Encapsulation to this port.
    Gue(u16),
}

/// What a pod is to take.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// Packets to these.
    pub vips: BTreeSet<IpAddr>,
    /// `None` where they come over the link (dr).
    pub tunnel: Option<Tunnel>,
    /// Only this part of it; `None` for all.
    pub only: Option<Part>,
}

impl Target {
    fn has(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }
}

/// A part of what makes a target. They need different rights, so that different containers may have to do them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    /// Settings below `/proc/sys`.
    Settings,
    /// Tunnel devices, and the UDP port.
    Tunnel,
    /// The VIPs on `lo`.
    Addresses,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Aim {
    /// Make the namespace a target of these VIPs, and of those of other runs.
    Add,
    /// Make it one of these VIPs alone: what other runs have placed goes.
    Exact,
    /// End that for these VIPs.
    Remove,
}

/// One change to the network namespace. Prints as what it does.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Change {
    /// Set this below `/proc/sys/net` to the first value, where it has the second one.
    Sysctl(String, u8, u8),
    /// Set this interface up.
    Up(&'static str),
    /// Set this interface down.
    Down(&'static str),
    /// Place the address on `lo`.
    Add(IpAddr),
    /// Take the address off `lo`.
    Remove(IpAddr),
    /// Take tunnels over UDP on this port, of IPv6 or IPv4.
    Open(u16, bool),
    /// Take no more of them.
    Close(u16, bool),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = |ipv6: &bool| if *ipv6 { "IPv6" } else { "IPv4" };
        match self {
            Self::Sysctl(name, value, _) => write!(f, "set net.{} to {value}", name.replace('/', ".")),
            Self::Up(interface) => write!(f, "set {interface} up"),
            Self::Down(interface) => write!(f, "set {interface} down"),
            Self::Add(vip) => write!(f, "add address {vip} to lo"),
            Self::Remove(vip) => write!(f, "remove address {vip} from lo"),
            Self::Open(port, ipv6) => write!(f, "take GUE on UDP port {port} of {}", family(ipv6)),
            Self::Close(port, ipv6) => write!(f, "take no GUE on UDP port {port} of {}", family(ipv6)),
        }
    }
}

impl Change {
    /// What undoes it.
    #[must_use]
    pub fn undone(&self) -> Self {
        match self {
            Self::Sysctl(name, value, before) => Self::Sysctl(name.clone(), *before, *value),
            Self::Up(interface) => Self::Down(interface),
            Self::Down(interface) => Self::Up(interface),
            Self::Add(vip) => Self::Remove(*vip),
            Self::Remove(vip) => Self::Add(*vip),
            Self::Open(port, ipv6) => Self::Close(*port, *ipv6),
            Self::Close(port, ipv6) => Self::Open(*port, *ipv6),
        }
    }
}

/// Why the pod is no target.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The namespace could not be read.
    #[error("cannot read the network namespace")]
    Read(#[source] io::Error),
    /// The kernel has no such tunnel here.
    #[error(
        "there is no interface {0} in this network namespace: load its kernel module on the node, with sysctl net.core.fb_tunnels_only_for_init_net=0"
    )]
    NoDevice(&'static str),
    /// The kernel has no tunnels over UDP.
    #[error("the kernel takes no tunnels over UDP: load kernel modules fou and fou6 on the node")]
    NoFou,
    /// VIPs on `lo` may be those of the daemon.
    #[error(
        "a vipherald daemon runs in this network namespace: VIPs that it has placed are not told from those of a target, and none is taken away"
    )]
    BesideDaemon,
    /// An IPv6 address where IPv6 is off.
    #[error("cannot {change}: IPv6 is disabled on lo (sysctl net.ipv6.conf.lo.disable_ipv6)")]
    Ipv6Disabled {
        /// What was to be done.
        change: Change,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
    /// A change was refused for want of a right.
    #[error("cannot {change}: this needs {right}")]
    NotPermitted {
        /// What was to be done.
        change: Change,
        /// What the container lacks.
        right: &'static str,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
    /// A change failed.
    #[error("cannot {change}")]
    Failed {
        /// What was to be done.
        change: Change,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
}

/// What is still to be done to reach the aim in this network namespace, in order.
///
/// # Errors
/// The namespace cannot be read, or lacks a device, or addresses are to be taken away beside a daemon.
pub async fn changes(target: &Target, aim: Aim) -> Result<Vec<Change>, TargetError> {
    if aim != Aim::Add && admin::is_any_running() {
        return Err(TargetError::BesideDaemon);
    }
    let handle = address::connect().map_err(TargetError::Read)?;
    if aim == Aim::Remove {
        return removals(&handle, target).await;
    }
    let mut changes = Vec::new();
    if target.has(Part::Settings) {
        changes.extend(settings(&handle, target).await?);
    }
    if target.has(Part::Tunnel) {
        for device in devices(target) {
            changes.extend((!interface(&handle, device).await?.up).then_some(Change::Up(device)));
        }
        for (port, ipv6) in ports(target) {
            if !fou::is_open(port, ipv6).map_err(no_fou)? {
                changes.push(Change::Open(port, ipv6));
            }
        }
    }
    if target.has(Part::Addresses) {
        let there = addresses(&handle, "lo").await?;
        changes.extend(target.vips.iter().filter(|vip| !there.here.contains_key(vip)).map(|vip| Change::Add(*vip)));
        if aim == Aim::Exact {
            changes.extend(placed(&there).difference(&target.vips).map(|vip| Change::Remove(*vip)));
        }
    }
    Ok(changes)
}

/// Before addresses come, or the link would be told of them; and for packets that come out of a tunnel from clients to whom no route leads back through it.
async fn settings(handle: &Handle, target: &Target) -> Result<Vec<Change>, TargetError> {
    let mut changes = Vec::new();
    let read = |name: &str| read(name).map_err(TargetError::Read);
    for (name, wanted) in [("arp_ignore", 1), ("arp_announce", 2)] {
        let name = format!("ipv4/conf/all/{name}");
        let found = read(&name)?;
        if target.vips.iter().any(IpAddr::is_ipv4) && found < wanted {
            changes.push(Change::Sysctl(name, wanted, found));
        }
    }
    if devices(target).contains(&IPIP) {
        interface(handle, IPIP).await?;
        // The greater of both counts: where `all` is strict, this one has to be loose.
        let wanted = if read("ipv4/conf/all/rp_filter")? == 1 { 2 } else { 0 };
        let name = format!("ipv4/conf/{IPIP}/rp_filter");
        let found = read(&name)?;
        if found != wanted {
            changes.push(Change::Sysctl(name, wanted, found));
        }
    }
    Ok(changes)
}

/// A tunnel stays while a VIP of another run may need it; a device also where it has addresses, for then somebody else uses it, a CNI for example.
async fn removals(handle: &Handle, target: &Target) -> Result<Vec<Change>, TargetError> {
    let placed = placed(&addresses(handle, "lo").await?);
    let mut changes = Vec::new();
    if target.has(Part::Addresses) {
        changes.extend(target.vips.intersection(&placed).map(|vip| Change::Remove(*vip)));
    }
    if !target.has(Part::Tunnel) {
        return Ok(changes);
    }
    let in_use = |ipv6| placed.difference(&target.vips).any(|vip| vip.is_ipv6() == ipv6);
    for (port, ipv6) in ports(target).into_iter().filter(|(_, ipv6)| !in_use(*ipv6)) {
        if fou::is_open(port, ipv6).map_err(no_fou)? {
            changes.push(Change::Close(port, ipv6));
        }
    }
    for device in devices(target).into_iter().filter(|device| !in_use(*device == IP6TNL)) {
        let link = address::find_interface(handle, device).await.map_err(TargetError::Read)?;
        if link.is_some_and(|link| link.up) && addresses(handle, device).await?.here.is_empty() {
            changes.push(Change::Down(device));
        }
    }
    Ok(changes)
}

/// What runs of this have placed, as far as the kernel tells who placed an address; it does from 5.18 on.
fn placed(addresses: &Addresses) -> BTreeSet<IpAddr> {
    let is_host = |address: &IpAddr, length| length == if address.is_ipv6() { 128 } else { 32 };
    let there = addresses.here.iter().filter(|(address, found)| is_host(address, found.prefix_length));
    there.filter(|(_, found)| !addresses.protocols || found.protocol == Some(ADDRESS_PROTOCOL)).map(|(address, _)| *address).collect()
}

/// Makes one change.
///
/// # Errors
/// The kernel refuses.
pub async fn make(change: &Change) -> Result<(), TargetError> {
    let outcome = match change {
        Change::Sysctl(name, value, _) => fs::write(path(name), value.to_string()),
        Change::Up(device) | Change::Down(device) => set_link(device, matches!(change, Change::Up(_))).await,
        Change::Add(vip) | Change::Remove(vip) => place(*vip, matches!(change, Change::Add(_))).await,
        Change::Open(port, ipv6) => fou::open(*port, *ipv6),
        Change::Close(port, ipv6) => fou::close(*port, *ipv6),
    };
    outcome.map_err(|source| {
        let change = change.clone();
        let errno = source.raw_os_error().map(Errno::from_raw);
        match (&change, errno) {
            (Change::Sysctl(..), Some(Errno::EROFS | Errno::EACCES | Errno::EPERM)) => TargetError::NotPermitted {
                change,
                right: "a privileged init container, or the sysctl in the pod's securityContext.sysctls",
                source,
            },
            (Change::Add(IpAddr::V6(_)), Some(Errno::EACCES)) => TargetError::Ipv6Disabled { change, source },
            (_, Some(Errno::EPERM | Errno::EACCES)) => {
                TargetError::NotPermitted { change, right: "the capability NET_ADMIN in the container's securityContext", source }
            }
            _ => TargetError::Failed { change, source },
        }
    })
}

const IPIP: &str = "tunl0";
const IP6TNL: &str = "ip6tnl0";

/// Which devices take packets out of their tunnels.
fn devices(target: &Target) -> Vec<&'static str> {
    let of = |ipv6| target.tunnel.is_some() && target.vips.iter().any(|vip| vip.is_ipv6() == ipv6);
    [(false, IPIP), (true, IP6TNL)].into_iter().filter(|(ipv6, _)| of(*ipv6)).map(|(_, device)| device).collect()
}

/// Which UDP ports tunnels come to.
fn ports(target: &Target) -> Vec<(u16, bool)> {
    let Some(Tunnel::Gue(port)) = target.tunnel else { return Vec::new() };
    [false, true].into_iter().filter(|ipv6| target.vips.iter().any(|vip| vip.is_ipv6() == *ipv6)).map(|ipv6| (port, ipv6)).collect()
}

async fn interface(handle: &Handle, name: &'static str) -> Result<Interface, TargetError> {
    address::find_interface(handle, name).await.map_err(TargetError::Read)?.ok_or(TargetError::NoDevice(name))
}

async fn addresses(handle: &Handle, name: &'static str) -> Result<Addresses, TargetError> {
    let link = interface(handle, name).await?;
    address::dump(handle, Some(link.index), &BTreeSet::new()).await.map_err(TargetError::Read)
}

async fn set_link(device: &str, up: bool) -> io::Result<()> {
    let handle = address::connect()?;
    let link = address::find_interface(&handle, device).await?.ok_or_else(|| io::Error::from(Errno::ENODEV))?;
    address::set_state(&handle, link.index, up).await
}

async fn place(vip: IpAddr, add: bool) -> io::Result<()> {
    let handle = address::connect()?;
    let lo = address::find_interface(&handle, "lo").await?.ok_or_else(|| io::Error::from(Errno::ENODEV))?;
    if add { address::add(&handle, lo.index, vip).await } else { address::remove(&handle, lo.index, vip).await }
}

fn no_fou(error: io::Error) -> TargetError {
    if error.raw_os_error() == Some(Errno::ENOENT as i32) { TargetError::NoFou } else { TargetError::Read(error) }
}

fn read(name: &str) -> io::Result<u8> {
    fs::read_to_string(path(name))?.trim().parse().map_err(io::Error::other)
}

fn path(name: &str) -> PathBuf {
    ["/proc/sys/net", name].iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::ObservedAddress;

    #[test]
    fn what_others_placed_is_not_ours_where_the_kernel_can_tell() {
        let found =
            [("10.0.0.1", 32, Some(ADDRESS_PROTOCOL)), ("10.0.0.2", 32, None), ("10.0.0.3", 24, None), ("2001:db8::1", 128, Some(3))];
        let here = found.map(|(address, prefix_length, protocol)| (address.parse().unwrap(), ObservedAddress { prefix_length, protocol }));
        let mut addresses = Addresses { here: here.into(), protocols: true, ..Addresses::default() };
        let ours = |addresses: &Addresses| placed(addresses).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(ours(&addresses), ["10.0.0.1"]);
        addresses.protocols = false;
        assert_eq!(ours(&addresses), ["10.0.0.1", "10.0.0.2", "2001:db8::1"]);
    }
}
