"""What keeps a broker from its work, each in a few words with its reason code and the next step, the worst first.

`problems` says the same at length, of what stops a broker; this is for views that have a line for each. No questions.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.board import address_cursors
from engine.board.cursors import FRONTS, ROLES, SENDERS, Board, BrokerState
from engine.board.failures import failing
from engine.figures.client_status import SERVICES, SILENT_SECONDS, Finding, client_findings
from engine.figures.ha_status import HaStatus
from engine.figures.problems import effect_text, errno_text
from engine.protocol.ha.client import HaClientState
from engine.protocol.ha.policy import SYNC_MASTER
from engine.protocol.ha.wire import ADVICE, TRIED_SOON, CloseReason, ReasonCode
from engine.protocol.store.retention import DiskState
from ipc.clock import monotonic_ms
from store.errors import OwnFileDamaged
from store.files import divergence, epochs
from store.files.epochs import SaidRole

GONE_SECONDS_MAX = 3600  # a slave that was taken away for good is not shown as missing for ever
STUCK = "STUCK"
NO_SLAVE = "NO_SLAVE"


def findings_of(board: Board, status: HaStatus) -> list[Finding]:
    """Of a broker with its replication as `status` has it; none when all is well. Raises RegionMissing."""
    store = status.store
    return [
        *_of_the_disk(board, store), *_of_roles(board, store), *client_findings(board, store),
        *_of_the_pair(board, status), *_of_replicas(status), *_of_the_state(board, store),
    ]  # fmt: skip


def stalled(board: Board) -> dict[str, int]:
    """The roles that run and have not turned for long, and for how many seconds."""
    now_ms, silent = monotonic_ms(), {}
    for role in (*ROLES, *SENDERS):
        beat_ms = board.heartbeats[role].read() if board.pids[role].read() > 0 else 0
        if beat_ms and now_ms - beat_ms > SILENT_SECONDS * 1000:
            silent[role] = (now_ms - beat_ms) // 1000
    return silent


def _of_the_disk(board: Board, store: str) -> Iterator[Finding]:
    df = f"free space: `df -h {store}`"
    if errno := board.flush_errno.read():
        what = f"flush failed ({errno_text(errno)}): nothing is acknowledged above {board.flushed_offset.read():,}"
        yield Finding(ReasonCode.DISK, what, "check the disk, then restart the broker")
    state = DiskState(board.disk_state.read())
    if state > DiskState.NORMAL:
        effect = effect_text(state)
        yield Finding(ReasonCode.DISK, f"used to {board.disk_used_percent.read()} % ({state.name}): {effect}", df)
    if errno := board.allocation_errno.read():
        yield Finding(ReasonCode.DISK, f"no new segment can be made ({errno_text(errno)})", df)


def _of_roles(board: Board, store: str) -> Iterator[Finding]:
    for one in failing(board, board.directory):
        is_log = one.role == "dispatcher"
        look = f"`slipstream log verify {store}`" if is_log else "the broker's log, then restart it"
        death = "was given up" if one.is_given_up else f"died {one.deaths} times within a minute"
        code = ReasonCode.UNREADABLE if is_log and one.is_given_up else ReasonCode.KILLED
        yield Finding(code, f"the {one.role} {death}: {one.error or 'see the log'}", look)
    for role, seconds in stalled(board).items():
        if role not in (*FRONTS, *SERVICES):  # which `client_findings` has
            what = f"the {role} role has not turned for {seconds} s"
            yield Finding(STUCK, what, f"the broker's log; process {board.pids[role].read()}")


def _of_the_pair(board: Board, status: HaStatus) -> Iterator[Finding]:
    store = status.store
    try:
        parted, known = divergence.read(store), epochs.read(store)
    except OwnFileDamaged as damaged:
        yield Finding(damaged.code, str(damaged), f"`slipstream doctor {store}`")
        return
    words = board.ha_client
    follows = words.state.read() == HaClientState.TRANSFER
    if parted is not None:
        what = f"this log and its master's ({parted.master}) differ: nothing is copied"
        yield Finding(ReasonCode.DIVERGED, what, f"`slipstream ha status {store}`")
    newer = known.fenced_by if known.is_fenced and known.role is not SaidRole.SLAVE else None
    if newer is not None and not follows:
        what = f"{newer.broker or 'another broker'} is the newer master: this one takes no messages"
        yield Finding(ReasonCode.FENCED, what, f"`slipstream demote {store} --master HOST:PORT`")
    reason = CloseReason(words.reason.read())
    client = status.client
    if client is None or parted is not None or client.reason_code in (ReasonCode.OK, ReasonCode.DISK):
        return
    if reason in TRIED_SOON:
        master = address_cursors.text_of(words.master_address) or "its master"
        what, then = f"the master {master} does not answer", f"`slipstream doctor {store}`, or promote"
        yield Finding(client.reason_code, what, then)
    else:
        what = f"does not follow its master: {_advice(reason)}"
        yield Finding(client.reason_code, what, f"`slipstream doctor {store}`")


def _advice(reason: CloseReason) -> str:
    return "its address is not known" if reason is CloseReason.NONE else ADVICE[reason]


def _of_replicas(status: HaStatus) -> Iterator[Finding]:
    look = f"`slipstream ha status {status.store}`"
    if status.role == SYNC_MASTER and status.replicas_needed > 1 + status.in_sync_slaves:
        what = f"{status.in_sync_slaves} slaves in sync, a put waits for {status.replicas_needed - 1}"
        yield Finding(NO_SLAVE, what, f"`slipstream ha explain {status.store}`")
    for one in status.replicas:
        if one.reason == ReasonCode.BEHIND:
            lag = "" if one.lag_seconds is None else f", {one.lag_seconds:,.1f} s,"
            yield Finding(one.reason, f"{one.replica} lacks {one.lag_bytes:,} bytes{lag} too many to be in sync", look)
        elif not one.in_sync:
            what = f"{one.replica} is connected and has not reported for {one.silent_seconds:,.0f} s"
            yield Finding(one.reason, what, look)
    here = {_host(one.peer) for one in status.replicas}
    for gone in status.gone:
        if gone.ended_seconds < GONE_SECONDS_MAX and _host(gone.peer) not in here and gone.reason != ReasonCode.OK:
            yield Finding(gone.reason, f"slave {gone.peer} is gone since {gone.ended_seconds:,.0f} s", look)


def _host(peer: str) -> str:
    return peer.rpartition(":")[0]


def _of_the_state(board: Board, store: str) -> Iterator[Finding]:
    if board.broker_state.read() != BrokerState.RUNNING:
        what = f"this broker is {_state(board)}"
        yield Finding(ReasonCode.STOPPED, what, f"wait: `slipstream status --watch {store}`")


def _state(board: Board) -> str:
    state = board.broker_state.read()
    return BrokerState(state).name if state in list(BrokerState) else "UNKNOWN"
