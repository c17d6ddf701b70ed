"""Queues whose last records expired with their segments: which number comes next is kept, however a broker ended."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from store.files import checkpoint as checkpoint_file
from store.files import file_io
from store.files.checkpoint import Checkpoint
from store.files.segment import file_name
from store.message.record import SysFlag
from store.notes import flushed_mark
from store.queues.consume_queue import ConsumeQueue
from store.queues.queue_set import QueueKinds
from store.queues.sync import totals
from store.recovery.dispatch import Dispatcher
from store.recovery.recovery import Recovered, recover
from store.repair.rebuild import rebuild_queues
from tests.harness.dying import ends_at_call
from tests.harness.logs import QUEUE_FILE_BYTES, SmallLog, contents

KINDS = QueueKinds(ext_file_bytes=100, batch_file_bytes=46 * 8)
RESTING = ("topic", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "last")
BUSY, BATCHES = "busy", "batches"  # both kinds go on behind the expired segments
RESTING_BATCHES = "resting batches"
BOOT_BEFORE = bytes(range(16))
CALLS = ("unlink", "clear", "create_sparse", "write_at", "sync_data", "map_file")


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    """A store whose oldest segments have expired, and with them all records of some queues; all is flushed."""
    log, ends = SmallLog(tmp_path / "store"), dict.fromkeys((BATCHES, RESTING_BATCHES), 0)

    def append_batch(topic: str) -> None:
        inner = {"INNER_NUM": "3", "INNER_BASE": str(ends[topic])}
        log.append(topic, properties=inner, queue_offset=ends[topic], sys_flag=int(SysFlag.INNER_BATCH))
        ends[topic] += 3
        log.next_offsets[topic, 0] = ends[topic]

    for number in range(25):
        for topic in (*RESTING, BUSY) if number < 10 else ("topic", BUSY):
            log.append(topic, properties={"TAGS": f"t{number}"})
        append_batch(RESTING_BATCHES)
        append_batch(BATCHES)
    expired = log.files.base_of(log.end) + log.segment_bytes
    while log.end < expired + 2 * log.segment_bytes:
        log.append(BUSY)
        append_batch(BATCHES)
    for topic in (BATCHES, RESTING_BATCHES):
        (log.root / "batchconsumequeue" / topic / "0").mkdir(parents=True)
    Dispatcher(log.files, log.directory.consumequeue, QUEUE_FILE_BYTES, kinds=KINDS).dispatch(0, log.end)
    note_flushed(log)
    for base in log.files.base_offsets():
        if base < expired:
            log.files.remove(base)
    (log.directory.consumequeue / "topic" / "0" / file_name(0)).unlink()  # retention leaves a queue its last files
    return log


def note_flushed(log: SmallLog, *, more: int = 0) -> None:
    held = totals(log.directory.consumequeue, QUEUE_FILE_BYTES, log.end)
    made = Checkpoint(flushed_offset=log.end, queues=held.queues, entries=held.entries + more)
    checkpoint_file.write(log.directory.checkpoint, made)


def stop(log: SmallLog) -> None:
    flushed_mark.begin(log.directory, log.end)


def kill(log: SmallLog) -> None:
    stop(log)
    log.directory.mark_running()


def cut_the_power(log: SmallLog) -> None:
    kill(log)
    note = flushed_mark.read(log.directory)
    assert note is not None
    page = flushed_mark.encode(note._replace(boot=BOOT_BEFORE)).ljust(4096, b"\0")
    log.directory.mark.write_bytes(page * flushed_mark.PAGES)


def miscount(log: SmallLog) -> None:
    note_flushed(log, more=1)


def lose_a_queue(log: SmallLog) -> None:
    shutil.rmtree(log.directory.consumequeue / BUSY)


def name_another_record(log: SmallLog) -> None:
    queue = ConsumeQueue(log.directory.consumequeue / BUSY / "0", QUEUE_FILE_BYTES)
    end = queue.max_offset
    queue.append(end - 1, queue.entries(end - 2, end - 1).tobytes())


def point_below_the_log(log: SmallLog) -> None:
    """What lies below ends too late, then."""
    queue = ConsumeQueue(log.directory.consumequeue / BUSY / "0", QUEUE_FILE_BYTES)
    queue.append(queue.max_offset - 6, queue.entries(0, 6).tobytes())


def shorten_a_file(log: SmallLog) -> None:
    path = log.directory.consumequeue / BUSY / "0" / file_name(0)
    path.write_bytes(path.read_bytes()[:33])


def recovered(log: SmallLog, file_bytes: int = QUEUE_FILE_BYTES) -> Recovered:
    return recover(log.directory, log.segment_bytes, file_bytes, kinds=KINDS)


def resting(log: SmallLog) -> dict[str, bytes]:
    return {
        name: content
        for name, content in contents(log.root).items()
        if "consumequeue" in name and BUSY not in name and f"/{BATCHES}/" not in name
    }


@pytest.mark.parametrize("is_noted", [True, False], ids=["our checkpoint", "no checkpoint"])
@pytest.mark.parametrize("end", [stop, kill, cut_the_power])
def test_resting_queues_stay_as_they_are(log: SmallLog, end: Callable[[SmallLog], None], is_noted: bool) -> None:
    if not is_noted:
        checkpoint_file.write(log.directory.checkpoint, Checkpoint())
    end(log)
    before = contents(log.root / "consumequeue")
    found = recovered(log)
    assert (found.queue_offsets, found.findings) == (log.next_offsets, [])
    assert contents(log.root / "consumequeue") == before


@pytest.mark.parametrize(
    "damage, end",
    [
        *((damage, end) for damage in (miscount, lose_a_queue, shorten_a_file) for end in (stop, kill, cut_the_power)),
        *((damage, end) for damage in (name_another_record, point_below_the_log) for end in (stop, kill)),
    ],
)
def test_resting_queues_stay_where_all_others_are_built_again(
    log: SmallLog, damage: Callable[[SmallLog], None], end: Callable[[SmallLog], None]
) -> None:
    before = resting(log)
    damage(log)
    end(log)
    found = recovered(log)
    assert "consume queues are rebuilt from the log" in " ".join(found.findings)
    assert found.queue_offsets == log.next_offsets
    assert resting(log) == before
    begin = log.files.base_offsets()[0]
    queue = ConsumeQueue(log.directory.consumequeue / BUSY / "0", QUEUE_FILE_BYTES)
    told = [int(offset) for offset in queue.entries(0, queue.max_offset)["physical_offset"] if offset >= begin]
    assert told == [record.offset for record in log.records if record.topic == BUSY and record.offset >= begin]
    note_flushed(log)
    assert recovered(log).findings == [], "the next start is a usual one"


@pytest.mark.parametrize("end", [stop, kill])
def test_a_damaged_entry_that_nobody_can_compare_takes_no_number(
    log: SmallLog, end: Callable[[SmallLog], None]
) -> None:
    queue = ConsumeQueue(log.directory.consumequeue / "topic" / "0", QUEUE_FILE_BYTES)
    queue.append(23, queue.entries(11, 12).tobytes())
    end(log)
    found = recovered(log)
    assert found.queue_offsets == log.next_offsets
    assert "entry 23 is damaged" in " ".join(found.findings)
    note_flushed(log)
    assert (recovered(log).findings, recovered(log).queue_offsets) == ([], log.next_offsets)


@pytest.mark.parametrize("file_bytes", [100, 140, 4000])
@pytest.mark.parametrize("end", [stop, cut_the_power])
def test_resting_queues_keep_their_numbers_in_files_of_another_length(
    log: SmallLog, end: Callable[[SmallLog], None], file_bytes: int
) -> None:
    end(log)
    for deadly in range(1, 1000, 5):
        code = ends_at_call(lambda: recovered(log, file_bytes), (*CALLS, "exchange", "remove_tree"), deadly)
        assert code in (0, 9)
        if code == 0:
            break
    found = recovered(log, file_bytes)
    assert found.queue_offsets == log.next_offsets
    held = totals(log.directory.consumequeue, file_bytes, log.end)
    noted = Checkpoint(flushed_offset=log.end, queues=held.queues, entries=held.entries)
    checkpoint_file.write(log.directory.checkpoint, noted)
    again = recovered(log, file_bytes)
    assert (again.queue_offsets, again.findings) == (log.next_offsets, [])
    assert {path.name for path in (log.directory.consumequeue).glob("*/*")} == {"0"}
    assert not list(log.root.glob("*.refitted"))


def test_resting_queues_keep_their_numbers_where_names_cannot_be_exchanged(
    log: SmallLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_one: Path, _other: Path) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(file_io, "exchange", refuse)
    stop(log)
    assert recovered(log, 4000).queue_offsets == log.next_offsets
    assert not list(log.root.glob("*.refitted"))


@pytest.mark.parametrize("end", [kill, cut_the_power])
def test_a_recovery_that_is_killed_anywhere_takes_no_number(log: SmallLog, end: Callable[[SmallLog], None]) -> None:
    miscount(log)
    end(log)
    for deadly in range(1, 400):
        code = ends_at_call(lambda: recovered(log), CALLS, deadly)
        assert code in (0, 9)
        held = {(topic, 0): number for topic, number in resting_ends(log).items()}
        assert held == {name: log.next_offsets[name] for name in held}, deadly
        if code == 0:
            break
    else:
        pytest.fail("it never came to its end")
    assert deadly > 8
    assert recovered(log).queue_offsets == log.next_offsets


def resting_ends(log: SmallLog) -> dict[str, int]:
    root = log.directory.consumequeue
    return {topic: ConsumeQueue(root / topic / "0", QUEUE_FILE_BYTES).max_offset for topic in RESTING}


def test_a_start_keeps_what_the_tool_kept(log: SmallLog) -> None:
    done = rebuild_queues(log.directory, lambda _done, _total: None, file_bytes=QUEUE_FILE_BYTES)
    assert set(done.kept) == {f"{topic}/0" for topic in (*RESTING, RESTING_BATCHES)}
    stop(log)
    found = recovered(log)
    assert (found.queue_offsets, found.findings) == (log.next_offsets, [])
