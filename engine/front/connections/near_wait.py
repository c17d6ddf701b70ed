"""A front that waits for its own puts, for a moment: where the writer has them at once, nobody need wake its loop.

A wake-up through a bridge is two switches and an eventfd; the writer takes a put in less time than that. Where a wait
is in vain, the bridges follow again, and the next is tried later, the more so the more often.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from engine.front.connections.bridge import Bridge
from engine.producer.pipeline import Pipeline
from ipc.arrays import Words
from ipc.compiled.atomics import await_change, load_acquire, monotonic_ns
from ipc.compiled.compiler import kernel
from ipc.ring import ControlWord

NEAR_NS = 80_000
APART_FIRST_NS, APART_LAST_NS = 2_000_000, 512_000_000  # from one that was in vain to the next


@kernel
def await_reached(words: Words, index: int, goal: int, timeout_ns: int) -> int:
    """Sleep until the word, which only grows, is at `goal`, or the time is over; its value then."""
    until_ns = monotonic_ns() + timeout_ns
    now, left_ns = load_acquire(words, index), timeout_ns
    while now < goal and left_ns > 0:
        now = await_change(words, index, now, left_ns)
        left_ns = until_ns - monotonic_ns()
    return now


class NearWait:
    """Of one front. `collect` answers what is done by then. While it `is_near` the bridges rest."""

    def __init__(self, pipeline: Pipeline, bridges: Sequence[Bridge], collect: Callable[[], None]) -> None:
        self._pipeline, self._bridges, self._collect = pipeline, bridges, collect
        self._further = pipeline.followed[2:]  # behind the ring's own: what the policy waits for
        self.is_possible = not pipeline.policy.wait_for_flush  # a disk is not near
        self.is_near = False
        self._apart_ns, self._next_ns = APART_FIRST_NS, 0

    def wait(self) -> None:
        """What was published in this turn is answered, or the bridges follow it."""
        began_ns = time.monotonic_ns()
        if not self.is_near:
            if not self.is_possible or began_ns < self._next_ns:
                return
            self.is_near = True
            for bridge in self._bridges:
                bridge.rest()
        pipeline = self._pipeline
        await_reached(pipeline.control, int(ControlWord.HEAD), pipeline.tail, NEAR_NS)
        seen = [int(words[index]) for words, index in self._further]
        self._collect()
        if pipeline.puts and self._further and (left_ns := began_ns + NEAR_NS - time.monotonic_ns()) > 0:
            (words, index), *_ = self._further
            await_change(words, index, seen[0], left_ns)
            self._collect()
        if not pipeline.puts:
            self._apart_ns = APART_FIRST_NS
            return
        self.is_near = False
        self._next_ns = time.monotonic_ns() + self._apart_ns
        self._apart_ns = min(2 * self._apart_ns, APART_LAST_NS)
        for bridge in self._bridges:
            bridge.go_on()
