"""A front without its process: its loop turns in a thread of the test, which plays the clients role, or none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from engine.front import front
from engine.remoting.links.exchange import Bells
from engine.settings.config import BrokerConfig
from engine.shared_memory.cursors import BrokerCounters, Serving
from engine.shared_memory.latencies import create_latencies
from ipc import ring
from ipc.clock import monotonic_ms
from tests.harness.conditions import await_that


@contextmanager
def served(config: BrokerConfig, counters: BrokerCounters, bells: Bells, number: int = 0) -> Iterator[front.Front]:
    """Front `number`, until the block ends; its ports are bound when it begins."""
    if not (counters.directory / ring.RINGS_FILE).exists():
        ring.create_rings(counters.directory, config.rings).close()
        create_latencies(counters.directory, config.rings)
    one = front.open_role(config, counters, number, bells)
    ends = threading.Event()

    def turn() -> None:
        while not ends.is_set():
            one.do_work(monotonic_ms())
            one.idle(20)
        one.close()

    turning = threading.Thread(target=turn, name="front", daemon=True)
    turning.start()
    try:
        await_that(lambda: counters.fronts[number].serving.read() >= Serving.PORTS, "the front's ports are bound")
        yield one
    finally:
        ends.set()
        turning.join()
