"""The table of queues: it grows as long as there is memory, and says why when it cannot."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from engine.shared_memory import queue_table
from engine.shared_memory.queue_table import NoQueueSlot, QueueTable


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_table, "QUEUES_STEP", 4)


def test_the_queue_table_grows_step_by_step_and_keeps_its_queues(tmp_path: Path) -> None:
    table = QueueTable.create(tmp_path, {("old", 7): 11})
    blocks = (tmp_path / queue_table.QUEUES_FILE).stat().st_blocks * 512
    assert blocks < 64 * 1024, "memory is taken when it is needed, not for all that there may ever be"
    slots = [table.slot_of(b"topic-%d" % number, number % 3) for number in range(1000)]
    assert slots == list(range(1, 1001)) and table.slot_of(b"old", 7) == 0
    table.next_offsets[1000] = 77
    other = QueueTable.attach(tmp_path)  # a writer that was started again
    assert len(other) == 1001 and other.slot_of(b"topic-999", 0) == 1000
    assert (other.next_offsets[0], other.next_offsets[1000]) == (11, 77)
    other.close()
    table.close()


def test_a_store_of_many_queues_has_room_for_more(tmp_path: Path) -> None:
    table = QueueTable.create(tmp_path, {("t", queue_id): queue_id for queue_id in range(100)}, queues_max=200)
    assert table.slot_of(b"another", 0) == 100
    assert table.next_offsets[99] == 99


def test_a_full_table_and_full_memory_are_different_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = QueueTable.create(tmp_path, {}, queues_max=10)
    for queue_id in range(8):
        table.slot_of(b"t", queue_id)

    def full(_fd: int, _start: int, _length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(NoQueueSlot) as caught:
            table.slot_of(b"t", 8)
        assert caught.value.errno == errno.ENOMEM
    assert table.slot_of(b"t", 8) == 8, "with memory again it goes on"
    assert table.slot_of(b"t", 9) == 9
    with pytest.raises(NoQueueSlot) as caught:
        table.slot_of(b"t", 10)
    assert caught.value.errno == errno.ENOSPC
    assert table.slot_of(b"t", 3) == 3, "those there are stay"
