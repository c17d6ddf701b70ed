"""A node among the brokers of its group: replication, fences, clocks, sizes of segments, the history of others."""

from __future__ import annotations

import time

from engine.board.failures import failing
from engine.figures.ha_status import ConnectionStatus, HaStatus, ha_status
from engine.figures.problems import of_a_role
from engine.protocol.ha.wire import ReasonCode
from store.errors import StoreError
from store.files import divergence, epochs
from store.files.epochs import SaidRole
from store.reading.extent import Running
from store.reading.history import History
from tools.admin.client import Member
from tools.doctor.disk import history_of
from tools.doctor.node import Asking, Node, board_of, of_address
from tools.doctor.rows import Code, Row, ok, unknown, wrong

CLOCK_MS_MAX = 1000
NEXT = "; next: "
PASSING = {"CLOSED", "STOPPED", "KILLED", "TIMEOUT", "OK"}


def own_rows(node: Node) -> list[Row]:
    """What its own counters and files say of replication."""
    if node.running is None:
        return [unknown("replication", "its counters lie on another host", "`slipstream ha status STORE` there")]
    store = str(node.running.store_root)
    status = ha_status(store)
    state = f"`slipstream ha status {store}`"
    seen = [*_processes(node.running), *_parted(store)]
    if status.client is not None:
        client = status.client
        if client.reason_code == ReasonCode.OK:
            seen.append(ok("replication", f"follows {client.master}"))
        else:
            what, _next, command = f"does not follow {client.master}: {client.advice}".partition(NEXT)
            seen.append(wrong("replication", client.reason_code, what, command or state))
    return [*seen, *_followers(status, state)]


def _processes(running: Running) -> list[Row]:
    """Those that do not do their work."""
    board = board_of(running)
    try:
        roles = failing(board, running.region_directory)
    finally:
        board.counters.close()
    next_step = f"`slipstream status {running.store_root}`"
    return [wrong("processes", ReasonCode.KILLED, of_a_role(one).at_length[0], next_step) for one in roles]


def _followers(status: HaStatus, state: str) -> list[Row]:
    here = {one.peer.rpartition(":")[0] for one in status.replicas}
    seen = [
        ok("replica", f"{_who(one)}: in sync, {one.lag_bytes:,} bytes behind")
        if one.in_sync
        else wrong("replica", one.reason, f"{_who(one)}: not in sync, {one.lag_bytes:,} bytes behind", state)
        for one in status.replicas
    ]
    for one in status.gone:
        if one.reason not in PASSING and one.peer.rpartition(":")[0] not in here:
            said = f"{one.peer}: {one.close_reason} {one.ended_seconds:.0f} s ago: {one.advice}"
            what, _next, command = said.partition(NEXT)
            seen.append(wrong("replica", one.reason, what, command or state))
    missing = status.replicas_needed - 1 - status.in_sync_slaves
    if status.client is None and missing > 0:
        what = f"a put waits for {status.replicas_needed - 1} replica(s), {status.in_sync_slaves} are in sync"
        seen.append(wrong("replication", ReasonCode.BEHIND, what, f"start the slave; {state}"))
    return seen


def _who(one: ConnectionStatus) -> str:
    return f"{one.replica} at {one.peer}, known by its {one.known_by}"


def _parted(store: str) -> list[Row]:
    """Notes in the store that keep it from its role."""
    try:
        parted, known = divergence.read(store), epochs.read(store)
    except StoreError as error:
        next_step = f"`slipstream replica check {store} --with HOST:PORT`"
        return [wrong("role", ReasonCode.UNREADABLE, str(error), next_step)]
    seen = []
    if parted is not None:
        next_step = f"`slipstream replica check {store} --with HOST:PORT` of its master"
        seen.append(wrong("role", ReasonCode.DIVERGED, parted.text(), next_step))
    if known.is_fenced and known.fenced_by is not None and known.role is not SaidRole.SLAVE:
        newer = known.fenced_by
        what = f"it takes no messages: {newer.broker or 'another broker'} is the master of epoch {newer.epoch}"
        seen.append(wrong("role", ReasonCode.FENCED, what, f"`slipstream demote {store} --master HOST:PORT`"))
    return seen


def clock_row(node: Node) -> Row:
    """This host's clock against the node's, and against the newest message's."""
    if node.ahead_ms is not None and abs(node.ahead_ms) > CLOCK_MS_MAX:
        return _clock_wrong("its clock", node.ahead_ms)
    newest = int(node.runtime.get("putMessageTimestamp") or 0)
    if newest and newest > time.time() * 1000 + CLOCK_MS_MAX:
        return _clock_wrong("the newest message", newest - time.time() * 1000)
    if node.ahead_ms is None:
        return unknown("clock", "it does not tell the time; RocketMQ's have no word for it", "`chronyc tracking` there")
    return ok("clock", f"{node.ahead_ms:+.0f} ms against this host's")


def _clock_wrong(what: str, ahead_ms: float) -> Row:
    side = "ahead of" if ahead_ms > 0 else "behind"
    said = f"{what} is {abs(ahead_ms) / 1000:.1f} s {side} this host's clock"
    return wrong("clock", Code.CLOCK, said, "`chronyc tracking` on both hosts")


def member_rows(node: Node, members: list[Member], asking: Asking) -> list[Row]:
    """Each other broker of the group, asked in turn."""
    return [row for member in members for row in _against(node, member, of_address(member.address, asking))]


def _against(node: Node, member: Member, other: Node) -> list[Row]:
    who = f"{member.broker_name}:{member.broker_id} at {member.address}"
    if "figures" in other.silence:
        silence = other.silence["figures"]
        return [wrong("group", ReasonCode.UNREACHABLE, f"{who}: {silence}", f"`slipstream doctor {member.address}`")]
    seen = [_segments(node, who, other), *_longer(node, who, member, other)]
    if other.ahead_ms is None:
        seen.append(unknown("clock", f"{who}: it does not tell the time", "`chronyc tracking` there"))
    elif abs(other.ahead_ms) > CLOCK_MS_MAX:
        seen.append(_clock_wrong(f"the clock of {who}", other.ahead_ms))
    else:
        seen.append(ok("clock", f"{who}: {other.ahead_ms:+.0f} ms against this host's"))
    return seen


def _segments(node: Node, who: str, other: Node) -> Row:
    own, its = (one.setting("mappedFileSizeCommitLog") for one in (node, other))
    if not own or not its:
        return unknown("segments", f"{who}: the size of segments is not to be read from here", "ask on its own host")
    if own != its:
        what = f"segments of {own} bytes here, of {its} bytes at {who}"
        next_step = f"set mappedFileSizeCommitLog={its} and begin a new store"
        return wrong("segments", ReasonCode.SEGMENT_SIZE, what, next_step)
    return ok("segments", f"{own} bytes, as at {who}")


def _longer(node: Node, who: str, member: Member, other: Node) -> list[Row]:
    """Whether the master has history that this slave lacks."""
    own, its = history_of(node.runtime), history_of(other.runtime)
    if own is None or its is None or member.broker_id or node.setting("brokerId") in ("", "0"):
        return []
    return [_history_row(own, its, who)]


def _history_row(own: History, its: History, who: str) -> Row:
    lacks = own.from_offset - its.from_offset
    if lacks <= 0:
        return ok("history", f"all that {who} has")
    what = f"{lacks:,} bytes that {who} has, from offset {its.from_offset:,} on, are not here"
    next_step = "stop this broker, `mv STORE STORE.old`, start it: without syncFromLastFile it fetches all"
    return wrong("history", ReasonCode.GAP, what, next_step)
