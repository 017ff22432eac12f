# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes cluster in a lab: the node of its control plane, its other nodes, and the objects in it.

The programs are the real ones, from `KUBEBUILDER_ASSETS` or `make apiserver`; pods are processes in namespaces of their node, run by
`labs/kubelet`. What the nodes need of the control plane (its certificate, their tokens) is in one directory of the lab.
"""

import json
import secrets
import subprocess
from pathlib import Path

import yaml

from . import programs
from .node import LabError

KUBELET = Path(__file__).resolve().parents[1] / "kubelet"
STATE = "/run/kubernetes"
PORT = 6443
ADMINISTRATOR = "administrator"


def shared(node):
    """Where the nodes of one lab find the certificate, the tokens and the address of its API server."""
    return node.directory.parent.parent / "kubernetes"


def control_plane(node, deadline):
    """etcd, the API server, the controllers and the scheduler; kubectl works in the node. `CLUSTER_ADDRESS` is where it is reached."""
    where, address, directory = programs.kubernetes(), node.spec.env["CLUSTER_ADDRESS"], shared(node)
    directory.mkdir(mode=0o700)
    node.run(["mkdir", "-p", STATE])
    tokens = {name: secrets.token_hex(16) for name in node.spec.env["CLUSTER_NODES"].split()}
    _write_credentials(node, tokens)
    etcd = node.spawn("etcd", [str(where / "etcd"), "--data-dir", f"{STATE}/etcd", "--unsafe-no-fsync", "--log-level", "error"])
    server = node.spawn("kube-apiserver", [str(where / "kube-apiserver"), *_server_options(node, address)])
    server.wait_until(Cluster(node).is_ready, deadline)
    authority = (node.root / STATE.lstrip("/") / "pki/apiserver.crt").read_text()
    (directory / "ca.crt").write_text(authority)
    (directory / "server").write_text(f"https://{address}:{PORT}")
    controllers = node.spawn("kube-controller-manager", [
        str(where / "kube-controller-manager"), f"--kubeconfig={STATE}/administrator.conf", f"--root-ca-file={STATE}/pki/apiserver.crt",
        f"--service-account-private-key-file={STATE}/accounts.key", "--leader-elect=false", "--v=0"])
    scheduler = node.spawn("kube-scheduler", [
        str(where / "kube-scheduler"), f"--kubeconfig={STATE}/administrator.conf", "--leader-elect=false", "--v=0"])
    return [etcd, server, controllers, scheduler]


def kubernetes_node(node, deadline):
    """A kubelet with `/etc/kubelet.yaml`, which waits for its control plane; its Node is there when this returns."""
    directory, credentials = shared(node), node.root / "run/kubelet"
    if not (directory / "server").exists():
        raise LabError(f"{node.name}: its control plane must come before it in the topology file")
    credentials.mkdir()
    (credentials / "ca.crt").write_text((directory / "ca.crt").read_text())
    (credentials / "token").write_text(json.loads((directory / "tokens.json").read_text())[node.name])
    host, port = (directory / "server").read_text().removeprefix("https://").rsplit(":", 1)
    config = yaml.safe_load((node.root / "etc/kubelet.yaml").read_text())
    config.update(name=node.name, server=f"https://{host}:{port}", credentials="/run/kubelet",
                  environment={"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port})
    config["images"] = {name: [word.replace("$VIPHERALD", programs.binary()).replace("$KUBERNETES", str(programs.kubernetes())) for word in words]
                        for name, words in config["images"].items()}
    (credentials / "config.yaml").write_text(yaml.safe_dump(config))
    return [node.spawn("kubelet", ["python3", str(KUBELET), "/run/kubelet/config.yaml"])]


class Cluster:
    """The objects of a lab's cluster, through kubectl in its control plane's node."""

    def __init__(self, node):
        self.node, self.kubectl_path = node, str(programs.kubernetes() / "kubectl")

    def kubectl(self, *words, text=None, timeout=60):
        """Standard output of `kubectl WORDS`; `text` is its standard input. A failure is a LabError with its message."""
        command = self.node.command([self.kubectl_path, f"--kubeconfig={STATE}/administrator.conf", *words])
        result = subprocess.run(command, input=text, capture_output=True, text=True, timeout=timeout)
        if result.returncode != 0:
            raise LabError(f"kubectl {' '.join(words)}: {result.stderr.strip() or result.stdout.strip()}")
        return result.stdout

    def is_ready(self):
        """Whether the API server answers."""
        try:
            return self.kubectl("get", "--raw=/readyz", timeout=10) == "ok"
        except (LabError, subprocess.TimeoutExpired):
            return False

    def apply(self, text, namespace=None):
        """Applies objects; those without a namespace in this one."""
        return self.kubectl("apply", *(["-n", namespace] if namespace else []), "-f", "-", text=text)

    def get(self, *words):
        return json.loads(self.kubectl("get", *words, "-o", "json"))


def _write_credentials(node, tokens):
    administrator = secrets.token_hex(16)
    users = [f"{administrator},{ADMINISTRATOR},{ADMINISTRATOR},system:masters"]
    users += [f"{token},system:node:{name},system:node:{name},system:nodes" for name, token in tokens.items()]
    state = node.root / STATE.lstrip("/")
    (state / "users.csv").write_text("\n".join(users) + "\n")
    (shared(node) / "tokens.json").write_text(json.dumps(tokens))
    address = node.spec.env["CLUSTER_ADDRESS"]
    (state / "administrator.conf").write_text(yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": {"server": f"https://{address}:{PORT}",
                                                 "certificate-authority": f"{STATE}/pki/apiserver.crt"}}],
        "users": [{"name": ADMINISTRATOR, "user": {"token": administrator}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": ADMINISTRATOR}}]}))
    node.run(["openssl", "genrsa", "-out", f"{STATE}/accounts.key", "2048"])


def _server_options(node, address):
    return [
        "--etcd-servers=http://127.0.0.1:2379", f"--bind-address={address}", f"--advertise-address={address}", f"--secure-port={PORT}",
        f"--cert-dir={STATE}/pki", f"--token-auth-file={STATE}/users.csv", "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
        "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={STATE}/accounts.key",
        f"--service-account-signing-key-file={STATE}/accounts.key",
        f"--service-cluster-ip-range={node.spec.env['CLUSTER_SERVICES']}", "--v=0"]
