# SPDX-License-Identifier: Apache-2.0
"""The story of a lab with two ToRs at once: one of them is cut off from all of its neighbours, and comes back.

`failure` of scenario.yaml names the router and the bridges whose cables are pulled; `probes.lost` says how many probes a VIP
may lose meanwhile.
"""

from .scenario import CHECK_REQUESTS, Scenario


class Failure(Scenario):
    def run(self):
        """All steps in order."""
        self.converge()
        self.requests(self.data["client"]["requests"], shares=True)
        self.cut_off()
        self.delete_service()

    def cut_off(self):
        """The router loses all of its cables, and has them again; the other one has all traffic meanwhile."""
        router = self.data["failure"]["router"]

        def out():
            self.cables("down")
            self.expect.down.append(router)

        def back():
            self.cables("up")
            self.expect.down.remove(router)

        self.under_probes("out", f"pull all cables of {router}", out)
        self.show()
        self.requests(CHECK_REQUESTS)
        for node in self.router_nodes():
            self.report.block(f"vipherald show peers on {node.name}", self.operation.ask(node, "peers"))
        self.under_probes("back", f"put the cables of {router} in again", back)
        self.show()
        self.requests(self.data["client"]["requests"], shares=True)

    def cables(self, state):
        """All ports of the bridges: their other ends lose the carrier, or get it."""
        bridges = self.data["failure"]["bridges"]
        for bridge in bridges:
            for ends in self.lab.topology.links:
                for node, port in ends:
                    if node == bridge:
                        self.lab.nodes[bridge].run(["ip", "link", "set", port, state])
