"""Whether a broker lives and whether it is ready, for who only wants a yes or a no and its reasons.

Both follow from the verdict on the list of findings. A master whose slave is gone is DEGRADED: alive and ready, so that
no probe restarts it.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.monitoring.finding import WORST, Finding, Verdict, verdict_of
from engine.monitoring.findings import findings_of
from engine.monitoring.ha_status import BROKER_STATES, of_counters
from engine.protocol.ha.wire import ReasonCode
from engine.settings import replication
from engine.settings.config import BrokerConfig, BrokerRole
from engine.shared_memory.cursors import BrokerCounters


@dataclass(frozen=True)
class Reason:
    """A reason why a broker is not ready: a code, as `ha status` has them, and its meaning."""

    reason: str
    what: str


@dataclass(frozen=True)
class Health:
    """An answer; `verdict` is the broker's whatever was asked, `lag_bytes` is a slave's, None where its master's end is
    not known."""

    ok: bool
    broker_name: str
    role: str
    state: str
    verdict: str
    lag_bytes: int | None = None
    reasons: list[Reason] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the health as plain values for json.dumps."""
        return asdict(self)


def alive(config: BrokerConfig, counters: BrokerCounters) -> Health:
    """Whether its processes live and its disk takes what it is given. Raises RegionMissing."""
    return _health(config, counters, WORST["alive"], _findings(config, counters))


def ready(config: BrokerConfig, counters: BrokerCounters, master_end: int | None) -> Health:
    """Whether it does its work; `master_end`: where its master's log ends, None where that is not known.

    Raises RegionMissing.
    """
    findings, lag = _findings(config, counters), None
    if config.broker_role is BrokerRole.SLAVE and master_end is not None:
        lag, most = max(0, master_end - counters.max_physical_offset.read()), config.ha_slave_fallbehind_max_bytes
        if lag >= most and not any(one.verdict is Verdict.NOT_READY for one in findings):
            what = f"it lacks {lag:,} bytes of its master's log, the limit is {most:,}"
            findings.append(Finding(ReasonCode.BEHIND, what, "wait until it has caught up", verdict=Verdict.NOT_READY))
    return _health(config, counters, WORST["ready"], findings, lag)


def _findings(config: BrokerConfig, counters: BrokerCounters) -> list[Finding]:
    store = os.fspath(config.store_path_root_dir)
    status = of_counters(counters, (), store, replication.for_views(config))  # its rates are not looked at
    return findings_of(counters, status)


def _health(
    config: BrokerConfig, counters: BrokerCounters, worst: Verdict, findings: list[Finding], lag: int | None = None
) -> Health:
    """`worst`: the worst verdict that still makes the answer a yes."""
    state = BROKER_STATES.get(counters.broker_state.read(), "UNKNOWN")
    lines = [
        Reason(str(one.reason), line)
        for one in findings
        if one.verdict > worst
        for line in one.at_length or (f"{one.what}; next: {one.next_step}",)
    ]
    verdict = verdict_of(findings).name
    return Health(not lines, config.broker_name, config.broker_role.value, state, verdict, lag, lines)
