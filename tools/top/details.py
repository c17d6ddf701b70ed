"""One row of a view looked at closely: what is said of it, and its queues where it has some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from engine.monitoring.live.broker import LiveBroker, Look
from engine.monitoring.live.groups import GroupFigures, QueueLag
from engine.monitoring.live.queues import TopicFigures
from engine.monitoring.live.rings import RingFigures
from engine.monitoring.live.roles import RoleFigures
from tools.common.how_many import how_many
from tools.show.ha_tables import ROWS, bytes_text, seconds_text
from tools.top.drawing import Glyphs, curve
from tools.top.views import Column, Replica, View

MEMBERS_SHOWN = 20
ASKING = ["(querying the broker)"]


class Details(NamedTuple):
    """Lines, and a view of rows below them."""

    lines: list[str]
    view: View | None = None
    rows: Sequence[Any] = ()


def _pairs(*pairs: tuple[str, str]) -> list[str]:
    return [f"{name:<20}{value}" for name, value in pairs]


QUEUES_OF_TOPIC = View(
    "queues",
    lambda _look: "queues",
    lambda _look: (),
    (
        Column("queue", 0, lambda row: str(row[0]), lambda row: row[0], True, True),
        Column("ends at", 20, lambda row: f"{row[1]:,}", lambda row: row[1]),
    ),
    lambda row: str(row[0]),
    0,
    empty="no queue has entries",
)


def _topic(row: TopicFigures, broker: LiveBroker) -> Details:
    lines = _pairs(
        ("put a second", f"{row.messages_per_second:,.1f} messages, {bytes_text(row.bytes_per_second)}"),
        ("since the start", f"{row.messages:,} messages, {bytes_text(row.bytes)} in the log"),
        ("a message has", bytes_text(row.bytes // max(1, row.messages))),
    )
    return Details(lines, QUEUES_OF_TOPIC, broker.queues.ends_of(row.topic))


def _queue_name(row: QueueLag) -> str:
    return f"{row.topic}/{row.queue_id}"


QUEUES_OF_GROUP = View(
    "lags",
    lambda _look: "queues",
    lambda _look: (),
    (
        Column("topic/queue", 0, _queue_name, lambda row: (row.topic, row.queue_id), False, True),
        Column("offset", 16, lambda row: f"{row.offset:,}", lambda row: row.offset),
        Column("end", 16, lambda row: f"{row.end:,}", lambda row: row.end),
        Column("lag", 12, lambda row: f"{row.lag:,}", lambda row: row.lag),
    ),
    _queue_name,
    3,
    empty="it has no offsets here",
)


def _group(row: GroupFigures, broker: LiveBroker, members: Sequence[str] | None) -> Details:
    named = ASKING if members is None else list(members[:MEMBERS_SHOWN]) or ["nobody"]
    if members is not None and len(members) > MEMBERS_SHOWN:
        named.append(f"and {len(members) - MEMBERS_SHOWN:,} more: slipstream groups STORE -g {row.group}")
    lines = _pairs(
        ("lag", f"{how_many(row.lag, 'message')}, {how_many(row.queues, 'queue')} of {how_many(row.topics, 'topic')}"),
        ("takes", f"{row.taken_per_second:,.1f} messages a second"),
        *((("members", name) if not number else ("", name)) for number, name in enumerate(named)),
    )
    return Details(lines, QUEUES_OF_GROUP, broker.groups.queues_of(row.group))


def _replica(row: Replica, look: Look, width: int, glyphs: Glyphs) -> Details:
    if row.status is not None:
        lines = _pairs(*((label, str(cell(row.status))) for label, cell in ROWS))
    else:
        client = look.replication.client
        assert client is not None
        lines = _pairs(
            ("state", client.state),
            ("reason", client.reason_code),
            ("received", bytes_text(client.transferred_bytes)),
            ("silent for", seconds_text(client.silent_seconds)),
            ("next", client.advice or "-"),
        )
    what = "lag" if row.status is not None else "a second"
    curves = []
    for seconds in (60, 300, 600):
        drawn = curve(row.samples, max(10, width - 36), glyphs, seconds)
        most = bytes_text(max(row.samples[-seconds:], default=0))
        curves.append((f"{what}, {seconds // 60} min", f"{f'up to {most}':<16}{drawn}"))
    return Details([*_pairs(*curves), *lines])


def _ring(row: RingFigures) -> Details:
    return Details(
        _pairs(
            ("owner", f"{row.owner}, process {row.pid}"),
            ("put a second", f"{row.records_per_second:,.1f} records"),
            ("waiting", f"{row.waiting:,} records, {row.fill_ratio:.1%} of its places"),
            ("so far", f"{row.records:,} records, {row.refused:,} refused"),
        )
    )


def _role(row: RoleFigures, look: Look) -> Details:
    lines = _pairs(
        ("process", str(row.pid or "-")),
        ("state", row.state),
        ("CPU", f"{row.cpu_percent:.1f} % of a core"),
        ("memory", bytes_text(row.rss_bytes)),
        ("started again", f"{row.restarts} times"),
        ("turned last", f"{seconds_text(row.heartbeat_age_seconds)} ago"),
    )
    for front in look.fronts:
        if front.front == row.role:
            lines += _pairs(
                ("connections", f"{front.connections:,}, {front.pulls_held:,} pulls held"),
                ("sends", f"{front.sends:,}, {front.sends_in_flight:,} wait, the oldest for {front.waits_ms:,} ms"),
                ("pulls answered", f"{front.pulls:,}"),
                ("refused", f"{front.sends_refused:,}"),
            )
    return Details(lines)


def details_of(
    view: View, row: Any, look: Look, broker: LiveBroker, members: Sequence[str] | None, width: int, glyphs: Glyphs
) -> Details:
    """Return the details of one row of a view; `members`: a group's clients, None while they are not known."""
    makers: dict[str, Callable[[], Details]] = {
        "replicas": lambda: _replica(row, look, width, glyphs),
        "topics": lambda: _topic(row, broker),
        "producers": lambda: _ring(row),
        "consumers": lambda: _group(row, broker, members),
        "roles": lambda: _role(row, look),
    }
    return makers[view.name]()
