# SPDX-License-Identifier: Apache-2.0
"""A running lab: all nodes of a topology, their links and daemons, and the record by which it can be found again.

Labs run side by side: nothing of a lab is visible outside its nodes but one directory below `STATE`, which holds
`state.json`, the logs, and each node's private copies of writable binds.
"""

import json
import os
import shutil
import tempfile
import time
from pathlib import Path

from .images import IMAGES, require_programs
from .node import LabError, Node, connect, end_holder, enter
from .programs import binary

STATE = Path("/run/vipherald-labs")
START_TIMEOUT = 180.0  # seconds for all daemons


class Lab:
    """Build with `up`, always end with `down`, unless it was started to be kept."""

    def __init__(self, topology, keep):
        self.topology, self.keep = topology, keep
        self.nodes, self.daemons = {}, {}  # by node name; daemons are lists
        STATE.mkdir(mode=0o700, exist_ok=True)
        self.directory = Path(tempfile.mkdtemp(prefix=f"{topology.name}-", dir=STATE))

    def up(self):
        """Starts everything; raises LabError with the reason when something does not start."""
        require_programs({spec.image for spec in self.topology.nodes.values() if spec.image})
        for name, spec in self.topology.nodes.items():
            self.nodes[name] = Node(spec, self.directory / "nodes" / name, self.keep, self.nodes.get(spec.network_of))
            self._record()
        for node in self.nodes.values():
            node.prepare()
        for ends in self.topology.links:
            connect(*((self.nodes[name], interface) for name, interface in ends))
        for node in self.nodes.values():
            for argv in node.spec.exec:
                node.run(argv)
        deadline = time.monotonic() + START_TIMEOUT
        for node in self.nodes.values():
            self.start(node, deadline)

    def start(self, node, deadline=None):
        """Starts the daemons of a node."""
        if node.spec.kind == "linux":
            deadline = deadline or time.monotonic() + START_TIMEOUT
            self.daemons[node.name] = IMAGES[node.spec.image](node, deadline)

    def require_alive(self):
        """Raises LabError when a daemon has ended by itself."""
        for daemons in self.daemons.values():
            for daemon in daemons:
                daemon.require_alive()

    def logs(self):
        """The end of every daemon's log, for a lab that failed."""
        daemons = [daemon for daemons in self.daemons.values() for daemon in daemons]
        return "\n".join(f"--- log of {daemon}\n{daemon.tail()}" for daemon in daemons if daemon.log.stat().st_size)

    def down(self):
        """Ends all nodes and removes the lab's directory."""
        for node in self.nodes.values():
            node.end()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _record(self):
        holders = {name: {"holder": node.holder.pid, "started": started(node.holder.pid), "pid": node.pid}
                   for name, node in self.nodes.items()}
        partial = self.directory / "state.json.new"
        state = {"lab": self.topology.name, "runner": os.getpid(), "binary": binary(), "nodes": holders}
        partial.write_text(json.dumps(state))
        partial.rename(self.directory / "state.json")


def running(name=None):
    """(directory, state) of the labs on this machine, newest first; all of them, or those called `name`."""
    found = []
    for path in STATE.glob("*/state.json"):
        state = json.loads(path.read_text())
        if name in (None, state["lab"]):
            found.append((path.stat().st_mtime, path.parent, state))
    return [(directory, state) for _, directory, state in sorted(found, reverse=True, key=lambda entry: entry[0])]


def end(directory, state):
    """Ends a lab that another run left up. Only processes recorded at its start are touched."""
    for node in state["nodes"].values():
        if started(node["holder"]) == node["started"]:
            end_holder(node["holder"])
    for node in state["nodes"].values():
        while started(node["holder"]) == node["started"]:
            time.sleep(0.01)
    shutil.rmtree(directory, ignore_errors=True)


def command(name, node, argv):
    """The command line that runs `argv` in a node of the newest lab called `name`, and its environment: the lab's
    vipherald is on PATH."""
    labs = running(name)
    if not labs:
        raise LabError(f"no lab {name} is up")
    state = labs[0][1]
    if node not in state["nodes"]:
        raise LabError(f"lab {name} has no node {node}; it has {', '.join(state['nodes'])}")
    entry = state["nodes"][node]
    if started(entry["holder"]) != entry["started"]:
        raise LabError(f"lab {name} is not up any more; labs/run down {name} removes what is left of it")
    path = f"{Path(state['binary']).parent}:{os.environ['PATH']}"
    return enter(entry["pid"], argv), {**os.environ, "PATH": path}


def started(pid):
    """Start time of a process in clock ticks after boot (tells a process from a later one with its pid), or None."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    after_name = stat.rpartition(")")[2].split()
    return None if after_name[0] == "Z" else int(after_name[19])
