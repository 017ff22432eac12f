# SPDX-License-Identifier: Apache-2.0
"""Probes: readiness, liveness and startup, by HTTP, TCP or a command, each in a thread of its own."""

import http.client
import socket
import threading

from volumes import UnknownField


class Probe(threading.Thread):
    """`ok` is what it says at present: None until it has said something."""

    def __init__(self, container, spec):
        super().__init__(daemon=True)
        self.container, self.spec = container, spec
        self.ok, self.ended = None, threading.Event()

    def run(self):
        successes = failures = 0
        pause = self.spec.get("initialDelaySeconds", 0)
        while not self.ended.wait(pause):
            pause = self.spec.get("periodSeconds", 10)
            if self._once():
                successes, failures = successes + 1, 0
            else:
                successes, failures = 0, failures + 1
            if successes >= self.spec.get("successThreshold", 1):
                self.ok = True
            elif failures >= self.spec.get("failureThreshold", 3):
                self.ok = False

    def end(self):
        self.ended.set()

    def _once(self):
        timeout = self.spec.get("timeoutSeconds", 1)
        if "exec" in self.spec:
            return self.container.run_inside(self.spec["exec"]["command"], timeout) == 0
        if "httpGet" in self.spec:
            return self._http(self.spec["httpGet"], timeout)
        if "tcpSocket" in self.spec:
            return self._tcp(self.spec["tcpSocket"], timeout)
        raise UnknownField(f"probe: {', '.join(self.spec)}")

    def _http(self, action, timeout):
        connection = http.client.HTTPConnection(self._host(action), self._port(action), timeout=timeout)
        try:
            connection.request("GET", action.get("path", "/"))
            return 200 <= connection.getresponse().status < 400
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _tcp(self, action, timeout):
        try:
            socket.create_connection((self._host(action), self._port(action)), timeout).close()
            return True
        except OSError:
            return False

    def _host(self, action):
        return action.get("host") or self.container.pod.addresses[0]

    def _port(self, action):
        port = action["port"]
        if isinstance(port, int):
            return port
        return next(entry["containerPort"] for entry in self.container.spec["ports"] if entry.get("name") == port)
