# SPDX-License-Identifier: Apache-2.0
"""The story each ECMP lab tells: converge, look, send, measure, stop a node, start it, delete the Service.

In: a lab that is up and its scenario.yaml. Out: what an operator would look at, on standard output; figures in
`Report.results`; LabError at the first thing that is not as expected.
"""

import ipaddress
import json
import re
import statistics
import subprocess
import time
from pathlib import Path

import yaml

from . import kernel
from .expect import FAMILIES, Expectations, wait
from .node import LabError
from .operation import operation
from .probes import Probes

CONVERGENCE = 30.0  # seconds until every table is as expected
CHECK_REQUESTS = 200  # after each change
FIRST_SOURCE_PORT = 10000  # below the ephemeral range


class Report:
    """Prints the story and collects its figures."""

    def __init__(self):
        self.results = {}
        self.begin = time.monotonic()

    def heading(self, text):
        print(f"\n=== {text} (at {time.monotonic() - self.begin:.1f} s)", flush=True)

    def line(self, text=""):
        print(text, flush=True)

    def block(self, title, text):
        self.line(f"--- {title}")
        self.line(text.rstrip() or "(none)")


def read(lab):
    """The scenario.yaml of a lab, with all of another lab's that it is `like` and does not have."""
    directory = lab.topology.path.parent
    data = yaml.safe_load((directory / "scenario.yaml").read_text())
    other = data.pop("like", None)
    return data if other is None else yaml.safe_load((directory.parent / other / "scenario.yaml").read_text()) | data


class Scenario:
    def __init__(self, lab, report, data):
        self.lab, self.report, self.data = lab, report, data
        self.expect = Expectations(lab, self.data)
        self.operation = operation(lab, self.data, self.expect.router_nodes)
        self.interfaces = ["lo"]  # of the router nodes, whose addresses are shown
        self.source_port = FIRST_SOURCE_PORT

    def run(self):
        """All steps in order."""
        self.converge()
        self.traceroute()
        self.requests(self.data["client"]["requests"], shares=True)
        self.propagation()
        self.stop_node()
        self.restart_node()
        self.more()
        self.delete_service()

    def restore_service(self):
        """Puts the deleted Service back, for a lab that is kept."""
        self.report.heading("put the Service back, for the lab to stay up")
        self.operation.put_everywhere(self.data["service"], self.operation.original(self.data["service"]))
        self.expect.restore()
        self.settle("the Service is back")

    # Steps

    def converge(self):
        self.operation.prepare()
        self.report.heading("wait for convergence")
        seconds = self.settle("convergence")
        self.report.line(f"converged {seconds:.1f} s after the last daemon was started")
        self.report.results["convergenceSeconds"] = round(seconds, 2)
        self.show()
        node = self.router_nodes()[0]
        for noun in ("vips", "peers", "routes"):
            self.report.block(f"vipherald show {noun} on {node.name}", self.operation.ask(node, noun))
        self.report.results["routes"] = {
            router: {vip: hops for family in FAMILIES for vip, hops in
                     kernel.routes(self.lab.nodes[router], family, self.data["prefixes"][family]).items()}
            for router in self.data["routes"]}

    def traceroute(self):
        if "traceroute" not in self.data:
            return
        start, hops = self.data["traceroute"]["from"], self.data["traceroute"]["hops"]
        self.report.heading(f"traceroute from {start} to the pod {hops[-1]}")
        text = self.lab.nodes[start].run(["traceroute", "-n", "-q", "1", "-w", "2", hops[-1]])
        self.report.line(text.rstrip())
        seen = re.findall(r"^ *\d+ +(\S+)", text, re.MULTILINE)
        self.report.results["traceroute"] = seen
        if seen != hops:
            raise LabError(f"the traceroute reads {', '.join(seen)}, expected {', '.join(hops)}")

    def requests(self, count, shares=False, of=None):
        """`count` requests per family to its VIPs in turn, or to others; with `shares` their spread is held against the racks."""
        client = self.data["client"]
        for vips in (of or self.data["vips"]).values():
            family = "ipv6" if ":" in vips[0] else "ipv4"
            self.report.heading(f"{count} TCP requests from {client['node']} to {' and '.join(vips)}")
            numbers = [str(number) for number in (client["port"], count, self.source_port)]
            self.source_port += count
            answer = json.loads(self.lab.nodes[client["node"]].run(
                ["python3", "/srv/request.py"] + numbers + vips, timeout=300))
            by_node, by_pod = self.count(answer["answers"])
            rows, differences = self.expect.spread(by_node)
            self.report.line(f"{len(answer['failures'])} failures")
            for name, inner, number, percent, share in rows:
                label = f"  {name}" if inner else name
                self.report.line(f"  {label:<16}{number:>6}{percent:>7.1f} %   expected {share:.0f} %")
            self.report.line("  answered by " + ", ".join(f"{pod} {number}" for pod, number in sorted(by_pod.items())))
            if failures := answer["failures"]:
                raise LabError(f"{len(failures)} of {count} requests failed, the first: {failures[0]}")
            if shares:
                self.report.results.setdefault("spread", {})[family] = by_node
                if differences:
                    raise LabError("; ".join(differences))
            elif strangers := sorted(set(by_node) - set(self.expect.answering())):
                raise LabError(f"requests went through {', '.join(strangers)}")

    def propagation(self):
        """From a manifest where a router node reads it to the route in the kernel of its ToR."""
        wanted = self.data["propagation"]
        node, router = self.lab.nodes[wanted["node"]], self.lab.nodes[wanted["router"]]
        self.report.heading(f"manifest on {node.name} to route on {router.name}, {wanted['tries']} times")
        network = ipaddress.ip_network(self.data["prefixes"]["ipv4"])
        samples = []
        with kernel.Monitor(router, "route") as monitor:
            for number in range(wanted["tries"]):
                vip = str(network[100 + number])
                written = self.operation.put(node, "probe.yaml", self.operation.probe(vip))
                seen = monitor.wait("new", [vip], written + CONVERGENCE)
                if seen is None:
                    raise LabError(f"no route to {vip} on {router.name} within {CONVERGENCE:.0f} s of its manifest")
                samples.append(1000 * (seen[0] - written))
                self.operation.take_away(node, "probe.yaml")
                if monitor.wait("del", [vip], time.monotonic() + CONVERGENCE) is None:
                    raise LabError(f"{router.name} still has {vip} {CONVERGENCE:.0f} s after its manifest went")
        median = statistics.median(samples)
        self.report.line(f"median {median:.1f} ms, least {min(samples):.1f} ms, most {max(samples):.1f} ms")
        self.report.results["propagationMilliseconds"] = {
            "median": round(median, 2), "samples": [round(sample, 2) for sample in samples]}
        if median > wanted["limitMilliseconds"]:
            raise LabError(f"the median of {median:.1f} ms is above {wanted['limitMilliseconds']} ms")
        self.settle("only the Service's VIPs are left")

    def stop_node(self):
        wanted = self.data["stop"]
        node, router = self.lab.nodes[wanted["node"]], self.lab.nodes[wanted["router"]]
        self.report.heading(f"stop vipherald on {node.name}")
        vips = [vip for family in FAMILIES for vip in self.data["vips"][family]]
        self.expect.serving.remove(node.name)
        begin = time.monotonic()
        with kernel.Monitor(node, "address") as monitor:
            ended = self.operation.stop(node)
            removed = monitor.wait("del", vips, begin + CONVERGENCE)
        still_routed = [line for line in self.expect.routing() if line.startswith(f"{router.name}:")]
        if removed is None:
            raise LabError(f"{node.name}: no VIP left lo within {CONVERGENCE:.0f} s of SIGTERM")
        if still_routed:
            raise LabError(f"{node.name} removed {removed[1]} from lo before the withdraw arrived: {still_routed[0]}")
        ended()
        self.report.line(f"first VIP removed after {removed[0] - begin:.2f} s, routes gone before; "
                         f"exit status 0 after {time.monotonic() - begin:.2f} s")
        self.report.results["stopSeconds"] = round(time.monotonic() - begin, 2)
        self.settle(f"{node.name} is stopped")
        self.show()
        self.requests(CHECK_REQUESTS)

    def restart_node(self):
        name = self.data["stop"]["node"]
        self.report.heading(f"start vipherald on {name} again")
        self.operation.start(self.lab.nodes[name])
        self.expect.serving.append(name)
        seconds = self.settle(f"{name} is back")
        self.report.line(f"routes and addresses are back after {seconds:.1f} s")
        self.report.results["restartSeconds"] = round(seconds, 2)
        self.show()
        self.requests(CHECK_REQUESTS)

    def delete_service(self):
        self.report.heading(f"delete {self.data['service']}")
        self.operation.take_away_everywhere(self.data["service"])
        self.expect.withdraw_all()
        seconds = self.settle("the Service is deleted")
        self.report.line(f"routes and addresses are gone after {seconds:.1f} s")
        self.report.results["deleteSeconds"] = round(seconds, 2)
        self.show()

    def more(self):
        """Steps that only some of these labs have."""

    # What the steps share

    def under_requests(self, work):
        """Does `work` while the client sends requests to all VIPs in turn; their number, the failures, and the seconds that it took."""
        client = self.data["client"]
        vips = [vip for family in FAMILIES for vip in self.data["vips"][family]]
        argv = ["python3", "/srv/request.py", str(client["port"]), "-", str(self.source_port), *vips]
        requests = subprocess.Popen(self.lab.nodes[client["node"]].command(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        begin = time.monotonic()
        try:
            work()
            seconds = time.monotonic() - begin
            answer = json.loads(requests.communicate(timeout=30)[0])
        finally:
            requests.kill()
        self.source_port += answer["count"]
        return answer["count"], answer["failures"], seconds

    def under_probes(self, step, heading, change):
        """Makes a change under probes to all VIPs, until all is as expected then; the loss of a VIP is held against the limit."""
        client, wanted = self.data["client"], self.data["probes"]
        vips = [vip for family in FAMILIES for vip in self.data["vips"][family]]
        self.report.heading(heading)
        with Probes(self.lab.nodes[client["node"]], client["port"], wanted["everyMilliseconds"], vips) as probes:
            change()
            seconds = self.settle(heading)
            probes.go_on()
            outcome = probes.outcome()
        self.report.line(f"all as expected after {seconds:.2f} s; probes each {wanted['everyMilliseconds']} ms:")
        for vip, counts in outcome.items():
            self.report.line(f"  {vip:<20}{counts['lost']:>4} of {counts['sent']:>5} lost   at most {wanted['lost'][step]}")
        self.report.results.setdefault("lost", []).append({"step": heading, **outcome})
        if worst := [vip for vip, counts in outcome.items() if counts["lost"] > wanted["lost"][step]]:
            raise LabError(f"{heading}: more than {wanted['lost'][step]} probes to {', '.join(worst)} were lost")

    def settle(self, what):
        """Waits until all tables and addresses are as expected; returns the seconds it took."""
        return wait(self.lab, self.expect.differences, CONVERGENCE, what)

    def show(self):
        """Routing tables of the routers and addresses of the router nodes."""
        for router in self.data["routes"]:
            for family in FAMILIES:
                self.report.block(f"{router}: ip {kernel.FLAG[family]} route, VIPs",
                                  kernel.route_text(self.lab.nodes[router], family, self.data["prefixes"][family]))
        for name in self.expect.router_nodes:
            for interface in self.interfaces:
                text = self.lab.nodes[name].run(["ip", "addr", "show", "dev", interface])
                self.report.block(f"{name}: {interface}", "\n".join(line for line in text.splitlines() if " scope global" in line))

    def count(self, answers):
        """Requests by router node and by pod."""
        by_node, by_pod = {}, {}
        for sources in answers.values():
            for source, pods in sources.items():
                name = self.expect.owner.get(source, source)
                by_node[name] = by_node.get(name, 0) + sum(pods.values())
                for pod, number in pods.items():
                    by_pod[pod] = by_pod.get(pod, 0) + number
        return by_node, by_pod

    def router_nodes(self):
        """The nodes that have VIPs."""
        return [self.lab.nodes[name] for name in self.expect.router_nodes]
