"""Very many queues at rest cost the flusher nothing."""

from __future__ import annotations

from typing import Any

import pytest

from engine.shared_memory.cursors import BrokerCounters
from store.queues.sync import QueueSync
from tests.engine.keeping.test_flusher import NOW, counters, dispatch, grow, log, role
from tests.harness.logs import SmallLog

__all__ = ["counters", "log"]  # fixtures


def test_queues_at_rest_are_looked_at_once(
    log: SmallLog, counters: BrokerCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    sync = QueueSync.sync

    def counted(*told: Any) -> int:
        looks.append(told[1])
        return sync(*told)

    monkeypatch.setattr(QueueSync, "sync", counted)
    flusher = role(log, counters)
    grow(log, counters, 1000)
    dispatch(log, counters)
    for minute in range(3):
        flusher.do_work(NOW + minute * 60_000)
    assert looks == [0]
    grow(log, counters, 1000)
    dispatch(log, counters)
    flusher.close()
    assert looks == [0, 0], "everything once more at the stop"
