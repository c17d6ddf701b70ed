"""How `slipstream ha` shows replication and explanations to people: tables that fit a terminal."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from engine.monitoring.ha_status import ClientStatus, ConnectionStatus, EndedStatus, HaStatus
from engine.protocol.ha.explanation import Explanation, Row
from engine.protocol.ha.wire import CODES, CloseReason, ReasonCode
from tools.show.history import history_text
from tools.show.table import table_of

KIB, STEPS = 1024.0, ("B", "KiB", "MiB", "GiB", "TiB")
MINUTE, HOUR, DAY = 60, 3600, 86_400
UNKNOWN = "-"


def bytes_text(count: float | None) -> str:
    """A size, with a unit in which it has one to four digits."""
    if count is None:
        return UNKNOWN
    step = 0
    while abs(count) >= KIB and step < len(STEPS) - 1:
        count, step = count / KIB, step + 1
    return f"{count:.0f} {STEPS[step]}" if step == 0 else f"{count:.1f} {STEPS[step]}"


def seconds_text(seconds: float | None) -> str:
    """A duration in its two largest units."""
    if seconds is None:
        return UNKNOWN
    for unit, name, part, part_name in ((DAY, "d", HOUR, "h"), (HOUR, "h", MINUTE, "min"), (MINUTE, "min", 1, "s")):
        if seconds >= unit:
            return f"{int(seconds // unit)} {name} {int(seconds % unit // part)} {part_name}"
    return f"{seconds:.1f} s"


def _rate(count: float | None) -> str:
    return UNKNOWN if count is None else f"{bytes_text(count)}/s"


def _catch_up(one: ConnectionStatus) -> str:
    if one.catch_up_seconds is None:
        return UNKNOWN if one.acked_bytes_per_second is None else "never at this rate"
    return seconds_text(one.catch_up_seconds)


def _reason(one: ConnectionStatus) -> Text:
    return Text(one.reason, style="green" if one.reason == ReasonCode.OK else "bold red")


ROWS: tuple[tuple[str, Callable[[ConnectionStatus], str | Text]], ...] = (
    ("is", lambda one: f"{one.replica} (by {one.known_by})" if one.replica else UNKNOWN),
    ("state", lambda one: one.state),
    ("reason", _reason),
    ("in sync", lambda one: "yes" if one.in_sync else "no"),
    ("acknowledged up to", lambda one: f"{one.slave_ack_offset:,}"),
    ("on its disk up to", lambda one: UNKNOWN if one.flushed_offset is None else f"{one.flushed_offset:,}"),
    ("sent up to", lambda one: f"{one.next_transfer_offset:,}"),
    ("lag in bytes", lambda one: f"{one.lag_bytes:,}"),
    ("lag in time", lambda one: seconds_text(one.lag_seconds)),
    ("time to catch up", _catch_up),
    ("acknowledges", lambda one: _rate(one.acked_bytes_per_second)),
    ("is sent", lambda one: _rate(one.sent_bytes_per_second)),
    ("acks rejected", lambda one: f"{one.acks_rejected:,}"),
    ("silent for", lambda one: seconds_text(one.silent_seconds)),
    ("connected for", lambda one: seconds_text(one.connected_seconds)),
)


def _replicas(replicas: list[ConnectionStatus]) -> RenderableType:
    if not replicas:
        return Text("no slave is connected")
    table = table_of("replica", *(one.peer for one in replicas))  # a column for each: rows would be too wide
    for label, cell in ROWS:
        table.add_row(label, *(cell(one) for one in replicas))
    return table


def _gone(gone: list[EndedStatus]) -> list[RenderableType]:
    if not gone:
        return []
    lines: list[RenderableType] = [Text("\nended connections, by slot")]
    for one in gone:
        since = seconds_text(one.ended_seconds)
        lines.append(Text(f"{one.peer}  {one.reason}  {one.close_reason} {since} ago: {one.advice}"))
    return lines


def _client(client: ClientStatus) -> RenderableType:
    table = table_of("master", client.master)
    table.add_row("state", client.state)
    table.add_row("reason", Text(client.reason_code, style="green" if client.reason_code == "OK" else "bold red"))
    table.add_row("last end", CloseReason(client.reason).name if client.reason else UNKNOWN)
    table.add_row("receives", _rate(client.received_bytes_per_second))
    table.add_row("received", bytes_text(client.transferred_bytes))
    table.add_row("silent for", seconds_text(client.silent_seconds))
    return Group(table, Text(client.advice)) if client.advice else table


def _counts(title: str, ended: dict[str, int]) -> list[RenderableType]:
    if not ended:
        return []
    texts = ", ".join(f"{count:,} {name} ({CODES[CloseReason[name]]})" for name, count in sorted(ended.items()))
    return [Text(f"\n{title}: {texts}")]


def status_view(status: HaStatus) -> RenderableType:
    """The whole view of `ha status`."""
    waits = status.replicas_needed - 1
    heading = (
        f"{status.broker_name}  {status.role}  compat {status.compat}  {status.state}"
        f"{f'  epoch {status.epoch}' if status.epoch else ''}\n{status.store}\n"
        f"log end {status.max_physical_offset:,}, confirmed {status.confirm_offset:,}; "
        f"{status.in_sync_slaves} slave(s) in sync, a put waits for {waits or 'none'}; "
        f"{status.acks_rejected:,} acks rejected\n"
        f"{history_text(status.history)}\n"
    )
    parts: list[RenderableType] = [Text(heading)]
    for one in status.findings:
        lines = one.at_length or (f"{one.reason}: {one.what}; next: {one.next_step}",)
        parts += [Text(f"PROBLEM: {line}\n", style="bold red") for line in lines]
    if status.client is not None:
        parts += [_client(status.client), *_counts("connections to the master ended", status.client_ended), Text("")]
    parts += [_replicas(status.replicas), *_gone(status.gone)]
    return Group(*parts, *_counts("connections of slaves ended", status.ended))


def _rows(title: str, rows: list[Row]) -> list[RenderableType]:
    if not rows:
        return []
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(row.name, row.meaning)
    return [Text(f"\n{title}", style="bold"), table]


def explanation_view(explanation: Explanation) -> RenderableType:
    """The whole page of `ha explain`."""
    parts: list[RenderableType] = [Text(explanation.title, style="bold")]
    if explanation.now:
        parts.append(Text(f"now: {explanation.now}"))
    parts += _rows("an answer to a put means", explanation.answers)
    parts += _rows("a message answered PUT_OK, when", explanation.survives)
    parts += _rows("timers and limits", explanation.timers)
    return Group(*parts, *(Text(f"\nnote: {note}") for note in explanation.notes))
