"""Whether a file's time of change will show its next change: file systems count that time in ticks."""

from __future__ import annotations

import time

SETTLED_NS = 1_000_000_000  # the coarsest tick of a file system that is in use
FINE_SHARE = 10  # a file system that keeps parts of a second counts in ticks of 10 ms at most, most often of 4
NS_PER_SECOND = 1_000_000_000


def look_ns() -> int:
    """Return the time at which a look at files begins, in ns, by the clock of their times."""
    return time.time_ns()


def is_settled(changed_ns: int, looked_ns: int) -> bool:
    """Whether a change after that look moves the file's time, which was `changed_ns` (mtime).

    One that is younger than a tick may stay as it is; so may one from the future, where the clock was set back.
    """
    settled_ns = SETTLED_NS if changed_ns % NS_PER_SECOND == 0 else SETTLED_NS // FINE_SHARE
    return looked_ns - changed_ns > settled_ns
