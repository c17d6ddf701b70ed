"""Rows without a queue of their own: writes of few rows begin at any queue, tasks of one write one behind the other."""

from __future__ import annotations

import uuid
from typing import Any

from spark_bridge.sink.append import _Outlet, _Queues
from spark_bridge.sink.task import TaskId

QUEUES = 4


def first_queue(query: str, partition: int = 0) -> int:
    producer: Any = None
    outlet = _Outlet(producer, lambda: {"": _Queues(QUEUES, QUEUES)}, False, TaskId(query, 0, partition))
    return outlet._turn % QUEUES


def test_writes_begin_at_any_queue_and_their_tasks_one_behind_the_other() -> None:
    assert {first_queue(str(uuid.UUID(int=number))) for number in range(200)} == set(range(QUEUES))
    first = first_queue("write")
    assert [first_queue("write", number) for number in range(8)] == [(first + number) % QUEUES for number in range(8)]
