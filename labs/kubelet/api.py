# SPDX-License-Identifier: Apache-2.0
"""Requests to a Kubernetes API server, and lists that are followed."""

import http.client
import json
import ssl
import sys
import time
from urllib.parse import urlsplit

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
REQUEST_TIMEOUT = 15.0
WATCH_SECONDS = 300
RETRY = 0.5


class ApiError(Exception):
    """An answer that is no success; `status` is HTTP's."""

    def __init__(self, status, message):
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """A server, its certificate authority, and a bearer token."""

    def __init__(self, server, authority, token):
        self.host = urlsplit(server)
        self.tls = ssl.create_default_context(cafile=str(authority))
        self.headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}

    def request(self, method, path, body=None, content="application/json"):
        """The decoded answer. Raises ApiError, or OSError where the server does not answer."""
        connection, answer = self._send(method, path, body, content, REQUEST_TIMEOUT)
        try:
            return json.loads(answer.read() or b"{}")
        finally:
            connection.close()

    def follow(self, path, changed):
        """Calls `changed` with all objects of a list, by uid, whenever one has changed; for ever, whatever fails."""
        while True:
            try:
                listed = self.request("GET", path)
                objects = {entry["metadata"]["uid"]: entry for entry in listed["items"]}
                changed(dict(objects))
                self._watch(path, listed["metadata"]["resourceVersion"], objects, changed)
            except (ApiError, OSError, http.client.HTTPException, ValueError) as error:
                print(f"list and watch of {path}: {error}", file=sys.stderr, flush=True)
                time.sleep(RETRY)

    def _watch(self, path, version, objects, changed):
        separator = "&" if "?" in path else "?"
        path = f"{path}{separator}watch=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}"
        connection, answer = self._send("GET", path, None, None, WATCH_SECONDS + REQUEST_TIMEOUT)
        try:
            while line := answer.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ApiError(event["object"].get("code", 500), event["object"].get("message", "watch ended"))
                uid = event["object"]["metadata"]["uid"]
                if event["type"] == "DELETED":
                    objects.pop(uid, None)
                else:
                    objects[uid] = event["object"]
                changed(dict(objects))
        finally:
            connection.close()

    def _send(self, method, path, body, content, timeout):
        connection = http.client.HTTPSConnection(self.host.hostname, self.host.port, timeout=timeout, context=self.tls)
        headers = {**self.headers, **({"Content-Type": content} if body is not None else {})}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        if answer.status >= 300:
            text = answer.read().decode(errors="replace")
            connection.close()
            try:
                text = json.loads(text)["message"]
            except (ValueError, KeyError):
                pass
            raise ApiError(answer.status, text)
        return connection, answer
