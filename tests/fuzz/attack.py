"""Runs one of our servers as a process and sends it mutated frames; tells whether it lives, answers and stays small."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

from engine.protocol.remoting.frame import RemotingCommand
from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from tests.fuzz.frames import Attacker, Mutator, captured_requests, clients_requests, still_answers
from tests.interop.sides import OurNameServer
from tools.common.local_broker import LocalBroker

GET_ALL_TOPIC_CONFIG, GET_BROKER_CLUSTER_INFO = 21, 106
FAST_BELOW = 2
SERVING = ("clients", "front.0", "delay", "transactions")  # what a stranger can reach
WARM_SHARE = 10  # memory is compared from the first tenth on
SIZES = {"mappedFileSizeCommitLog": 1 << 18, "mappedFileSizeConsumeQueue": 20_000, "ringSizeInBytes": 1 << 20,
         "maxMessageSize": 65536}  # fmt: skip


class Outcome(NamedTuple):
    """What became of the server."""

    frames: int
    connections: int
    restarts: int
    is_answering: bool
    grown_bytes: int
    failures: tuple[str, ...] = ()


def own_memory(processes: Iterable[psutil.Process]) -> int:
    """Bytes that are theirs alone, files and shared memory left out."""
    return sum(info.rss - info.shared for info in (process.memory_info() for process in processes))


def attack_broker(directory: Path, compat: str, frames: int, seed: int) -> Outcome:
    """A master, half of the frames at each of its ports."""
    with LocalBroker(directory / "broker", compat=compat, **SIZES) as broker:
        counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory)
        ports = (broker.port, broker.port - FAST_BELOW)
        requests = [*captured_requests("master", "slave"), *clients_requests(seed)]
        pids = [counters.pids[role].read() for role in SERVING if counters.pids[role].read()]
        sent, connections, grown = _attack(pids, ports, requests, frames, seed)
        answering = all(still_answers(port, GET_ALL_TOPIC_CONFIG) for port in ports)
        restarts = sum(word.read() for word in counters.restarts.values())
    return Outcome(sent, connections, restarts, answering, grown, failures_in(broker.log))


def failures_in(log: Path) -> tuple[str, ...]:
    """What a server's log says of failures of its own, with where they were: a stranger's words are to cause none."""
    text, found = log.read_text(errors="replace"), []
    for block in re.split(r"^(?=\d{4}-)", text, flags=re.MULTILINE):
        if "Traceback (most recent call last)" in block:
            found.append(block.strip())
    return tuple(found)


def attack_name_server(directory: Path, compat: str, frames: int, seed: int) -> Outcome:
    """A name server."""
    server = OurNameServer(directory / "names", "5.3.3" if compat == "5" else "4.9.7")
    port = int(server.address.rpartition(":")[2])
    try:
        sent, connections, grown = _attack([server.pid], (port,), captured_requests("namesrv"), frames, seed)
        answering = still_answers(port, GET_BROKER_CLUSTER_INFO)
    finally:
        server.stop()
    return Outcome(sent, connections, 0, answering, grown)


def _attack(
    pids: list[int], ports: tuple[int, ...], requests: list[RemotingCommand], frames: int, seed: int
) -> tuple[int, int, int]:
    """Frames sent, connections made, bytes by which the processes grew."""
    processes, attackers = [psutil.Process(pid) for pid in pids], [Attacker(port) for port in ports]
    before = 0
    for number, frame in enumerate(Mutator(requests, seed).frames(frames)):
        attackers[number % len(attackers)].send(frame)
        if number == frames // WARM_SHARE:
            before = own_memory(processes)
    for attacker in attackers:
        attacker.hang_up()
    sent, connections = (sum(getattr(one, name) for one in attackers) for name in ("sent", "connections"))
    return sent, connections, own_memory(processes) - before
