"""Each record once, whichever extents of the dispatched log are looked through instead of read queue by queue."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from spark_bridge.plan.inventory import find_queues
from spark_bridge.split.apart import apart
from spark_bridge.split.splits import Beside, LogExtent, Queue, QueueSplit, RangeSplit, Selection, plan
from tests.spark_bridge.stores import SmallStore, read_rows

SEGMENT_BYTES = 2048


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SmallStore:
    store = SmallStore(tmp_path_factory.mktemp("apart"), SEGMENT_BYTES)
    for number in range(60):
        store.put(("orders", "returns", "other")[number % 3], b"x" * (number % 70), number % 2)
    store.dispatch()
    return store


def queues_of(store: SmallStore, log: LogExtent, selection: Selection) -> list[Queue]:
    return find_queues(str(store.root), log, selection)[0]


@pytest.mark.parametrize("reput", [0, 1, 3, 9], ids="reput at segment {}".format)
def test_any_segments_may_be_set_apart(store, reput):
    """Wherever the dispatcher is; also a topic that has no queue to trust."""
    starts = [next(at for at in store.offsets if at >= base) for base in range(0, store.end, SEGMENT_BYTES)]
    log = store.extent(reput=([*starts[1:], store.end, *[store.end] * 9])[reput] if reput else starts[0])
    wanted = Selection(topics=frozenset({"orders", "returns"}))
    queues = queues_of(store, log, Selection(topics=frozenset({"orders"})))
    expected = sorted(offset for offset, _, topic, _, _ in store.records if topic in ("orders", "returns"))
    bases = range(0, store.end, SEGMENT_BYTES)
    for count in range(len(bases) + 1):
        for chosen in itertools.combinations(bases, count):
            extents = [(base, base + SEGMENT_BYTES) for base in chosen]
            left, inside, outside = apart(log, queues, wanted, extents)
            splits = plan(log, left, frozenset({"returns"}), wanted, 700, 4, beside=Beside(None, inside, outside))
            rows = read_rows(splits, ["physicalOffset"])
            assert sorted(row["physicalOffset"] for row in rows) == expected, chosen
            pieces = [piece for split in splits if isinstance(split, QueueSplit) for piece in split.pieces]
            in_queues = sum(piece.end - piece.start for piece in pieces)
            dispatched = [
                at for at, _, topic, _, _ in store.records if topic == "orders" and at < log.reput_from_offset
            ]
            assert in_queues == sum(at - at % SEGMENT_BYTES not in chosen for at in dispatched)


def test_little_is_read_queue_by_queue_whatever_lies_beside_it(store):
    log = store.extent()
    for selection, little in (
        (Selection(topics=frozenset({"orders"})), False),
        (Selection(topics=frozenset({"orders"}), bounds=(("orders", 0, 5, None),)), True),
        (Selection(topics=frozenset({"%LMQ%x", "orders"})), True),
    ):
        left, inside, _ = apart(log, queues_of(store, log, selection), selection, [(0, SEGMENT_BYTES)])
        assert bool(inside) is not little
    huge = LogExtent(log.commitlog, SEGMENT_BYTES, 0, 1 << 40, 1 << 40)
    assert not apart(huge, left, Selection(topics=frozenset({"orders"})), [(0, SEGMENT_BYTES)]).inside


def test_what_is_set_apart_is_read_by_range(store):
    log, wanted = store.extent(), Selection(topics=frozenset({"orders"}))
    left, *extents = apart(log, queues_of(store, log, wanted), wanted, [(0, SEGMENT_BYTES)])
    inside, outside = extents
    splits = plan(log, left, frozenset(), wanted, None, 4, beside=Beside(None, inside, outside))
    assert [split.base_offset for split in splits if isinstance(split, RangeSplit)] == [0]
    assert Path(log.commitlog).is_dir()
