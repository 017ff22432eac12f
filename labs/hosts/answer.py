#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A pod that answers every HTTP request, and every datagram, with its own name and the address it came from.

Usage: answer.py PORT. Router nodes masquerade what they balance, so the address tells which router node was used.
"""

import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        body = answer(self.client_address)
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


def answer(client):
    return f"{socket.gethostname()} {client[0].removeprefix('::ffff:')}\n".encode()


def answer_datagrams(server):
    while True:
        _, client = server.recvfrom(256)
        server.sendto(answer(client), client)


if __name__ == "__main__":
    datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    datagrams.bind(("::", int(sys.argv[1])))
    threading.Thread(target=answer_datagrams, args=[datagrams], daemon=True).start()
    Server(("::", int(sys.argv[1])), Answer).serve_forever()
