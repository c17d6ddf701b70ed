"""Which messages a pull gets: the compiled loop beside both lines' loops, written down as Java has them."""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
import pytest

from engine.protocol.pulling.decision import QueueExtent, Status, looked, outside, scan_before, without_file
from engine.protocol.pulling.select_kernel import (
    Limit,
    RangeColumn,
    Taken,
    any_matched,
    is_matched,
    select,
)
from store.message.unit import LAST_ADDRESS, Unit

SEEDS = 400
PLAIN_UNIT, BATCH_UNIT = 20, 46
MEMORY, SEGMENT = 3000, 1000


class One(NamedTuple):
    """A unit of a queue."""

    offset: int
    size: int
    tags: int
    queue_offset: int
    messages: int


class Case(NamedTuple):
    """A queue, a log and a pull."""

    units: list[One]
    codes: frozenset[int] | None
    begins: int
    ends: int
    max_messages: int
    limits: tuple[int, int, int, int]
    asked: int


class Outcome(NamedTuple):
    """What a pull got."""

    status: Status
    next_offset: int
    is_behind: bool
    taken: list[tuple[int, int]]


def case_of(seed: int, *, batches: bool) -> Case:
    draw = random.Random(seed)
    units, at, queue_offset = [], 0, draw.randrange(5)
    first = queue_offset
    for _ in range(draw.randrange(1, 120)):
        size = draw.randrange(20, 300)
        at += draw.choice((0, 0, 0, 150))
        if at % SEGMENT + size > SEGMENT:
            at += SEGMENT - at % SEGMENT
        messages = draw.randrange(1, 5) if batches else 1
        tags = draw.choice((1, 2, 3, -7, 1 + (1 << 32), LAST_ADDRESS))
        units.append(One(at, size, tags, queue_offset, messages))
        at, queue_offset = at + size, queue_offset + messages
    codes = draw.choice((None, None, frozenset({1}), frozenset({2, -7}), frozenset({99})))
    begins = draw.choice((0, 0, draw.randrange(at) // SEGMENT * SEGMENT))
    ends = at if draw.random() < 0.8 else draw.randrange(begins, at)
    limits = draw.randrange(1, 40), draw.randrange(50, 4000), draw.randrange(1, 10), draw.randrange(50, 1000)
    return Case(units, codes, begins, ends, draw.choice((1, 5, 32, 1000)), limits, first)


def matches(unit: One, codes: frozenset[int] | None) -> bool:
    return codes is None or unit.tags <= LAST_ADDRESS or (unit.tags + (1 << 31)) % (1 << 32) - (1 << 31) in codes


def as_java(case: Case, *, is_older: bool, unit_bytes: int) -> Outcome:
    """DefaultMessageStore.getMessage of 4.9 (`is_older`) or 5.x, from the queue's first unit on."""
    status, furthest, skip_below, count, size = Status.NO_MATCHED_MESSAGE, 0, None, 0, 0
    next_offset = case.asked
    scanned = max(16000, case.max_messages * unit_bytes)
    taken: list[tuple[int, int]] = []
    for number, unit in enumerate(case.units):
        if is_older and number * unit_bytes >= scanned:
            break
        if not is_older and (unit.queue_offset - case.asked) * unit_bytes >= scanned:
            break
        on_disk = case.ends - unit.offset > MEMORY
        skipped = skip_below is not None and unit.offset < skip_below
        if is_older:
            furthest = unit.offset
        if not (is_older and skipped) and size and count:
            counts, sizes = case.limits[2:] if on_disk else case.limits[:2]
            if count + unit.messages > case.max_messages or size + unit.size > sizes or count > counts - 1:
                break
        furthest, next_offset = unit.offset, unit.queue_offset + unit.messages
        if skipped:
            continue
        if not matches(unit, case.codes):
            status = Status.NO_MATCHED_MESSAGE if not size else status
            continue
        if not case.begins <= unit.offset <= case.ends - unit.size:
            status = Status.MESSAGE_WAS_REMOVING if not size else status
            skip_below = unit.offset + SEGMENT - unit.offset % SEGMENT
            continue
        taken.append((unit.offset, unit.size))
        status, skip_below, count, size = Status.FOUND, None, count + unit.messages, size + unit.size
    return Outcome(status, next_offset, case.ends - furthest > MEMORY, taken)


def as_compiled(case: Case, *, is_older: bool, unit_bytes: int) -> Outcome:
    limits, taken = np.zeros(len(Limit), np.int64), np.zeros(len(Taken), np.int64)
    for limit, value in zip(list(Limit)[1:5], case.limits, strict=True):
        limits[limit] = value
    for limit, value in (
        (Limit.MESSAGES, case.max_messages),
        (Limit.MEMORY_BYTES, MEMORY),
        (Limit.LOG_BEGINS, case.begins),
        (Limit.LOG_ENDS, case.ends),
        (Limit.SEGMENT_BYTES, SEGMENT),
        (Limit.COUNTS_REFUSED, is_older),
        (Limit.TAKES_ALL, case.codes is None),
        (Limit.SCAN_BEFORE, scan_before(case.asked, case.max_messages, unit_bytes)),
    ):
        limits[limit] = value
    ranges = np.zeros((200, len(RangeColumn)), np.int64)
    units = np.array(case.units, np.int64)
    codes = np.array(sorted(case.codes or ()), np.int64)
    select(units, len(units), limits, codes, ranges, taken)
    extent = QueueExtent(case.asked, int(units[-1, Unit.QUEUE_OFFSET] + units[-1, Unit.MESSAGES]))
    caught = looked(case.asked, extent, taken, case.ends, MEMORY)
    spans = ranges[: taken[Taken.RANGES]].tolist()
    assert sum(length for _, length in spans) == caught.bytes
    within = [
        any(at <= unit.offset and unit.offset + unit.size <= at + length for at, length in spans) for unit in case.units
    ]
    return Outcome(
        caught.status,
        caught.next_offset,
        caught.is_behind,
        [(unit.offset, unit.size) for unit, is_in in zip(case.units, within, strict=True) if is_in],
    )


@pytest.mark.parametrize("is_older", [True, False])
@pytest.mark.parametrize("batches", [False, True])
def test_a_pull_takes_the_units_that_java_takes(*, is_older: bool, batches: bool) -> None:
    unit_bytes = BATCH_UNIT if batches else PLAIN_UNIT
    statuses = set()
    for seed in range(SEEDS):
        case = case_of(seed, batches=batches and not is_older)
        wanted = as_java(case, is_older=is_older, unit_bytes=unit_bytes)
        assert as_compiled(case, is_older=is_older, unit_bytes=unit_bytes) == wanted, f"seed {seed}"
        statuses.add(wanted.status)
    assert statuses == {Status.FOUND, Status.NO_MATCHED_MESSAGE, Status.MESSAGE_WAS_REMOVING}


def test_neighbours_are_one_range_but_not_across_files() -> None:
    units = np.array([(at, 250, 0, at // 250, 1) for at in range(0, 2000, 250)], np.int64)
    limits, taken = np.full(len(Limit), 1 << 40, np.int64), np.zeros(len(Taken), np.int64)
    limits[Limit.LOG_BEGINS], limits[Limit.SEGMENT_BYTES] = 0, SEGMENT
    ranges = np.zeros((9, len(RangeColumn)), np.int64)
    select(units, len(units), limits, np.empty(0, np.int64), ranges, taken)
    assert ranges[: taken[Taken.RANGES]].tolist() == [[0, 1000], [1000, 1000]]


def test_tags_codes_are_compared_as_ints() -> None:
    codes = np.array([-5, 3], np.int64)
    assert [bool(is_matched(code, codes)) for code in (3, 3 + (1 << 40), -5, 4, LAST_ADDRESS, LAST_ADDRESS + 1)] == [
        True, True, True, False, True, False,
    ]  # fmt: skip
    units = np.array([(0, 1, 9, 0, 1), (0, 1, 3, 0, 1)], np.int64)
    assert not any_matched(units, 1, codes) and any_matched(units, 2, codes)


@pytest.mark.parametrize(
    ("offset", "low", "high", "status", "following"),
    [
        (0, 0, 0, Status.NO_MESSAGE_IN_QUEUE, 0), (7, 0, 0, Status.NO_MESSAGE_IN_QUEUE, 0),
        (-3, 0, 9, Status.OFFSET_TOO_SMALL, 0), (3, 4, 9, Status.OFFSET_TOO_SMALL, 4),
        (9, 4, 9, Status.OFFSET_OVERFLOW_ONE, 9), (10, 4, 9, Status.OFFSET_OVERFLOW_BADLY, 9),
    ],
)  # fmt: skip
def test_an_offset_outside_a_queue_has_its_status_and_next_offset(
    offset: int, low: int, high: int, status: Status, following: int
) -> None:
    for corrects in (True, False):
        caught = outside(offset, QueueExtent(low, high), corrects=corrects)
        assert caught is not None
        assert (caught.status, caught.next_offset) == (status, following if corrects else offset)
    assert outside(4, QueueExtent(4, 9), corrects=True) is None
    assert without_file(7, QueueExtent(0, 99), 10, corrects=True).next_offset == 10
