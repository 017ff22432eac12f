#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends HTTP requests, each on a new TCP connection, to the given addresses in turn; counts the answers of answer.py.

Usage: request.py PORT COUNT FIRST_SOURCE_PORT ADDRESS... Source ports are consecutive, so that equal runs give equal
flows to the routers' hashes. With the COUNT `-` it goes on, a hundred a second at most, until its standard input ends.
Prints JSON: {"count": n, "answers": {address: {source seen by the pod: {pod: n}}}, "failures": [...]}
"""

import itertools
import json
import select
import socket
import sys

TIMEOUT = 3.0  # seconds for the whole exchange
PAUSE = 0.01  # seconds between two requests of an endless run


def request(address, port, source_port):
    """One exchange; returns (pod, source) as the pod told them."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(TIMEOUT)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        connection.bind(("", source_port))
        connection.connect((address, port))
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        answer = b""
        while chunk := connection.recv(4096):
            answer += chunk
    status, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in status.split(b"\r\n")[0]:
        raise OSError(f"not an answer: {answer[:80]!r}")
    pod, source = body.decode().split()
    return pod, source


def main():
    port, first = int(sys.argv[1]), int(sys.argv[3])
    addresses = sys.argv[4:]
    answers = {address: {} for address in addresses}
    failures, number = [], -1
    for number in numbers(sys.argv[2]):
        address = addresses[number % len(addresses)]
        try:
            pod, source = request(address, port, first + number)
        except (OSError, ValueError) as error:
            failures.append(f"{address} from port {first + number}: {error}")
            continue
        pods = answers[address].setdefault(source, {})
        pods[pod] = pods.get(pod, 0) + 1
    print(json.dumps({"count": number + 1, "answers": answers, "failures": failures}))


def numbers(count):
    """0 to `count`, or on and on until standard input ends."""
    if count != "-":
        return range(int(count))
    return itertools.takewhile(lambda _: not select.select([sys.stdin], [], [], PAUSE)[0], itertools.count())


if __name__ == "__main__":
    main()
