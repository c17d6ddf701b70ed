"""Queues whose files stay open from turn to turn: the same bytes as without, whatever happens to files meanwhile."""

from __future__ import annotations

import errno
import gc
import os
import random
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from store.files.segment_files import SegmentFiles, segment_bytes_of
from store.index.service import IndexService
from store.message.properties import MULTI_DISPATCH, MULTI_QUEUE_OFFSET
from store.names import BATCH_QUEUES, CONSUME_QUEUES
from store.queues import queue_set
from store.queues.group_kernel import CLOSED, NEW_COST, Lane
from store.queues.lanes import Lanes
from store.queues.queue_set import Building, QueueKinds
from store.recovery.dispatch import Dispatcher
from tests.harness.logs import QUEUE_FILE_BYTES, SmallLog, contents
from tests.store.golden import STORES, unpack
from tests.store.queues.test_kinds import ENDS, GOLDEN_QUEUE_FILE_BYTES, golden_kinds

OPEN_MAX = 3
QUEUES = 7


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    return SmallLog(tmp_path / "store")


def builder(log: SmallLog, name: str = CONSUME_QUEUES, open_max: int = OPEN_MAX, **options: Any) -> Dispatcher:
    return Dispatcher(log.files, log.root / name, QUEUE_FILE_BYTES, building=Building(open_max=open_max), **options)


def plain(log: SmallLog, end: int | None = None, kinds: QueueKinds | None = None) -> dict[str, bytes]:
    """The queues as one builder makes them in one go that opens each file each time."""
    root = log.root / "plain"
    shutil.rmtree(root, ignore_errors=True)
    one = builder(log, "plain/consumequeue", 0, kinds=kinds or QueueKinds())
    one.dispatch(0, log.end if end is None else end)
    one.close()
    return contents(root / "consumequeue")


def step(one: Dispatcher, begin: int, end: int) -> int:
    """To the end, batch by batch."""
    return one.dispatch(begin, end)


def lanes_of(one: Dispatcher) -> Lanes:
    return one._queues._lanes


def fill_oddly(log: SmallLog, dice: random.Random, count: int) -> None:
    """What a slave's log may hold: every kind of transaction, tags that are not ASCII, gaps, repeated numbers."""
    for number in range(count):
        queue_id = min(int(dice.expovariate(0.5)), QUEUES - 1)
        odd = dice.random()
        next_offset = log.next_offsets.get(("töpic", queue_id), 0)
        log.append(
            "töpic",
            b"%d" % number,
            queue_id=queue_id,
            sys_flag=dice.choice([0] * 8 + [4, 8, 12]),
            queue_offset=next_offset + dice.choice([2, -1]) if odd < 0.03 and next_offset else next_offset,
            properties={"TAGS": "größe" if odd > 0.95 else "plain", "KEYS": f"k{number}"},
        )


@pytest.mark.parametrize("seed", range(12))
def test_queues_that_stay_open_make_the_same_bytes(log: SmallLog, seed: int) -> None:
    dice = random.Random(seed)
    fill_oddly(log, dice, 400)
    index = IndexService(log.root / "index", 50, 300)
    one, at = builder(log, open_max=dice.choice([1, OPEN_MAX, 100]), index=index), 0
    findings: list[str] = []
    while at < log.end:
        to = dice.choice([record.end for record in log.records if record.end > at][:30])
        at = step(one, at, to)
        if dice.random() < 0.1:  # killed, and what it did since its cursor moved is done again
            findings += one.findings
            one.close()
            at = dice.choice([record.offset for record in log.records if record.offset <= at][-9:])
            index.cut(at, lambda _offset: None)
            one = builder(log, index=index)
        if dice.random() < 0.1:
            step(one, dice.choice(log.records).offset, at)  # a range again
    one.close()
    assert contents(log.directory.consumequeue) == plain(log)
    whole = IndexService(log.root / "whole", 50, 300)
    Dispatcher(log.files, log.root / "other", QUEUE_FILE_BYTES, index=whole).dispatch(0, log.end)
    made, wanted = ([path.read_bytes()[40:] for path in each.files()] for each in (index, whole))
    assert made == wanted, "all but the headers' times, which a cut takes from the log"


@pytest.mark.parametrize("version, name", STORES)
def test_real_stores_come_out_record_by_record(version: str, name: str, tmp_path: Path) -> None:
    root = unpack(version, name, tmp_path)
    queues = {kind: contents(root / kind) for kind in (CONSUME_QUEUES, BATCH_QUEUES)}
    for kind in queues:
        shutil.rmtree(root / kind, ignore_errors=True)
    (root / BATCH_QUEUES).mkdir()
    for path in queues[BATCH_QUEUES]:
        (root / BATCH_QUEUES / path).parent.mkdir(parents=True, exist_ok=True)
    kinds, end = golden_kinds(version, name), ENDS[version, name]
    files = SegmentFiles(root / "commitlog", segment_bytes_of(root / "commitlog"))
    one = Dispatcher(
        files, root / CONSUME_QUEUES, GOLDEN_QUEUE_FILE_BYTES, kinds=kinds, building=Building(open_max=2, rows_max=1)
    )
    assert one.dispatch(0, end) == end
    assert (one.findings, lanes_of(one).open_files) == ([], 2 if not kinds.ext_file_bytes else 0)
    one.close()
    assert {kind: contents(root / kind) for kind in queues} == queues


def open_files_below(root: Path) -> list[str]:
    names = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue  # the directory's own
    return [name for name in names if name.startswith(str(root))]


def test_no_more_files_are_open_than_allowed(log: SmallLog) -> None:
    log.fill(300, topics=5, queues=4)
    one = builder(log)
    for record in log.records:
        step(one, record.offset, record.end)
        held = open_files_below(log.directory.consumequeue)
        assert len(held) == len(set(held)) == lanes_of(one).open_files <= OPEN_MAX
    assert lanes_of(one).open_files == OPEN_MAX
    one.close()
    assert open_files_below(log.directory.consumequeue) == []
    assert contents(log.directory.consumequeue) == plain(log)


def test_a_queue_that_was_not_used_lately_is_closed(log: SmallLog) -> None:
    log.fill(60, topics=1, queues=6)
    one = builder(log)
    busy = [record for record in log.records if record.queue_id == 0]
    rest = [record for record in log.records if record.queue_id != 0]
    step(one, busy[0].offset, busy[0].end)
    lanes = lanes_of(one)
    for record in rest[:20]:  # records of the busy queue stay away: only its lane says that it is used
        lanes.words[0, Lane.IS_USED] = 1
        step(one, record.offset, record.end)
        assert lanes.words[0, Lane.FD] != CLOSED
    one.close()


@pytest.mark.parametrize("removed", ["file", "directory"])
def test_a_file_removed_beneath_is_made_again(log: SmallLog, removed: str) -> None:
    log.fill(5, topics=1, queues=1)
    one = builder(log)
    at = step(one, 0, log.end)
    directory = log.directory.consumequeue / "topic0" / "0"
    shutil.rmtree(directory) if removed == "directory" else (directory / ("0" * 20)).unlink()
    log.fill(3, topics=1, queues=1)
    at = step(one, at, log.end)
    assert at == log.end
    entries = (directory / ("0" * 20)).read_bytes()
    whole = plain(log)["topic0/0/" + "0" * 20]
    assert entries == bytes(5 * 20) + whole[5 * 20 :], "what came since; the rest is gone with the file"
    log.fill(1, topics=1, queues=1)
    step(one, at, log.end)
    assert (directory / ("0" * 20)).read_bytes()[5 * 20 :] == plain(log)["topic0/0/" + "0" * 20][5 * 20 :]
    one.close()


@contextmanager
def full_disk(fd: int) -> Iterator[None]:
    """A descriptor whose writes find no room."""
    kept, full = os.dup(fd), os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, fd)
    try:
        yield
    finally:
        os.dup2(kept, fd)
        os.close(kept)
        os.close(full)


@pytest.mark.parametrize("queue_id", range(4))
def test_a_full_disk_ends_the_turn_and_the_next_life_goes_on(log: SmallLog, queue_id: int) -> None:
    log.fill(16, topics=1, queues=4)
    one, begin = builder(log, open_max=100), log.end
    step(one, 0, begin)
    log.fill(8, topics=1, queues=4)
    with full_disk(int(lanes_of(one).words[queue_id, Lane.FD])), pytest.raises(OSError) as error:
        one.dispatch_batch(begin, log.end)
    assert error.value.errno == errno.ENOSPC
    assert error.value.filename == str(log.directory.consumequeue / "topic0" / str(queue_id))
    step(one, begin, log.end)  # there is room again: in this life, and in the next
    one.close()
    assert contents(log.directory.consumequeue) == plain(log)
    step(builder(log), begin, log.end)
    assert contents(log.directory.consumequeue) == plain(log)


def test_a_turn_opens_few_queues(log: SmallLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_set, "BUDGET_MAX", 4 * NEW_COST)
    queues = 50
    log.fill(3 * queues, topics=1, queues=queues)
    one = builder(log)
    at = turns = 0
    while at < log.end:
        known = len(lanes_of(one))
        at = one.dispatch_batch(at, log.end)
        assert len(lanes_of(one)) - known <= 4
        turns += 1
    assert queues // 4 <= turns <= len(log.records)
    one.close()
    assert contents(log.directory.consumequeue) == plain(log)


@pytest.mark.parametrize(("rows", "queues"), [(3, 2), (128, 20), (7, 20)])
def test_further_queues_and_many_new_queues_make_the_same_files(
    log: SmallLog, monkeypatch: pytest.MonkeyPatch, rows: int, queues: int
) -> None:
    monkeypatch.setattr(queue_set, "FURTHER_ROWS", rows)
    monkeypatch.setattr(queue_set, "BUDGET_MAX", 4 * NEW_COST)
    for number in range(40):
        further = {MULTI_DISPATCH: "%LMQ%a,%LMQ%b", MULTI_QUEUE_OFFSET: f"{number},{number}"}
        log.append(properties=further if number % 3 else None, queue_id=number % queues)
    kinds = QueueKinds(multi_dispatch=True, lmq=True)
    one = builder(log, kinds=kinds)
    step(one, 0, log.end)
    one.close()
    assert contents(log.directory.consumequeue) == plain(log, kinds=kinds)


def calls_of_a_turn(one: Dispatcher, begin: int, end: int) -> int:
    """How many calls, of Python's functions and others, a turn makes."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    gc.disable()  # what other tests left behind is not to end within this turn
    sys.setprofile(count)
    try:
        one.dispatch_batch(begin, end)
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


def test_a_turn_costs_the_same_however_many_queues_there_are(log: SmallLog) -> None:
    def turn_of(queues: int) -> int:
        log.fill(1, topics=1, queues=1)
        one, lanes = builder(log), log.records[-1]
        for queue_id in range(queues):
            lanes_of(one).add(b"other", queue_id)
            one._queues._by_lane.append(None)
        step(one, lanes.offset, lanes.end)
        log.fill(1, topics=1, queues=1)
        calls = calls_of_a_turn(one, lanes.end, log.end)
        one.close()
        return calls

    turn_of(0)
    assert turn_of(10) == turn_of(5_000) < 60


def test_many_lanes_are_distinguished() -> None:
    lanes = Lanes(0)
    names = [(b"topic%d" % (number % 700), number // 700) for number in range(5_000)]
    assert [lanes.add(*name) for name in names] == list(range(5_000))
    assert len(lanes) == 5_000
    for lane, (topic, queue_id) in enumerate(names):
        row = lanes.words[lane]
        at, count = int(row[Lane.NAME_AT]), int(row[Lane.NAME_BYTES])
        assert (lanes.names[at : at + count].tobytes(), int(row[Lane.QUEUE_ID])) == (topic, queue_id)
    assert sorted(lanes.places[lanes.places > 0].tolist()) == list(range(1, 5_001))
    assert np.count_nonzero(lanes.places) * 2 <= len(lanes.places)
