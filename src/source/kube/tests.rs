// SPDX-License-Identifier: Apache-2.0
//! The source against an API server of its own that can fail in every way.

mod fake_api;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::fake_api::{FakeApi, Fault};
use super::*;
use crate::source::Snapshots;

const DEADLINE: Duration = Duration::from_secs(20);

fn service(name: &str, external_ip: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"externalIPs": [external_ip], "ports": [{"port": 80}]}})
}

fn ingress(name: &str, vip: &str) -> Value {
    let range = json!({"start": 80, "end": 80});
    let config = json!([{"portRange": {"vipPortRange": range, "svcPortRange": range}}]);
    json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"virtualServiceIP": vip, "backends": {"name": "web", "config": config}}})
}

/// So many kinds have objects in [`cluster`].
const WITH_OBJECTS: usize = 4;

/// An API server with a Service, its slice, a node and a namespace.
async fn cluster() -> FakeApi {
    let api = FakeApi::start().await;
    api.put(Kind::Service, service("web", "10.0.0.7"));
    api.put(
        Kind::EndpointSlice,
        json!({"metadata": {"name": "web-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4", "endpoints": [{"addresses": ["10.1.0.1"]}]}),
    );
    api.put(Kind::Node, json!({"metadata": {"name": "node-1"}}));
    api.put(Kind::Namespace, json!({"metadata": {"name": "default"}}));
    api
}

struct Followed {
    snapshots: Snapshots,
    following: Following,
}

impl Followed {
    async fn new(api: &FakeApi) -> Self {
        Self::with(api, BTreeSet::new()).await
    }

    async fn with(api: &FakeApi, last_intent: BTreeSet<ObjectRef>) -> Self {
        let (snapshots, following) = follow(Access::Kubeconfig(api.kubeconfig()), last_intent, &LastGood::default()).await.unwrap();
        Self { snapshots, following }
    }

    async fn until(&mut self, what: &str, mut condition: impl FnMut(&Snapshot) -> bool) -> Arc<Snapshot> {
        let found = self.snapshots.wait_for(|snapshot| snapshot.as_deref().is_some_and(&mut condition));
        let found = tokio::time::timeout(DEADLINE, found).await;
        found.unwrap_or_else(|_late| panic!("{what}: {:?}", self.following.health.borrow().troubles())).unwrap().clone().unwrap()
    }

    async fn health(&mut self, what: &str, mut condition: impl FnMut(&ApiHealth) -> bool) -> Arc<ApiHealth> {
        let health = self.following.health.wait_for(|health| condition(health));
        let found = tokio::time::timeout(DEADLINE, health).await;
        Arc::clone(&found.unwrap_or_else(|_late| panic!("{what}")).unwrap())
    }

    async fn has(&mut self, names: &[&str]) -> Arc<Snapshot> {
        self.until(&format!("{names:?}"), |snapshot| snapshot.services.keys().map(|name| name.name.as_str()).eq(names.iter().copied()))
            .await
    }
}

fn is_well(health: &ApiHealth) -> bool {
    health.kinds.len() == Kind::ALL.len() && health.lost_since().is_none()
}

#[tokio::test]
async fn changes_arrive_at_once_and_what_did_not_change_is_shared() {
    let api = cluster().await;
    let mut followed = Followed::new(&api).await;
    let first = followed.has(&["web"]).await;
    assert!(first.complete);
    followed.health("followed", is_well).await;
    let begun = Instant::now();
    api.put(Kind::Service, service("other", "10.0.0.8"));
    let second = followed.has(&["other", "web"]).await;
    let elapsed = begun.elapsed();
    assert!(elapsed < Duration::from_millis(500), "{elapsed:?}");
    let (name, web) = first.services.first_key_value().unwrap();
    assert!(Arc::ptr_eq(web, &second.services[name]));
    api.remove(Kind::Service, "other");
    followed.has(&["web"]).await;
}

#[tokio::test]
async fn a_heartbeat_is_no_change() {
    let api = cluster().await;
    let node = |beat: u32| {
        let condition = json!([{"type": "Ready", "status": "True", "lastHeartbeatTime": format!("2026-11-28T12:00:{beat:02}Z")}]);
        json!({"metadata": {"name": "node-1", "annotations": {"x": beat.to_string()}}, "status": {"conditions": condition}})
    };
    api.put(Kind::Node, node(0));
    let mut followed = Followed::new(&api).await;
    let first = followed.has(&["web"]).await;
    followed.health("followed", is_well).await;
    (1..=10).for_each(|beat| api.put(Kind::Node, node(beat)));
    api.until_sent(10).await;
    api.put(Kind::Service, service("last", "10.0.0.9"));
    let last = followed.has(&["last", "web"]).await;
    let (name, node) = first.nodes.first_key_value().unwrap();
    assert!(Arc::ptr_eq(node, &last.nodes[name]));
}

#[tokio::test]
async fn each_fault_takes_nothing_away_and_is_over_soon_after_it_ends() {
    for fault in [
        Fault::Status(500, "broken"),
        Fault::Status(429, "busy"),
        Fault::Status(403, "forbidden"),
        Fault::Status(401, "expired"),
        Fault::Status(504, "Too large resource version"),
        Fault::Close,
        Fault::ErrorEvent(410),
        Fault::ErrorEvent(500),
        Fault::Garbage,
        Fault::EmptyLists,
    ] {
        let api = cluster().await;
        let mut followed = Followed::new(&api).await;
        followed.has(&["web"]).await;
        followed.health("followed", is_well).await;
        followed.snapshots.mark_unchanged();
        // Each kind once, and those with objects once more: empty lists are told four times in a row, over store::WINDOW, before they are believed.
        let wrong = api.failed() + u64::try_from(Kind::ALL.len() + WITH_OBJECTS).unwrap();
        api.fail(Some(fault));
        api.break_watches();
        followed.health(&format!("{fault:?} is noticed"), |health| health.lost_since().is_some()).await;
        api.put(Kind::Service, service("other", "10.0.0.8"));
        api.until_failed(wrong).await;
        let kept = followed.snapshots.borrow().clone().unwrap();
        assert!(kept.services.keys().any(|name| name.name == "web"), "{fault:?}");
        assert_eq!((kept.endpoint_slices.len(), kept.nodes.len(), kept.complete), (1, 1, true), "{fault:?}");
        api.fail(None);
        let ended = Instant::now();
        followed.has(&["other", "web"]).await;
        followed.health("followed again", is_well).await;
        assert!(ended.elapsed() < Duration::from_secs(5), "{fault:?}: {:?}", ended.elapsed());
    }
}

#[tokio::test]
async fn what_is_there_now_is_read_though_watches_are_silent() {
    let api = cluster().await;
    let access = Access::Kubeconfig(api.kubeconfig());
    let kinds = [Kind::Node, Kind::Service];
    let before = read_now(&access, &kinds).await.unwrap();
    assert_eq!((before.services.len(), before.nodes.len(), before.endpoint_slices.len(), before.complete), (1, 1, 0, true));
    api.put(Kind::Service, service("other", "10.0.0.8"));
    assert_eq!(read_now(&access, &kinds).await.unwrap().services.len(), 2);
    api.put(Kind::Service, json!({"metadata": {"name": "odd", "namespace": "default"}, "spec": 7}));
    assert!(!read_now(&access, &kinds).await.unwrap().complete, "what cannot be read is there");
    api.fail(Some(Fault::Status(500, "broken")));
    assert!(read_now(&access, &kinds).await.unwrap_err().to_string().contains("500"));
}

#[tokio::test]
async fn the_server_is_heeded_where_it_says_when_to_come_again() {
    let api = cluster().await;
    api.fail(Some(Fault::RetryAfter(3)));
    let begun = Instant::now();
    let mut followed = Followed::new(&api).await;
    let health = followed.health("refused", |health| health.troubles().iter().any(|trouble| trouble.contains("429"))).await;
    assert!(health.lost_since().is_some());
    api.fail(None);
    followed.has(&["web"]).await;
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_missing_right_is_named_and_holds_up_the_first_snapshot() {
    let api = cluster().await;
    api.fail_kind(Kind::EndpointSlice, Some(Fault::Status(403, "forbidden")));
    let mut followed = Followed::new(&api).await;
    let health = followed.health("refused", |health| health.troubles().iter().any(|trouble| trouble.contains("403"))).await;
    let trouble = health.troubles().into_iter().find(|trouble| trouble.contains("403")).unwrap();
    assert!(trouble.contains("the right to list endpointslices.discovery.k8s.io is missing"), "{trouble}");
    assert!(followed.snapshots.borrow().is_none());
    api.fail_kind(Kind::EndpointSlice, None);
    followed.has(&["web"]).await;
}

#[tokio::test]
async fn a_kind_that_is_not_installed_is_empty_until_it_is() {
    let api = cluster().await;
    api.fail_kind(Kind::EricIngress, Some(Fault::Status(404, "the server could not find the requested resource")));
    let mut followed = Followed::new(&api).await;
    assert!(followed.has(&["web"]).await.complete);
    let health = Arc::clone(&followed.following.health.borrow());
    assert!(health.troubles().iter().any(|trouble| trouble.contains("vipherald crds apply")), "{:?}", health.troubles());
    api.put(Kind::EricIngress, ingress("mscm", "10.0.0.9"));
    api.fail_kind(Kind::EricIngress, None);
    followed.until("installed", |snapshot| snapshot.eric_ingresses.len() == 1).await;
    // Gone again while something of it is in force.
    api.fail_kind(Kind::EricIngress, Some(Fault::Status(404, "the server could not find the requested resource")));
    api.break_watches();
    followed.health("lost", |health| health.lost_since().is_some()).await;
    assert_eq!(followed.snapshots.borrow().as_deref().unwrap().eric_ingresses.len(), 1);
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_rejected_and_its_last_good_content_stays() {
    let api = cluster().await;
    api.put(Kind::EricIngress, ingress("mscm", "10.0.0.9"));
    api.put(Kind::EricIngress, ingress("never", "no address"));
    let mut followed = Followed::new(&api).await;
    let snapshot = followed.has(&["web"]).await;
    assert_eq!((snapshot.eric_ingresses.len(), snapshot.rejections.len(), snapshot.complete), (1, 1, true));
    api.put(Kind::EricIngress, ingress("mscm", "10.0.0.9/32"));
    let snapshot = followed.until("rejected", |snapshot| snapshot.rejections.len() == 2).await;
    assert_eq!(snapshot.eric_ingresses.len(), 1);
    let message = &snapshot.rejections[0].message;
    assert!(message.contains("has a prefix length") && message.ends_with("its last good content stays in force"), "{message}");
    api.put(Kind::EricIngress, ingress("mscm", "10.0.0.10"));
    followed.until("mended", |snapshot| snapshot.rejections.len() == 1).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_at_the_start_is_waited_for() {
    let api = cluster().await;
    api.fail(Some(Fault::Close));
    let mut followed = Followed::new(&api).await;
    followed.health("lost", |health| health.troubles().iter().any(|trouble| trouble.contains("cannot be reached"))).await;
    assert!(followed.snapshots.borrow().is_none());
    api.fail(None);
    followed.has(&["web"]).await;
}

#[tokio::test]
async fn a_first_list_without_what_was_in_force_waits_for_others_that_agree() {
    let api = cluster().await;
    let owner = ObjectRef { kind: Kind::Service, namespace: "default".into(), name: "web".into() };
    api.fail_kind(Kind::Service, Some(Fault::EmptyLists));
    let mut followed = Followed::with(&api, BTreeSet::from([owner])).await;
    followed.health("doubted", |health| health.troubles().iter().any(|trouble| trouble.contains("until more lists agree"))).await;
    assert!(followed.snapshots.borrow().is_none());
    api.fail_kind(Kind::Service, None);
    followed.has(&["web"]).await;
}

#[tokio::test]
async fn most_objects_that_are_really_gone_go_when_lists_agree() {
    let api = cluster().await;
    let mut followed = Followed::new(&api).await;
    followed.has(&["web"]).await;
    followed.health("followed", is_well).await;
    api.forget(Kind::Service);
    let begun = Instant::now();
    followed.has(&[]).await;
    assert!(begun.elapsed() >= store::WINDOW, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn many_changes_are_few_snapshots() {
    let api = cluster().await;
    let mut followed = Followed::new(&api).await;
    followed.has(&["web"]).await;
    let mut count = followed.snapshots.clone();
    let counting = tokio::spawn(async move {
        let mut snapshots = 0;
        while count.changed().await.is_ok() {
            let snapshot: Option<Arc<Snapshot>> = count.borrow_and_update().clone();
            snapshots += 1;
            if snapshot.is_some_and(|snapshot| snapshot.services.len() == 1001) {
                break;
            }
        }
        snapshots
    });
    for number in 0..1000 {
        api.put(Kind::Service, service(&format!("s{number}"), "10.0.0.9"));
    }
    followed.until("all", |snapshot| snapshot.services.len() == 1001).await;
    let snapshots: u32 = tokio::time::timeout(DEADLINE, counting).await.unwrap().unwrap();
    assert!(snapshots < 100, "{snapshots} snapshots");
}
