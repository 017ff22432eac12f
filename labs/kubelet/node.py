# SPDX-License-Identifier: Apache-2.0
"""The Node object and its heartbeats: the status of the Node and its Lease, every few seconds, as a kubelet does."""

import sys
import time
from datetime import datetime, timezone

from api import MERGE, STRATEGIC, ApiError

HEARTBEAT = 5.0
LEASE_SECONDS = 40
CAPACITY = {"cpu": "8", "memory": "16Gi", "pods": "110", "ephemeral-storage": "10Gi"}


class Registration:
    def __init__(self, api, config):
        self.api, self.config, self.name = api, config, config["name"]

    def register(self):
        """Makes the Node, or takes over the one that is there; waits as long as that takes."""
        node = {
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": self.name,
                         "labels": {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux",
                                    **self.config.get("labels", {})}},
            "spec": {"taints": self.config.get("taints", [])},
        }
        if networks := self.config.get("podNetworks"):
            node["spec"].update(podCIDR=networks[0], podCIDRs=networks)
        while not self._try(lambda: self._create(node)):
            time.sleep(0.2)
        self._try(self._report)

    def renew(self):
        """Heartbeats, for ever; a Node that was deleted is registered again."""
        while True:
            time.sleep(HEARTBEAT)
            if not self._try(self._report):
                self.register()
            self._try(self._renew_lease)

    def _create(self, node):
        try:
            self.api.request("POST", "/api/v1/nodes", node)
        except ApiError as error:
            if error.status != 409:
                raise

    def _report(self):
        addresses = [{"type": "InternalIP", "address": address} for address in self.config["addresses"]]
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "the lab's kubelet runs",
                 "lastHeartbeatTime": now()}
        self.api.request("PATCH", f"/api/v1/nodes/{self.name}/status", {"status": {
            "addresses": addresses + [{"type": "Hostname", "address": self.name}, {"$patch": "replace"}], "conditions": [ready],
            "capacity": CAPACITY, "allocatable": CAPACITY, "nodeInfo": {"kubeletVersion": "lab"}}}, STRATEGIC)

    def _renew_lease(self):
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now("microseconds")}
        try:
            self.api.request("PATCH", f"{leases}/{self.name}", {"spec": spec}, MERGE)
        except ApiError as error:
            if error.status != 404:
                raise
            self.api.request("POST", leases, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                                              "metadata": {"name": self.name}, "spec": spec})

    def _try(self, step):
        try:
            step()
            return True
        except (ApiError, OSError) as error:
            print(f"node {self.name}: {error}", file=sys.stderr, flush=True)
            return False


def now(precision="seconds"):
    return datetime.now(timezone.utc).isoformat(timespec=precision).replace("+00:00", "Z")
