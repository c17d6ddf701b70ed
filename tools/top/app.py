"""The live view: textual's terminal, our panels. It looks, draws, and waits; it outlives a restart of its broker."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.events import Resize
from textual.widgets import Input, Static

from engine.figures.live.broker import LiveBroker, Look
from ipc.clock import monotonic_ms
from ipc.errors import IpcError
from store.errors import NoBroker, StoreError
from tools.top.details import details_of
from tools.top.drawing import UNICODE, Glyphs, line_of
from tools.top.members import members_of
from tools.top.page import head, pipeline
from tools.top.panel import Panel
from tools.top.views import BAD, VIEWS

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
