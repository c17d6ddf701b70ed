"""`slipstream status`: a broker's role, cursors, connections and processes, for people and as JSON."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from engine.figures.ha_status import ClientStatus, ConnectionStatus
from engine.figures.status import ProcessStatus, PutStatus, Status, snapshot
from engine.protocol.ha.wire import CloseReason
from tools.common import watch as screen
from tools.show.history import history_text
from tools.show.table import table_of

MIB = 1 << 20


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _cursors(status: Status) -> Table:
    table = table_of("cursor", "value", "behind the log's end")
    end = status.cursors["max_physical_offset"]
    for label, value in status.cursors.items():
        follows = label in ("flushed_offset", "reput_from_offset", "confirm_offset")
        table.add_row(label, f"{value:,}", f"{max(0, end - value):,}" if follows else "")
    return table


def _connections(connections: list[ConnectionStatus]) -> RenderableType:
    if not connections:
        return Text("no slave is connected")
    table = table_of("slave", *(one.peer for one in connections))  # a column for each: rows would be too wide
    rows: tuple[tuple[str, Callable[[ConnectionStatus], str]], ...] = (
        ("state", lambda one: one.state),
        ("asked for bytes from", lambda one: f"{one.slave_request_offset:,}"),
        ("acknowledged up to", lambda one: f"{one.slave_ack_offset:,}"),
        ("lag in bytes", lambda one: f"{one.lag_bytes:,}"),
        ("lag in time", lambda one: _seconds(one.lag_seconds)),
        ("bytes sent", lambda one: f"{one.transferred_bytes:,}"),
        ("connected for", lambda one: _seconds(one.connected_seconds)),
        ("silent for", lambda one: _seconds(one.silent_seconds)),
        ("reports rejected", lambda one: str(one.acks_rejected)),
    )
    for label, text in rows:
        table.add_row(label, *(text(one) for one in connections))
    return table


def _client(client: ClientStatus) -> Table:
    table = table_of("master", "state", "received bytes", "silent", "last end")
    reason = CloseReason(client.reason).name if client.reason else "-"
    table.add_row(client.master, client.state, f"{client.transferred_bytes:,}", _seconds(client.silent_seconds), reason)
    return table


def _puts(puts: PutStatus) -> Text:
    rates = ", ".join(f"{rate:,.0f}/s over {window}" for window, rate in puts.messages_per_second.items())
    return Text(f"{puts.messages:,} messages put: {rates}; answered in p50 {puts.p50_us:,} us, p99 {puts.p99_us:,} us")


def _processes(processes: list[ProcessStatus]) -> Table:
    table = table_of("process", "pid", "CPU %", "RSS MiB", "PSS MiB", "restarts", "heartbeat")
    for one in processes:
        table.add_row(
            one.role, str(one.pid), f"{one.cpu_percent:.1f}", f"{one.rss_bytes / MIB:.1f}",
            f"{one.pss_bytes / MIB:.1f}", str(one.restarts), _seconds(one.heartbeat_age_seconds),
        )  # fmt: skip
    return table


def render(status: Status) -> RenderableType:
    """The whole view."""
    heading = (
        f"{status.broker_name}  {status.role}  {status.flush_disk_type}  {status.state}  process {status.pid}  "
        f"HA port {status.ha_listen_port}\n{status.store}\n{history_text(status.history)}\n"
    )
    parts: list[RenderableType] = [Text(heading)]
    parts += [Text(f"PROBLEM: {problem}\n", style="bold red") for problem in status.problems]
    if status.puts is not None:
        parts += [_puts(status.puts), Text("")]
    parts += [_cursors(status), Text("")]
    if status.client is not None:
        parts += [_client(status.client), Text("")]
    return Group(*parts, _connections(status.connections), Text(""), _processes(status.processes))


def side_by_side(statuses: list[Status]) -> Table:
    """A few figures of several brokers, a column each: small enough for any terminal."""
    table = table_of("broker", *(status.broker_name for status in statuses))
    if any(status.problems for status in statuses):
        table.add_row("PROBLEMS (see status)", *(str(len(status.problems)) for status in statuses), style="bold red")
    labels = ("put_messages", "max_physical_offset", "flushed_offset", "reput_from_offset", "confirm_offset")
    table.add_row("role", *(status.role for status in statuses))
    table.add_row("state", *(status.state for status in statuses))
    for label in labels:
        table.add_row(label, *(f"{status.cursors[label]:,}" for status in statuses))
    lags = [max((one.lag_bytes for one in status.connections), default=None) for status in statuses]
    table.add_row("slaves connected", *(str(len(status.connections)) for status in statuses))
    table.add_row("largest lag in bytes", *("-" if lag is None else f"{lag:,}" for lag in lags))
    table.add_row("processes", *(str(len(status.processes)) for status in statuses))
    table.add_row("CPU %", *(f"{sum(one.cpu_percent for one in status.processes):.1f}" for status in statuses))
    table.add_row("PSS MiB", *(f"{sum(one.pss_bytes for one in status.processes) / MIB:.1f}" for status in statuses))
    return table


def watch_status(stores: list[str]) -> None:
    """A live view of one broker, or of several in short, until Ctrl-C or until one has ended. Raises NoBroker."""

    def view() -> RenderableType:
        snapshots = [snapshot(store) for store in stores]
        return render(snapshots[0]) if len(snapshots) == 1 else side_by_side(snapshots)

    screen.watch(view)


def show(store: str, as_json: bool, watch: bool) -> int:
    """The broker that runs on STORE, once or until Ctrl-C. Raises NoBroker."""
    if as_json:
        screen.show_json(lambda: snapshot(store).to_json(), watch)
    elif watch:
        watch_status([store])
    else:
        screen.plain_console().print(render(snapshot(store)))
    return 0
