"""Where queues end: shown by the dispatcher before its cursor, to whoever reads, across the deaths of dispatchers."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from engine.shared_memory.queue_ends import NO_SLOT, QueueEnds, await_more
from ipc.compiled.atomics import Followed, publish
from store.message.properties import MULTI_DISPATCH, MULTI_QUEUE_OFFSET
from store.queues.queue_set import Building, QueueKinds
from store.recovery import dispatch
from tests.harness.conditions import await_that, is_in_futex_wait
from tests.harness.logs import QUEUE_FILE_BYTES, SmallLog

BATCH = 7
MINUTE_NS = 60_000_000_000


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    return SmallLog(tmp_path / "store")


def builder(log: SmallLog, ends: QueueEnds, kinds: QueueKinds | None = None) -> dispatch.Dispatcher:
    made = QueueKinds() if kinds is None else kinds
    return dispatch.Dispatcher(
        log.files, log.directory.consumequeue, QUEUE_FILE_BYTES, kinds=made, building=Building(ends=ends)
    )


def shown(reader: QueueEnds) -> dict[tuple[str, int], int]:
    reader.look()
    by_name = {name: reader.find(name[0].encode(), name[1]) for name in reader.names()}
    return {name: int(reader.next_offsets[slot]) for name, slot in by_name.items()}


def test_every_queue_has_its_end_after_each_batch(
    log: SmallLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "BATCH_ROWS", BATCH)
    QueueEnds.create(tmp_path, {("before", 0): 12}).close()
    reader = QueueEnds.attach(tmp_path)
    log.fill(60, topics=3, queues=2)
    at, building = 0, builder(log, QueueEnds.attach(tmp_path, writable=True))
    while at < log.end:
        at = building.dispatch_batch(at, log.end)
        ends: dict[tuple[str, int], int] = {("before", 0): 12}
        for one in log.records:
            if one.end <= at:
                ends[one.topic, one.queue_id] = one.queue_offset + 1
        assert shown(reader) == ends
        building = builder(log, QueueEnds.attach(tmp_path, writable=True))  # the one before was killed
    building.dispatch(0, log.end)
    assert shown(reader) == {("before", 0): 12, **log.next_offsets}, "what is dispatched again changes nothing"
    assert reader.find(b"topic0", 99) == NO_SLOT


def test_further_queues_have_ends_too(log: SmallLog, tmp_path: Path) -> None:
    ends = QueueEnds.create(tmp_path, {})
    for number in range(5):
        log.append(properties={MULTI_DISPATCH: "%LMQ%a,%LMQ%b", MULTI_QUEUE_OFFSET: f"{number},{number}"})
    builder(log, ends, QueueKinds(multi_dispatch=True, lmq=True)).dispatch(0, log.end)
    assert shown(ends) == {("topic", 0): 5, ("%LMQ%a", 0): 5, ("%LMQ%b", 0): 5}


def test_names_that_find_no_room_have_no_slot(tmp_path: Path) -> None:
    ends = QueueEnds.create(tmp_path, {}, queues_max=2)
    assert ends.slot_for(b"x" * 257, 0) == NO_SLOT
    assert [ends.slot_for(b"t", number) for number in range(3)] == [0, 1, NO_SLOT]


def test_a_reader_of_some_queues_wakes_for_these_and_for_new_ones(tmp_path: Path) -> None:
    writer = QueueEnds.create(tmp_path, {("mine", 0): 5, ("other", 0): 5})
    reader, moved = QueueEnds.attach(tmp_path), np.zeros(len(Followed), np.int64)
    mine = np.array([reader.find(b"mine", 0)], np.int64)

    def wait(seen: int, end: int, timeout_ns: int = MINUTE_NS) -> int:
        return await_more(moved, 0, seen, reader.words, len(reader), mine, np.array([end], np.int64), timeout_ns)

    def dispatch_to(topic: bytes, end: int, value: int) -> None:
        slot = writer.slot_for(topic, 0)
        writer.set_ends(np.array([slot], np.int64), np.array([end], np.int64))
        publish(moved, 0, value)

    dispatch_to(b"other", 6, 1)
    waiting = threading.Thread(target=wait, args=(0, 5))
    waiting.start()
    await_that(lambda: is_in_futex_wait(waiting), "it sleeps")
    await_that(lambda: moved[Followed.WAITERS] == 1, "while nothing is dispatched it sleeps on the word itself")

    def is_left_alone() -> bool:
        publish(moved, 0, int(moved[0]) - 1)
        return bool(moved[Followed.WAITERS] == 0)

    await_that(is_left_alone, "while others' messages are dispatched nobody need wake it")
    dispatch_to(b"mine", 6, 2)
    waiting.join()
    assert writer.next_offsets[mine[0]] == 6, "another queue's message woke nobody"
    dispatch_to(b"other", 7, 3)
    assert wait(2, 6, timeout_ns=1) == 3, "nothing for it: the time was over"
    making = threading.Thread(target=dispatch_to, args=(b"new", 1, 4))
    making.start()
    assert wait(3, 6) == 4
    making.join()
