# SPDX-License-Identifier: Apache-2.0
"""The story of a lab whose VIPs virtual routers have: cut the cable of the Active Router, stop it, change to BGP and back.

Each change is made under a stream of probes from the client; `probes.lost` of scenario.yaml says how many a VIP may lose.
"""

import json

from . import kernel
from .expect import FAMILIES, LENGTH, Expectations, wait
from .node import LabError
from .scenario import CHECK_REQUESTS, CONVERGENCE, Scenario

STATES = {True: "Active", False: "Backup"}
SERVED_BY_BGP = "Served"


class PairExpectations(Expectations):
    """`taking_part` are the router nodes with `mode: vrrp` that can be heard, `unplugged` those that cannot, `serving` those
    that announce. `active` is the node that must be Active; None is whichever, but one."""

    def __init__(self, lab, data, ask):
        super().__init__(lab, data)
        self.ask, self.link = ask, data["virtualRouters"]["interface"]
        self.taking_part, self.unplugged, self.serving, self.active = list(self.router_nodes), [], [], None

    def restore(self):
        """All VIPs again; whichever node has the first one of them has them all."""
        super().restore()
        self.active = None

    def answering(self):
        return self.serving or [self.active]

    def differences(self):
        on_link = self.on_link()
        return self.routing() + self.addresses() + self.places(on_link) + self.reports(on_link)

    def on_link(self):
        """{router node: {address: prefix length}} on the link of the virtual routers."""
        return {name: {entry["local"]: entry["prefixlen"] for entry in kernel.addresses(self.lab.nodes[name], self.link)}
                for name in self.router_nodes}

    def holders(self, on_link):
        """The nodes that have a VIP on the link."""
        every = {vip for family in FAMILIES for vip in self.data["vips"][family]}
        return [name for name, found in on_link.items() if every & set(found)]

    def places(self, on_link):
        """Differences on the link: where nobody, or nobody else, may have a VIP, and one must have them all."""
        wanted = [self.active] if self.active else self.holders(on_link)[:1]
        if not self.taking_part or not any(self.vips.values()):
            wanted = []
        elif not wanted:
            return ["no router node has the VIPs"]
        differences = [f"{name}: {self.link} still has VIPs" for name in self.holders(on_link) if name not in wanted]
        for name in wanted:
            for family in FAMILIES:
                differences += [f"{name}: {self.link} has no {vip}/{LENGTH[family]}" for vip in self.vips[family]
                                if on_link[name].get(vip) != LENGTH[family]]
        return differences

    def reports(self, on_link):
        """Differences in what vipherald itself says, of its virtual routers and of each VIP."""
        differences, holders = [], self.holders(on_link)
        states = {name: STATES[name in holders] for name in self.taking_part}
        states.update({name: "Initialize" for name in self.unplugged})
        vips = [vip for family in FAMILIES for vip in self.vips[family]]
        for name in [*states, *self.serving]:
            try:
                routers, found = self.shown(name)
            except LabError as error:
                differences.append(str(error))
                continue
            if vips and name in states:
                differences += [f"{name}: the {router['family']} router is {router['state']}, expected {states[name]}"
                                for router in routers if router["state"] != states[name]]
            expected = dict.fromkeys(vips, ("Announced", states.get(name, SERVED_BY_BGP)))
            if found != expected and name not in self.unplugged:
                differences.append(f"{name} says {found}, expected {expected}")
        return differences

    def shown(self, name):
        """The virtual routers that a node shows, and {VIP: (state, reason)}."""
        vrrp, vips = (json.loads(self.ask(self.lab.nodes[name], noun, "-o", "json"))[noun] for noun in ("vrrp", "vips"))
        return [router for group in vrrp for router in group["routers"]], {vip["address"]: (vip["state"], vip["reason"]) for vip in vips}

    def neighbours(self):
        """Differences in where the routers, which have asked, find the VIPs on the link of the virtual routers."""
        address = kernel.link_address(self.lab.nodes[self.active], self.link)
        differences = []
        for router, interface in self.data["virtualRouters"]["neighbours"].items():
            known = kernel.neighbours(self.lab.nodes[router], interface)
            differences += [f"{router}: {vip} is at {known.get(vip)}, expected {address} of {self.active}"
                            for family in FAMILIES for vip in self.vips[family] if known.get(vip) != address]
        return differences


class Pair(Scenario):
    def __init__(self, lab, report, data):
        super().__init__(lab, report, data)
        self.expect = PairExpectations(lab, data, self.operation.ask)
        self.interfaces.append(self.expect.link)

    def run(self):
        """All steps in order."""
        self.converge()
        self.requests(self.data["client"]["requests"], shares=True)
        self.find()
        self.cut_cable()
        self.stop_active()
        self.change_mode("vrrp", "bgp")
        self.requests(self.data["client"]["requests"], shares=True)
        self.change_mode("bgp", "vrrp")
        self.delete_service()

    # Steps

    def converge(self):
        super().converge()
        self.expect.active = self.expect.holders(self.expect.on_link())[0]
        for node in self.router_nodes():
            self.report.block(f"vipherald show vrrp on {node.name}", self.operation.ask(node, "vrrp"))
        self.report.line(f"{self.expect.active} is Active")

    def cut_cable(self):
        """The cable of the Active Router, out and in again; the other one has the VIPs, and goes on with them."""
        name = self.expect.active
        end = (name, self.expect.link)
        cable = next(ends for ends in self.lab.topology.links if end in ends)
        bridge, port = next(other for other in cable if other != end)

        def out():
            self.lab.nodes[bridge].run(["ip", "link", "set", port, "down"])
            self.expect.taking_part.remove(name)
            self.expect.unplugged.append(name)
            self.expect.active = self.other(name)

        def back():
            self.lab.nodes[bridge].run(["ip", "link", "set", port, "up"])
            self.expect.unplugged.remove(name)
            self.expect.taking_part.append(name)

        self.under_probes("cableOut", f"pull the cable of {name}, which is Active", out)
        self.under_probes("cableIn", f"put the cable of {name} in again", back)

    def stop_active(self):
        """SIGTERM of the Active Router, and its next start."""
        name = self.expect.active

        def stop():
            ended = self.operation.stop(self.lab.nodes[name])
            self.expect.taking_part.remove(name)
            self.expect.active = self.other(name)
            ended()

        def start():
            self.operation.start(self.lab.nodes[name])
            self.expect.taking_part.append(name)

        self.under_probes("stop", f"stop vipherald on {name}, which is Active", stop)
        self.under_probes("start", f"start vipherald on {name} again", start)

    def change_mode(self, old, new):
        """`mode`, by the configuration file of one node after the other."""
        modes = {"vrrp": self.expect.taking_part, "bgp": self.expect.serving}
        for node in self.router_nodes():
            def change(node=node):
                self.operation.change_configuration(node, f"mode: {old}", f"mode: {new}")
                modes[old].remove(node.name)
                modes[new].append(node.name)
                # Who is alone in taking part is Active; who joins another one is not.
                self.expect.active = self.expect.taking_part[0] if self.expect.taking_part else None

            self.under_probes(new, f"mode: {new} on {node.name}, by its configuration file", change)

    # What the steps share

    def under_probes(self, step, heading, change):
        """As in any lab; then a look, requests, and where the routers find the VIPs."""
        super().under_probes(step, heading, change)
        self.show()
        self.requests(CHECK_REQUESTS)
        if not self.expect.serving:
            self.find()

    def find(self):
        """The routers know the VIPs at the Active Router."""
        wait(self.lab, self.expect.neighbours, CONVERGENCE, f"the VIPs are found at {self.expect.active}")

    def show(self):
        super().show()
        for router, interface in self.data["virtualRouters"]["neighbours"].items():
            vips = [vip for family in FAMILIES for vip in self.expect.vips[family]]
            text = self.lab.nodes[router].run(["ip", "neigh", "show", "dev", interface])
            lines = [line for line in text.splitlines() if line.split()[0] in vips]
            self.report.block(f"{router}: ip neigh show dev {interface}, VIPs", "\n".join(lines))

    def other(self, name):
        return next(other for other in self.expect.router_nodes if other != name)
