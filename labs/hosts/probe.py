#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends every address a datagram again and again, each from a socket of its own, whether the one before was answered or not.

Usage: probe.py PORT MILLISECONDS ADDRESS... A line on standard input is answered with one as soon as every address has answered 50 more.
Where standard input ends it waits for the last answers, and prints JSON: {address: {"sent": n, "lost": n}}; lost is what was
not answered within a second.
"""

import json
import select
import socket
import sys
import time

LATE = 1.0  # seconds; an answer after that is none
STEADY = 50  # answers


class Probes:
    """The datagrams to one address."""

    def __init__(self, address, port, poll):
        self.target, self.poll = (address, port), poll
        self.family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.waiting = {}  # file descriptor -> (socket, when it was sent), oldest first
        self.sent = self.lost = self.answered = 0

    def send(self, now):
        probe = socket.socket(self.family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.waiting[probe.fileno()] = (probe, now)
        self.sent += 1
        try:
            probe.connect(self.target)
            probe.send(b"?")
        except OSError:
            pass  # lost, as nobody will answer
        self.poll.register(probe, select.POLLIN)

    def receive(self, descriptor):
        try:
            self.waiting[descriptor][0].recv(256)
        except OSError:  # what the network says of it, such as ICMP unreachable
            self.poll.unregister(descriptor)
            return
        self.close(descriptor)
        self.answered += 1

    def give_up(self, sent_before):
        for descriptor in [each for each, (_, sent) in self.waiting.items() if sent < sent_before]:
            self.close(descriptor)
            self.lost += 1

    def close(self, descriptor):
        probe, _ = self.waiting.pop(descriptor)
        try:
            self.poll.unregister(descriptor)
        except KeyError:
            pass  # since its error
        probe.close()


def main():
    poll = select.poll()
    poll.register(sys.stdin, select.POLLIN)
    port, every, addresses = int(sys.argv[1]), int(sys.argv[2]) / 1000, sys.argv[3:]
    probes = [Probes(address, port, poll) for address in addresses]
    due, awaited, is_over = time.monotonic(), None, False
    while not is_over or any(each.waiting for each in probes):
        if time.monotonic() >= due:
            due += every
            for each in probes if not is_over else []:
                each.send(time.monotonic())
        for descriptor, _ in poll.poll(max(0.0, 1000 * (due - time.monotonic()))):
            if descriptor != sys.stdin.fileno():
                next(each for each in probes if descriptor in each.waiting).receive(descriptor)
            elif sys.stdin.readline():
                awaited = [each.answered + STEADY for each in probes]
            else:
                is_over = True
                poll.unregister(descriptor)
        for each in probes:
            each.give_up(time.monotonic() - LATE)
        if awaited is not None and all(each.answered >= count for each, count in zip(probes, awaited)):
            awaited = None
            print("they are answered", flush=True)
    print(json.dumps({each.target[0]: {"sent": each.sent, "lost": each.lost} for each in probes}))


if __name__ == "__main__":
    main()
