// SPDX-License-Identifier: Apache-2.0
//! Reads and writes below `/proc/sys`, in the network namespace of the thread.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::desired::BalancerKind;
use crate::sysctl::{InterfaceSetting, Sysctl};

const ROOT: &str = "/proc/sys";

/// What each setting is that matters where that balances; those that the kernel does not have are left out.
pub(super) fn read(balancer: BalancerKind) -> BTreeMap<Sysctl, String> {
    let value = |setting: Sysctl| std::fs::read_to_string(Path::new(ROOT).join(setting.path())).ok();
    Sysctl::each()
        .filter(|setting| setting.is_for(balancer))
        .filter_map(|setting| Some((setting, value(setting)?.trim().to_owned())))
        .collect()
}

/// What each setting of these interfaces is, as it takes effect; what is not there is left out.
pub(crate) fn read_interfaces<'a>(interfaces: impl IntoIterator<Item = &'a String>) -> BTreeMap<String, BTreeMap<InterfaceSetting, u8>> {
    let value = |interface: &str, setting| std::fs::read_to_string(interface_path(interface, setting)).ok()?.trim().parse::<u8>().ok();
    let effective = |interface: &str, setting| Some((setting, value(interface, setting)?.max(value("all", setting)?)));
    let settings = |interface: &String| InterfaceSetting::ALL.into_iter().filter_map(|setting| effective(interface, setting)).collect();
    interfaces.into_iter().map(|interface| (interface.clone(), settings(interface))).collect()
}

/// Gives settings of interfaces the values that they must have.
pub(super) fn set_interfaces(settings: &BTreeMap<String, BTreeSet<InterfaceSetting>>) -> io::Result<()> {
    for (interface, settings) in settings {
        for setting in settings {
            std::fs::write(interface_path(interface, *setting), setting.wanted().to_string())?;
        }
    }
    Ok(())
}

/// Where a setting of an interface is.
pub(crate) fn interface_path(interface: &str, setting: InterfaceSetting) -> PathBuf {
    [ROOT, "net/ipv4/conf", interface, setting.name()].iter().collect()
}

/// Gives it the value that it must have.
pub(super) fn set(setting: Sysctl) -> io::Result<()> {
    std::fs::write(Path::new(ROOT).join(setting.path()), setting.wanted())
}
