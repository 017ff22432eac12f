// SPDX-License-Identifier: Apache-2.0
//! What is told of VIPs that go, of a node that leaves, and of one that stands by.

use super::*;

#[test]
fn a_graceful_shutdown_is_told() {
    let mut node = Node::serving();
    let desired = node.desired.as_mut().unwrap();
    (desired.lifecycle, desired.drain.graceful_shutdown) = (Lifecycle::Drain, Duration::from_secs(5));
    let words =
        "Withdrawing NodeDrains: the node is leaving; for 5s it is announced as the last resort (GRACEFUL_SHUTDOWN), then withdrawn";
    assert_eq!(node.seven().0, words, "it is about to be");
    let seven = |node: &Node| node.status(None).vips.into_iter().find(|vip| vip.address == ip("10.0.0.7")).unwrap();
    assert_eq!(seven(&node).graceful_shutdown, None);

    let tor = PeerView { told: node.rr1().told.clone(), is_current: false, ..established("10.211.1.254") };
    node.speaker.peers.insert("tor".to_owned(), tor);
    node.last_resorts.insert(prefix("10.0.0.7"), node.now + Duration::from_millis(3200));
    assert_eq!(node.seven().0, format!("{words}; so told: rr1; about to be told: tor"));
    let stage = GracefulShutdownStatus {
        peers: vec!["rr1".to_owned()],
        waiting: vec!["tor".to_owned()],
        withdrawn_at: (node.now + Duration::from_secs(3)).into(),
        withdrawn_in_seconds: 4,
    };
    assert_eq!(seven(&node).graceful_shutdown, Some(stage));
    let messages = |node: &Node| node.status(None).peers.iter().map(|peer| peer.routes[0].message.clone()).collect::<Vec<_>>();
    let last_resort = Some("the last resort, about to be withdrawn: GRACEFUL_SHUTDOWN (RFC 8326)".to_owned());
    assert_eq!(messages(&node), [last_resort, None]);

    node.now += Duration::from_secs(9);
    assert_eq!(seven(&node).graceful_shutdown.unwrap().withdrawn_in_seconds, 0, "it is about to be withdrawn");
    node.tell(&[]);
    assert_eq!(seven(&node).graceful_shutdown, None);
}

#[test]
fn a_node_in_standby_says_why_and_one_that_waits_serves() {
    let mut node = Node::serving();
    node.desired.as_mut().unwrap().lifecycle = Lifecycle::Standby;
    node.node_drain = NodeDrain::Drained { reason: "the Node is cordoned".to_owned() };
    assert_eq!(node.seven().0, "Withdrawing NodeDrained: the Node is cordoned; it is being withdrawn");
    node.tell(&[]);
    assert_eq!(
        node.seven().0,
        "Draining NodeDrained: the Node is cordoned; withdrawn; its address stays for 1s after that, until the fabric has moved its flows"
    );
    node.placements.clear();
    says(
        &node,
        "Withheld NodeDrained: the Node is cordoned",
        "Accepted=True/Accepted Programmed=False/NodeDrained Advertised=False/NodeDrained",
    );
    let warnings = Envelope::of(&node.status(None)).warnings;
    assert_eq!(warnings, ["drain: the Node is cordoned: VIPs are withdrawn and removed until that is over"]);

    let mut node = Node::serving();
    node.node_drain = NodeDrain::Waiting { reason: "the Node is cordoned".to_owned(), obstacle: "it is the last one".to_owned() };
    assert_eq!(node.seven().0, "Announced Served: announced to rr1");
    let warnings = Envelope::of(&node.status(None)).warnings;
    assert_eq!(warnings, ["drain: the Node is cordoned; VIPs stay all the same: it is the last one"]);
}

#[test]
fn the_way_out() {
    const CONDITIONS: &str = "Accepted=True/Accepted Programmed=False/NoEndpoints Advertised=False/NoEndpoints";
    let mut node = Node::serving();
    node.want("10.0.0.7", VipIntent::Withhold(WithholdReason::NoEndpoints));
    says(&node, "Withdrawing NoEndpoints: no endpoint of its Services is usable; it is being withdrawn", CONDITIONS);
    node.tell(&[]);
    node.speaker.withdrawing.insert(prefix("10.0.0.7"));
    node.rr1().withdrawing = Arc::new(BTreeSet::from([prefix("10.0.0.7")]));
    says(&node, "Withdrawing NoEndpoints: no endpoint of its Services is usable; rr1 has not acknowledged the withdrawal", CONDITIONS);
    node.speaker.withdrawing.clear();
    node.rr1().withdrawing = Arc::default();
    says(
        &node,
        "Draining NoEndpoints: no endpoint of its Services is usable; withdrawn; its address stays for 1s after that, until the fabric has moved its flows",
        CONDITIONS,
    );
    node.fail("10.0.0.7", "busy");
    says(
        &node,
        "Draining NoEndpoints: no endpoint of its Services is usable; its address cannot be removed: busy (tried 3 times)",
        CONDITIONS,
    );
    node.observed.failures.clear();
    node.desired.as_mut().unwrap().complete = false;
    says(&node, "Draining NoEndpoints: no endpoint of its Services is usable; its address stays until the source is complete", CONDITIONS);
    node.placements.clear();
    says(&node, "Withheld NoEndpoints: no endpoint of its Services is usable", CONDITIONS);
}

#[test]
fn nobody_asks_any_more() {
    let mut node = Node::serving();
    node.desired.as_mut().unwrap().vips.clear();
    says(
        &node,
        "Withdrawing NotRequested: no object asks for it any more; it is being withdrawn",
        "Accepted=False/NotRequested Programmed=False/NotRequested Advertised=False/NotRequested",
    );
    node.tell(&[]);
    node.placements.clear();
    assert_eq!(node.status(None).vips, [], "and then it is forgotten");
}
