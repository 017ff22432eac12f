// SPDX-License-Identifier: Apache-2.0
//! Reads the table of IPVS when somebody asks, and says of each virtual service whose it is.
//!
//! Inputs: the loop's view, and the kernel. Output: an [`IpvsReader`]. Where neither intent nor record has a virtual service, the kernel is not asked: that
//! would make it load IPVS.

use ipvs::{Client, ServiceAddress};
use tokio::sync::watch;

use super::View;
use crate::actuator::{by_mark, service_key};
use crate::observed::KernelState;
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
    if balancing.is_none() && record.confirmed_services.is_empty() && record.pending_services.is_empty() {
        return Err("this daemon has nothing in IPVS: with its dataplane.type others balance, or nobody".to_owned());
    }
    let mut client = Client::connect().await.map_err(|error| chain(&error))?;
    let info = client.info().await.map_err(|error| chain(&error))?;
    let table = client.table().await.map_err(|error| chain(&error))?;
    let marks = by_mark(&record.marks);
    let claim = |address: &ServiceAddress| match service_key(address, &marks) {
        Some(key) if record.has_service(key) && !balancer.foreign.contains(&key) => Claim {
            foreign: false,
            owner: balancing.and_then(|balancing| balancing.services.get(&key)).map(|service| service.owner.clone()),
            takes: Some(key.to_string()),
        },
        _ => Claim { foreign: true, ..Claim::default() },
    };
    Ok(ipvs_status(&info, &table, claim))
}
