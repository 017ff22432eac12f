# SPDX-License-Identifier: Apache-2.0
"""One node of a lab: network, mount, host name and process namespaces held by one process.

When that process ends, the kernel ends everything inside and takes the interfaces with it, so nothing can be left
behind. Each node sees the machine's file system with its own /run, /var/tmp, /proc and /sys; directories that hold bind
targets are overlaid, so that mount points can be made without touching the machine.
"""

import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class LabError(Exception):
    """What went wrong with the lab, in words for the person who ran it."""


class Daemon:
    """A process that runs in a node until it is stopped; its output goes to a log file."""

    def __init__(self, node, name, process, log):
        self.node, self.name, self.process, self.log = node, name, process, log

    def __str__(self):
        return f"{self.name} on {self.node.name}"

    def signal(self, number):
        """Signals the process itself, not the nsenter(1) that waits for it."""
        for child in _children(self.process.pid):
            os.kill(child, number)

    def wait(self, timeout):
        """Exit status, or None when it still runs after `timeout` seconds."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def wait_until(self, ready, deadline):
        """Raises LabError when it has ended, or does not answer in time."""
        while not ready():
            self.require_alive()
            if time.monotonic() > deadline:
                raise LabError(f"{self} does not answer; end of its log:\n{self.tail()}")
            time.sleep(0.01)

    def require_alive(self):
        status = self.process.poll()
        if status is not None:
            raise LabError(f"{self} ended with status {status}; end of its log:\n{self.tail()}")

    def tail(self, lines=10):
        """The end of the log, indented."""
        text = self.log.read_text(errors="replace").splitlines()[-lines:] or ["(empty)"]
        return "\n".join("    " + line for line in text)


class Node:
    """The namespaces of one node. `directory` is its own on the machine; `keep` lets it outlive this program; `network_of` is the
    node in whose network it is, if it has none of its own."""

    def __init__(self, spec, directory, keep, network_of=None):
        self.spec, self.name, self.directory = spec, spec.name, directory
        self.copies = {}  # bind target -> private copy on the machine
        directory.mkdir(parents=True)
        network = ["unshare", "--net"] if network_of is None else ["nsenter", f"--net=/proc/{network_of.pid}/ns/net", "unshare"]
        self.holder = subprocess.Popen(
            [*network, "--mount", "--uts", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc",
             "sh", "-c", "echo ready; exec sleep infinity"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            preexec_fn=None if keep else _die_with_parent)
        if self.holder.stdout.readline() != b"ready\n":
            raise LabError(f"{self.name}: no namespaces: {self.holder.stderr.read().decode().strip()}")
        self.holder.stdout.close()
        self.holder.stderr.close()
        self.pid = _children(self.holder.pid)[0]

    @property
    def root(self):
        """The node's file system, seen from the machine."""
        return Path(f"/proc/{self.pid}/root")

    def command(self, argv):
        return enter(self.pid, argv)

    def run(self, argv, check=True, timeout=60):
        """Runs a command in the node and returns its standard output; a failure is a LabError with its message."""
        try:
            result = subprocess.run(self.command(argv), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                    timeout=timeout, env=self.environment())
        except subprocess.TimeoutExpired as error:
            raise LabError(f"{self.name}: {' '.join(argv)}: no end within {timeout} s") from error
        if check and result.returncode != 0:
            raise LabError(f"{self.name}: {' '.join(argv)}: status {result.returncode}: "
                           f"{result.stderr.strip() or result.stdout.strip()}")
        return result.stdout

    def spawn(self, name, argv):
        """Starts a daemon in the foreground of the node."""
        log = self.directory.parent.parent / "logs" / f"{self.name}.{name}.log"
        log.parent.mkdir(exist_ok=True)
        with log.open("ab") as output:
            process = subprocess.Popen(self.command(argv), stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, start_new_session=True, env=self.environment())
        return Daemon(self, name, process, log)

    def environment(self):
        return {**os.environ, **self.spec.env}

    def prepare(self):
        """Host name, private directories, binds, sysctls and lo, in this order."""
        script = [f"hostname {self.name}", "mount -t sysfs sysfs /sys"]
        script += self._overlays()
        for bind in self.spec.binds:
            script += self._bind(bind)
        script += [f"mount -t tmpfs -o mode=755 tmpfs {path}" for path in ("/run", "/var/tmp")]
        script += ["sysctl -q -w " + shlex.quote(f"{key}={value}") for key, value in self.spec.sysctls.items()]
        script += ["ip link set lo up"]
        if self.spec.kind == "bridge":
            script += [f"ip link add {self.name} type bridge mcast_snooping 0", f"ip link set {self.name} up"]
        self.run(["sh", "-e", "-c", "\n".join(script)])

    def _overlays(self):
        """Overlays on the top directories of all bind targets, their changes in memory."""
        tops = sorted({"/" + bind.target.split("/")[1] for bind in self.spec.binds})
        if not tops:
            return []
        changes = self.directory / "changes"
        changes.mkdir()
        lines = [f"mount -t tmpfs tmpfs {changes}"]
        for top in tops:
            if not Path(top).is_dir():
                raise LabError(f"{self.name}: bind targets below {top} need that directory on this machine")
            upper, work = f"{changes}{top}", f"{changes}{top}.work"
            lines += [f"mkdir {upper} {work}",
                      f"mount -t overlay overlay -o lowerdir={top},upperdir={upper},workdir={work} {top}"]
        return lines

    def _bind(self, bind):
        source, target = bind.source, bind.target
        if not bind.read_only:
            source = self.directory / "binds" / target.strip("/").replace("/", "-")
            source.parent.mkdir(exist_ok=True)
            (shutil.copytree if bind.source.is_dir() else shutil.copy)(bind.source, source)
            self.copies[target] = source
        make = f"mkdir -p '{target}'" if source.is_dir() else f"mkdir -p '{os.path.dirname(target)}'; : >> '{target}'"
        lines = [make, f"mount --bind '{source}' '{target}'"]
        return lines + ([f"mount -o remount,bind,ro '{target}'"] if bind.read_only else [])

    def end(self):
        end_holder(self.holder.pid)
        self.holder.wait()


def enter(pid, argv):
    """The command line that runs `argv` in the namespaces of process `pid`."""
    return ["nsenter", f"--target={pid}", "--mount", "--net", "--uts", "--pid", "--"] + list(argv)


def connect(end_a, end_b):
    """A veth pair between two (node, interface) pairs, made inside the nodes; bridge ports join their bridge."""
    (a, name_a), (b, name_b) = end_a, end_b
    subprocess.run(["nsenter", f"--target={a.pid}", "--net", "--", "ip", "link", "add", name_a, "netns", str(a.pid),
                    "type", "veth", "peer", "name", name_b, "netns", str(b.pid)], check=True)
    for node, name in (end_a, end_b):
        join = ["master", node.name] if node.spec.kind == "bridge" else []
        node.run(["ip", "link", "set", name] + join + ["up"])


def end_holder(pid):
    """Ends a node by the process that holds it; its namespaces and everything inside go with it."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _die_with_parent():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
