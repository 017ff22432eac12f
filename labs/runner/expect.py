# SPDX-License-Identifier: Apache-2.0
"""What must be seen in a lab, computed from its scenario.yaml, and how the lab differs from it.

Every function returns differences as plain sentences; an empty list means that all is as it should be.
"""

import time

from . import kernel
from .node import LabError

FAMILIES = ("ipv4", "ipv6")
LENGTH = {"ipv4": 32, "ipv6": 128}
TOLERANCE = 6.0  # percentage points
ADDRESS_KEYS = ("prefixlen", "scope", "valid_life_time", "preferred_life_time")
FOREVER = (1 << 32) - 1  # INFINITY_LIFE_TIME of rtnetlink


class Expectations:
    """`serving` are the router nodes that announce, `vips` what they announce; both change as the scenario goes on."""

    def __init__(self, lab, data):
        self.lab, self.data = lab, data
        self.router_nodes = [name for names in data["racks"].values() for name in names]
        self.serving = list(self.router_nodes)
        self.vips = data["vips"]
        self.down = []  # routers that are cut off
        self.owner = {address: name for name, node in lab.nodes.items() if not node.spec.network_of
                      for address in kernel.own_addresses(node)}

    def withdraw_all(self):
        """From now on no VIP is expected anywhere."""
        self.vips = {family: [] for family in FAMILIES}

    def restore(self):
        """From now on all VIPs of the scenario are expected again."""
        self.vips = self.data["vips"]

    def answering(self):
        """The router nodes that requests go through."""
        return self.serving

    def differences(self):
        """All of them."""
        return self.routing() + self.addresses()

    def next_hops(self, router, family):
        """Expected (gateway, interface) of each VIP at `router`: those that lead to a router node that serves."""
        if router in self.down:
            return []
        return sorted((gateway, interface) for gateway, interface in self.data["routes"][router][family]
                      if self._serves(self.owner.get(gateway), family))

    def _serves(self, name, family):
        if name in self.data["routes"]:
            return bool(self.next_hops(name, family))
        return name in self.serving

    def routing(self):
        """Differences in the routing tables."""
        differences = []
        for router in self.data["routes"]:
            for family in FAMILIES:
                found = kernel.routes(self.lab.nodes[router], family, self.data["prefixes"][family])
                hops = self.next_hops(router, family)
                wanted = {vip: hops for vip in self.vips[family]} if hops else {}
                differences += [f"{router}: {vip} has next hops {_hops(found.get(vip))}, expected {_hops(hops)}"
                                for vip, hops in wanted.items() if found.get(vip) != hops]
                differences += [f"{router}: {vip} is still routed to {_hops(found[vip])}"
                                for vip in found if vip not in wanted]
        return differences

    def addresses(self):
        """Differences on the interface that holds the VIPs."""
        differences = []
        for name in self.router_nodes:
            on_lo = {entry["local"]: entry for entry in kernel.addresses(self.lab.nodes[name], "lo")}
            for family in FAMILIES:
                for vip in self.data["vips"][family]:
                    entry, wanted = on_lo.get(vip), name in self.serving and vip in self.vips[family]
                    if wanted and (entry is None or (entry["prefixlen"], entry["scope"]) != (LENGTH[family], "global")):
                        differences.append(f"{name}: lo has no {vip}/{LENGTH[family]} scope global")
                    if entry is not None and not wanted:
                        differences.append(f"{name}: lo still has {vip}")
            for foreign in self.data["foreign"]:
                address, _, length = foreign.partition("/")
                entry = on_lo.get(address, {})
                if tuple(entry.get(key) for key in ADDRESS_KEYS) != (int(length), "global", FOREVER, FOREVER):
                    differences.append(f"{name}: the foreign address {foreign} on lo is changed or gone: {entry}")
        return differences

    def spread(self, by_node):
        """[(rack or node, indented, requests, percent, expected percent)] and the differences beyond the tolerance."""
        total = sum(by_node.values()) or 1
        racks = {rack: [name for name in names if name in self.answering()] for rack, names in self.data["racks"].items()}
        racks = {rack: names for rack, names in racks.items() if names}
        rows, differences = [], []
        for rack, names in racks.items():
            share = 100 / len(racks)
            rows.append((rack, False, sum(by_node.get(name, 0) for name in names), share))
            rows += [(name, True, by_node.get(name, 0), share / len(names)) for name in names]
        rows = [(name, inner, count, 100 * count / total, share) for name, inner, count, share in rows]
        for name, _, _, percent, share in rows:
            if abs(percent - share) > TOLERANCE:
                differences.append(
                    f"{name} got {percent:.1f} % of the requests, expected {share:.0f} ± {TOLERANCE:.0f} %")
        strangers = sorted(set(by_node) - set(self.answering()))
        return rows, differences + [f"{name} got requests although it serves none" for name in strangers]


def wait(lab, differences, timeout, what):
    """Waits until `differences()` is empty and returns the seconds it took; LabError with them after `timeout`."""
    begin = time.monotonic()
    while found := differences():
        lab.require_alive()
        if time.monotonic() - begin > timeout:
            lines = "\n".join(f"    {line}" for line in found)
            raise LabError(f"{what}: not reached within {timeout:.0f} s:\n{lines}")
        time.sleep(0.05)
    return time.monotonic() - begin


def _hops(hops):
    return ", ".join(f"{gateway} dev {interface}" for gateway, interface in hops or []) or "none"
