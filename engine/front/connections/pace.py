"""How often a front looks at the clock: some times a second while something is under way, else when something is due.

Implements: nothing of RocketMQ's, whose timers are threads
What idle clients do (heartbeats, pulls that are held again) does not count: nothing of it is due before the next
sweep. Anything else that arrives ends the rest.
"""

from __future__ import annotations

from collections.abc import Callable

from ipc.clock import monotonic_ms

TURN_MS, QUIET_MS = 100, 2000
NEVER_MS = 1 << 40  # from now


class Pace:
    """When one front looks at the clock. `wake` ends the loop's rest; `clock_ms` is the clock of the front's turns."""

    def __init__(self, wake: Callable[[], None], clock_ms: Callable[[], int] = monotonic_ms) -> None:
        self._wake, self._clock_ms = wake, clock_ms
        self.is_stirred = True  # something came since the last turn
        self.rests, self._quiet_at_ms = False, 0  # the clock is not looked at before something is due

    def stir(self) -> None:
        """Something came whose time may be looked at."""
        self.is_stirred = True
        if self.rests:
            self.rests = False
            self._wake()

    def wait_ms(self, rest_ms: int) -> int:
        """Return how long the front may serve while nothing is due for `rest_ms`."""
        now_ms = self._clock_ms()
        if self.is_stirred:
            self.is_stirred, self._quiet_at_ms = False, now_ms + QUIET_MS
        self.rests = rest_ms > TURN_MS and now_ms >= self._quiet_at_ms
        return rest_ms if self.rests else TURN_MS
