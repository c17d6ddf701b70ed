"""A journal of an interrupted change is finished over the log it was made for only: what was appended since stays."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from store.names import CUT_JOURNAL, REPAIR_JOURNAL, REWIND_JOURNAL
from store.notes import divergence, flushed_mark
from store.notes.divergence import Divergence
from store.reading.log_reader import open_log
from store.recovery.recovery import recover
from store.repair import interrupted
from store.repair.cut import LogCut
from store.repair.interrupted import Finished
from store.repair.repair import Repair
from store.repair.rewind import Rewind
from store.verify.verification import Verification
from tests.harness.dispatched import content, copy_of, small_store
from tests.harness.dying import DIED, ends_at_call
from tests.harness.logs import QUEUE_FILE_BYTES, SEGMENT_BYTES, SmallLog

CUT_AT = 20
CALLS = ("write_at", "truncate", "sync_data", "sync_file", "sync_directory", "rename", "unlink", "reserve")
JOURNALS = (CUT_JOURNAL, REWIND_JOURNAL, REPAIR_JOURNAL)


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    log = small_store(tmp_path / "store")
    flushed_mark.begin(log.directory, log.end)
    divergence.write(log.root, Divergence(log.records[CUT_AT].offset, log.end, "127.0.0.1:1", "", "00", "01", 1))
    return log


def cut(log: SmallLog) -> None:
    LogCut(log.directory, log.files).cut(log.records[CUT_AT].offset)


def rewind(log: SmallLog) -> None:
    Rewind(log.directory, log.files).to(log.records[CUT_AT].offset)


def repair(log: SmallLog) -> None:
    other = open_log(log.root.parent / "other")
    list(Repair(log.directory, log.files, other).run(dry_run=False, on_progress=lambda _done, _total: None))


def copy_killed_at(log: SmallLog, root: Path, change: Callable[[SmallLog], None], deadly: int) -> SmallLog | None:
    """A copy whose change was killed before that call; None when it came to its end."""
    one = SmallLog(copy_of(log, root), records=list(log.records))
    return one if ends_at_call(lambda: change(one), CALLS, deadly) == DIED else None


def append(log: SmallLog, end: int) -> dict[int, bytes]:
    """Records of a broker that found the log to end there; their bytes by offset."""
    log.end, log.records, log.next_offsets = end, [], {}
    for number in range(30):
        log.append("new", b"acknowledged %d" % number, store_timestamp_ms=1_800_000_000_000 + number)
    return {record.offset: log.read(record.offset, record.size) for record in log.records}


def has_journal(log: SmallLog) -> bool:
    return any((log.root / name).exists() for name in JOURNALS)


@pytest.mark.parametrize(("change", "step"), [(cut, 1), (rewind, 3)])
def test_a_change_killed_at_any_call_keeps_what_was_appended_since(
    log: SmallLog, tmp_path: Path, change: Callable[[SmallLog], None], step: int
) -> None:
    whole = {record.offset: log.read(record.offset, record.size) for record in log.records}
    with_journal = appended_in_place = 0
    for deadly in range(1, 1000, step):
        one = copy_killed_at(log, tmp_path / f"at {deadly}", change, deadly)
        if one is None:
            break
        sound = [record for record in one.records if one.read(record.offset, record.size) == whole[record.offset]]
        first_hole = next((record.offset for record in one.records if record not in sound), log.end)
        began_with = [name for name in JOURNALS if (one.root / name).exists()]
        added = append(one, first_hole)
        before = content(one.root, "commitlog")
        assert interrupted.finish(one.directory, one.files) == Finished()
        assert content(one.root, "commitlog") == before, deadly
        assert all(one.read(offset, len(data)) == data for offset, data in added.items())
        assert not has_journal(one)
        assert [name for name in JOURNALS if (one.root / f"{name}.aside").exists()] == began_with
        with_journal, appended_in_place = with_journal + bool(began_with), appended_in_place + (first_hole < log.end)
        shutil.rmtree(one.root)
    assert with_journal > 10 and appended_in_place > 5, (with_journal, appended_in_place)


def test_an_interrupted_repair_keeps_what_was_written_there_since(
    log: SmallLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy_of(log, tmp_path / "other")
    damaged, behind = log.records[CUT_AT], log.records[CUT_AT + 1].offset
    log.flip(damaged.offset + 90)
    begun = 0
    for deadly in range(1, 100):
        one = copy_killed_at(log, tmp_path / f"at {deadly}", repair, deadly)
        if one is None:
            break
        if has_journal(one):
            begun += 1
            again = SmallLog(copy_of(one, tmp_path / "again"))
            done = interrupted.finish(again.directory, again.files)
            assert done.repaired is not None and (done.repaired.start, done.repaired.end) == (damaged.offset, behind)
            assert list(Verification(again.root).findings()) == []
            shutil.rmtree(again.root)
            append(one, damaged.offset)
            before = content(one.root, "commitlog")
            assert interrupted.finish(one.directory, one.files) == Finished()
            assert content(one.root, "commitlog") == before
            assert (one.root / f"{REPAIR_JOURNAL}.aside").exists()
        shutil.rmtree(one.root)
    assert begun >= 3
    assert "cannot be finished" in caplog.text


def test_a_repair_of_lost_pages_is_not_finished_over_a_log_that_was_cut_below_them(
    log: SmallLog, tmp_path: Path
) -> None:
    """The range looks as it did when the repair began, all zeros; but the log ends before it now."""
    copy_of(log, tmp_path / "other")
    lost = log.records[CUT_AT + 5]
    log.write(lost.offset, bytes(lost.size))
    deadly, one = 0, None
    while one is None or not has_journal(one):
        deadly += 1
        one = copy_killed_at(log, tmp_path / f"at {deadly}", repair, deadly)
        assert one is not None
    LogCut(one.directory, one.files).cut(log.records[CUT_AT].offset)
    before = content(one.root, "commitlog")
    assert interrupted.finish(one.directory, one.files) == Finished()
    assert content(one.root, "commitlog") == before


def grown(log: SmallLog) -> None:
    """In a segment that the change did not know."""
    log.end = log.files.base_offsets()[-1] + SEGMENT_BYTES
    log.append("new", b"in a new segment")


def expired(log: SmallLog) -> None:
    log.files.path_of(0).unlink()


def replaced(log: SmallLog) -> None:
    """By a log with other records before the cut."""
    log.write(log.records[CUT_AT - 1].offset + 90, b"other")


@pytest.mark.parametrize("since", [grown, expired, replaced])
def test_a_journal_of_another_state_of_the_log_is_set_aside(
    log: SmallLog, monkeypatch: pytest.MonkeyPatch, since: Callable[[SmallLog], None]
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("store.repair.cut.forget_in_checkpoint", die)
        with pytest.raises(KeyboardInterrupt):
            cut(log)
    since(log)
    before = content(log.root, "commitlog")
    assert LogCut(log.directory, log.files).finish() is None
    assert content(log.root, "commitlog") == before
    assert (log.root / f"{CUT_JOURNAL}.aside").exists()


@pytest.mark.parametrize("name", JOURNALS)
@pytest.mark.parametrize("said", [b"", b"{", b"SLIPCUT1" + bytes(12), bytes(200)])
def test_a_journal_that_says_nothing_is_set_aside_each_under_a_name_of_its_own(
    log: SmallLog, caplog: pytest.LogCaptureFixture, name: str, said: bytes
) -> None:
    before = content(log.root, "commitlog", "consumequeue", "index")
    for aside in (f"{name}.aside", f"{name}.aside-2"):
        (log.root / name).write_bytes(said)
        with caplog.at_level(logging.WARNING):
            assert interrupted.finish(log.directory, log.files) == Finished()
        assert (log.root / aside).read_bytes() == said
        assert aside in caplog.text
    assert content(log.root, "commitlog", "consumequeue", "index") == before
    assert recover(log.directory, log.segment_bytes, QUEUE_FILE_BYTES).max_physical_offset == log.end
