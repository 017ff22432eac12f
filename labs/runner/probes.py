# SPDX-License-Identifier: Apache-2.0
"""A stream of datagrams from the client to VIPs while something changes, and how many of them are lost."""

import json
import select
import subprocess

from .node import LabError

PATIENCE = 30.0  # seconds until answers go on


class Probes:
    """hosts/probe.py in the client; use with `with`, which waits until the VIPs answer, and ends it in any case."""

    def __init__(self, client, port, milliseconds, vips):
        self.argv = client.command(["python3", "/srv/probe.py", str(port), str(milliseconds), *vips])

    def __enter__(self):
        self.process = subprocess.Popen(self.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            self.go_on()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def go_on(self):
        """Returns when so many more were answered by every VIP that no interruption is left."""
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], PATIENCE)[0] or not self.process.stdout.readline():
            raise LabError(f"a VIP has not answered for {PATIENCE:.0f} s")

    def outcome(self):
        """Ends the stream; {VIP: {"sent": number, "lost": number}}."""
        return json.loads(self.process.communicate(timeout=PATIENCE)[0])
