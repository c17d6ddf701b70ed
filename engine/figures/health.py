"""Whether a broker lives and whether it is ready, for who only wants a yes or a no and its reasons.

Both follow from the verdict on the list of findings. A master whose slave is gone is DEGRADED: alive and ready, so that
no probe restarts it.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.board.cursors import Board
from engine.figures.finding import WORST, Finding, Verdict, verdict_of
from engine.figures.findings import findings_of
from engine.figures.ha_status import BROKER_STATES, of_board
from engine.protocol.ha.wire import ReasonCode
from engine.settings import replication
from engine.settings.config import BrokerConfig, BrokerRole


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


def alive(config: BrokerConfig, board: Board) -> Health:
    """Whether its processes live and its disk takes what it is given. Raises RegionMissing."""
    return _health(config, board, WORST["alive"], _findings(config, board))


def ready(config: BrokerConfig, board: Board, master_end: int | None) -> Health:
    """Whether it does its work; `master_end`: where its master's log ends, None where that is not known.

    Raises RegionMissing.
    """
    findings, lag = _findings(config, board), None
    if config.broker_role is BrokerRole.SLAVE and master_end is not None:
        lag, most = max(0, master_end - board.max_physical_offset.read()), config.ha_slave_fallbehind_max_bytes
        if lag >= most and not any(one.verdict is Verdict.NOT_READY for one in findings):
            what = f"it lacks {lag:,} bytes of its master's log, the limit is {most:,}"
            findings.append(Finding(ReasonCode.BEHIND, what, "wait until it has caught up", verdict=Verdict.NOT_READY))
    return _health(config, board, WORST["ready"], findings, lag)


def _findings(config: BrokerConfig, board: Board) -> list[Finding]:
    store = os.fspath(config.store_path_root_dir)
    status = of_board(board, (), store, replication.for_views(config))  # its rates are not looked at
    return findings_of(board, status)


def _health(
    config: BrokerConfig, board: Board, worst: Verdict, findings: list[Finding], lag: int | None = None
) -> Health:
    """`worst`: the worst verdict that still makes the answer a yes."""
    state = BROKER_STATES.get(board.broker_state.read(), "UNKNOWN")
    lines = [
        Reason(str(one.reason), line)
        for one in findings
        if one.verdict > worst
        for line in one.at_length or (f"{one.what}; next: {one.next_step}",)
    ]
    verdict = verdict_of(findings).name
    return Health(not lines, config.broker_name, config.broker_role.value, state, verdict, lag, lines)
