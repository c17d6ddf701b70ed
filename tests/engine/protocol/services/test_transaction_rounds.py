"""Rounds over half messages in virtual time: who is asked, put back, given up, and that a decided one is left alone."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from engine.protocol.services.transactions import (
    HOUR_MS,
    PAUSE_MS,
    UNREADABLE,
    CheckLimits,
    Commit,
    GiveUp,
    Half,
    HalfRead,
    IsDecided,
    Op,
    Ops,
    Passed,
    Pause,
    Pulled,
    PutBack,
    ReadHalf,
    ReadOps,
    check_round,
    java_number,
)

LIMITS = CheckLimits(timeout_ms=6000, checks_max=3, reserved_hours=72)
SEEDS = range(60)


@dataclass
class World:
    """Both queues, a clock, a log that may refuse, and what was asked and given up, by the message's own name."""

    now_ms: int = 1_000_000
    log_ms: int = 0  # the log's times never go back
    halves: list[tuple[str, Half]] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    half_offset: int = 0
    op_offset: int = 0
    first_half: int = 0
    asked: list[tuple[str, int]] = field(default_factory=list)  # name, where it is now
    given_up: list[str] = field(default_factory=list)
    decided: set[str] = field(default_factory=set)  # of which no op message is written yet
    passed: Passed = field(default_factory=Passed)
    refuses: float = 0.0
    dies: float = 0.0
    made: random.Random = field(default_factory=lambda: random.Random(0))

    def send(self, name: str, *, immunity: str | None = None, born_ms: int | None = None) -> int:
        at = len(self.halves)
        born = self.now_ms if born_ms is None else born_ms
        self.halves.append((name, Half(at, born, self.stored_ms(), None, immunity, None)))
        return at

    def stored_ms(self) -> int:
        self.log_ms = max(self.log_ms, self.now_ms)
        return self.log_ms

    def end(self, *offsets: int) -> None:
        self.ops.append(Op(len(self.ops), self.now_ms, offsets))

    def check(self) -> bool:
        """One round; False where its process died on the way."""
        going = check_round(
            self.half_offset, self.op_offset, LIMITS, lambda: self.now_ms, self.passed, len(self.halves)
        )
        reply = None
        while True:
            try:
                wanted = going.send(reply)
            except StopIteration:
                return True
            if self.made.random() < self.dies:
                return False
            reply = self.done(wanted)

    def done(self, wanted: object) -> object:
        match wanted:
            case ReadOps(offset):
                some = tuple(self.ops[offset : offset + 32])
                return Ops(Pulled.MESSAGES if some else Pulled.NO_NEW, offset + len(some), some)
            case ReadHalf(offset):
                if offset < self.first_half:
                    return HalfRead(None, Pulled.ILLEGAL, self.first_half)
                if offset >= len(self.halves):
                    return HalfRead(None, Pulled.NO_NEW, offset)
                return HalfRead(self.halves[offset][1], Pulled.MESSAGES, offset + 1)
            case IsDecided(half):
                return self.halves[half.queue_offset][0] in self.decided
            case PutBack(half, check_times, asks):
                if self.made.random() < self.refuses:
                    return False
                name, at = self.halves[half.queue_offset][0], len(self.halves)
                prepared = half.prepared_offset
                if not asks:
                    prepared = prepared or str(half.queue_offset)
                again = half._replace(
                    queue_offset=at, stored_ms=self.stored_ms(), check_times=str(check_times), prepared_offset=prepared
                )
                self.halves.append((name, again))
                if asks:
                    self.asked.append((name, at))
                return True
            case GiveUp(half, _check_times):
                if self.made.random() < self.refuses:
                    return False
                self.given_up.append(self.halves[half.queue_offset][0])
                return True
            case Pause(milliseconds):
                self.now_ms += milliseconds
                return None
            case Commit(half_offset, op_offset):
                self.half_offset = self.half_offset if half_offset is None else half_offset
                self.op_offset = self.op_offset if op_offset is None else op_offset
                return None
        raise AssertionError(wanted)


def test_only_a_half_message_older_than_the_timeout_is_asked_about() -> None:
    world = World()
    world.send("a")
    world.now_ms += LIMITS.timeout_ms - 1
    assert world.check()
    assert (world.asked, world.half_offset) == ([], 0)
    world.now_ms += 2
    assert world.check()
    assert (world.asked, world.half_offset, len(world.halves)) == ([("a", 1)], 1, 2)
    assert world.halves[1][1].check_times == "1"


def test_a_half_message_is_given_up_after_the_largest_number_of_checks() -> None:
    world = World()
    world.send("a")
    for _ in range(6):
        world.now_ms += 60_000
        assert world.check()
    assert len(world.asked) == LIMITS.checks_max
    assert world.given_up == ["a"]
    assert world.half_offset == len(world.halves)


def test_ended_half_messages_and_their_op_messages_are_passed() -> None:
    world = World()
    for name in "abcd":
        world.send(name)
    world.end(0, 2)
    world.end(1)
    world.now_ms += 60_000
    assert world.check()
    assert [name for name, _at in world.asked] == ["d"]
    assert (world.half_offset, world.op_offset) == (4, 2)


def test_a_clock_that_is_set_back_stops_no_checks_and_asks_once_a_round() -> None:
    world = World()
    world.send("before")
    world.now_ms -= HOUR_MS
    world.send("after")
    assert world.check()
    assert world.asked == [("before", 2)], "born in what is the future now: nobody knows how old it is"
    world.now_ms += LIMITS.timeout_ms + 1
    assert world.check()
    assert world.asked[1:] == [("after", 3), ("before", 4)]
    assert (world.half_offset, world.given_up) == (3, [])


def test_a_round_in_which_the_clock_is_set_back_ends() -> None:
    world = World()
    world.send("a")
    world.now_ms += LIMITS.timeout_ms + 1
    world.refuses, done, pauses = 1.0, world.done, list[object]()

    def set_back(wanted: object) -> object:
        if isinstance(wanted, Pause):
            pauses.append(wanted)
            world.now_ms -= HOUR_MS
            return None
        return done(wanted)

    world.done = set_back  # type: ignore[method-assign]
    assert world.check()
    assert (len(pauses), world.half_offset, world.asked) == (1, 0, [])


def test_an_op_message_stays_until_all_that_it_names_are_passed() -> None:
    world = World()
    world.send("a")
    world.now_ms += 60_000
    world.send("b")  # too young: the round ends before it
    world.end(0, 1)
    world.end(0)
    assert world.check()
    assert (world.asked, world.op_offset) == ([], 0), "b was named, and lies behind the round's end"
    world.now_ms += 60_000
    assert world.check()
    assert (world.half_offset, world.op_offset, world.asked) == (2, 2, [])


def test_an_immunity_time_keeps_a_half_message_from_being_asked_about() -> None:
    world = World()
    world.send("a", immunity="100")
    world.now_ms += 60_000
    assert world.check()
    assert (world.asked, len(world.halves)) == ([], 2)
    assert world.halves[1][1].prepared_offset == "0"
    world.end(0)  # by the offset that its producer knows
    world.now_ms += 10_000
    assert world.check()
    assert (world.asked, world.half_offset, len(world.halves)) == ([], 2, 2)
    world.now_ms += 100_000
    assert world.check()
    assert (world.asked, world.given_up) == ([], [])


def test_rounds_within_the_immunity_time_do_not_count_as_checks() -> None:
    """RocketMQ counts each wait as a check, and gives it up unasked."""
    world = World()
    world.send("a", immunity="100")
    for _ in range(3 * LIMITS.checks_max):
        world.now_ms += 10_000
        assert world.check()
        assert (world.asked, world.given_up) == ([], [])
    for times in range(1, LIMITS.checks_max + 1):
        world.now_ms += 60_000
        assert world.check()
        assert len(world.asked) == times
    assert world.given_up == ["a"], "its producer did not answer"


def test_a_decided_half_message_is_passed_before_its_op_message_is_written() -> None:
    world = World()
    for name in "ab":
        world.send(name)
    world.send("c", born_ms=world.now_ms - LIMITS.reserved_hours * HOUR_MS - 1)
    world.decided = {"a", "c"}
    world.now_ms += 60_000
    assert world.check()
    assert ([name for name, _at in world.asked], world.given_up, world.half_offset) == (["b"], [], 3)
    world.end(0, 2, 3)
    world.now_ms += 60_000
    assert world.check()
    assert (len(world.asked), world.given_up, world.op_offset) == (1, [], 1)


def test_a_half_message_older_than_the_retention_is_given_up_unasked() -> None:
    world = World()
    world.send("a", born_ms=world.now_ms - LIMITS.reserved_hours * HOUR_MS - 1)
    assert world.check()
    assert (world.asked, world.given_up, world.half_offset) == ([], ["a"], 1)


def test_expired_halves_are_passed() -> None:
    world = World()
    for name in "abc":
        world.send(name)
    world.first_half = 2
    world.now_ms += 60_000
    assert world.check()
    assert ([name for name, _at in world.asked], world.half_offset) == (["c"], 3)


def test_a_log_that_refuses_does_not_keep_a_round_busy() -> None:
    world = World(refuses=1.0)
    world.send("a")
    world.now_ms += 60_000
    before = world.now_ms
    assert world.check()
    assert (world.half_offset, world.asked) == (0, [])
    assert world.now_ms - before >= 60_000 - PAUSE_MS, "it paused between the attempts"


def test_numbers_are_read_as_java_reads_them() -> None:
    assert [java_number(text) for text in ("12", "-3", "+4", "", "x", "1 ", "9" * 30)] == [
        12,
        -3,
        4,
        *[UNREADABLE] * 4,
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_decided_half_messages_end_once_and_undecided_ones_are_never_lost(seed: int) -> None:
    made = random.Random(seed)
    world = World(made=made, refuses=0.05)
    undecided: dict[str, int] = {}  # by name: where its producer believes it to be
    decided: Counter[str] = Counter()
    heard = 0
    for number in range(400):
        world.now_ms += made.randrange(2000)
        if made.random() < 0.5:
            undecided[f"m{number}"] = world.send(f"m{number}")
        if (open_ones := sorted(undecided.keys() - set(world.given_up))) and made.random() < 0.4:
            name = made.choice(open_ones)
            world.end(undecided.pop(name))
            decided[name] += 1
        if made.random() < 0.1:
            assert world.check()
        for name, at in world.asked[heard:]:
            assert name in undecided or world.given_up.count(name) == 0
            if name in undecided:
                undecided[name] = at
        heard = len(world.asked)
    for _ in range(10):
        world.now_ms += 60_000
        assert world.check()
    assert max(decided.values()) == 1
    assert sorted(set(world.given_up)) == sorted(undecided), "given up: those that nobody ended, and only those"
    assert max(Counter(world.given_up).values(), default=1) == 1
    assert (world.half_offset, world.op_offset) == (len(world.halves), len(world.ops))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_round_that_dies_loses_no_half_message(seed: int) -> None:
    made = random.Random(seed)
    world = World(made=made, dies=0.05)
    ended = set()
    for number in range(40):
        at = world.send(f"m{number}")
        if made.random() < 0.5:
            world.end(at)
            ended.add(f"m{number}")
    for _ in range(60):
        world.now_ms += 60_000
        world.check()
    world.dies = 0.0
    for _ in range(8):
        world.now_ms += 60_000
        assert world.check()
    assert set(world.given_up) == {f"m{number}" for number in range(40)} - ended
    assert not ended & {name for name, _at in world.asked}
