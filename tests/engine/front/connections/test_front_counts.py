"""What the ring's latencies say of fast sends, of which nothing is counted one by one."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest

from engine.front.connections.front_counts import FrontCounts
from engine.monitoring.counted import COMMITTED, KEPT, RPC
from engine.shared_memory.latencies import BLOCK_WORDS, record

BOUNDS, NOW_NS = KEPT[RPC].bounds, 10**12


class Said:
    """A relay that a test plays."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.answers: list[tuple[Any, Any]] = []

    def tell(self, _what: str, fields: dict[str, Any]) -> bool:
        self.rows += fields["rows"]
        self.answers += [(fields["number"], fields["front"])] if "number" in fields else []
        return True


def test_compiled_sends_are_what_the_ring_has_and_nobody_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic_ns", lambda: NOW_NS)
    said, ring, draw = Said(), np.zeros(BLOCK_WORDS, np.int64), random.Random(3)
    counts = FrontCounts(said)  # type: ignore[arg-type]
    record(ring, 0, 500)
    counts.fast_sends(ring, 0)
    took = [draw.choice((0, 1, 2, 4, 6, 60, 700)) for _ in range(200)]
    for number, took_ms in enumerate(took):
        record(ring, 0, took_ms * 1000)
        if number % 4 == 0:
            record(ring, 0, 0)
            counts.put(NOW_NS)
    counts.fast_sends(ring, 10)
    assert not counts.rows, "once a second"
    counts.fast_sends(ring, 2000)
    counts.turn(2000)
    [(key, row)] = said.rows
    assert key == (RPC, "remoting", "send_message_v2", "success", "false", "success")
    assert sum(row[:-1]) == len(took)
    assert row[0] == sum(took_ms <= 1 for took_ms in took)
    counts.fast_sends(ring, 4000)
    assert not counts.rows, "nothing was sent since"


def test_a_put_that_is_counted_before_the_ring_has_it_is_taken_off_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic_ns", lambda: NOW_NS)
    said, ring = Said(), np.zeros(BLOCK_WORDS, np.int64)
    counts = FrontCounts(said)  # type: ignore[arg-type]
    counts.fast_sends(ring, 0)
    counts.put(NOW_NS)
    counts.fast_sends(ring, 2000)
    record(ring, 0, 0)
    counts.fast_sends(ring, 4000)
    assert not counts.rows
    record(ring, 0, 0)
    counts.fast_sends(ring, 6000)
    assert [row[0] for _labels, row in counts.of(RPC)] == [1]


def test_what_was_counted_is_said_when_it_is_asked_for() -> None:
    said = Said()
    counts = FrontCounts(said)  # type: ignore[arg-type]
    counts.count(COMMITTED, "t")
    counts.say({"number": 7, "front": 1})
    counts.say({"number": 8, "front": 1})
    assert said.rows == [((COMMITTED, "t"), [1])]
    assert said.answers == [(7, 1), (8, 1)], "also where there is nothing to say"
