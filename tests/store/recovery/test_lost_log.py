"""A log whose files are not there, though the store tells of them, is no new log: nothing is begun, nothing deleted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import store_opening
from engine.settings.config import from_mapping
from store.files import checkpoint as checkpoint_file
from store.files.checkpoint import Checkpoint
from store.files.directory import StoreDirectory
from store.index.service import IndexService
from store.names import BEGIN, CUT_JOURNAL
from store.notes import epochs, flushed_mark, log_begin
from store.notes.epochs import Epochs
from store.reading.log_reader import open_log
from store.recovery.lost_log import LogMissing
from store.recovery.recovery import recover
from store.verify.verification import Verification
from tests.harness.command_line import run
from tests.harness.dispatched import ENTRIES_MAX, SLOTS, content, small_store
from tests.harness.logs import QUEUE_FILE_BYTES, SEGMENT_BYTES, SmallLog


def new_store(root: Path) -> SmallLog:
    log = SmallLog(root)
    log.directory.index.mkdir()
    return log


def with_checkpoint(root: Path) -> None:
    checkpoint_file.write(new_store(root).directory.checkpoint, Checkpoint(flushed_offset=100))


def with_a_checkpoint_of_rocketmq(root: Path) -> None:
    checkpoint_file.write(new_store(root).directory.checkpoint, Checkpoint(1_700_000_000_000, 1_700_000_000_000))


def with_mark(root: Path) -> None:
    flushed_mark.begin(new_store(root).directory, 100)


def with_epochs(root: Path) -> None:
    epochs.write(new_store(root).root, Epochs().promoted("b:0", 100, 1))


def without(root: Path, *names: str) -> None:
    log = small_store(root)
    shutil.rmtree(log.directory.commitlog)
    log.directory.commitlog.mkdir()
    for name in names:
        shutil.rmtree(root / name)


def with_queues(root: Path) -> None:
    without(root, "index")


def with_index(root: Path) -> None:
    without(root, "consumequeue")


def without_its_first_files(root: Path) -> None:
    """The allocator's next segment is there, on another disk for example."""
    log = small_store(root)
    flushed_mark.begin(log.directory, log.end)
    last = log.files.base_offsets()[-1]
    shutil.rmtree(log.directory.commitlog)
    log.files.reserve(last + SEGMENT_BYTES)


SIGNS = [
    with_checkpoint, with_a_checkpoint_of_rocketmq, with_mark, with_epochs, with_queues, with_index,
    without_its_first_files,
]  # fmt: skip


def start(root: Path) -> int:
    """What a broker does with a store first; where its log ends."""
    directory = StoreDirectory(root)
    directory.create()
    config = from_mapping({"storePathRootDir": root, "mappedFileSizeCommitLog": SEGMENT_BYTES})
    store_opening.finish_interrupted(config, directory)
    index = IndexService(directory.index, SLOTS, ENTRIES_MAX)
    return recover(directory, SEGMENT_BYTES, QUEUE_FILE_BYTES, index=index).max_physical_offset


@pytest.mark.parametrize("sign", SIGNS)
def test_a_log_that_is_not_there_is_not_begun_anew(tmp_path: Path, sign: Callable[[Path], None]) -> None:
    root = tmp_path / "store"
    sign(root)
    (root / CUT_JOURNAL).write_bytes(b"of the log that is not there")
    before = content(root)
    with pytest.raises(LogMissing, match=f"Is the disk mounted.*log repair --forget-missing {root}"):
        start(root)
    with pytest.raises(LogMissing):
        open_log(root)
    assert [one.code for one in Verification(root).findings()].count("LOG_MISSING") == 1
    assert run("log", "verify", root).exit_code == 1
    assert content(root) == before


def test_a_directory_that_is_not_there_is_as_an_empty_one(tmp_path: Path) -> None:
    without(tmp_path / "store")
    shutil.rmtree(tmp_path / "store" / "commitlog")
    with pytest.raises(LogMissing):
        start(tmp_path / "store")


@pytest.mark.parametrize("sign", SIGNS)
def test_a_lost_log_is_given_up_by_a_command_and_by_that_only(tmp_path: Path, sign: Callable[[Path], None]) -> None:
    root = tmp_path / "store"
    sign(root)
    before = content(root)
    assert run("log", "repair", "--forget-missing", "--dry-run", root).exit_code == 0
    assert content(root) == before
    ran = run("log", "repair", "--forget-missing", root)
    assert ran.exit_code == 0 and "given up" in ran.output, ran.output
    assert start(root) == (before and max(new_offsets(root), default=0))
    assert run("log", "verify", root).exit_code == 0
    again = run("log", "repair", "--forget-missing", root)
    assert (again.exit_code, "nothing was changed" in again.stderr) == (2, True)


def test_a_log_that_lost_its_oldest_files_is_no_log_whose_files_expired(tmp_path: Path) -> None:
    log = small_store(tmp_path / "store")
    assert start(log.root) == log.end
    flushed_mark.begin(log.directory, log.end)
    log_begin.note(log.root, SEGMENT_BYTES)  # as the housekeeper before it deletes the first one
    assert start(log.root) == log.end, "it was killed in between"
    log_begin.note(log.root, SEGMENT_BYTES)
    log.files.remove(0)
    assert start(log.root) == log.end
    log.files.remove(SEGMENT_BYTES)
    with pytest.raises(LogMissing, match=f"begins at offset {2 * SEGMENT_BYTES}, but it began at {SEGMENT_BYTES}"):
        start(log.root)
    copied = shutil.copytree(log.root, tmp_path / "copy")
    assert start(copied) == log.end, "a copy of what is left is a store"
    checkpoint_file.write(log.directory.checkpoint, Checkpoint(1_700_000_000_000, 1_700_000_000_000))
    assert start(log.root) == log.end, "RocketMQ ran there since, and may have deleted it"


def test_rocketmq_may_have_deleted_all_that_our_broker_flushed(tmp_path: Path) -> None:
    log = small_store(tmp_path / "store")
    assert start(log.root) == log.end
    flushed_mark.begin(log.directory, SEGMENT_BYTES // 2)
    log.files.remove(0)
    with pytest.raises(LogMissing, match=f"it was on disk up to offset {SEGMENT_BYTES // 2} before"):
        start(log.root)
    checkpoint_file.write(log.directory.checkpoint, Checkpoint(1_700_000_000_000, 1_700_000_000_000))
    assert start(log.root) == log.end
    shutil.rmtree(log.directory.commitlog)
    with pytest.raises(LogMissing, match="it has no files"):
        start(log.root)


def test_oldest_files_are_given_up_by_a_command(tmp_path: Path) -> None:
    log = small_store(tmp_path / "store")
    assert start(log.root) == log.end
    flushed_mark.begin(log.directory, log.end)
    log.files.remove(0)
    with pytest.raises(LogMissing):
        start(log.root)
    ran = run("log", "repair", "--forget-missing", log.root)
    assert ran.exit_code == 0 and "given up, and 1 files" in ran.output, ran.output
    assert not (log.root / BEGIN).exists() and log.directory.mark.exists(), "all else is known as before"
    assert start(log.root) == log.end


def new_offsets(root: Path) -> list[int]:
    return [int(path.name) for path in (root / "commitlog").iterdir()]


def test_new_stores_and_copies_of_a_log_alone_start(tmp_path: Path) -> None:
    assert start(tmp_path / "new") == 0
    flushed_mark.begin(StoreDirectory(tmp_path / "new"), 0)
    checkpoint_file.write(tmp_path / "new" / "checkpoint", Checkpoint(flushed_offset=0))
    (tmp_path / "new" / "consumequeue" / "topic" / "0").mkdir(parents=True)
    assert start(tmp_path / "new") == 0
    log = small_store(tmp_path / "log alone")
    for directory in (log.directory.consumequeue, log.directory.index):
        shutil.rmtree(directory)
    assert start(log.root) == log.end


def test_queues_and_index_that_are_not_there_are_built_again(tmp_path: Path) -> None:
    """Their disk is not mounted, say: they are functions of the log."""
    log = small_store(tmp_path / "store")
    before = content(log.root, "consumequeue")
    checkpoint_file.write(log.directory.checkpoint, Checkpoint(1, 1, 1, flushed_offset=log.end, queues=6, entries=60))
    for directory in (log.directory.consumequeue, log.directory.index):
        shutil.rmtree(directory)
        directory.mkdir()
    index = IndexService(log.directory.index, SLOTS, ENTRIES_MAX)
    recovered = recover(StoreDirectory(log.root), SEGMENT_BYTES, QUEUE_FILE_BYTES, index=index)
    assert recovered.max_physical_offset == log.end
    assert [one for one in recovered.findings if "no queues beside a log of messages" in one]
    assert content(log.root, "consumequeue") == before
    assert run("log", "verify", log.root).exit_code == 0
