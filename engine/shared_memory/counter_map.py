"""The page of all counters: `python -m engine.shared_memory.counter_map > docs/counters.md`."""

from __future__ import annotations

import sys

from engine.shared_memory.cursors import BrokerCounters, FrontCursors, HaClientCursors, HaConnectionCursors
from engine.shared_memory.declarations import Group
from engine.shared_memory.service_cursors import DelayCursors, TransactionCursors

HEAD = """# Counters

Written from `engine/shared_memory/cursors.py` by `python -m engine.shared_memory.counter_map > docs/counters.md`.
`slipstream counters STORE` shows the values of a running broker.

An offset is the first byte that is not handled yet. Times in ms are of the monotonic clock, except times of messages.
One process writes each counter; the supervisor sets some of them before it forks. Where two writers are named, one
writes on a master and the other on a slave, or the parent writes after its child has died. Only the two bells, whose
value means nothing, and `confirm_offset`, which is raised by an atomic maximum, have several writers at a time.

| counter | kind | written by | followed by | meaning |
|---|---|---|---|---|
"""
GROUPS: tuple[type[Group], ...] = (
    BrokerCounters, HaConnectionCursors, HaClientCursors, FrontCursors, DelayCursors, TransactionCursors
)  # fmt: skip


def text() -> str:
    """Return the whole page as Markdown."""
    rows = [counter for group in GROUPS for counter in group.summary()]
    cells = ((f"`{of.label}`", of.kind, of.owner.replace("|", ", "), of.followed_by, of.meaning) for of in rows)
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in cells)


if __name__ == "__main__":
    sys.stdout.write(text())
