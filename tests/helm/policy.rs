// SPDX-License-Identifier: Apache-2.0
//! What holds of every rendering: privileges, rights, memory, places on the node.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::accounts::RIGHTS;
use crate::chart::{chart, config_map, list, objects, only, render, values_files, workload};

/// Every rendering: its name and its objects. The values files, and each with what is off in them.
fn renderings() -> Vec<(String, Vec<Value>)> {
    let mut renderings = Vec::new();
    for (name, values) in values_files() {
        renderings.push((name.clone(), objects(&render(&values, &[]))));
        let more = "nodeSetup.enabled=true,realtime=true,podMonitor.enabled=true,externalIPPolicy.enabled=true,openshift.securityContextConstraints=true";
        renderings.push((format!("{name} with {more}"), objects(&render(&values, &["--set", more]))));
    }
    renderings
}

/// The pods that objects make: the name of the object and the specification.
fn pods(objects: &[Value]) -> Vec<(String, &Value)> {
    let of = |object: &Value| format!("{}/{}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
    let pods: Vec<_> = objects.iter().map(|object| (of(object), &object["spec"]["template"]["spec"])).collect();
    pods.into_iter().filter(|(_, pod)| pod.is_object()).collect()
}

/// The containers of a pod, those of its start too.
fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    list(&pod["initContainers"]).chain(list(&pod["containers"]))
}

#[test]
fn nobody_but_the_setup_of_the_node_is_privileged() {
    for (name, objects) in renderings() {
        for (of, pod) in pods(&objects) {
            assert_eq!(pod["securityContext"]["seccompProfile"], json!({"type": "RuntimeDefault"}), "{name}: {of}");
            for field in ["hostPID", "hostIPC", "shareProcessNamespace"] {
                assert!(pod[field].is_null(), "{name}: {of}: {field}");
            }
            for container in containers(pod) {
                let (security, who) = (&container["securityContext"], container["name"].as_str().unwrap());
                assert_eq!(security["readOnlyRootFilesystem"], true, "{name}: {of}: {who}");
                if who == "node-setup" {
                    let asked = name.contains("nodeSetup") || ["single-rack", "vrrp-pair"].contains(&name.as_str());
                    assert!(asked, "{name}: it is off where nobody asked for it");
                    continue;
                }
                assert_ne!(security["privileged"], true, "{name}: {of}: {who}");
                assert_eq!(security["allowPrivilegeEscalation"], false, "{name}: {of}: {who}");
                assert_eq!(security["capabilities"]["drop"], json!(["ALL"]), "{name}: {of}: {who}");
            }
        }
    }
}

#[test]
fn the_daemon_has_three_capabilities_and_a_fourth_on_demand() {
    for (name, objects) in renderings() {
        let pod = &workload(&objects)["spec"]["template"]["spec"];
        assert_eq!(pod["hostNetwork"], true, "{name}");
        let mut expected = vec!["NET_ADMIN", "NET_RAW", "NET_BIND_SERVICE"];
        expected.extend((name.contains("realtime") || name == "dual-tor").then_some("SYS_NICE"));
        assert_eq!(pod["containers"][0]["securityContext"]["capabilities"]["add"], json!(expected), "{name}");
        for (of, pod) in pods(&objects).into_iter().filter(|(of, _)| of.starts_with("Job/")) {
            assert_ne!(pod["hostNetwork"], true, "{name}: {of}");
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}: {of}");
            // OpenShift gives each namespace users of its own, and refuses others.
            assert_eq!(pod["securityContext"]["runAsUser"].is_null(), name.contains("openshift"), "{name}: {of}");
            assert!(
                list(&pod["containers"]).all(|container| container["securityContext"]["capabilities"]["add"].is_null()),
                "{name}: {of}"
            );
        }
    }
}

#[test]
fn memory_is_limited_and_the_processor_is_not() {
    for (name, objects) in renderings() {
        for (of, pod) in pods(&objects) {
            for container in containers(pod) {
                let limits = &container["resources"]["limits"];
                assert!(limits["memory"].is_string(), "{name}: {of}: {}", container["name"]);
                assert!(limits["cpu"].is_null(), "{name}: {of}: {}", container["name"]);
            }
        }
    }
}

/// Where two pods of a release could meet on a node, and what keeps them apart.
#[test]
fn two_pods_are_never_on_one_node() {
    for (name, objects) in renderings() {
        let workload = workload(&objects);
        let template = &workload["spec"]["template"];
        let terms = &template["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let [term] = terms.as_array().unwrap().as_slice() else { panic!("{name}: {terms}") };
        assert_eq!(term["topologyKey"], "kubernetes.io/hostname", "{name}");
        let labels = term["labelSelector"]["matchLabels"].as_object().unwrap();
        assert!(!labels.is_empty() && labels.iter().all(|(key, value)| template["metadata"]["labels"][key] == *value), "{name}");
        let strategy = &workload["spec"]["updateStrategy"];
        assert_eq!(strategy["type"], "RollingUpdate", "{name}");
        if workload["kind"] == "DaemonSet" {
            assert_eq!(strategy["rollingUpdate"], json!({"maxUnavailable": 1, "maxSurge": 0}), "{name}");
        }
        for spread in list(&template["spec"]["topologySpreadConstraints"]) {
            assert_eq!(spread["nodeTaintsPolicy"], "Honor", "{name}: nodes without pods of ours would count");
        }
    }
}

/// What a DaemonSet tolerates of itself.
#[test]
fn a_stateful_set_stays_on_a_node_that_lost_the_api_server() {
    let objects = objects(&render(&chart().join("ci/domain-services-values.yaml"), &[]));
    let tolerations = &workload(&objects)["spec"]["template"]["spec"]["tolerations"];
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let expected = json!({"key": key, "operator": "Exists", "effect": "NoExecute"});
        assert!(list(tolerations).any(|toleration| *toleration == expected), "{tolerations}");
    }
}

#[test]
fn a_budget_never_forbids_every_eviction() {
    for (name, objects) in renderings() {
        let budget = objects.iter().find(|object| object["kind"] == "PodDisruptionBudget");
        match workload(&objects)["kind"].as_str().unwrap() {
            "StatefulSet" => assert_eq!(budget.unwrap()["spec"]["maxUnavailable"], 1, "{name}"),
            _ => assert!(budget.is_none(), "{name}: the controller knows no scale of a DaemonSet"),
        }
    }
    let values = chart().join("ci/kube-proxy-values.yaml");
    let objects = objects(&render(&values, &["--set", "podDisruptionBudget.minAvailable=1"]));
    assert_eq!(only(&objects, "PodDisruptionBudget")["spec"]["minAvailable"], 1);
}

#[test]
fn host_paths_are_the_state_and_for_the_setup_the_modules() {
    for (name, objects) in renderings() {
        for (of, pod) in pods(&objects) {
            let paths: BTreeSet<&str> = list(&pod["volumes"]).filter_map(|volume| volume["hostPath"]["path"].as_str()).collect();
            if of.starts_with("Job/") {
                assert!(paths.is_empty(), "{name}: {of}");
                continue;
            }
            let instance = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["labelSelector"]
                ["matchLabels"]["vipherald.io/instance"]
                .as_str()
                .unwrap();
            let state = format!("/run/vipherald/{instance}");
            let mut expected = BTreeSet::from([state.as_str()]);
            expected.extend(pod["initContainers"].is_array().then_some("/lib/modules"));
            assert_eq!(paths, expected, "{name}");
            let modules = containers(pod).flat_map(|container| list(&container["volumeMounts"])).filter(|mount| mount["name"] == "modules");
            assert!(modules.into_iter().all(|mount| mount["readOnly"] == true), "{name}");
        }
    }
}

/// A change of the configuration is followed by the pods that run; nothing may replace them for it.
#[test]
fn a_change_of_the_configuration_replaces_no_pod() {
    for (name, values) in values_files() {
        let before = objects(&render(&values, &[]));
        let after = objects(&render(&values, &["--set", "config.dataplane.mssClamp=pmtu,config.log.level=debug"]));
        assert_ne!(config_map(&before), config_map(&after), "{name}");
        assert_eq!(workload(&before), workload(&after), "{name}");
    }
}

/// The rules of the roles that are bound to this account.
fn granted<'a>(objects: &'a [Value], account: &Value) -> Vec<&'a Value> {
    let mut rules = Vec::new();
    for binding in objects.iter().filter(|object| ["ClusterRoleBinding", "RoleBinding"].contains(&object["kind"].as_str().unwrap())) {
        let [subject] = binding["subjects"].as_array().unwrap().as_slice() else { panic!("{binding}") };
        assert_eq!(subject["namespace"], "routing");
        if subject["name"] == *account {
            let is_role =
                |object: &&Value| object["kind"] == binding["roleRef"]["kind"] && object["metadata"]["name"] == binding["roleRef"]["name"];
            rules.extend(list(&objects.iter().find(is_role).unwrap()["rules"]));
        }
    }
    rules.sort_by_key(|rule| rule.to_string());
    rules
}

/// With those the tests of Kubernetes run.
#[test]
fn rights_are_those_of_the_tests_and_no_others() {
    let documents: Vec<Value> = serde_saphyr::from_multiple(RIGHTS).unwrap();
    let of = |names: &[(&str, &str)]| {
        let is_one = |role: &&Value| names.iter().any(|(kind, name)| role["kind"] == *kind && role["metadata"]["name"] == *name);
        let mut rules: Vec<&Value> = documents.iter().filter(is_one).flat_map(|role| list(&role["rules"])).collect();
        rules.sort_by_key(|rule| rule.to_string());
        rules
    };
    for (name, objects) in renderings() {
        let accounts: Vec<&Value> =
            objects.iter().filter(|object| object["kind"] == "ServiceAccount").map(|account| &account["metadata"]["name"]).collect();
        let daemon = &workload(&objects)["spec"]["template"]["spec"]["serviceAccountName"];
        let label = !["dual-tor", "domain-scripting"].iter().any(|without| name.starts_with(without));
        let mut roles = vec![("ClusterRole", "vipherald"), ("Role", "vipherald")];
        roles.extend(label.then_some(("ClusterRole", "vipherald-node-label")));
        assert_eq!(granted(&objects, daemon), of(&roles), "{name}");
        for account in accounts.into_iter().filter(|account| *account != daemon) {
            let suffix = account.as_str().unwrap().strip_prefix(daemon.as_str().unwrap()).unwrap();
            let roles = [("ClusterRole", format!("vipherald{suffix}")), ("Role", format!("vipherald{suffix}"))];
            let roles: Vec<(&str, &str)> = roles.iter().map(|(kind, name)| (*kind, name.as_str())).collect();
            let rules = granted(&objects, account);
            assert!(!rules.is_empty(), "{name}: {account}");
            // Names of a release's own objects are in them, where the file has those of the release `vipherald`.
            assert_eq!(without_names(&rules), without_names(&of(&roles)), "{name}: {account}");
        }
    }
}

fn without_names(rules: &[&Value]) -> Vec<Value> {
    let without = |rule: &&Value| {
        let mut rule = (*rule).clone();
        if ["apps", "coordination.k8s.io"].iter().any(|group| rule["apiGroups"] == json!([group])) {
            assert!(rule["resourceNames"].is_array(), "{rule}");
            rule["resourceNames"] = Value::Null;
        }
        rule
    };
    rules.iter().map(without).collect()
}

#[test]
fn no_right_is_a_wildcard() {
    for (name, objects) in renderings() {
        let mut rules = 0;
        for rule in objects.iter().flat_map(|object| list(&object["rules"])) {
            rules += 1;
            for field in ["apiGroups", "resources", "verbs", "resourceNames", "nonResourceURLs"] {
                assert!(list(&rule[field]).all(|word| !word.as_str().unwrap().contains('*')), "{name}: {rule}");
            }
            assert!(list(&rule["resources"]).all(|resource| resource != "secrets"), "{name}: {rule}");
        }
        assert!(rules > 10, "{name}");
    }
}
