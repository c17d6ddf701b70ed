"""Runs one of our servers as a process and sends it mutated frames; tells whether it lives, answers and stays small."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import psutil

from engine.board.cursors import Board
from engine.protocol.remoting.frame import RemotingCommand
from store.reading import extent
from tests.fuzz.frames import Attacker, Mutator, captured_requests, still_answers
from tests.interop.sides import OurNameServer
from tools.common.local_broker import LocalBroker

GET_ALL_TOPIC_CONFIG, GET_BROKER_CLUSTER_INFO = 21, 106
FAST_BELOW = 2
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


def attack_broker(directory: Path, compat: str, frames: int, seed: int) -> Outcome:
    """A master, half of the frames at each of its ports."""
    with LocalBroker(directory / "broker", compat=compat, **SIZES) as broker:
        board = Board.attach(extent.require_running(broker.store).region_directory)
        pid = board.pids["remoting"].read()
        ports = (broker.port, broker.port - FAST_BELOW)
        sent, connections, grown = _attack(pid, ports, captured_requests("master", "slave"), frames, seed)
        answering = all(still_answers(port, GET_ALL_TOPIC_CONFIG) for port in ports)
        restarts = board.restarts["remoting"].read()
    return Outcome(sent, connections, restarts, answering, grown)


def attack_name_server(directory: Path, compat: str, frames: int, seed: int) -> Outcome:
    """A name server."""
    server = OurNameServer(directory / "names", "5.3.3" if compat == "5" else "4.9.7")
    port = int(server.address.rpartition(":")[2])
    try:
        sent, connections, grown = _attack(server.pid, (port,), captured_requests("namesrv"), frames, seed)
        answering = still_answers(port, GET_BROKER_CLUSTER_INFO)
    finally:
        server.stop()
    return Outcome(sent, connections, 0, answering, grown)


def _attack(
    pid: int, ports: tuple[int, ...], requests: list[RemotingCommand], frames: int, seed: int
) -> tuple[int, int, int]:  # fmt: skip
    """Frames sent, connections made, bytes by which the process grew."""
    process, attackers = psutil.Process(pid), [Attacker(port) for port in ports]
    before = 0
    for number, frame in enumerate(Mutator(requests, seed).frames(frames)):
        attackers[number % len(attackers)].send(frame)
        if number == frames // WARM_SHARE:
            before = process.memory_info().rss
    for attacker in attackers:
        attacker.hang_up()
    sent, connections = (sum(getattr(one, name) for one in attackers) for name in ("sent", "connections"))
    return sent, connections, process.memory_info().rss - before
