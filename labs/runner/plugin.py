# SPDX-License-Identifier: Apache-2.0
"""The story of a lab in which a network plugin has a speaker of its own on each router node: neither disturbs the other.

`plugin` of scenario.yaml says what the plugin's speakers announce, who listens on which port, and which speaker is restarted.
"""

import signal

from . import kernel
from .expect import Expectations
from .node import LabError
from .scenario import CHECK_REQUESTS, Scenario


class PluginExpectations(Expectations):
    """`speaking` are the plugin's speakers that run."""

    def __init__(self, lab, data):
        super().__init__(lab, data)
        self.wanted = data["plugin"]
        self.speaking = list(self.wanted["pods"])

    def differences(self):
        return super().differences() + self.pods()

    def pods(self):
        """Differences in what the router has from the plugin."""
        found = kernel.routes(self.lab.nodes[self.wanted["router"]], "ipv4", self.wanted["prefix"])
        wanted = {prefix: [tuple(hop) for hop in hops] for name in self.speaking for prefix, hops in self.wanted["pods"][name].items()}
        return [] if found == wanted else [f"{self.wanted['router']} has pods at {found}, expected {wanted}"]

    def listening(self):
        """Differences in who listens for BGP on the router nodes."""
        differences = []
        for name, wanted in self.wanted["listening"].items():
            lines = self.lab.nodes[name].run(["ss", "-4", "-H", "-l", "-t", "-n", "( sport = :179 or sport = :1179 )"]).splitlines()
            found = sorted(line.split()[3] for line in lines)
            if found != sorted(wanted):
                differences.append(f"{name} listens on {found}, expected {sorted(wanted)}")
        return differences


class Plugin(Scenario):
    def __init__(self, lab, report, data):
        super().__init__(lab, report, data)
        self.expect = PluginExpectations(lab, data)

    def run(self):
        """All steps in order."""
        self.converge()
        self.listening()
        self.requests(self.data["client"]["requests"], shares=True)
        pods = [prefix.split("/")[0] for prefixes in self.data["plugin"]["pods"].values() for prefix in prefixes]
        self.undisturbed("the plugin's routes", pods, self.stop_node)
        self.undisturbed("the plugin's routes", pods, self.restart_node)
        self.undisturbed("the VIPs", [vip for vips in self.data["vips"].values() for vip in vips], self.restart_plugin)
        self.undisturbed("the plugin's routes", pods, self.delete_service)

    # Steps

    def listening(self):
        self.report.heading("who listens for BGP")
        for name in self.data["plugin"]["listening"]:
            text = self.lab.nodes[name].run(["ss", "-4", "-l", "-t", "-n", "( sport = :179 or sport = :1179 )"])
            self.report.block(f"{name}: ss -4ltn", text)
        if differences := self.expect.listening():
            raise LabError("; ".join(differences))

    def restart_plugin(self):
        """The plugin's speaker of one node ends as by a crash, and is there again."""
        name = self.data["plugin"]["restart"]
        self.report.heading(f"kill the plugin's speaker {name}, and start it again")
        daemon = self.lab.daemons.pop(name)[0]
        daemon.signal(signal.SIGKILL)
        daemon.wait(10)
        self.expect.speaking.remove(name)
        self.settle(f"{name} is gone")
        self.requests(CHECK_REQUESTS)
        self.lab.start(self.lab.nodes[name])
        self.expect.speaking.append(name)
        self.settle(f"{name} is back")
        self.listening()

    # What the steps share

    def undisturbed(self, what, destinations, step):
        """A step in which the router deletes none of these routes."""
        router = self.data["plugin"]["router"]
        with kernel.Monitor(self.lab.nodes[router], "route") as monitor:
            step()
            if deleted := monitor.seen("del", destinations):
                raise LabError(f"{router} has deleted {what} {', '.join(deleted)} meanwhile")
        self.report.line(f"{router} has deleted none of {what}")
