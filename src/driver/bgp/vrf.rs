// SPDX-License-Identifier: Apache-2.0
//! The VRFs of the node: which of its interfaces are in which.
//!
//! Input: rtnetlink dumps, and notifications as hints to read again. Output: for an interface the VRF that its addresses are of. A VRF that is made anew
//! under the same name is another one, since sockets are bound to the device that is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};
use rtnetlink::MulticastGroup;
use tokio::sync::watch;
use tokio::time::sleep;

use super::addresses::{AddressError, Netlink};
use super::{fatal_panics, links};
use crate::telemetry::chain;

/// From a change to the hint: bursts become one.
const SETTLE: Duration = Duration::from_millis(50);

/// A VRF device.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Vrf {
    pub(super) name: String,
    pub(super) index: u32,
}

/// Where addresses count: in a VRF, or outside all of them.
pub(super) type Domain = Option<Vrf>;

/// The domain of each interface that is in a VRF, or is one; by name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Vrfs(BTreeMap<String, Vrf>);

impl Vrfs {
    /// Reads them.
    ///
    /// # Errors
    /// They cannot be read.
    pub(super) async fn read() -> Result<Self, AddressError> {
        Ok(Self::of(&Netlink::open()?.links().await?))
    }

    fn of(links: &[LinkMessage]) -> Self {
        let names: BTreeMap<u32, String> = links.iter().filter_map(|link| Some((link.header.index, links::name(link)?))).collect();
        let inside = by_interface(links);
        let own = links.iter().filter(|link| is_vrf(link)).map(|link| (link.header.index, link.header.index));
        let named = own.chain(inside).filter_map(|(interface, index)| {
            let vrf = Vrf { name: names.get(&index)?.clone(), index };
            Some((names.get(&interface)?.clone(), vrf))
        });
        Self(named.collect())
    }

    #[cfg(test)]
    pub(super) fn of_a_test<'a>(interfaces: impl IntoIterator<Item = (&'a str, Vrf)>) -> Self {
        Self(interfaces.into_iter().map(|(interface, vrf)| (interface.to_owned(), vrf)).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The domain of an interface; also of one that is not there.
    pub(super) fn domain(&self, interface: Option<&str>) -> Domain {
        self.0.get(interface?).cloned()
    }
}

/// The index of the VRF of each interface that is in one.
pub(super) fn by_interface(links: &[LinkMessage]) -> BTreeMap<u32, u32> {
    let vrfs: BTreeSet<u32> = links.iter().filter(|link| is_vrf(link)).map(|link| link.header.index).collect();
    let inside = links.iter().filter_map(|link| Some((link.header.index, controller(link)?)));
    inside.filter(|(_, controller)| vrfs.contains(controller)).collect()
}

fn is_vrf(link: &LinkMessage) -> bool {
    link.attributes
        .iter()
        .any(|attribute| matches!(attribute, LinkAttribute::LinkInfo(infos) if infos.contains(&LinkInfo::Kind(InfoKind::Vrf))))
}

fn controller(link: &LinkMessage) -> Option<u32> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Controller(index) => Some(*index),
        _ => None,
    })
}

/// Tells on the current runtime that links have changed, until nobody listens.
pub(super) fn follow() -> watch::Receiver<()> {
    let (sender, receiver) = watch::channel(());
    tokio::spawn(fatal_panics(async move {
        if let Err(error) = run(sender).await {
            tracing::warn!(error = %chain(&error), "VRFs that come and go are not noticed before the next configuration");
        }
    }));
    receiver
}

async fn run(sender: watch::Sender<()>) -> Result<(), AddressError> {
    let (connection, _handle, mut notifications) =
        rtnetlink::new_multicast_connection(&[MulticastGroup::Link]).map_err(AddressError::Socket)?;
    tokio::spawn(connection);
    while let Some(_change) = notifications.next().await {
        sleep(SETTLE).await;
        while notifications.next().now_or_never().flatten().is_some() {}
        if sender.send(()).is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str, attribute: Option<LinkAttribute>) -> LinkMessage {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes = [LinkAttribute::IfName(name.to_owned())].into_iter().chain(attribute).collect();
        link
    }

    #[test]
    fn an_interface_is_in_the_vrf_that_is_its_controller() {
        let kind = |kind| Some(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]));
        let in_device = |index| Some(LinkAttribute::Controller(index));
        let vrfs = Vrfs::of(&[
            link(1, "lo", None),
            link(2, "eth0", None),
            link(3, "eth1", in_device(5)),
            link(4, "eth2", in_device(6)),
            link(5, "red", kind(InfoKind::Vrf)),
            link(6, "br0", kind(InfoKind::Bridge)),
        ]);
        let red = Some(Vrf { name: "red".to_owned(), index: 5 });
        assert_eq!((vrfs.domain(Some("red")), vrfs.domain(Some("eth1"))), (red.clone(), red));
        for outside in [None, Some("lo"), Some("eth0"), Some("eth2"), Some("br0"), Some("nowhere")] {
            assert_eq!(vrfs.domain(outside), None, "{outside:?}");
        }
    }
}
