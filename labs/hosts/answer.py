#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A pod that answers every HTTP request with its own name and the address the request came from.

Usage: answer.py PORT. Router nodes masquerade what they balance, so the address tells which router node was used.
"""

import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        source = self.client_address[0].removeprefix("::ffff:")
        body = f"{socket.gethostname()} {source}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        pass


class Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6
    request_queue_size = 128

    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)


if __name__ == "__main__":
    Server(("::", int(sys.argv[1])), Answer).serve_forever()
