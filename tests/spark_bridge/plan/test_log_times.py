"""Where a queue's messages of a time begin: what RocketMQ's search of the queue alone finds, with few looks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_bridge.plan import log_times
from spark_bridge.plan.bounds import offset_at
from spark_bridge.plan.log_times import LogTimes
from spark_bridge.split.splits import LogExtent, Queue
from store.files.segment_files import SegmentFiles
from store.queues.consume_queue import ConsumeQueue
from store.queues.seen_queue import SeenQueue
from store.queues.time_search import Log, files_of, offset_by_entries
from store.reading.history import stored_ms
from tests.spark_bridge.stores import SmallStore

STEPS_MS = (0, 0, 1, 7, 0, 30, 2)  # some messages are of one millisecond
QUEUES = [("orders", 0), ("orders", 1), ("payments", 0)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SmallStore:
    """Six segments; queues have two files, one has nine messages only, in the middle of the log."""
    made = SmallStore(tmp_path_factory.mktemp("times") / "store", 4096)
    at_ms = 10_000
    for number in range(200):
        topic, queue_id = ("payments", 0) if 80 <= number < 89 else ("orders", number % 2 * (number > 20))
        made.put(topic, b"x" * (number % 40), queue_id=queue_id, store_timestamp_ms=at_ms)
        at_ms += STEPS_MS[number % len(STEPS_MS)]
    made.dispatch()
    assert made.end > 5 * made.segment_bytes
    return made


def searched(store: SmallStore, queue: Queue, log: LogExtent, at_ms: int) -> int:
    """As the queue's own entries tell, RocketMQ's way."""
    files = SegmentFiles(log.commitlog, log.segment_bytes)
    entries = files_of(ConsumeQueue.open(queue.directory), queue.end)
    if queue.end <= queue.first:
        return queue.end
    asked = Log(log.min_physical_offset, lambda offset, _size: stored_ms(files, offset) or 0)
    return max(queue.first, offset_by_entries(entries, queue.first, at_ms, asked))


@pytest.mark.parametrize("first_segment", [0, 2])
def test_every_time_is_found_where_the_queue_alone_finds_it(store: SmallStore, first_segment: int) -> None:
    log = store.extent()
    log = replace(log, min_physical_offset=first_segment * log.segment_bytes)
    files = SegmentFiles(log.commitlog, log.segment_bytes)
    times = {stored_ms(files, offset) or 0 for offset in store.offsets}
    asked = sorted({0, 1 << 50} | times | {at + 1 for at in times} | {at - 1 for at in times})
    with LogTimes(log) as known:
        for topic, queue_id in QUEUES:
            place = f"{store.root}/consumequeue/{topic}/{queue_id}"
            queue = Queue.below(place, topic, queue_id, SeenQueue(place), log)
            for at_ms in asked:
                assert offset_at(queue, known, at_ms) == searched(store, queue, log, at_ms), (topic, queue_id, at_ms)


def test_a_queue_asks_one_segment_and_no_file_stays_open(store: SmallStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_times, "FILES_OPEN_MAX", 2)
    opened: list[int] = []
    real = SegmentFiles.descriptor
    monkeypatch.setattr(SegmentFiles, "descriptor", lambda files, base: opened.append(base) or real(files, base))
    place = f"{store.root}/consumequeue/orders/1"
    log = store.extent()
    queue = Queue.below(place, "orders", 1, SeenQueue(place), log)
    with LogTimes(log) as times:
        middle = stored_ms(SegmentFiles(log.commitlog, log.segment_bytes), store.offsets[150])
        assert middle is not None
        opened.clear()
        found = offset_at(queue, times, middle)
        assert len(set(opened)) <= 4, "the bisection over six segments, and the one that is looked into"
        opened.clear()
        assert offset_at(queue, times, middle) == found
        assert opened == [], "it is known, and open"
        for offset in store.offsets[::5]:
            times.stored_ms(offset)
        assert len(times._open) == 2
    assert not times._open
