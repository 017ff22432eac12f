// SPDX-License-Identifier: Apache-2.0
//! A cluster with the definitions, the chart's rights and router nodes: each a namespace with the daemon, its ToR, and a proxy of its own before the API server.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::accounts::{ACCOUNTS, RIGHTS};
use crate::api_proxy::{ApiProxy, Requests, Seen, Verb};
use crate::apiserver::{ApiServer, Controllers, block_on};
use crate::common::{Namespace, POLL, Process, wait_until};
use crate::passage::Passage;
use crate::tor::Tor;

/// How long a condition may take on a machine that has other work.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// Where the objects of the tests are.
const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: enm}\n";

/// The configuration of a node that balances, on a kernel without IPVS.
pub(crate) const NFTABLES: &str = "dataplane: {type: nftables}";

/// An EricIngress, an LvsIngress and a Service, over one endpoint. No kubelet runs: the endpoint is by hand.
pub(crate) const OBJECTS: &str = r#"
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
---
apiVersion: routing.ericingress.ericsson.com/v1alpha1
kind: EricIngress
metadata: {name: eric, namespace: enm}
spec:
  virtualServiceIP: 10.0.0.8
  backends: {name: web, config: [{portRange: {vipPortRange: {start: 80, end: 80}, svcPortRange: {start: 80, end: 80}}}]}
---
apiVersion: routing.lvsingress.ericsson.com/v1alpha1
kind: LvsIngress
metadata: {name: lvs, namespace: enm}
spec:
  virtualServiceIP: 10.0.0.9
  backendService: {serviceName: web, portMappings: [{lbPort: 80, svcPort: 80, protocol: tcp, sch: rr}]}
"#;

/// The ServiceAccount of a daemon, with its namespace.
type Account = [&'static str; 2];

/// That of the release which is there from the beginning.
const ACCOUNT: Account = ["vip", "vipherald"];

/// The API server and what all nodes share.
pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
}

impl Cluster {
    /// With definitions and rights, and the namespace `enm`.
    pub(crate) fn new() -> Self {
        let server = ApiServer::start();
        // The Role has no namespace: it goes where the release is.
        server.kubectl(&["apply", "-f", "-"], &format!("{ACCOUNTS}---\n{NAMESPACE}"));
        server.kubectl(&["apply", "--namespace=vip", "-f", "-"], RIGHTS);
        let cluster = Self { server };
        cluster.apply_definitions();
        wait_until("the rights are granted", LIMIT, || cluster.may("patch", "leases.coordination.k8s.io"));
        cluster
    }

    /// `vipherald crds apply` as the administrator.
    pub(crate) fn apply_definitions(&self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vipherald"));
        crate::common::run(command.args(["crds", "apply", "--kubeconfig"]).arg(self.server.administrator_kubeconfig()));
    }

    /// Whether the daemon may do this to objects of the namespace `vip`.
    pub(crate) fn may(&self, verb: &str, resource: &str) -> bool {
        let account = "--as=system:serviceaccount:vip:vipherald";
        let (resource, subresource) = match resource.split_once('/') {
            Some((plural, rest)) => {
                let (subresource, group) = rest.split_once('.').unwrap_or((rest, ""));
                (format!("{plural}.{group}"), format!("--subresource={subresource}"))
            }
            None => (resource.to_owned(), "--subresource=".to_owned()),
        };
        let answer = self.try_kubectl(&["auth", "can-i", verb, resource.trim_end_matches('.'), &subresource, "--namespace=vip", account]);
        answer.trim_end().ends_with("yes")
    }

    /// `kubectl apply` as the administrator.
    pub(crate) fn apply(&self, manifest: &str) {
        self.server.kubectl(&["apply", "-f", "-"], manifest);
    }

    /// `kubectl` as the administrator; what it prints, whether it succeeds or not.
    pub(crate) fn try_kubectl(&self, words: &[&str]) -> String {
        let mut command = Command::new(crate::apiserver::program("kubectl"));
        command.env("KUBECONFIG", self.server.administrator_kubeconfig()).env("KUBECACHEDIR", self.server.path("kubectl")).args(words);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    }

    /// An object as the server has it; `Null` where there is none.
    pub(crate) fn get(&self, kind: &str, name: &str) -> Value {
        let collection = match kind {
            "ericingress" => "apis/routing.ericingress.ericsson.com/v1alpha1/namespaces/enm/ericingresses",
            "lvsingress" => "apis/routing.lvsingress.ericsson.com/v1alpha1/namespaces/enm/lvsingresses",
            "node" => "api/v1/nodes",
            "routernode" => "apis/vipherald.io/v1alpha1/routernodes",
            "service" => "api/v1/namespaces/enm/services",
            other => panic!("where is a {other}?"),
        };
        // It is asked all the time while something is waited for, and kubectl takes a hundred times as long.
        let request = http::Request::get(format!("/{collection}/{name}")).body(Vec::new()).unwrap();
        let text = block_on(async || self.server.administrator().await.request_text(request).await);
        text.map(|text| serde_json::from_str(&text).unwrap()).unwrap_or_default()
    }

    /// `status=reason` of each of our conditions on an object, by its name without our prefix.
    pub(crate) fn conditions(&self, kind: &str, name: &str) -> BTreeMap<String, String> {
        let object = self.get(kind, name);
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let word = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        let said = conditions.map(|condition| {
            let kind = word(condition, "type").trim_start_matches("vipherald.io/").to_owned();
            (kind, format!("{}={}", word(condition, "status"), word(condition, "reason")))
        });
        said.collect()
    }

    /// Waits until these conditions are on an object.
    pub(crate) fn until_conditions(&self, kind: &str, name: &str, expected: [&str; 3]) {
        let mut found = BTreeMap::new();
        let kinds = ["Accepted", "Programmed", "Advertised"].map(str::to_owned);
        let expected: BTreeMap<String, String> = kinds.into_iter().zip(expected.map(str::to_owned)).collect();
        let deadline = Instant::now() + LIMIT;
        while found != expected {
            assert!(Instant::now() < deadline, "{kind} {name}: {found:?}, not {expected:?}: {}", self.get(kind, name)["status"]);
            sleep(POLL);
            found = self.conditions(kind, name);
        }
    }

    /// The addresses in `status.loadBalancer` of a Service of the namespace `enm`, each with its `ipMode`.
    pub(crate) fn ingress(&self, service: &str) -> Vec<String> {
        let object = self.get("service", service);
        let ingress = object["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
        ingress.iter().map(|one| format!("{} {}", one["ip"].as_str().unwrap(), one["ipMode"].as_str().unwrap())).collect()
    }

    /// Waits until these are the addresses of a Service.
    pub(crate) fn until_ingress(&self, service: &str, expected: &[&str]) {
        wait_until(&format!("{service} has {expected:?}, not {:?}", self.ingress(service)), LIMIT, || self.ingress(service) == expected);
    }

    /// `action reason` of each Event on an object of the namespace `enm`, in order.
    pub(crate) fn events(&self, name: &str) -> Vec<String> {
        let text = self.try_kubectl(&["get", "events.events.k8s.io", "--namespace=enm", "--output=json"]);
        let list: Value = serde_json::from_str(&text).unwrap();
        let about = list["items"].as_array().unwrap().iter().filter(|event| event["regarding"]["name"] == name);
        let mut events: Vec<String> =
            about.map(|event| format!("{} {}", event["action"].as_str().unwrap(), event["reason"].as_str().unwrap())).collect();
        events.sort();
        events
    }

    /// Takes a field of the status from a definition, as if that was of an older version.
    pub(crate) fn take_field(&self, definition: &str, field: &str) {
        let field = format!("/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/{field}");
        let revision = "/metadata/annotations/vipherald.io~1crd-revision";
        let patch = json!([{"op": "remove", "path": field}, {"op": "replace", "path": revision, "value": "1"}]);
        self.server.kubectl(&["patch", "crd", definition, "--type=json", "--patch", &patch.to_string()], "");
    }

    /// The same with the field `announcing` of an ingress kind; returns when this object, which has it, is served without.
    pub(crate) fn take_announcing(&self, kind: &str, name: &str) {
        self.take_field(&format!("{kind}es.routing.{kind}.ericsson.com"), "announcing");
        wait_until("the field is not served any more", LIMIT, || self.get(kind, name)["status"]["announcing"].is_null());
    }

    /// Who holds the Lease.
    pub(crate) fn holder(&self) -> String {
        self.try_kubectl(&["get", "lease", "vipherald", "--namespace=vip", "--output=jsonpath={.spec.holderIdentity}"])
    }
}

/// A router node: its Node object is there, and its daemon does not run yet.
pub(crate) struct RouterNode {
    /// Closed while there is the namespace.
    _passage: Passage,
    pub(crate) proxy: ApiProxy,
    pub(crate) daemon: Option<Process>,
    pub(crate) tor: Tor,
    pub(crate) namespace: Arc<Namespace>,
    name: String,
    account: Account,
    /// Of its ToR, with which it has the network `10.99.NUMBER.0/24`.
    number: u8,
    /// Keys of `node:` beside its name.
    pub(crate) node_keys: &'static str,
    /// Keys of its peer beside those that every node has.
    pub(crate) peer_keys: &'static str,
    /// Keys of `drain:` beside those that every node has.
    pub(crate) drain_keys: &'static str,
    /// Lines of the configuration beside those that every node has.
    more: &'static str,
    files: TempDir,
}

impl RouterNode {
    /// With these lines of configuration; it has the pool `10.0.0.64/30`.
    pub(crate) fn new(cluster: &Cluster, name: &str, more: &'static str) -> Self {
        cluster.apply(&format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n"));
        Self::of(cluster, Arc::new(Namespace::new(name)), name, ACCOUNT, 0, more)
    }

    /// What another release has on this node: a daemon with a ToR of its own, and with this account, which is there.
    pub(crate) fn beside(&self, cluster: &Cluster, account: Account, more: &'static str) -> Self {
        Self::of(cluster, Arc::clone(&self.namespace), &self.name, account, self.number + 1, more)
    }

    fn of(cluster: &Cluster, namespace: Arc<Namespace>, name: &str, account: Account, number: u8, more: &'static str) -> Self {
        let tor = Tor::new(name, &namespace, number);
        let proxy = ApiProxy::start(&cluster.server);
        let passage = Passage::open(&namespace, proxy.address());
        let files = tempfile::tempdir().unwrap();
        let (name, node_keys, peer_keys, drain_keys) = (name.to_owned(), "", "", "");
        let node = Self {
            proxy,
            daemon: None,
            tor,
            namespace,
            name,
            account,
            number,
            node_keys,
            peer_keys,
            drain_keys,
            more,
            _passage: passage,
            files,
        };
        node.log_in(cluster);
        node
    }

    /// Gives it a token of its account, as that is now.
    pub(crate) fn log_in(&self, cluster: &Cluster) {
        let [namespace, account] = self.account;
        let token = block_on(async || cluster.server.service_account_token(namespace, account).await);
        let mut kubeconfig: Value = serde_json::from_str(&self.proxy.kubeconfig(&token)).unwrap();
        kubeconfig["contexts"][0]["context"]["namespace"] = namespace.into();
        fs::write(self.path("kubeconfig"), kubeconfig.to_string()).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Starts the daemon.
    pub(crate) fn start(&mut self) {
        let more = self.more;
        let configuration = format!(
            "node: {{name: {}{}}}\nvips: {{allow: [{{prefix: 10.0.0.0/24}}, {{prefix: \"2001:db8:7::/64\"}}], pools: [{{name: small, prefixes: [10.0.0.64/30]}}]}}\n{more}\n\
             bgp:\n  asn: 65001\n  peers:\n  - {{name: tor, address: 10.99.{}.2, asn: 65001, timers: {{hold: 9s, connectRetry: 1s}}{}}}\n\
             drain: {{fabricDelay: 100ms, timeout: 5s, taints: [{{key: maintenance}}]{}}}\nstateDir: {}\nhttp: {{address: \"127.0.0.1:0\"}}\nlog: {{level: info, format: text}}\n",
            self.name,
            self.node_keys,
            self.number,
            self.peer_keys,
            self.drain_keys,
            self.path("state").display()
        );
        fs::write(self.path("config.yaml"), configuration).unwrap();
        let mut command = self.namespace.command(env!("CARGO_BIN_EXE_vipherald"));
        command.args(["run", "--config"]).arg(self.path("config.yaml")).arg("--kubeconfig").arg(self.path("kubeconfig"));
        self.daemon = Some(self.namespace.spawn(&mut command));
    }

    /// Ends the daemon as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.daemon.take().unwrap().kill();
    }

    /// How long the daemon has kept a processor busy (proc_pid_stat(5): utime and stime in hundredths of a second).
    pub(crate) fn processor_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.daemon.as_ref().unwrap().id())).unwrap();
        let ticks = stat.rsplit_once(") ").unwrap().1.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap());
        Duration::from_millis(ticks.sum::<u64>() * 10)
    }

    /// Waits until the ToR has these routes.
    pub(crate) fn until_learned(&self, expected: &[&str]) {
        let expected = expected.iter().map(|vip| vip.parse().unwrap()).collect();
        wait_until(&format!("{}: {expected:?} are learned", self.name), LIMIT, || self.tor.learned() == expected);
    }

    /// What `vipherald show vips` says beside its table.
    pub(crate) fn said(&self) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vipherald"));
        let output = command.args(["show", "vips", "--socket"]).arg(self.path("state").join("admin.sock")).output().unwrap();
        String::from_utf8(output.stderr).unwrap() + &String::from_utf8(output.stdout).unwrap()
    }

    /// What it has written since then, renewals of the Lease left out.
    pub(crate) fn written(&self, since: Instant) -> Vec<Seen> {
        let writes =
            |seen: &Seen| matches!(seen.verb, Verb::Create | Verb::Update | Verb::Patch | Verb::Delete) && seen.resource != "leases";
        self.proxy.seen().into_iter().filter(|seen| seen.at >= since && writes(seen)).collect()
    }

    /// How often it has written the status of what all nodes share since then.
    pub(crate) fn statuses_written(&self, since: Instant) -> usize {
        let written = self.written(since);
        written
            .iter()
            .filter(|seen| ["ericingresses/status", "lvsingresses/status", "services/status"].contains(&seen.resource.as_str()))
            .count()
    }

    /// How often it has asked for this since then.
    pub(crate) fn asked(&self, since: Instant, requests: &Requests) -> usize {
        self.proxy.seen().iter().filter(|seen| seen.at >= since && requests.hit(seen)).count()
    }
}

/// Waits for that long while it holds.
pub(crate) fn stays(what: &str, time: Duration, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        assert!(condition(), "no longer: {what}");
        sleep(Duration::from_millis(50));
    }
}

/// Starts the controllers that collect what has lost its owner.
pub(crate) fn controllers(cluster: &Cluster) -> Controllers {
    Controllers::start(&cluster.server)
}
