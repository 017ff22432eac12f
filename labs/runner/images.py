# SPDX-License-Identifier: Apache-2.0
"""What an image name of a topology file stands for on a machine without Docker: the daemons to start in the node.

An image is a function (node, deadline) -> started daemons; it returns when they answer, or raises LabError.
"""

import shutil
from pathlib import Path

from . import programs
from .kubernetes import control_plane, kubernetes_node
from .node import LabError
from .programs import binary

FRR_DAEMONS = ("mgmtd", "zebra", "bgpd")  # mgmtd exists from FRR 9 on
TCP_LISTEN = "0A"  # state column of /proc/net/tcp


def bird(node, deadline):
    """BIRD with /etc/bird/bird.conf; birdc works in the node."""
    node.run(["mkdir", "-p", "/run/bird"])
    daemon = node.spawn("bird", ["bird", "-f", "-c", "/etc/bird/bird.conf", "-s", "/run/bird/bird.ctl"])
    daemon.wait_until(lambda: (node.root / "run/bird/bird.ctl").exists(), deadline)
    return [daemon]


def frr(node, deadline):
    """zebra and bgpd with the integrated /etc/frr/frr.conf; vtysh works in the node."""
    node.run(["vtysh", "--dryrun", "--inputfile", "/etc/frr/frr.conf"])  # reading it below reports no error
    node.run(["install", "-d", "-o", "frr", "-g", "frrvty", "-m", "755", "/run/frr"])
    node.run(["install", "-d", "-o", "frr", "-g", "frr", "-m", "755", "/var/tmp/frr"])
    daemons = []
    for name in FRR_DAEMONS:
        program = Path("/usr/lib/frr") / name
        if name == "mgmtd" and not program.exists():
            continue
        daemon = node.spawn(name, [str(program), "-A", "127.0.0.1", "--log", "stdout", "--log-level", "warnings"])
        daemon.wait_until((node.root / f"run/frr/{name}.vty").exists, deadline)
        daemons.append(daemon)
    node.run(["vtysh", "-b"])
    return daemons


def vipherald(node, deadline):
    """The binary named by VIPHERALD with the node's `cmd` as its arguments."""
    return [node.spawn("vipherald", [binary()] + node.spec.cmd)]


def host(node, deadline):
    """A plain host; a `cmd` is a server, and started when it listens."""
    if not node.spec.cmd:
        return []
    daemon = node.spawn(Path(node.spec.cmd[0]).name, node.spec.cmd)
    daemon.wait_until(lambda: _listens(node), deadline)
    return [daemon]


IMAGES = {"bird": bird, "frr": frr, "vipherald": vipherald, "host": host,
          "control-plane": control_plane, "kubernetes-node": kubernetes_node}
PROGRAMS = {
    "bird": ["bird"],
    "frr": ["vtysh", "/usr/lib/frr/zebra", "/usr/lib/frr/bgpd"],
    "vipherald": ["nft"],
    "host": ["python3"],
    "control-plane": ["openssl"],
    "kubernetes-node": ["python3", "bash", "setpriv", "nft"],
}


def require_programs(images):
    """Raises LabError when a program is missing that nodes with these images need."""
    wanted = ["ip", "nsenter", "unshare", "sysctl", "traceroute"] + sum((PROGRAMS[image] for image in images), [])
    missing = sorted({program for program in wanted if shutil.which(program) is None})
    if missing:
        raise LabError(f"not installed: {', '.join(missing)}; labs/packages.txt lists the Debian packages")
    if images & {"vipherald", "kubernetes-node"}:
        binary()
    if "control-plane" in images:
        programs.kubernetes()


def _listens(node):
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{node.pid}/net/{table}").read_text().splitlines()[1:]:
            if line.split()[3] == TCP_LISTEN:
                return True
    return False
