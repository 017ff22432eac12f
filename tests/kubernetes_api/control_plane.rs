// SPDX-License-Identifier: Apache-2.0
//! The control plane is the real one: its controllers work, its RBAC refuses, and it forgets watches when it restarts.

use std::process::Command;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Error};
use serde_json::json;

use crate::apiserver::{ApiServer, ControlPlane, block_on, program};
use crate::common::{run, wait_until_async};

/// How long a controller or a cache of the API server may take.
const LIMIT: Duration = Duration::from_secs(60);

/// A Service and the pod behind it, as they are applied, and the pod's node, without which the controller leaves the pod out.
const SERVICE: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: node-1}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: endpoints}
spec:
  ipFamilyPolicy: PreferDualStack
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: endpoints, labels: {app: web}}
spec:
  nodeName: node-1
  containers: [{name: web, image: web}]
"#;

/// A ServiceAccount that may read Services in its namespace.
const READER: &str = r#"
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: rights}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: rights}
rules: [{apiGroups: [""], resources: [services], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: rights}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: rights}]
"#;

#[test]
fn a_ready_pod_becomes_an_endpoint_of_each_family() {
    let cluster = ControlPlane::shared();
    let server = cluster.server();
    block_on(async || server.namespace("endpoints").await);
    server.kubectl(&["apply", "-f", "-"], SERVICE);
    block_on(async || {
        let client = server.administrator().await;
        let pods = Api::<Pod>::namespaced(client.clone(), "endpoints");
        // As a kubelet reports.
        let status = json!({"status": {
            "phase": "Running",
            "podIP": "10.244.1.2",
            "podIPs": [{"ip": "10.244.1.2"}, {"ip": "fd00:10:244:1::2"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }});
        pods.patch_status("web-1", &PatchParams::default(), &Patch::Strategic(&status)).await.unwrap();

        let slices = Api::<EndpointSlice>::namespaced(client, "endpoints");
        let of_service = ListParams::default().labels("kubernetes.io/service-name=web");
        wait_until_async("both slices have the pod, ready", LIMIT, async || {
            let mut addresses: Vec<String> = Vec::new();
            for slice in slices.list(&of_service).await.unwrap() {
                for endpoint in slice.endpoints {
                    if endpoint.conditions.is_some_and(|conditions| conditions.ready == Some(true)) {
                        assert_eq!(endpoint.node_name.as_deref(), Some("node-1"));
                        addresses.extend(endpoint.addresses);
                    }
                }
            }
            addresses.sort();
            addresses == ["10.244.1.2", "fd00:10:244:1::2"]
        })
        .await;
    });
}

#[test]
fn a_service_account_may_do_what_is_bound_to_it_and_nothing_else() {
    let cluster = ControlPlane::shared();
    let server = cluster.server();
    block_on(async || server.namespace("rights").await);
    server.kubectl(&["apply", "-f", "-"], READER);
    block_on(async || {
        let token = server.service_account_token("rights", "reader").await;
        let client = server.client(&token).await;
        let services = Api::<Service>::namespaced(client.clone(), "rights");
        let all = ListParams::default();
        wait_until_async("the role has reached the authorizer", LIMIT, async || services.list(&all).await.is_ok()).await;

        assert_eq!(code(Api::<Service>::namespaced(client.clone(), "default").list(&all).await), Some(403));
        assert_eq!(code(Api::<Secret>::namespaced(client, "rights").list(&all).await), Some(403));
        let service: Service = serde_json::from_value(json!({"metadata": {"name": "new"}, "spec": {"ports": [{"port": 80}]}})).unwrap();
        assert_eq!(code(services.create(&PostParams::default(), &service).await), Some(403));
        let stranger = Api::<Service>::namespaced(server.client("no-such-token").await, "rights");
        assert_eq!(code(stranger.list(&all).await), Some(401));
    });
}

#[test]
fn a_restarted_server_has_its_objects_and_no_memory_of_watches() {
    let server = ApiServer::start();
    let (before, address) = block_on(async || {
        let services = Api::<Service>::namespaced(server.administrator().await, "default");
        let before = services.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
        (before, server.address())
    });
    server.kubectl(&["create", "service", "clusterip", "kept", "--tcp=80"], "");

    server.stop();
    block_on(async || {
        let services = Api::<Service>::namespaced(server.administrator().await, "default");
        let refused = services.list(&ListParams::default()).await.unwrap_err();
        assert!(matches!(refused, Error::Service(_) | Error::HyperError(_)), "{refused:?}");
    });
    server.resume();

    assert_eq!(server.address(), address);
    block_on(async || {
        let services = Api::<Service>::namespaced(server.administrator().await, "default");
        assert!(services.get_opt("kept").await.unwrap().is_some());
        let events: Vec<WatchEvent<Service>> =
            services.watch(&WatchParams::default().timeout(1), &before).await.unwrap().try_collect().await.unwrap();
        let [WatchEvent::Error(gone)] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(gone.code, 410);
    });
}

#[test]
fn the_programs_that_no_test_starts_here_run_too() {
    assert!(run(Command::new(program("kube-proxy")).arg("--version")).starts_with("Kubernetes v1."));
}

/// The HTTP status of a refusal.
pub(crate) fn code<T>(result: Result<T, Error>) -> Option<u16> {
    match result {
        Err(Error::Api(status)) => Some(status.code),
        _ => None,
    }
}
