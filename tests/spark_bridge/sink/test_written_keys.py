"""Which rows are in the log is asked of the index; what its entries name may be anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_bridge.sink.index import WrittenKeys
from store.errors import CorruptRecord
from store.index.index_file import Geometry, IndexFile, hash_of
from tests.spark_bridge.stores import SmallStore

GEOMETRY = Geometry(100, 400)
KEY = "0" * 32
TIME_MS = 1_700_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    store = SmallStore(tmp_path)
    while store.end <= store.segment_bytes:
        store.put("orders", properties=f"UNIQ_KEY\x01{KEY}\x02".encode(), store_timestamp_ms=TIME_MS)
    return store


def counted(store: SmallStore, *offsets: int) -> int:
    """How many records have the key, by an index whose entries of it name these offsets."""
    path = store.root / "index" / "20231114221320000"
    path.parent.mkdir(exist_ok=True)
    index = IndexFile.fresh(path, GEOMETRY)
    for offset in offsets:
        assert index.put(hash_of("orders", KEY), offset, TIME_MS)
    path.write_bytes(index.array.tobytes())
    return WrittenKeys(path.parent, GEOMETRY, store.extent()).counts(["orders"], [KEY])[KEY]


def test_each_record_that_an_entry_names_is_counted_once(store: SmallStore) -> None:
    assert counted(store, *store.offsets, store.offsets[0]) == len(store.offsets)


def test_what_lies_outside_the_log_is_not_asked(store: SmallStore) -> None:
    assert counted(store, -1, store.end, store.end + store.segment_bytes, store.offsets[2]) == 1


@pytest.mark.parametrize("before", [1, 8, 87, 88, 90])
@pytest.mark.parametrize("behind_segments", [0, 1])
def test_bytes_too_near_to_an_end_for_a_record_are_reported(
    store: SmallStore, before: int, behind_segments: int
) -> None:
    """Of a segment, and of the log."""
    wrong = (store.end if behind_segments else store.segment_bytes) - before
    with pytest.raises(CorruptRecord, match=f"record at offset {wrong}: an entry of the index names it"):
        counted(store, wrong, store.offsets[2])


def test_bytes_that_begin_no_record_are_reported(store: SmallStore) -> None:
    with pytest.raises(CorruptRecord, match=f"record at offset {store.offsets[1] + 1}"):
        counted(store, store.offsets[1] + 1)
