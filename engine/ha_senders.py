"""A sender process as its listener sees it: its descriptor, and when its slave was last heard and last acknowledged.

What is seen are the counters' words; when they changed is noted by the listener's own clock.
"""

from __future__ import annotations

import os
import select
import signal
from dataclasses import dataclass

from engine.protocol.ha_callers import Holder


@dataclass(slots=True)
class SenderProcess:
    """A running child, and what was seen of its slave: the words themselves, and when they changed last."""

    slot: int
    pid: int
    pidfd: int
    crowd: str
    since_ms: int
    heard: int
    heard_ms: int
    acknowledged: int
    acknowledged_ms: int
    is_proven: bool = False
    gives_way: bool = False

    def look(self, heard: int, acknowledged: int, is_owing: bool, now_ms: int) -> None:
        """Note when anything changed."""
        if heard != self.heard:
            self.heard, self.heard_ms = heard, now_ms
        if acknowledged != self.acknowledged or not is_owing:
            self.is_proven = self.is_proven or (acknowledged > self.acknowledged >= 0 and self.heard_ms > self.since_ms)
            self.acknowledged, self.acknowledged_ms = acknowledged, now_ms

    def as_holder(self) -> Holder:
        """As the protocol sees it."""
        return Holder(self.slot, self.crowd, self.since_ms, self.heard_ms, self.acknowledged_ms, self.is_proven)


def pidfd_of(pid: int) -> int:
    """The descriptor of a child; without one nobody would see its end, so it is ended. Raises OSError."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def has_ended(pidfd: int, timeout_s: float) -> bool:
    """Whether a child ends within that time."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(timeout_s * 1000))
