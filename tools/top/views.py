"""The five views: which rows each has, what its columns say and sort by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.text import Text

from engine.monitoring.ha_status import ConnectionStatus
from engine.monitoring.live.broker import Look
from engine.monitoring.live.queues import TopicFigures
from engine.protocol.ha.wire import ReasonCode
from tools.common.how_many import how_many
from tools.show.ha_tables import bytes_text, seconds_text
from tools.top.drawing import Glyphs, curve, fitted

BAD = "bold red"
GAP = 1
FULL_RATIO = 0.9
NONE_LAST = -1.0
NAME_LEAST, NAME_MOST, CURVE_LEAST, CURVE_MOST = 14, 48, 8, 60
Sort = Callable[[Any], Any]


class Column(NamedTuple):
    """A column; `width` 0: what the others leave, the view's first such column; `low_first`: how it sorts at first."""

    title: str
    width: int
    text: Callable[[Any], str]
    sort: Sort
    to_right: bool = True
    low_first: bool = False


class Replica(NamedTuple):
    """A row of replicas: a slave, or of a slave its master."""

    name: str
    reason: str
    lag_bytes: int | None
    lag_seconds: float | None
    bytes_per_second: float | None
    silent_seconds: float | None
    samples: Sequence[float]
    status: ConnectionStatus | None


@dataclass(frozen=True)
class View:
    """Rows, columns and order of one panel."""

    name: str
    title: Callable[[Look], str]
    rows: Callable[[Look], Sequence[Any]]
    columns: tuple[Column, ...]
    name_of: Callable[[Any], str]
    sorted_by: int | None = None  # a column; None: as they come
    is_bad: Callable[[Any], bool] = lambda _row: False
    empty: str = "nothing"
    curve_of: Callable[[Any], Sequence[float]] | None = None
    curve_title: str = ""


def _rate(count: float | None) -> str:
    return "-" if count is None else f"{bytes_text(count)}/s"


def _count(number: float) -> str:
    """Format a number in about seven cells."""
    for step, unit in ((1e12, "T"), (1e9, "G"), (1e7, "M")):
        if number >= step:
            return f"{number / (1e6 if unit == 'M' else step):,.1f}{unit}"
    return f"{number:,.0f}"


def replicas(look: Look) -> list[Replica]:
    """Slaves that are connected; of a slave its master first."""
    rows = [
        Replica(
            f"{one.replica} {one.peer}" if one.replica and not one.peer.startswith(one.replica) else one.peer,
            one.reason,
            one.lag_bytes,
            one.lag_seconds,
            one.acked_bytes_per_second,
            one.silent_seconds,
            look.lag_curves.get(one.slot, []),
            one,
        )
        for one in look.replication.replicas
    ]
    client = look.replication.client
    if client is None:
        return rows
    name, rate = f"master {client.master}", client.received_bytes_per_second
    curve_of = look.received_curve
    return [Replica(name, client.reason_code, None, None, rate, client.silent_seconds, curve_of, None), *rows]


def _size_of(topic: TopicFigures) -> int:
    return topic.bytes // max(1, topic.messages)


def _producers_title(look: Look) -> str:
    return f"Producers: {how_many(len(look.rings), 'ring')}, {sum(ring.waiting for ring in look.rings):,} records wait"


def _consumers_title(look: Look) -> str:
    held, connected = (sum(getattr(one, name) for one in look.fronts) for name in ("pulls_held", "connections"))
    part = "" if look.groups_are_whole else ", still reading"
    groups = how_many(len(look.groups), "group")
    return f"Consumers: {groups}{part}; {how_many(connected, 'connection')}, {held:,} pulls held"


def _replicas_title(look: Look) -> str:
    ha = look.replication
    if ha.client is not None:
        return f"Replication: {ha.client.state}"
    return f"Replicas: {ha.in_sync_slaves} in sync, a put waits for {ha.replicas_needed - 1}"


REPLICAS = View(
    "replicas",
    _replicas_title,
    replicas,
    (
        Column("replica", 0, lambda row: row.name, lambda row: row.name, False, True),
        Column("reason", 10, lambda row: row.reason, lambda row: row.reason == ReasonCode.OK, False, True),
        Column("lag", 10, lambda row: bytes_text(row.lag_bytes), lambda row: row.lag_bytes or NONE_LAST),
        Column("in time", 8, lambda row: seconds_text(row.lag_seconds), lambda row: row.lag_seconds or NONE_LAST),
        Column("bytes", 11, lambda row: _rate(row.bytes_per_second), lambda row: row.bytes_per_second or NONE_LAST),
    ),
    lambda row: str(row.name),
    2,
    lambda row: row.reason != ReasonCode.OK,
    "no slave is connected",
    lambda row: row.samples,
    "lag, 5 min",
)
TOPICS = View(
    "topics",
    lambda look: f"Topics: {len(look.topics):,} with messages since the start",
    lambda look: look.topics,
    (
        Column("topic", 0, lambda row: row.topic, lambda row: row.topic, False, True),
        Column("put/s", 9, lambda row: _count(row.messages_per_second), lambda row: row.messages_per_second),
        Column("bytes/s", 11, lambda row: _rate(row.bytes_per_second), lambda row: row.bytes_per_second),
        Column("messages", 12, lambda row: _count(row.messages), lambda row: row.messages),
        Column("bytes", 10, lambda row: bytes_text(row.bytes), lambda row: row.bytes),
        Column("each", 9, lambda row: bytes_text(_size_of(row)), _size_of),
        Column("queues", 7, lambda row: f"{row.queues:,}", lambda row: row.queues),
    ),
    lambda row: str(row.topic),
    1,
    empty="no message was put since the start",
)
PRODUCERS = View(
    "producers",
    _producers_title,
    lambda look: look.rings,
    (
        Column("owner", 0, lambda row: row.owner, lambda row: row.owner, False, True),
        Column("ring", 5, lambda row: str(row.ring), lambda row: row.ring, True, True),
        Column("pid", 8, lambda row: str(row.pid), lambda row: row.pid, True, True),
        Column("put/s", 9, lambda row: _count(row.records_per_second), lambda row: row.records_per_second),
        Column("waiting", 9, lambda row: f"{row.waiting:,}", lambda row: row.waiting),
        Column("full", 7, lambda row: f"{row.fill_ratio:.1%}", lambda row: row.fill_ratio),
        Column("records", 13, lambda row: _count(row.records), lambda row: row.records),
        Column("refused", 8, lambda row: f"{row.refused:,}", lambda row: row.refused),
    ),
    lambda row: f"{row.owner} {row.ring}",
    3,
    lambda row: row.fill_ratio > FULL_RATIO,
    "no producer has a ring",
)
CONSUMERS = View(
    "consumers",
    _consumers_title,
    lambda look: look.groups,
    (
        Column("group", 0, lambda row: row.group, lambda row: row.group, False, True),
        Column("lag", 12, lambda row: f"{row.lag:,}", lambda row: row.lag),
        Column("taken/s", 10, lambda row: _count(row.taken_per_second), lambda row: row.taken_per_second),
        Column("topics", 7, lambda row: f"{row.topics:,}", lambda row: row.topics),
        Column("queues", 8, lambda row: f"{row.queues:,}", lambda row: row.queues),
    ),
    lambda row: str(row.group),
    1,
    empty="no group has consumed anything",
)
ROLES = View(
    "roles",
    lambda look: f"Roles: {len(look.roles)}",
    lambda look: look.roles,
    (
        Column("role", 0, lambda row: row.role, lambda row: row.role, False, True),
        Column("pid", 8, lambda row: str(row.pid or "-"), lambda row: row.pid, True, True),
        Column("state", 9, lambda row: row.state, lambda row: row.state == "RUNNING", False, True),
        Column("CPU %", 7, lambda row: f"{row.cpu_percent:.1f}", lambda row: row.cpu_percent),
        Column("RSS", 10, lambda row: bytes_text(row.rss_bytes), lambda row: row.rss_bytes),
        Column("restarts", 8, lambda row: str(row.restarts), lambda row: row.restarts),
        Column(
            "turned",
            8,
            lambda row: seconds_text(row.heartbeat_age_seconds),
            lambda row: row.heartbeat_age_seconds or NONE_LAST,
        ),
    ),
    lambda row: str(row.role),
    None,
    lambda row: row.state != "RUNNING" or row.restarts > 0,
)
VIEWS = (REPLICAS, TOPICS, PRODUCERS, CONSUMERS, ROLES)


def chosen(view: View, rows: Sequence[Any], column: int | None, turned: bool, text: str = "") -> list[Any]:
    """The rows whose names have the text, in the order of a column; `turned`: the other way round than usual."""
    wanted = text.casefold()
    kept = [row for row in rows if wanted in view.name_of(row).casefold()] if wanted else list(rows)
    if column is None:
        return kept[::-1] if turned else kept
    of = view.columns[column]
    return sorted(kept, key=of.sort, reverse=of.low_first == turned)


def widths_of(view: View, width: int) -> tuple[list[int], int]:
    """The columns' cells, 0 for what has no room, and the curve's."""
    fixed = [column.width for column in view.columns]
    least = NAME_LEAST + (CURVE_LEAST + GAP if view.curve_of is not None else 0)
    while sum(fixed) + GAP * sum(map(bool, fixed)) + least > width and any(fixed):
        fixed[max(at for at, cells in enumerate(fixed) if cells)] = 0
    left = width - sum(fixed) - GAP * sum(map(bool, fixed))
    curve_cells = 0
    if view.curve_of is not None and left - NAME_LEAST - GAP >= CURVE_LEAST:
        curve_cells = min(CURVE_MOST, (left - NAME_LEAST) // 2)
        left -= curve_cells + GAP
    left = min(left, NAME_MOST)
    widths = [left if column.width == 0 else cells for column, cells in zip(view.columns, fixed, strict=True)]
    return widths, curve_cells


def heading(view: View, width: int, column: int | None, turned: bool, glyphs: Glyphs) -> Text:
    """The titles; an arrow at the one that is sorted by, up where the least comes first."""
    widths, curve_cells = widths_of(view, width)
    parts = []
    for at, (of, cells) in enumerate(zip(view.columns, widths, strict=True)):
        mark = (glyphs.up if of.low_first != turned else glyphs.down) if at == column else ""
        if cells:
            parts.append(fitted(f"{of.title}{mark}", cells, to_right=of.to_right and of.width > 0))
    if curve_cells:
        parts.append(fitted(view.curve_title, curve_cells))
    return Text((" " * GAP).join(parts), style="bold", no_wrap=True)


def row_line(view: View, row: Any, width: int, glyphs: Glyphs, style: str = "") -> Text:
    """Return one row's line; `style` applies to all but the curve."""
    widths, curve_cells = widths_of(view, width)
    parts = [
        fitted(of.text(row), cells, to_right=of.to_right and of.width > 0, cut=glyphs.cut)
        for of, cells in zip(view.columns, widths, strict=True)
        if cells
    ]
    line = Text((" " * GAP).join(parts), style=BAD if view.is_bad(row) else "", no_wrap=True)
    line.stylize(style)
    if curve_cells and view.curve_of is not None:
        line.append(" " * GAP + fitted(curve(view.curve_of(row), curve_cells, glyphs), curve_cells), style="cyan")
    return line
