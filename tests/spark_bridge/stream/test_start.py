"""Where a stream begins that has no checkpoint: each queue is looked at once, and says what RocketMQ's search says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_bridge.options.values import InvalidOption
from spark_bridge.split.splits import Queue
from spark_bridge.stream.offsets import Offsets
from spark_bridge.stream.options import StreamOptions, parse_stream_options
from spark_bridge.stream.stores import StreamStores
from store.files.segment_files import SegmentFiles
from store.queues.seen_queue import SeenQueue
from store.reading.history import stored_ms
from tests.spark_bridge.plan.test_log_times import QUEUES, STEPS_MS, searched
from tests.spark_bridge.stores import SmallStore

START_MS = 10_000


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    """Some segments and queues; one queue has a few messages only, in the middle of the log."""
    made = SmallStore(tmp_path / "store", 4096)
    at_ms = START_MS
    for number in range(120):
        topic, queue_id = ("payments", 0) if 40 <= number < 49 else ("orders", number % 2 * (number > 20))
        made.put(topic, b"x" * (number % 40), queue_id=queue_id, store_timestamp_ms=at_ms)
        at_ms += STEPS_MS[number % len(STEPS_MS)]
    made.dispatch()
    return made


def asked(store: SmallStore, **options: str) -> tuple[StreamOptions, StreamStores]:
    parsed = parse_stream_options({"path": str(store.root), **options})
    return parsed, StreamStores(parsed.read)


def starts(store: SmallStore, **options: str) -> Offsets:
    parsed, stores = asked(store, **options)
    return stores.starts(parsed, stores.begin(parsed, 60.0))


def as_searched(store: SmallStore, at_ms: int) -> dict[tuple[str, int], int]:
    """By each queue's own entries alone."""
    log, offsets = store.extent(), {}
    for topic, queue_id in QUEUES:
        place = f"{store.root}/consumequeue/{topic}/{queue_id}"
        queue = Queue.below(place, topic, queue_id, SeenQueue(place), log)
        offsets[topic, queue_id] = searched(store, queue, log, at_ms)
    return offsets


def test_every_time_begins_where_a_search_of_the_queue_begins_it(store: SmallStore) -> None:
    files = SegmentFiles(store.extent().commitlog, store.segment_bytes)
    times = {stored_ms(files, offset) or 0 for offset in store.offsets}
    for at_ms in sorted({0, 1 << 40} | times | {at + 1 for at in times}):
        begun = starts(store, startingTimestamp=str(at_ms))
        assert {key[1:]: offset for key, offset in begun.items()} == as_searched(store, at_ms), at_ms


def test_a_queue_is_listed_once_whatever_its_time_is(store: SmallStore, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[str] = []
    made = SeenQueue.__init__
    monkeypatch.setattr(SeenQueue, "__init__", lambda queue, place: listed.append(place) or made(queue, place))
    of_all = {"startingTimestamp": str(START_MS + 100)}
    of_two = {"startingOffsetsByTimestamp": json.dumps({"orders": {"0": START_MS + 100}, "payments": {"0": START_MS}})}
    for options in (of_all, of_two):
        listed.clear()
        begun = starts(store, **options)
        assert len(begun) == len(QUEUES if options is of_all else {("orders", 0), ("orders", 1), ("payments", 0)})
        assert sorted(listed) == sorted(set(listed)), "each queue's folder once"


def test_what_came_after_the_first_look_is_looked_at_again(store: SmallStore) -> None:
    files = SegmentFiles(store.extent().commitlog, store.segment_bytes)
    last_ms = max(stored_ms(files, offset) or 0 for offset in store.offsets)
    options = {"startingTimestamp": str(last_ms + 1)}
    parsed, stores = asked(store, **options)
    ends = {key: end for key, (_, end) in stores.begin(parsed, 60.0).items()}
    for number in range(5):
        store.put("orders", b"late", queue_id=0, store_timestamp_ms=last_ms + number)
    store.dispatch()
    there = stores.look()
    begun = stores.starts(parsed, there)
    (late,) = [key for key in begun if key[1:] == ("orders", 0)]
    assert begun == {**ends, late: ends[late] + 1}, "the first of them is as early as the last one before"
    assert there[late][1] == ends[late] + 5


def test_too_late_a_time_is_an_error_only_for_queues_that_have_one(store: SmallStore) -> None:
    strict = {"startingOffsetsByTimestampStrategy": "error"}
    with pytest.raises(InvalidOption, match="has no message stored at or after 99999999 ms"):
        starts(store, startingTimestamp="99999999", **strict)
    of_one = json.dumps({"orders": {"1": START_MS}})
    begun = starts(store, startingOffsetsByTimestamp=of_one, topic="orders", **strict)
    assert {key[1:]: offset for key, offset in begun.items()} == {("orders", 0): 0, ("orders", 1): 0}


def test_the_length_of_what_will_be_read_is_known_from_the_first_look(store: SmallStore) -> None:
    parsed, stores = asked(store, startingTimestamp=str(START_MS + 300))
    there = stores.begin(parsed, 60.0)
    for key, offset in stores.starts(parsed, there).items():
        tail = stores.tail_of(key)
        assert tail is not None
        if offset < there[key][1]:
            assert tail._sampled[:2] == (tail._sample_start(offset, there[key][1]), there[key][1]), key
        noted = tail.mean_bytes(offset, there[key][1])
        tail._sampled = 0, 0, 0
        assert tail.mean_bytes(offset, there[key][1]) == noted, key
