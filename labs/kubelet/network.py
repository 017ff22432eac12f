# SPDX-License-Identifier: Apache-2.0
"""The pods' side of a node's network: one bridge, on which each pod has an address of each of the node's pod networks.

The first address of a network is the bridge's, and the pods' way out.
"""

import ipaddress
import subprocess
import threading

BRIDGE = "cni0"


class Network:
    def __init__(self, networks):
        self.networks = [ipaddress.ip_network(text) for text in networks]
        self.used, self.lock = set(), threading.Lock()
        if not self.networks:
            return
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
        for network in self.networks:
            _run("ip", "addr", "add", f"{network[1]}/{network.prefixlen}", "dev", BRIDGE, *_flags(network))
        _run("ip", "link", "set", BRIDGE, "up")

    def join(self, pid):
        """Gives the network namespace of a process an interface; returns its number, which is to be given to `leave`."""
        with self.lock:
            number = next(number for number in range(2, 250) if number not in self.used)
            self.used.add(number)
        port = f"pod{number}"
        _run("ip", "link", "add", port, "master", BRIDGE, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        _run("ip", "link", "set", port, "up")
        inside = ["nsenter", f"--target={pid}", "--net", "--", "ip"]
        _run(*inside, "link", "set", "lo", "up")
        for network in self.networks:
            _run(*inside, "addr", "add", f"{network[number]}/{network.prefixlen}", "dev", "eth0", *_flags(network))
        _run(*inside, "link", "set", "eth0", "up")
        for network in self.networks:
            _run(*inside, f"-{network.version}", "route", "add", "default", "via", str(network[1]))
        return number

    def leave(self, number):
        """The interface is gone with its namespace."""
        with self.lock:
            self.used.discard(number)

    def addresses(self, number):
        return [str(network[number]) for network in self.networks]


def _flags(network):
    return ["nodad"] if network.version == 6 else []


def _run(*argv):
    result = subprocess.run(argv, capture_output=True, text=True)
    if result.returncode != 0:
        raise OSError(f"{' '.join(argv)}: {result.stderr.strip()}")
