"""Plans of a store with thousands of segments and queues: so many looks at each, and no more, whatever is asked for."""

from __future__ import annotations

import os
import pickle
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from spark_bridge.options.read import parse_options
from spark_bridge.plan import inventory
from spark_bridge.plan.planner import plan_read
from spark_bridge.split.splits import QueueSplit
from spark_bridge.stream import tail
from tests.spark_bridge.stores import read_rows
from tools.dev.bench.bed.sparse_store import RECORDS_A_SEGMENT, SparseStore, topic_name
from tools.dev.bench.works.reads import planning

COUNT = 2000  # of segments, and of queues
FEW = 100  # opens, listings and maps that do not grow with the store
EVENTS = {"open": "opened", "os.scandir": "listed", "os.listdir": "listed", "mmap.__new__": "mapped"}

_counts: Counter[tuple[str, str]] | None = None


def _count(event: str, args: tuple[Any, ...]) -> None:
    if _counts is not None and event in EVENTS:
        path = "" if event == "mmap.__new__" else str(args[0])
        kind = next((name for name in ("commitlog", "consumequeue") if f"/{name}" in path), "")
        _counts[EVENTS[event], kind] += 1


@cache
def _add_hook() -> None:
    sys.addaudithook(_count)  # for as long as the process runs, which may come to this module twice


@pytest.fixture(scope="module", autouse=True)
def _hook() -> None:
    _add_hook()


@contextmanager
def counted() -> Iterator[Counter[tuple[str, str]]]:
    global _counts
    _counts = Counter()
    try:
        yield _counts
    finally:
        _counts = None


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SparseStore:
    return SparseStore(tmp_path_factory.mktemp("many"), COUNT, COUNT).write()


@pytest.fixture(autouse=True)
def _nothing_known() -> None:
    inventory._at_rest.clear()


def test_the_store_is_as_large_as_it_says_and_takes_little(store: SparseStore) -> None:
    files = [path.stat() for path in (store.root / "commitlog").iterdir()]
    assert sum(status.st_size for status in files) == COUNT << 30
    assert sum(status.st_blocks for status in files) * 512 < COUNT << 15
    log = inventory.find_extent(str(store.root))
    last = store.place(store.records - 1)
    assert log.max_physical_offset == log.reput_from_offset == last + store.record_bytes
    assert log.max_physical_offset > 1 << 40


OPENED = {  # of the files of each queue, and of each segment
    "everything": (0, 0),
    "one topic": (0.1, 0),
    "a time of all": (0, 0),
    "a key": (0, 0),
    "table segments": (0, 1),
    "table queues": (1, 1),
    "table topics": (1, 1),
    "a pattern between times": (1, 0.1),
    "a time of every queue": (1, 0.1),
    "a stream": (3, 0),
    "a stream from a time": (2, 0.1),
    "a stream of small batches": (6, 0),
}
LISTED = {"a stream": 2, "a stream from a time": 1, "a stream of small batches": 3}  # the folder of each queue


@pytest.mark.parametrize("kind", planning.KINDS)
def test_files_are_looked_at_a_few_times_each(store: SparseStore, kind: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with counted() as counts:
        parts = planning.KINDS[kind](store)
    assert parts
    of_queue, of_segment = OPENED.get(kind, (1, 0))
    assert counts["opened", "consumequeue"] <= of_queue * COUNT + FEW
    assert counts["opened", "commitlog"] <= of_segment * COUNT + FEW
    # a queue's own folder; its topic's, which has many, and the one of all
    assert counts["listed", "consumequeue"] <= LISTED.get(kind, 1 if of_queue else 0) * COUNT + COUNT / 10 + 300
    assert counts["listed", "commitlog"] <= 10, "the folder of the log is large: each look at it is many"
    assert counts["mapped", ""] <= tail.MAPPED_MAX + FEW
    assert len(os.listdir("/proc/self/fd")) <= before + tail.MAPPED_MAX + FEW
    weight = sum(len(pickle.dumps(part)) for part in parts)
    assert weight <= 3000 * len(parts) + 200 * COUNT, "what all parts need is not told to each queue by queue"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SparseStore:
    """Few files, for rows: three topics of 230 queues in all."""
    return SparseStore(tmp_path_factory.mktemp("small"), 200, 230, segment_bytes=1 << 20).write()


def rows_of(kind: str, store: SparseStore) -> list[int]:
    """The numbers of the records that a plan gives."""
    places = (row["physicalOffset"] for row in read_rows(planning.KINDS[kind](store), ["physicalOffset"]))
    parts = (divmod(at, store.segment_bytes) for at in places)
    return sorted(RECORDS_A_SEGMENT * segment + position // store.record_bytes for segment, position in parts)


def test_the_rows_are_those_of_the_records(small: SparseStore) -> None:
    everything, middle = list(range(small.records)), small.records // 2
    topics = {number: small.queue(number % small.queues)[0] for number in everything}
    wanted = {
        "everything": everything,
        "one topic": [number for number in everything if topics[number] == topic_name(small.topics // 2)],
        "all topics by a pattern": everything,
        "offsets of every queue": everything[small.queues :],
        "a time of every queue": everything[middle:],
        "a time of all": everything[middle:],
        "a pattern between times": everything[middle:],
        "a key": everything,
        "many partitions of all topics": everything,
    }
    assert {kind: rows_of(kind, small) for kind in wanted} == wanted
    assert all(kind.startswith(("table ", "a stream")) for kind in planning.KINDS.keys() - wanted.keys())


def test_a_split_has_the_bounds_of_its_own_queues_only(small: SparseStore) -> None:
    by_queue = planning._by_queue(small, small.ms(small.records // 2)).replace(
        str(small.ms(small.records // 2)), str(small.ms(9)), 1
    )  # one queue begins at another time
    options = {"path": str(small.root), "startingOffsetsByTimestamp": by_queue, "minPartitions": "20"}
    splits = [split for split in plan_read(parse_options(options)) if isinstance(split, QueueSplit)]
    assert len(splits) >= 20
    told = sorted(len(split.selection.stored) for split in splits)
    assert told[0] == told[-2] == 1, "all its queues have the same time"
    assert told[-1] == len({(piece.topic, piece.queue_id) for piece in splits[0].pieces})


@pytest.mark.parametrize("kind", ["table queues", "table topics", "table segments"])
def test_tables_have_a_row_each(small: SparseStore, kind: str) -> None:
    rows = planning.KINDS[kind](small)
    counts = {"table queues": small.queues, "table topics": small.topics, "table segments": small.segments}
    assert len(rows) == counts[kind]
    if kind == "table queues":
        first = rows[0]  # brokerName, topic, queueId, minOffset, maxOffset, count, the times, the offsets of both ends
        last = (small.records - 1) // small.queues * small.queues
        assert first[1:] == (topic_name(0), 0, 0, last // small.queues + 1, last // small.queues + 1, small.ms(0),
                             small.ms(last), 0, small.place(last))  # fmt: skip


def test_more_queues_than_may_be_mapped_are_followed(small: SparseStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail.MapRoom.__init__, "__defaults__", (7,))
    followed = tail.StoreTail(str(small.root))
    view = followed.look()
    assert view is not None and len(view.queues) == small.queues
    ends = {key: (queue.first, queue.end) for key, queue in view.queues.items()}
    assert sum(end for _, end in ends.values()) == small.records
    places = {key: queue.physical_offset(0) for key, queue in view.queues.items()}
    assert places == {small.queue(number): small.place(number) for number in range(small.queues)}
    assert {queue.mean_bytes(0, queue.end) for queue in view.queues.values()} == {small.record_bytes}
    assert sum(len(queue._mapped) for queue in view.queues.values()) == 7
    for queue in view.queues.values():
        queue.end = 0
        queue.follow(small.place(small.queues))
    assert {queue.end for queue in view.queues.values()} == {1}


def test_a_stream_from_the_middle_begins_there(small: SparseStore) -> None:
    tasks = planning.KINDS["a stream from a time"](small)
    pieces = [piece for task in tasks for split in task for piece in split.pieces]
    middle = small.records // 2
    numbers = {
        number
        for piece in pieces
        for number in range(piece.start, piece.end)
        for number in [number * small.queues + 100 * int(piece.topic[-6:]) + piece.queue_id]
    }
    assert numbers == set(range(middle, small.records))
    assert Path(pieces[0].directory).is_dir()
