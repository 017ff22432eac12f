// SPDX-License-Identifier: Apache-2.0
use std::time::{Duration, UNIX_EPOCH};

use super::*;
use crate::desired::Lifecycle;
use crate::status::tests::{Node, ip};

fn at(seconds: u64) -> Time {
    Time::from(UNIX_EPOCH + Duration::from_secs(1_795_824_000 + seconds))
}

fn conditions(status: &RouterNodeStatus) -> Vec<String> {
    status.conditions.iter().map(|condition| format!("{}={} {}", condition.kind, condition.status, condition.reason)).collect()
}

#[test]
fn a_node_that_serves() {
    let status = router_node_status(&Node::serving().status(None), &[], None, &[], false, at(60));
    assert_eq!((status.instance.as_str(), status.node.as_str(), status.mode.as_str()), ("vipherald", "node-1", "bgp"));
    assert_eq!((status.vip_count, status.announced_count), (1, 1));
    let group = VipGroup {
        state: "Announced".into(),
        programmed: "Unknown".into(),
        reason: "Served".into(),
        message: "announced to rr1".into(),
        peers: vec!["rr1".into()],
        addresses: vec![ip("10.0.0.7")],
    };
    assert_eq!(status.vips, [group]);
    assert_eq!((status.peers[0].established, status.peers[0].since.as_str()), (true, "2026-11-28T00:00:10Z"));
    let expected = [
        "Ready=True Serving",
        "PeersEstablished=True AllEstablished",
        "DataplaneProgrammed=True Programmed",
        "ApiFresh=True Complete",
        "ApiWritable=True Allowed",
        "ConfigurationInForce=True InForce",
    ];
    assert_eq!(conditions(&status), expected);
}

#[test]
fn an_eventful_node() {
    let denied = ["may not patch services/status".to_owned()];
    let status = router_node_status(&Node::eventful().status(None), &[], None, &denied, false, at(60));
    let groups: Vec<String> =
        status.vips.iter().map(|group| format!("{} {} {} {:?}", group.state, group.programmed, group.reason, group.addresses)).collect();
    assert_eq!(
        groups,
        [
            "Withheld False NoEndpoints [10.0.0.8]",
            "Pending False StepFailed [10.0.0.9]",
            "Announced Unknown Served [10.0.0.7]",
            "Announced Unknown WithoutEndpoints [2001:db8:7::7]",
            "Withdrawing False NotRequested [10.0.0.40]",
        ]
    );
    let expected = [
        "Ready=True Serving",
        "PeersEstablished=False SomeDown",
        "DataplaneProgrammed=False StepFailed",
        "ApiFresh=False Incomplete",
        "ApiWritable=False Forbidden",
        "ConfigurationInForce=False Invalid",
    ];
    assert_eq!(conditions(&status), expected);
}

#[test]
fn an_api_server_that_is_lost_for_a_moment_is_no_change() {
    let mut status = Node::serving().status(None);
    let first = router_node_status(&status, &[], None, &[], false, at(60));
    status.source.state = SourceState::Stale;
    "the API server is not followed".clone_into(&mut status.source.message);
    assert_eq!(router_node_status(&status, &[], Some(&first), &[], false, at(61)), first);
    for (before, is_lost) in [(Some(&first), true), (None, false)] {
        let said = router_node_status(&status, &[], before, &[], is_lost, at(70));
        assert!(conditions(&said).contains(&"ApiFresh=False Stale".to_owned()), "{:?}", conditions(&said));
    }
}

#[test]
fn what_is_tried_again_is_no_change() {
    let mut node = Node::eventful();
    let first = router_node_status(&node.status(None), &[], None, &[], false, at(60));
    for failure in node.observed.failures.values_mut() {
        failure.count += 1;
    }
    let tor = node.speaker.peers.get_mut("tor").unwrap();
    tor.state = "Active".into();
    tor.last_error.as_mut().unwrap().count += 1;
    assert_eq!(router_node_status(&node.status(None), &[], Some(&first), &[], false, at(99)), first);
}

#[test]
fn vips_of_which_the_same_is_to_be_said_are_one_group() {
    let mut node = Node::serving();
    for number in 0..5000_u32 {
        let reason = crate::desired::WithholdReason::NoEndpoints;
        node.want(&std::net::Ipv4Addr::from_bits(0x0a01_0000 + number).to_string(), crate::desired::VipIntent::Withhold(reason));
    }
    let status = router_node_status(&node.status(None), &[], None, &[], false, at(60));
    assert_eq!(status.vips.iter().map(|group| group.addresses.len()).collect::<Vec<_>>(), [5000, 1]);
    let octets = serde_json::to_vec(&status).unwrap().len();
    assert!(octets < 100_000, "{octets}");
}

#[test]
fn counts_are_left_out_of_messages() {
    assert_eq!(without_counts("a: no (tried 17 times); b (tried hard) (tried 2 times)"), "a: no; b (tried hard)");
}

#[test]
fn a_node_that_drains_is_no_other_announcer_and_is_drained_once_its_vips_have_left() {
    let ready = |node: &Node| {
        let status = router_node_status(&node.status(None), &[], None, &[], false, at(60));
        (conditions(&status)[0].clone(), announces(&status), is_drained(&status))
    };
    let mut node = Node::serving();
    assert_eq!(ready(&node), ("Ready=True Serving".to_owned(), true, false));
    node.node_drain = NodeDrain::Waiting { reason: "the Node is cordoned".to_owned(), obstacle: "it is the last one".to_owned() };
    assert_eq!(ready(&node), ("Ready=True DrainWaits".to_owned(), true, false));
    node.node_drain = NodeDrain::Drained { reason: "the Node is cordoned".to_owned() };
    node.desired.as_mut().unwrap().lifecycle = Lifecycle::Standby;
    assert_eq!(ready(&node), ("Ready=False NodeDraining".to_owned(), false, false));
    node.speaker.advertised = Some(std::sync::Arc::default());
    assert_eq!(ready(&node), ("Ready=False NodeDraining".to_owned(), false, false), "its address is there");
    node.placements.clear();
    assert_eq!(ready(&node), ("Ready=False NodeDrained".to_owned(), false, true));
}
