"""Limits of a micro-batch against brute force: any queues, any cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_bridge.stream.limits import Limits, Span, cut_to_bytes, cut_to_rows
from store.queues.consume_queue import CQ_DTYPE

SIZES = st.integers(91, 400)


class Listed:
    """A queue's entries in memory."""

    def __init__(self, entries: list[tuple[int, int]]) -> None:
        self.entries = np.array([(offset, size, 0) for offset, size in entries], CQ_DTYPE)

    def physical_offset(self, queue_offset: int) -> int:
        return int(self.entries[queue_offset]["physical_offset"])

    def block(self, start: int, end: int) -> Any:
        return self.entries[start:end]


@st.composite
def spans(draw: st.DrawFn) -> list[Span]:
    """Queues of one log, of each some entries read already."""
    records = draw(st.lists(st.tuples(st.integers(0, 3), SIZES), max_size=40))
    queues: list[list[tuple[int, int]]] = [[], [], [], []]
    at = draw(st.integers(0, 1 << 40))
    for queue, size in records:
        queues[queue].append((at, size))
        at += size
    return [Span(Listed(queue), draw(st.integers(0, len(queue))), len(queue)) for queue in queues]


def in_order(found: list[Span]) -> list[tuple[int, int, int]]:
    """(physical offset, size, queue) of what waits, in the order of the log."""
    return sorted(
        (int(entry["physical_offset"]), int(entry["size"]), number)
        for number, span in enumerate(found)
        for entry in span.entries.block(span.start, span.end)
    )


def ends_after(found: list[Span], taken: int) -> list[int]:
    """The ends that hold exactly the first records of the log."""
    queues = [queue for _, _, queue in in_order(found)[:taken]]
    return [span.start + queues.count(number) for number, span in enumerate(found)]


@given(spans(), st.integers(1, 50))
def test_a_limit_of_rows_takes_the_first_rows_of_the_log(found: list[Span], rows_max: int) -> None:
    assert cut_to_rows(found, rows_max) == ends_after(found, rows_max)


@given(spans(), st.integers(1, 6000))
def test_a_limit_of_bytes_takes_at_least_one_record(found: list[Span], bytes_max: int) -> None:
    sizes = [size for _, size, _ in in_order(found)]
    taken = 0
    while taken < len(sizes) and (not taken or sum(sizes[: taken + 1]) <= bytes_max):
        taken += 1
    assert cut_to_bytes(found, bytes_max) == ends_after(found, taken)


@pytest.mark.parametrize(
    ("rows", "since_ms", "expected"), [(9, 0, True), (10, 0, False), (0, 999, True), (0, 1000, False)]
)
def test_a_batch_waits_for_rows_but_not_for_ever(rows: int, since_ms: float, expected: bool) -> None:
    assert Limits(rows_min=10, delay_max_ms=1000).waits(rows, since_ms) is expected
    assert Limits().waits(rows, since_ms) is False
