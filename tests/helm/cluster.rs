// SPDX-License-Identifier: Apache-2.0
//! Releases in a real API server with the real controllers: what is installed, what an upgrade keeps, what an uninstallation leaves.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::apiserver::{ApiServer, ControlPlane, program};
use crate::chart::{chart, helm, objects, render, root, values_files};
use crate::common::wait_until;
use crate::kubelet::{Kubelet, Router};

/// How long a condition may take on a machine that has other work.
const LIMIT: Duration = Duration::from_secs(90);

/// What a user has: they are there before and after every release.
const OBJECTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: enm}
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

/// One of the kinds that come with the first release.
const INGRESS: &str = r#"
apiVersion: routing.ericingress.ericsson.com/v1alpha1
kind: EricIngress
metadata: {name: eric, namespace: enm}
spec:
  virtualServiceIP: 10.0.0.8
  backends: {name: web, config: [{portRange: {vipPortRange: {start: 80, end: 80}, svcPortRange: {start: 80, end: 80}}}]}
"#;

/// A PodMonitor, as far as the chart has one: the operator is not there.
const POD_MONITORS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: podmonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: PodMonitor, plural: podmonitors}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
"#;

/// `helm` with the cluster of a server.
fn helm_at(server: &ApiServer, words: &[&str]) -> Output {
    helm().env("KUBECONFIG", server.administrator_kubeconfig()).env("HELM_CACHE_HOME", server.path("helm")).args(words).output().unwrap()
}

/// The same, and it must succeed.
fn succeed(server: &ApiServer, words: &[&str]) -> String {
    let output = helm_at(server, words);
    assert!(output.status.success(), "helm {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A values file with the configuration of a node that speaks to its ToR and balances on a kernel without IPVS.
fn values(server: &ApiServer, name: &str, more: &Value) -> String {
    let peer = json!({"name": "tor", "address": "10.99.0.2", "asn": 65001, "timers": {"hold": "9s", "connectRetry": "1s"}});
    let mut values = json!({
        "workload": {"minReadySeconds": 0},
        "config": {
            "node": {"externalInterface": "eth0"},
            "vips": {"allow": [{"prefix": "10.0.0.0/24"}]},
            "dataplane": {"type": "nftables"},
            "bgp": {"asn": 65001, "peers": [peer]},
            "drain": {"fabricDelay": "100ms", "timeout": "5s"},
            "log": {"format": "text"},
        },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        values[key] = value.clone();
    }
    let path = server.path(name);
    fs::write(&path, values.to_string()).unwrap();
    path.display().to_string()
}

/// `KIND/NAME` of what is there of these kinds, in all namespaces.
fn present(server: &ApiServer, kinds: &str) -> BTreeSet<String> {
    server.kubectl(&["get", kinds, "-A", "-o", "name"], "").lines().map(str::to_owned).collect()
}

/// What a release has in the cluster beside the objects that Helm knows.
const OF_DAEMONS: &str = "routernodes.vipherald.io,leases.coordination.k8s.io";

/// The kinds of a release.
const OF_RELEASES: &str =
    "daemonsets,statefulsets,configmaps,serviceaccounts,clusterroles,clusterrolebindings,roles,rolebindings,jobs,poddisruptionbudgets";

/// What of a release there is.
fn of_vipherald(server: &ApiServer, kinds: &str) -> BTreeSet<String> {
    present(server, kinds).into_iter().filter(|name| name.contains("vipherald")).collect()
}

#[test]
fn a_release_serves_is_upgraded_and_leaves_nothing() {
    let plane = Arc::new(ControlPlane::start());
    let server = plane.server();
    let router = Arc::new(Router::new(server, "n1"));
    let kubelet = Kubelet::start(&plane, &[Arc::clone(&router)]);
    server.kubectl(&["apply", "-f", "-"], OBJECTS);
    let (chart, values) = (chart().display().to_string(), values(server, "values.json", &json!({})));

    let notes = succeed(server, &["install", "vipherald", &chart, "-n", "routing", "--create-namespace", "-f", &values]);
    assert!(notes.contains("kubectl get routernodes -l vipherald.io/instance=vipherald"), "{notes}");
    server.kubectl(&["apply", "-f", "-"], INGRESS);
    let vips = BTreeSet::from(["10.0.0.7".parse().unwrap(), "10.0.0.8".parse().unwrap()]);
    wait_until("the VIPs are announced", LIMIT, || router.tor.learned() == vips);
    wait_until("the node says so", LIMIT, || {
        let ready = "-o=jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].status}{.items[*].status.announcedCount}";
        server.kubectl(&["get", "routernodes", "-l", "vipherald.io/instance=vipherald", ready], "") == "True2"
    });
    let hooks = |suffix: &str| of_vipherald(server, OF_RELEASES).into_iter().filter(|name| name.ends_with(suffix)).count();
    assert_eq!(hooks("-crds"), 0, "a hook that has succeeded leaves nothing");

    let before = present(server, "services,ericingresses,customresourcedefinitions");
    let ended = kubelet.ended().len();
    succeed(server, &["upgrade", "vipherald", &chart, "-n", "routing", "-f", &values, "--set-string", "image.tag=next"]);
    wait_until("the pod is replaced", LIMIT, || kubelet.ended().iter().skip(ended).any(|ended| !ended.left.is_empty()));
    let replaced = kubelet.ended().into_iter().skip(ended).find(|ended| !ended.left.is_empty()).unwrap();
    assert!(replaced.left.contains("10.0.0.7/32") && replaced.left.contains("10.0.0.8/32"), "it kept its VIPs: {}", replaced.left);
    assert!(replaced.said.contains("is to start it again on this node"), "{}", replaced.said);
    wait_until("the next one announces them", LIMIT, || router.tor.sessions() == 2 && router.tor.learned() == vips);
    assert_eq!(present(server, "services,ericingresses,customresourcedefinitions"), before);

    let ended = kubelet.ended().len();
    succeed(server, &["uninstall", "vipherald", "-n", "routing"]);
    let daemon = kubelet.ended().into_iter().skip(ended).find(|ended| !ended.left.is_empty()).expect("the pod ended before helm did");
    assert!(!daemon.left.contains("10.0.0."), "{}\n{}", daemon.left, daemon.said);
    assert!(daemon.said.contains("DaemonSet routing/vipherald is being deleted"), "{}", daemon.said);
    assert_eq!(router.namespace.output(&["nft", "list", "tables"]), "");
    assert_eq!(router.tor.learned(), BTreeSet::new());
    assert_eq!(of_vipherald(server, OF_RELEASES), BTreeSet::new());
    assert_eq!(of_vipherald(server, OF_DAEMONS), BTreeSet::new());
    assert_eq!(server.kubectl(&["get", "node", "n1", "-o", "jsonpath={.metadata.labels.externalIP}"], ""), "");
    assert_eq!(present(server, "services,ericingresses,customresourcedefinitions"), before, "definitions and objects stay");
}

/// What only the daemon knows to be a mistake.
#[test]
fn a_configuration_with_a_mistake_is_not_installed() {
    let plane = Arc::new(ControlPlane::start());
    let server = plane.server();
    let kubelet = Kubelet::start(&plane, &[]);
    let (chart, values) = (chart().display().to_string(), values(server, "values.json", &json!({})));
    let mistake = ["--set", "config.bgp.peers[0].timers.hold=2s"];
    let release = ["vipherald", &chart, "-n", "routing", "-f", &values];
    for verb in [&["install", "--create-namespace"][..], &["upgrade", "--install"]] {
        let output = helm_at(server, &[verb, &release, &mistake].concat());
        assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("vipherald-check"), "{output:?}");
        let said = kubelet.ended().pop().unwrap().said;
        assert!(said.contains("bgp.peers[0].timers.hold: expected a hold time"), "{said}");
        assert_eq!(
            present(server, "customresourcedefinitions,daemonsets,clusterroles").iter().find(|name| name.contains("vipherald")),
            None
        );
    }
    succeed(server, &[&["upgrade", "--install"][..], &release].concat());
}

/// Its pods would be replaced by some that do not know what those have placed.
#[test]
fn an_upgrade_does_not_rename_an_instance() {
    let plane = Arc::new(ControlPlane::start());
    let server = plane.server();
    let _kubelet = Kubelet::start(&plane, &[]);
    let (chart, values) = (chart().display().to_string(), values(server, "values.json", &json!({})));
    let release = ["upgrade", "--install", "vipherald", &chart, "-n", "routing", "--create-namespace", "-f", &values];
    succeed(server, &release);
    let renamed = helm_at(server, &[&release[..], &["--set", "config.instance=other"]].concat());
    let said = String::from_utf8_lossy(&renamed.stderr);
    assert!(!renamed.status.success() && said.contains("the release is the instance \"vipherald\" and cannot become \"other\""), "{said}");
    succeed(server, &[&release[..], &["--set", "config.instance=vipherald"]].concat());
}

#[test]
fn a_change_of_the_configuration_is_followed_by_the_pods_that_run() {
    let plane = Arc::new(ControlPlane::start());
    let server = plane.server();
    let router = Arc::new(Router::new(server, "n1"));
    let kubelet = Kubelet::start(&plane, &[Arc::clone(&router)]);
    server.kubectl(&["apply", "-f", "-"], OBJECTS);
    let (chart, values) = (chart().display().to_string(), values(server, "values.json", &json!({})));
    let release = ["upgrade", "--install", "vipherald", &chart, "-n", "routing", "--create-namespace", "-f", &values];
    let none = BTreeSet::new();
    let vips = BTreeSet::from(["10.0.0.7".parse().unwrap()]);
    for (more, expected) in [(&[][..], &vips), (&["--set-json", "config.vips.allow=[]"], &none), (&[], &vips)] {
        succeed(server, &[&release[..], more].concat());
        wait_until(&format!("{more:?} is in force"), LIMIT, || router.tor.learned() == *expected);
    }
    assert_eq!(router.tor.sessions(), 1, "the session goes on");
    assert!(kubelet.ended().iter().all(|ended| ended.left.is_empty()), "no pod is replaced");
}

/// The same nodes, with the other kind of workload.
#[test]
fn a_release_becomes_a_stateful_set_and_a_daemon_set_again() {
    let plane = Arc::new(ControlPlane::start());
    let server = plane.server();
    let router = Arc::new(Router::new(server, "n1"));
    let kubelet = Kubelet::start(&plane, &[Arc::clone(&router)]);
    server.kubectl(&["apply", "-f", "-"], OBJECTS);
    let (chart, values) = (chart().display().to_string(), values(server, "values.json", &json!({})));
    let vips = BTreeSet::from(["10.0.0.7".parse().unwrap()]);
    // A pod of the StatefulSet may have heard already that it is to be one of a DaemonSet, which has this node, too: then it leaves all to its successor.
    for (sessions, kind, drains) in [(1, "DaemonSet", false), (2, "StatefulSet", true), (3, "DaemonSet", false)] {
        let kind = format!("workload.kind={kind},workload.replicas=1");
        let before = kubelet.ended().len();
        let words = ["upgrade", "--install", "vipherald", &chart, "-n", "routing", "--create-namespace", "-f", &values, "--set", &kind];
        succeed(server, &words);
        wait_until(&format!("{kind} announces"), LIMIT, || router.tor.sessions() == sessions && router.tor.learned() == vips);
        if drains {
            let ended = kubelet.ended().into_iter().skip(before).find(|ended| !ended.left.is_empty()).unwrap();
            assert!(!ended.left.contains("10.0.0.7"), "the one before has left: {}\n{}", ended.left, ended.said);
        }
    }
}

#[test]
fn two_releases_come_and_go_in_any_order() {
    let plane = Arc::new(ControlPlane::start());
    let server = plane.server();
    let _kubelet = Kubelet::start(&plane, &[]);
    let chart = chart().display().to_string();
    let [one, two] = [("one", 9479), ("two", 9480)].map(|(name, port)| {
        let config = json!({"domain": name, "vips": {"allow": []}, "bgp": {"asn": 65001}, "http": {"address": format!("0.0.0.0:{port}")}});
        values(server, name, &json!({"config": config}))
    });
    let install = |name: &str, values: &str| {
        succeed(server, &["install", name, &chart, "-n", name, "--create-namespace", "-f", values]);
        present(server, OF_RELEASES).into_iter().filter(|object| object.contains(&format!("{name}-vipherald"))).collect::<BTreeSet<_>>()
    };
    let (first, second) = (install("one", &one), install("two", &two));
    assert!(first.len() >= 9 && first.len() == second.len(), "{first:?}\n{second:?}");
    let definitions = present(server, "customresourcedefinitions");
    assert_eq!(definitions.len(), 3, "{definitions:?}");
    server.kubectl(&["apply", "-f", "-"], &format!("{OBJECTS}---{INGRESS}"));

    succeed(server, &["uninstall", "one", "-n", "one"]);
    let left = present(server, OF_RELEASES);
    assert!(second.is_subset(&left), "the second one misses {:?}", second.difference(&left));
    assert_eq!(install("one", &one), first);
    succeed(server, &["uninstall", "two", "-n", "two"]);
    succeed(server, &["upgrade", "one", &chart, "-n", "one", "-f", &one]);
    assert!(first.is_subset(&present(server, OF_RELEASES)));
    succeed(server, &["uninstall", "one", "-n", "one"]);
    assert_eq!(of_vipherald(server, OF_RELEASES), BTreeSet::new());
    assert_eq!(present(server, "customresourcedefinitions"), definitions);
    assert!(present(server, "ericingresses").contains("ericingress.routing.ericingress.ericsson.com/eric"));
}

/// Two with one name in two namespaces would be one instance on a node.
#[test]
fn a_second_release_of_one_instance_is_refused_by_name() {
    let plane = Arc::new(ControlPlane::start());
    let server = plane.server();
    let _kubelet = Kubelet::start(&plane, &[]);
    let (chart, values) = (chart().display().to_string(), values(server, "values.json", &json!({})));
    succeed(server, &["install", "vipherald", &chart, "-n", "one", "--create-namespace", "-f", &values]);
    let refused = helm_at(server, &["install", "vipherald", &chart, "-n", "two", "--create-namespace", "-f", &values]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("ClusterRole \"vipherald\""), "{said}");
}

/// Every object of every values file, with all that is off.
#[test]
fn the_api_server_takes_every_object() {
    let plane = ControlPlane::start();
    let server = plane.server();
    server.kubectl(&["create", "namespace", "routing"], "");
    server.kubectl(&["apply", "-f", "-"], POD_MONITORS);
    server.kubectl(&["wait", "--for=condition=Established", "crd/podmonitors.monitoring.coreos.com"], "");
    for (name, values) in values_files() {
        let more = "nodeSetup.enabled=true,realtime=true,podMonitor.enabled=true,externalIPPolicy.enabled=true";
        for words in [&[][..], &["--set", more]] {
            let text = render(&values, words);
            let taken = server.kubectl(
                &["apply", "--server-side", "--dry-run=server", "--validate=strict", "--field-manager=helm", "-n", "routing", "-f", "-"],
                &text,
            );
            assert_eq!(taken.lines().count(), objects(&text).len(), "{name}: {taken}");
            assert!(taken.lines().all(|line| line.ends_with("serverside-applied (server dry run)")), "{name}: {taken}");
        }
    }
}

#[test]
fn the_rights_of_the_pod_are_those_of_the_tests() {
    let plane = Arc::new(ControlPlane::start());
    let server = plane.server();
    let _kubelet = Kubelet::start(&plane, &[]);
    let (chart, values) = (chart().display().to_string(), values(server, "values.json", &json!({})));
    succeed(server, &["install", "vipherald", &chart, "-n", "routing", "--create-namespace", "-f", &values]);
    server.kubectl(&["apply", "-f", "-"], crate::accounts::ACCOUNTS.replace("name: vipherald", "name: tests").as_str());
    let rights = crate::accounts::RIGHTS.replace("name: vipherald", "name: tests");
    server.kubectl(&["apply", "--namespace=vip", "-f", "-"], &rights);
    let may = |namespace: &str, account: &str| {
        let account = format!("--as=system:serviceaccount:{namespace}:{account}");
        server.kubectl(&["auth", "can-i", "--list", "-n", namespace, &account], "")
    };
    wait_until("both may do the same", LIMIT, || may("routing", "vipherald") == may("vip", "tests"));
    assert!(may("routing", "vipherald").contains("routernodes.vipherald.io"));
}

#[test]
fn addresses_that_nobody_allowed_are_refused_to_services() {
    let plane = Arc::new(ControlPlane::start());
    let server = plane.server();
    let _kubelet = Kubelet::start(&plane, &[]);
    server.kubectl(&["create", "namespace", "enm"], "");
    server.kubectl(&["create", "namespace", "other"], "");
    let service = |name: &str, addresses: &str| {
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{externalIPs: [{addresses}], ports: [{{port: 80}}]}}}}"
        )
    };
    server.kubectl(&["apply", "-n", "other", "-f", "-"], &service("old", "203.0.113.1"));
    let allow = json!([{"prefix": "10.0.0.0/24"}, {"prefix": "2001:db8:7::/64", "namespaces": ["enm"]}]);
    let policy = json!({
        "config": {"vips": {"allow": allow}, "bgp": {"asn": 65001}},
        "externalIPPolicy": {"enabled": true, "allow": [{"prefix": "10.9.0.0/16"}]},
    });
    let values = values(server, "policy", &policy);
    succeed(server, &["install", "vipherald", &chart().display().to_string(), "-n", "routing", "--create-namespace", "-f", &values]);
    let apply = |namespace: &str, text: &str, words: &[&str]| {
        let file = server.path("service.yaml");
        fs::write(&file, text).unwrap();
        let mut command = Command::new(program("kubectl"));
        command.env("KUBECONFIG", server.administrator_kubeconfig()).env("KUBECACHEDIR", server.path("kubectl"));
        let output = command.args(["apply", "-n", namespace, "-f"]).arg(file).args(words).output().unwrap();
        if output.status.success() { String::new() } else { String::from_utf8(output.stderr).unwrap() }
    };
    wait_until("the policy is in force", LIMIT, || !apply("other", &service("foreign", "192.0.2.1"), &["--dry-run=server"]).is_empty());
    for (namespace, address) in [("other", "10.0.0.7"), ("other", "10.9.1.1"), ("enm", "2001:db8:7::7")] {
        assert_eq!(apply(namespace, &service("good", address), &[]), "", "{namespace} {address}");
    }
    for (namespace, address) in [("other", "10.0.1.7"), ("other", "2001:db8:7::7"), ("enm", "2001:db8:8::7"), ("enm", "10.96.0.1")] {
        let said = apply(namespace, &service("bad", address), &[]);
        assert!(said.contains(&format!("spec.externalIPs: {address} may not be used by a Service of the namespace {namespace}")), "{said}");
    }
    assert_eq!(apply("other", &service("old", "203.0.113.1, 10.0.0.9"), &[]), "", "what it had before it may keep");
    assert_ne!(apply("other", &service("old", "203.0.113.2"), &[]), "");
}

/// A pod whose node is gone for good holds up an uninstallation, which says where it is.
#[test]
fn a_pod_that_does_not_end_is_named() {
    let plane = Arc::new(ControlPlane::start());
    let server = plane.server();
    let router = Arc::new(Router::new(server, "n1"));
    let kubelet = Kubelet::start(&plane, &[Arc::clone(&router)]);
    let (chart, values) = (chart().display().to_string(), values(server, "values.json", &json!({})));
    succeed(server, &["install", "vipherald", &chart, "-n", "routing", "--create-namespace", "-f", &values]);
    let running = "-o=jsonpath={.items[?(@.status.phase==\"Running\")].metadata.name}";
    let pod = || server.kubectl(&["get", "pods", "-n", "routing", "-l", "vipherald.io/instance=vipherald", running], "");
    wait_until("the pod runs", LIMIT, || !pod().is_empty());
    let name = pod();
    drop(kubelet);
    let uninstall = |timeout: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vipherald"));
        command.args(["uninstall", "--instance=vipherald", "--workload=DaemonSet/routing/vipherald", "--timeout", timeout, "--kubeconfig"]);
        command.arg(server.administrator_kubeconfig()).output().unwrap()
    };
    let stuck = uninstall("2s");
    let said = String::from_utf8(stuck.stderr).unwrap();
    assert_eq!(stuck.status.code(), Some(1));
    assert!(said.contains(&format!("DaemonSet/routing/vipherald: not ended within 2s: {name} on n1")), "{said}");
    server.kubectl(&["delete", "pod", &name, "-n", "routing", "--force", "--grace-period=0"], "");
    let ended = uninstall("60s");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(of_vipherald(server, OF_DAEMONS), BTreeSet::new());
    let again = uninstall("2s");
    assert!(again.status.success(), "once more: {}", String::from_utf8_lossy(&again.stderr));
}

/// The commands of the page, one after another, as an administrator would type them.
#[test]
fn the_page_about_the_installation_works_as_it_is_written() {
    let plane = Arc::new(ControlPlane::start());
    let server = plane.server();
    let router = Arc::new(Router::bare(server, "node-1"));
    let _kubelet = Kubelet::start(&plane, &[Arc::clone(&router)]);
    let page = fs::read_to_string(root("docs/installation.md")).unwrap();
    let mut commands: Vec<&str> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if inside && !line.is_empty() {
            commands.push(line);
        }
    }
    assert!(commands.len() >= 10, "{commands:?}");
    let path = |program: &Path| program.parent().unwrap().display().to_string();
    let programs = [PathBuf::from(helm().get_program()), program("kubectl"), PathBuf::from(env!("CARGO_BIN_EXE_vipherald"))];
    let path = format!("{}:{}", programs.iter().map(|program| path(program)).collect::<Vec<_>>().join(":"), std::env::var("PATH").unwrap());
    for command in commands {
        let mut shell = Command::new("bash");
        shell.args(["-c", command]).current_dir(root("")).env("PATH", &path).env("KUBECONFIG", server.administrator_kubeconfig());
        let output = shell.env("KUBECACHEDIR", server.path("kubectl")).env("HELM_CACHE_HOME", server.path("helm")).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(of_vipherald(server, OF_DAEMONS), BTreeSet::new());
    assert!(!of_vipherald(server, OF_RELEASES).contains("daemonset.apps/vipherald"));
}

/// As `a_release_serves_is_upgraded_and_leaves_nothing`, for a StatefulSet under names of its own.
#[test]
fn a_pair_leaves_nothing_either() {
    let plane = Arc::new(ControlPlane::start());
    let server = plane.server();
    let _kubelet = Kubelet::start(&plane, &[]);
    let values = chart().join("ci/domain-services-values.yaml").display().to_string();
    succeed(server, &["install", "pair", &chart().display().to_string(), "-n", "routing", "--create-namespace", "-f", &values]);
    wait_until("both pods are there", LIMIT, || {
        server.kubectl(&["get", "pods", "-n", "routing", "-o", "name"], "") == "pod/enm-0\npod/enm-1\n"
    });
    // What daemons would have written.
    let node = json!({"apiVersion": "vipherald.io/v1alpha1", "kind": "RouterNode", "metadata": {"name": "enm-n1", "labels": {"vipherald.io/instance": "enm"}}});
    let lease =
        |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": "routing"}});
    for object in [node, lease("enm"), lease("enm.drain"), lease("another")] {
        server.kubectl(&["create", "-f", "-"], &object.to_string());
    }
    succeed(server, &["uninstall", "pair", "-n", "routing"]);
    let left: BTreeSet<String> =
        present(server, &format!("{OF_RELEASES},{OF_DAEMONS}")).into_iter().filter(|name| name.contains("enm")).collect();
    assert_eq!(left, BTreeSet::new());
    assert!(present(server, OF_DAEMONS).contains("lease.coordination.k8s.io/another"), "of somebody else");
}

/// Asks for the eviction of a pod, as `kubectl drain` does; whether it is granted.
fn evict(server: &ApiServer, pod: &str) -> bool {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "routing"}});
    let file = server.path("eviction.json");
    fs::write(&file, eviction.to_string()).unwrap();
    let path = format!("/api/v1/namespaces/routing/pods/{pod}/eviction");
    let mut command = Command::new(program("kubectl"));
    command.env("KUBECONFIG", server.administrator_kubeconfig()).args(["create", "--raw", &path, "-f"]);
    let output = command.arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || said.contains("Cannot evict pod as it would violate the pod's disruption budget"), "{said}");
    output.status.success()
}

/// Says of a pod that it is ready, as its kubelet would.
fn ready(server: &ApiServer, pod: &str) {
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let patch = json!({"status": {"phase": "Running", "conditions": [ready]}}).to_string();
    server.kubectl(&["patch", "pod", pod, "-n", "routing", "--subresource=status", "--type=merge", "-p", &patch], "");
}

/// Of a pair, and of a DaemonSet of two with a budget, one pod may be evicted, and the other one not before there is another.
#[test]
fn one_pod_may_be_evicted_and_then_the_other_one_may_not() {
    let plane = ControlPlane::start();
    let server = plane.server();
    for name in ["n1", "n2"] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"node": "routing"}}});
        server.kubectl(&["create", "-f", "-"], &node.to_string());
        server.kubectl(&["taint", "node", name, "node.kubernetes.io/not-ready-"], "");
    }
    let (chart, values) = (chart().display().to_string(), values(server, "values.json", &json!({})));
    let pods = || {
        let names = server.kubectl(&["get", "pods", "-n", "routing", "-o", "jsonpath={.items[*].metadata.name}"], "");
        names.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    for kind in ["workload.kind=StatefulSet", "podDisruptionBudget.minAvailable=1"] {
        let words = ["install", "vipherald", &chart, "-n", "routing", "--create-namespace", "--no-hooks", "-f", &values, "--set", kind];
        succeed(server, &words);
        wait_until(&format!("{kind}: both pods are there"), LIMIT, || pods().len() == 2);
        let both = pods();
        both.iter().for_each(|pod| ready(server, pod));
        wait_until(&format!("{kind}: one may go"), LIMIT, || {
            server.kubectl(&["get", "pdb", "-n", "routing", "-o", "jsonpath={.items[*].status.disruptionsAllowed}"], "") == "1"
        });
        assert!(evict(server, &both[0]), "{kind}");
        assert!(!evict(server, &both[1]), "{kind}");
        succeed(server, &["uninstall", "vipherald", "-n", "routing", "--no-hooks"]);
        wait_until(&format!("{kind}: they are gone"), LIMIT, || pods().is_empty());
    }
}
