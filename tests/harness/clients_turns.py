"""The clients role, turned by the test itself until something has come to pass."""

from __future__ import annotations

from collections.abc import Callable

from engine.remoting.clients import Clients
from ipc.clock import monotonic_ms
from tests.harness.conditions import SECONDS


def turn_until(server: Clients, done: Callable[[], bool]) -> None:
    """Fails the test where it does not come to pass."""
    deadline_ms = monotonic_ms() + SECONDS * 1000  # turns end early where something comes: they are no measure
    while not done():
        assert monotonic_ms() < deadline_ms, "it did not come to pass"
        server.do_work(monotonic_ms())
        server.idle(10)
