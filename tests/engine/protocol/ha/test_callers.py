"""Who gets a slot: strangers by the thousand, honest slaves that are silent for five seconds, all in virtual time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count

import pytest

from engine.protocol.ha.callers import BEGUN_AT_ONCE, NEWCOMERS, CallerLimits, Callers, Holder
from engine.protocol.ha.hello import first_report, is_of_ours
from engine.protocol.ha.wire import REPORT

LIMITS = CallerLimits(callers_max=256, send_heartbeat_interval_ms=5000, housekeeping_interval_ms=20_000)
SLOTS = 8
STRANGER, HONEST = "10.6.6.6", "10.0.0.1"


class Door:
    """A master's callers and slots, as the listener keeps them: who may leave has left."""

    def __init__(self, limits: CallerLimits = LIMITS) -> None:
        self.callers = Callers(limits)
        self.numbers: Iterator[int] = count(1)
        self.inside: set[int] = set()
        self.holders: dict[int, Holder] = {}
        self.served: dict[int, int] = {}  # number of a caller → its slot

    def come(self, crowd: str, now_ms: int) -> int:
        number = next(self.numbers)
        self.inside.add(number)
        leaves = self.callers.arrived(number, crowd, now_ms)
        if leaves is not None:
            self.go(leaves)
        assert len(self.callers) == len(self.inside) <= LIMITS.callers_max
        return number

    def go(self, number: int) -> None:
        self.inside.discard(number)
        self.callers.left(number)

    def report(self, number: int, now_ms: int) -> None:
        if number in self.inside:
            assert self.callers.heard(number, REPORT.pack(0), now_ms)

    def turn(self, now_ms: int) -> None:
        for caller in self.callers.overdue(now_ms):
            self.go(caller.number)
        while (caller := self.callers.next(list(self.holders.values()), now_ms)) is not None:
            free = [slot for slot in range(SLOTS) if slot not in self.holders]
            if not free:
                victim = self.callers.gives_up(caller, list(self.holders.values()), now_ms)
                if victim is None:
                    return
                free = [victim.slot]
            self.go(caller.number)
            self.callers.begun(caller.crowd, now_ms)
            self.holders[free[0]] = Holder(free[0], caller.crowd, now_ms, now_ms, now_ms, is_proven=False)
            self.served[caller.number] = free[0]


def test_a_caller_that_reports_gets_a_slot_and_a_silent_one_does_not() -> None:
    door = Door()
    silent, slave = door.come(STRANGER, 0), door.come(HONEST, 0)
    door.report(slave, 10)
    door.turn(10)
    assert door.served == {slave: 0}
    door.turn(20_000)
    assert silent in door.inside
    door.turn(20_001)
    assert silent not in door.inside


def test_what_comes_with_the_first_report_is_read_with_it_and_nothing_later() -> None:
    """A Slipstream slave repeats its report at once; a slave of RocketMQ repeats it while it waits for its slot."""
    door = Door()
    ours, other = door.come(HONEST, 0), door.come(STRANGER, 0)
    assert door.callers.missing(ours) == door.callers.missing(other) == len(first_report(7))
    assert door.callers.heard(ours, first_report(7), 10)
    assert not door.callers.heard(other, REPORT.pack(7)[:3], 10)
    assert door.callers.heard(other, REPORT.pack(7)[3:], 10)
    assert door.callers.missing(ours) == door.callers.missing(other) == 0
    assert door.callers.report_of(ours) == door.callers.report_of(other) == REPORT.pack(7)
    assert is_of_ours(door.callers.left(ours).reports)
    assert not is_of_ours(door.callers.left(other).reports)


@pytest.mark.parametrize("crowd", [STRANGER, HONEST], ids=["of another address", "of the same address"])
def test_a_slave_that_is_silent_for_five_seconds_is_not_pushed_out_by_a_thousand_silent_ones(crowd: str) -> None:
    door = Door()
    slave = door.come(HONEST, 0)
    for now_ms in range(1, 5001, 5):
        door.come(crowd, now_ms)
    door.report(slave, 5020)
    door.turn(5020)
    assert slave in door.served


def test_a_slave_that_comes_last_and_speaks_at_once_is_heard_behind_silent_ones_of_its_own_address() -> None:
    door = Door()
    for now_ms in range(1000):
        door.come(HONEST, now_ms)
    slave = door.come(HONEST, 1000)
    for _ in range(NEWCOMERS - 1):
        door.come(HONEST, 1001)
    door.report(slave, 1002)
    door.turn(1002)
    assert slave in door.served


def test_silent_ones_make_room_after_twice_a_slaves_heartbeat() -> None:
    door = Door()
    first = door.come(STRANGER, 0)
    for _ in range(LIMITS.callers_max - 1):
        door.come(STRANGER, 1)
    door.come(STRANGER, LIMITS.patience_ms)
    assert first in door.inside
    door.come(STRANGER, LIMITS.patience_ms + 1)
    assert first not in door.inside


def test_slots_go_to_the_address_that_holds_the_fewest_then_to_who_waits_longest() -> None:
    door = Door()
    strangers = [door.come(STRANGER, 0) for _ in range(20)]
    for number in strangers:
        door.report(number, 1)
    door.turn(1)
    assert set(door.holders) == set(range(SLOTS))
    slaves = [door.come(crowd, 2) for crowd in (HONEST, "10.0.0.2", HONEST)]
    for number in slaves:
        door.report(number, 3)
    door.turn(3)
    held = [holder.crowd for holder in door.holders.values()]
    assert (held.count(STRANGER), held.count(HONEST), held.count("10.0.0.2")) == (5, 2, 1)
    assert set(strangers[:SLOTS]) <= set(door.served), "the oldest of a crowd first"


@pytest.mark.parametrize(
    ("why", "heard_ms", "acknowledged_ms", "is_proven", "gives_up"),
    [
        ("a slave in step, idle", 95_000, 100_000, True, False),
        ("silent for more than two heartbeats", 89_000, 100_000, True, True),
        ("was sent bytes, acknowledged none ever", 99_000, 97_000, False, True),
        ("was sent bytes this moment", 99_000, 99_000, False, False),
        ("a slave that is slow for once", 99_000, 95_000, True, False),
        ("a slave that is stuck", 99_000, 89_000, True, True),
    ],
)
def test_which_holder_gives_its_slot_to_a_caller_at_the_same_address(
    why: str, heard_ms: int, acknowledged_ms: int, is_proven: bool, gives_up: bool
) -> None:
    door, now_ms = Door(), 100_000
    door.holders = {slot: Holder(slot, HONEST, 0, now_ms, now_ms, is_proven=True) for slot in range(SLOTS)}
    door.holders[3] = Holder(3, HONEST, 0, heard_ms, acknowledged_ms, is_proven)
    waits = door.come(HONEST, now_ms)
    door.report(waits, now_ms)
    door.turn(now_ms)
    assert (door.served == {waits: 3}) == gives_up, why


def test_senders_for_one_address_begin_at_a_bounded_rate() -> None:
    door = Door()
    for now_ms in range(0, 10_000, 10):
        number = door.come(STRANGER, now_ms)
        door.report(number, now_ms)
        door.turn(now_ms)
        door.holders.clear()  # each vanishes at once
    assert len(door.served) <= BEGUN_AT_ONCE + 4 * 10 + 1
    slave = door.come(HONEST, 10_000)
    door.report(slave, 10_000)
    door.turn(10_000)
    assert slave in door.served


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("crowd", [STRANGER, HONEST], ids=["of another address", "of the same address"])
def test_a_crowd_that_comes_reports_and_vanishes_at_any_step_keeps_nobody_out(seed: int, crowd: str) -> None:
    """5,000 strangers, most of them gone at any moment; slaves of both lines come in the middle of it."""
    door, rng, gone_at = Door(), random.Random(seed), dict[int, int]()
    slaves: dict[int, int] = {}  # number → when it reports
    for now_ms in range(0, 50_000, 10):
        number = door.come(crowd, now_ms)
        gone_at[number] = now_ms + rng.choice((0, 0, 10, 50, 400, 3000))
        if rng.random() < 0.5:
            door.report(number, now_ms)
        for number in [number for number, at_ms in gone_at.items() if at_ms <= now_ms]:
            del gone_at[number]
            if number in door.inside:
                door.go(number)
            door.holders.pop(door.served.pop(number, -1), None)
        if now_ms in (10_000, 30_000):
            slave = door.come(HONEST, now_ms)
            slaves[slave] = now_ms if now_ms == 10_000 else now_ms + 5020
        for slave, at_ms in slaves.items():
            if at_ms == now_ms:
                door.report(slave, now_ms)
            if slave in door.served:  # it says and acknowledges something all the time
                holder = door.holders[door.served[slave]]
                door.holders[holder.slot] = holder._replace(heard_ms=now_ms, acknowledged_ms=now_ms, is_proven=True)
        door.turn(now_ms)
    assert set(slaves) <= set(door.served)


def test_when_there_is_no_room_after_all_somebody_goes() -> None:
    door = Door()
    assert door.callers.dispensable(0) is None
    first, _second = door.come(STRANGER, 0), door.come(STRANGER, 0)
    door.come(HONEST, 0)
    assert door.callers.dispensable(1) == first
