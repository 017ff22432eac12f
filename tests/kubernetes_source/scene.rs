// SPDX-License-Identifier: Apache-2.0
//! A cluster with the definitions, the chart's rights and something to balance, and our source that follows it through the proxy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::time::timeout;
use vipherald::desired::LastGood;
use vipherald::source::kube::{Access, ApiHealth, Following, follow};
use vipherald::source::{Snapshot, Snapshots};

use crate::accounts::{ACCOUNTS, RIGHTS};
use crate::api_proxy::ApiProxy;
use crate::apiserver::ApiServer;
use crate::common::wait_until_async;

/// How long a condition may take on a machine that has other work.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A Service with an endpoint on a node, by hand: no controller runs.
const OBJECTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: enm}
---
apiVersion: v1
kind: Node
metadata: {name: node-1}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: enm}
spec: {externalIPs: [10.0.0.7], ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: enm, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.244.1.2], conditions: {ready: true}}]
"#;

/// See the module.
pub(crate) struct Scene {
    pub(crate) server: ApiServer,
    pub(crate) proxy: ApiProxy,
    token: String,
}

impl Scene {
    /// A cluster with all of it.
    pub(crate) async fn new() -> Self {
        let scene = Self::bare().await;
        let ended = scene.apply_definitions().await;
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        scene.apply(OBJECTS);
        scene
    }

    /// A cluster with nothing but the accounts and their rights.
    pub(crate) async fn bare() -> Self {
        let server = ApiServer::start();
        server.kubectl(&["apply", "-f", "-"], &format!("{RIGHTS}---{ACCOUNTS}"));
        let token = server.service_account_token("vip", "vipherald").await;
        let proxy = ApiProxy::start(&server);
        let scene = Self { server, proxy, token };
        scene.until_allowed("vipherald", "watch", "lvsingresses.routing.lvsingress.ericsson.com", true).await;
        scene.until_allowed("vipherald-crds", "create", "customresourcedefinitions.apiextensions.k8s.io", true).await;
        scene
    }

    /// `kubectl apply` as the administrator.
    pub(crate) fn apply(&self, manifest: &str) {
        self.server.kubectl(&["apply", "-f", "-"], manifest);
    }

    /// Adds a Service with this VIP.
    pub(crate) fn add_service(&self, name: &str, vip: &str) {
        let spec = json!({"externalIPs": [vip], "ports": [{"port": 80}]});
        self.apply(
            &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "enm"}, "spec": spec}).to_string(),
        );
    }

    /// Waits until the authorizer has the account's rights as they are.
    pub(crate) async fn until_allowed(&self, account: &str, verb: &str, resource: &str, allowed: bool) {
        let token = self.server.service_account_token("vip", account).await;
        let reviews = Api::<SelfSubjectAccessReview>::all(self.server.client(&token).await);
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        let of = |text: &str| Some(text.to_owned());
        let attributes = ResourceAttributes { verb: of(verb), resource: of(resource), group: of(group), ..ResourceAttributes::default() };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..SelfSubjectAccessReviewSpec::default() },
            ..SelfSubjectAccessReview::default()
        };
        wait_until_async(&format!("{account}: {verb} {resource} is {allowed}"), LIMIT, async || {
            let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
            answer.status.unwrap().allowed == allowed
        })
        .await;
    }

    /// `vipherald crds apply` with the rights of the hook.
    pub(crate) async fn apply_definitions(&self) -> Output {
        let token = self.server.service_account_token("vip", "vipherald-crds").await;
        let kubeconfig = self.file("crds.conf", &self.server.kubeconfig(&token));
        Command::new(env!("CARGO_BIN_EXE_vipherald")).args(["crds", "apply", "--kubeconfig"]).arg(kubeconfig).output().unwrap()
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.server.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Follows the cluster through the proxy, with the rights of the daemon.
    pub(crate) async fn follow(&self) -> Followed {
        let access = Access::Kubeconfig(self.file("daemon.conf", &self.proxy.kubeconfig(&self.token)));
        let (snapshots, following) = follow(access, std::collections::BTreeSet::new(), &LastGood::default()).await.unwrap();
        Followed { snapshots, following }
    }
}

/// What our source says.
pub(crate) struct Followed {
    pub(crate) snapshots: Snapshots,
    following: Following,
}

impl Followed {
    /// Waits for such a snapshot.
    pub(crate) async fn until(&mut self, what: &str, mut condition: impl FnMut(&Snapshot) -> bool) -> Arc<Snapshot> {
        let found = timeout(LIMIT, self.snapshots.wait_for(|snapshot| snapshot.as_deref().is_some_and(&mut condition))).await;
        found.unwrap_or_else(|_late| panic!("{what}: {:?}", self.following.health.borrow().troubles())).unwrap().clone().unwrap()
    }

    /// Waits for a Service of the namespace `enm`, or its end.
    pub(crate) async fn until_service(&mut self, name: &str, exists: bool) -> Arc<Snapshot> {
        self.until(&format!("Service {name}: {exists}"), |snapshot| services(snapshot).contains(&name) == exists).await
    }

    /// Waits until the server is known to be followed like this.
    pub(crate) async fn until_health(&mut self, what: &str, mut condition: impl FnMut(&ApiHealth) -> bool) -> Arc<ApiHealth> {
        let found = timeout(LIMIT, self.following.health.wait_for(|health| condition(health))).await;
        Arc::clone(&found.unwrap_or_else(|_late| panic!("{what}")).unwrap())
    }

    /// Waits until all kinds are followed.
    pub(crate) async fn until_well(&mut self) {
        self.until("all kinds are read", |_| true).await;
        self.until_health("all kinds are followed", |health| health.lost_since().is_none() && health.troubles().is_empty()).await;
    }
}

/// The Services of the namespace `enm`.
pub(crate) fn services(snapshot: &Snapshot) -> Vec<&str> {
    snapshot.services.keys().filter(|name| name.namespace == "enm").map(|name| name.name.as_str()).collect()
}

/// A file of the repository.
pub(crate) fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The documents of a YAML file.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}
