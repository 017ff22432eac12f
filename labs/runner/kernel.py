# SPDX-License-Identifier: Apache-2.0
"""What the kernel of a node says: routes, addresses, and a stream of their changes.

Tables are read through `ip -json`. Changes come from an rtnetlink socket inside the node's network namespace, so their
time is the time at which the kernel told them.
"""

import ctypes
import ipaddress
import json
import os
import select
import socket
import struct
import time

CLONE_NEWNET = 0x40000000
NETLINK_ROUTE_GROUPS = {"address": 0x10 | 0x100, "route": 0x40 | 0x400}  # RTMGRP_IPV4_* | RTMGRP_IPV6_*
MESSAGES = {20: ("address", "new"), 21: ("address", "del"), 24: ("route", "new"), 25: ("route", "del")}
HEADER_LENGTH = {"address": 8, "route": 12}  # struct ifaddrmsg, struct rtmsg
RTA_DST = IFA_ADDRESS = 1
RT_TABLE_MAIN = 254
FLAG = {"ipv4": "-4", "ipv6": "-6"}
SETTLED = 0.1  # seconds without a change that is told
_libc = ctypes.CDLL(None, use_errno=True)


def routes(node, family, prefix):
    """{destination: sorted [(gateway, interface)]} of the node's main table, below `prefix`.

    A weight other than 1 is written behind the gateway, so that it never passes for an equal one.
    """
    found = {}
    for route in json.loads(node.run(["ip", "-j", FLAG[family], "route", "show", "root", prefix]) or "[]"):
        hops = route.get("nexthops") or [route]
        found[route["dst"]] = sorted((_gateway(hop), hop.get("dev", "")) for hop in hops)
    return found


def route_text(node, family, prefix):
    """The same routes as `ip route` prints them."""
    return node.run(["ip", FLAG[family], "route", "show", "root", prefix])


def addresses(node, interface):
    """The addresses of an interface as `ip -json` gives them."""
    return json.loads(node.run(["ip", "-j", "addr", "show", "dev", interface]))[0]["addr_info"]


def own_addresses(node):
    """The addresses of a node on all interfaces but lo, as strings."""
    return [entry["local"] for link in json.loads(node.run(["ip", "-j", "addr"])) if link["ifname"] != "lo"
            for entry in link["addr_info"]]


def link_address(node, interface):
    """The Ethernet address of an interface."""
    return json.loads(node.run(["ip", "-j", "link", "show", "dev", interface]))[0]["address"]


def neighbours(node, interface):
    """{address: Ethernet address} of what the node knows on a link."""
    entries = json.loads(node.run(["ip", "-j", "neigh", "show", "dev", interface]) or "[]")
    return {entry["dst"]: entry["lladdr"] for entry in entries if "lladdr" in entry}


class Monitor:
    """Changes of a node's routes or addresses, from the moment this object exists."""

    def __init__(self, node, what):
        self.what = what
        with open(f"/proc/{node.pid}/ns/net") as theirs, open("/proc/self/ns/net") as ours:
            _setns(theirs)
            try:
                self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
            finally:
                _setns(ours)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.socket.bind((0, NETLINK_ROUTE_GROUPS[what]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def wait(self, change, destinations, deadline):
        """(time, address) of the first `change` ("new" or "del") of one of `destinations`; None after `deadline`."""
        wanted = {ipaddress.ip_address(destination) for destination in destinations}
        while (remaining := deadline - time.monotonic()) > 0:
            if not select.select([self.socket], [], [], remaining)[0]:
                return None
            data = self.socket.recv(1 << 16)
            now = time.monotonic()
            for seen, address in _changes(data, self.what):
                if seen == change and address in wanted:
                    return now, str(address)
        return None

    def seen(self, change, destinations):
        """Those of `destinations` of which such a change was told so far, and not asked for yet."""
        seen = set()
        while found := self.wait(change, destinations, time.monotonic() + SETTLED):
            seen.add(found[1])
        return sorted(seen)


def _gateway(hop):
    gateway = hop.get("gateway") or hop.get("via", {}).get("host", "")
    return gateway if hop.get("weight", 1) == 1 else f"{gateway} weight {hop['weight']}"


def _setns(namespace):
    if _libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _changes(data, what):
    """("new" or "del", address) of each message about a host address or a host route of the main table."""
    offset = 0
    while offset + 16 <= len(data):
        length, kind = struct.unpack_from("=IH", data, offset)
        body = data[offset + 16:offset + length]
        offset += (length + 3) & ~3
        subject, change = MESSAGES.get(kind, (None, None))
        if subject != what or (what == "route" and body[4] != RT_TABLE_MAIN):
            continue
        address = _attribute(body[HEADER_LENGTH[what]:], RTA_DST)
        if address:
            yield change, ipaddress.ip_address(address)


def _attribute(data, wanted):
    offset = 0
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        if kind == wanted:
            return data[offset + 4:offset + length]
        offset += max((length + 3) & ~3, 4)
    return None
