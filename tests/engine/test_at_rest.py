"""A broker that does little: nobody loads the compiler, or looks at what nobody has moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.producer.producer import Producer
from engine.services import transactions
from engine.shared_memory.cursors import BrokerCounters, BrokerState
from ipc import descriptors
from ipc.clock import monotonic_ms
from ipc.compiled.kernels import is_carried
from store.files import checkpoint
from store.files.directory import StoreDirectory
from store.reading import extent
from tests.harness.conditions import await_that
from tools.common.local_broker import LocalBroker

READY, LOADED = "\nready: ", "[cache] data loaded"
WITHOUT_TIMERS = "writer allocator dispatcher ha_listener group_transfer delay transactions front.0".split()
LONG_MS = 1500
NOW_MS, INTERVAL_MS = 1_000_000, 60_000


def test_what_runs_is_loaded_before_it_is_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that a child loads itself costs it megabytes: pages of the compiler that it had shared until then."""
    monkeypatch.setenv("NUMBA_DEBUG_CACHE", "1")
    with LocalBroker(tmp_path / "b", flushConsumeQueueThoroughInterval=100) as broker:
        with Producer(broker.store, timeout=60) as producer:
            end = producer.send("t", b"body").physical_offset
        path = StoreDirectory(broker.store).checkpoint
        await_that(lambda: (checkpoint.read(path).flushed_offset or 0) > end, "the checkpoint is written")
        _before, ready, after = broker.log.read_text().partition(READY)
        assert ready and LOADED not in after, after
        processes = [broker.process.pid, *(child.pid for child in psutil.Process(broker.process.pid).children(True))]
        with_compiler = [pid for pid in processes if "llvmlite" in Path(f"/proc/{pid}/maps").read_text()]
        assert with_compiler == ([] if is_carried() else processes)
        counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory)
        for name in WITHOUT_TIMERS:  # their heartbeats say that they have slept for longer than others may
            beat = counters.heartbeats[name]
            await_that(lambda beat=beat: monotonic_ms() - beat.read() > LONG_MS, f"{name} rests")
        counters.region.close()


class _Word:
    def __init__(self, value: int) -> None:
        self.value = value

    def read(self) -> int:
        return self.value


def test_transactions_sleep_until_the_next_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or until somebody rings: nothing of theirs is looked at meanwhile."""
    slept: list[int] = []

    def sleep(*_fds: int, timeout_ms: int) -> None:
        slept.append(timeout_ms)

    monkeypatch.setattr(descriptors, "await_readable", sleep)
    monkeypatch.setattr(transactions, "monotonic_ms", lambda: NOW_MS)
    role: Any = object.__new__(transactions.Transactions)
    role._puts = type("Puts", (), {"puts": 0, "is_drained": True})()
    role._link = type("Link", (), {"bell": -1})()
    role._counters = type("Counters", (), {"broker_state": _Word(BrokerState.RUNNING)})()
    role._round, role._awaited, role._is_begun = None, None, True
    role._round_at_ms, role._pause_until_ms = NOW_MS + INTERVAL_MS, 0
    for _ in range(2):
        role.idle(1000)
    role._round, role._pause_until_ms = object(), NOW_MS + 10
    role.idle(1000)
    role._counters.broker_state.value = BrokerState.STOPPING
    role.idle(1000)
    assert slept == [1000, 1000, 10, transactions.HELD_UP_MS]
