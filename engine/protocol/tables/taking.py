"""Replaces a slave's table by its master's, which has very many entries, mostly the same ones.

Implements: SlaveSynchronize's way of taking tables
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from store.tables.tables import ENTRIES_A_STEP

Table = dict[str, dict[str, Any]]


def entries_of(table: dict[Any, Any]) -> list[Any]:
    """Return all entries of the table, and empty it."""
    entries = list(table.values())
    table.clear()
    return entries


def keep_equal(ours: Table, theirs: Table) -> Generator[int, None, None]:
    """Entries that say the same stay the own ones: nothing new for fronts, nor for the garbage collector. In steps."""
    names = list(theirs)
    for start in range(0, len(names), ENTRIES_A_STEP):
        for name in names[start : start + ENTRIES_A_STEP]:
            own = ours.get(name)
            if own == theirs[name]:
                theirs[name] = own
        yield ENTRIES_A_STEP


def note_others(before: Table, now: Table, noted: dict[str, None]) -> Generator[int, None, None]:
    """Note the names of entries that are not the very same in both. In steps."""
    for names in (list(before), list(now)):
        for start in range(0, len(names), ENTRIES_A_STEP):
            some = names[start : start + ENTRIES_A_STEP]
            noted.update(dict.fromkeys(name for name in some if before.get(name) is not now.get(name)))
            yield ENTRIES_A_STEP
