"""A log is cut where somebody said, its queues and its index with it, and whole after a kill of who cuts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from store.compat import LINES, NEWEST, OLDEST
from store.errors import BitRot, OffsetOutOfRange
from store.files.directory import StoreDirectory
from store.index.service import IndexService
from store.names import COMPACTION, CUT_JOURNAL
from store.notes import flushed_mark
from store.queues.queue_set import QueueKinds
from store.recovery.queues import QueueRecovery
from store.recovery.recovery import Recovered, recover
from store.repair import cut as log_cut
from store.repair.cut import LogCut
from tests.harness import command_line
from tests.harness.logs import QUEUE_FILE_BYTES, SEGMENT_BYTES, SmallLog


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    log = SmallLog(tmp_path)
    while log.end < 2 * SEGMENT_BYTES:
        log.append(body=b"x" * 200, properties={"KEYS": f"k{len(log.records)}"})
    recovered(log)
    flushed_mark.begin(log.directory, log.end)
    return log


def index_of(log: SmallLog) -> IndexService:
    return IndexService(log.directory.index, 10, 100)


def recovered(log: SmallLog) -> Recovered:
    return recover(log.directory, log.segment_bytes, QUEUE_FILE_BYTES, index=index_of(log))


def keys_found(log: SmallLog) -> list[str]:
    asked = ((f"k{number}", record) for number, record in enumerate(log.records))
    return [key for key, record in asked if record.offset in index_of(log).query_offset("topic", key, 9, 0, 1 << 62)]


def check_cut(log: SmallLog, kept: int) -> None:
    end = log.records[kept].offset
    found = recovered(log)
    assert (found.max_physical_offset, found.findings) == (end, [])
    assert found.queue_offsets == {("topic", 0): kept}
    assert keys_found(log) == [f"k{number}" for number in range(kept)]
    for base in log.files.base_offsets():
        start = max(0, end - base)
        assert not any(log.read(base + start, SEGMENT_BYTES - start))
    assert not (log.root / CUT_JOURNAL).exists()
    note = flushed_mark.read(log.directory)
    assert note is not None and note.flushed_offset <= end


@pytest.mark.parametrize("kept", [1, 7])
def test_what_no_replica_has_goes_with_all_behind_it(log: SmallLog, kept: int) -> None:
    log.flip(log.records[kept].offset + 90)
    with pytest.raises(BitRot):
        recovered(log)
    at = log.records[kept].offset
    for arguments, done in ((["--dry-run"], "would go"), ([], "gone")):
        ran = command_line.run("log", "repair", "--cut", at, *arguments, log.root)
        assert ran.exit_code == 0, ran.output
        assert f"{done}: offsets {at} to {log.end}, with {len(log.records) - kept - 1} whole records" in ran.output
    check_cut(log, kept)


def test_an_offset_within_a_record_and_one_outside_are_refused(log: SmallLog) -> None:
    work = LogCut(log.directory, log.files)
    assert work.going(log.records[3].offset + 5) is None
    for offset in (-1, 1 << 40):
        with pytest.raises(OffsetOutOfRange):
            work.going(offset)
    for arguments in (["--cut", str(log.records[3].offset + 5)], [], ["--cut", "0", "--from", str(log.root)]):
        ran = command_line.run("log", "repair", *arguments, log.root)
        assert ran.exit_code == 2 and len(ran.stderr.splitlines()) == 1, ran.output


def test_a_running_brokers_store_is_not_cut(log: SmallLog) -> None:
    other = StoreDirectory(log.root)
    log.directory.lock()
    try:
        log.directory.write_pointer({"pid": 1, "start_time": 1, "boot_id": "x", "region_directory": "", "settings": {}})
        ran = command_line.run("log", "repair", "--cut", log.records[3].offset, other.root)
        assert (ran.exit_code, "STORE_LOCKED" in ran.stderr) == (4, True)
    finally:
        log.directory.remove_pointer()
        log.directory.unlock()


@pytest.mark.parametrize("dies_at", ["forget_in_checkpoint", "zero", "QueueSync", "index_files"])
def test_a_cut_that_was_killed_is_finished(log: SmallLog, monkeypatch: pytest.MonkeyPatch, dies_at: str) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(log_cut, dies_at, die)
        with pytest.raises(KeyboardInterrupt):
            LogCut(log.directory, log.files).cut(log.records[7].offset)
    work = LogCut(log.directory, log.files)
    assert (work.finish(), work.finish()) == (log.records[7].offset, None)
    check_cut(log, 7)


def without_keys(log: SmallLog) -> None:
    """A file of another geometry than RocketMQ's default, and nothing in it that would tell so."""
    for path in index_of(log).files():
        path.unlink()
    index = IndexService(log.directory.index, 10, 100)
    index.delete([])
    index._new_file(None)
    index.close()


def with_damaged_files(log: SmallLog) -> None:
    for path in index_of(log).files():
        path.write_bytes(path.read_bytes()[:-4])


@pytest.mark.parametrize("break_index", [without_keys, with_damaged_files])
def test_a_cut_beside_an_index_that_cannot_be_cut_leaves_a_store_that_starts(
    log: SmallLog, break_index: Callable[[SmallLog], None]
) -> None:
    break_index(log)
    LogCut(log.directory, log.files).cut(log.records[7].offset)
    check_cut(log, 7)


@pytest.mark.parametrize("compat", [OLDEST, NEWEST])
def test_queues_are_cut_by_the_rules_of_the_line_whose_store_it_is(
    log: SmallLog, compat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compat == NEWEST:
        (log.root / COMPACTION).mkdir()  # no broker of 4.9 leaves that
    cut_by = []

    class Seen(QueueRecovery):
        def __init__(self, root: Path, file_bytes: int, kinds: QueueKinds) -> None:
            super().__init__(root, file_bytes, kinds)
            cut_by.append(kinds.rules)

    monkeypatch.setattr(log_cut, "QueueRecovery", Seen)
    LogCut(log.directory, log.files).cut(log.records[7].offset)
    assert cut_by == [LINES[compat].queues]
    check_cut(log, 7)
