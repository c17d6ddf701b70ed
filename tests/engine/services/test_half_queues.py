"""Half and op messages as a round reads them: what is dispatched between two looks is not passed over."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.protocol.services.transactions import Pulled
from engine.services.half_queues import HalfQueues
from store.files.segment import file_name
from store.files.segment_files import SegmentFiles
from store.message.topics import HALF_TOPIC, OP_TOPIC
from store.queues.consume_queue import CQ_DTYPE, ENTRY_BYTES

ENTRIES, RECORD_BYTES = 16, 100


class Words:
    """Counters of a broker whose dispatcher is further at each look."""

    def __init__(self, dispatched: Iterable[int]) -> None:
        looks = iter(dispatched)
        self.reput_from_offset, self.min_physical_offset = self, self
        self.read = lambda: next(looks)


def queues_of(directory: Path, count: int, dispatched: Iterable[int]) -> HalfQueues:
    """With `count` entries in each queue; what they point to is not there."""
    entries = np.zeros(ENTRIES, CQ_DTYPE)
    entries["size"][:count] = RECORD_BYTES
    entries["physical_offset"][:count] = np.arange(count) * RECORD_BYTES
    for topic in (HALF_TOPIC, OP_TOPIC):
        (directory / topic / "0").mkdir(parents=True)
        entries.tofile(directory / topic / "0" / file_name(0))
    counters: Any = Words(dispatched)
    return HalfQueues(directory, ENTRIES * ENTRY_BYTES, SegmentFiles(directory / "commitlog", 1 << 20), counters)


@pytest.mark.parametrize("at", [0, 1, 3])
def test_what_is_dispatched_behind_a_look_is_there_at_the_next_one(tmp_path: Path, at: int) -> None:
    queues = queues_of(tmp_path, at + 1, [at * RECORD_BYTES] + [(at + 1) * RECORD_BYTES] * 9)
    read = queues.read_half(at)
    assert (read.status, read.next_offset) == (Pulled.NO_NEW, at)
    queues = queues_of(tmp_path / "again", at + 1, [at * RECORD_BYTES] + [(at + 1) * RECORD_BYTES] * 9)
    ops = queues.read_ops(at)
    assert (ops.status, ops.next_offset) == (Pulled.NO_NEW, at)


def test_an_offset_outside_the_queue_is_illegal(tmp_path: Path) -> None:
    queues = queues_of(tmp_path, 4, [4 * RECORD_BYTES] * 9)
    assert queues.read_half(7).status is Pulled.ILLEGAL
    assert queues.read_half(7).next_offset == queues.read_ops(7).next_offset == 4
