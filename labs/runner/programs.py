# SPDX-License-Identifier: Apache-2.0
"""Where the programs are that no package of Debian has: the binary under test, and those of Kubernetes."""

import os
import subprocess
from pathlib import Path

from .node import LabError

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kube-proxy")


def binary():
    """Path of the vipherald binary: VIPHERALD, else the newest build profile of this checkout that exists."""
    target = ROOT / "target"
    candidates = [target / "bin/vipherald", target / "debug/vipherald"]
    if os.environ.get("VIPHERALD"):
        candidates = [Path(os.environ["VIPHERALD"]).resolve()]
    for candidate in candidates:
        if os.access(candidate, os.X_OK) and candidate.is_file():
            return str(candidate)
    raise LabError(f"no vipherald binary: {' and '.join(map(str, candidates))} cannot be run; "
                   "build one (make build) or name one with VIPHERALD")


def kubernetes():
    """The directory with the programs of Kubernetes. Raises LabError."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    if named and all((Path(named) / program).exists() for program in KUBERNETES):
        return Path(named)
    found = subprocess.run([str(ROOT / "tests/apiserver/build"), "--find"], capture_output=True, text=True)
    if found.returncode != 0:
        raise LabError(found.stderr.strip())
    return Path(found.stdout.strip())
