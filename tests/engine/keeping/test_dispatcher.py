"""The dispatcher, stepped by hand: it follows the log, restarts from its cursor, waits for whole records."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from engine.keeping.dispatch_kernel import Pace
from engine.keeping.dispatcher import Dispatcher, open_role
from engine.settings.config import from_mapping
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.queue_ends import QueueEnds
from engine.shared_memory.topic_table import TopicTable
from ipc import waiting
from ipc.compiled.atomics import Followed
from store.errors import CorruptRecord
from store.queues.consume_queue import ConsumeQueue
from store.recovery import dispatch
from tests.harness.logs import QUEUE_FILE_BYTES, SEGMENT_BYTES, SmallLog, contents

NOW = 1_000_000
MINUTE_NS = 60_000_000_000


@pytest.fixture
def counters(tmp_path: Path) -> BrokerCounters:
    return BrokerCounters.create(tmp_path / "counters")


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    return SmallLog(tmp_path / "store")


def role(log: SmallLog, counters: BrokerCounters) -> Dispatcher:
    return Dispatcher(counters, dispatch.Dispatcher(log.files, log.directory.consumequeue, QUEUE_FILE_BYTES))


def entries(log: SmallLog, topic: str, queue_id: int) -> int:
    return ConsumeQueue(log.directory.consumequeue / topic / str(queue_id), QUEUE_FILE_BYTES).max_offset


def turns(dispatcher: Dispatcher) -> int:
    moved = 0
    while now := dispatcher.do_work(NOW):
        moved += now
    return moved


def test_the_dispatcher_follows_the_log(log: SmallLog, counters: BrokerCounters) -> None:
    dispatcher = role(log, counters)
    assert dispatcher.do_work(NOW) == 0
    for count in (1, 50, 3):
        log.fill(count, topics=1, queues=1)
        waiting.publish(counters.max_physical_offset, log.end)
        before = counters.reput_from_offset.read()
        assert turns(dispatcher) == log.end - before
        assert counters.reput_from_offset.read() == log.end
        assert entries(log, "topic0", 0) == len(log.records)
    dispatcher.close()


def test_a_restart_at_any_cursor_gives_the_same_queues(
    log: SmallLog, counters: BrokerCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "BATCH_ROWS", 7)  # so that it can die between many batches
    log.fill(60)
    waiting.publish(counters.max_physical_offset, log.end)
    whole = dispatch.Dispatcher(log.files, log.root / "whole", QUEUE_FILE_BYTES)
    whole.dispatch(0, log.end)
    moved = 1
    while moved:
        dispatcher = role(log, counters)
        cursor = counters.reput_from_offset.read()
        moved = dispatcher.do_work(NOW)
        waiting.publish(counters.reput_from_offset, cursor)  # killed before it published
        moved = role(log, counters).do_work(NOW)
    assert contents(log.directory.consumequeue) == contents(log.root / "whole")


def test_part_of_a_record_is_waited_for(log: SmallLog, counters: BrokerCounters) -> None:
    log.fill(2, topics=1, queues=1)
    dispatcher = role(log, counters)
    last = log.records[-1]
    for end in range(last.offset, last.end):
        waiting.publish(counters.max_physical_offset, end)
        turns(dispatcher)
        assert counters.reput_from_offset.read() == last.offset
    waiting.publish(counters.max_physical_offset, last.end)
    assert turns(dispatcher) == last.size
    assert entries(log, "topic0", 0) == 2


def test_a_slave_whose_log_begins_above_0(tmp_path: Path, counters: BrokerCounters) -> None:
    log = SmallLog(tmp_path / "store", end=3 * SEGMENT_BYTES)
    dispatcher = role(log, counters)
    assert dispatcher.do_work(NOW) == 0
    log.append("topic", queue_offset=77)
    waiting.publish(counters.min_physical_offset, 3 * SEGMENT_BYTES)
    waiting.publish(counters.max_physical_offset, log.end)
    turns(dispatcher)
    assert counters.reput_from_offset.read() == log.end
    assert entries(log, "topic", 0) == 78


def test_what_expired_before_it_was_dispatched_is_passed_over(
    log: SmallLog, counters: BrokerCounters, caplog: pytest.LogCaptureFixture
) -> None:
    log.fill(300, topics=2, queues=1)
    dispatcher = role(log, counters)
    waiting.publish(counters.max_physical_offset, log.records[20].end)
    turns(dispatcher)
    waiting.publish(counters.max_physical_offset, log.end)
    for base in (0, SEGMENT_BYTES):  # retention: the cursor, then the file
        waiting.publish(counters.min_physical_offset, base + SEGMENT_BYTES)
        log.files.remove(base)
    turns(dispatcher)
    assert counters.reput_from_offset.read() == log.end
    assert caplog.text.count("expired before it was dispatched") == 1
    for topic in ("topic0", "topic1"):
        living = [record for record in log.records if record.topic == topic and record.offset >= 2 * SEGMENT_BYTES]
        queue = ConsumeQueue.open(log.directory.consumequeue / topic / "0", QUEUE_FILE_BYTES)
        first = living[0].queue_offset
        assert (queue.min_offset, queue.max_offset) == (first, first + len(living)), "each at its own number"
        offsets = queue.entries(first, queue.max_offset)["physical_offset"]
        assert offsets.tolist() == [record.offset for record in living]
        assert queue.sound_end(log.end) == queue.max_offset, "the next start finds nothing to repair"
    dispatcher.close()


def test_a_segment_that_expires_in_the_middle_of_a_turn(
    log: SmallLog, counters: BrokerCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.fill(100, topics=1, queues=1)
    waiting.publish(counters.max_physical_offset, log.end)
    dispatcher = role(log, counters)
    opened = log.files.open

    def expired(_base: int) -> None:
        monkeypatch.setattr(log.files, "open", opened)
        waiting.publish(counters.min_physical_offset, SEGMENT_BYTES)
        log.files.remove(0)
        raise FileNotFoundError

    monkeypatch.setattr(log.files, "open", expired)
    assert turns(dispatcher) >= log.end - SEGMENT_BYTES
    assert counters.reput_from_offset.read() == log.end


def test_a_segment_missing_above_the_logs_beginning_ends_the_role(log: SmallLog, counters: BrokerCounters) -> None:
    log.fill(100, topics=1, queues=1)
    waiting.publish(counters.max_physical_offset, log.end)
    log.files.remove(0)
    with pytest.raises(FileNotFoundError):
        role(log, counters).do_work(NOW)


def test_a_finding_of_the_dispatcher_is_logged_once(
    log: SmallLog, counters: BrokerCounters, caplog: pytest.LogCaptureFixture
) -> None:
    log.append("..")
    log.append("..")
    waiting.publish(counters.max_physical_offset, log.end)
    dispatcher = role(log, counters)
    turns(dispatcher)
    turns(dispatcher)
    assert caplog.text.count("bad name") == 1


def test_damage_ends_the_role(log: SmallLog, counters: BrokerCounters) -> None:
    log.fill(2)
    log.flip(log.records[1].offset + 5)
    waiting.publish(counters.max_physical_offset, log.end)
    dispatcher = role(log, counters)
    assert dispatcher.do_work(NOW) == log.records[0].size
    with pytest.raises(CorruptRecord):
        dispatcher.do_work(NOW)


def test_the_dispatcher_naps_while_there_is_work_and_then_sleeps_on_the_log(
    log: SmallLog, counters: BrokerCounters
) -> None:
    dispatcher = role(log, counters)
    dispatcher.do_work(NOW)
    growing = threading.Thread(target=waiting.publish, args=(counters.max_physical_offset, log.append().end))
    growing.start()
    dispatcher.idle(60_000)  # asleep: only the log's growth can end this
    growing.join()
    assert dispatcher.do_work(NOW) > 0
    dispatcher._pace[Pace.WORKED_NS] += MINUTE_NS  # however long this machine took
    dispatcher.idle(60_000)  # awake: a nap


def test_the_dispatcher_sleeps_on_the_log_at_once_while_a_reader_waits(log: SmallLog, counters: BrokerCounters) -> None:
    dispatcher, cursor = role(log, counters), counters.reput_from_offset
    waiting.publish(counters.max_physical_offset, log.append().end)
    cursor.words[cursor.index + Followed.WAITERS] = 1
    assert dispatcher.do_work(NOW) > 0
    growing = threading.Thread(target=waiting.publish, args=(counters.max_physical_offset, log.append().end))
    growing.start()
    dispatcher.idle(60_000)
    assert dispatcher.do_work(NOW) > 0, "a nap would have ended without the log's growth"
    growing.join()


def test_open_role_makes_queue_files_of_the_configured_size(tmp_path: Path, counters: BrokerCounters) -> None:
    log = SmallLog(tmp_path / "store", segment_bytes=1 << 20)
    log.fill(3, topics=1, queues=1)
    waiting.publish(counters.max_physical_offset, log.end)
    sizes = {"mappedFileSizeCommitLog": str(1 << 20), "mappedFileSizeConsumeQueue": "4000"}
    config = from_mapping({"storePathRootDir": str(log.root), **sizes})
    TopicTable.create(tmp_path)
    QueueEnds.create(tmp_path, {})
    turns(open_role(config, counters, tmp_path))
    assert (log.directory.consumequeue / "topic0" / "0" / ("0" * 20)).stat().st_size == 4000
