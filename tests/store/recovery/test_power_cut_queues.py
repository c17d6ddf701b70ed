"""Consume queues and their extensions after a power cut: the same files as without it, whatever it left of them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from store.files import checkpoint as checkpoint_file
from store.files.checkpoint import Checkpoint
from store.notes import flushed_mark
from store.queues.consume_queue import CQ_DTYPE, ConsumeQueue
from store.queues.extension import EXT_DTYPE
from store.queues.queue_set import QueueKinds
from store.recovery.dispatch import Dispatcher
from store.recovery.recovery import Recovered, recover
from tests.harness.logs import QUEUE_FILE_BYTES, SmallLog, contents

EXT_FILE_BYTES = 100  # four units, and room that is none
RECORDS, DURABLE = 32, 6  # so many records in two queues; so many of them are on disk, with their entries
BOOT_BEFORE = bytes(range(16))
KINDS = QueueKinds(ext_file_bytes=EXT_FILE_BYTES)
QUEUES = "consumequeue", "consumequeue_ext"


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    """A store whose machine stopped; by its checkpoint the first records' entries are on disk."""
    log = SmallLog(tmp_path / "store", 64 * 1024)
    for number in range(RECORDS):
        log.append(("topic", "other")[number % 2], properties={"TAGS": f"t{number}"})
    Dispatcher(log.files, log.directory.consumequeue, QUEUE_FILE_BYTES, kinds=KINDS).dispatch(0, log.end)
    noted = Checkpoint(flushed_offset=log.records[DURABLE].offset, queues=2, entries=DURABLE)
    checkpoint_file.write(log.directory.checkpoint, noted)
    flushed_mark.begin(log.directory, log.end)
    log.directory.mark_running()
    note = flushed_mark.read(log.directory)
    assert note is not None
    page = flushed_mark.encode(note._replace(boot=BOOT_BEFORE)).ljust(4096, b"\0")
    log.directory.mark.write_bytes(page * flushed_mark.PAGES)
    return log


def queues_of(log: SmallLog) -> dict[str, bytes]:
    return {name: content for name, content in contents(log.root).items() if name.startswith(QUEUES)}


def recovered(log: SmallLog) -> Recovered:
    return recover(log.directory, log.segment_bytes, QUEUE_FILE_BYTES, kinds=KINDS)


def queue_file(log: SmallLog, base: int, kind: str = "consumequeue", topic: str = "topic") -> Path:
    return log.root / kind / topic / "0" / f"{base:020d}"


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize("lost", ["length", "name"])
@pytest.mark.parametrize("base", [0, QUEUE_FILE_BYTES])
def test_a_queue_file_without_length_or_name_is_built_again(log: SmallLog, base: int, lost: str, noted: bool) -> None:
    """And nothing besides: what the checkpoint calls flushed is not built again."""
    before = queues_of(log)
    if not noted:
        checkpoint_file.write(log.directory.checkpoint, Checkpoint())
    elif not base:
        checkpoint_file.write(log.directory.checkpoint, Checkpoint(flushed_offset=0))
    os.truncate(queue_file(log, base), 0)
    if lost == "name":
        queue_file(log, base).unlink()
    assert recovered(log).findings == []
    assert queues_of(log) == before


@pytest.mark.parametrize("lost", ["length", "name", "page", "part of a unit", "first file"])
@pytest.mark.parametrize("why", ["nothing is noted", "entries are missing", "another queue is damaged", "no directory"])
def test_units_that_were_not_on_disk_are_made_again_with_the_queues(log: SmallLog, why: str, lost: str) -> None:
    before = queues_of(log)
    ext = queue_file(log, EXT_FILE_BYTES, "consumequeue_ext")
    if lost == "length":
        os.truncate(ext, 0)
    elif lost == "name":
        ext.unlink()
    elif lost == "first file":
        os.truncate(queue_file(log, 0, "consumequeue_ext"), 0)
    else:
        start = 20 if lost == "page" else 22 - 12 * (lost == "part of a unit")
        content = bytearray(ext.read_bytes())
        content[start : start + 20] = bytes(20)
        ext.write_bytes(content)
    if why == "nothing is noted" or lost == "first file":
        checkpoint_file.write(log.directory.checkpoint, Checkpoint())
    elif why == "entries are missing":
        noted = Checkpoint(flushed_offset=log.records[DURABLE].offset, queues=2, entries=DURABLE + 1)
        checkpoint_file.write(log.directory.checkpoint, noted)
    elif why == "another queue is damaged":
        queue_file(log, 0, topic="other").write_bytes(bytes(20))
    else:
        shutil.rmtree(log.directory.consumequeue / "topic")
    recovered(log)
    assert queues_of(log) == before


def test_units_behind_entries_without_one_are_not_believed(log: SmallLog) -> None:
    """The extension was switched on after the first entries: their tags codes are plain, no unit is theirs."""
    plain = log.root / "plain" / "consumequeue"
    Dispatcher(log.files, plain, QUEUE_FILE_BYTES).dispatch(0, log.end)
    for topic in ("topic", "other"):
        made = ConsumeQueue(plain / topic / "0", QUEUE_FILE_BYTES)
        held = made.entries(0, DURABLE // 2).tobytes()
        at = queue_file(log, 0, topic=topic)
        at.write_bytes(held + at.read_bytes()[len(held) :])
    shutil.rmtree(plain.parent)
    ext = queue_file(log, EXT_FILE_BYTES, "consumequeue_ext")
    os.truncate(ext, 0)
    recovered(log)
    queue = ConsumeQueue(queue_file(log, 0).parent, QUEUE_FILE_BYTES)
    codes = queue.entries(DURABLE // 2, RECORDS // 2)["tags_code"]
    units = [(number // 4) * EXT_FILE_BYTES + number % 4 * EXT_DTYPE.itemsize for number in range(len(codes))]
    assert [int(code) + (1 << 63) for code in codes] == units
    assert queue.dtype == CQ_DTYPE


def test_a_flushed_entry_whose_unit_is_missing_has_all_built_again(log: SmallLog) -> None:
    before = queues_of(log)
    ext = queue_file(log, 0, "consumequeue_ext")
    ext.write_bytes(ext.read_bytes()[: 2 * 20].ljust(EXT_FILE_BYTES, b"\0"))
    assert "the unit of the last entry before 3 is missing" in " ".join(recovered(log).findings)
    assert queues_of(log) == before
