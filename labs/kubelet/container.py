# SPDX-License-Identifier: Apache-2.0
"""One container of a pod: a process with its mounts, its capabilities and its environment; what it writes goes to our own output."""

import os
import shlex
import signal
import subprocess
import sys
import threading
import time

from sandbox import children
from volumes import UnknownField, field

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What a runtime gives a container that names none (the list of the OCI runtimes).
DEFAULT_CAPABILITIES = ("chown dac_override fowner fsetid kill net_bind_service setgid setpcap setuid sys_chroot "
                        "audit_write mknod setfcap").split()
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0  # seconds between two starts


class Container:
    """`start` runs it once; `restarts` counts the later starts."""

    def __init__(self, pod, spec):
        self.pod, self.spec, self.name = pod, spec, spec["name"]
        self.process, self.started_at, self.restarts = None, None, -1
        self.exit, self.next_start, self.pause = None, 0.0, FIRST_PAUSE

    def start(self):
        script = self._script()
        self.process = subprocess.Popen(self.pod.sandbox.enter(["unshare", "--mount", "bash", "-e", "-c", script]),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        env=self._environment(), start_new_session=True)
        self.exit, self.started_at = None, time.time()
        self.restarts += 1
        threading.Thread(target=self._copy_output, args=(self.process.stdout,), daemon=True).start()

    def poll(self):
        """Notices that it has ended; whether it runs."""
        if self.process is not None and self.process.poll() is not None:
            self.exit = self.process.returncode
            self.process = None
            self.next_start = time.monotonic() + self.pause
            self.pause = min(2 * self.pause, LONGEST_PAUSE)
        return self.process is not None

    def signal(self, number):
        if self.process is not None:
            for child in children(self.process.pid):
                os.kill(child, number)

    def run_inside(self, argv, timeout):
        """Exit status of a command inside, None where there is none in time."""
        inside = children(self.process.pid) if self.process else []
        if not inside:
            return None
        command = ["nsenter", f"--target={inside[0]}", "--mount", "--net", "--uts", "--pid", "--", *argv]
        try:
            return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  timeout=timeout, env=self._environment()).returncode
        except subprocess.TimeoutExpired:
            return None

    def stop_hook(self):
        """The command that runs before SIGTERM."""
        hook = self.spec.get("lifecycle", {}).get("preStop")
        if hook is None:
            return
        if "exec" not in hook:
            raise UnknownField(f"preStop: {', '.join(hook)}")
        self.run_inside(hook["exec"]["command"], 3600)

    def _command(self):
        entry = self.pod.kubelet.config["images"].get(self.spec["image"])
        if entry is None:
            raise UnknownField(f"image {self.spec['image']}")
        words = self.spec.get("command", entry) + self.spec.get("args", [])
        environment = self._environment()
        for name, value in environment.items():
            words = [word.replace(f"$({name})", value) for word in words]
        return words

    def _environment(self):
        status = {"status.podIP": self.pod.addresses[0], "status.hostIP": self.pod.kubelet.config["addresses"][0]}
        environment = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", **self.pod.kubelet.config.get("environment", {})}
        for entry in self.spec.get("env", []):
            if "fieldRef" in entry.get("valueFrom", {}):
                environment[entry["name"]] = field(self.pod.object, entry["valueFrom"]["fieldRef"]["fieldPath"], status)
            elif "valueFrom" in entry:
                raise UnknownField(f"env {entry['name']}: {', '.join(entry['valueFrom'])}")
            else:
                environment[entry["name"]] = entry.get("value", "")
        return environment

    def _script(self):
        """Mounts, then the program in place of the shell."""
        security = self.spec.get("securityContext", {})
        privileged = security.get("privileged", False)
        lines = self._mounts()
        if not privileged:
            lines += _read_only("/proc/sys", "/proc/sys")
        if security.get("readOnlyRootFilesystem"):
            lines += ["mount -o remount,bind,ro /"]
        if directory := self.spec.get("workingDir"):
            lines += [f"cd {shlex.quote(directory)}"]
        bounds = [] if privileged else ["setpriv", "--inh-caps=-all", f"--bounding-set={self._capabilities(security)}", "--"]
        return "\n".join(lines + ["exec " + shlex.join(bounds + self._command())])

    def _capabilities(self, security):
        wanted = security.get("capabilities", {})
        dropped = {name.lower() for name in wanted.get("drop", [])}
        kept = [] if "all" in dropped else [name for name in DEFAULT_CAPABILITIES if name not in dropped]
        return ",".join(["-all"] + [f"+{name}" for name in kept + [name.lower() for name in wanted.get("add", [])]])

    def _mounts(self):
        lines, stage = [], f"/var/tmp/kubelet/pods/{self.pod.uid}/{self.name}"
        mounts = [(os.path.realpath(mount["mountPath"]), mount) for mount in self.spec.get("volumeMounts", [])]
        grounds = sorted({_ground(target) for target, _ in mounts if not os.path.isdir(target)})
        if grounds:
            lines += [f"mkdir -p {stage}", f"mount -t tmpfs tmpfs {stage}"]
        for number, ground in enumerate(grounds):
            upper, work = f"{stage}/{number}", f"{stage}/{number}.work"
            lines += [f"mkdir {upper} {work}",
                      f"mount -t overlay overlay -o lowerdir={ground},upperdir={upper},workdir={work} {ground}"]
        for target, mount in mounts:
            source = self.pod.volumes.path(mount["name"])
            source = str(source / mount["subPath"] if "subPath" in mount else source)
            lines += [f"mkdir -p {target}" if os.path.isdir(source) else f"mkdir -p {os.path.dirname(target)}; : >> {target}"]
            lines += _read_only(source, target) if mount.get("readOnly") else [f"mount --bind {source} {target}"]
        return lines

    def _copy_output(self, output):
        for line in output:
            sys.stdout.write(f"[{self.pod.name}/{self.name}] {line.decode(errors='replace')}")
            sys.stdout.flush()


def _ground(target):
    """The nearest directory above a mount point that is there: it is overlaid, so that the mount point can be made."""
    while not os.path.isdir(target):
        target = os.path.dirname(target)
    if target in ("/", "/var", "/var/tmp"):
        raise UnknownField(f"a mount point right below {target}")
    return target


def _read_only(source, target):
    return [f"mount --bind {source} {target}", f"mount -o remount,bind,ro {target}"]
