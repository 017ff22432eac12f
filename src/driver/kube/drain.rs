// SPDX-License-Identifier: Apache-2.0
//! When the VIPs of a node leave it that is asked for that by its Node: the nodes of an instance one after the other, and none from the last one that announces it.
//!
//! Inputs: what is [`Asked`], a Lease of the instance for this alone, what the other nodes report, which VIPs this one announces, and whether it has reported that they have left. Output: a
//! [`NodeDrain`] for the loop. Invariants: VIPs begin to leave only while the Lease is held and other nodes, whose Nodes are there and Ready, report that they
//! announce every one of them, as read with a quorum after the Lease was had; the Lease is given up once the report of this node says that they have left, so
//! that whoever has it next knows. Once they have begun to leave, only the Node or the configuration brings them back: not the loss of the Lease, not an API server
//! that is away.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::lease::Lease;
use super::reports::{NodeReports, read};
use super::request::{ApiServer, RequestError};
use crate::api::{Kind, ObjectRef, RouterNodeStatus};
use crate::desired::{Asked, NodeDrain};
use crate::source::Snapshot;
use crate::status::{announced, announces, is_drained, is_heard};
use crate::telemetry::chain;

/// Between two looks at the reports while another node is waited for.
const INTERVAL: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct Drainer {
    namespace: String,
    instance: String,
    node: String,
    ordered: watch::Sender<NodeDrain>,
    /// While this node is to drain, or does.
    lease: Option<Lease>,
    /// When the reports are read next.
    look_at: Instant,
    /// Why they cannot be.
    unread: Option<RequestError>,
}

impl Drainer {
    pub(super) fn new(namespace: &str, instance: &str, node: &str, ordered: watch::Sender<NodeDrain>) -> Self {
        let (namespace, instance, node) = (namespace.to_owned(), instance.to_owned(), node.to_owned());
        Self { namespace, instance, node, ordered, lease: None, look_at: Instant::now(), unread: None }
    }

    /// When [`Self::turn`] has something to do though nothing has changed.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let lease = self.lease.as_ref()?;
        let waits = lease.is_held() && !self.has_begun();
        Some(if waits { lease.deadline().min(self.look_at) } else { lease.deadline() })
    }

    /// Decides what is to be done now. `reported` is what the API server holds of this node, `announced` what it announces.
    pub(super) async fn turn(
        &mut self,
        server: &ApiServer,
        asked: Asked,
        snapshot: Option<&Snapshot>,
        reported: Option<&RouterNodeStatus>,
        announced: &[IpAddr],
    ) {
        match asked {
            Asked::Unknown if self.has_begun() => self.go_on(server, reported).await,
            Asked::Unknown | Asked::Nothing => {
                self.release(server).await;
                self.order(NodeDrain::None);
            }
            Asked::Leave(reason) if self.has_begun() => {
                self.order(NodeDrain::Drained { reason });
                self.go_on(server, reported).await;
            }
            Asked::Leave(reason) => match self.obstacle(server, snapshot, announced).await {
                Some(Obstacle::Same) => {}
                Some(Obstacle::Is(obstacle)) => self.order(NodeDrain::Waiting { reason, obstacle }),
                None => self.order(NodeDrain::Drained { reason }),
            },
        }
    }

    /// Gives the Lease up, where it is held.
    pub(super) async fn release(&mut self, server: &ApiServer) {
        self.unread = None;
        if let Some(mut lease) = self.lease.take() {
            lease.release(server).await;
        }
    }

    /// The right that is missing, if one is.
    pub(super) fn denied(&self) -> Option<String> {
        let of_lease = self.lease.as_ref().and_then(Lease::denied).map(ToOwned::to_owned);
        of_lease.or_else(|| self.unread.as_ref().and_then(RequestError::missing_right))
    }

    fn has_begun(&self) -> bool {
        matches!(*self.ordered.borrow(), NodeDrain::Drained { .. })
    }

    /// Keeps the Lease until the VIPs have left, and everybody can know.
    async fn go_on(&mut self, server: &ApiServer, reported: Option<&RouterNodeStatus>) {
        if reported.is_some_and(is_drained) {
            self.release(server).await;
        } else if let Some(lease) = self.lease.as_mut().filter(|lease| lease.deadline() <= Instant::now()) {
            lease.turn(server).await;
        }
    }

    /// What keeps this node from draining; `None` where nothing does any more.
    async fn obstacle(&mut self, server: &ApiServer, snapshot: Option<&Snapshot>, announced: &[IpAddr]) -> Option<Obstacle> {
        let name = format!("{}.drain", self.instance);
        let lease = self.lease.get_or_insert_with(|| Lease::new(&self.namespace, &name, &self.node));
        if lease.deadline() <= Instant::now() {
            lease.turn(server).await;
        }
        if !lease.is_held() {
            self.look_at = Instant::now();
            return Some(Obstacle::Is(match (lease.trouble(), lease.holder()) {
                (Some(trouble), _) => format!("it does not have the Lease {name}: {trouble}"),
                (None, Some(holder)) => format!("node {holder} is first, since nodes drain one after the other (Lease {name})"),
                (None, None) => format!("it does not have the Lease {name} yet"),
            }));
        }
        if Instant::now() < self.look_at {
            return Some(Obstacle::Same);
        }
        self.look_at = Instant::now() + INTERVAL;
        let read = read(server, &self.instance).await;
        self.unread = None;
        match read {
            Ok((reports, _)) => last_of(announced, &reports, &self.node, snapshot).map(Obstacle::Is),
            Err(error) => {
                let obstacle = format!("it is not known whether other router nodes announce: {}", chain(&error));
                self.unread = Some(error);
                Some(Obstacle::Is(obstacle))
            }
        }
    }

    fn order(&self, drain: NodeDrain) {
        if *self.ordered.borrow() == drain {
            return;
        }
        match &drain {
            NodeDrain::None => tracing::info!("nothing asks for the VIPs to leave this node any more"),
            NodeDrain::Waiting { reason, obstacle } => tracing::warn!(reason, obstacle, "to be drained, and waits: VIPs stay"),
            NodeDrain::Drained { reason } => tracing::info!(reason, "drained: VIPs leave this node until that is over"),
        }
        self.ordered.send_replace(drain);
    }
}

/// What keeps a node from draining.
enum Obstacle {
    /// What did when it was looked at last.
    Same,
    /// This.
    Is(String),
}

/// Of which of these VIPs this node is the last one. The report of another one does not count where its Node is gone, or not Ready.
fn last_of(here: &[IpAddr], reports: &NodeReports, node: &str, snapshot: Option<&Snapshot>) -> Option<String> {
    let object = |name: &str| ObjectRef { kind: Kind::Node, namespace: String::new(), name: name.to_owned() };
    let heard = |name: &str| is_heard(snapshot.and_then(|snapshot| snapshot.nodes.get(&object(name))).map(AsRef::as_ref));
    let others = reports.iter().filter(|(name, status)| *name != node && announces(status) && heard(name));
    let elsewhere: BTreeSet<IpAddr> = others.flat_map(|(_, status)| announced(status)).collect();
    if elsewhere.is_empty() {
        return Some("it is the last one: no other router node of this instance that is Ready announces VIPs".to_owned());
    }
    let mut only_here = here.iter().filter(|vip| !elsewhere.contains(vip));
    let first = only_here.next()?;
    let more = match only_here.count() {
        0 => String::new(),
        count => format!(" and {count} more of its VIPs"),
    };
    Some(format!("it is the last one for {first}{more}: no other router node of this instance that is Ready announces that"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ObjectCondition, VipGroup};
    use crate::source::dir::snapshot_of;

    fn report(announced: &[&str], ready: &str) -> RouterNodeStatus {
        let ready = ObjectCondition { kind: "Ready".to_owned(), status: ready.to_owned(), ..ObjectCondition::default() };
        let group = |state: &str, vips: &[&str]| VipGroup {
            state: state.to_owned(),
            addresses: vips.iter().map(|vip| vip.parse().unwrap()).collect(),
            ..VipGroup::default()
        };
        RouterNodeStatus {
            announced_count: u32::try_from(announced.len()).unwrap(),
            vips: vec![group("Announced", announced), group("Withheld", &["10.0.0.3"])],
            conditions: vec![ready],
            ..RouterNodeStatus::default()
        }
    }

    #[test]
    fn a_vip_stays_with_the_last_one_that_announces_it_and_is_heard() {
        let node = |name: &str, ready: &str| {
            format!(
                "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\nstatus: {{conditions: [{{type: Ready, status: {ready}}}]}}\n"
            )
        };
        let nodes = snapshot_of(&[node("n1", "\"True\""), node("n2", "\"True\""), node("n3", "Unknown")].concat());
        let (all, two) = (["10.0.0.1", "10.0.0.2", "10.0.0.3"], ["10.0.0.1", "10.0.0.2"]);
        let here = all.map(|vip| vip.parse().unwrap());
        let last = Some("it is the last one: ");
        for (name, announced, ready, expected) in [
            ("n2", &all[..], "True", None),
            ("n2", &two, "True", Some("it is the last one for 10.0.0.3: ")),
            ("n2", &two[..1], "True", Some("it is the last one for 10.0.0.2 and 1 more of its VIPs: ")),
            ("n2", &[], "True", last),
            // It drains, or stops.
            ("n2", &all, "False", last),
            // Its Node is not Ready.
            ("n3", &all, "True", last),
            // Its Node is gone.
            ("n4", &all, "True", last),
        ] {
            // Of itself the node has not reported everything yet.
            let reports = NodeReports::from([("n1".to_owned(), report(&[], "True")), (name.to_owned(), report(announced, ready))]);
            let found = last_of(&here, &reports, "n1", Some(&nodes));
            let begins = |words: &str| found.as_deref().is_some_and(|found| found.starts_with(words));
            assert!(expected.map_or_else(|| found.is_none(), begins), "{name} {announced:?} {ready}: {found:?}");
            assert!(last_of(&here, &reports, "n1", None).is_some(), "nothing is known of Nodes");
        }
    }
}
