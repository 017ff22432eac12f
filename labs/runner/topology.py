# SPDX-License-Identifier: Apache-2.0
"""Reads and checks a containerlab topology file.

In: a `*.clab.yml` file and the environment. Out: a `Topology` of nodes and links with defaults and kinds merged in and
variables expanded, or every violation of containerlab's rules (and of this runner's narrower ones) as plain text.
"""

import os
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import yaml

VARIABLE = re.compile(r"\$(?:(?P<escaped>\$)|\{(?P<name>\w+)(?::?[=-](?P<default>[^}]*))?\}|(?P<bare>[A-Za-z_]\w*))")
LAB_NAME = re.compile(r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$")
NODE_NAME = re.compile(r"^[a-zA-Z0-9][a-zA-Z0-9-]{0,61}$")
INTERFACE = re.compile(r"^[^\s/:]{1,15}$")  # IFNAMSIZ - 1

TOP_KEYS = {"name", "prefix", "mgmt", "settings", "topology", "debug"}
TOPOLOGY_KEYS = {"defaults", "kinds", "nodes", "links"}
NODE_KEYS = {"kind", "image", "cmd", "env", "binds", "exec", "sysctls", "network-mode", "labels", "group"}
KINDS = {"linux", "bridge"}
SHARED = "container:"  # network-mode of a node that is in the network of another one
PRIVATE = ("/run", "/var/run", "/proc", "/sys", "/dev", "/var/tmp")  # the runner mounts these itself


class TopologyError(Exception):
    """A topology file that cannot be used; `violations` holds one line for each reason."""

    def __init__(self, path, violations):
        super().__init__("\n".join(f"{path}: {violation}" for violation in violations))
        self.violations = violations


@dataclass
class Bind:
    source: Path
    target: str
    read_only: bool


@dataclass
class NodeSpec:
    name: str
    kind: str
    image: str = ""
    cmd: list = field(default_factory=list)
    env: dict = field(default_factory=dict)
    binds: list = field(default_factory=list)
    exec: list = field(default_factory=list)
    sysctls: dict = field(default_factory=dict)
    network_of: str = ""  # the node in whose network it is; empty for one of its own


@dataclass
class Topology:
    name: str
    path: Path
    nodes: dict  # name -> NodeSpec, in file order
    links: list  # ((node, interface), (node, interface))


def load(path, images, environment=None):
    """The checked topology of `path`; `images` are the image names that can be started. Raises TopologyError."""
    path = Path(path)
    environment = os.environ if environment is None else environment
    violations = []
    try:
        text = expand(path.read_text(), environment, violations)
        document = yaml.load(text, UniqueKeys)
    except (OSError, yaml.YAMLError) as error:
        raise TopologyError(path, [str(error)]) from error
    checked = _Check(path, images, violations).topology(document)
    if violations:
        raise TopologyError(path, violations)
    return checked


def expand(text, environment, violations):
    """`text` with `$NAME`, `${NAME}` and `${NAME:=default}` replaced as containerlab does; `$$` stands for `$`."""

    def value(match):
        if match["escaped"]:
            return "$"
        name = match["name"] or match["bare"]
        found = environment.get(name) or match["default"]
        if found is None:
            violations.append(f"variable {name} has neither a value nor a default")
            return ""
        return found

    return VARIABLE.sub(value, text)


class UniqueKeys(yaml.SafeLoader):
    """A YAML loader that refuses a mapping with the same key twice (PyYAML keeps the last one silently)."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is given twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


class _Check:
    """Turns the parsed document into a Topology and collects violations on the way."""

    def __init__(self, path, images, violations):
        self.path, self.images, self.violations = path, images, violations

    def violation(self, text):
        self.violations.append(text)

    def topology(self, document):
        document = self.mapping(document, "the file", TOP_KEYS)
        name = document.get("name")
        if not isinstance(name, str) or not LAB_NAME.match(name):
            self.violation(f"name: {name!r} is not a lab name")
        body = self.mapping(document.get("topology"), "topology", TOPOLOGY_KEYS)
        nodes = self.nodes(body)
        links = self.links(body.get("links") or [], nodes)
        return Topology(name, self.path, nodes, links)

    def mapping(self, value, where, allowed=None):
        if not isinstance(value, dict):
            self.violation(f"{where}: expected a mapping, found {type(value).__name__}")
            return {}
        for key in value:
            if allowed is not None and key not in allowed:
                self.violation(f"{where}: key {key!r} is not known here")
        return value

    def nodes(self, body):
        defaults = self.mapping(body.get("defaults") or {}, "topology.defaults", NODE_KEYS)
        kinds = self.mapping(body.get("kinds") or {}, "topology.kinds", KINDS)
        for kind, settings in kinds.items():
            self.mapping(settings, f"topology.kinds.{kind}", NODE_KEYS)
        nodes = {}
        for name, settings in self.mapping(body.get("nodes"), "topology.nodes").items():
            where = f"node {name}"
            if not isinstance(name, str) or not NODE_NAME.match(name):
                self.violation(f"{where}: not usable as a host name")
            settings = self.mapping(settings if settings is not None else {}, where, NODE_KEYS)
            kind = settings.get("kind", defaults.get("kind"))
            of_kind = kinds.get(kind) or {}
            nodes[name] = self.node(str(name), kind, _merge(defaults, of_kind, settings), where)
        if not nodes:
            self.violation("topology.nodes: there is no node")
        self.shared_networks(nodes)
        return nodes

    def shared_networks(self, nodes):
        """A node can be in the network of one that stands before it, which has its own."""
        before = set()
        for name, spec in nodes.items():
            if spec.network_of and spec.network_of not in before:
                self.violation(f"node {name}: network-mode names {spec.network_of}, which is no linux node with a network of its own before it")
            if spec.kind == "linux" and not spec.network_of:
                before.add(name)

    def node(self, name, kind, settings, where):
        spec = NodeSpec(name, kind)
        if kind not in KINDS:
            self.violation(f"{where}: kind {kind!r} is not one of {', '.join(sorted(KINDS))}")
        elif kind == "bridge":
            self.bridge(name, settings, where)
        else:
            self.linux(spec, settings, where)
        return spec

    def bridge(self, name, settings, where):
        if not INTERFACE.match(name):
            self.violation(f"{where}: a bridge's name is an interface name of at most 15 characters")
        for key in ("image", "cmd", "exec", "binds"):
            if key in settings:
                self.violation(f"{where}: a bridge has no {key}")

    def linux(self, spec, settings, where):
        spec.image = settings.get("image")
        if spec.image not in self.images:
            self.violation(f"{where}: image {spec.image!r} is not one of {', '.join(sorted(self.images))}")
        mode = settings.get("network-mode")
        if str(mode).startswith(SHARED):
            spec.network_of = mode.removeprefix(SHARED)
            if settings.get("sysctls"):
                self.violation(f"{where}: sysctls are those of {spec.network_of}, whose network it shares")
        elif mode != "none":
            self.violation(f"{where}: network-mode must be none, or {SHARED}NODE (there is no management network here)")
        spec.cmd = self.words(settings.get("cmd", ""), f"{where}: cmd")
        spec.env = {key: str(value) for key, value in self.scalars(settings.get("env"), f"{where}: env").items()}
        spec.sysctls = self.scalars(settings.get("sysctls"), f"{where}: sysctls")
        spec.exec = [self.words(line, f"{where}: exec") for line in self.listed(settings.get("exec"), f"{where}: exec")]
        spec.binds = self.binds(settings.get("binds"), where)

    def words(self, line, where):
        if not isinstance(line, str):
            self.violation(f"{where}: {line!r} is not a command line")
            return []
        try:
            return shlex.split(line)
        except ValueError as error:
            self.violation(f"{where}: {line!r}: {error}")
            return []

    def scalars(self, value, where):
        value = self.mapping(value or {}, where)
        for key, scalar in value.items():
            if not isinstance(scalar, (str, int, float)):
                self.violation(f"{where}: {key}: {scalar!r} is not a single value")
        return value

    def listed(self, value, where):
        if value is None:
            return []
        if not isinstance(value, list) or not value:
            self.violation(f"{where}: expected a list with at least one entry")
            return []
        return value

    def binds(self, value, where):
        binds, targets = [], set()
        for text in self.listed(value, f"{where}: binds"):
            parts = str(text).split(":")
            options = parts[2] if len(parts) == 3 else "rw"
            if len(parts) not in (2, 3) or options not in ("ro", "rw"):
                self.violation(f"{where}: bind {text!r} is not source:target[:ro|rw]")
                continue
            source = (self.path.parent / os.path.expanduser(parts[0])).resolve()
            bind = Bind(source, parts[1], options == "ro")
            if not source.exists():
                self.violation(f"{where}: bind source {parts[0]} does not exist")
            if not bind.target.startswith("/") or ".." in bind.target.split("/"):
                self.violation(f"{where}: bind target {bind.target} is not an absolute path")
            if any(bind.target == path or bind.target.startswith(path + "/") for path in PRIVATE):
                self.violation(f"{where}: bind target {bind.target} lies in a directory that each node has for itself")
            if bind.target in targets:
                self.violation(f"{where}: bind target {bind.target} is used twice")
            targets.add(bind.target)
            binds.append(bind)
        return binds

    def links(self, entries, nodes):
        links, used, on_host = [], set(), set()
        on_host.update(name for name, spec in nodes.items() if spec.kind == "bridge")
        for number, entry in enumerate(self.listed(entries or None, "topology.links"), 1):
            where = f"link {number}"
            ends = self.mapping(entry, where, {"endpoints"}).get("endpoints")
            if not isinstance(ends, list) or len(ends) != 2:
                self.violation(f"{where}: a link has two endpoints")
                continue
            pair = [self.endpoint(end, nodes, where) for end in ends]
            for end in filter(None, pair):
                node, interface = end
                # The ports of all bridges live in one namespace under containerlab, next to the bridges themselves.
                space = on_host if nodes[node].kind == "bridge" else used
                key = interface if nodes[node].kind == "bridge" else end
                if key in space:
                    self.violation(f"{where}: interface {node}:{interface} is used twice")
                space.add(key)
            links.append(tuple(pair))
        return links

    def endpoint(self, text, nodes, where):
        node, separator, interface = str(text).partition(":")
        if not separator or not INTERFACE.match(interface) or interface in ("lo", ".", ".."):
            self.violation(f"{where}: endpoint {text!r} is not node:interface with a valid interface name")
            return None
        if node not in nodes:
            self.violation(f"{where}: endpoint {text!r} names an unknown node")
            return None
        if nodes[node].network_of:
            self.violation(f"{where}: {node} has its links by {nodes[node].network_of}, whose network it shares")
        return node, interface


def _merge(*levels):
    """Node settings from general to special: mappings and binds are merged, everything else is replaced."""
    merged = {}
    for level in levels:
        for key, value in level.items():
            if key in ("env", "sysctls", "labels") and isinstance(value, dict):
                merged[key] = {**merged.get(key, {}), **value}
            elif key == "binds" and isinstance(value, list):
                merged[key] = merged.get(key, []) + value
            else:
                merged[key] = value
    return merged
