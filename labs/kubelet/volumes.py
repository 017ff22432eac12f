# SPDX-License-Identifier: Apache-2.0
"""The volumes of a pod as directories: ConfigMaps, Secrets, tokens of ServiceAccounts, emptyDir, hostPath.

What comes from the API is written as a kubelet writes it: a directory of its own for each version, the link `..data`
that is replaced in one step, and a link for each file. A node's hostPath volumes lie on a disk of its own, so that nothing
reaches the machine; what the kernel provides is the real one.
"""

import base64
import os
import time
from pathlib import Path

PODS = Path("/var/tmp/kubelet/pods")
DISK = Path("/var/tmp/kubelet/disk")
KERNEL = ("/proc", "/sys", "/dev", "/run", "/lib/modules")
TOKEN_SECONDS = 3600


class UnknownField(Exception):
    """Something in the pod that this kubelet does not do; the text names it."""


class Volumes:
    def __init__(self, api, pod):
        self.api, self.pod = api, pod
        self.namespace = pod["metadata"]["namespace"]
        self.directory = PODS / pod["metadata"]["uid"] / "volumes"
        self.sources = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
        self.written = {}  # volume -> its files
        self.tokens = {}  # volume -> (token, when it is to be renewed)

    def path(self, name):
        """Where a volume is on the node; it is made when it is not there."""
        volume = self.sources[name]
        if "hostPath" in volume:
            return self._host(volume["hostPath"])
        place = self.directory / name
        place.mkdir(parents=True, exist_ok=True)
        if "emptyDir" not in volume and name not in self.written:
            self.refresh(name)
        return place

    def refresh_all(self):
        """Looks whether what volumes were made of has changed."""
        for name in list(self.written):
            self.refresh(name)

    def refresh(self, name):
        files = self._files(name, self.sources[name])
        if self.written.get(name) != files:
            _publish(self.directory / name, files)
            self.written[name] = files

    def _host(self, source):
        path = Path(source["path"])
        if not str(path).startswith(KERNEL):
            path = DISK / str(path).lstrip("/")
        if source.get("type", "") == "DirectoryOrCreate" or path.is_relative_to(DISK):
            path.mkdir(parents=True, exist_ok=True)
        elif source.get("type", "") == "Directory" and not path.is_dir():
            raise OSError(f"hostPath {path} is no directory")
        return path

    def _files(self, name, volume):
        if "configMap" in volume:
            return self._config_map(volume["configMap"])
        if "secret" in volume:
            return self._secret(volume["secret"])
        if "projected" not in volume:
            raise UnknownField(f"volume {name}: {', '.join(sorted(set(volume) - {'name'}))}")
        files = {}
        for source in volume["projected"]["sources"]:
            files.update(self._projected(name, source))
        return files

    def _projected(self, name, source):
        (kind, value), = source.items()
        if kind == "serviceAccountToken":
            return {value["path"]: self._token(name, value)}
        if kind == "configMap":
            return self._config_map(value)
        if kind == "secret":
            return self._secret(value)
        if kind == "downwardAPI":
            return {item["path"]: field(self.pod, item["fieldRef"]["fieldPath"]).encode() for item in value["items"]}
        raise UnknownField(f"volume {name}: source {kind}")

    def _config_map(self, source):
        found = self.api.request("GET", f"/api/v1/namespaces/{self.namespace}/configmaps/{source['name']}")
        return _chosen(source, {key: text.encode() for key, text in found.get("data", {}).items()})

    def _secret(self, source):
        found = self.api.request("GET", f"/api/v1/namespaces/{self.namespace}/secrets/{source.get('secretName') or source['name']}")
        return _chosen(source, {key: base64.b64decode(text) for key, text in found.get("data", {}).items()})

    def _token(self, name, source):
        token, until = self.tokens.get(name, (None, 0))
        if time.monotonic() < until:
            return token
        account = self.pod["spec"].get("serviceAccountName", "default")
        metadata = self.pod["metadata"]
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
            "expirationSeconds": source.get("expirationSeconds", TOKEN_SECONDS), "audiences": [source["audience"]] if "audience" in source else [],
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}}}
        got = self.api.request("POST", f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token", asked)
        token = got["status"]["token"].encode()
        self.tokens[name] = token, time.monotonic() + 0.8 * asked["spec"]["expirationSeconds"]
        return token


def field(pod, path, status=None):
    """The value of a `fieldRef`."""
    metadata, spec = pod["metadata"], pod["spec"]
    known = {
        "metadata.name": metadata["name"], "metadata.namespace": metadata["namespace"], "metadata.uid": metadata["uid"],
        "spec.nodeName": spec["nodeName"], "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        **(status or {}),
    }
    if path not in known:
        raise UnknownField(f"fieldPath {path}")
    return known[path]


def _chosen(source, files):
    if "items" not in source:
        return files
    return {item["path"]: files[item["key"]] for item in source["items"]}


def _publish(directory, files):
    version = directory / f"..{time.time_ns()}"
    for path, content in files.items():
        (version / path).parent.mkdir(parents=True, exist_ok=True)
        (version / path).write_bytes(content)
    version.mkdir(exist_ok=True)
    before = os.readlink(directory / "..data") if (directory / "..data").is_symlink() else None
    partial = directory / "..data_tmp"
    partial.symlink_to(version.name)
    partial.rename(directory / "..data")
    for top in {Path(path).parts[0] for path in files}:
        if not (directory / top).is_symlink():
            (directory / top).symlink_to(f"..data/{top}")
    for entry in directory.iterdir():
        if entry.is_symlink() and not entry.name.startswith("..") and not entry.exists():
            entry.unlink()
    if before:
        for path in sorted((directory / before).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (directory / before).rmdir()
