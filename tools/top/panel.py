"""A panel: one view's rows with a cursor, or one row looked at closely. Only lines that are seen are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text
from textual.widgets import Static

from tools.top.details import Details
from tools.top.drawing import Glyphs, line_of
from tools.top.views import View, chosen, heading, row_line

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
