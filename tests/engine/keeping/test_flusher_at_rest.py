"""Very many queues at rest cost the flusher nothing."""

from __future__ import annotations

from typing import Any

import pytest

from engine.board.cursors import Board
from store.queues.sync import QueueSync
from tests.engine.keeping.test_flusher import NOW, board, dispatch, grow, log, role
from tests.harness.logs import SmallLog

__all__ = ["board", "log"]  # fixtures


def test_queues_at_rest_are_looked_at_once(log: SmallLog, board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    sync = QueueSync.sync

    def counted(*told: Any) -> int:
        looks.append(told[1])
        return sync(*told)

    monkeypatch.setattr(QueueSync, "sync", counted)
    flusher = role(log, board)
    grow(log, board, 1000)
    dispatch(log, board)
    for minute in range(3):
        flusher.do_work(NOW + minute * 60_000)
    assert looks == [0]
    grow(log, board, 1000)
    dispatch(log, board)
    flusher.close()
    assert looks == [0, 0], "everything once more at the stop"
