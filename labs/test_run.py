#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the lab runner that need neither root nor a network: topology rules and expectations.

Run: python3 labs/test_run.py
"""

import json
import os
import socket
import struct
import tempfile
import threading
import unittest
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from runner import kernel, lab, topology
from runner.expect import FOREVER, Expectations
from runner.images import IMAGES
from runner.node import LabError
from runner.operation import Directories
from runner.pair import PairExpectations
from runner.plugin import PluginExpectations
from runner.probes import Probes
from runner.reflector import ReflectorExpectations
from runner.scenario import read

LABS = Path(__file__).resolve().parent

VALID = """
name: small
topology:
  defaults: {kind: linux, network-mode: none}
  nodes:
    segment: {kind: bridge}
    a:
      image: ${ROUTER:=bird}
      binds: ["${ROUTER:=bird}.conf:/etc/${ROUTER:=bird}/${ROUTER:=bird}.conf:ro"]
      exec: ["ip addr add 10.1.0.1/24 dev eth1", "sh -c 'echo $$HOME'"]
      sysctls: {net.ipv4.ip_forward: 1}
    b: {image: host}
  links:
    - endpoints: ["a:eth1", "segment:port-a"]
    - endpoints: ["b:eth1", "segment:port-b"]
"""


class TopologyTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        for name in ("bird.conf", "frr.conf"):
            (self.directory / name).touch()

    def load(self, text, environment=None):
        path = self.directory / "small.clab.yml"
        path.write_text(text)
        return topology.load(path, IMAGES, environment or {})

    def refused(self, old, new, reason):
        self.assertIn(old, VALID)
        with self.assertRaises(topology.TopologyError) as caught:
            self.load(VALID.replace(old, new))
        self.assertRegex(str(caught.exception), reason)

    def test_a_valid_file_is_read_with_defaults_and_variables(self):
        checked = self.load(VALID)
        self.assertEqual(list(checked.nodes), ["segment", "a", "b"])
        a = checked.nodes["a"]
        self.assertEqual((a.kind, a.image, a.sysctls), ("linux", "bird", {"net.ipv4.ip_forward": 1}))
        self.assertEqual(a.binds[0].source, (self.directory / "bird.conf").resolve())
        self.assertEqual((a.binds[0].target, a.binds[0].read_only), ("/etc/bird/bird.conf", True))
        self.assertEqual(a.exec[1], ["sh", "-c", "echo $HOME"])
        self.assertEqual(checked.links[0], (("a", "eth1"), ("segment", "port-a")))

    def test_a_node_can_be_in_the_network_of_another(self):
        text = VALID.replace("    b: {image: host}", "    b: {image: host}\n    c: {image: host, network-mode: 'container:a'}")
        checked = self.load(text)
        self.assertEqual([node.network_of for node in checked.nodes.values()], ["", "", "", "a"])

    def test_a_variable_of_the_environment_wins_over_the_default(self):
        a = self.load(VALID, {"ROUTER": "frr"}).nodes["a"]
        self.assertEqual((a.image, a.binds[0].target), ("frr", "/etc/frr/frr.conf"))

    def test_the_topologies_of_this_folder_are_valid_with_every_router(self):
        paths = sorted(LABS.glob("*/*.clab.yml"))
        self.assertGreaterEqual(len(paths), 2)
        for path in paths:
            for router in ("bird", "frr"):
                topology.load(path, IMAGES, {"ROUTER": router})

    def test_violations_are_refused_with_a_reason(self):
        for old, new, reason in (
            ("name: small", "name: 'two words'", "not a lab name"),
            ("topology:\n", "topologie:\n", "key 'topologie' is not known here"),
            ("    b: {image: host}", "    b: {image: host}\n    b: {image: host}", "'b' is given twice"),
            ("    b: {image: host}", "    b_1: {image: host}", "not usable as a host name"),
            ("kind: bridge", "kind: ovs-bridge", "kind 'ovs-bridge' is not one of"),
            ("segment: {kind: bridge}", "segment: {kind: bridge, exec: [ls]}", "a bridge has no exec"),
            ("segment", "segment-of-rack-1", "at most 15 characters"),
            ("image: host", "image: ubuntu", "image 'ubuntu' is not one of"),
            ("image: host", "image: host, colour: red", "key 'colour' is not known here"),
            ("network-mode: none", "network-mode: host", "network-mode must be none"),
            ("image: host}", "image: host, network-mode: 'container:c'}", "network-mode names c, which is no linux node"),
            ("image: host}", "image: host, network-mode: 'container:segment'}", "network-mode names segment, which is no linux node"),
            ("image: host}", "image: host, network-mode: 'container:a'}", "link 2: b has its links by a, whose network it shares"),
            ("image: host}", "image: host, network-mode: 'container:a', sysctls: {a: 1}}", "node b: sysctls are those of a"),
            ("${ROUTER:=bird}.conf:/etc", "missing.conf:/etc", "bind source missing.conf does not exist"),
            (".conf:ro", ".conf:rx", r"is not source:target\[:ro\|rw\]"),
            (":/etc/${ROUTER:=bird}/", ":etc/", "not an absolute path"),
            (":/etc/${ROUTER:=bird}/", ":/run/", "a directory that each node has for itself"),
            ("${ROUTER:=bird}\n", "${ROUTER}\n", "variable ROUTER has neither a value nor a default"),
            ("echo $$HOME'", "echo $$HOME", "No closing quotation"),
            ("net.ipv4.ip_forward: 1", "net.ipv4.ip_forward: [1]", "is not a single value"),
            ('"b:eth1"', '"c:eth1"', "names an unknown node"),
            ('"b:eth1"', '"b"', "is not node:interface"),
            ('"b:eth1"', '"b:lo"', "is not node:interface"),
            ('"b:eth1"', '"b:an-interface-name-too-long"', "is not node:interface"),
            ('"b:eth1"', '"a:eth1"', "interface a:eth1 is used twice"),
            ('"segment:port-b"', '"segment:port-a"', "interface segment:port-a is used twice"),
            ('"segment:port-b"', '"segment:segment"', "interface segment:segment is used twice"),
            (', "segment:port-b"]', "]", "a link has two endpoints"),
        ):
            with self.subTest(reason):
                self.refused(old, new, reason)

    def test_ports_of_two_bridges_share_one_namespace(self):
        text = VALID.replace("segment: {kind: bridge}", "segment: {kind: bridge}\n    other: {kind: bridge}")
        text = text.replace("segment:port-b", "other:port-a")
        with self.assertRaisesRegex(topology.TopologyError, "interface other:port-a is used twice"):
            self.load(text)


class FakeNode:
    """A node whose `ip -json` answers are given."""

    spec = SimpleNamespace(network_of="")

    def __init__(self, own, lo=(), routes=()):
        self.own, self.lo, self.routes = own, list(lo), list(routes)

    def run(self, argv):
        if "route" in argv:
            wants_ipv6 = "-6" in argv
            return json.dumps([route for route in self.routes if (":" in route["dst"]) == wants_ipv6])
        if "lo" in argv:
            return json.dumps([{"addr_info": self.lo}])
        return json.dumps([{"ifname": "eth1", "addr_info": [{"local": address} for address in self.own]},
                           {"ifname": "lo", "addr_info": self.lo}])


def on_lo(address, length):
    return {"local": address, "prefixlen": length, "scope": "global", "valid_life_time": FOREVER,
            "preferred_life_time": FOREVER}


DATA = {
    "vips": {"ipv4": ["10.0.0.7"], "ipv6": ["fd00::7"]},
    "prefixes": {"ipv4": "10.0.0.0/24", "ipv6": "fd00::/64"},
    "foreign": ["10.0.0.250/32"],
    "racks": {"rack 1": ["n1", "n2"], "rack 2": ["n3"]},
    "routes": {
        "core": {"ipv4": [["1.0.0.1", "a"], ["1.0.0.2", "b"]], "ipv6": [["fd01::1", "a"], ["fd01::2", "b"]]},
        "tor1": {"ipv4": [["2.0.0.1", "e"], ["2.0.0.2", "e"]], "ipv6": [["fd02::1", "e"], ["fd02::2", "e"]]},
        "tor2": {"ipv4": [["3.0.0.1", "e"]], "ipv6": [["fd03::1", "e"]]},
    },
}


def fake_lab():
    lo = [on_lo("10.0.0.7", 32), on_lo("fd00::7", 128), on_lo("10.0.0.250", 32)]
    nodes = {"core": FakeNode([]), "tor1": FakeNode(["1.0.0.1", "fd01::1"]), "tor2": FakeNode(["1.0.0.2", "fd01::2"]),
             "n1": FakeNode(["2.0.0.1", "fd02::1"], lo), "n2": FakeNode(["2.0.0.2", "fd02::2"], lo),
             "n3": FakeNode(["3.0.0.1", "fd03::1"], lo)}
    for router, families in DATA["routes"].items():
        for family, hops in families.items():
            entries = [{"gateway": gateway, "dev": interface, "weight": 1} for gateway, interface in hops]
            nodes[router].routes.append({"dst": DATA["vips"][family][0], "nexthops": entries})
    return SimpleNamespace(nodes=nodes)


class ExpectationsTest(unittest.TestCase):
    def setUp(self):
        self.lab = fake_lab()
        self.expect = Expectations(self.lab, DATA)

    def test_a_converged_lab_has_no_differences(self):
        self.assertEqual(self.expect.routing() + self.expect.addresses(), [])

    def test_a_stopped_node_leaves_its_tor_but_not_the_core(self):
        self.expect.serving.remove("n2")
        self.assertEqual(self.expect.next_hops("tor1", "ipv4"), [("2.0.0.1", "e")])
        self.assertEqual(self.expect.next_hops("core", "ipv4"), [("1.0.0.1", "a"), ("1.0.0.2", "b")])
        self.assertIn("n2: lo still has 10.0.0.7", self.expect.addresses())

    def test_a_rack_without_a_router_node_leaves_the_core(self):
        self.expect.serving.remove("n3")
        self.assertEqual(self.expect.next_hops("tor2", "ipv6"), [])
        self.assertEqual(self.expect.next_hops("core", "ipv6"), [("fd01::1", "a")])

    def test_a_router_that_is_cut_off_has_no_routes_and_is_nobodys_next_hop(self):
        self.expect.down.append("tor1")
        self.assertEqual(self.expect.next_hops("tor1", "ipv4"), [])
        self.assertEqual(self.expect.next_hops("core", "ipv4"), [("1.0.0.2", "b")])
        self.assertIn("tor1: 10.0.0.7 is still routed to 2.0.0.1 dev e, 2.0.0.2 dev e", self.expect.routing())

    def test_unequal_weights_are_a_difference(self):
        self.lab.nodes["tor1"].routes[0]["nexthops"][0]["weight"] = 2
        self.assertRegex(self.expect.routing()[0], "tor1: 10.0.0.7 has next hops 2.0.0.1 weight 2 dev e, ")

    def test_a_missing_and_a_stray_route_are_differences(self):
        self.lab.nodes["tor2"].routes[0]["dst"] = "10.0.0.9"
        self.assertEqual(self.expect.routing(), ["tor2: 10.0.0.7 has next hops none, expected 3.0.0.1 dev e",
                                                 "tor2: 10.0.0.9 is still routed to 3.0.0.1 dev e"])

    def test_a_foreign_address_must_stay_as_it_was(self):
        self.lab.nodes["n1"].lo = [on_lo("10.0.0.7", 32), on_lo("fd00::7", 128)]
        self.assertRegex(self.expect.addresses()[0], "n1: the foreign address 10.0.0.250/32 on lo is changed or gone")

    def test_the_spread_is_equal_by_rack_then_by_node(self):
        rows, differences = self.expect.spread({"n1": 24, "n2": 26, "n3": 50})
        self.assertEqual(differences, [])
        self.assertEqual([(name, share) for name, _, _, _, share in rows],
                         [("rack 1", 50), ("n1", 25), ("n2", 25), ("rack 2", 50), ("n3", 50)])

    def test_polarised_hashes_are_a_difference(self):
        _, differences = self.expect.spread({"n1": 50, "n3": 50})
        self.assertEqual(differences, ["n1 got 50.0 % of the requests, expected 25 ± 6 %",
                                       "n2 got 0.0 % of the requests, expected 25 ± 6 %"])

    def test_requests_through_a_stopped_node_are_a_difference(self):
        self.expect.serving.remove("n2")
        _, differences = self.expect.spread({"n1": 49, "n2": 1, "n3": 50})
        self.assertEqual(differences, ["n2 got requests although it serves none"])


class FakeRouterNode(FakeNode):
    """Its addresses are on eth1, and it says of itself what it is given."""

    def __init__(self, number, state, vips):
        super().__init__([f"2.0.0.{number}"], [on_lo("10.0.0.250", 32)])
        self.number, self.on_link = number, {f"2.0.0.{number}": 24, **dict.fromkeys(vips, 32)}
        self.reported = {"vrrp": [{"routers": [{"family": "IPv4", "state": state}]}],
                         "vips": [{"address": "10.0.0.7", "state": "Announced", "reason": state}]}

    def run(self, argv):
        if "link" in argv:
            return json.dumps([{"address": f"02:00:00:00:00:0{self.number}"}])
        if "eth1" in argv:
            return json.dumps([{"addr_info": [{"local": address, "prefixlen": length} for address, length in self.on_link.items()]}])
        return super().run(argv)


class FakeToR(FakeNode):
    """It knows the VIP at an Ethernet address."""

    def __init__(self, at):
        super().__init__([])
        self.at = at

    def run(self, argv):
        return json.dumps([{"dst": "10.0.0.7", "lladdr": self.at}, {"dst": "10.0.0.8"}]) if "neigh" in argv else super().run(argv)


PAIR = {**DATA, "vips": {"ipv4": ["10.0.0.7"], "ipv6": []}, "racks": {"rack": ["n1", "n2"]},
        "routes": {"tor": {"ipv4": [["2.0.0.1", "e"], ["2.0.0.2", "e"]], "ipv6": []}},
        "virtualRouters": {"interface": "eth1", "neighbours": {"tor": "e"}}}


class PairExpectationsTest(unittest.TestCase):
    """n1 is Active, n2 Backup."""

    def setUp(self):
        self.nodes = {"tor": FakeToR("02:00:00:00:00:01"), "n1": FakeRouterNode(1, "Active", ["10.0.0.7"]), "n2": FakeRouterNode(2, "Backup", [])}
        self.expect = PairExpectations(SimpleNamespace(nodes=self.nodes), PAIR, lambda node, noun, *_: json.dumps({noun: node.reported[noun]}))

    def test_one_active_router_that_has_the_vips_is_no_difference_whichever_it_is(self):
        self.assertEqual(self.expect.differences(), [])
        self.expect.active = "n1"
        self.assertEqual(self.expect.differences() + self.expect.neighbours(), [])
        self.assertEqual(self.expect.answering(), ["n1"])

    def test_another_active_router_than_the_expected_one_is_a_difference(self):
        self.expect.active = "n2"
        self.assertEqual(self.expect.differences(), ["n1: eth1 still has VIPs", "n2: eth1 has no 10.0.0.7/32"])
        self.assertEqual(self.expect.neighbours(), ["tor: 10.0.0.7 is at 02:00:00:00:00:01, expected 02:00:00:00:00:02 of n2"])

    def test_no_and_two_holders_are_differences(self):
        self.nodes["n2"].on_link["10.0.0.7"] = 32
        self.assertIn("n2: eth1 still has VIPs", self.expect.differences())
        for name in ("n1", "n2"):
            del self.nodes[name].on_link["10.0.0.7"]
        self.assertIn("no router node has the VIPs", self.expect.differences())

    def test_a_vip_with_a_subnet_or_on_lo_is_a_difference(self):
        self.nodes["n1"].on_link["10.0.0.7"] = 24
        self.nodes["n2"].lo.append(on_lo("10.0.0.7", 32))
        self.assertEqual(self.expect.differences(), ["n2: lo still has 10.0.0.7", "n1: eth1 has no 10.0.0.7/32"])

    def test_what_a_node_says_of_itself_has_to_agree(self):
        self.nodes["n2"].reported["vrrp"][0]["routers"][0]["state"] = "Active"
        self.nodes["n1"].reported["vips"] = []
        self.assertEqual(self.expect.differences(), ["n1 says {}, expected {'10.0.0.7': ('Announced', 'Active')}",
                                                     "n2: the IPv4 router is Active, expected Backup"])

    def test_an_unplugged_node_waits_and_a_node_that_does_not_answer_is_a_difference(self):
        self.expect.taking_part.remove("n2")
        self.expect.unplugged.append("n2")
        self.assertEqual(self.expect.differences(), ["n2: the IPv4 router is Backup, expected Initialize"])
        self.expect.ask = mock.Mock(side_effect=LabError("no daemon"))
        self.assertEqual(self.expect.differences(), ["no daemon", "no daemon"])

    def test_a_node_that_announces_has_the_vip_on_lo_and_the_tor_goes_through_it(self):
        self.expect.taking_part.remove("n2")
        self.expect.serving.append("n2")
        self.assertEqual(self.expect.answering(), ["n2"])
        self.assertEqual(self.expect.differences(), ["tor: 10.0.0.7 has next hops none, expected 2.0.0.2 dev e",
                                                     "n2: lo has no 10.0.0.7/32 scope global",
                                                     "n2 says {'10.0.0.7': ('Announced', 'Backup')}, expected {'10.0.0.7': ('Announced', 'Served')}"])

    def test_a_vip_that_is_left_after_the_service_is_a_difference(self):
        self.expect.withdraw_all()
        self.assertIn("n1: eth1 still has VIPs", self.expect.differences())
        self.nodes["n1"].on_link = self.nodes["n2"].on_link
        for name in ("n1", "n2"):
            self.nodes[name].reported["vips"] = []
        self.assertEqual(self.expect.differences(), [])


class PluginRouter(FakeNode):
    """It has the plugin's pods at an address."""

    def __init__(self, at):
        super().__init__([], routes=[{"dst": "10.0.0.7", "gateway": "2.0.0.1", "dev": "e"}])
        self.at = at

    def run(self, argv):
        if "root" in argv and argv[-1] == "10.233.0.0/16":
            return json.dumps([{"dst": "10.233.1.0/26", "gateway": self.at, "dev": "e"}])
        return super().run(argv)


class ListeningNode(FakeNode):
    def run(self, argv):
        return "LISTEN 0 8 0.0.0.0:179 0.0.0.0:*\nLISTEN 0 8 2.0.0.9:1179 0.0.0.0:*\n" if argv[0] == "ss" else super().run(argv)


class PluginExpectationsTest(unittest.TestCase):
    def setUp(self):
        plugin = {"router": "tor", "prefix": "10.233.0.0/16", "pods": {"c1": {"10.233.1.0/26": [["2.0.0.9", "e"]]}},
                  "listening": {"n1": ["0.0.0.0:179", "2.0.0.9:1179"]}}
        self.data = {**DATA, "vips": {"ipv4": ["10.0.0.7"], "ipv6": []}, "racks": {"rack": ["n1"]}, "foreign": [], "plugin": plugin,
                     "routes": {"tor": {"ipv4": [["2.0.0.1", "e"]], "ipv6": []}}}
        self.tor = PluginRouter("2.0.0.9")
        node = ListeningNode(["2.0.0.1", "2.0.0.9"], [on_lo("10.0.0.7", 32)])
        self.expect = PluginExpectations(SimpleNamespace(nodes={"tor": self.tor, "n1": node}), self.data)

    def test_both_speakers_routes_and_sockets_are_no_difference(self):
        self.assertEqual(self.expect.differences() + self.expect.listening(), [])

    def test_pods_elsewhere_or_of_a_speaker_that_is_gone_are_a_difference(self):
        self.tor.at = "2.0.0.1"
        self.assertRegex(self.expect.differences()[0], "tor has pods at .*2.0.0.1.*, expected .*2.0.0.9")
        self.expect.speaking.remove("c1")
        self.assertRegex(self.expect.differences()[0], "expected {}")

    def test_a_socket_that_was_not_to_be_there_is_a_difference(self):
        self.data["plugin"]["listening"]["n1"] = ["0.0.0.0:179"]
        self.assertEqual(self.expect.listening(), ["n1 listens on ['0.0.0.0:179', '2.0.0.9:1179'], expected ['0.0.0.0:179']"])


class ReflectorExpectationsTest(unittest.TestCase):
    def setUp(self):
        wanted = {"nodes": ["a", "b"], "interface": "eth1", "addresses": ["10.1.0.1", "fd00::1"], "peers": {"tor": "10.1.0.254", "n1": "10.1.0.2"}}
        data = {**DATA, "vips": {"ipv4": [], "ipv6": []}, "racks": {"rack": ["n1"]}, "foreign": [], "routes": {}, "reflector": wanted}
        self.found = {"a": ["10.1.0.1", "fd00::1"], "b": [], "n1": []}
        self.sessions = ["10.1.0.2", "10.1.0.254"]
        patch = mock.patch("runner.kernel.addresses", lambda node, interface: [{"local": address} for address in self.found[node]])
        patch.start()
        self.addCleanup(patch.stop)
        with mock.patch("runner.kernel.own_addresses", lambda node: []):
            nodes = {name: name for name in self.found}
            lab = SimpleNamespace(nodes={})
            self.expect = ReflectorExpectations(lab, data, lambda name: self.sessions)
            lab.nodes = nodes

    def test_one_node_with_all_addresses_and_all_sessions_is_no_difference(self):
        self.assertEqual(self.expect.differences(), [])
        self.expect.holder = "a"
        self.assertEqual(self.expect.differences(), [])

    def test_the_addresses_on_both_on_none_on_the_other_or_in_part_are_a_difference(self):
        self.found["b"] = ["fd00::1"]
        self.assertRegex(self.expect.differences()[0], "on a, b, expected one")
        self.found["b"], self.expect.holder = [], "b"
        self.assertRegex(self.expect.differences()[0], "on a, expected b")
        self.found["a"], self.expect.holder = [], None
        self.assertRegex(self.expect.differences()[0], "on no node, expected one")
        self.found["a"] = ["10.1.0.1"]
        self.assertEqual(self.expect.differences(), ["a: eth1 has no fd00::1"])

    def test_who_cannot_be_heard_is_not_counted(self):
        self.found["b"], self.expect.able = ["10.1.0.1"], ["a"]
        self.assertEqual(self.expect.differences(), [])

    def test_a_session_that_is_missing_is_a_difference_but_with_a_node_that_is_stopped(self):
        self.sessions.remove("10.1.0.2")
        self.assertEqual(self.expect.differences(), ["the reflector has no session with n1"])
        self.expect.serving.remove("n1")
        self.assertEqual(self.expect.differences(), [])


class ScenarioFileTest(unittest.TestCase):
    def test_a_scenario_has_all_of_the_one_that_it_is_like_and_its_own(self):
        path = LABS / "route-reflector/route-reflector.clab.yml"
        of = {name: read(SimpleNamespace(topology=SimpleNamespace(path=path.parents[1] / name / f"{name}.clab.yml")))
              for name in ("route-reflector", "multi-rack")}
        own = of["route-reflector"].pop("reflector")
        self.assertEqual(of["route-reflector"], of["multi-rack"])
        self.assertEqual(own["nodes"], ["rr1a", "rr1b"])


class ProbesTest(unittest.TestCase):
    def test_what_is_not_answered_is_lost_and_no_more(self):
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind(("127.0.0.1", 0))
        silence = []

        def answer():
            while (received := server.recvfrom(16))[0] == b"?":
                if silence:
                    silence.pop()
                else:
                    server.sendto(b"!", received[1])

        thread = threading.Thread(target=answer)
        thread.start()
        client = SimpleNamespace(command=lambda argv: [argv[0], str(LABS / "hosts/probe.py"), *argv[2:]])
        try:
            with Probes(client, server.getsockname()[1], 5, ["127.0.0.1"]) as probes:
                silence += 3 * [None]
                probes.go_on()
                outcome = probes.outcome()
        finally:
            server.sendto(b"end", server.getsockname())
            thread.join()
            server.close()
        self.assertEqual(outcome["127.0.0.1"]["lost"], 3)
        self.assertGreaterEqual(outcome["127.0.0.1"]["sent"], 103)


class ConfigurationTest(unittest.TestCase):
    def test_a_configuration_is_replaced_in_one_step_and_only_where_it_says_so(self):
        with tempfile.TemporaryDirectory() as directory:
            copy = Path(directory) / "copy"
            copy.mkdir()
            (copy / "config.yaml").write_text("mode: vrrp\n")
            node = SimpleNamespace(name="n1", directory=Path(directory), copies={"/etc/vipherald": copy})
            operation = Directories(SimpleNamespace(nodes={}), {}, [])
            operation.change_configuration(node, "mode: vrrp", "mode: bgp")
            self.assertEqual((copy / "config.yaml").read_text(), "mode: bgp\n")
            with self.assertRaisesRegex(LabError, "config.yaml of n1 has no mode: vrrp"):
                operation.change_configuration(node, "mode: vrrp", "mode: bgp")


class CommandTest(unittest.TestCase):
    """A kept lab whose node is this process."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        state = mock.patch.object(lab, "STATE", Path(directory.name))
        state.start()
        self.addCleanup(state.stop)

    def record(self, start_time):
        node = {"holder": os.getpid(), "started": start_time, "pid": os.getpid()}
        directory = lab.STATE / "small-1"
        directory.mkdir()
        state = {"lab": "small", "runner": 1, "binary": "/opt/target/debug/vipherald", "nodes": {"a": node}}
        (directory / "state.json").write_text(json.dumps(state))

    def test_the_binary_of_the_lab_is_on_the_path(self):
        self.record(lab.started(os.getpid()))
        command, environment = lab.command("small", "a", ["vipherald", "show", "vips"])
        self.assertEqual(command[-3:], ["vipherald", "show", "vips"])
        self.assertEqual(environment["PATH"], f"/opt/target/debug:{os.environ['PATH']}")

    def test_what_cannot_be_entered_is_refused_with_a_reason(self):
        self.record(lab.started(os.getpid()) - 1)
        for name, node, reason in (("small", "a", "lab small is not up any more; labs/run down small removes"),
                                   ("small", "b", "lab small has no node b; it has a"),
                                   ("other", "a", "no lab other is up")):
            with self.subTest(reason), self.assertRaisesRegex(lab.LabError, reason):
                lab.command(name, node, ["true"])


class KernelTest(unittest.TestCase):
    def message(self, kind, header, address):
        attribute = struct.pack("=HH", 4 + len(address), 1) + address
        return struct.pack("=IHHII", 16 + len(header) + len(attribute), kind, 0, 0, 0) + header + attribute

    def test_changes_are_read_from_a_datagram_of_several_messages(self):
        in_main = bytes((2, 32, 0, 0, 254, 12, 0, 1, 0, 0, 0, 0))
        in_local = bytes((2, 32, 0, 0, 255, 2, 254, 2, 0, 0, 0, 0))
        vip = ip_address("10.0.0.7")
        data = (self.message(24, in_main, vip.packed) + self.message(24, in_local, vip.packed)
                + self.message(25, in_main, vip.packed))
        self.assertEqual(list(kernel._changes(data, "route")), [("new", vip), ("del", vip)])

    def test_address_changes_are_told_from_route_changes(self):
        vip = ip_address("fd00::7")
        data = self.message(21, bytes((10, 128, 0, 0, 1, 0, 0, 0)), vip.packed)
        self.assertEqual(list(kernel._changes(data, "address")), [("del", vip)])
        self.assertEqual(list(kernel._changes(data, "route")), [])


if __name__ == "__main__":
    unittest.main()
