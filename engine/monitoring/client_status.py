"""What serves clients: fronts, the clients role, a master's services; and what keeps them from it, with what to type.

Implements: nothing of RocketMQ's, whose threads say less
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from engine.monitoring.finding import Finding, Verdict, stalled
from engine.shared_memory.cursors import FRONTS, BrokerCounters, FrontCursors, Serving

SERVICES = ("clients", "delay", "transactions")
SLOW_MS = 1000


@dataclass(frozen=True)
class FrontStatus:
    """One front; `waits_ms`: how long its oldest send does."""

    front: str
    connections: int
    pulls_held: int
    sends: int
    sends_in_flight: int
    waits_ms: int
    sends_refused: int
    pulls: int
    bytes_in_flight: int


def fronts_of(counters: BrokerCounters) -> list[FrontStatus]:
    """Return the status of each front that runs."""
    return [
        _front(name, counters.fronts[number]) for number, name in enumerate(FRONTS) if counters.pids[name].read() > 0
    ]


def _front(name: str, words: FrontCursors) -> FrontStatus:
    return FrontStatus(
        name,
        words.connections.read(),
        words.pulls_held.read(),
        words.sends.read(),
        words.sends_in_flight.read(),
        words.send_wait_ms.read(),
        words.sends_refused.read(),
        words.pulls.read(),
        words.bytes_in_flight.read(),
    )


def are_serving(counters: BrokerCounters) -> bool:
    """Whether every front that runs serves its ports, or says why it cannot."""
    begun = [words for name, words in zip(FRONTS, counters.fronts, strict=True) if counters.pids[name].read()]
    return all(words.serving.read() == Serving.ALL or words.listen_errno.read() for words in begun)


def services_of(counters: BrokerCounters) -> dict[str, dict[str, int]]:
    """Return the counters of each service that runs, since its start."""
    delay, transactions, sidecar = counters.delay, counters.transactions, counters.sidecar
    counted = {
        "delay": {
            "delivered": delay.delivered, "under way": delay.under_way, "refused": delay.refused,
            "dropped": delay.dropped, "repeated": delay.repeated,
        },
        "transactions": {
            "rounds": transactions.rounds, "checks": transactions.checks, "put back": transactions.put_back,
            "given up": transactions.given_up,
        },
        "sidecar": {
            "built": sidecar.built, "refused": sidecar.refused, "done up to": sidecar.done_offset,
            "waits for": sidecar.waits_for,
        },
    }  # fmt: skip
    return {
        name: {what: cursor.read() for what, cursor in of.items()}
        for name, of in counted.items()
        if counters.pids[name].read() > 0
    }


def client_findings(counters: BrokerCounters, store: str) -> list[Finding]:
    """Return what keeps clients from being served; nothing when they are."""
    findings, silent = [], stalled(counters)
    for name in (*FRONTS, *SERVICES):
        if name in silent:
            what = f"the {name} role has not moved for {silent[name]} s"
            look = f"`slipstream status {store}` shows its CPU time, the broker's log the reason"
            findings.append(_finding("STUCK", what, look, Verdict.NOT_READY))
    for number, name in enumerate(FRONTS):
        words = counters.fronts[number]
        if counters.pids[name].read() > 0:
            findings += _of_front(name, words.listen_errno.read(), words.send_wait_ms.read(), store)
    return findings


def _finding(reason: str, what: str, next_step: str, verdict: Verdict) -> Finding:
    return Finding(reason, what, next_step, (f"{what}. Next: {next_step}",), verdict)


def _of_front(name: str, listen_errno: int, waits_ms: int, store: str) -> list[Finding]:
    findings = []
    if listen_errno:
        why = os.strerror(listen_errno) if listen_errno > 0 else "unknown error"
        what = f"{name} cannot serve a remoting port ({why}): clients do not reach this broker there"
        next_step = "`ss -ltnp` names the program at listenPort or listenPort - 2; the broker tries again each second"
        findings.append(_finding("NO_LISTENER", what, next_step, Verdict.NOT_READY))
    if waits_ms > SLOW_MS:
        what = f"the oldest send at {name} waits for {waits_ms:,} ms: not accepted by the log, or not confirmed"
        look = f"`slipstream ha status {store}`, then `slipstream stats {store}`"
        findings.append(_finding("SLOW", what, look, Verdict.DEGRADED))
    return findings
