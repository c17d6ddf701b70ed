"""`slipstream status`: what is wrong with a broker, then lag, rates, processes; one screen for people, or JSON.

For people a usual pair takes 24 lines of 80 cells; the raw values of cursors are `slipstream counters`'.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from engine.monitoring.ha_status import ConnectionStatus
from engine.monitoring.status import TURNING, ProcessStatus, PutStatus, Status, snapshot
from engine.net.printable import printable
from engine.protocol.ha.wire import ReasonCode
from tools.common import exit_codes
from tools.common import watch as screen
from tools.show.ha_tables import bytes_text, seconds_text
from tools.show.history import history_text
from tools.show.stats import duration
from tools.show.table import table_of

MIB = 1 << 20
WIDTH = 80  # of what is no terminal
FINDINGS_MAX, REPLICAS_MAX, PROCESSES_MAX = 5, 4, 16
STORE = "STORE"
REPLICA_WIDTHS = (27, 10, 10, 9, 9, 10)
REPLICA_ROW = "{:<27}{:<10}{:>10} {:>9} {:>9} {:>10}"
PROCESS_CELL = "{:<14}{:>8}{:>7}{:>9}"
PROCESS_HEADING = PROCESS_CELL.format("role", "pid", "CPU %", "restarts")
FOLLOWERS = {"flushed_offset": "flushed", "reput_from_offset": "dispatched", "confirm_offset": "confirmed"}


def _cut(text: str, width: int, style: str = "") -> Text:
    """Cut a text to one line of `width` cells."""
    line = Text(printable(text), style=style)
    line.truncate(width, overflow="ellipsis")
    return line


def _wrong(status: Status, width: int) -> Iterator[Text]:
    """The worst first; what to type next is cut last."""
    if not status.findings:
        yield Text("OK  nothing is wrong", style="green")
    for one in status.findings[:FINDINGS_MAX]:
        what, then = (part.replace(status.store, STORE) for part in (one["what"], one["next"]))
        then = f"; next: {then}"
        room = width - len(one["reason"]) - 2 - len(then)
        if len(what) > room:
            what = f"{what[: max(room, 0) - 1]}…" if room > 1 else ""
        yield _cut(f"{one['reason']}  {what}{then}", width, "bold red")
    if (more := len(status.findings) - FINDINGS_MAX) > 0:
        yield _cut(f"and {more} more: --json / slipstream doctor {STORE}", width, "bold red")


def _behind(status: Status) -> str:
    end, begin = status.cursors["max_physical_offset"], status.cursors.get("min_physical_offset", 0)
    of_role = [label for label in FOLLOWERS if label in status.cursors]
    if status.client is not None:
        of_role = [label for label in of_role if label != "confirm_offset"]  # a master's alone
    lags = (f"not {FOLLOWERS[label]} {bytes_text(max(0, end - status.cursors[label]))}" for label in of_role)
    return f"log   {bytes_text(end - begin)}; {', '.join(lags)}"


def _size(count: float | None) -> str:
    return "-" if count is None else f"{bytes_text(count)}/s"


def _replicas(status: Status, width: int) -> Iterator[Text]:
    """Yield the replicas' lines, those farthest behind first."""
    connections = status.connections
    if not connections:
        if status.client is None:
            yield Text("no slave is connected")
        return
    in_sync = f"in sync {status.in_sync_slaves}, a put waits for {status.replicas_needed - 1}"
    heading = REPLICA_ROW.format("replica", "reason", "lag", "in time", "silent", "confirms")
    yield _cut(f"{heading}  {in_sync}" if width > len(heading) + len(in_sync) + 1 else heading, width, "bold")
    worst = sorted(connections, key=lambda one: (one.in_sync, -one.lag_bytes))
    for one in worst[:REPLICAS_MAX]:
        row = REPLICA_ROW.format(*map(_fitting, _cells_of(one), REPLICA_WIDTHS))
        yield _cut(row, width, "" if one.reason == ReasonCode.OK else "bold red")
    if (more := len(worst) - REPLICAS_MAX) > 0:
        yield _cut(f"and {more} more: slipstream ha status {STORE}", width)


def _cells_of(one: ConnectionStatus) -> tuple[str, ...]:
    name = f"{one.replica} {one.peer}" if one.replica and not one.peer.startswith(one.replica) else one.peer
    times = seconds_text(one.lag_seconds), seconds_text(one.silent_seconds)
    return name, one.reason, bytes_text(one.lag_bytes), *times, _size(one.acked_bytes_per_second)


def _fitting(text: str, width: int) -> str:
    text = printable(text)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _master(status: Status) -> Iterator[str]:
    client = status.client
    if client is not None:
        silent, rate = seconds_text(client.silent_seconds), _size(client.received_bytes_per_second)
        yield f"from  {client.master} {client.state} {client.reason_code}, silent {silent}, receives {rate}"


def _puts(puts: PutStatus) -> Iterator[str]:
    rates = ", ".join(f"{rate:,.0f}/s over {window}" for window, rate in puts.messages_per_second.items())
    yield f"puts  {rates}; {_size(puts.bytes_per_second.get('10s'))} over 10s"
    took = f", answered in p50 {duration(puts.p50_us)}, p99 {duration(puts.p99_us)}" if puts.p99_us else ""
    yield f"      {puts.messages:,} messages{took}"


def _clients(status: Status) -> Iterator[str]:
    if status.fronts:
        total = {
            name: sum(getattr(one, name) for one in status.fronts)
            for name in ("connections", "pulls_held", "sends_in_flight", "sends", "pulls", "sends_refused")
        }
        yield (
            f"clients  {total['connections']:,} connected, {total['pulls_held']:,} pulls held, "
            f"{total['sends_in_flight']:,} sends wait; {total['sends']:,} sent, {total['sends_refused']:,} refused, "
            f"{total['pulls']:,} pulls"
        )
    if status.services:
        counts = {
            name: ", ".join(f"{count:,} {what}" for what, count in of.items() if count)
            for name, of in status.services.items()
        }
        yield "; ".join(f"{name}: {text or 'nothing yet'}" for name, text in counts.items())


def _processes(processes: Sequence[ProcessStatus], width: int) -> Iterator[Text]:
    """Two columns; of many those that are stalled, were started again, or take most first."""
    shown = list(processes)
    if len(shown) > PROCESSES_MAX:
        shown = sorted(shown, key=lambda one: (one.state == TURNING, -one.restarts, -one.cpu_percent))[:PROCESSES_MAX]
    columns = 2 if width >= 2 * len(PROCESS_HEADING) + 4 else 1
    yield _cut("    ".join([PROCESS_HEADING] * columns), width, "bold")
    rows = -(-len(shown) // columns)
    for line in zip_longest(*(shown[at : at + rows] for at in range(0, len(shown), rows or 1))):
        cells = [(_process(one), one.state != TURNING or one.restarts > 0) for one in line if one is not None]
        text = Text("    ").join(Text(cell, style="bold red" if is_odd else "") for cell, is_odd in cells)
        text.truncate(width, overflow="ellipsis")
        yield text
    if (more := len(processes) - len(shown)) > 0:
        yield _cut(f"and {more} more: --json", width)


def _process(one: ProcessStatus) -> str:
    busy = f"{one.cpu_percent:.1f}" if one.state == TURNING else one.state.lower()
    return PROCESS_CELL.format(_fitting(one.role, 14), one.pid, busy, one.restarts)


def render(status: Status, width: int = WIDTH) -> RenderableType:
    """The whole view, no line longer than `width` cells."""
    up = f"  up {seconds_text(status.up_seconds)}" if status.up_seconds is not None else ""
    heading = f"{status.broker_name}  {status.role}  {status.flush_disk_type}  {status.state}{up}"
    lines = [_cut(heading, width, "bold"), _cut(f"{STORE} is {status.store}", width), *_wrong(status, width), Text("")]
    lines += [_cut(_behind(status), width), _cut(f"      {history_text(status.history)}", width)]
    lines += [_cut(line, width) for line in _master(status)]
    lines += _replicas(status, width)
    if status.puts is not None:
        lines += [_cut(line, width) for line in _puts(status.puts)]
    lines += [_cut(line, width) for line in _clients(status)]
    return Group(*lines, Text(""), *_processes(status.processes, width))


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


def _width() -> int:
    """Return the terminal's width; WIDTH for a pipe or a file."""
    console = screen.plain_console()
    return console.width if console.is_terminal else WIDTH


def watch_status(stores: list[str]) -> None:
    """A live view of one broker, or of several in short, until Ctrl-C or until one has ended. Raises NoBroker."""

    def view() -> RenderableType:
        if len(stores) == 1:
            return render(snapshot(stores[0], with_pss=False), _width())
        return side_by_side([snapshot(store) for store in stores])

    screen.watch(view)


def show(store: str, as_json: bool, watch: bool, question: str | None) -> int:
    """The broker that runs on STORE, once or until Ctrl-C; the exit code says its verdict. Raises NoBroker."""
    if watch and not as_json:
        watch_status([store])
    looked = snapshot(store, with_pss=as_json)
    if watch:
        screen.show_json(lambda: snapshot(store).to_json(), watch, "status")
    elif as_json:
        screen.show_json(looked.to_json, watch, "status")
    else:
        screen.plain_console().print(render(looked, _width()))
    return exit_codes.of_verdict(looked.verdict, question or "well")
