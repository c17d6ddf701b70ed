"""A Delta table: rows and offsets are one commit, the offsets as application transactions, a number for each queue.

Delta keeps those in its checkpoints for ever, and refuses the second of two commits that have one of the same name;
all loaders' commits have LOADER. They have numbers and no list: which queues there are stands in a property of the
table, written before the first commit that has them, so one too many is one that nothing was loaded of.

A RESTORE does not revert them: the offsets that count are found by the table's history (`versions`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

import pyarrow as pa

from spark_bridge.lake import last_rows
from spark_bridge.lake.days import Days
from spark_bridge.lake.errors import (
    DROPPED,
    MADE_ANEW,
    Conflict,
    OffsetsDamaged,
    OffsetsUnknown,
    RolledBack,
    TableGone,
    TableNotOurs,
)
from spark_bridge.lake.outside import Outside
from spark_bridge.lake.progress import NOTHING, UNKNOWN, Progress, QueueAt, StoreAt
from spark_bridge.lake.schema import additions
from spark_bridge.lake.versions import BUILT_ON, Source, reverted_since, source_of
from spark_bridge.options.values import InvalidOption
from store.epochs import INT64_MAX

if TYPE_CHECKING:
    from deltalake import DeltaTable as Table

log = logging.getLogger("slipstream.lake")

QUEUES = "slipstream.queues"  # {"broker-a": {"orders": [0, 1]}}
LOADER = "slipstream"  # the number of commits of loaders
SUM, OFFSET, LIES_AT = "sum", "offset", "at"
MARKED = "slipstream/built-on"  # 1 once a load's commit has said what it was built on
NONE_LOADED = -1  # the offset of a queue that a RESTORE took out of the table
Names = Mapping[str, Mapping[str, list[int]]]


class DeltaTable:
    """One table: a directory, or the URL of one in a storage."""

    def __init__(self, name: str, storage: Mapping[str, str], *, may_lose: bool = False) -> None:
        if not name.strip():
            raise InvalidOption("--table: a Delta table is a directory, or the URL of one")
        self._uri, self._storage = name, dict(storage)
        self._outside = Outside(name, storage)
        self.name = self._outside.table
        self._table: Table | None = None
        self._may_lose = may_lose  # goes on where nobody can say what the offsets are
        self._count = 0  # of loaders' commits, when the progress was read that the next one builds on
        self._seen = 0  # the table's version then
        self._numbered = NOTHING  # what the transactions say, also where that is not what counts
        self._days = Days()
        self._schema: pa.Schema | None = None
        self._has_other_columns = False

    def open(self, schema: pa.Schema) -> Progress:
        """Return how far it is, which is nowhere if it is not there yet; nothing is written.

        Raises TableNotOurs, SchemaRefused, OffsetsDamaged, LakeFailed.
        """
        from deltalake.exceptions import TableNotFoundError

        self._schema = schema
        with self._outside.asked("it cannot be opened"):
            try:
                table = self._table = self._load()
            except TableNotFoundError:
                return NOTHING
            progress = self._progress(table)
            self._days = Days.of(self.name, pa.schema(table.schema()), table.metadata().partition_columns, schema)
            there = self._days.without(pa.schema(table.schema()))
            self._has_other_columns = bool(additions(self.name, there, schema)) or len(there) != len(schema)
        return progress

    def make(self) -> None:
        """Make the table where it is missing; columns that it lacks come with the first rows. Raises LakeFailed."""
        from deltalake import DeltaTable as Table

        if self._table is not None:
            return
        assert self._schema is not None
        with self._outside.asked("it cannot be made"):
            Table.create(
                self._uri,
                self._schema,
                mode="ignore",
                configuration={QUEUES: "{}"},
                storage_options=self._storage,
                raise_if_key_not_exists=False,
            )
            self._table = self._load()

    def _load(self, version: int | None = None) -> Table:
        from deltalake import DeltaTable as Table

        return Table(self._uri, version, storage_options=self._storage)

    def _progress(self, table: Table) -> Progress:
        """Return how far its rows are. Raises TableNotOurs, OffsetsDamaged, OffsetsUnknown."""
        self._count, self._seen = table.transaction_version(LOADER) or 0, table.version()
        self._numbered = self._transactions(table)
        if not self._count:
            if self._names(table) is None and table.count():
                what = f"{self.name}: it has rows and no property {QUEUES}: their messages are unknown"
                raise TableNotOurs(f"{what}; name a new table, or one without rows")
            return NOTHING
        source, at = self._source(table)
        progress = self._numbered if at is table else self._transactions(at)
        doubt = source.doubt
        if doubt is None and source.is_expired and at.transaction_version(MARKED):
            doubt = "its history since the last load is expired"
        is_whole = not source.has_gap
        if doubt is None or (is_whole and self._holds_last(table, progress, of_all_queues=source.doubt is not None)):
            return progress
        if not self._may_lose:
            do = "restore a version whose history is there, name a new table, or continue after everything ever loaded"
            raise OffsetsUnknown(f"{self.name}: {doubt}; {do}, with --on-loss go-on")
        log.warning("LAKE_OFFSETS_UNKNOWN: %s: %s; continuing because of --on-loss go-on", self.name, doubt)
        return self._numbered

    def _source(self, table: Table) -> tuple[Source, Table]:
        """Return where the offsets are read, and the table as it was then."""
        from deltalake.exceptions import DeltaError

        at, doubt = table, None
        while True:
            source, restored = source_of(table, at.version(), self._version_at)
            doubt = doubt or source.doubt
            if restored is None:
                return source._replace(doubt=doubt), at
            what = f"version {source.version} (RESTORE)"
            try:
                if self._load(source.version).transaction_version(LOADER) != at.transaction_version(LOADER):
                    return Source(at.version(), f"an earlier release loaded it after {what}", has_gap=True), table
                at = self._load(restored)
            except DeltaError:
                doubt = doubt or f"version {restored}, brought back by {what}, is expired"
                return Source(table.version(), doubt), table

    def _version_at(self, at_ms: int) -> int:
        """The version that the table had at a time, as a RESTORE finds it."""
        table = self._load()
        table.load_as_version(datetime.fromtimestamp(at_ms / 1000, UTC))
        return table.version()

    def _holds_last(self, table: Table, progress: Progress, *, of_all_queues: bool) -> bool:
        """Whether the rows of the last messages are there."""
        from deltalake import QueryBuilder

        look_for = last_rows.wanted(pa.schema(table.schema()).names, progress, of_all_queues=of_all_queues)
        if look_for is None:
            return False
        offsets = ", ".join(str(offset) for offset in look_for.offsets)
        columns = ", ".join(f'"{name}"' for name in look_for.columns)
        query = f'SELECT {columns} FROM rows WHERE "queueOffset" IN ({offsets})'
        rows = QueryBuilder().register("rows", table).execute(query)
        return last_rows.holds(pa.RecordBatchReader.from_stream(rows), look_for.places)

    def _transactions(self, table: Table) -> Progress:
        """Return what the transactions say of the queues that are named."""
        names = self._names(table) or {}
        stores = {}
        for broker, topics in names.items():
            queues = {}
            for topic, ids in topics.items():
                for queue_id in ids:
                    offset = table.transaction_version(_name(broker, topic, queue_id, OFFSET))
                    if offset is not None and offset != NONE_LOADED:
                        lies_at = table.transaction_version(_name(broker, topic, queue_id, LIES_AT))
                        queues[topic, queue_id] = QueueAt(offset, UNKNOWN if lies_at is None else lies_at)
            if queues:
                stores[broker] = StoreAt(queues, table.transaction_version(_name(broker, SUM)) or 0)
        return Progress(stores)

    def _names(self, table: Table) -> Names | None:
        """The queues that may be in it; None for a table that nobody has loaded."""
        text = table.metadata().configuration.get(QUEUES)
        if text is None:
            return None
        try:
            said = json.loads(text)
            return {
                broker: {topic: [int(one) for one in ids] for topic, ids in topics.items()}
                for broker, topics in said.items()
            }
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            what = f"{self.name}: its property {QUEUES}, {text[:120]!r}, names no queues ({error})"
            raise OffsetsDamaged(f"{what}; set it as the table's history has it, or load a new table") from None

    def reload(self) -> Progress:
        """Return how far it is by now. Raises RolledBack, OffsetsUnknown, TableGone, LakeFailed."""
        with self._outside.asked("it cannot be looked at again"):
            table = self._newest()
            self._require_line(table)
            return self._progress(table)

    def _require_line(self, table: Table) -> None:
        """Raise RolledBack where another program took rows away since the progress was read."""
        what = reverted_since(table, self._seen)
        if what is not None:
            raise RolledBack(f"{self.name}: {what} changed it during the load; start again; the load continues there")

    def _newest(self) -> Table:
        """The same table as it is by now. Raises TableGone."""
        from deltalake.exceptions import TableNotFoundError

        before = self._table
        assert before is not None
        try:
            table = self._load()
        except TableNotFoundError:
            raise TableGone(f"{self.name}: {DROPPED}") from None
        if table.metadata().id != before.metadata().id:
            raise TableGone(f"{self.name}: {MADE_ANEW}")
        self._table = table
        return table

    def commit(self, rows: pa.Table, before: Progress, progress: Progress) -> str:
        """Add the rows and set the offsets, in one; the table's version.

        Raises Conflict where another loader's commit came first, RolledBack, TableGone, LakeFailed.
        """
        from deltalake import CommitProperties, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError, SchemaMismatchError

        try:
            with self._outside.asked("the commit failed", CommitFailedError, SchemaMismatchError):
                table = self._newest()  # a commit to the log of a table that was dropped would be half a table
                if (table.transaction_version(LOADER) or 0) != self._count:
                    raise Conflict("another loader has committed")
                self._require_line(table)
                self._seen = table.version()
                self._name_queues(table, progress)
                numbers = {LOADER: self._count + 1, MARKED: 1, **_numbers(progress, self._numbered)}
                said = CommitProperties(
                    custom_metadata={BUILT_ON: str(self._seen)},
                    app_transactions=[Transaction(*item) for item in numbers.items()],
                )
                mode: Literal["merge"] | None = "merge" if self._has_other_columns else None
                rows = self._days.added(rows)
                write_deltalake(table, rows, mode="append", schema_mode=mode, commit_properties=said)
        except (CommitFailedError, SchemaMismatchError) as error:
            raise Conflict(self._outside.text_of(error)) from None
        self._count, self._numbered = self._count + 1, progress
        return str(table.version())

    def _name_queues(self, table: Table, progress: Progress) -> None:
        names = {
            broker: {topic: set(ids) for topic, ids in topics.items()}
            for broker, topics in (self._names(table) or {}).items()
        }
        is_new = False
        for key in progress.offsets:
            ids = names.setdefault(key.store, {}).setdefault(key.topic, set())
            is_new = is_new or key.queue_id not in ids
            ids.add(key.queue_id)
        if is_new:
            listed = {broker: {topic: sorted(ids) for topic, ids in topics.items()} for broker, topics in names.items()}
            table.alter.set_table_properties({QUEUES: json.dumps(listed)}, raise_if_not_exists=False)

    def close(self) -> None:
        """Let go of the table."""
        self._table = None


def _name(*parts: object) -> str:
    """Return a transaction's name, each part quoted: a store may be called by its path."""
    return "/".join((LOADER, *(quote(str(part), safe="") for part in parts)))


def _numbers(progress: Progress, said: Progress) -> dict[str, int]:
    """Return the numbers to write, by transaction name, where the table says `said` now."""
    return {**dict(_taken_out(progress, said)), **dict(_changed(progress, said))}


def _taken_out(progress: Progress, said: Progress) -> Iterator[tuple[str, int]]:
    """Queues, and stores, that a RESTORE took out of the table."""
    for broker, store in said.stores.items():
        left = progress.stores.get(broker, StoreAt())
        if not left.queues:
            yield _name(broker, SUM), 0
        for topic, queue_id in set(store.queues) - set(left.queues):
            yield _name(broker, topic, queue_id, OFFSET), NONE_LOADED


def _changed(progress: Progress, said: Progress) -> Iterator[tuple[str, int]]:
    for broker, store in progress.stores.items():
        known = said.stores.get(broker, StoreAt())
        if store == known:
            continue
        yield _name(broker, SUM), store.sum & INT64_MAX
        for (topic, queue_id), at in store.queues.items():
            if known.queues.get((topic, queue_id)) != at:
                yield _name(broker, topic, queue_id, OFFSET), at.offset
                yield _name(broker, topic, queue_id, LIES_AT), at.physical_offset
