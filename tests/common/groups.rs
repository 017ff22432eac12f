// SPDX-License-Identifier: Apache-2.0
//! Virtual routers of ours on a host, without a daemon: one group, which is called `main`.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::sync::Arc;
use std::time::Instant;

use vipherald::desired::{DesiredGroup, DesiredVrrp};
use vipherald::driver::vrrp::{GroupStatus, VirtualRouters};

use super::common::{Namespace, POLL};
use super::link::PATIENCE;

pub(crate) fn spawn(host: &Namespace, instance: &str) -> VirtualRouters {
    host.run(|| VirtualRouters::spawn(instance)).unwrap_or_else(|error| panic!("no virtual routers: {error}"))
}

pub(crate) fn configure(routers: &VirtualRouters, group: &DesiredGroup) {
    routers.configure(Arc::new(DesiredVrrp { groups: [("main".to_owned(), group.clone())].into(), complete: true }));
}

/// Waits for what a group says that has its virtual routers.
pub(crate) fn wait_for(what: &str, routers: &VirtualRouters, wanted: impl Fn(&GroupStatus) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !routers.status().group("main").is_some_and(|group| !group.routers.is_empty() && wanted(group)) {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}: {:#?}", routers.status());
        std::thread::sleep(POLL);
    }
}
