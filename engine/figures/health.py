"""Whether a broker lives and whether it is ready, for who only wants a yes or a no and its reasons.

Alive: no process was given up and the disk did not fail; a restart mends what is not. Ready: it does what its role is
for: it runs, its ports are bound, a master takes messages, a slave is in sync by the rule by which masters count it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine.board.addresses import host_and_port
from engine.board.cursors import SPARE_ROLES, Board, BrokerState
from engine.board.failures import failing
from engine.figures.finding import lines_of
from engine.figures.ha_status import BROKER_STATES, client
from engine.figures.problems import of_a_role, of_the_disk
from engine.protocol.ha.wire import ReasonCode
from engine.protocol.store.retention import DiskState
from engine.settings.config import BrokerConfig, BrokerRole


@dataclass(frozen=True)
class Reason:
    """Why not: a reason code, as `ha status` has them, and what it means."""

    reason: str
    what: str


@dataclass(frozen=True)
class Health:
    """An answer; `lag_bytes` is a slave's, None where its master's end is not known."""

    ok: bool
    broker_name: str
    role: str
    state: str
    lag_bytes: int | None = None
    reasons: list[Reason] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for json.dumps."""
        return asdict(self)


def alive(config: BrokerConfig, board: Board) -> Health:
    """Whether its processes live and its disk takes what it is given."""
    reasons = _dead(board, board.directory)
    return _health(config, board, reasons)


def ready(config: BrokerConfig, board: Board, master_end: int | None) -> Health:
    """Whether it does its work; `master_end`: where its master's log ends, None where that is not known."""
    reasons, lag = _dead(board, board.directory), None
    state = board.broker_state.read()
    if state != BrokerState.RUNNING:
        reasons.append(Reason(ReasonCode.STOPPED, f"this broker is {BROKER_STATES.get(state, 'UNKNOWN')}"))
    for port, name in ((board.listen_port, "listenPort"), (board.ha_listen_port, "haListenPort")):
        if not port.read():
            reasons.append(Reason(ReasonCode.NO_LISTENER, f"{name} is not bound yet; the broker's log says why"))
    if config.broker_role is not BrokerRole.SLAVE:
        if board.disk_state.read() >= DiskState.READ_ONLY and not any(one.reason == ReasonCode.DISK for one in reasons):
            reasons += [Reason(ReasonCode.DISK, line) for line in lines_of(of_the_disk(board))]
    else:
        lag = None if master_end is None else max(0, master_end - board.max_physical_offset.read())
        reasons += _of_a_slave(config, board, lag)
    return _health(config, board, reasons, lag)


def _health(config: BrokerConfig, board: Board, reasons: list[Reason], lag: int | None = None) -> Health:
    state = BROKER_STATES.get(board.broker_state.read(), "UNKNOWN")
    return Health(not reasons, config.broker_name, config.broker_role.value, state, lag, reasons)


def _dead(board: Board, directory: Path) -> list[Reason]:
    """What a restart, or a new disk, is needed for."""
    reasons = []
    for one in failing(board, directory):
        if one.is_given_up and one.role not in SPARE_ROLES:
            dead = of_a_role(one)
            reasons.append(Reason(dead.reason, dead.at_length[0]))
    if board.flush_errno.read():
        reasons += [Reason(ReasonCode.DISK, line) for line in lines_of(of_the_disk(board))]
    return reasons


def _of_a_slave(config: BrokerConfig, board: Board, lag: int | None) -> list[Reason]:
    status = client(board, ())
    if status.state != "TRANSFER" or status.reason_code != ReasonCode.OK:
        written = config.ha_master_address
        at = host_and_port(*written) if written is not None else status.master
        what = f"it is not connected to its master ({at}): {status.advice}"
        return [Reason(status.reason_code, what)]
    most = config.ha_slave_fallbehind_max_bytes
    if lag is not None and lag >= most:
        return [Reason(ReasonCode.BEHIND, f"it lacks {lag:,} bytes of its master's log, {most:,} are too many")]
    return []
