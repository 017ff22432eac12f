# SPDX-License-Identifier: Apache-2.0
"""One pod from its binding to its end: sandbox, volumes, containers, probes, status, and the grace period.

In: the pod's object, as it changes. Out: processes, and the pod's status at the API server. The order of the end is a
kubelet's: preStop, SIGTERM, the grace period, SIGKILL, then the object goes.
"""

import signal
import sys
import threading
import time
from datetime import datetime, timezone

from api import STRATEGIC, ApiError
from container import Container
from probe import Probe
from sandbox import Sandbox
from volumes import UnknownField, Volumes

LOOK = 0.1  # seconds between two looks at the processes
REFRESH = 1.0  # seconds between two looks at what volumes are made of
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


class Pod(threading.Thread):
    def __init__(self, kubelet, object):
        super().__init__(daemon=True)
        self.kubelet, self.object = kubelet, object
        self.name, self.uid = object["metadata"]["name"], object["metadata"]["uid"]
        self.wake = threading.Event()
        self.gone = False
        self.sandbox, self.volumes, self.addresses = None, None, []
        self.containers = [Container(self, spec) for spec in object["spec"]["containers"]]
        self.init = [Container(self, spec) for spec in object["spec"].get("initContainers", [])]
        self.probes = {}  # container -> {kind: Probe}
        self.initialized, self.told = False, None
        self.path = f"/api/v1/namespaces/{object['metadata']['namespace']}/pods/{self.name}"

    def take(self, object):
        """The object has changed."""
        if object["metadata"].get("deletionTimestamp") and not self.object["metadata"].get("deletionTimestamp"):
            self.wake.set()
        self.object = object

    def vanish(self):
        """The object is gone: without grace."""
        self.gone = True
        self.wake.set()

    def run(self):
        try:
            self._set_up()
            self._initialize()
            self._work()
        except (UnknownField, OSError) as error:
            self._try(lambda: self._report("Failed", f"{type(error).__name__}: {error}"))
            print(f"pod {self.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            self._end()

    def _set_up(self):
        spec = self.object["spec"]
        self.sandbox = Sandbox(self.name, self.kubelet.network, spec.get("hostNetwork", False))
        self.addresses = self.sandbox.addresses(self.kubelet.config["addresses"])
        self.volumes = Volumes(self.kubelet.api, self.object)
        for volume in spec.get("volumes", []):
            while not self._try(lambda: self.volumes.path(volume["name"])) and not self._is_to_end():
                self.wake.wait(0.3)

    def _initialize(self):
        for container in self.init:
            while container.exit != 0 and not self._is_to_end():
                if not container.poll() and time.monotonic() >= container.next_start and container.exit != 0:
                    container.start()
                self._tell()
                self.wake.wait(LOOK)
        self.initialized = True

    def _work(self):
        refresh = time.monotonic() + REFRESH
        while not self._is_to_end():
            for container in self.containers:
                self._look_after(container)
            if time.monotonic() >= refresh:
                self._try(self.volumes.refresh_all)
                refresh = time.monotonic() + REFRESH
            self._tell()
            if self._is_over():
                return
            self.wake.wait(LOOK)

    def _look_after(self, container):
        if container.poll():
            liveness = self.probes[container].get("livenessProbe")
            if liveness is not None and liveness.ok is False:
                print(f"pod {self.name}: {container.name} is killed, its liveness probe fails", file=sys.stderr, flush=True)
                container.signal(signal.SIGTERM)
                self._wait_for([container], self._grace())
                container.signal(signal.SIGKILL)
            return
        for probe in self.probes.pop(container, {}).values():
            probe.end()
        if self._starts_again(container) and time.monotonic() >= container.next_start:
            container.start()
            probes = {kind: Probe(container, container.spec[kind]) for kind in PROBES if kind in container.spec}
            self.probes[container] = probes
            for probe in probes.values():
                probe.start()

    def _starts_again(self, container):
        policy = self.object["spec"].get("restartPolicy", "Always")
        return container.exit is None or policy == "Always" or (policy == "OnFailure" and container.exit != 0)

    def _is_over(self):
        return all(container.exit is not None and container.process is None and not self._starts_again(container)
                   for container in self.containers)

    def _is_to_end(self):
        return self.gone or "deletionTimestamp" in self.object["metadata"]

    def _grace(self):
        metadata, spec = self.object["metadata"], self.object["spec"]
        return metadata.get("deletionGracePeriodSeconds", spec.get("terminationGracePeriodSeconds", 30))

    def _end(self):
        until = time.monotonic() + (0 if self.gone else self._grace())
        for probe in [probe for probes in self.probes.values() for probe in probes.values()]:
            probe.end()
        for container in self.containers:
            if container.poll() and not self.gone:
                self._try(container.stop_hook)
            container.signal(signal.SIGTERM)
        self._wait_for(self.containers, until - time.monotonic())
        for container in self.containers + self.init:
            if container.poll():
                print(f"pod {self.name}: {container.name} is killed after its grace period", file=sys.stderr, flush=True)
                container.signal(signal.SIGKILL)
        self._wait_for(self.containers, 5)
        if self.sandbox:
            self.sandbox.end()
        if not self.gone:
            self._finish()

    def _finish(self):
        failed = any(container.exit != 0 for container in self.containers)
        self._try(lambda: self._report("Failed" if failed else "Succeeded"))
        while "deletionTimestamp" in self.object["metadata"] and not self.gone:
            options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
            if self._try(lambda: self._unless_gone("DELETE", self.path, options)):
                return
            time.sleep(0.3)

    def _wait_for(self, containers, seconds):
        until = time.monotonic() + seconds
        while any([container.poll() for container in containers]) and time.monotonic() < until:
            time.sleep(0.01)

    def _tell(self):
        status = self._status("Running" if self.initialized else "Pending")
        if status != self.told and self._try(lambda: self._send(status)):
            self.told = status

    def _report(self, phase, message=None):
        status = self._status(phase)
        self._send({**status, **({"message": message} if message else {})})

    def _send(self, status):
        body = {"metadata": {"uid": self.uid}, "status": status}
        self._unless_gone("PATCH", f"{self.path}/status", body, STRATEGIC)

    def _unless_gone(self, *request):
        try:
            self.kubelet.api.request(*request)
        except ApiError as error:
            if error.status != 404:
                raise

    def _status(self, phase):
        ready = [self._is_ready(container) for container in self.containers]
        all_ready = phase == "Running" and all(ready)
        conditions = {"Initialized": self.initialized, "ContainersReady": all_ready, "Ready": all_ready, "PodReadyToStartContainers": True}
        return {
            "phase": phase,
            "hostIP": self.kubelet.config["addresses"][0],
            "podIP": self.addresses[0] if self.addresses else None,
            "podIPs": [{"ip": address} for address in self.addresses],
            "conditions": [{"type": kind, "status": str(value)} for kind, value in conditions.items()],
            "containerStatuses": [_container_status(container, is_ready and phase == "Running")
                                  for container, is_ready in zip(self.containers, ready)],
            "initContainerStatuses": [_container_status(container, container.exit == 0) for container in self.init],
        }

    def _is_ready(self, container):
        if container.process is None:
            return False
        probes = self.probes.get(container, {})
        return all(probes[kind].ok is True for kind in PROBES[:2] if kind in probes)

    def _try(self, step):
        """Whether it was done; a pod that is gone at the server needs nothing more."""
        try:
            step()
            return True
        except (ApiError, OSError) as error:
            print(f"pod {self.name}: {error}", file=sys.stderr, flush=True)
            return False


def _container_status(container, ready):
    if container.process is not None:
        state = {"running": {"startedAt": datetime.fromtimestamp(container.started_at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}}
    elif container.exit is not None:
        state = {"terminated": {"exitCode": container.exit % 256, "reason": "Completed" if container.exit == 0 else "Error"}}
    else:
        state = {"waiting": {"reason": "PodInitializing"}}
    return {"name": container.name, "image": container.spec["image"], "imageID": "", "ready": ready, "started": container.process is not None,
            "restartCount": max(container.restarts, 0), "state": state}
