"""What is wrong with a broker, each fact once: in a few words for a view with a line for each, and at length.

Each finding carries a verdict, and the worst one is the broker's. The exit codes of `status`,
`ha status` and `doctor` and the answers of `/readyz` and `/healthz` follow from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from engine.shared_memory.cursors import ROLES, SENDERS, SPARE_ROLES, BrokerCounters
from ipc.clock import monotonic_ms

SILENT_SECONDS, SPARE_SILENT_SECONDS = 30, 600  # the latter: who yields to all others, also at the disk


class Verdict(IntEnum):
    """The state of a broker in one word; a larger number is worse."""

    WELL = 0
    DEGRADED = 1  # it serves, with less than its settings ask for
    NOT_READY = 2  # it does not do what its role is for; a restart would not help
    DEAD = 3  # only a restart mends it, or a new disk


WORST = {"well": Verdict.WELL, "ready": Verdict.DEGRADED, "alive": Verdict.NOT_READY}  # that still answers with yes


class Finding(NamedTuple):
    """One problem: a reason code, a few words, the next step; with the verdict WELL it is only worth a look.

    `at_length` are the lines of what keeps the broker from its work: what is a problem, and not only worth a look.
    """

    reason: str
    what: str
    next_step: str
    at_length: tuple[str, ...] = ()
    verdict: Verdict = Verdict.DEGRADED

    def to_json(self) -> dict[str, str]:
        """Return the finding as plain values for json.dumps."""
        return {"reason": str(self.reason), "what": self.what, "next": self.next_step, "verdict": self.verdict.name}


def verdict_of(findings: Iterable[Finding]) -> Verdict:
    """Return the worst verdict of the findings; WELL when there is none."""
    return max((one.verdict for one in findings), default=Verdict.WELL)


def lines_of(findings: Iterable[Finding]) -> list[str]:
    """The problems among them, at length."""
    return [line for one in findings for line in one.at_length]


def stalled(counters: BrokerCounters) -> dict[str, int]:
    """The roles that run and have not turned for long, and for how many seconds."""
    now_ms, silent = monotonic_ms(), {}
    for role in (*ROLES, *SENDERS):
        beat_ms = counters.heartbeats[role].read() if counters.pids[role].read() > 0 else 0
        limit = SPARE_SILENT_SECONDS if role in SPARE_ROLES else SILENT_SECONDS
        if beat_ms and now_ms - beat_ms > limit * 1000:
            silent[role] = (now_ms - beat_ms) // 1000
    return silent
