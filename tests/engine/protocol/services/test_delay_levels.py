"""Levels of delayed messages in virtual time, against a model: none early, none twice, none lost, in order."""

from __future__ import annotations

import random

import numpy as np
import pytest

from engine.protocol.services.delay import AGAIN_MS, MARK_MS, MARKS, NEVER_MS, SLEWED, Level, due_count, version_steps

SEEDS = range(40)
DELAY_MS = 1000


def times_of(*deliver_ms: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.array(deliver_ms, np.int64)


def test_due_count_stops_at_the_first_message_that_is_not_due() -> None:
    assert due_count(times_of(), 50, 0) == (0, NEVER_MS)
    assert due_count(times_of(40, 50, 51, 10), 50, 0) == (2, 51)
    assert due_count(times_of(40, 50), 50, 0) == (2, NEVER_MS)
    assert due_count(times_of(90, 91, 92), 50, 2) == (2, 92)
    assert due_count(times_of(90, 91), 50, 7) == (2, NEVER_MS)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_clock_that_is_set_back_delivers_nothing_early_and_nothing_much_later(seed: int) -> None:
    made, level, behind_ms = random.Random(seed), Level(1, DELAY_MS, 0), 0
    clock_ms, last_ms = 5_000_000, 0
    stored: list[tuple[int, int]] = []  # when it was, by either clock
    for turn in range(600):
        clock_ms += made.randrange(40)
        if made.random() < 0.02:
            behind_ms += made.choice((1, 300, 900, 5000, 3_600_000))
        now_ms = clock_ms - behind_ms
        for _ in range(made.randrange(3) if turn < 500 else 0):
            last_ms = max(last_ms, now_ms)  # as the writer's times do, it never goes back
            stored.append((clock_ms, last_ms))
        level.arrivals.note(len(stored), clock_ms)
        if level.wait_ms(now_ms, clock_ms) and level.look_at_ms != NEVER_MS:
            continue
        entries = stored[level.next_offset :]
        count = level.take(times_of(*(wall_ms + DELAY_MS for _, wall_ms in entries)), now_ms, clock_ms)
        assert all(clock_ms - at_ms >= DELAY_MS for at_ms, _ in entries[:count]), "before its time"
        late = [clock_ms - at_ms for at_ms, _ in entries[count:]]
        assert max(late, default=0) <= DELAY_MS + 3 * MARK_MS + DELAY_MS // SLEWED, "long after it"
        level.passed(count)
        assert len(level.arrivals) <= MARKS
    assert level.next_offset > len(stored) * 0.8


def test_refused_messages_are_put_again_whatever_the_wall_clock_says() -> None:
    level = Level(1, DELAY_MS, 0)
    level.put(range(3))
    level.passed(3)
    level.refused(range(3), 70_000)
    assert level.wait_ms(-5_000_000, 70_000) == AGAIN_MS and not level.to_put_again(70_000)
    assert level.to_put_again(70_000 + AGAIN_MS) == [0, 1, 2]


@pytest.mark.parametrize(("offset", "corrected"), [(0, 5), (5, None), (9, None), (12, 9)])
def test_an_offset_outside_of_the_queue_is_moved_to_its_nearer_end(offset: int, corrected: int | None) -> None:
    level = Level(1, DELAY_MS, offset)
    assert level.correct(5, 9) == (None if corrected is None else offset)
    assert level.offset == (offset if corrected is None else corrected)


def test_a_version_counts_every_two_hundred_updates() -> None:
    assert [version_steps(0, after, 200) for after in (199, 200, 650)] == [0, 1, 3]
    assert version_steps(190, 210, 200) == 1
    assert version_steps(300, 100, 200) == 0


class World:
    """A level, a queue that grows, and a log that answers late and sometimes refuses."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms, self.queue, self.level = 10_000, [0] * 0, Level(3, DELAY_MS, 0)
        self.ring: list[int] = []  # queue offsets under way, in order
        self.log: list[tuple[int, int]] = []  # queue offset, when it was put
        self.offsets: list[int] = []

    def turn(self) -> None:
        made, level = self.random, self.level
        self.now_ms += made.choice((0, 1, 30, 400))
        for _ in range(made.randrange(4)):
            self.queue.append(self.now_ms + DELAY_MS)
        for queue_offset in level.to_put_again(self.now_ms)[: made.randrange(1, 4)]:
            self.put([queue_offset])
        if not level.is_held_up:
            count = level.take(times_of(*self.queue[level.next_offset :]), self.now_ms, 0)
            count = min(count, made.randrange(1, 9))
            self.put(list(range(level.next_offset, level.next_offset + count)))
            level.passed(count)
        answered = made.randrange(len(self.ring) + 1)
        done, self.ring = self.ring[:answered], self.ring[answered:]
        refused = [one for one in done if made.random() < 0.1]
        level.acknowledged(one for one in done if one not in refused)
        level.refused(refused, self.now_ms)
        for one in done:
            if one not in refused:
                self.log.append((one, self.now_ms))
        self.check(refused)

    def put(self, queue_offsets: list[int]) -> None:
        for queue_offset in queue_offsets:
            assert self.now_ms >= self.queue[queue_offset], "before its time"
            assert queue_offset not in self.ring
        self.level.put(queue_offsets)
        self.ring += queue_offsets

    def check(self, refused: list[int]) -> None:
        logged = {one for one, _when in self.log}
        assert len(logged) == len(self.log), "twice"
        assert all(below in logged for below in range(self.level.offset)), "the offset is ahead of the log"
        assert self.level.offset >= max(self.offsets, default=0), "the offset fell"
        assert self.level.under_way == len(self.ring)
        self.offsets.append(self.level.offset)
        if refused:
            assert self.level.is_held_up
            assert self.level.to_put_again(self.now_ms + AGAIN_MS)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_delayed_message_is_put_once_and_in_time_whatever_the_log_does(seed: int) -> None:
    world = World(seed)
    for _ in range(400):
        world.turn()
    queued, world.random = len(world.queue), random.Random(seed)
    for _ in range(4000):
        if world.level.offset >= queued:
            break
        world.turn()
    assert world.level.offset >= queued, "some never came"


@pytest.mark.parametrize("seed", SEEDS)
def test_without_refusals_all_come_in_order(seed: int) -> None:
    made, level, queue, log = random.Random(seed), Level(1, DELAY_MS, 0), list[int](), list[int]()
    now_ms = 0
    for _ in range(300):
        now_ms += made.randrange(200)
        queue += [now_ms + DELAY_MS] * made.randrange(5)
        count = level.take(times_of(*queue[level.next_offset :]), now_ms, 0)
        taken = range(level.next_offset, level.next_offset + count)
        level.put(taken)
        level.passed(count)
        log += taken
        level.acknowledged(taken)
        if level.look_at_ms != NEVER_MS:
            assert level.look_at_ms == queue[level.next_offset]
    assert log == list(range(len(log)))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_level_that_goes_on_after_a_death_puts_only_what_is_missing(seed: int) -> None:
    made = random.Random(seed)
    done = {at for at in range(40) if made.random() < 0.7}
    offset = next(at for at in range(41) if at not in done)
    end = max(done, default=-1) + 1
    level = Level(1, DELAY_MS, offset)
    if end > offset:
        level.resume((), (at for at in range(offset, end) if at not in done), end)
    missing = level.to_put_again(0)
    assert missing == [at for at in range(offset, end) if at not in done]
    assert level.offset == offset
    level.put(missing)
    level.acknowledged(missing)
    assert level.offset == max(end, offset) == level.next_offset
