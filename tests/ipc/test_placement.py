"""A thread held to one CPU, and given back what it had."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

from ipc.compiled.placement import PLACE_WORDS, hold_to, let_go


@pytest.fixture
def available() -> Iterator[set[int]]:
    before = os.sched_getaffinity(0)
    yield before
    os.sched_setaffinity(0, before)


def test_held_to_one_of_several_and_let_go(available: set[int]) -> None:
    if len(available) == 1:
        pytest.skip("this machine has one CPU")
    place = np.empty(PLACE_WORDS, np.int64)
    for cpu in available:
        assert hold_to(cpu, place)
        assert os.sched_getaffinity(0) == {cpu}
        let_go(place)
        assert os.sched_getaffinity(0) == available


def test_a_thread_that_may_use_one_cpu_or_only_others_is_left_alone(available: set[int]) -> None:
    place = np.empty(PLACE_WORDS, np.int64)
    one = min(available)
    os.sched_setaffinity(0, {one})
    for cpu in (one, max(available) + 1, 1 << 20, -1):
        assert not hold_to(cpu, place)
        assert os.sched_getaffinity(0) == {one}
