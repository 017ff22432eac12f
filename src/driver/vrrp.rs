// SPDX-License-Identifier: Apache-2.0
//! The virtual routers of this node: [`vrrp::group::Group`]s on raw sockets, on one thread of their own.
//!
//! ```text
//!   slow loop ---- whole sets ----> run: sleeps once, until a socket, a notification of the kernel, a timer, or the bell
//!       ^                            | group: one Group, its sockets       | clerk (a thread): nft, which nobody waits for
//!       +---- VrrpStatus (watch) ----+ placement: which addresses come and go on an interface
//! ```
//!
//! Inputs: [`VirtualRouters::configure`], [`VirtualRouters::stop`] and [`VirtualRouters::suspend`], each a whole value that replaces the one before. Output: [`VrrpStatus`].
//! The thread has the addresses of virtual routers on their interface, and nobody else has: taking over waits for neither the slow loop nor another
//! program. So each address is recorded before it can come to be placed, as `placement` says, and what an earlier process has left is known by that.
//! A panic ends the process, since the state of its virtual routers would be unknown.

mod bell;
mod claim;
mod clerk;
mod group;
mod netlink;
mod others;
mod placement;
mod record;
mod run;
mod socket;
mod status;
mod virtual_link;

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::watch;
use vrrp::Family;

pub use status::{GroupStatus, OtherRouter, RouterStatus, VrrpStatus};

use crate::desired::{DesiredGroup, DesiredVrrp};
use bell::{Bell, bell};
use clerk::Clerk;
use netlink::{Monitor, Netlink};
use placement::Inventory;
use run::Driver;

/// The virtual routers of this node. Dropping it leaves all as it is, for the next process; [`stop`](Self::stop) first to hand over.
#[derive(Debug)]
pub struct VirtualRouters {
    target: Arc<Mutex<Target>>,
    bell: Bell,
    status: watch::Receiver<Arc<VrrpStatus>>,
    thread: Option<JoinHandle<()>>,
}

impl VirtualRouters {
    /// Starts the thread, in the network namespace of the caller. It does nothing before the first [`configure`](Self::configure). The record is a table of
    /// nft that is named after the instance.
    ///
    /// # Errors
    /// The thread, or a socket that it needs, cannot be had.
    pub fn spawn(instance: &str) -> io::Result<Self> {
        let (bell, ear) = bell()?;
        let target = Arc::new(Mutex::new(Target::Nothing));
        let (board, status) = watch::channel(Arc::default());
        let clerk = Clerk::spawn(instance, bell.clone())?;
        let driver = Driver::new(
            instance,
            Arc::clone(&target),
            ear,
            Netlink::open_with_alias(virtual_link::alias(instance))?,
            Monitor::subscribe()?,
            clerk,
            board,
        );
        let thread = std::thread::Builder::new().name("vrrp".to_owned()).spawn(move || fatal_panics(|| driver.run()))?;
        Ok(Self { target, bell, status, thread: Some(thread) })
    }

    /// Makes this the whole configuration. A virtual router that is the same goes on in its state; one that is not there any more hands over as by
    /// [`stop`](Self::stop).
    pub fn configure(&self, desired: Arc<DesiredVrrp>) {
        self.set(Target::Run(desired));
    }

    /// Resigns everywhere. Addresses stay until another router is heard to have them, or would be, without being answered for; then they go, and their
    /// record. It is done when [`VrrpStatus::stopped`].
    pub fn stop(&self) {
        self.set(Target::Stop);
    }

    /// Likewise, for the next process: where nobody follows, the addresses and their record stay as they are, answered for.
    pub fn suspend(&self) {
        self.set(Target::Suspend);
    }

    /// The virtual routers now.
    #[must_use]
    pub fn status(&self) -> Arc<VrrpStatus> {
        self.status.borrow().clone()
    }

    /// Wakes its holder when more than a counter changed.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Arc<VrrpStatus>> {
        self.status.clone()
    }

    fn set(&self, target: Target) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
        self.bell.ring();
    }
}

impl Drop for VirtualRouters {
    fn drop(&mut self) {
        self.set(Target::Quit);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the VRRP thread ended in a panic");
        }
    }
}

/// From where virtual routers of this group would advertise to unicast peers: an address of each family that its interface has, and none of these.
///
/// # Errors
/// The kernel does not tell.
pub fn sources(group: &DesiredGroup, vips: &[IpAddr]) -> io::Result<Vec<IpAddr>> {
    let mut netlink = Netlink::open()?;
    let Some(link) = netlink.link(&group.interface)? else { return Ok(Vec::new()) };
    let mut inventory = Inventory::default();
    inventory.replace(netlink.addresses(link.index)?);
    let configured = [(Family::Ipv4, group.source_ipv4.map(IpAddr::V4)), (Family::Ipv6, group.source_ipv6.map(IpAddr::V6))];
    let is_virtual: Vec<IpAddr> = group.addresses.iter().chain(vips).copied().collect();
    Ok(configured.into_iter().filter_map(|(family, configured)| inventory.source(family, false, configured, &is_virtual)).collect())
}

/// What the slow loop wants.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Target {
    /// It has not said.
    Nothing,
    /// These.
    Run(Arc<DesiredVrrp>),
    /// None.
    Stop,
    /// None, until the next process.
    Suspend,
    /// The end of the thread.
    Quit,
}

/// A panic in it ends the process.
fn fatal_panics(body: impl FnOnce()) {
    struct Guard;
    impl Drop for Guard {
        fn drop(&mut self) {
            if std::thread::panicking() {
                tracing::error!("the VRRP thread panicked; the process ends");
                std::process::abort();
            }
        }
    }
    let _guard = Guard;
    body();
}
