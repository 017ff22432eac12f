// SPDX-License-Identifier: Apache-2.0
//! Reads and writes below `/proc/sys`, in the network namespace of the thread.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::desired::BalancerKind;
use crate::sysctl::Sysctl;

const ROOT: &str = "/proc/sys";

/// What each setting is that matters where that balances; those that the kernel does not have are left out.
pub(super) fn read(balancer: BalancerKind) -> BTreeMap<Sysctl, String> {
    let value = |setting: Sysctl| std::fs::read_to_string(Path::new(ROOT).join(setting.path())).ok();
    Sysctl::ALL
        .into_iter()
        .chain(Sysctl::FOR_MOVED_FLOWS)
        .filter(|setting| setting.is_for(balancer))
        .filter_map(|setting| Some((setting, value(setting)?.trim().to_owned())))
        .collect()
}

/// Gives it the value that it must have.
pub(super) fn set(setting: Sysctl) -> io::Result<()> {
    std::fs::write(Path::new(ROOT).join(setting.path()), setting.wanted())
}
