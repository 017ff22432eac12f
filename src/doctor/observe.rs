// SPDX-License-Identifier: Apache-2.0
//! Reads a [`Node`], and changes nothing: IPVS is asked only where it is loaded, since the question would load it; settings are opened for writing and
//! not written; the key for TCP-MD5 is put on a socket that is never connected.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use futures_util::TryStreamExt as _;
use ipvs::{Client, ServiceAddress, SyncDaemon};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags};
use nix::errno::Errno;
use socket2::{Domain, Socket, Type};

use super::node::{Capability, Interface, InterfaceAddress, IpvsModule, Node, Setting};
use crate::actuator::{abandoned, default_interfaces, interface_path, is_ipvs_loaded, nft, read_interfaces};
use crate::api::Scheduler;
use crate::config::Config;
use crate::sysctl::{InterfaceSetting, Sysctl};
use crate::telemetry::chain;

/// Reads all of it. Needs a tokio runtime.
pub async fn observe(config: Option<&Config>) -> Node {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    let modules = Modules::read(&kernel);
    let ipvs = modules.ipvs();
    Node {
        sysctls: Sysctl::each().map(|setting| (setting, self::setting(setting))).collect(),
        external: external(config.and_then(|config| config.external_interface.clone())).await,
        ipv6_forwarding: value(Path::new("/proc/sys/net/ipv6/conf/all/forwarding")),
        ipvs,
        missing_schedulers: modules.missing_schedulers(ipvs),
        virtual_services: if ipvs == IpvsModule::Loaded { virtual_services().await } else { Ok(Vec::new()) },
        sync_daemons: if ipvs == IpvsModule::Loaded { sync_daemons().await } else { Ok(Vec::new()) },
        nft: nft_version().await,
        capabilities: capabilities(),
        tcp_md5: has_tcp_md5().map_err(|error| error.to_string()),
        tcp_ao: sys::has_tcp_ao().map_err(|error| error.to_string()),
        interfaces: interfaces().await.map_err(|error| chain(&error)),
        abandoned: abandoned().await.map_err(|error| chain(&error)),
        unreadable_keys: config.map(unreadable_keys).unwrap_or_default(),
        kernel,
    }
}

fn setting(setting: Sysctl) -> Setting {
    let path = Path::new("/proc/sys").join(setting.path());
    Setting { value: value(&path), writable: is_writable(&path) }
}

fn value(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|value| value.trim().to_owned())
}

fn is_writable(path: &Path) -> bool {
    OpenOptions::new().write(true).open(path).is_ok()
}

/// Of this interface, or of those of default routes.
async fn external(configured: Option<String>) -> BTreeMap<(String, InterfaceSetting), Setting> {
    let interfaces = match configured {
        Some(interface) => BTreeSet::from([interface]),
        None => default_interfaces().await.unwrap_or_default(),
    };
    let settings = read_interfaces(&interfaces).into_iter().flat_map(|(interface, settings)| {
        settings.into_iter().map(move |(setting, value)| {
            let writable = is_writable(&interface_path(&interface, setting));
            ((interface.clone(), setting), Setting { value: Some(value.to_string()), writable })
        })
    });
    settings.collect()
}

/// The kernel's modules, as far as they can be seen.
struct Modules {
    /// Names of those on the disk, and of those that are part of the kernel; `None` where the disk is not seen.
    available: Option<BTreeSet<String>>,
}

impl Modules {
    fn read(kernel: &str) -> Self {
        let directory = Path::new("/lib/modules").join(kernel);
        let listed = ["modules.dep", "modules.builtin"].map(|file| fs::read_to_string(directory.join(file)));
        // A kernel without this file loads none.
        let none = (!Path::new("/proc/modules").exists()).then(BTreeSet::new);
        let [Ok(on_disk), builtin] = listed else { return Self { available: none } };
        let all = on_disk.lines().map(|line| line.split(':').next().unwrap_or_default().to_owned()).collect::<Vec<_>>();
        let builtin = builtin.unwrap_or_default();
        let paths = all.iter().map(String::as_str).chain(builtin.lines());
        let name = |path: &str| Some(path.rsplit('/').next()?.split_once(".ko")?.0.replace('-', "_"));
        Self { available: Some(paths.filter_map(name).collect()) }
    }

    fn ipvs(&self) -> IpvsModule {
        if is_ipvs_loaded() {
            return IpvsModule::Loaded;
        }
        match &self.available {
            Some(available) if available.contains("ip_vs") => IpvsModule::Loadable,
            Some(_) => IpvsModule::Missing,
            None => IpvsModule::Unseen,
        }
    }

    fn missing_schedulers(&self, ipvs: IpvsModule) -> BTreeSet<String> {
        let (Some(available), IpvsModule::Loaded | IpvsModule::Loadable) = (&self.available, ipvs) else { return BTreeSet::new() };
        if available.is_empty() {
            // What is part of such a kernel is listed nowhere.
            return BTreeSet::new();
        }
        let modules = Scheduler::ALL.iter().map(|scheduler| format!("ip_vs_{}", scheduler.word()));
        modules.filter(|module| !available.contains(module) && !Path::new("/sys/module").join(module).exists()).collect()
    }
}

async fn virtual_services() -> Result<Vec<ServiceAddress>, String> {
    let mut client = Client::connect().await.map_err(|error| chain(&error))?;
    let services = client.services().await.map_err(|error| chain(&error))?;
    Ok(services.iter().map(|entry| entry.service.address).collect())
}

async fn sync_daemons() -> Result<Vec<SyncDaemon>, String> {
    let mut client = Client::connect().await.map_err(|error| chain(&error))?;
    client.daemons().await.map_err(|error| chain(&error))
}

async fn nft_version() -> Result<String, String> {
    let version = nft(&["--version"], "", "say its version").await.map_err(|error| chain(&error))?;
    nft(&["list", "tables"], "", "list the tables").await.map_err(|error| chain(&error))?;
    Ok(String::from_utf8_lossy(&version.stdout).trim().to_owned())
}

/// From the line `CapEff` of proc_pid_status(5).
fn capabilities() -> Result<BTreeSet<Capability>, String> {
    let status = fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).ok_or("/proc/self/status has no CapEff")?;
    let bits = u64::from_str_radix(line.trim(), 16).map_err(|error| error.to_string())?;
    Ok(Capability::ALL.into_iter().filter(|capability| bits & (1 << capability.number()) != 0).collect())
}

fn has_tcp_md5() -> io::Result<bool> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    match sys::set_tcp_md5_key(socket.as_fd(), IpAddr::V4(Ipv4Addr::LOCALHOST), 32, b"doctor") {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(Errno::ENOPROTOOPT as i32) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Why the interfaces are unknown.
#[derive(Debug, thiserror::Error)]
enum DumpError {
    #[error("cannot open an rtnetlink socket")]
    Socket(#[source] io::Error),
    #[error("cannot read links and addresses")]
    Dump(#[source] rtnetlink::Error),
}

async fn interfaces() -> Result<Vec<Interface>, DumpError> {
    let (connection, handle, _unsolicited) = rtnetlink::new_connection().map_err(DumpError::Socket)?;
    let serving = tokio::spawn(connection);
    let links: Vec<_> = handle.link().get().execute().try_collect().await.map_err(DumpError::Dump)?;
    let addresses: Vec<_> = handle.address().get().execute().try_collect().await.map_err(DumpError::Dump)?;
    serving.abort();
    let interface = |link: netlink_packet_route::link::LinkMessage| {
        let name = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name.clone()),
            _ => None,
        });
        let index = link.header.index;
        let addresses = addresses.iter().filter(|message| message.header.index == index).filter_map(address).collect();
        Some(Interface { name: name?, up: link.header.flags.contains(LinkFlags::Up), addresses })
    };
    Ok(links.into_iter().filter_map(interface).collect())
}

fn address(message: &AddressMessage) -> Option<InterfaceAddress> {
    let (mut local, mut address, mut protocol) = (None, None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(found) => local = Some(*found),
            AddressAttribute::Address(found) => address = Some(*found),
            AddressAttribute::Protocol(found) => protocol = Some(u8::from(*found)),
            _ => {}
        }
    }
    // On a point-to-point link IFA_ADDRESS is the far end.
    Some(InterfaceAddress { address: local.or(address)?, prefix_length: message.header.prefix_len, protocol })
}

fn unreadable_keys(config: &Config) -> BTreeMap<PathBuf, String> {
    let template = config.bgp.listen.iter().map(|listen| &listen.template);
    let transports = config.bgp.peers.values().chain(template).map(|peer| &peer.transport);
    let files =
        transports.flat_map(|transport| transport.password_file.iter().chain(transport.ao_keys.iter().map(|key| &key.password_file)));
    let unreadable = |path: &PathBuf| {
        let opened = File::open(path).and_then(|file| file.metadata());
        match opened {
            Err(error) => Some((path.clone(), error.to_string())),
            Ok(metadata) if metadata.len() == 0 => Some((path.clone(), "it is empty".to_owned())),
            Ok(_) => None,
        }
    };
    files.filter_map(unreadable).collect()
}
