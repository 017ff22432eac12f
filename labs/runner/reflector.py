# SPDX-License-Identifier: Apache-2.0
"""The story of a lab whose route reflector is one of two nodes: its addresses move by VRRP, and the ToR's session with them.

`reflector` of scenario.yaml names the nodes, the addresses and their link; `lost` says how many requests may fail each time.
"""

import json

from . import kernel
from .expect import Expectations
from .node import LabError
from .scenario import CHECK_REQUESTS, Scenario


class ReflectorExpectations(Expectations):
    """`able` are the nodes that can be heard, of which one must have the addresses: `holder`; None is whichever."""

    def __init__(self, lab, data, established):
        super().__init__(lab, data)
        self.wanted, self.established = data["reflector"], established
        self.able, self.holder = list(self.wanted["nodes"]), None

    def differences(self):
        return self.routing() + self.addresses() + self.places() + self.sessions()

    def holders(self):
        """The nodes that have one of the addresses, of those that can be heard."""
        every = set(self.wanted["addresses"])
        return [name for name in self.able
                if every & {entry["local"] for entry in kernel.addresses(self.lab.nodes[name], self.wanted["interface"])}]

    def places(self):
        """Differences in who has the addresses."""
        holders = self.holders()
        if len(holders) != 1 or self.holder not in (None, holders[0]):
            return [f"the reflector's addresses are on {', '.join(holders) or 'no node'}, expected {self.holder or 'one'}"]
        found = {entry["local"] for entry in kernel.addresses(self.lab.nodes[holders[0]], self.wanted["interface"])}
        return [f"{holders[0]}: {self.wanted['interface']} has no {address}" for address in self.wanted["addresses"] if address not in found]

    def sessions(self):
        """Differences in the sessions with the ToR and the clients: whoever has the addresses has them."""
        found = self.established((self.holders() or self.able)[0])
        wanted = {name: address for name, address in self.wanted["peers"].items() if name not in self.router_nodes or name in self.serving}
        return [f"the reflector has no session with {name}" for name, address in wanted.items() if address not in found]


class Reflector(Scenario):
    def __init__(self, lab, report, data):
        super().__init__(lab, report, data)
        self.expect = ReflectorExpectations(lab, data, self.established)

    def more(self):
        """The node that has the reflector's addresses is stopped, and loses its cable."""
        self.expect.holder, = self.expect.holders()
        self.report.block(f"vipherald show vrrp on {self.expect.holder}", self.ask(self.expect.holder, "vrrp"))
        first = self.expect.holder
        self.move("stop", f"stop vipherald on {first}, the reflector", lambda: self.operation.stop(self.lab.nodes[first])())
        self.operation.start(self.lab.nodes[first])
        self.expect.able.append(first)
        self.settle(f"{first} is back, and leaves the addresses where they are")
        second = self.expect.holder
        self.move("cable", f"pull the cable of {second}, the reflector", lambda: self.plug(second, "down"))
        self.plug(second, "up")
        self.expect.able.append(second)
        self.settle(f"the cable of {second} is in again, and the addresses stay where they are")
        self.requests(CHECK_REQUESTS)

    def move(self, step, heading, change):
        """The holder goes by `change`, under requests; then the other one has the addresses, and everybody's sessions."""
        self.report.heading(heading)
        before = self.expect.holder

        def work():
            self.expect.able.remove(before)
            self.expect.holder, = self.expect.able
            change()
            self.settle(heading)

        count, failures, seconds = self.under_requests(work)
        limit = self.expect.wanted["lost"][step]
        self.report.line(f"{self.expect.holder} has the addresses, the ToR's session and the clients' after {seconds:.2f} s; "
                         f"{len(failures)} of {count} requests failed, at most {limit}")
        self.report.results.setdefault("reflector", {})[step] = {"seconds": round(seconds, 2), "failures": len(failures), "requests": count}
        if len(failures) > limit or not count:
            raise LabError(f"{heading}: {len(failures)} of {count} requests failed, the first: {failures[:1]}")
        self.report.block(f"vipherald show peers on {self.expect.holder}", self.ask(self.expect.holder, "peers"))
        self.requests(CHECK_REQUESTS)

    def plug(self, name, state):
        """The cable of a node, at its other end."""
        end = (name, self.expect.wanted["interface"])
        cable = next(ends for ends in self.lab.topology.links if end in ends)
        bridge, port = next(other for other in cable if other != end)
        self.lab.nodes[bridge].run(["ip", "link", "set", port, state])

    def established(self, name):
        """The addresses of the peers with which a node has a session; none while it does not answer."""
        try:
            peers = self.operation.ask(self.lab.nodes[name], "peers", "-o", "json")
        except LabError:
            return []
        return [peer["address"] for peer in json.loads(peers)["peers"] if peer["state"] == "Established"]

    def ask(self, name, noun):
        return self.operation.ask(self.lab.nodes[name], noun)
