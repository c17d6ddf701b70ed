"""The live view: textual's terminal, our panels. It looks, draws, and waits; it outlives a restart of its broker."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.events import Resize
from textual.widgets import Input, Static

from engine.monitoring.live.broker import LiveBroker, Look
from engine.protocol.remoting.codes import RequestCode
from engine.remoting.sockets.client import RemotingClient
from ipc.clock import monotonic_ms
from ipc.errors import IpcError
from store.errors import NoBroker, StoreError
from store.tables import fastjson
from tools.common.tls import tls_of
from tools.top.details import Details, details_of
from tools.top.drawing import UNICODE, Glyphs, line_of
from tools.top.page import head, pipeline
from tools.top.views import BAD, VIEWS, View, chosen, heading, row_line

# Who is in a group: the one thing here that only the broker itself can say.
ANSWER_SECONDS = 5.0


def members_of(address: str, group: str) -> list[str]:
    """The clients of a group, or why the broker does not say."""
    try:
        with RemotingClient(address, ANSWER_SECONDS, tls_of()) as client:
            answer = client.ask(RequestCode.GET_CLIENTS, {"group": group})
        said = fastjson.loads(answer.body, "the broker's clients")
    except Exception as error:
        is_said = isinstance(error, OSError | StoreError) or isinstance(getattr(error, "code", None), str)
        if not is_said:
            raise
        return [f"not known: {' '.join(str(error).split())}"]
    groups = said.get("groups", []) if isinstance(said, dict) else []
    return [str(member) for one in groups if one.get("group") == group for member in one.get("members", [])]


# A panel: one view's rows with a cursor, or one row looked at closely. Only lines that are seen are made.
CURSOR = "reverse"


class Panel(Static):
    """One view's rows. The cursor stays on its row, wherever the row moves."""

    can_focus = True

    def __init__(self, view: View, glyphs: Glyphs) -> None:
        super().__init__(id=view.name, markup=False)
        self.view, self._glyphs = view, glyphs
        self.column, self.is_turned, self.filter = view.sorted_by, False, ""
        self.rows: list[Any] = []
        self.name_at_cursor: str | None = None  # of the row that is looked at, or pointed at
        self.is_close = False
        self.details = Details([])
        self.lines: list[str] = []  # as they were shown last
        self._at = self._first = 0

    @property
    def row(self) -> Any:
        """Return the row under the cursor; None where the view is empty."""
        return self.rows[self._at] if self.rows else None

    def show(self, title: str, rows: Sequence[Any]) -> None:
        """New rows of the view."""
        self.rows = chosen(self.view, rows, self.column, self.is_turned, self.filter)
        names = [self.view.name_of(row) for row in self.rows] if self.name_at_cursor is not None else []
        if self.name_at_cursor in names:
            self._at = names.index(self.name_at_cursor)
        elif self.is_close:  # what was looked at is gone
            self.is_close, self.name_at_cursor = False, None
        self._at = max(0, min(self._at, len(self.rows) - 1))
        self.border_title = Text(f"{title}{f' /{self.filter}' if self.filter else ''}").plain.replace("[", "(")
        self.draw()

    def move(self, by: int) -> None:
        """The cursor, or what of the details is seen."""
        if self.is_close:
            most = max(0, len(self.details.rows) - 1)
            self._first = max(0, min(most, self._first + by))
        else:
            self._at = max(0, min(len(self.rows) - 1, self._at + by))
            self.name_at_cursor = self.view.name_of(self.row) if self.rows else None
        self.draw()

    def enter(self) -> bool:
        """Look closely at the row that is pointed at; whether there is one."""
        if self.rows:
            self.name_at_cursor, self.is_close, self._first = self.view.name_of(self.row), True, 0
        return self.is_close

    def leave(self) -> None:
        """Go back from a row to the view."""
        self.is_close, self._first = False, 0

    def sort(self) -> None:
        """Sort by the next column."""
        at = -1 if self.column is None else self.column
        self.column, self.is_turned = (at + 1) % len(self.view.columns), False

    def draw(self) -> None:
        """Draw the lines for which there is room."""
        width, height = self.size.width, self.size.height
        if width <= 0 or height <= 0:
            return
        lines = self._close(width, height) if self.is_close else self._table(width, height)
        self.lines = [line.plain for line in lines]
        self.update(Text("\n", no_wrap=True).join(lines))

    def _table(self, width: int, height: int) -> list[Text]:
        if not self.rows:
            empty = f"no name has {self.filter!r} in it; / and Enter shows all" if self.filter else self.view.empty
            return [line_of(empty, width)]
        room = max(1, height - 1)
        self._first = max(0, min(self._first, self._at, len(self.rows) - room))
        self._first = max(self._first, self._at - room + 1)
        lines = [heading(self.view, width, self.column, self.is_turned, self._glyphs)]
        for at, row in enumerate(self.rows[self._first : self._first + room], self._first):
            style = CURSOR if at == self._at and self.has_focus else ""
            lines.append(row_line(self.view, row, width, self._glyphs, style))
        return lines

    def _close(self, width: int, height: int) -> list[Text]:
        details = self.details
        lines = [line_of(self.name_at_cursor or "", width, "bold underline")]
        lines += [line_of(text, width) for text in details.lines]
        if details.view is None:
            self._first = min(self._first, max(0, len(lines) - height))
            return lines[self._first : self._first + height]
        rows = chosen(details.view, details.rows, details.view.sorted_by, False)
        lines = lines[: max(2, height - 4)]
        if not rows:
            return [*lines, line_of(details.view.empty, width)]
        lines.append(heading(details.view, width, details.view.sorted_by, False, self._glyphs))
        room = max(1, height - len(lines))
        shown = rows[self._first : self._first + room]
        return [*lines, *(row_line(details.view, row, width, self._glyphs) for row in shown)]


WIDE_COLUMNS, WIDE_LINES = 120, 40
MEMBERS_EVERY_MS = 10_000
KEYS = "1-5 view  ↑↓ row  Enter open  Esc back  s sort  r reverse  / filter  h help  q"
HELP = """\
1 to 5, Tab   choose a view: replicas, topics, producers, consumers, roles
up, down, Page up, Page down, Home, End   choose a row
Enter         open the row: a topic's queues, a group's members and lags,
              a replica's curves
Esc           go back
s, r          sort by the next column; reverse the order
/             show only names that contain a text; empty: all names
Space         pause, and continue
h, ?          show this help, and close it
q, Ctrl-C     quit

-0 B after a cursor's name is its distance from the log's end. lag: what a
replica has not confirmed, or a group has not consumed. Rates cover the last
10 s. If the broker ends, top waits for its next start (--wait).
"""


class Top(App[None]):
    """The application behind `slipstream top`."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head, #pipeline { height: auto; padding: 0 1; }
    #pipeline { margin-top: 1; }
    #help { display: none; padding: 1 2; border: round $primary; height: 1fr; }
    #panels { layout: vertical; height: 1fr; }
    Panel { border: round $primary; display: none; height: 1fr; padding: 0; }
    Panel:focus { border: round $accent; display: block; }
    Panel.shown { display: block; }
    #panels.wide { layout: grid; grid-size: 2; grid-gutter: 0 1; }
    #panels.wide Panel { display: block; }
    #panels.wide #roles { column-span: 2; }
    #panels.close Panel { display: none; }
    #panels.close Panel.shown { display: block; }
    #panels.wide.close { layout: vertical; }
    #filter { display: none; height: 1; border: none; padding: 0 1; }
    #foot { height: 1; padding: 0 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"view({number - 1})") for number in range(1, 6)),
        Binding("tab", "next(1)", priority=True),
        Binding("shift+tab", "next(-1)", priority=True),
        Binding("up", "move(-1)"),
        Binding("down", "move(1)"),
        Binding("k", "move(-1)"),
        Binding("j", "move(1)"),
        Binding("pageup", "page(-1)"),
        Binding("pagedown", "page(1)"),
        Binding("home", "move(-1000000)"),
        Binding("end", "move(1000000)"),
        Binding("enter", "closer"),
        Binding("escape", "leave", priority=True),
        Binding("s", "sort"),
        Binding("r", "turn"),
        Binding("slash", "filter"),
        Binding("space", "stop"),
        Binding("h,question_mark", "help"),
        Binding("q", "quit"),
        Binding("ctrl+c", "interrupt", priority=True),
    ]

    def __init__(self, store: str, interval: float = 2.0, wait: float = 60.0, glyphs: Glyphs = UNICODE) -> None:
        super().__init__(ansi_color=bool(os.environ.get("NO_COLOR")))  # else its greys would be colours still
        self._store, self._interval, self._wait_ms, self._glyphs = store, interval, wait * 1000, glyphs
        self.error: Exception | None = None
        self.was_interrupted = False
        self.broker: LiveBroker | None = None
        self.last: Look | None = None
        self._gone_ms: int | None = None  # since when, of a broker that has ended
        self._gone_at = ""
        self._is_stopped = False
        self._active = 0
        self._members: dict[str, list[str]] = {}  # of the group that is looked at
        self._asked_ms = 0

    def compose(self) -> ComposeResult:
        """Lay the widgets out from top to bottom."""
        yield Static(id="head", markup=False)
        yield Static(id="pipeline", markup=False)
        yield Static(HELP, id="help", markup=False)
        with Container(id="panels"):
            for view in VIEWS:
                yield Panel(view, self._glyphs)
        yield Input(id="filter", max_length=100, select_on_focus=False)
        yield Static(KEYS, id="foot", markup=False)

    def on_mount(self) -> None:
        """The first look, and the clock of the others."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.exit)  # so that the terminal is left as it was
        self.action_view(0)
        self.set_interval(self._interval, self.look)
        self.call_after_refresh(self.look)

    def on_unmount(self) -> None:
        """Unmap the broker's shared memory."""
        self._let_go()

    def on_resize(self, _event: Resize) -> None:
        """Panels side by side where there is room."""
        is_wide = self.size.width >= WIDE_COLUMNS and self.size.height >= WIDE_LINES
        self.query_one("#panels").set_class(is_wide, "wide")
        self.call_after_refresh(self.draw)

    @property
    def panel(self) -> Panel:
        """The one that keys go to."""
        return self.query_one(f"#{VIEWS[self._active].name}", Panel)

    def look(self) -> None:
        """Look once more, at the broker that is there now."""
        if self._is_stopped or self.error is not None:
            return
        try:
            if self.broker is None:
                self.broker = LiveBroker(self._store)
                self._gone_ms, self.last = None, None
            self.last = self.broker.look()
        except NoBroker as gone:
            self._wait_for_it(gone)
        except (StoreError, IpcError, OSError) as error:
            self.error = error
            self.exit()
        self.draw()

    def _wait_for_it(self, gone: NoBroker) -> None:
        self._let_go()
        if self._gone_ms is None:
            self._gone_ms, self._gone_at = monotonic_ms(), f"{datetime.now(UTC):%H:%M:%S}Z"
        if monotonic_ms() - self._gone_ms >= self._wait_ms:
            self.error = gone
            self.exit()

    def _let_go(self) -> None:
        if self.broker is not None:
            self.broker.close()
            self.broker = None

    def draw(self) -> None:
        """Draw what the last look found."""
        look = self.last
        if look is None or not self.is_running:
            return
        width = self.size.width - 2
        lines = head(look, width)
        if self._gone_ms is not None:
            left = max(0, int(self._wait_ms - (monotonic_ms() - self._gone_ms))) // 1000
            says = f"ENDED  the broker ended at {self._gone_at}; waiting {left} s for it to start again, q quits"
            lines[1:] = [line_of(says, width, BAD)]
        elif self._is_stopped:
            lines.append(line_of("PAUSED  Space continues", width, "bold yellow"))
        newline = Text("\n", no_wrap=True)
        self.query_one("#head", Static).update(newline.join(lines))
        self.query_one("#pipeline", Static).update(newline.join(pipeline(look, width, self._glyphs)))
        for panel in self.query(Panel):
            if panel.display:
                self._draw_panel(panel, look)

    def _draw_panel(self, panel: Panel, look: Look) -> None:
        number = VIEWS.index(panel.view) + 1
        rows = panel.view.rows(look)
        if panel.is_close and panel.row is not None and self.broker is not None:
            row = next((row for row in rows if panel.view.name_of(row) == panel.name_at_cursor), None)
            if row is not None:
                members = self._members_of(panel.name_at_cursor or "") if panel.view.name == "consumers" else None
                panel.details = details_of(panel.view, row, look, self.broker, members, panel.size.width, self._glyphs)
        panel.show(f"{number} {panel.view.title(look)}", rows)
        self.query_one("#panels").set_class(self.panel.is_close, "close")

    def _members_of(self, group: str) -> list[str] | None:
        now_ms = monotonic_ms()
        if self.broker is not None and (group not in self._members or now_ms - self._asked_ms > MEMBERS_EVERY_MS):
            self._asked_ms = now_ms
            self._members.setdefault(group, ["(querying the broker)"])
            address = self.broker.address
            self.run_worker(lambda: self._ask(address, group), thread=True, exclusive=True, exit_on_error=False)
        return self._members.get(group)

    def _ask(self, address: str, group: str) -> None:
        members = members_of(address, group)
        self.call_from_thread(self._take_members, group, members)

    def _take_members(self, group: str, members: list[str]) -> None:
        self._members = {group: members}
        self.draw()

    def action_view(self, number: int) -> None:
        """Show one of the five views."""
        for panel in self.query(Panel):
            panel.remove_class("shown")
        self._active = number
        self.query_one("#filter").display, self.query_one("#foot").display = False, True
        self.panel.add_class("shown")
        self.panel.focus()
        self.query_one("#panels").set_class(self.panel.is_close, "close")
        self.call_after_refresh(self.draw)

    def action_next(self, by: int) -> None:
        """Show the next view, or the one before."""
        self.action_view((self._active + by) % len(VIEWS))

    def action_move(self, by: int) -> None:
        """Move the cursor by some rows."""
        self.panel.move(by)

    def action_page(self, by: int) -> None:
        """Move the cursor by some screens."""
        self.panel.move(by * max(1, self.panel.size.height - 1))

    def action_closer(self) -> None:
        """Look closely at the row under the cursor."""
        if self.panel.enter():
            self.query_one("#panels").add_class("close")
            self.call_after_refresh(self.draw)

    def action_leave(self) -> None:
        """Leave the filter, the help, or a closer look."""
        if self.query_one("#filter").display:
            self._end_filter("")
        elif self.query_one("#help").display:
            self.action_help()
        else:
            self.panel.leave()
            self.query_one("#panels").remove_class("close")
            self.call_after_refresh(self.draw)

    def action_sort(self) -> None:
        """Sort by the next column."""
        self.panel.sort()
        self.draw()

    def action_turn(self) -> None:
        """Turn the order of rows round."""
        self.panel.is_turned = not self.panel.is_turned
        self.draw()

    def action_stop(self) -> None:
        """Figures stay as they are, or go on."""
        self._is_stopped = not self._is_stopped
        self.draw()

    def action_help(self) -> None:
        """Show or hide the help."""
        is_shown = not self.query_one("#help").display
        self.query_one("#help").display = is_shown
        self.query_one("#panels").display = not is_shown
        if not is_shown:
            self.action_view(self._active)

    def action_filter(self) -> None:
        """Ask for the text to filter by."""
        box = self.query_one("#filter", Input)
        box.value, box.display = self.panel.filter, True
        self.query_one("#foot").display = False
        box.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Filter by the text that was typed."""
        self._end_filter(event.value)

    def _end_filter(self, text: str) -> None:
        self.panel.filter = text
        self.action_view(self._active)

    def action_interrupt(self) -> None:
        """Exit after Ctrl-C, and note that."""
        self.was_interrupted = True
        self.exit()
