"""Records that an earlier use of the bytes left behind: not the log's, and no proof that it is damaged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from store.errors import BitRot, NotOnDisk
from store.files import file_io
from store.notes import flushed_mark
from store.notes.flushed_mark import FlushedMark
from store.recovery import last_run, recovery
from store.recovery.recovery import Recovered, recover, recover_read_only
from tests.harness.logs import FIRST_STORE_MS, QUEUE_FILE_BYTES, SEGMENT_BYTES, SmallLog, contents

LATER_MS = FIRST_STORE_MS + 1_000_000


def recovered(log: SmallLog) -> Recovered:
    return recover(log.directory, log.segment_bytes, QUEUE_FILE_BYTES)


def cut_and_go_on(log: SmallLog, kept: int, new: int, stored_ms: int) -> None:
    """What RocketMQ does after a crash: the end goes back to record `kept`, the bytes stay; then `new` more records."""
    recovered(log)
    at = log.records[kept]
    dropped = log.records[kept:]
    del log.records[kept:]
    log.end = at.offset
    for record in dropped:
        key = record.topic, record.queue_id
        log.next_offsets[key] = min(log.next_offsets[key], record.queue_offset)
    for number in range(new):
        was = dropped[number]
        log.append(
            was.topic,
            b"body %d" % (kept + number),
            queue_id=was.queue_id,
            store_timestamp_ms=stored_ms + number,
            properties={"TAGS": f"t{kept + number}"},
        )


@pytest.mark.parametrize("aborted", [False, True])
@pytest.mark.parametrize("queues", ["kept", "removed"])
def test_records_left_over_right_at_the_end_are_not_the_logs(aborted: bool, queues: str, tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(12)
    cut_and_go_on(log, 6, 3, LATER_MS)  # as long as what was there: an old record begins right at the new end
    # An old record of each queue would go on where the queue is now, had it not been used by a newer one.
    old = replace(log.records[5], queue_offset=0)
    log.write(log.end, _record(log, old, FIRST_STORE_MS))
    if queues == "removed":
        for path in sorted(log.directory.consumequeue.rglob("0" * 20)):
            path.unlink()
    if aborted:
        log.directory.mark_running()
    before = contents(tmp_path)
    assert recover_read_only(log.directory).max_physical_offset == log.end
    assert contents(tmp_path) == before
    found = recovered(log)
    assert found.max_physical_offset == log.end
    assert any("is from an older log" in finding for finding in found.findings)
    assert set(log.read(log.end, SEGMENT_BYTES - log.end)) == {0}, "the rest is cut off on disk"
    assert recovered(log).findings == []


def _record(log: SmallLog, like: Any, stored_ms: int) -> bytes:
    scratch = SmallLog(log.root / "scratch")
    scratch.end = log.end
    scratch.append(
        like.topic,
        b"an older body",
        queue_id=like.queue_id,
        queue_offset=like.queue_offset,
        store_timestamp_ms=stored_ms,
    )
    return scratch.read(log.end, scratch.end - log.end)


@pytest.mark.parametrize("what", ["clock set back", "queue begun again"])
def test_either_sign_alone_is_a_sound_log(what: str, tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(8)
    if what == "clock set back":
        log.append("topic0", b"later, but dated earlier", store_timestamp_ms=FIRST_STORE_MS - 5)
    else:
        log.append("topic0", b"another life of the queue", queue_offset=0, store_timestamp_ms=LATER_MS)
    found = recovered(log)
    assert found.max_physical_offset == log.end


def test_left_over_records_behind_a_torn_one_are_no_proof_of_rot(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(14)
    cut_and_go_on(log, 4, 4, LATER_MS)
    log.write(log.end, b"\xff" * 30)  # the record that was being written when the power went
    log.directory.mark_running()
    assert recovered(log).max_physical_offset == log.end


def test_newer_records_behind_a_damaged_one_prove_rot(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(14)
    recovered(log)
    log.flip(log.records[7].offset + 90)
    with pytest.raises(BitRot, match=str(log.records[8].offset)):
        recovered(log)


def test_after_a_crash_the_disk_is_asked_not_the_page_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SmallLog(tmp_path)
    log.fill(60)
    recovered(log)
    calls: list[tuple[str, int]] = []
    for name in ("sync_data", "drop_cached"):
        original = getattr(file_io, name)

        def noted(*args: int, name: str = name, original: object = original) -> None:
            calls.append((name, args[0]))
            original(*args)  # type: ignore[operator]

        monkeypatch.setattr(file_io, name, noted)
    recovered(log)
    assert not [call for call in calls if call[0] == "drop_cached"], "not after an orderly stop"
    calls.clear()
    log.directory.mark_running()
    recovered(log)
    segments = len(log.files.base_offsets())
    assert [name for name, _ in calls[: 2 * segments]] == ["sync_data", "drop_cached"] * segments

    def fail(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(file_io, "sync_data", fail)
    before = contents(tmp_path)
    with pytest.raises(NotOnDisk, match="Input/output error"):
        recovered(log)
    assert contents(tmp_path) == before


def test_pages_that_the_kernel_silently_lost_count_as_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SmallLog(tmp_path)
    log.fill(60)
    recovered(log)
    log.directory.mark_running()
    original, told = file_io.sync_data, []

    def fail_once(fd: int) -> None:
        if not told:
            told.append(fd)
            raise OSError(5, "Input/output error")
        original(fd)

    monkeypatch.setattr(file_io, "sync_data", fail_once)
    synced: list[str] = []
    monkeypatch.setattr(recovery, "hear_failures", lambda directory: synced.append(str(directory.root)))
    assert recovered(log).max_physical_offset == log.end
    assert synced == [str(log.directory.root)]


def test_a_run_whose_disk_failed_is_believed_no_page_above_its_mark(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(10)
    flushed_mark.begin(log.directory, log.records[5].offset)
    mark = FlushedMark(log.directory)
    mark.disown(log.records[5].offset)
    mark.close()
    last = last_run.read(log.directory)
    assert (last.same_boot, last.power_cut, last.disk_failed) == (False, True, True)
    assert last.flushed_offset == log.records[5].offset
