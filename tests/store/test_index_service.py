"""The index from the log: RocketMQ's own files to the byte, at every length, after every kind of end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from time import localtime, strftime

import pytest

from store.dispatch import Dispatcher
from store.index_service import IndexService, name_after
from store.loaded import load
from store.log_end import store_timestamp_ms
from store.segment_files import SegmentFiles, segment_bytes_of
from tests.harness.logs import QUEUE_FILE_BYTES, SmallLog
from tests.store.golden import STORES, unpack

NOW = 1_790_000_000_000
GOLDEN_GEOMETRY = (200, 1000)


def clock() -> Callable[[], int]:
    """A millisecond a look."""
    ticks: Iterator[int] = count(NOW)
    return lambda: next(ticks)


def index_of(log: SmallLog, slots: int = 7, entries_max: int = 6) -> IndexService:
    return IndexService(log.directory.index, slots, entries_max, clock())


def builder(log: SmallLog, index: IndexService) -> Dispatcher:
    return Dispatcher(log.files, log.directory.consumequeue, QUEUE_FILE_BYTES, index=index)


def contents(index: IndexService) -> list[bytes]:
    return [path.read_bytes() for path in index.files()]


@pytest.mark.parametrize(("version", "name"), STORES)
def test_the_index_of_a_real_store_comes_out_byte_for_byte(version: str, name: str, tmp_path: Path) -> None:
    root = unpack(version, name, tmp_path)
    files = SegmentFiles(root / "commitlog", segment_bytes_of(root / "commitlog"))
    index = IndexService(tmp_path / "index", *GOLDEN_GEOMETRY, clock())
    dispatcher = Dispatcher(files, tmp_path / "queues", 4000, index=index)
    end = load(root).max_offset
    assert dispatcher.dispatch(0, end) == end
    assert contents(index) == [path.read_bytes() for path in sorted((root / "index").iterdir())]


def fill(log: SmallLog, messages: int) -> None:
    """Records with one key, several, none and such as collide in their slot."""
    for number in range(messages):
        keys = {"UNIQ_KEY": f"u{number}", "KEYS": " ".join(f"k{n}" for n in range(number % 4))}
        log.append(properties={name: text for name, text in keys.items() if text and number % 4 != 3})


def test_a_dispatch_that_begins_again_anywhere_changes_nothing(tmp_path: Path) -> None:
    log = SmallLog(tmp_path / "store")
    fill(log, 40)
    index = index_of(log)
    builder(log, index).dispatch(0, log.end)
    whole = contents(index)
    assert len(whole) > 5
    for record in [*log.records[::3], *log.records[-2:]]:
        again = index_of(log)
        again.cut(record.offset, partial(store_timestamp_ms, log.files))
        builder(log, again).dispatch(record.offset, log.end)
        assert contents(again) == whole
        builder(log, again).dispatch(record.offset, log.end)  # what is there is not put twice
        assert contents(again) == whole


@pytest.mark.parametrize(
    "last, expected",
    [
        (None, "{}000"),
        ("20000101000000000", "{}000"),
        ("99991231235959998", "99991231235959999"),
        ("30001231235959999", "30010101000000000"),
        ("99999999999999999", "100000000000000000"),
    ],
)
def test_names_are_local_times_and_only_rise(last: str | None, expected: str) -> None:
    assert name_after(last, NOW) == expected.format(strftime("%Y%m%d%H%M%S", localtime(NOW // 1000)))
