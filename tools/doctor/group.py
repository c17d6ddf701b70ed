"""A node among the brokers of its group: replication, fences, clocks, sizes of segments, the history of others."""

from __future__ import annotations

import time

from engine.clients.admin import Member
from engine.monitoring.finding import Finding, Verdict
from engine.monitoring.ha_status import ConnectionStatus, ha_status
from engine.protocol.ha.wire import ReasonCode
from store.reading.history import History
from tools.doctor.disk import history_of
from tools.doctor.node import Asking, Node, of_address
from tools.doctor.rows import Code, Level, Row, ok, unknown, wrong

CLOCK_MS_MAX = 1000


def own_rows(node: Node) -> list[Row]:
    """Return what its counters and files say, its disk's and replicas' too: all that `slipstream status` finds."""
    if node.running is None:
        return [unknown("replication", "its counters are on another host", "`slipstream ha status STORE` there")]
    status = ha_status(node.running.store_root)
    seen = [_row_of(one) for one in status.findings]
    if status.client is not None and status.client.reason_code == ReasonCode.OK:
        seen.append(ok("replication", f"follows {status.client.master}"))
    in_sync = [one for one in status.replicas if one.in_sync]
    return [*seen, *(ok("replica", f"{_who(one)}: in sync, {one.lag_bytes:,} bytes behind") for one in in_sync)]


def _row_of(one: Finding) -> Row:
    check = "disk" if one.reason == ReasonCode.DISK else "status"
    if one.verdict is Verdict.WELL:
        return Row(check, Level.OK, one.reason, one.what, one.next_step)
    return wrong(check, one.reason, " ".join(one.at_length) or one.what, one.next_step)


def _who(one: ConnectionStatus) -> str:
    return f"{one.replica} at {one.peer}, known by its {one.known_by}"


def clock_row(node: Node) -> Row:
    """Compare this host's clock with the node's, and with the newest message's time."""
    if node.ahead_ms is not None and abs(node.ahead_ms) > CLOCK_MS_MAX:
        return _clock_wrong("its clock", node.ahead_ms)
    newest = int(node.runtime.get("putMessageTimestamp") or 0)
    if newest and newest > time.time() * 1000 + CLOCK_MS_MAX:
        return _clock_wrong("the newest message", newest - time.time() * 1000)
    if node.ahead_ms is None:
        return unknown("clock", "it does not report its time; RocketMQ brokers cannot", "`chronyc tracking` there")
    return ok("clock", f"{node.ahead_ms:+.0f} ms against this host's")


def _clock_wrong(what: str, ahead_ms: float) -> Row:
    side = "ahead of" if ahead_ms > 0 else "behind"
    said = f"{what} is {abs(ahead_ms) / 1000:.1f} s {side} this host's clock"
    return wrong("clock", Code.CLOCK, said, "`chronyc tracking` on both hosts")


def member_rows(node: Node, members: list[Member], asking: Asking) -> list[Row]:
    """Return the rows of each other broker of the group, asked in turn."""
    return [row for member in members for row in _against(node, member, of_address(member.address, asking))]


def _against(node: Node, member: Member, other: Node) -> list[Row]:
    who = f"{member.broker_name}:{member.broker_id} at {member.address}"
    if "figures" in other.silence:
        silence = other.silence["figures"]
        return [wrong("group", ReasonCode.UNREACHABLE, f"{who}: {silence}", f"`slipstream doctor {member.address}`")]
    seen = [_segments(node, who, other), *_longer(node, who, member, other)]
    if other.ahead_ms is None:
        seen.append(unknown("clock", f"{who}: it does not report its time", "`chronyc tracking` there"))
    elif abs(other.ahead_ms) > CLOCK_MS_MAX:
        seen.append(_clock_wrong(f"the clock of {who}", other.ahead_ms))
    else:
        seen.append(ok("clock", f"{who}: {other.ahead_ms:+.0f} ms against this host's"))
    return seen


def _segments(node: Node, who: str, other: Node) -> Row:
    own, its = (one.setting("mappedFileSizeCommitLog") for one in (node, other))
    if not own or not its:
        return unknown("segments", f"{who}: the segment size cannot be read from here", "run this on its own host")
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
        return ok("history", f"everything that {who} has")
    what = f"{lacks:,} bytes that {who} has, from offset {its.from_offset:,} on, are missing here"
    next_step = "stop this broker, `mv STORE STORE.old`, start it again; without syncFromLastFile it fetches everything"
    return wrong("history", ReasonCode.GAP, what, next_step)
