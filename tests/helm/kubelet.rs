// SPDX-License-Identifier: Apache-2.0
//! What a kubelet does for the pods of a release, as far as tests need it: the commands of hooks are run, with the rights of their ServiceAccounts, and the
//! daemons of a workload in the network namespaces of their nodes; SIGTERM comes when a pod is deleted, and the pod goes when its process has ended.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::apiserver::{ApiServer, ControlPlane, block_on};
use crate::chart::list;
use crate::common::{Namespace, Process};
use crate::passage::Passage;
use crate::tor::Tor;

/// Between two looks at the pods.
const PAUSE: Duration = Duration::from_millis(100);

/// A router node: its network namespace, with a ToR and a way to the API server.
pub(crate) struct Router {
    /// Closed while there is the namespace.
    _passage: Passage,
    pub(crate) tor: Tor,
    pub(crate) namespace: Namespace,
    name: String,
}

impl Router {
    /// Its Node has the label and the taint of router nodes.
    pub(crate) fn new(server: &ApiServer, name: &str) -> Self {
        let router = Self::bare(server, name);
        server.kubectl(&["label", "node", name, "node=routing"], "");
        server.kubectl(&["taint", "node", name, "node=routing:NoSchedule"], "");
        router
    }

    /// A node that nobody has prepared.
    pub(crate) fn bare(server: &ApiServer, name: &str) -> Self {
        let namespace = Namespace::new(name);
        let tor = Tor::new(name, &namespace, 0);
        let passage = Passage::open(&namespace, server.address());
        let metadata = json!({"name": name, "labels": {"kubernetes.io/hostname": name}});
        server.kubectl(&["create", "-f", "-"], &json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}).to_string());
        // A Node begins with a taint that a controller takes away once its kubelet has spoken.
        server.kubectl(&["taint", "node", name, "node.kubernetes.io/not-ready-"], "");
        Self { _passage: passage, tor, namespace, name: name.to_owned() }
    }

    /// The addresses of its `lo`.
    pub(crate) fn addresses(&self) -> String {
        self.namespace.ip("-brief address show dev lo")
    }
}

/// See the module. Ends with the value, and so do the daemons.
pub(crate) struct Kubelet {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    ended: Arc<Mutex<Vec<Ended>>>,
}

/// A process that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    /// What it said.
    pub(crate) said: String,
    /// The addresses of `lo` then, for a daemon.
    pub(crate) left: String,
}

impl Kubelet {
    pub(crate) fn start(plane: &Arc<ControlPlane>, routers: &[Arc<Router>]) -> Self {
        let (over, ended) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<Ended>>>::default());
        let mut worker = Worker {
            plane: Arc::clone(plane),
            routers: routers.to_vec(),
            running: BTreeMap::new(),
            hooks: BTreeMap::new(),
            ended: Arc::clone(&ended),
        };
        let stop = Arc::clone(&over);
        let work = move || {
            while !stop.load(Ordering::SeqCst) {
                worker.turn();
                thread::sleep(PAUSE);
            }
        };
        Self { over, thread: Some(thread::spawn(work)), ended }
    }

    /// Processes that have ended, in order.
    pub(crate) fn ended(&self) -> Vec<Ended> {
        self.ended.lock().unwrap().clone()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let ended = self.thread.take().unwrap().join();
        assert!(thread::panicking() || ended.is_ok(), "the kubelet has failed");
    }
}

/// A daemon of a pod.
struct Daemon {
    process: Process,
    router: Arc<Router>,
    told_to_stop: bool,
    files: TempDir,
}

struct Worker {
    plane: Arc<ControlPlane>,
    routers: Vec<Arc<Router>>,
    running: BTreeMap<String, Daemon>,
    /// None for one that has ended.
    hooks: BTreeMap<String, Option<(Process, TempDir)>>,
    ended: Arc<Mutex<Vec<Ended>>>,
}

/// What of a pod matters here.
struct Pod<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    object: &'a Value,
}

impl Worker {
    fn turn(&mut self) {
        let pods: Value = serde_json::from_str(&self.server().kubectl(&["get", "pods", "-A", "-o", "json"], "")).unwrap();
        for object in list(&pods["items"]) {
            let metadata = &object["metadata"];
            let word = |field: &str| metadata[field].as_str().unwrap();
            let pod = Pod { namespace: word("namespace"), name: word("name"), uid: word("uid"), object };
            match metadata["ownerReferences"][0]["kind"].as_str() {
                Some("Job") => self.look_after_hook(&pod),
                Some("DaemonSet" | "StatefulSet") => self.look_after(&pod),
                _ => {}
            }
        }
    }

    fn server(&self) -> &ApiServer {
        self.plane.server()
    }

    fn note(&self, said: String, left: String) {
        self.ended.lock().unwrap().push(Ended { said, left });
    }

    /// A kubeconfig with the token of the pod's ServiceAccount.
    fn kubeconfig(&self, pod: &Pod<'_>, directory: &Path) -> PathBuf {
        let account = pod.object["spec"]["serviceAccountName"].as_str().unwrap();
        let token = block_on(async || self.server().service_account_token(pod.namespace, account).await);
        let mut kubeconfig: Value = serde_json::from_str(&self.server().kubeconfig(&token)).unwrap();
        kubeconfig["contexts"][0]["context"]["namespace"] = pod.namespace.into();
        let path = directory.join("kubeconfig");
        fs::write(&path, kubeconfig.to_string()).unwrap();
        path
    }

    fn run_hook(&mut self, pod: &Pod<'_>) {
        let files = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_vipherald"));
        command.args(self.arguments(pod, files.path())).env("NODE_NAME", "worker").env("NODE_IP", "192.0.2.1").env("POD_NAME", pod.name);
        if pod.object["spec"]["automountServiceAccountToken"] != false {
            command.env("KUBECONFIG", self.kubeconfig(pod, files.path()));
        }
        let process = Process::start(&mut command);
        self.hooks.insert(pod.uid.to_owned(), Some((process, files)));
    }

    /// What its container runs beside the program, with its configuration, if it has one, in this directory.
    fn arguments(&self, pod: &Pod<'_>, directory: &Path) -> Vec<String> {
        self.write_configuration(pod, directory);
        let word = |word: &Value| word.as_str().unwrap().replace("/etc/vipherald/config", directory.to_str().unwrap());
        let words: Vec<String> = list(&pod.object["spec"]["containers"][0]["command"]).map(word).collect();
        assert_eq!(words[0], "vipherald");
        words.into_iter().skip(1).collect()
    }

    /// Brings the configuration of a pod up to date, as a whole, while the ConfigMap is there.
    fn write_configuration(&self, pod: &Pod<'_>, directory: &Path) {
        let Some(map) = pod.object["spec"]["volumes"][0]["configMap"]["name"].as_str() else { return };
        let configuration = ["get", "configmap", map, "-n", pod.namespace, "--ignore-not-found", "-o", "jsonpath={.data.vipherald\\.yaml}"];
        let (text, file) = (self.server().kubectl(&configuration, ""), directory.join("vipherald.yaml"));
        if !text.is_empty() && fs::read_to_string(&file).ok().is_none_or(|before| before != text) {
            fs::write(directory.join("new"), text).unwrap();
            fs::rename(directory.join("new"), file).unwrap();
        }
    }

    /// The daemons are looked after while a hook waits for them.
    fn look_after_hook(&mut self, pod: &Pod<'_>) {
        let Some(hook) = self.hooks.get_mut(pod.uid) else { return self.run_hook(pod) };
        let Some((process, _files)) = hook.take_if(|(process, _)| !process.is_running()) else { return };
        let phase = if process.wait(Duration::ZERO).success() { "Succeeded" } else { "Failed" };
        self.note(process.log(), String::new());
        let patch = json!({"status": {"phase": phase}}).to_string();
        self.server().kubectl(&["patch", "pod", pod.name, "-n", pod.namespace, "--subresource=status", "--type=merge", "-p", &patch], "");
    }

    fn look_after(&mut self, pod: &Pod<'_>) {
        let leaves = pod.object["metadata"]["deletionTimestamp"].is_string();
        let Some(daemon) = self.running.get_mut(pod.uid) else {
            if !leaves {
                self.start_daemon(pod);
            }
            return;
        };
        if daemon.process.is_running() {
            if leaves && !daemon.told_to_stop {
                daemon.told_to_stop = true;
                daemon.process.signal(Signal::SIGTERM);
            }
            // A ConfigMap that changes is brought to the pods that have it.
            self.write_configuration(pod, self.running[pod.uid].files.path());
            return;
        }
        let (said, left) = (daemon.process.log(), daemon.router.addresses());
        assert!(leaves, "{} has ended by itself: {said}", pod.name);
        self.note(said, left);
        self.running.remove(pod.uid);
        self.server().kubectl(&["delete", "pod", pod.name, "-n", pod.namespace, "--force", "--grace-period=0"], "");
    }

    /// Where a pod may be: on the node of a DaemonSet's pod, on any for one of a StatefulSet; and not where the port of another one is taken.
    fn free_router(&self, pod: &Pod<'_>) -> Option<&Arc<Router>> {
        let terms = &pod.object["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        let node = terms[0]["matchFields"][0]["values"][0].as_str();
        let is_free = |router: &&Arc<Router>| !self.running.values().any(|daemon| Arc::ptr_eq(&daemon.router, router));
        self.routers.iter().filter(is_free).find(|router| node.is_none_or(|node| node == router.name))
    }

    fn start_daemon(&mut self, pod: &Pod<'_>) {
        let Some(router) = self.free_router(pod).map(Arc::clone) else { return };
        let node = router.name.as_str();
        let target = json!({"apiVersion": "v1", "kind": "Node", "name": node});
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name}, "target": target});
        let path = format!("/api/v1/namespaces/{}/pods/{}/binding", pod.namespace, pod.name);
        self.server().kubectl(&["create", "--raw", &path, "-f", "-"], &binding.to_string());

        let files = tempfile::tempdir().unwrap();
        // Each node has a /run of its own.
        let script = "mount -t tmpfs none /run && exec \"$@\"";
        let mut command = router.namespace.command("unshare");
        command.args(["--mount", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_vipherald")]).args(self.arguments(pod, files.path()));
        command.env("KUBECONFIG", self.kubeconfig(pod, files.path()));
        command.env("NODE_NAME", node).env("NODE_IP", "10.99.0.1").env("POD_NAME", pod.name);
        let process = Process::start(&mut command);
        self.running.insert(pod.uid.to_owned(), Daemon { process, router: Arc::clone(&router), told_to_stop: false, files });
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let patch = json!({"status": {"phase": "Running", "conditions": [ready]}}).to_string();
        self.server().kubectl(&["patch", "pod", pod.name, "-n", pod.namespace, "--subresource=status", "--type=merge", "-p", &patch], "");
    }
}
