"""Counters: labelled, one writer each, never torn, nobody sleeps through a change."""

import os
from pathlib import Path

import pytest
from numba import njit
from numba.core.errors import TypingError

from ipc import waiting
from ipc.compiled import atomics
from ipc.counters import Counters
from ipc.errors import CounterMissing, CountersFull
from tests.harness.children import exit_code_of


@njit  # kept nowhere: this module has no name that numba's cache could find it by
def add_one(words, index):  # type: ignore[no-untyped-def]
    atomics.fetch_add(words, index, 1)


def test_a_viewer_needs_only_the_region(tmp_path: Path) -> None:
    counters = Counters.create(tmp_path / "c", 4)
    waiting.publish(counters.allocate("max_physical_offset", kind="cursor", owner="writer"), 4711)
    counters.allocate("put_messages", kind="tally", owner="writer", initial=5)
    seen = [(view.label, view.kind, view.owner, view.value) for view in Counters.attach(tmp_path / "c")]
    assert seen == [("max_physical_offset", "cursor", "writer", 4711), ("put_messages", "tally", "writer", 5)]


def test_an_unknown_label_and_a_full_region_are_errors(tmp_path: Path) -> None:
    counters = Counters.create(tmp_path / "c", 1)
    with pytest.raises(CounterMissing, match="no counter is labelled 'x'"):
        counters.cursor("x")
    counters.allocate("x", kind="gauge", owner="me")
    with pytest.raises(CountersFull):
        counters.allocate("y", kind="gauge", owner="me")


def test_a_reader_in_another_process_never_sees_a_torn_or_falling_value(tmp_path: Path) -> None:
    counters = Counters.create(tmp_path / "c", 1)
    cursor = counters.allocate("x", kind="cursor", owner="me")
    step, steps = 0x1_0000_0001, 200_000
    child = os.fork()
    if child == 0:
        last = 0
        while last < step * steps:
            value = cursor.read()
            if value % step or value < last:
                os._exit(1)
            last = value
        os._exit(0)
    for k in range(1, steps + 1):
        waiting.publish(cursor, step * k)
    assert exit_code_of(child) == 0


def test_nobody_sleeps_through_a_change(tmp_path: Path) -> None:
    """Two processes hand a number back and forth; each lost wake-up would cost a whole deadline of 60 s."""
    counters = Counters.create(tmp_path / "c", 2)
    there = counters.allocate("there", kind="cursor", owner="parent")
    back = counters.allocate("back", kind="cursor", owner="child")
    turns = 20_000
    child = os.fork()
    if child == 0:
        for k in range(turns):
            if waiting.await_change(there, k, 60_000) != k + 1:
                os._exit(1)
            waiting.publish(back, k + 1)
        os._exit(0)
    for k in range(turns):
        waiting.publish(there, k + 1)
        assert waiting.await_change(back, k, 60_000) == k + 1
    assert exit_code_of(child) == 0
    assert list(counters.words[[there.index + 1, back.index + 1]]) == [0, 0], "everybody signed off"


def test_a_wait_ends_at_its_deadline_with_the_value_seen(tmp_path: Path) -> None:
    counters = Counters.create(tmp_path / "c", 1)
    cursor = counters.allocate("x", kind="cursor", owner="me", initial=9)
    assert waiting.await_change(cursor, 9, 1) == 9
    assert waiting.await_change(cursor, 8, 60_000) == 9


def test_concurrent_adds_lose_nothing(tmp_path: Path) -> None:
    counters = Counters.create(tmp_path / "c", 1)
    bell = counters.allocate("bell", kind="gauge", owner="many")
    add_one(bell.words, bell.index)  # compiled before the fork
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            for _ in range(50_000):
                add_one(bell.words, bell.index)
            os._exit(0)
        children.append(child)
    assert [exit_code_of(child) for child in children] == [0, 0, 0, 0]
    assert bell.read() == 200_001


def test_a_bell_counts_only_while_somebody_sleeps(tmp_path: Path) -> None:
    counters = Counters.create(tmp_path / "c", 1)
    bell = counters.allocate("bell", kind="gauge", owner="many")
    waiting.ring(bell)
    assert bell.read() == 0
    bell.words[bell.index + 1] = 1
    waiting.ring(bell)
    assert bell.read() == 1


def test_waiting_on_a_read_only_mapping_is_an_error_not_a_crash(tmp_path: Path) -> None:
    Counters.create(tmp_path / "c", 1).allocate("x", kind="cursor", owner="me")
    reader = Counters.attach(tmp_path / "c").cursor("x")
    with pytest.raises(TypingError, match="mapped read-only"):
        waiting.await_change(reader, 0, 10)
