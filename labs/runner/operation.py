# SPDX-License-Identifier: Apache-2.0
"""How a lab is operated: where objects are put, and how a vipherald is stopped and started.

`Directories`: manifests in a directory of each router node, and a process in each. `ClusterOperation`: objects at an API
server, and a DaemonSet's pod on each router node.
"""

import json
import signal
import time
from pathlib import Path

import yaml

from .expect import wait
from .kubernetes import STATE, Cluster
from .node import LabError
from .programs import ROOT, binary

MANIFESTS = "/etc/vipherald/manifests"
CONFIG = "/etc/vipherald/config.yaml"
HOST_DISK = "/var/tmp/kubelet/disk"  # where the lab's kubelet has the hostPath volumes of its node
PODS = 60.0  # seconds until pods are as they should be


class Directories:
    """Objects as files, which each router node has in a directory of its own."""

    def __init__(self, lab, data, router_nodes):
        self.lab, self.data = lab, data
        self.nodes = [lab.nodes[name] for name in router_nodes]

    def prepare(self):
        """All daemons run already."""

    def text(self, name):
        """A manifest as it is now."""
        return _manifest(self.nodes[0], name).read_text()

    def original(self, name):
        """A manifest as the lab has it."""
        source = next(bind.source for bind in self.nodes[0].spec.binds if bind.target == MANIFESTS)
        return (source / name).read_text()

    def put(self, node, name, text):
        """Puts a manifest where `node` reads it, in one step; returns the time just before."""
        partial = node.directory / name
        partial.write_text(text)
        now = time.monotonic()
        partial.rename(_manifest(node, name))
        return now

    def put_everywhere(self, name, text):
        for node in self.nodes:
            self.put(node, name, text)

    def take_away(self, node, name):
        _manifest(node, name).unlink()

    def take_away_everywhere(self, name):
        for node in self.nodes:
            self.take_away(node, name)

    def probe(self, vip):
        """The Service of the lab and its EndpointSlices under other names, with one VIP."""
        return probe(yaml.safe_load_all(self.text(self.data["service"])), vip)

    def stop(self, node):
        """SIGTERM; returns what waits for the end and raises LabError where it was not a clean one."""
        daemon = self.lab.daemons.pop(node.name)[0]
        daemon.signal(signal.SIGTERM)

        def ended():
            status = daemon.wait(self.drain_timeout(node))
            if status != 0:
                how = "still runs" if status is None else f"ended with status {status}"
                raise LabError(f"{daemon} {how} instead of ending with status 0; end of its log:\n{daemon.tail()}")

        return ended

    def start(self, node):
        self.lab.start(node)

    def ask(self, node, noun, *options):
        """What `vipherald show NOUN` prints on a node."""
        return node.run([binary(), "show", noun, *options, "--socket", str(Path(self.config(node)["stateDir"]) / "admin.sock")])

    def change_configuration(self, node, old, new):
        """Another configuration of a node whose directory of it is its own, in one step; vipherald follows the file."""
        path = node.copies[str(Path(CONFIG).parent)] / Path(CONFIG).name
        text = path.read_text()
        if old not in text:
            raise LabError(f"{CONFIG} of {node.name} has no {old}")
        partial = node.directory / path.name
        partial.write_text(text.replace(old, new))
        partial.rename(path)

    def config(self, node):
        return yaml.safe_load((node.root / CONFIG.lstrip("/")).read_text())

    def drain_timeout(self, node):
        """Seconds within which a stopped vipherald must have ended, with some time for a loaded machine."""
        return int(self.config(node)["drain"]["timeout"].rstrip("s")) + 5


class ClusterOperation:
    """Objects at an API server: `scenario.yaml` names its node, the objects to begin with, and the DaemonSet."""

    def __init__(self, lab, data, router_nodes):
        self.lab, self.data, self.wanted = lab, data, data["cluster"]
        self.cluster = Cluster(lab.nodes[self.wanted["node"]])
        self.nodes = [lab.nodes[name] for name in router_nodes]
        self.objects = lab.topology.path.parent / "objects"
        self.put_in = {}  # name -> the text by which it can be taken away again

    def prepare(self):
        """CustomResourceDefinitions, rights and objects; returns when all pods are ready."""
        wait(self.lab, self._missing_nodes, PODS, "all Nodes are registered and ready")
        self.cluster.node.run([binary(), "crds", "apply", "--kubeconfig", f"{STATE}/administrator.conf"])
        namespace = self.wanted["namespace"]
        self.cluster.apply(yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
        self.cluster.apply((ROOT / "charts/vipherald/files/rbac.yaml").read_text(), namespace)
        for name in [*self.wanted["objects"], self.data["service"]]:
            self.put_everywhere(name, self.original(name))
        wait(self.lab, self._unready_pods, PODS, "all pods are ready")

    def original(self, name):
        """An object's file."""
        return (self.objects / name).read_text()

    def put(self, _node, name, text):
        """Applies objects; returns the time just before."""
        self.put_in[name] = text
        now = time.monotonic()
        self.cluster.apply(text)
        return now

    def put_everywhere(self, name, text):
        self.put(None, name, text)

    def take_away(self, _node, name):
        self.cluster.kubectl("delete", "--wait=false", "-f", "-", text=self.put_in.pop(name))

    def take_away_everywhere(self, name):
        self.take_away(None, name)

    def probe(self, vip):
        """The Service of the lab under another name, with one VIP; the real controller makes its EndpointSlices."""
        return probe(yaml.safe_load_all(self.original(self.data["service"])), vip)

    def stop(self, node):
        """The Node is no router node any more, so that its pod ends; returns what waits for that."""
        pod = self._pod(node)
        self.cluster.kubectl("label", "node", node.name, f"{self.wanted['router']}-")

        def ended():
            limit = pod["spec"]["terminationGracePeriodSeconds"] + 5
            wait(self.lab, lambda: [f"{node.name} still has its pod"] if self._pod(node) else [], limit, "the pod has ended")
            log = self.lab.daemons[node.name][0].log.read_text(errors="replace")
            if f"pod {pod['metadata']['name']}: vipherald is killed" in log:
                raise LabError(f"vipherald on {node.name} did not end within its grace period")

        return ended

    def start(self, node):
        self.cluster.kubectl("label", "node", node.name, f"{self.wanted['router']}=true")

    def ask(self, node, noun):
        """What `vipherald show NOUN` prints on a node."""
        return node.run([binary(), "show", noun, "--socket", f"{HOST_DISK}/var/lib/vipherald/admin.sock"])

    def restart_all(self):
        """`kubectl rollout restart`, to its end."""
        self.cluster.kubectl("rollout", "restart", "-n", self.wanted["namespace"], f"daemonset/{self.wanted['workload']}")
        self.cluster.kubectl("rollout", "status", "-n", self.wanted["namespace"], f"daemonset/{self.wanted['workload']}", "--timeout=120s",
                             timeout=130)

    def drain(self, node):
        """`kubectl drain`; returns when the RouterNode says that the VIPs have left. The pod is the one of before."""
        pod = self._pod(node)
        self.cluster.kubectl("drain", node.name, "--ignore-daemonsets", f"--timeout={PODS:.0f}s", timeout=PODS + 10)
        name, reason = f"{self.wanted['instance']}-{node.name}", '{.status.conditions[?(@.type=="Ready")].reason}=NodeDrained'
        self.cluster.kubectl("wait", f"routernode/{name}", f"--timeout={PODS:.0f}s", f"--for=jsonpath={reason}", timeout=PODS + 10)
        if (now := self._pod(node)) is None or now["metadata"]["uid"] != pod["metadata"]["uid"] or "deletionTimestamp" in now["metadata"]:
            raise LabError(f"{node.name}: its pod {pod['metadata']['name']} has not stayed")

    def uncordon(self, node):
        self.cluster.kubectl("uncordon", node.name)

    def add_ingress(self):
        """The lab's EricIngress; returns its VIP once all of its conditions are true, and both nodes announce it."""
        text = self.original("ingress.yaml")
        self.put_everywhere("ingress.yaml", text)
        wait(self.lab, self._unserved_ingresses, PODS, "the EricIngress is served")
        return yaml.safe_load(text)["spec"]["virtualServiceIP"]

    def add_kube_proxy(self):
        """The real kube-proxy on all router nodes."""
        self.cluster.apply(self.original("kube-proxy.yaml"))
        wait(self.lab, self._unready_pods, PODS, "kube-proxy runs on all router nodes")

    def change_configuration(self, old, new):
        """Another configuration by its ConfigMap; returns when each node says that it has it."""
        text = self.original("vipherald.yaml")
        if old not in text:
            raise LabError(f"vipherald.yaml has no {old}")
        self.cluster.apply(text.replace(old, new))
        wait(self.lab, lambda: [f"{node.name} has no {new}" for node in self.nodes if new not in self._mounted(node)], PODS,
             "the ConfigMap has reached all router nodes")

    def _unserved_ingresses(self):
        differences = []
        for ingress in self.cluster.get("ericingresses", "-A")["items"]:
            conditions = {condition["type"]: condition for condition in ingress.get("status", {}).get("conditions", [])}
            for kind in ("Accepted", "Programmed", "Advertised"):
                found = conditions.get(kind, {})
                if found.get("status") != "True" or found.get("observedGeneration") != ingress["metadata"]["generation"]:
                    differences.append(f"EricIngress {ingress['metadata']['name']}: {kind} is {found.get('status')}: {found.get('message')}")
        return differences

    def _mounted(self, node):
        pods = node.root / "var/tmp/kubelet/pods"
        return "".join(path.read_text() for path in pods.glob("*/volumes/config/config.yaml"))

    def _pod(self, node):
        listed = self.cluster.get("pods", "-n", self.wanted["namespace"], "-l", f"app={self.wanted['workload']}",
                                  "--field-selector", f"spec.nodeName={node.name}")["items"]
        return listed[0] if listed else None

    def _missing_nodes(self):
        ready = {node["metadata"]["name"] for node in self.cluster.get("nodes")["items"]
                 if any(condition["type"] == "Ready" and condition["status"] == "True" for condition in node["status"].get("conditions", []))}
        return [f"{name} is not ready" for name, node in self.lab.nodes.items()
                if node.spec.image == "kubernetes-node" and name not in ready]

    def _unready_pods(self):
        workloads = self.cluster.get("daemonsets,deployments", "-A")["items"]
        differences = []
        for workload in workloads:
            status, name = workload["status"], f"{workload['kind']} {workload['metadata']['name']}"
            wanted = status.get("desiredNumberScheduled") if workload["kind"] == "DaemonSet" else workload["spec"]["replicas"]
            ready = status.get("numberReady", status.get("readyReplicas", 0))
            if not wanted or ready != wanted or status.get("observedGeneration") != workload["metadata"]["generation"]:
                differences.append(f"{name}: {ready} of {wanted} pods are ready")
        return differences


def operation(lab, data, router_nodes):
    """How this lab is operated."""
    return (ClusterOperation if "cluster" in data else Directories)(lab, data, router_nodes)


def probe(manifest, vip):
    """A Service and its EndpointSlices under other names, with one VIP."""
    documents = json.loads(json.dumps(list(manifest)))
    for document in documents:
        document["metadata"]["name"] += "-probe"
        if document["kind"] == "Service":
            document["spec"].update(externalIPs=[vip])
            document["spec"].pop("clusterIP", None)
            document["spec"].pop("clusterIPs", None)
        else:
            document["metadata"]["labels"]["kubernetes.io/service-name"] += "-probe"
    return yaml.safe_dump_all(documents)


def _manifest(node, name):
    return node.copies[MANIFESTS] / name
