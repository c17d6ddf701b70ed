"""The page of all counters, from their declarations: `python -m engine.board.counter_map > docs/counters.md`."""

from __future__ import annotations

import sys

from engine.board.cursors import Board, FrontCursors, HaClientCursors, HaConnectionCursors
from engine.board.declarations import Group
from engine.board.service_cursors import DelayCursors, TransactionCursors

HEAD = """# Counters

Written from `engine/board/cursors.py` by `python -m engine.board.counter_map > docs/counters.md`. `slipstream counters
STORE` shows the values of a running broker.

An offset is an end: the first byte not yet done. Times in ms are of the monotonic clock, a message's excepted. One
process writes a word, after the supervisor set some before it forked. Where two are named, it is one in a master and
another in a slave, or the parent once its child is dead. Several at a time write only the two bells, which carry no
information, and `confirm_offset`, which is raised by an atomic maximum.

| counter | kind | written by | followed by | what it says |
|---|---|---|---|---|
"""
GROUPS: tuple[type[Group], ...] = (
    Board, HaConnectionCursors, HaClientCursors, FrontCursors, DelayCursors, TransactionCursors
)  # fmt: skip


def text() -> str:
    """Return the whole page as Markdown."""
    rows = [counter for group in GROUPS for counter in group.summary()]
    cells = ((f"`{of.label}`", of.kind, of.owner.replace("|", ", "), of.followed_by, of.meaning) for of in rows)
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in cells)


if __name__ == "__main__":
    sys.stdout.write(text())
