// SPDX-License-Identifier: Apache-2.0
//! Reads the table of IPVS when somebody asks, and says of each virtual service whose it is.
//!
//! Inputs: the loop's view, and the kernel. Output: an [`IpvsReader`]. Where IPVS is not to balance and not loaded, the kernel is not asked: that would make
//! it load IPVS.

use ipvs::{Client, ServiceAddress, SyncDaemon};
use tokio::sync::watch;

use super::View;
use crate::actuator::{by_mark, is_ipvs_loaded, retired_address, service_key};
use crate::desired::{BalancerKind, ServiceKey};
use crate::observed::KernelState;
use crate::plan::owns_daemon;
use crate::status::{Claim, IpvsReader, IpvsStatus, ipvs_status};
use crate::telemetry::chain;

/// Reads with the view as it is at that moment.
pub(super) fn reader(view: watch::Receiver<View>) -> IpvsReader {
    IpvsReader::new(move || {
        let view = view.borrow().clone();
        Box::pin(read(view))
    })
}

async fn read(view: View) -> Result<IpvsStatus, String> {
    let balancing = view.compiled.as_ref().and_then(|compiled| compiled.desired.balancing.as_ref());
    let KernelState { record, balancer, .. } = &view.observed.kernel;
    let kind = balancing.map(|balancing| balancing.rules.balancer);
    if kind != Some(BalancerKind::Ipvs) && !is_ipvs_loaded() {
        let who = if kind.is_some() { "nft balances" } else { "this daemon does not balance" };
        return Err(format!("{who}, and the kernel has not loaded IPVS"));
    }
    let mut client = Client::connect().await.map_err(|error| chain(&error))?;
    let info = client.info().await.map_err(|error| chain(&error))?;
    let table = client.table().await.map_err(|error| chain(&error))?;
    let daemons = client.daemons().await.map_err(|error| chain(&error))?;
    let is_our_daemon =
        |daemon: &SyncDaemon| view.compiled.as_ref().is_some_and(|compiled| owns_daemon(daemon.role, &compiled.desired, &view.observed));
    let daemons: Vec<(SyncDaemon, bool)> = daemons.into_iter().map(|daemon| (daemon.clone(), is_our_daemon(&daemon))).collect();
    let marks = by_mark(&record.marks);
    let is_ours = |key: &ServiceKey| match kind {
        Some(BalancerKind::Nftables) => balancer.former.contains_key(key),
        Some(BalancerKind::Ipvs) | None => record.has_service(*key) && !balancer.foreign.contains(key),
    };
    let claim = |address: &ServiceAddress| match service_key(address, &marks) {
        Some(key) if is_ours(&key) => Claim {
            foreign: false,
            owner: balancing.and_then(|balancing| balancing.services.get(&key)).map(|service| service.owner.clone()),
            takes: Some(key.to_string()),
        },
        _ => match record.retired.iter().find(|range| retired_address(**range).as_ref() == Some(address)) {
            Some(range) => Claim { foreign: false, owner: None, takes: Some(format!("{range}, no new connections")) },
            None => Claim { foreign: true, ..Claim::default() },
        },
    };
    Ok(ipvs_status(&info, &table, claim, &daemons))
}
