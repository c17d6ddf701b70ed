"""Why a slave does not reach its master, from the system's own answers: each connect fails as it does in the world."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

from engine.protocol.ha.wire import CODES, CloseReason
from engine.replication.dial import CONNECT_TIMEOUT_MS
from engine.replication.receiver import Receiver, open_role
from tests.harness.conditions import SECONDS
from tests.harness.ha_node import Node

NOW_MS = 1_000_000
MULTICAST = "224.0.0.1"  # TCP has no way there, whatever routes this host has
WITHOUT_SCOPE = "fe80::1"  # of which link, nobody says
NOBODY = "no-such-host.invalid"  # RFC 6761: never resolves


def reason_at(directory: Path, host: str, port: int, later_ms: int = 0) -> CloseReason:
    """Why the first try to connect there ended; seen by a clock that is moved on by `later_ms` after a first turn."""
    with Node(directory, brokerRole="SLAVE", brokerId=1, haMasterAddress=f"{host}:{port}") as node:
        receiver: Receiver = open_role(node.config, node.counters)
        receiver.do_work(NOW_MS)
        try:
            return ended(receiver, NOW_MS + later_ms)
        finally:
            receiver.close()


def ended(receiver: Receiver, now_ms: int) -> CloseReason:
    is_over: Callable[[], bool] = lambda: receiver.client.reason is not CloseReason.NONE  # noqa: E731
    deadline = time.monotonic() + SECONDS
    while not is_over() and time.monotonic() < deadline:
        receiver.do_work(now_ms)
        receiver.idle(20)
    return receiver.client.reason


def test_a_name_that_resolves_to_nothing(tmp_path: Path) -> None:
    assert reason_at(tmp_path, NOBODY, 10912) is CloseReason.NO_ADDRESS


def test_no_way_to_that_host(tmp_path: Path) -> None:
    assert reason_at(tmp_path, MULTICAST, 10912) is CloseReason.UNREACHABLE


def test_an_address_that_the_system_does_not_take(tmp_path: Path) -> None:
    assert reason_at(tmp_path, WITHOUT_SCOPE, 10912) is CloseReason.CONNECT_FAILED


def test_a_host_that_does_not_answer(tmp_path: Path) -> None:
    with socket.socket() as listening, socket.socket() as first, socket.socket() as second:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)  # one connection fits, what comes then is not answered
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        port = listening.getsockname()[1]
        assert reason_at(tmp_path, "127.0.0.1", port, CONNECT_TIMEOUT_MS) is CloseReason.CONNECT_TIMEOUT


def test_each_failure_to_connect_has_an_error_code() -> None:
    reasons = (CloseReason.NO_ADDRESS, CloseReason.UNREACHABLE, CloseReason.CONNECT_FAILED, CloseReason.CONNECT_TIMEOUT)
    assert [CODES[reason].value for reason in reasons] == ["NO_ADDRESS", "UNREACHABLE", "UNREACHABLE", "TIMEOUT"]
