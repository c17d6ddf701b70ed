"""Loads a log into a table, commit by commit: what waits is read, and added with the offsets behind it.

    log ── backlog ──▶ read ──▶ rows, progress ── commit ──▶ table
     ▲                                                         │
     └──────────────── goes on behind the table's progress ◀───┘

The table alone knows how far it is: nothing is kept beside it. A commit that was refused because the table has changed
is tried again if its offsets are still those that the rows begin at; else another process loads the table, too.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa

from spark_bridge.lake.errors import Conflict, LakeFailed, Overtaken
from spark_bridge.lake.progress import NOTHING, Progress

TRIES_MAX = 5
MEMORY_SHARE = 4  # how much larger than in the log the rows of a commit may be in memory, decompressed and decoded
Waiting = TypeVar("Waiting", bound="Backlog")


class Table(Protocol):
    """A table that rows are loaded into. `commit` raises Conflict where it is not as `before`, or changed meanwhile."""

    name: str

    def open(self, schema: pa.Schema) -> Progress: ...
    def make(self) -> None: ...
    def reload(self) -> Progress: ...
    def commit(self, rows: pa.Table, before: Progress, progress: Progress) -> str: ...
    def close(self) -> None: ...


class Backlog(Protocol):
    """Messages that wait to be loaded."""

    @property
    def is_full(self) -> bool: ...


class Portion(NamedTuple):
    """The rows of one commit, and how far the table is with them."""

    rows: pa.Table
    progress: Progress


class Log(Protocol[Waiting]):
    """A source of the rows to load."""

    def open(self, progress: Progress) -> Progress: ...
    def settle(self) -> None: ...
    def backlog(self, progress: Progress) -> Waiting | None: ...
    def read(self, backlog: Waiting, progress: Progress, bytes_max: int) -> Portion: ...
    def close(self) -> None: ...


class Committed(NamedTuple):
    """One commit. `version` is the snapshot's id, or the table's version; `nbytes` what the rows took in memory."""

    table: str
    version: str
    rows: int
    nbytes: int


class Load:
    """One table that is loaded. `close` it."""

    def __init__(self, log: Log[Waiting], table: Table, schema: pa.Schema, bytes_max: int) -> None:
        self.log, self.table = log, table
        self._schema, self._bytes_max = schema, bytes_max
        self.progress = NOTHING

    def open(self) -> None:
        """Find out how far the table is, and whether it goes on here. Raises LakeError and what the log raises."""
        self.progress = self.table.open(self._schema)
        begun = self.log.open(self.progress)
        self.table.make()  # what may be refused was not
        if begun != self.progress:
            self._commit(Portion(self._schema.empty_table(), begun))

    def step(self, *, is_due: bool = True) -> Committed | None:
        """Commit what waits, if it is due or fills a commit; return None without a commit."""
        backlog = self.log.backlog(self.progress)
        if backlog is None or not (is_due or backlog.is_full):
            return None
        portion = self.log.read(backlog, self.progress, MEMORY_SHARE * self._bytes_max)
        return None if portion.progress == self.progress else self._commit(portion)

    def _commit(self, portion: Portion) -> Committed:
        """Commit a portion, and retry after a conflict. Raises Overtaken, LakeFailed, TableGone."""
        reason = ""
        for _try in range(TRIES_MAX):
            try:
                version = self.table.commit(portion.rows, self.progress, portion.progress)
            except Conflict as conflict:
                reason = str(conflict)
                if self.table.reload() != self.progress:
                    what = f"{self.table.name}: another process loads this table, and its commit came first"
                    raise Overtaken(f"{what}; no row was loaded twice; let only one of them run") from None
                continue
            self.progress = portion.progress
            return Committed(self.table.name, version, portion.rows.num_rows, portion.rows.nbytes)
        what = f"{self.table.name}: it was changed by others at each of {TRIES_MAX} tries to commit ({reason})"
        raise LakeFailed(f"{what}; start again when they are done; the load continues after its last commit")

    def close(self) -> None:
        """Let go of both ends."""
        self.log.close()
        self.table.close()
