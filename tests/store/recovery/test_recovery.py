"""Where a log ends: cut at every byte, rotten, taken over, without queues; and what is written to bring it there."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest

from store.errors import BitRot, MissingSegment, SegmentSizeMismatch
from store.files import checkpoint as checkpoint_file
from store.files import file_io
from store.files.checkpoint import Checkpoint
from store.names import BEGIN
from store.queues.consume_queue import ConsumeQueue
from store.queues.sync import totals
from store.recovery.log_end import Dirty, LogEnd
from store.recovery.recovery import Recovered, Verdict, judge, recover, recover_read_only
from tests.harness.logs import FIRST_STORE_MS, QUEUE_FILE_BYTES, SEGMENT_BYTES, SmallLog, contents

GOLDEN = Path(__file__).parent.parent.parent / "golden"


def recovered(log: SmallLog, **options: bool | int) -> Recovered:
    return recover(log.directory, log.segment_bytes, QUEUE_FILE_BYTES, **options)  # type: ignore[arg-type]


def note_flushed(log: SmallLog, offset: int, stored_ms: int = FIRST_STORE_MS) -> None:
    """The checkpoint of a flusher that had everything below `offset` on disk, queues as they are."""
    held = totals(log.directory.consumequeue, QUEUE_FILE_BYTES, offset)
    made = Checkpoint(stored_ms, stored_ms, flushed_offset=offset, queues=held.queues, entries=held.entries)
    checkpoint_file.write(log.directory.checkpoint, made)


def next_offsets(records: list) -> dict[tuple[str, int], int]:  # type: ignore[type-arg]
    return {(record.topic, record.queue_id): record.queue_offset + 1 for record in records}


@pytest.mark.parametrize(
    "what, found, floor, expected",
    [
        ("zeros behind", LogEnd(100, "f", ""), 100, Verdict.END),
        ("something behind", LogEnd(100, "f", "bad", None, None, [Dirty(0, 100, 120)]), 100, Verdict.TORN),
        ("a sound record behind", LogEnd(100, "f", "bad", 300, None, [Dirty(0, 100, 400)]), 0, Verdict.ROT),
        ("another log's file", LogEnd(0, "f", "bad", None, 4096, [Dirty(0, 0, 400)]), 0, Verdict.ROT),
        ("below what was on disk", LogEnd(100, "f", "bad", None, None, [Dirty(0, 100, 120)]), 101, Verdict.ROT),
        ("zeros below what was on disk", LogEnd(100, "f", ""), 101, Verdict.ROT),
    ],
)
def test_what_lies_behind_the_last_record_tells_end_torn_and_rot_apart(
    what: str, found: LogEnd, floor: int, expected: Verdict
) -> None:
    assert judge(found, floor) is expected, what


@pytest.mark.parametrize("aborted", [False, True])
def test_cut_at_every_byte_of_the_last_two_records(aborted: bool, tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(9)
    recovered(log)
    *kept, before_last, last = log.records
    tail = log.read(before_last.offset, last.end - before_last.offset)
    if aborted:
        log.directory.mark_running()
    for cut_at in range(before_last.offset, last.end + 1):
        log.write(before_last.offset, tail[: cut_at - before_last.offset] + bytes(last.end - cut_at))
        expected = [record for record in log.records if record.end <= cut_at]
        read_only = recover_read_only(log.root)
        found = recovered(log)
        end = expected[-1].end
        assert read_only.max_physical_offset == found.max_physical_offset == found.reput_from_offset == end, cut_at
        assert found.queue_offsets == {**dict.fromkeys(next_offsets(log.records), 0), **next_offsets(expected)}, cut_at
        assert log.read(end, SEGMENT_BYTES - end).strip(b"\0") == b"", cut_at
        assert recovered(log).findings == [], cut_at
        log.write(before_last.offset, tail)
        assert recovered(log).queue_offsets == next_offsets(log.records), cut_at
    assert len(kept) == 7


def test_garbage_at_every_byte_of_the_last_record_is_torn_unless_it_was_on_disk(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(4)
    log.directory.mark_running()
    last = log.records[-1]
    whole = log.read(last.offset, last.size)
    not_checked = [*range(8, 28), *range(36, 84), *range(last.size - 16, last.size)]  # no check covers them
    for at in (at for at in range(last.size) if at not in not_checked):
        log.write(last.offset, whole)
        log.flip(last.offset + at)
        note_flushed(log, last.end)
        with pytest.raises(BitRot, match="was on disk up to"):
            recovered(log)
        note_flushed(log, last.offset)
        found = recovered(log)
        assert (found.max_physical_offset, found.truncated_bytes > 0) == (last.offset, True), at
        assert log.read(last.offset, last.size) == bytes(last.size), at


def test_damage_below_what_was_on_disk_does_not_end_a_log_that_is_read_beyond_rot(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(4)
    last = log.records[-1]
    log.write(last.offset, bytes(last.size))
    note_flushed(log, last.end)
    assert recover_read_only(tmp_path).max_physical_offset == last.offset
    assert recover_read_only(tmp_path, beyond_rot=True).max_physical_offset == last.end


def test_rot_with_a_sound_record_behind_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(6)
    log.directory.mark_running()
    rotten = log.records[3]
    log.flip(rotten.offset + 90)
    before = contents(tmp_path)
    with pytest.raises(BitRot) as error:
        recovered(log)
    assert error.value.offset == rotten.offset
    for part in (
        str(log.files.path_of(0)),
        f"offset {rotten.offset}",
        "CRC",
        f"offset {log.records[4].offset}",
        "replica",
    ):
        assert part in str(error.value)
    read_only = recover_read_only(tmp_path)
    assert read_only.max_physical_offset == rotten.offset
    assert read_only.rot is not None and str(read_only.rot) == str(error.value)
    assert contents(tmp_path) == before


def test_rot_is_found_when_the_sound_record_lies_in_a_later_segment(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    while len(log.files.base_offsets()) < 2 or log.records[-1].offset < SEGMENT_BYTES:
        log.append(body=b"x" * 500)
    last_of_first = log.records[-2]
    log.write(last_of_first.offset, b"\xff" * (SEGMENT_BYTES - last_of_first.offset))
    log.directory.mark_running()
    with pytest.raises(BitRot, match=f"follows at offset {SEGMENT_BYTES}"):
        recovered(log)


def test_a_record_of_another_place_is_not_a_record(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(3)
    first = log.records[0]
    copied = log.append_raw(log.read(first.offset, first.size))
    found = recovered(log)
    assert found.max_physical_offset == copied
    assert "physical offset" in found.findings[0]


def test_without_crc_check_a_wrong_body_passes(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(3)
    log.flip(log.records[-1].offset + 88)
    assert recovered(log, check_crc=False).max_physical_offset == log.end
    assert recovered(log).max_physical_offset == log.records[-1].offset


def test_the_cut_is_on_disk_before_anything_else_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SmallLog(tmp_path)
    log.fill(3)
    recovered(log)
    torn = log.append_raw(b"\xda\xa3" * 700)
    log.files.reserve(SEGMENT_BYTES)
    log.write(SEGMENT_BYTES + 17, b"left over")
    calls: list[str] = []

    def note(name: str) -> None:
        original = getattr(file_io, name)
        monkeypatch.setattr(file_io, name, lambda *args: (calls.append(name), original(*args))[1])

    for name in ("write_at", "sync_data"):
        note(name)
    found = recovered(log)
    assert calls[:4] == ["write_at", "sync_data", "write_at", "sync_data"]
    assert found.max_physical_offset == torn
    assert (
        log.read(torn, SEGMENT_BYTES - torn).strip(b"\0") == log.read(SEGMENT_BYTES, SEGMENT_BYTES).strip(b"\0") == b""
    )
    assert log.files.base_offsets() == [0, SEGMENT_BYTES]


def test_a_failing_disk_during_the_cut_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SmallLog(tmp_path)
    log.fill(1)
    log.append_raw(b"torn")

    def fail(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(file_io, "sync_data", fail)
    with pytest.raises(OSError, match="Input/output"):
        recovered(log)


def test_the_walk_begins_at_the_segment_that_the_checkpoint_names(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    while log.end < 5 * SEGMENT_BYTES:
        log.append(body=b"x" * 300)
    recovered(log)
    everything = len(log.records)
    log.directory.mark_running()
    assert recovered(log).records_walked == everything
    note_flushed(log, log.records[-1].offset)
    tail = sum(record.offset >= log.files.base_of(log.records[-1].offset) for record in log.records)
    assert recovered(log).records_walked == tail < everything


def test_a_rocketmq_checkpoint_names_a_segment_by_time(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    while log.end < 5 * SEGMENT_BYTES:
        log.append(body=b"x" * 300, store_timestamp_ms=FIRST_STORE_MS + 1000 * len(log.records))
    log.directory.mark_running()
    first_of = {log.files.base_of(record.offset): record for record in reversed(log.records)}
    third = first_of[2 * SEGMENT_BYTES]
    stored_ms = FIRST_STORE_MS + 1000 * log.records.index(third)
    for times_ms, base in ((stored_ms + 3000, 2 * SEGMENT_BYTES), (stored_ms + 2999, SEGMENT_BYTES), (1, 0)):
        checkpoint_file.write(log.directory.checkpoint, Checkpoint(times_ms, times_ms))
        assert recovered(log).records_walked == sum(record.offset >= base for record in log.records)


def test_a_log_that_does_not_begin_at_0(tmp_path: Path) -> None:
    log = SmallLog(tmp_path, end=3 * SEGMENT_BYTES)
    for number in range(40):
        log.append(queue_offset=1000 + number)
    found = recovered(log)
    assert (found.min_physical_offset, found.max_physical_offset) == (3 * SEGMENT_BYTES, log.end)
    assert found.queue_offsets == {("topic", 0): 1040}
    assert recovered(log).queue_offsets == found.queue_offsets


def test_reserved_segments_behind_the_end_stay(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(3)
    log.files.reserve(SEGMENT_BYTES)
    log.files.reserve(2 * SEGMENT_BYTES)
    (log.directory.commitlog / f"{3 * SEGMENT_BYTES:020d}.creating").write_bytes(b"half made")
    for aborted in (False, True):
        if aborted:
            log.directory.mark_running()
        found = recovered(log)
        assert found.max_physical_offset == log.end
        assert [one for one in found.findings if "no queues beside a log" not in one] == []
    assert [path.name for path in sorted(log.directory.commitlog.iterdir())] == [
        f"{base:020d}" for base in (0, SEGMENT_BYTES, 2 * SEGMENT_BYTES)
    ]


def test_a_log_that_ends_with_a_blank_record(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    while log.end <= SEGMENT_BYTES:
        log.append(body=b"x" * 300)
    log.files.remove(SEGMENT_BYTES)
    found = recovered(log)
    assert found.max_physical_offset == SEGMENT_BYTES
    assert recovered(log).max_physical_offset == SEGMENT_BYTES


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(100)
    with pytest.raises(SegmentSizeMismatch, match="mappedFileSizeCommitLog"):
        recover(log.directory, 2 * SEGMENT_BYTES, QUEUE_FILE_BYTES)
    log.files.remove(SEGMENT_BYTES)
    with pytest.raises(MissingSegment):
        recovered(log)


def damage_nothing(_log: SmallLog) -> None:
    """For comparison."""


def remove_one(log: SmallLog) -> None:
    shutil.rmtree(log.directory.consumequeue / "topic1" / "1")


def remove_all(log: SmallLog) -> None:
    shutil.rmtree(log.directory.consumequeue)


def lose_the_last_entries(log: SmallLog) -> None:
    ConsumeQueue(log.directory.consumequeue / "topic0" / "0", QUEUE_FILE_BYTES).truncate(9)


def lose_a_page_in_the_middle(log: SmallLog) -> None:
    path = log.directory.consumequeue / "topic0" / "0" / f"{QUEUE_FILE_BYTES:020d}"
    content = path.read_bytes()
    path.write_bytes(content[:40] + bytes(60) + content[100:])


def shorten_a_file(log: SmallLog) -> None:
    path = log.directory.consumequeue / "topic0" / "0" / f"{QUEUE_FILE_BYTES:020d}"
    path.write_bytes(path.read_bytes()[:33])


def remove_a_file_in_the_middle(log: SmallLog) -> None:
    (log.directory.consumequeue / "topic0" / "0" / f"{QUEUE_FILE_BYTES:020d}").unlink()


def point_elsewhere(log: SmallLog) -> None:
    queue = ConsumeQueue(log.directory.consumequeue / "topic0" / "0", QUEUE_FILE_BYTES)
    other = ConsumeQueue(log.directory.consumequeue / "topic1" / "0", QUEUE_FILE_BYTES)
    end = queue.max_offset
    queue.append(end - 1, other.entries(end - 1, end).tobytes())


def add_entries_behind_the_log(log: SmallLog) -> None:
    queue = ConsumeQueue(log.directory.consumequeue / "topic0" / "0", QUEUE_FILE_BYTES)
    entry = queue.entries(0, 1)
    for extra in range(15):
        entry["physical_offset"] = log.end + 100 * extra
        queue.append(queue.max_offset, entry.tobytes())


DAMAGES = [
    damage_nothing, remove_one, remove_all, lose_the_last_entries, lose_a_page_in_the_middle, shorten_a_file,
    remove_a_file_in_the_middle, point_elsewhere, add_entries_behind_the_log,
]  # fmt: skip


@pytest.mark.parametrize("checkpointed", [True, False], ids=["our checkpoint", "no checkpoint"])
@pytest.mark.parametrize("aborted", [False, True], ids=["clean", "aborted"])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_queues_are_brought_to_the_log_whatever_happened_to_them(
    damage: object, aborted: bool, checkpointed: bool, tmp_path: Path
) -> None:
    log = SmallLog(tmp_path)
    log.fill(100)
    recovered(log)
    before = contents(log.directory.consumequeue)
    if checkpointed:
        note_flushed(log, log.records[-3].offset)
    if aborted:
        log.directory.mark_running()
    damage(log)  # type: ignore[operator]
    assert recovered(log).queue_offsets == next_offsets(log.records)
    assert contents(log.directory.consumequeue) == before


def test_only_what_the_queues_lack_is_dispatched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SmallLog(tmp_path)
    log.fill(100)
    recovered(log)
    note_flushed(log, log.end)
    added = [log.append("topic0", queue_id=0) for _ in range(3)]
    written: list[int] = []
    original = ConsumeQueue.append
    monkeypatch.setattr(
        ConsumeQueue, "append", lambda self, at, data: (written.append(len(data) // 20), original(self, at, data))[1]
    )
    recovered(log)
    assert written == [len(added)]


def test_a_checkpoint_is_void_once_rocketmq_wrote_it(tmp_path: Path) -> None:
    log = SmallLog(tmp_path)
    log.fill(20)
    recovered(log)
    note_flushed(log, log.end)
    noted = checkpoint_file.read(log.directory.checkpoint)
    raw = bytearray(log.directory.checkpoint.read_bytes())
    raw[0:8] = (FIRST_STORE_MS + 5).to_bytes(8, "big")
    log.directory.checkpoint.write_bytes(raw)
    assert checkpoint_file.read(log.directory.checkpoint) == noted._replace(
        physic_msg_timestamp_ms=FIRST_STORE_MS + 5, flushed_offset=None, queues=0, entries=0
    )
    log.write(log.records[-1].offset, bytes(log.records[-1].size))
    assert recovered(log).max_physical_offset == log.records[-1].offset


@pytest.mark.parametrize("aborted", [False, True])
@pytest.mark.parametrize("version, end", [("rocketmq-4.9.7", 803932), ("rocketmq-5.3.3", 936619)])
def test_a_real_store_is_taken_over_as_it_is(version: str, end: int, aborted: bool, tmp_path: Path) -> None:
    with tarfile.open(GOLDEN / version / "master-store.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    log = SmallLog(tmp_path / "store", segment_bytes=262144)
    before = contents(log.root)
    if aborted:
        log.directory.mark_running()
    assert recover_read_only(log.root).max_physical_offset == end
    found = recover(log.directory, 262144, 4000)
    assert (found.max_physical_offset, found.findings) == (end, [])
    log.directory.abort.unlink(missing_ok=True)
    (log.root / BEGIN).unlink()  # Slipstream's own note, beside RocketMQ's files
    assert contents(log.root) == before
