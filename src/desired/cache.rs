// SPDX-License-Identifier: Apache-2.0
//! The last good intent, kept in the state directory for a start at which no source is complete in time.
//!
//! Input and output: the VIPs and virtual services of a [`Desired`] in `desired.json`, replaced as a whole. The file is disposable: where it is missing, of another
//! version or damaged, there is simply no last good intent. All else comes from the configuration in force.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::{fs, io};

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::addresses::{not_allowed, unfit};
use super::{Desired, DesiredBalancing, DesiredVip, DesiredVirtualService, KnownPeers, Lifecycle, NodeDrain, ServiceKey};
use crate::config::{Config, NodeLabels};

const FILE: &str = "desired.json";
const VERSION: u32 = 3;

/// Why VIPs have left the node; absent while they have not.
const DRAINED: &str = "drained";

/// From where other nodes advertise.
const PEERS: &str = "vrrp-peers.json";

/// The labels of our Node.
const LABELS: &str = "node-labels.json";

#[derive(Serialize, Deserialize)]
struct Cached<V, S> {
    version: u32,
    /// The process that had it has withdrawn everything before it ended.
    #[serde(default)]
    drained: bool,
    vips: V,
    services: S,
}

type Vips = BTreeMap<IpAddr, DesiredVip>;
type Services = Vec<(ServiceKey, DesiredVirtualService)>;

/// Keeps the VIPs and virtual services of this intent in the state directory.
///
/// # Errors
/// The directory cannot be made, or the file not be written.
pub fn save(state_dir: &Path, desired: &Desired) -> io::Result<()> {
    let services: Vec<_> = desired.balancing.iter().flat_map(|balancing| &balancing.services).collect();
    let drained = matches!(desired.lifecycle, Lifecycle::Standby | Lifecycle::Drain);
    replace(state_dir, FILE, &serde_json::to_vec(&Cached { version: VERSION, drained, vips: &desired.vips, services })?)
}

/// A file is there as it was, or as it is to be.
fn replace(state_dir: &Path, file: &str, content: &[u8]) -> io::Result<()> {
    fs::create_dir_all(state_dir)?;
    let unfinished = state_dir.join(format!(".{file}"));
    fs::write(&unfinished, content)?;
    fs::rename(unfinished, state_dir.join(file))
}

/// Keeps whether VIPs have left the node, for a start of which the API server does not tell that.
///
/// # Errors
/// The directory cannot be made, or the file not be written or removed.
pub fn save_drain(state_dir: &Path, drain: &NodeDrain) -> io::Result<()> {
    let NodeDrain::Drained { reason } = drain else {
        return match fs::remove_file(state_dir.join(DRAINED)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    };
    replace(state_dir, DRAINED, reason.as_bytes())
}

/// Whether VIPs had left the node when it stopped.
#[must_use]
pub fn load_drain(state_dir: &Path) -> NodeDrain {
    fs::read_to_string(state_dir.join(DRAINED)).map_or(NodeDrain::None, |reason| NodeDrain::Drained { reason })
}

/// Keeps from where other nodes advertise, for a start of which the API server does not tell that.
///
/// # Errors
/// The directory cannot be made, or the file not be written.
pub fn save_peers(state_dir: &Path, peers: &KnownPeers) -> io::Result<()> {
    replace(state_dir, PEERS, &serde_json::to_vec(peers)?)
}

/// From where other nodes advertised when that was known last.
#[must_use]
pub fn load_peers(state_dir: &Path) -> KnownPeers {
    fs::read(state_dir.join(PEERS)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// Keeps the labels of our Node, for a start of which the API server does not tell them.
///
/// # Errors
/// The directory cannot be made, or the file not be written.
pub fn save_labels(state_dir: &Path, labels: &NodeLabels) -> io::Result<()> {
    replace(state_dir, LABELS, &serde_json::to_vec(labels)?)
}

/// The labels of our Node when they were known last; `None` where they never were.
#[must_use]
pub fn load_labels(state_dir: &Path) -> Option<NodeLabels> {
    fs::read(state_dir.join(LABELS)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok())
}

/// The intent that was kept last, without what the configuration no longer allows. It is not complete, so that nothing is removed as a stray. Its lifecycle
/// is that of a drain where nothing of it was left.
#[must_use]
pub fn load(state_dir: &Path, config: &Config) -> Option<Desired> {
    let path = state_dir.join(FILE);
    let cached = match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice::<Cached<Vips, Services>>(&bytes).map_err(|error| error.to_string()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => Err(error.to_string()),
    };
    let Cached { drained, mut vips, services, .. } = match cached {
        Ok(cached) if cached.version == VERSION => cached,
        Ok(cached) => {
            warn!(path = %path.display(), version = cached.version, "the last good intent is of another version, and is not used");
            return None;
        }
        Err(error) => {
            warn!(path = %path.display(), %error, "the last good intent cannot be read, and is not used");
            return None;
        }
    };
    vips.retain(|vip, desired| {
        desired.owners.retain(|owner| unfit(*vip).is_none() && not_allowed(*vip, &owner.namespace, &config.vips).is_none());
        !desired.owners.is_empty()
    });
    let services = services.into_iter().filter(|(key, _)| vips.contains_key(&key.vip)).collect();
    let balancing = config.dataplane.balances().then(|| DesiredBalancing::new(services, config));
    Some(Desired {
        complete: false,
        lifecycle: if drained { Lifecycle::Drain } else { Lifecycle::Run },
        vips,
        balancing,
        found: super::found(config),
        bgp: config.bgp.clone(),
        routing: config.routing.clone(),
        vrrp: config.vrrp.clone(),
        drain: config.drain,
        real_server_drain: config.dataplane.drain_timeout,
    })
}
