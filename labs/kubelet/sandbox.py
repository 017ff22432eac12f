# SPDX-License-Identifier: Apache-2.0
"""The namespaces of a pod, held by one process: when that ends, the kernel ends everything inside."""

import ctypes
import os
import signal
import subprocess
from pathlib import Path

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Sandbox:
    """Mount and process namespaces; network and host name too, unless the pod is on the host's network."""

    def __init__(self, name, network, host_network):
        self.network = None if host_network else network
        kinds = ["--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc"]
        kinds += [] if host_network else ["--net", "--uts"]
        command = f"hostname '{name}'; " if not host_network else ""
        self.holder = subprocess.Popen(["unshare", *kinds, "sh", "-c", f"{command}echo ready; exec sleep infinity"],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, preexec_fn=_die_with_parent)
        if self.holder.stdout.readline() != b"ready\n":
            raise OSError(f"no namespaces for {name}")
        self.holder.stdout.close()
        self.pid = children(self.holder.pid)[0]
        self.number = self.network.join(self.pid) if self.network else None

    def addresses(self, node_addresses):
        """The addresses of the pod; `node_addresses` are those of a pod on the host's network."""
        return self.network.addresses(self.number) if self.network else node_addresses

    def enter(self, argv):
        """The command line that runs `argv` in the pod's namespaces."""
        network = ["--net", "--uts"] if self.network else []
        return ["nsenter", f"--target={self.pid}", "--mount", "--pid", *network, "--", *argv]

    def end(self):
        self.holder.send_signal(signal.SIGKILL)
        self.holder.wait()
        if self.network:
            self.network.leave(self.number)


def children(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _die_with_parent():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
