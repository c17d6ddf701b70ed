"""The form of all tables that `slipstream` shows: no lines, names to the left, figures to the right."""

from __future__ import annotations

from rich.table import Table


def table_of(*headings: str) -> Table:
    """An empty table with these headings."""
    table = Table(box=None, pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    return table
