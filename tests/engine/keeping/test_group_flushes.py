"""A SYNC_FLUSH flusher that waits for those whom the flush before answered: one flush has them all."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from engine.keeping.flusher import Flusher, Pace, Paces
from engine.protocol.store import group_commit
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from tests.harness.conditions import await_that
from tests.harness.logs import QUEUE_FILE_BYTES, SmallLog

NOW, LONG_NS = 1_000_000, 60_000_000_000


class Bed:
    """A log that grows by one message at a time, and its flusher."""

    def __init__(self, directory: Path) -> None:
        self.counters, self.log = BrokerCounters.create(directory / "counters"), SmallLog(directory / "store")
        self.flusher = Flusher(
            self.counters,
            self.log.files,
            self.log.directory,
            QUEUE_FILE_BYTES,
            sync_flush=True,
            paces=Paces(Pace(500, 1, 10_000), Pace(1000, 2, 60_000)),
        )

    def put(self, messages: int = 1) -> None:
        self.log.fill(messages, topics=1, queues=1)
        waiting.add(self.counters.put_messages, messages)
        waiting.publish(self.counters.max_physical_offset, self.log.end)

    def group(self) -> group_commit.GroupCommit:
        assert self.flusher._group is not None
        return self.flusher._group


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    monkeypatch.setattr(group_commit, "WAIT_MAX_NS", LONG_NS)
    return Bed(tmp_path)


def test_a_flush_waits_for_producers_that_were_answered(bed: Bed) -> None:
    bed.put(3)
    bed.flusher.do_work(NOW)
    assert bed.counters.log_flushes.read() == 1
    bed.group().waits, bed.group()._flush_ns = True, LONG_NS
    bed.put()
    flushing = threading.Thread(target=bed.flusher.do_work, args=(NOW,), daemon=True)
    flushing.start()
    for _ in range(2):
        await_that(lambda: waiting.is_awaited(bed.counters.max_physical_offset), "it waits for the others")
        assert bed.counters.log_flushes.read() == 1
        bed.put()
    flushing.join()
    assert bed.counters.log_flushes.read() == 2
    assert bed.counters.flushed_offset.read() == bed.log.end


def test_nobody_is_waited_for_where_that_does_not_pay(bed: Bed) -> None:
    bed.put(3)
    bed.flusher.do_work(NOW)
    bed.group().waits, bed.group()._flush_ns = False, LONG_NS
    bed.put()
    bed.flusher.do_work(NOW)
    assert (bed.counters.log_flushes.read(), bed.counters.flushed_offset.read()) == (2, bed.log.end)


def test_a_producer_that_stops_delays_others_by_one_flush_at_most(bed: Bed) -> None:
    bed.put(3)
    bed.flusher.do_work(NOW)
    bed.group().waits = True
    for number in range(2, 5):
        bed.put()
        bed.flusher.do_work(NOW)
        assert (bed.counters.log_flushes.read(), bed.counters.flushed_offset.read()) == (number, bed.log.end)
