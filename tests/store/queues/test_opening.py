"""How many queues a turn opens by what opening them took, in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from store.queues.group_kernel import NEW_COST, NO_BUDGET
from store.queues.queue_set import BUDGET_MAX, TURN_NS, Opening, QueueSet
from tests.harness.logs import SmallLog, contents
from tests.store.queues.test_lanes import builder, lanes_of, plain

AT_ONCE = BUDGET_MAX // NEW_COST
QUICK_NS, SLOW_NS = TURN_NS // 100, TURN_NS // 3


class Disk:
    """Takes as long for each queue as it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns, self.each_ns, made = 0, QUICK_NS, QueueSet._made

        def slowly(queues: QueueSet, *where: Any) -> Any:
            self.now_ns += self.each_ns
            return made(queues, *where)

        monkeypatch.setattr(QueueSet, "_made", slowly)

    def clock(self) -> int:
        return self.now_ns


def test_a_turn_opens_as_many_new_queues_as_take_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, disk = SmallLog(tmp_path / "store", 1 << 20), Disk(monkeypatch)
    log.fill(400, topics=400, queues=1)
    one, at, new = builder(log), 0, list[int]()
    one._queues.opening = Opening(BUDGET_MAX, disk.clock)
    for disk.each_ns in (*[QUICK_NS] * 4, *[SLOW_NS] * 8, *[QUICK_NS] * 30):
        known, began_ns = len(lanes_of(one)), disk.now_ns
        at = one.dispatch_batch(at, log.end)
        new.append(len(lanes_of(one)) - known)
        assert disk.now_ns - began_ns <= TURN_NS or len(new) == 5, "but for the first slow one, before it is known"
    assert new[:12] == [AT_ONCE] * 5 + [3] * 7
    assert new[12:] == sorted(new[12:]) and new[-1] == AT_ONCE, "they come back slowly"
    one.dispatch(at, log.end)
    one.close()
    assert contents(log.directory.consumequeue) == plain(log)


def test_one_queue_is_always_opened_and_more_come_back_slowly() -> None:
    now_ns = 0
    opening = Opening(BUDGET_MAX, lambda: now_ns)
    now_ns = 1000 * TURN_NS
    opening.note(1, 1, 0)
    assert opening.budget == NEW_COST
    turns = 0
    while opening.budget < BUDGET_MAX:
        before = opening.budget
        opening.note(opening.budget // NEW_COST, opening.budget // NEW_COST, now_ns - 1)
        assert before < opening.budget <= before + max(1, before // 8)
        turns += 1
    assert turns > 10
    opening.note(BUDGET_MAX, 0, now_ns - 2 * TURN_NS)
    assert opening.budget == BUDGET_MAX // 2, "files that are opened again cost, too"


def test_what_opens_little_or_has_no_bound_changes_nothing() -> None:
    opening, unbound = Opening(BUDGET_MAX, lambda: 1000 * TURN_NS), Opening()
    opening.note(0, 0, 0)
    opening.note(NEW_COST - 1, 0, 0)
    unbound.note(1000, 1000, 0)
    assert (opening.budget, unbound.budget) == (BUDGET_MAX, NO_BUDGET)
