"""Places that somebody waits for, while others stop to wait."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

from engine.producer.awaited_places import AwaitedPlaces
from ipc.ring import DESCRIPTOR_WORDS, ControlWord

RECORDS = 64


@pytest.fixture
def collects_at_once() -> Iterator[None]:
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*thresholds)


def test_a_wait_that_stops_at_any_moment_does_not_disturb_a_publish(collects_at_once: None) -> None:
    """A collection is where another thread may get its turn in the midst of a look at all."""
    control = np.zeros(max(ControlWord) + 1, np.int64)
    control[ControlWord.HEAD] = RECORDS
    places = AwaitedPlaces(control, np.zeros(RECORDS * DESCRIPTOR_WORDS, np.int64))
    for number in range(RECORDS):
        places.expect(number)
    left = list(range(RECORDS))

    def forget(phase: str, _info: dict[str, int]) -> None:
        if phase == "stop" and left:
            places.forget(left.pop())

    gc.callbacks.append(forget)
    try:
        assert places.free_until(RECORDS) == 2 * RECORDS
    finally:
        gc.callbacks.remove(forget)
    assert left != list(range(RECORDS)), "a collection ran"
