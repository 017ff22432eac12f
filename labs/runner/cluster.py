# SPDX-License-Identifier: Apache-2.0
"""The story of a lab with a cluster: beside the steps of every ECMP lab, what is done with `kubectl`."""

import time

from .node import LabError
from .scenario import CHECK_REQUESTS, Scenario


class ClusterStory(Scenario):
    def more(self):
        self.ingress()
        self.roll()
        self.maintain()
        self.kube_proxy()

    def ingress(self):
        """An EricIngress says of itself that it is served, and its VIP answers; then it goes."""
        self.report.heading("an EricIngress, and what it says of itself")
        vip = self.operation.add_ingress()
        self.report.block("kubectl get ericingresses,routernodes -A", self.operation.cluster.kubectl("get", "ericingresses,routernodes", "-A"))
        self.requests(CHECK_REQUESTS, of={"ipv4": [vip]})
        self.operation.take_away_everywhere("ingress.yaml")
        self.settle("the EricIngress is deleted")

    def roll(self):
        """All pods are replaced one by one under requests: each keeps everything for the next."""
        self.report.heading("kubectl rollout restart, under requests")
        count, failures, seconds = self.under_requests(self.operation.restart_all)
        self.report.line(f"{len(failures)} of {count} requests failed; the restart took {seconds:.1f} s")
        self.report.results["rolloutFailures"] = len(failures)
        if failures or not count:
            raise LabError(f"{len(failures)} of {count} requests failed during a restart, the first: {failures[:1]}")
        self.settle("all pods are replaced")

    def maintain(self):
        """A router node is drained and comes back under requests: its VIPs leave it, its pod goes on."""
        wanted = self.data["maintain"]
        node = self.lab.nodes[wanted["node"]]
        self.report.heading(f"kubectl drain {node.name}, and uncordon, under requests")
        begin = time.monotonic()

        def work():
            self.operation.drain(node)
            self.expect.serving.remove(node.name)
            self.settle(f"{node.name} is drained")
            self.report.line(f"no VIP is left there, and its RouterNode says so, after {time.monotonic() - begin:.1f} s; its pod goes on")
            self.operation.uncordon(node)
            self.expect.serving.append(node.name)
            self.settle(f"{node.name} is back")

        count, failures, seconds = self.under_requests(work)
        self.report.line(f"{len(failures)} of {count} requests lost, {wanted['lost']} allowed; drain and uncordon took {seconds:.1f} s")
        for failure in failures:
            self.report.line(f"  {failure}")
        self.report.results["maintenance"] = {"lost": len(failures), "requests": count, "seconds": round(seconds, 2)}
        if len(failures) > wanted["lost"] or not count:
            raise LabError(f"{len(failures)} of {count} requests were lost during a maintenance, the first: {failures[:1]}")
        if seconds > wanted["seconds"]:
            raise LabError(f"drain and uncordon took {seconds:.1f} s, expected {wanted['seconds']} s at most")

    def kube_proxy(self):
        """kube-proxy joins, and does not get the VIPs' connections; then it is told to have them, by a change of the configuration."""
        self.report.heading("the real kube-proxy on the router nodes")
        self.operation.add_kube_proxy()
        self.settle("kube-proxy runs beside")
        self.requests(CHECK_REQUESTS)
        self.report.heading("dataplane: kube-proxy, by a change of the ConfigMap")
        self.operation.change_configuration("dataplane: {type: auto}", "dataplane: {type: kube-proxy}")
        self.settle("kube-proxy balances")
        self.requests(CHECK_REQUESTS)
