"""What retention reads of queues, their extensions and index files: last entries, and nothing of the newest file."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from store.errors import IndexFileDamaged
from store.index.service import IndexService
from store.queues.batch_consume_queue import UNIT_BYTES
from store.queues.consume_queue import ConsumeQueue
from store.queues.extension import QueueExt, is_address
from store.queues.queue_set import QueueKinds
from store.recovery.dispatch import Dispatcher
from store.upkeep import expiry
from tests.harness.logs import QUEUE_FILE_BYTES, SmallLog

EXT_FILE_BYTES = 20 * 12 + 4  # twelve units


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    return SmallLog(tmp_path / "store")


def test_last_offsets_are_those_of_the_records_that_end_the_files(log: SmallLog) -> None:
    log.fill(35, topics=1, queues=1)
    Dispatcher(log.files, log.directory.consumequeue, QUEUE_FILE_BYTES).dispatch(0, log.end)
    ((directory, entry_bytes),) = expiry.queues(log.root)
    found = list(expiry.last_offsets(directory, entry_bytes))
    assert found == [(directory / f"{n * 200:020d}", log.records[10 * n + 9].offset) for n in range(3)]


def test_batch_queues_have_longer_entries(log: SmallLog) -> None:
    directory = log.root / "batchconsumequeue" / "topic" / "3"
    directory.mkdir(parents=True)
    for number, offset in enumerate((700, 800)):
        units = bytes(UNIT_BYTES) + struct.pack(">q", offset) + bytes(UNIT_BYTES - 8)
        (directory / f"{number * len(units):020d}").write_bytes(units)
    assert list(expiry.queues(log.root)) == [(directory, UNIT_BYTES)]
    assert list(expiry.last_offsets(directory, UNIT_BYTES)) == [(directory / f"{0:020d}", 700)]


def test_a_file_too_short_for_an_entry_ends_the_look(log: SmallLog) -> None:
    for number in range(3):
        (log.root / f"{number:020d}").write_bytes(bytes(7))
    assert list(expiry.last_offsets(log.root, 20)) == []


def test_extension_files_go_before_the_unit_of_the_first_living_entry(log: SmallLog) -> None:
    log.fill(100, topics=1, queues=1)
    kinds = QueueKinds(ext_file_bytes=EXT_FILE_BYTES)
    Dispatcher(log.files, log.directory.consumequeue, QUEUE_FILE_BYTES, kinds=kinds).dispatch(0, log.end)
    directory, ext = log.directory.consumequeue / "topic0" / "0", log.root / "consumequeue_ext" / "topic0" / "0"
    paths = sorted(ext.iterdir())
    assert len(paths) > 5
    assert expiry.expired_ext_files(directory, 0) == []
    begin = log.records[50].offset
    for base in ConsumeQueue(directory, QUEUE_FILE_BYTES).bases()[:5]:
        (directory / f"{base:020d}").unlink()
    address = int(ConsumeQueue(directory, QUEUE_FILE_BYTES).entries(50, 51)[0]["tags_code"])
    assert is_address(address)
    position = address + (1 << 63)
    gone = expiry.expired_ext_files(directory, begin)
    assert gone == [path for path in paths if int(path.name) + EXT_FILE_BYTES < position] and gone
    for path in gone:
        path.unlink()
    assert QueueExt(ext, EXT_FILE_BYTES).read(position) is not None, "the living entry still has its unit"
    assert expiry.expired_ext_files(directory, log.end + 1) == [], "nothing lives: nothing is known"


def test_index_ends(log: SmallLog) -> None:
    index = IndexService(log.directory.index, 7, 6)
    for number in range(12):
        log.append(properties={"KEYS": f"k{number}"})
    Dispatcher(log.files, log.directory.consumequeue, QUEUE_FILE_BYTES, index=index).dispatch(0, log.end)
    found = list(expiry.index_ends(log.directory.index))
    assert [path for path, _ in found] == index.files()[:-1]
    assert [offset for _, offset in found] == [log.records[n].offset for n in (4, 9)]
    index.files()[0].write_bytes(bytes(39))
    with pytest.raises(IndexFileDamaged, match="ends within its header"):
        list(expiry.index_ends(log.directory.index))
    assert list(expiry.index_ends(log.root / "missing")) == []
