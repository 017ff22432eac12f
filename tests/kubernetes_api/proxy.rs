// SPDX-License-Identifier: Apache-2.0
//! Every fault of the proxy, as a client of a real API server meets it.

use std::time::Duration;

use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use http::header::RETRY_AFTER;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, Error};
use tokio::time::timeout;

use super::control_plane::code;
use crate::api_proxy::{ApiProxy, Fault, Flow, Requests, Verb};
use crate::apiserver::{ControlPlane, block_on};
use crate::common::wait_until_async;

/// How long an answer may take that comes.
const LIMIT: Duration = Duration::from_secs(60);
/// How long is looked that no answer comes: far longer than one takes.
const SILENCE: Duration = Duration::from_millis(300);

/// A client of the proxy and a namespace for it, with one ConfigMap: those nobody else writes there.
struct Scene {
    proxy: ApiProxy,
    client: Client,
    maps: Api<ConfigMap>,
}

impl Scene {
    async fn new(cluster: &ControlPlane, namespace: &str) -> Self {
        cluster.server().namespace(namespace).await;
        let proxy = ApiProxy::start(cluster.server());
        let client = proxy.client("administrator").await;
        let maps = Api::namespaced(client.clone(), namespace);
        let scene = Self { proxy, client, maps };
        scene.add("first").await;
        scene
    }

    async fn add(&self, name: &str) -> ConfigMap {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        self.maps.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await.unwrap()
    }

    async fn list(&self) -> Result<Vec<String>, Error> {
        let list = self.maps.list(&ListParams::default()).await?;
        Ok(list.items.into_iter().filter_map(|map| map.metadata.name).collect())
    }

    /// The version of the list.
    async fn version(&self) -> String {
        self.maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap()
    }

    async fn watch(&self) -> impl Stream<Item = Result<WatchEvent<ConfigMap>, Error>> + Unpin {
        let version = self.version().await;
        self.maps.watch(&WatchParams::default(), &version).await.unwrap().boxed()
    }
}

/// The next thing that a watch says.
async fn next(
    events: &mut (impl Stream<Item = Result<WatchEvent<ConfigMap>, Error>> + Unpin),
) -> Option<Result<WatchEvent<ConfigMap>, Error>> {
    timeout(LIMIT, events.next()).await.expect("the watch says nothing")
}

fn added(event: Option<Result<WatchEvent<ConfigMap>, Error>>) -> String {
    match event {
        Some(Ok(WatchEvent::Added(map))) => map.metadata.name.unwrap(),
        other => panic!("{other:?}"),
    }
}

fn maps(verb: Verb) -> Requests {
    Requests::verb(verb).of("configmaps")
}

#[test]
fn what_no_fault_hits_passes() {
    let cluster = ControlPlane::shared();
    block_on(async || {
        let scene = Scene::new(&cluster, "passes").await;
        assert_eq!(scene.list().await.unwrap(), ["first"]);
        let mut events = scene.watch().await;
        scene.add("second").await;
        assert_eq!(added(next(&mut events).await), "second");
        let stranger = Api::<ConfigMap>::namespaced(scene.proxy.client("no-such-token").await, "passes");
        assert_eq!(code(stranger.list(&ListParams::default()).await), Some(401));

        let asked: Vec<Verb> = scene.proxy.seen().into_iter().map(|seen| seen.verb).collect();
        assert_eq!(asked, [Verb::Create, Verb::List, Verb::List, Verb::Watch, Verb::Create, Verb::List]);
        let first = scene.proxy.seen().into_iter().next().unwrap();
        assert_eq!((first.resource.as_str(), first.namespace.as_deref(), first.name), ("configmaps", Some("passes"), None));
    });
}

#[test]
fn a_status_hits_the_chosen_requests_as_often_as_told() {
    let cluster = ControlPlane::shared();
    block_on(async || {
        let scene = Scene::new(&cluster, "statuses").await;
        for status in [403, 410, 500] {
            scene.proxy.fault_times(2, maps(Verb::List), Fault::Status(status));
            assert_eq!(code(scene.list().await), Some(status));
            let services = Api::<Service>::namespaced(scene.client.clone(), "statuses");
            services.list(&ListParams::default()).await.unwrap();
            assert_eq!(code(scene.list().await), Some(status));
            assert_eq!(scene.list().await.unwrap(), ["first"]);
        }
        scene.proxy.fault(Requests::all(), Fault::Status(500));
        assert_eq!(code(scene.list().await), Some(500));
        scene.proxy.heal();
        assert_eq!(scene.list().await.unwrap(), ["first"]);
    });
}

#[test]
fn too_many_requests_tells_when_to_come_again() {
    let cluster = ControlPlane::shared();
    block_on(async || {
        let scene = Scene::new(&cluster, "too-many").await;
        scene.proxy.fault(maps(Verb::List), Fault::TooManyRequests { retry_after: 7 });
        let request = http::Request::get("/api/v1/namespaces/too-many/configmaps").body(kube::client::Body::empty()).unwrap();
        let answer = scene.client.send(request).await.unwrap();
        assert_eq!(answer.status(), 429);
        assert_eq!(answer.headers().get(RETRY_AFTER).unwrap(), "7");
    });
}

#[test]
fn a_false_empty_list_has_a_true_version() {
    let cluster = ControlPlane::shared();
    block_on(async || {
        let scene = Scene::new(&cluster, "empty").await;
        let version = scene.version().await;
        scene.proxy.fault_times(2, maps(Verb::List), Fault::EmptyList);
        let list = scene.maps.list(&ListParams::default()).await.unwrap();
        assert!(list.items.is_empty());
        assert!(list.metadata.resource_version.unwrap().parse::<u64>().unwrap() >= version.parse().unwrap());
        assert!(scene.list().await.unwrap().is_empty());
        assert_eq!(scene.list().await.unwrap(), ["first"]);
    });
}

#[test]
fn a_stalled_request_gets_nothing_until_the_proxy_is_healed() {
    let cluster = ControlPlane::shared();
    block_on(async || {
        let scene = Scene::new(&cluster, "stalled").await;
        scene.proxy.fault(maps(Verb::List), Fault::Stall);
        let mut list = Box::pin(scene.list());
        assert!(timeout(SILENCE, &mut list).await.is_err());
        scene.proxy.heal();
        assert_eq!(code(timeout(LIMIT, list).await.unwrap()), None);
        assert_eq!(scene.list().await.unwrap(), ["first"]);
    });
}

#[test]
fn a_proxy_that_is_away_refuses_and_breaks_what_is_open() {
    let cluster = ControlPlane::shared();
    block_on(async || {
        let scene = Scene::new(&cluster, "away").await;
        let mut events = scene.watch().await;
        for _ in 0..3 {
            scene.proxy.go_away();
            let refused = tokio::net::TcpStream::connect(scene.proxy.address()).await.unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
            scene.proxy.come_back();
            assert_eq!(scene.list().await.unwrap(), ["first"]);
        }
        let broken = next(&mut events).await;
        // kube tells an answer that was cut off as an error or, in the middle of a chunk, as the end.
        assert!(matches!(broken, Some(Err(_)) | None), "{broken:?}");
    });
}

#[test]
fn a_watch_breaks_ends_or_is_held() {
    let cluster = ControlPlane::shared();
    block_on(async || {
        let scene = Scene::new(&cluster, "streams").await;
        let mut events = scene.watch().await;
        assert_eq!(scene.proxy.streams(&Requests::verb(Verb::Watch).of("services"), Flow::Break), 0);
        assert_eq!(scene.proxy.streams(&maps(Verb::Watch), Flow::Break), 1);
        let broken = next(&mut events).await;
        // kube tells an answer that was cut off as an error or, in the middle of a chunk, as the end.
        assert!(matches!(broken, Some(Err(_)) | None), "{broken:?}");

        let mut events = scene.watch().await;
        assert_eq!(scene.proxy.streams(&maps(Verb::Watch), Flow::End), 1);
        let ended = next(&mut events).await;
        assert!(ended.is_none(), "{ended:?}");

        let mut events = scene.watch().await;
        assert_eq!(scene.proxy.streams(&maps(Verb::Watch), Flow::Hold), 1);
        scene.add("held").await;
        assert!(timeout(SILENCE, events.next()).await.is_err());
        scene.proxy.streams(&maps(Verb::Watch), Flow::Pass);
        assert_eq!(added(next(&mut events).await), "held");
    });
}

#[test]
fn a_watch_is_told_that_its_version_is_gone() {
    let cluster = ControlPlane::shared();
    block_on(async || {
        let scene = Scene::new(&cluster, "expired").await;
        scene.proxy.fault_times(1, maps(Verb::Watch), Fault::Expired);
        let events: Vec<WatchEvent<ConfigMap>> = scene.watch().await.try_collect().await.unwrap();
        let [WatchEvent::Error(gone)] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(gone.code, 410);
        let mut events = scene.watch().await;
        scene.add("after").await;
        assert_eq!(added(next(&mut events).await), "after");
    });
}

#[test]
fn a_watch_from_another_version_tells_the_past_again() {
    let cluster = ControlPlane::shared();
    block_on(async || {
        let scene = Scene::new(&cluster, "past").await;
        let before = scene.version().await;
        scene.add("second").await;
        scene.proxy.fault(maps(Verb::Watch), Fault::ResourceVersion(before));
        let mut events = scene.watch().await;
        assert_eq!(added(next(&mut events).await), "second");
        wait_until_async("the watch is under way", LIMIT, async || scene.proxy.streams(&maps(Verb::Watch), Flow::Pass) == 1).await;
    });
}
