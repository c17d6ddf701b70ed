"""Markdown's tables from values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with its head; `|` in a cell is escaped."""
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += (f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows)
    return "\n".join(lines) + "\n"


def code(text: object) -> str:
    """A text in code's letters; nothing for nothing."""
    return f"`{text}`" if str(text) else ""
