"""How many queues are opened in a turn: as many as take a few milliseconds, by what it took in the turns before.

Implements: nothing of RocketMQ's, which opens queues while it dispatches a record
A directory and a file cost 0.1 ms on an idle disk and ten times that on one that is busy, nearly all of it in the
kernel. The rows of a turn are chosen before its queues are opened, so what is measured counts for the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from store.queues.group_kernel import NEW_COST, NO_BUDGET

BUDGET_MAX = 64  # of one turn, in costs of `group_rows`
TURN_NS = 4_000_000  # of CPU: a machine that is busy with others makes no turn smaller
RISE = 8  # after a quick turn the next one may cost an eighth more


class Opening:
    """Number of queues that one process opens in a turn. `clock`: the CPU time of its thread."""

    def __init__(self, budget_max: int = NO_BUDGET, clock: Callable[[], int] = time.thread_time_ns) -> None:
        self.budget = self._most = budget_max
        self.now_ns = clock

    def note(self, opened: int, new: int, began_ns: int) -> None:
        """A turn opened so many files, some of them of new queues."""
        cost = opened + new * (NEW_COST - 1)
        if self._most == NO_BUDGET or cost < NEW_COST:
            return  # too little is opened to tell anything by
        would_do = cost * TURN_NS // max(self.now_ns() - began_ns, 1)
        if would_do < self.budget:
            self.budget = max(NEW_COST, would_do)
        else:
            self.budget = min(self._most, self.budget + max(1, self.budget // RISE))
