"""Connections to a real HA port that end by a reset, or a close, at every step there is; and what that costs."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable
from typing import NamedTuple

import psutil

from engine.protocol.ha.wire import FRAME_HEADER_BYTES, REPORT
from tests.harness.conditions import await_that
from tests.harness.ha_node import Node

RESET = struct.pack("@ii", 1, 0)  # SO_LINGER 0: closing sends a reset
WARM_SHARE = 10  # memory is compared from the first tenth on
LOOK_EVERY = 500
SECONDS = 120.0
HOSTS = 250  # in the last and in the last but one part of an address: each comes once, whoever comes again has history
WHOLE_EVERY = 40  # so seldom is a first report whole: then it is a process


class Cost(NamedTuple):
    """What probes came to: how many, how many of them spoke to a sender, and by how much the listener grew."""

    probes: int
    served: int
    grown_bytes: int
    more_descriptors: int


def probe(port: int, dice: random.Random, number: int, end: int) -> bool:
    """Come, say a part of what a slave says or something else, vanish; whether the first report was whole."""
    with socket.socket() as sock:
        sock.bind((f"127.{1 + number // HOSTS**2}.{number // HOSTS % HOSTS}.{1 + number % HOSTS}", 0))
        sock.settimeout(SECONDS)
        sock.connect(("127.0.0.1", port))
        is_whole = number % WHOLE_EVERY == 0
        try:
            if is_whole:
                _speak_to_a_sender(sock, dice, end)
            else:
                said = dice.choice((REPORT.pack(dice.randint(0, end)), b"GET / HTTP/1.1\r\n", b"\x16\x03\x01"))
                sock.sendall(said[: dice.randint(0, REPORT.size - 1)] if dice.random() < 0.8 else b"\xff" * 8)
        except OSError:
            return is_whole  # it hung up first
        if dice.random() < 0.9:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    return is_whole


def _speak_to_a_sender(sock: socket.socket, dice: random.Random, end: int) -> None:
    """Name a position, take perhaps a part of what is sent from there, acknowledge what nobody was sent."""
    sock.sendall(REPORT.pack(dice.choice((0, end, dice.randint(0, end)))))
    sock.settimeout(0.05)
    if dice.random() < 0.7:
        sock.recv(dice.choice((1, FRAME_HEADER_BYTES, 5000)))
    forged = (end + (1 << 40), 1 << 62, -1, -(1 << 56))
    sock.sendall(b"".join(REPORT.pack(dice.choice(forged)) for _ in range(dice.randint(1, 50)))[: dice.randint(1, 400)])
    if dice.random() < 0.5:
        sock.recv(1 << 16)


def probes(master: Node, count: int, first: int, seed: int, between: Callable[[], None]) -> Cost:
    """So many, from the host with number `first` on; `between` looks now and then whether all is well."""
    dice, port = random.Random(seed), master.counters.ha_listen_port.read()
    listener = psutil.Process(master.pids["ha_listener"])
    served, rss, descriptors = 0, 0, listener.num_fds()
    for number in range(count):
        served += probe(port, dice, first + number, master.counters.max_physical_offset.read())
        if number % LOOK_EVERY == 0:
            between()
        if number == count // WARM_SHARE:
            rss = listener.memory_info().rss
    senders = [cursor for name, cursor in master.counters.pids.items() if name.startswith("sender.")]
    await_that(lambda: sum(pid.read() != 0 for pid in senders) <= 1, "only the slave's sender is left", SECONDS)
    await_that(lambda: listener.num_fds() <= descriptors, "all descriptors are given back", SECONDS)
    return Cost(count, served, listener.memory_info().rss - rss, listener.num_fds() - descriptors)
