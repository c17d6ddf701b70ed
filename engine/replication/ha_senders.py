"""A sender process as its listener sees it: its descriptor, when its slave was last heard and acknowledged, its death.

What is seen are the counters' words; when they changed is noted by the listener's own clock.
"""

from __future__ import annotations

import logging
import os
import signal
from dataclasses import dataclass

from engine.protocol.ha.callers import Holder
from engine.shared_memory.cursors import SENDERS, BrokerCounters
from engine.shared_memory.failures import Failures, exit_text, first_line, needs_no_traceback
from ipc import waiting

log = logging.getLogger("slipstream.ha_listener")

DEATHS_WINDOW_MS, DEATHS_KEPT = 60_000, 100
FAILED = 1  # the exit code of a sender that has noted why


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
        """Note when the slave was last heard and when it last acknowledged more."""
        if heard != self.heard:
            self.heard, self.heard_ms = heard, now_ms
        if acknowledged != self.acknowledged or not is_owing:
            self.is_proven = self.is_proven or (acknowledged > self.acknowledged >= 0 and self.heard_ms > self.since_ms)
            self.acknowledged, self.acknowledged_ms = acknowledged, now_ms

    def as_holder(self) -> Holder:
        """Return the sender as the protocol's Holder."""
        return Holder(self.slot, self.crowd, self.since_ms, self.heard_ms, self.acknowledged_ms, self.is_proven)


class SenderDeaths:
    """Senders that died before the end of their connection: counted by slot, with the first line of the last error."""

    def __init__(self, counters: BrokerCounters, failures: Failures) -> None:
        self._counters, self._failures = counters, failures
        self._at_ms: dict[int, list[int]] = {}
        for sender in SENDERS:
            waiting.publish(counters.deaths[sender], 0)

    def failed(self, slot: int, error: BaseException, may_tell: bool) -> int:
        """The failing sender's own last deed: note why; its exit code."""
        name, said = SENDERS[slot], first_line(error)
        before = self._failures.text_of(name)
        self._failures.note(name, said)
        if said != before and not needs_no_traceback(error):
            log.error("%s failed", name, exc_info=error)
        elif may_tell:
            log.error("%s failed: %s", name, said)
        return FAILED

    def died(self, slot: int, status: int, now_ms: int) -> None:
        """Note that a sender died without being stopped; `status` is waitpid's."""
        if os.waitstatus_to_exitcode(status) != FAILED:
            self._failures.note(SENDERS[slot], exit_text(status))
        self._at_ms[slot] = [*self._at_ms.get(slot, ()), now_ms][-DEATHS_KEPT:]
        self.forget(now_ms)

    def forget(self, now_ms: int) -> None:
        """Count those of the last minute alone."""
        for slot, at_ms in self._at_ms.items():
            at_ms[:] = [one for one in at_ms if now_ms - one < DEATHS_WINDOW_MS]
            waiting.note(self._counters.deaths[SENDERS[slot]], len(at_ms))


def pidfd_of(pid: int) -> int:
    """The descriptor of a child; without one nobody would see its end, so it is ended. Raises OSError."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
