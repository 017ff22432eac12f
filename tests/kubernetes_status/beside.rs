// SPDX-License-Identifier: Apache-2.0
//! Two releases on one node, under traffic through the VIPs of the first one: the definitions are applied again, and over those of an older version, and the
//! second release is deleted as Helm does it, and installed again. The first one has nothing of all that.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::accounts::{ACCOUNTS, RIGHTS};
use crate::apiserver::block_on;
use crate::client::{Traffic, answer, bounded, short};
use crate::cluster::{Cluster, LIMIT, NFTABLES, OBJECTS, RouterNode, controllers, stays};
use crate::common::{Namespace, Process, wait_until};

const SERVED: [&str; 3] = ["True=Accepted", "True=Programmed", "True=Announced"];

/// Of [`OBJECTS`], and their endpoint.
const OURS: [&str; 3] = ["10.0.0.7", "10.0.0.8", "10.0.0.9"];
const OUR_ENDPOINT: &str = "10.244.1.2";

/// Of [`THEIR_OBJECTS`].
const THEIRS: [&str; 2] = ["10.0.0.17", "10.0.0.18"];
const THEIR_ENDPOINT: &str = "10.244.1.3";

/// What the second release serves.
const THEIR_OBJECTS: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: theirs, namespace: enm, labels: {vipherald.io/domain: other}}
spec: {externalIPs: [10.0.0.17], ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: theirs-1, namespace: enm, labels: {kubernetes.io/service-name: theirs}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.244.1.3], conditions: {ready: true}}]
---
apiVersion: routing.ericingress.ericsson.com/v1alpha1
kind: EricIngress
metadata: {name: theirs, namespace: enm, labels: {vipherald.io/domain: other}}
spec:
  virtualServiceIP: 10.0.0.18
  backends: {name: theirs, config: [{portRange: {vipPortRange: {start: 80, end: 80}, svcPortRange: {start: 80, end: 80}}}]}
"#;

/// What a release has beside its accounts and rights: its workload, and the account of the hook that takes it out.
const WORKLOAD: &str = r#"
apiVersion: v1
kind: ServiceAccount
metadata: {name: other-uninstall, namespace: other}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: other-uninstall}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: other-uninstall}
subjects: [{kind: ServiceAccount, name: other-uninstall, namespace: other}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: other-uninstall, namespace: other}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: other-uninstall}
subjects: [{kind: ServiceAccount, name: other-uninstall, namespace: other}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: other, namespace: other}
spec:
  selector: {matchLabels: {vipherald.io/instance: other}}
  template:
    metadata: {labels: {vipherald.io/instance: other}}
    spec:
      serviceAccountName: other
      tolerations: [{operator: Exists}]
      containers: [{name: vipherald, image: vipherald}]
"#;

/// The second release.
struct Other {
    node: RouterNode,
    /// All of its objects but the namespace.
    objects: String,
}

impl Other {
    /// Puts its objects into the cluster and starts its daemon on the node of the first one.
    fn install(cluster: &Cluster, first: &RouterNode) -> Self {
        let accounts = ACCOUNTS.replace("vipherald", "other").replace("vip}", "other}");
        let (namespace, accounts) = accounts.split_once("---\n").unwrap();
        cluster.apply(namespace);
        let rights = RIGHTS.replace("vipherald", "other").replace("other.io", "vipherald.io");
        let objects = format!("{accounts}---\n{rights}---{WORKLOAD}");
        Self::apply(cluster, &objects);
        let mut node = first.beside(cluster, ["other", "other"], "dataplane: {type: nftables}\ninstance: other\ndomain: other");
        node.drain_keys = ", workload: DaemonSet/other/other";
        let mut other = Self { node, objects };
        other.start(cluster);
        other
    }

    /// The Role has no namespace: it goes where the release is.
    fn apply(cluster: &Cluster, objects: &str) {
        cluster.server.kubectl(&["apply", "--namespace=other", "-f", "-"], objects);
    }

    fn install_again(&mut self, cluster: &Cluster) {
        Self::apply(cluster, &self.objects);
        // Those of before are of accounts that are gone.
        self.node.log_in(cluster);
        self.start(cluster);
    }

    /// What the kubelet does with the pod that the DaemonSet has.
    fn start(&mut self, cluster: &Cluster) {
        wait_until("the DaemonSet has its pod", LIMIT, || pod(cluster).is_some());
        let name = pod(cluster).unwrap();
        let target = json!({"apiVersion": "v1", "kind": "Node", "name": "n1"});
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
        let path = format!("/api/v1/namespaces/other/pods/{name}/binding");
        cluster.server.kubectl(&["create", "--raw", &path, "-f", "-"], &binding.to_string());
        self.node.start();
    }

    /// As Helm does it: the pre-delete hook first, then all objects. Gives what the hook has said.
    fn uninstall(&mut self, cluster: &Cluster) -> String {
        let mut hook = Command::new(env!("CARGO_BIN_EXE_vipherald"));
        hook.args(["uninstall", "--instance=other", "--workload=DaemonSet/other/other", "--timeout=60s", "--kubeconfig"]);
        let hook = Process::start(hook.arg(kubeconfig(cluster, "other-uninstall")));
        let name = pod(cluster).unwrap();
        let leaves = ["get", "pod", &name, "--namespace=other", "--output=jsonpath={.metadata.deletionTimestamp}"];
        wait_until("its pod is to end", LIMIT, || !cluster.try_kubectl(&leaves).is_empty());
        let daemon = self.node.daemon.take().unwrap();
        daemon.signal(Signal::SIGTERM);
        assert!(daemon.wait(LIMIT).success(), "{}", daemon.log());
        assert!(daemon.log().contains("DaemonSet other/other is being deleted"), "{}", daemon.log());
        cluster.server.kubectl(&["delete", "pod", &name, "--namespace=other", "--force", "--grace-period=0"], "");
        assert!(hook.wait(LIMIT).success(), "{}", hook.log());
        cluster.server.kubectl(&["delete", "--namespace=other", "--ignore-not-found", "-f", "-"], &self.objects);
        hook.log()
    }
}

/// The pod of its DaemonSet.
fn pod(cluster: &Cluster) -> Option<String> {
    let names = cluster.try_kubectl(&["get", "pods", "--namespace=other", "--output=jsonpath={.items[*].metadata.name}"]);
    names.split_whitespace().next().map(str::to_owned)
}

/// With the token of an account of the second release.
fn kubeconfig(cluster: &Cluster, account: &str) -> PathBuf {
    let token = block_on(async || cluster.server.service_account_token("other", account).await);
    let path = cluster.server.path(&format!("{account}.conf"));
    fs::write(&path, cluster.server.kubeconfig(&token)).unwrap();
    path
}

/// `vipherald crds apply`, as the hook of the second release does it; what became of each of the three.
fn apply_definitions(cluster: &Cluster) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vipherald"));
    let Output { status, stdout, stderr } =
        command.args(["crds", "apply", "--kubeconfig"]).arg(kubeconfig(cluster, "other-crds")).output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let said = String::from_utf8(stdout).unwrap();
    said.lines().map(|line| line.split_once(": ").unwrap().1.to_owned()).collect()
}

fn status(cluster: &Cluster, kind: &str, name: &str) -> Value {
    cluster.get(kind, name)["status"].clone()
}

/// What is said on the objects of the first release, and by its node.
fn all_said(cluster: &Cluster) -> Vec<Value> {
    let objects = [("service", "web"), ("ericingress", "eric"), ("lvsingress", "lvs"), ("routernode", "vipherald-n1")];
    objects.into_iter().map(|(kind, name)| status(cluster, kind, name)).collect()
}

/// Waits until a RouterNode says that all is well, with so many VIPs.
fn until_well(cluster: &Cluster, name: &str, announced: usize) {
    wait_until(&format!("{name} says that all is well"), LIMIT, || {
        let status = status(cluster, "routernode", name);
        let conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.filter(|condition| condition["status"] == "True").count() == 6 && status["announcedCount"] == announced
    });
}

/// The label of the Node that both releases want.
fn label(cluster: &Cluster) -> Value {
    cluster.get("node", "n1")["metadata"]["labels"]["externalIP"].clone()
}

/// The tables of nft on the node.
fn tables(node: &RouterNode) -> BTreeSet<String> {
    node.namespace.output(&["nft", "list", "tables"]).lines().map(str::to_owned).collect()
}

/// How many of these the node has.
fn vips_on(node: &RouterNode, vips: &[&str]) -> usize {
    let addresses = node.namespace.ip("-4 -o address show dev lo");
    vips.iter().filter(|vip| addresses.contains(&format!(" {vip}/32 "))).count()
}

/// A client behind the ToR of the node, and both endpoints on a link of it.
fn surroundings(node: &RouterNode) -> [Namespace; 2] {
    let [client, backend] = ["client", "backend"].map(Namespace::new);
    client.veth("eth0", &node.tor.namespace, "clients");
    client.ip("address add 10.98.0.2/24 dev eth0");
    node.tor.namespace.ip("address add 10.98.0.1/24 dev clients");
    node.tor.namespace.sysctl("net/ipv4/ip_forward", "1");
    client.ip("route add default via 10.98.0.1");
    node.namespace.ip("route add 10.98.0.0/24 via 10.99.0.2");
    backend.veth("eth0", &node.namespace, "pods");
    node.namespace.ip("address add 10.244.1.1/24 dev pods");
    for endpoint in [OUR_ENDPOINT, THEIR_ENDPOINT] {
        backend.ip(&format!("address add {endpoint}/24 dev eth0"));
    }
    answer(&backend, &[8080]);
    [client, backend]
}

/// Waits until each VIP of the second release is answered where its own ToR is.
fn until_theirs_answer(other: &Other) {
    other.node.until_learned(&THEIRS);
    for vip in THEIRS {
        let vip: SocketAddr = format!("{vip}:80").parse().unwrap();
        let ask = || other.node.tor.namespace.enter(async || bounded(short(vip)).await);
        wait_until(&format!("{vip} is answered"), LIMIT, || ask().is_ok_and(|endpoint| endpoint == THEIR_ENDPOINT));
    }
}

#[test]
fn a_release_has_nothing_of_what_happens_to_the_definitions_and_to_another_one_on_its_node() {
    let cluster = Cluster::new();
    let _controllers = controllers(&cluster);
    cluster.apply(OBJECTS);
    cluster.apply(THEIR_OBJECTS);
    let mut first = RouterNode::new(&cluster, "n1", NFTABLES);
    let address = r#"{"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]}}"#;
    cluster.server.kubectl(&["patch", "node", "n1", "--subresource=status", "--type=merge", "--patch", address], "");
    let [client, _backend] = surroundings(&first);
    // The other one comes first, so that all which both want is its.
    let mut other = Other::install(&cluster, &first);
    until_theirs_answer(&other);
    wait_until("the Node has its label", LIMIT, || label(&cluster) == "192.0.2.11");
    first.start();
    first.until_learned(&OURS);
    for (kind, name) in [("service", "web"), ("ericingress", "eric"), ("lvsingress", "lvs")] {
        cluster.until_conditions(kind, name, SERVED);
    }
    until_well(&cluster, "vipherald-n1", OURS.len());
    until_well(&cluster, "other-n1", THEIRS.len());

    let traffic = Traffic::to(&client, &OURS.map(|vip| format!("{vip}:80").parse().unwrap()));
    let (began, said, updates) = (Instant::now(), all_said(&cluster), first.tor.updates());
    let alone: BTreeSet<String> = tables(&first).into_iter().filter(|table| table.ends_with(" vipherald")).collect();
    assert!(alone.contains("table inet vipherald") && alone.contains("table ip vipherald"), "{alone:?}");
    let goes_on = |what: &str| {
        traffic.goes_on();
        {
            let tally = traffic.tally();
            assert!(tally.ended.is_empty() && tally.errors.is_empty(), "{what}: {:?} {:?}", tally.ended, tally.errors);
        }
        assert_eq!((first.tor.withdrawals(), first.tor.updates(), first.tor.sessions()), (0, updates, 1), "{what}");
        let written = first.written(began);
        assert!(written.is_empty(), "{what}: {written:?}");
        assert_eq!(label(&cluster), "192.0.2.11", "{what}");
    };
    goes_on("at rest");

    assert_eq!(apply_definitions(&cluster), ["unchanged"; 3]);
    goes_on("the definitions are applied again");
    cluster.take_announcing("ericingress", "eric");
    cluster.take_announcing("lvsingress", "lvs");
    cluster.take_field("routernodes.vipherald.io", "virtualRouters");
    goes_on("the definitions are those of an older version");
    assert_eq!(apply_definitions(&cluster), ["updated"; 3]);
    wait_until("all that was said is served again", LIMIT, || all_said(&cluster) == said);
    goes_on("the definitions are upgraded");
    assert_eq!(other.node.tor.withdrawals(), 0);

    for time in ["once", "again"] {
        let hook = other.uninstall(&cluster);
        assert!(hook.contains("RouterNodes of other: deleted\nLease other/other: deleted\nLease other/other.drain: deleted"), "{hook}");
        assert_eq!(tables(&first), alone);
        assert_eq!((vips_on(&first, &THEIRS), vips_on(&first, &OURS)), (0, OURS.len()));
        assert_eq!(other.node.tor.learned(), BTreeSet::new());
        assert_eq!(cluster.get("routernode", "other-n1"), Value::Null);
        assert_eq!(cluster.try_kubectl(&["get", "leases", "--namespace=other", "--output=name"]), "");
        goes_on(&format!("the other release is deleted {time}"));
        stays("it stays so", Duration::from_secs(2), || label(&cluster) == "192.0.2.11");

        other.install_again(&cluster);
        until_theirs_answer(&other);
        until_well(&cluster, "other-n1", THEIRS.len());
        goes_on(&format!("the other release is installed {time} more"));
    }
    assert_eq!(all_said(&cluster), said);
    assert_eq!(cluster.holder(), "n1");
    traffic.finish("another release comes and goes", &[]);
}
