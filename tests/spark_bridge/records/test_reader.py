"""An executor's part: what it imports, how it keeps maps, and a segment that went away."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ipc.compiled.kernels import is_carried
from spark_bridge.records import reader
from spark_bridge.records.reader import open_window
from store.errors import SegmentRemoved
from tests.spark_bridge.stores import SmallStore

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    made = SmallStore(tmp_path, 1024)
    for number in range(30):
        made.put("t", bytes([number]) * 20)
    return made


@pytest.mark.skipif(not is_carried(), reason="no library was made here: numba compiles")
def test_readers_of_stores_need_no_numba_no_event_loop_and_nothing_of_the_engine() -> None:
    program = (
        "import sys, spark_bridge, pyspark_slipstream, spark_bridge.records.reader\n"
        "print(*(name for name in sys.modules if name.partition('.')[0] in ('asyncio', 'engine', 'numba', 'tools')))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.split() == []


def test_maps_are_kept_and_bounded(store, monkeypatch):
    monkeypatch.setattr(reader, "SEGMENTS_KEPT_MAX", 2)
    monkeypatch.setattr(reader, "_segments", type(reader._segments)())
    first = open_window(store.extent(), 0)
    again = open_window(store.extent(), 0)
    assert first.bytes.__array_interface__["data"] == again.bytes.__array_interface__["data"]
    for base in (1024, 2048):
        open_window(store.extent(), base)
    assert len(reader._segments) == 2
    assert bytes(first.bytes[:4]) != b""  # a window outlives the cache's hold on its map


def test_a_file_that_was_replaced_is_mapped_anew(store):
    before = open_window(store.extent(), 0)
    path = Path(before.path)
    copy = path.with_suffix(".copy")
    copy.write_bytes(bytes(1024))
    copy.rename(path)
    assert not open_window(store.extent(), 0).bytes.any()
    assert before.bytes.any()


def test_a_segment_removed_since_the_plan_is_reported(store):
    (Path(store.extent().commitlog) / f"{1024:020d}").unlink()
    with pytest.raises(SegmentRemoved, match="00000000000000001024") as caught:
        open_window(store.extent(), 1024)
    assert caught.value.code == "SEGMENT_REMOVED"
