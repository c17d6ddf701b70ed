"""The dispatcher's compiled turns: the same files and counts as turn by turn, and when it rests, in virtual time."""

from __future__ import annotations

import errno
import gc
import os
import random
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from engine.keeping import dispatcher as keeping
from engine.keeping.dispatch_kernel import (
    AWAKE_NS,
    CREDIT_NS,
    INTERVAL_NS_MAX,
    INTERVAL_NS_MIN,
    UNWATCHED_NS,
    Pace,
    naps,
    rest_ns,
)
from engine.keeping.dispatcher import Dispatcher, open_role
from engine.settings.config import from_mapping
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.queue_ends import QueueEnds
from engine.shared_memory.topic_table import TopicTable
from ipc import waiting
from store.queues.group_kernel import Lane
from store.recovery import dispatch
from tests.harness.logs import SmallLog, contents

NOW, MS = 1_000_000, 1_000_000
QUEUE_FILE_BYTES = 400
SECOND = 1_000 * MS


@pytest.fixture
def counters(tmp_path: Path) -> BrokerCounters:
    TopicTable.create(tmp_path)
    QueueEnds.create(tmp_path, {}).close()
    return BrokerCounters.create(tmp_path / "counters")


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    return SmallLog(tmp_path / "store")


def role(log: SmallLog, counters: BrokerCounters, tmp_path: Path, **keys: str) -> Dispatcher:
    config = from_mapping(
        {
            "storePathRootDir": str(log.root),
            "mappedFileSizeCommitLog": str(log.segment_bytes),
            "mappedFileSizeConsumeQueue": str(QUEUE_FILE_BYTES),
            "maxHashSlotNum": "50",
            "maxIndexNum": "200",
            **keys,
        }
    )
    return open_role(config, counters, tmp_path)


def follow(dispatcher: Dispatcher, counters: BrokerCounters, end: int) -> None:
    """As `run_role` does, until all is dispatched."""
    waiting.publish(counters.max_physical_offset, end)
    while counters.reput_from_offset.read() != end:
        if dispatcher.do_work(NOW) == 0:
            dispatcher.idle(1)


def only_idle(dispatcher: Dispatcher, counters: BrokerCounters, end: int) -> bool:
    """Whether it comes to the end without the interpreter."""
    waiting.publish(counters.max_physical_offset, end)
    dispatcher._pace[Pace.DUE_NS] = 0
    dispatcher.idle(1)
    return counters.reput_from_offset.read() == end


def topic_counts(directory: Path) -> dict[str, int]:
    table = TopicTable.attach(directory)
    counts = {one.topic: one.messages for one in table.read()}
    table.close()
    return counts


def test_what_is_usual_needs_no_interpreter(log: SmallLog, counters: BrokerCounters, tmp_path: Path) -> None:
    dispatcher = role(log, counters, tmp_path)
    keys = {"UNIQ_KEY": "unique", "KEYS": "a b"}
    log.append(properties=keys)
    follow(dispatcher, counters, log.end)
    ends = QueueEnds.attach(tmp_path)
    for number in range(2, 12):
        log.append(properties=keys)
        assert only_idle(dispatcher, counters, log.end)
        assert ends.next_offsets[ends.find(b"topic", 0)] == number
        assert topic_counts(tmp_path) == {"topic": number}
    assert dispatcher._builder._index is not None
    assert dispatcher._builder._index.files()[0].read_bytes()[36:40] == (11 * 3 + 1).to_bytes(4, "big")
    dispatcher.close()


def test_a_store_without_an_index_is_dispatched_compiled_too(
    log: SmallLog, counters: BrokerCounters, tmp_path: Path
) -> None:
    dispatcher = role(log, counters, tmp_path, messageIndexEnable="false")
    log.append()
    follow(dispatcher, counters, log.end)
    log.append(properties={"KEYS": "key"})
    assert only_idle(dispatcher, counters, log.end)
    dispatcher.close()
    assert not (log.root / "index").exists()


def test_files_stay_open_from_segment_to_segment(log: SmallLog, counters: BrokerCounters, tmp_path: Path) -> None:
    dispatcher = role(log, counters, tmp_path)
    log.append()
    follow(dispatcher, counters, log.end)
    held = int(dispatcher._builder._queues._lanes.words[0, Lane.FD])
    while log.end < log.segment_bytes:
        log.append(body=bytes(1000))
    follow(dispatcher, counters, log.end)
    assert int(dispatcher._builder._queues._lanes.words[0, Lane.FD]) == held
    dispatcher.close()


def test_the_collector_does_not_look_at_queues_again_and_again(
    log: SmallLog, counters: BrokerCounters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "SETTLED_AT_ONCE", 3)
    dispatcher = role(log, counters, tmp_path)
    frozen = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(dispatcher._builder.queues))
    for queue_id in range(10):
        log.append(queue_id=queue_id)
        follow(dispatcher, counters, log.end)
    assert frozen == [3, 6, 9]
    dispatcher.close()


@pytest.mark.parametrize("what", ["topic", "queue", "tags", "gap", "closed", "rolled", "segment", "expired"])
def test_what_is_not_usual_is_finished_by_the_next_turn(
    log: SmallLog, counters: BrokerCounters, tmp_path: Path, what: str
) -> None:
    dispatcher = role(log, counters, tmp_path)
    log.append()
    follow(dispatcher, counters, log.end)
    log.append()
    if what in ("topic", "queue"):
        log.append("another" if what == "topic" else "topic", queue_id=1)
    elif what == "tags":
        log.append(properties={"TAGS": "größe"})
    elif what == "gap":
        log.append(queue_offset=17)
    elif what == "closed":
        dispatcher._builder._queues.close()
    elif what == "rolled":
        log.fill(QUEUE_FILE_BYTES // 20, topics=1, queues=1)
        for _ in range(QUEUE_FILE_BYTES // 20):
            log.append()
    elif what == "segment":
        while log.end < log.segment_bytes:
            log.append()
    elif what == "expired":
        while log.end < log.segment_bytes:
            log.append()
        waiting.publish(counters.min_physical_offset, log.segment_bytes)
    assert not only_idle(dispatcher, counters, log.end)
    follow(dispatcher, counters, log.end)
    living = [one for one in log.records if one.offset >= (log.segment_bytes if what == "expired" else 0)]
    gone = 1 if what == "expired" else 0
    assert sum(topic_counts(tmp_path).values()) == len(living) + gone
    if what != "expired":
        plain = dispatch.Dispatcher(log.files, log.root / "plain", QUEUE_FILE_BYTES)
        plain.dispatch(0, log.end)
        assert contents(log.directory.consumequeue) == contents(log.root / "plain")
    dispatcher.close()


@pytest.mark.parametrize("seed", range(6))
def test_the_same_queues_index_and_counts_across_lives(
    log: SmallLog, counters: BrokerCounters, tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    dispatcher = role(log, counters, tmp_path)
    for _ in range(60):
        for _ in range(dice.randrange(1, 8)):
            log.append(
                f"topic{dice.randrange(3)}",
                queue_id=dice.randrange(3),
                sys_flag=dice.choice([0, 0, 0, 4, 12]),
                properties={"KEYS": dice.choice(["k", "ключ"]), "TAGS": dice.choice(["t", "t", "größe"])},
            )
        before = counters.reput_from_offset.read()
        follow(dispatcher, counters, log.end)
        if dice.random() < 0.2:  # killed before it moved its cursor
            waiting.publish(counters.reput_from_offset, before)
            dispatcher = role(log, counters, tmp_path)
    follow(dispatcher, counters, log.end)
    dispatcher.close()
    assert sum(topic_counts(tmp_path).values()) == len(log.records)
    made = contents(log.directory.consumequeue)
    index = [path.read_bytes()[40:] for path in sorted((log.root / "index").iterdir())]
    shutil.rmtree(log.directory.consumequeue)
    shutil.rmtree(log.root / "index")
    waiting.publish(counters.reput_from_offset, 0)
    at_once = role(log, counters, tmp_path)
    while at_once.do_work(NOW):
        pass
    at_once.close()
    assert made == contents(log.directory.consumequeue)
    assert index == [path.read_bytes()[40:] for path in sorted((log.root / "index").iterdir())]


def test_a_full_disk_is_waited_for(log: SmallLog, counters: BrokerCounters, tmp_path: Path) -> None:
    dispatcher = role(log, counters, tmp_path)
    log.append()
    follow(dispatcher, counters, log.end)
    lanes = dispatcher._builder._queues._lanes
    lanes.hold(0, os.open("/dev/full", os.O_WRONLY), 0, int(lanes.words[0, Lane.UNTIL]))
    log.append()
    assert not only_idle(dispatcher, counters, log.end)
    assert dispatcher.do_work(NOW) == 0
    assert counters.reput_from_offset.read() == log.records[0].end
    assert counters.dispatch_errno.read() == errno.ENOSPC
    assert dispatcher.do_work(NOW + keeping.RETRY_MS) == log.records[1].size
    assert counters.dispatch_errno.read() == 0
    dispatcher.close()
    assert topic_counts(tmp_path) == {"topic": 2}


def test_part_of_a_record_is_waited_for_without_the_interpreter(
    log: SmallLog, counters: BrokerCounters, tmp_path: Path
) -> None:
    dispatcher = role(log, counters, tmp_path)
    log.append()
    follow(dispatcher, counters, log.end)
    last = log.append()
    assert not only_idle(dispatcher, counters, last.end - 1)
    growing = threading.Thread(target=waiting.publish, args=(counters.max_physical_offset, last.end))
    growing.start()
    while counters.reput_from_offset.read() < last.end:
        dispatcher.idle(60_000)
    growing.join()
    dispatcher.close()


class Time:
    """Messages at a steady rate, and a dispatcher whose turns take no time."""

    def __init__(self) -> None:
        self.pace = np.zeros(len(Pace), np.int64)
        self.now, self.rests = 1_000 * SECOND, 0

    def turns(self, per_second: int, duration_ns: int) -> tuple[int, int]:
        """How many turns that makes, and the longest that a message waited."""
        until, sent, turns, longest = self.now + duration_ns, self.now, 0, 0
        gap = SECOND // per_second
        while self.now < until:
            self.now = max(self.now, sent)
            records = (self.now - sent) // gap + 1
            longest = max(longest, self.now - sent)
            sent += records * gap
            turns += 1
            self.now += max(0, rest_ns(self.pace, records, self.now))
        return turns, longest


@pytest.mark.parametrize("per_second", [1, 100, 1_000, 2_000])
def test_a_trickle_is_never_held_up(per_second: int) -> None:
    turns, longest = Time().turns(per_second, SECOND)
    assert turns >= per_second
    assert longest == 0


@pytest.mark.parametrize("per_second", [5_000, 20_000, 100_000, 1_000_000])
def test_a_stream_comes_in_few_turns(per_second: int) -> None:
    time = Time()
    time.turns(per_second, SECOND)  # the credit is used up
    turns, longest = time.turns(per_second, SECOND)
    assert turns <= 1.02 * SECOND // INTERVAL_NS_MAX
    assert longest <= INTERVAL_NS_MAX


def test_the_first_of_many_are_dispatched_at_once_and_again_after_a_pause() -> None:
    time = Time()
    for _ in range(3):
        rests = [rest_ns(time.pace, 1, time.now) for _ in range(2 * CREDIT_NS // INTERVAL_NS_MIN)]
        first = CREDIT_NS // INTERVAL_NS_MIN
        assert [rest > 0 for rest in rests] == [False] * first + [True] * first
        time.now += CREDIT_NS + rests[-1]


def test_a_follower_that_was_woken_just_now_is_not_taken_for_nobody() -> None:
    time = Time()
    rest_ns(time.pace, 1, time.now)
    assert naps(time.pace, 0, time.now)
    assert not naps(time.pace, 1, time.now)
    assert not naps(time.pace, 0, time.now + 1)  # awake, to sleep again in a moment
    assert not naps(time.pace, 0, time.now + UNWATCHED_NS - 1)
    assert naps(time.pace, 0, time.now + UNWATCHED_NS)
    assert not naps(time.pace, 0, time.now + AWAKE_NS)
