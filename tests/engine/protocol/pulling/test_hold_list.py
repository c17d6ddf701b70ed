"""Held pulls in virtual time, from seeds: none is lost, none answered without a reason, none kept beyond its time."""

from __future__ import annotations

import random

from engine.protocol.pulling.hold_list import SWEEP_MS, HeldPull, HoldLimits, HoldList, Queue
from engine.protocol.pulling.subscription import EVERYTHING, TagFilter, filter_of

SEEDS, STEPS = 60, 400
BYTES_MAX, BYTES_MAX_OF_ONE = 2000, 900
QUEUES: list[Queue] = [("t", 0), ("t", 1), ("u", 0)]
TAGS = [filter_of(text, None) or EVERYTHING for text in ("*", "a", "b||c")]
CODES = [ord(tag) for tag in "abcd"]  # of texts of one letter


class World:
    """Queues that grow, connections that come and go."""

    def __init__(self, seed: int) -> None:
        self.draw, self.now = random.Random(seed), 0
        self.queues: dict[Queue, list[int]] = {queue: [] for queue in QUEUES}
        self.list = HoldList(HoldLimits(50, 20, BYTES_MAX, BYTES_MAX_OF_ONE))
        self.held: dict[int, HeldPull] = {}
        self.numbers = iter(range(1 << 30))

    def end_of(self, queue: Queue) -> int:
        return len(self.queues[queue])

    def wants(self, pull: HeldPull, start: int) -> bool:
        return any(pull.tags.takes_all or code in pull.tags.codes for code in self.queues[pull.queue][start:])

    def hold(self) -> None:
        queue = self.draw.choice(QUEUES)
        offset = self.end_of(queue) + self.draw.choice((0, 0, 3))
        until = self.now + self.draw.choice((-5, 1000, 15_000))
        size = self.draw.choice((10, 50, 200, BYTES_MAX_OF_ONE + 1))
        pull = HeldPull(queue, offset, self.draw.choice(TAGS), until, self.draw.randrange(4), next(self.numbers), size)
        sizes = [other.size for other in self.held.values()]
        of_one = [other.size for other in self.held.values() if other.connection == pull.connection]
        taken = self.list.hold(pull)
        fits = sum(sizes) + size <= BYTES_MAX and sum(of_one) + size <= BYTES_MAX_OF_ONE
        assert taken == (len(sizes) < 50 and len(of_one) < 20 and fits)
        if taken:
            self.held[pull.request] = pull

    def arrive(self) -> None:
        queue = self.draw.choice(QUEUES)
        before = self.end_of(queue)
        self.queues[queue] += self.draw.choices(CODES, k=self.draw.randrange(1, 4))

        def is_matched(tags: TagFilter, start: int, end: int) -> bool:
            return any(code in tags.codes for code in self.queues[queue][start:end])

        taken = self.list.arrived(queue, self.end_of(queue), is_matched)
        wanted = {
            number
            for number, pull in self.held.items()
            if pull.queue == queue and self.wants(pull, max(before, pull.offset))
        }
        self.answered(taken, wanted)

    def sweep(self) -> None:
        self.now += self.draw.choice((1, 100, SWEEP_MS))
        taken = self.list.due(self.now, self.end_of)
        for pull in taken:
            assert self.end_of(pull.queue) > pull.offset or self.now >= pull.until_ms
            del self.held[pull.request]

    def answered(self, taken: list[HeldPull], wanted: set[int]) -> None:
        assert {pull.request for pull in taken} == wanted
        for number in wanted:
            del self.held[number]

    def leave(self) -> None:
        gone = self.draw.randrange(4)
        self.list.peer_gone(gone)
        self.held = {number: pull for number, pull in self.held.items() if pull.connection != gone}


def test_every_held_pull_is_answered_for_its_reason() -> None:
    for seed in range(SEEDS):
        world = World(seed)
        for _ in range(STEPS):
            world.draw.choices((world.hold, world.arrive, world.sweep, world.leave), (6, 3, 2, 0.2))[0]()
            assert world.list.count == len(world.held), seed
            assert world.list.bytes == sum(pull.size for pull in world.held.values()), seed
            assert set(world.list.queues()) == {pull.queue for pull in world.held.values()}
        world.now += 1 << 40
        while world.held:
            world.now += SWEEP_MS
            for pull in world.list.due(world.now, world.end_of):
                del world.held[pull.request]
        assert world.list.count == 0 and not list(world.list.queues())


def test_a_sweep_of_very_many_goes_on_later() -> None:
    held = HoldList(HoldLimits(10_000, 10_000, 1, 1))
    for number in range(6000):
        assert held.hold(HeldPull(("t", number), 0, EVERYTHING, 0, 1, number))
    parts = []
    while held.count:
        parts.append(len(held.due(SWEEP_MS, lambda _queue: 0)))
    assert len(parts) == 3 and not held.due(SWEEP_MS + 1, lambda _queue: 0)


def test_tags_that_do_not_come_wait_for_the_sweep() -> None:
    held = HoldList(HoldLimits(9, 9, 1, 1))
    pull = HeldPull(("t", 0), 5, TAGS[1], 1 << 40, 1, "it")
    assert held.hold(pull)
    assert not held.arrived(("t", 0), 9, lambda _tags, _start, _end: False)
    assert pull.looked_to == 9
    assert not held.due(SWEEP_MS - 1, lambda _queue: 9)
    assert held.due(SWEEP_MS, lambda _queue: 9) == [pull]
