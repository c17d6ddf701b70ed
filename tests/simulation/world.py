"""Virtual time: events in their order, actors that take turns, and what happened last, for who reads a failure."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable

LINES_KEPT = 300
NOTHING = object()  # returned by an action that found nothing to do


class World:
    """One clock, one dice, one list of what is to happen: a seed says everything."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 1000
        self.events = 0
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._due: list[tuple[int, int, Callable[[], object]]] = []
        self._number = 0

    def after(self, delay_ms: int, action: Callable[[], object]) -> None:
        """Let something happen then; of one moment, in the order in which it was said."""
        self._number += 1
        heapq.heappush(self._due, (self.now_ms + delay_ms, self._number, action))

    def run_until(self, until_ms: int, look: Callable[[], None]) -> None:
        """Let happen what is due; `look` after each event in which something happens."""
        due, pop = self._due, heapq.heappop
        while due and due[0][0] <= until_ms:
            self.now_ms, _number, action = pop(due)
            self.events += 1
            if action() is not NOTHING:
                look()
        self.now_ms = until_ms

    def tell(self, line: str) -> None:
        """Keep a line for who reads a failure."""
        self.lines.append(f"{self.now_ms:>8} {line}")

    def chance(self, odds: float) -> bool:
        """Whether it happens this time."""
        return self.rng.random() < odds


class Actor:
    """A process: takes a turn when it is woken, by the clock or by another; may be stopped, and may be gone."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_gone = False
        self.stopped_until_ms = 0
        self._turn_ms: int | None = None

    def wake(self, delay_ms: int = 0) -> None:
        """Take a turn then, or before."""
        turn_ms = self.world.now_ms + delay_ms
        if self._turn_ms is None or turn_ms < self._turn_ms:
            self._turn_ms = turn_ms
            self.world.after(delay_ms, lambda: self._fire(turn_ms))

    def _fire(self, turn_ms: int) -> object:
        if self.is_gone or turn_ms != self._turn_ms:
            return NOTHING
        self._turn_ms = None
        stopped_ms = self.stopped_until_ms - self.world.now_ms
        if stopped_ms > 0:
            self.wake(stopped_ms)
            return None
        return self.turn()

    def turn(self) -> object:
        """Do what is to be done now, and say when the next turn is due."""
        raise AssertionError(f"{type(self).__name__} takes no turns")
