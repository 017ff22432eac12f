# SPDX-License-Identifier: Apache-2.0
"""A small kubelet for labs: `python3 kubelet CONFIG` registers a Node and runs the pods that are bound to it as processes.

In: a YAML file (node name, addresses, pod networks, labels, taints, entry points of images) and the credentials of the
node. Out: what a kubelet reports: the Node with its heartbeats, and each pod's status. Pods end with this process.
"""

import sys
import threading
from pathlib import Path

import yaml

from api import Api
from network import Network
from node import Registration
from pod import Pod


class Kubelet:
    """The pods of one node, each in a thread of its own; shared by all: the API, the network, the configuration."""

    def __init__(self, config):
        self.config = config
        credentials = Path(config["credentials"])
        self.api = Api(config["server"], credentials / "ca.crt", (credentials / "token").read_text().strip())
        self.network = Network(config.get("podNetworks", []))
        self.pods = {}  # by uid

    def run(self):
        """Never ends by itself."""
        registration = Registration(self.api, self.config)
        registration.register()
        threading.Thread(target=registration.renew, daemon=True).start()
        self.api.follow(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self.config['name']}", self.take)

    def take(self, objects):
        """The pods of this node, all of them, by uid."""
        for uid, pod in objects.items():
            if uid in self.pods:
                self.pods[uid].take(pod)
            elif pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                self.pods[uid] = Pod(self, pod)
                self.pods[uid].start()
        for uid in set(self.pods) - set(objects):
            self.pods.pop(uid).vanish()


if __name__ == "__main__":
    Kubelet(yaml.safe_load(Path(sys.argv[1]).read_text())).run()
