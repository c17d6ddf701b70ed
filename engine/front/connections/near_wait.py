"""A front that waits for its own puts, for a moment: where the writer has them at once, nobody need wake its loop.

A wake-up through a bridge is two switches and an eventfd; the writer takes a put in less time than that. Where a wait
is in vain, the bridges follow again, and the next is tried later, the more so the more often. Where one connection is
all that sends, nobody else waits for it: it may be longer, begins by looking, and is tried each time.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from engine.front.connections.bridge import Bridge
from engine.producer.pipeline import Pipeline
from ipc.arrays import Words
from ipc.compiled.atomics import await_change, give_way, load_acquire, monotonic_ns
from ipc.compiled.kernels import kernel
from ipc.ring import ControlWord

NEAR_NS, ALONE_NS = 80_000, 400_000
LOOK_NS = 30_000  # of one alone, before it sleeps: to be woken takes as long. Not while replicas want the CPUs
APART_FIRST_NS, APART_LAST_NS = 2_000_000, 512_000_000  # from one that was in vain to the next


@kernel
def await_reached(words: Words, index: int, goal: int, timeout_ns: int, look_ns: int) -> int:
    """Look for `look_ns`, then sleep, until a word that only grows is at `goal` or the time is over; its value then."""
    began_ns = monotonic_ns()
    until_ns, now = began_ns + timeout_ns, load_acquire(words, index)
    while now < goal and monotonic_ns() - began_ns < look_ns:
        give_way()
        now = load_acquire(words, index)
    left_ns = until_ns - monotonic_ns()
    while now < goal and left_ns > 0:
        now = await_change(words, index, now, left_ns)
        left_ns = until_ns - monotonic_ns()
    return now


class NearWait:
    """The wait of one front for its own puts. `collect` answers what is done.

    The bridges follow only while a put is under way that is not waited for here: others' puts move the same words, and
    would wake this front for nothing.
    """

    def __init__(self, pipeline: Pipeline, bridges: Sequence[Bridge], collect: Callable[[], None]) -> None:
        self._pipeline, self._bridges, self._collect = pipeline, bridges, collect
        self._further = pipeline.followed[2:]  # behind the ring's own: what the policy waits for
        self.is_possible = not pipeline.policy.wait_for_flush  # a disk is not near
        self.is_near = self._looks = False
        self._apart_ns, self._next_ns = APART_FIRST_NS, 0
        self._rests = True  # all bridges, as they begin
        self._tail_in_vain = -1  # where the ring ended when a bridge rang and nothing was under way

    def wait(self, *, is_alone: bool = False) -> None:
        """Wait until what was published in this turn is answered, or let the bridges follow it.

        `is_alone`: published by one connection, as all that came lately.
        """
        began_ns = time.monotonic_ns()
        looks = is_alone and self.is_possible and not self._further
        if looks != self._looks:
            self._looks = looks
            self._pipeline.control[ControlWord.NEAR] = looks  # the writer looks for the next one, too
        if self.is_possible and (self.is_near or is_alone or began_ns >= self._next_ns):
            self.is_near = True
            self._rest()
            self._await(began_ns, ALONE_NS if is_alone else NEAR_NS, LOOK_NS if looks else 0)
            if not self._pipeline.puts:
                self._apart_ns = APART_FIRST_NS
                return
            self.is_near = False
            self._next_ns = time.monotonic_ns() + self._apart_ns
            self._apart_ns = min(2 * self._apart_ns, APART_LAST_NS)
        if self._rests and self._pipeline.puts:
            self._rests = False
            for bridge in self._bridges:
                bridge.go_on()

    def rang(self) -> None:
        """A bridge rang. The bridges rest after two rings in a row for others' puts.

        One is not enough: it may be late for a put that another bridge reported, and to follow again costs more.
        """
        if self._pipeline.puts:
            return
        if self._tail_in_vain == self._pipeline.tail:
            self._rest()
        self._tail_in_vain = self._pipeline.tail

    def _rest(self) -> None:
        if not self._rests:
            self._rests = True
            for bridge in self._bridges:
                bridge.rest()

    def _await(self, began_ns: int, near_ns: int, look_ns: int) -> None:
        """Wait until all puts are answered, or the time is over."""
        pipeline = self._pipeline
        await_reached(pipeline.control, int(ControlWord.HEAD), pipeline.tail, near_ns, look_ns)
        seen = [int(words[index]) for words, index in self._further]
        self._collect()
        while pipeline.puts and self._further and (left_ns := began_ns + near_ns - time.monotonic_ns()) > 0:
            (words, index), *_ = self._further
            seen[0] = await_change(words, index, seen[0], left_ns)
            self._collect()
