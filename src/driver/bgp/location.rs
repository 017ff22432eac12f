// SPDX-License-Identifier: Apache-2.0
//! The node's addresses as they change, so that next hops follow them while sessions stay.
//!
//! Input: notifications of the kernel, as hints. Output: all addresses, read again soon after a burst of changes; what they mean on a connection is
//! chosen by [`addresses`](super::addresses).

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use rtnetlink::MulticastGroup;
use tokio::sync::watch;
use tokio::time::sleep;

use super::addresses::{self, AddressError, InterfaceAddress};
use super::fatal_panics;
use crate::telemetry::chain;

/// From a change to reading: bursts become one, and duplicate address detection of a link that just came up gets its time.
const SETTLE: Duration = Duration::from_millis(200);

/// The addresses of the node when they were read last.
pub(super) type Location = Arc<Vec<InterfaceAddress>>;

/// Follows them on the current runtime, until the receivers are gone. There is no news before the first change.
pub(super) fn follow() -> watch::Receiver<Location> {
    let (sender, receiver) = watch::channel(Location::default());
    tokio::spawn(fatal_panics(async move {
        if let Err(error) = run(sender).await {
            tracing::warn!(error = %chain(&error), "next hops do not follow the node's addresses until a session starts anew");
        }
    }));
    receiver
}

async fn run(sender: watch::Sender<Location>) -> Result<(), AddressError> {
    let groups = [MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr];
    let (connection, _handle, mut notifications) = rtnetlink::new_multicast_connection(&groups).map_err(AddressError::Socket)?;
    tokio::spawn(connection);
    while let Some(_change) = notifications.next().await {
        sleep(SETTLE).await;
        while futures_util::FutureExt::now_or_never(notifications.next()).flatten().is_some() {}
        let found = Arc::new(addresses::all().await?);
        if sender.is_closed() {
            break;
        }
        sender.send_if_modified(|location| {
            let changed = *location != found;
            *location = found;
            changed
        });
    }
    Ok(())
}
