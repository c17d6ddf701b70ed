"""A Delta table: rows and offsets are one commit, the offsets as application transactions, a number for each queue.

Delta keeps those in its checkpoints for ever, and refuses the second of two commits that have one of the same name;
all loaders' commits have LOADER. They have numbers and no list: which queues there are stands in a property of the
table, written before the first commit that has them, so one too many is one that nothing was loaded of.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import pyarrow as pa

from spark_bridge.lake.errors import DROPPED, MADE_ANEW, Conflict, OffsetsDamaged, TableGone, TableNotOurs
from spark_bridge.lake.outside import Outside
from spark_bridge.lake.progress import NOTHING, UNKNOWN, Progress, QueueAt, StoreAt
from spark_bridge.lake.schema import additions
from spark_bridge.options.values import InvalidOption
from store.epochs import INT64_MAX

if TYPE_CHECKING:
    from deltalake import DeltaTable as Table

QUEUES = "slipstream.queues"  # {"broker-a": {"orders": [0, 1]}}
LOADER = "slipstream"  # the number of commits of loaders
SUM, OFFSET, LIES_AT = "sum", "offset", "at"
Names = Mapping[str, Mapping[str, list[int]]]


class DeltaTable:
    """One table: a directory, or the URL of one in a storage."""

    def __init__(self, name: str, storage: Mapping[str, str]) -> None:
        if not name.strip():
            raise InvalidOption("--table: a Delta table is a directory, or the URL of one")
        self._uri, self._storage = name, dict(storage)
        self._outside = Outside(name, storage)
        self.name = self._outside.table
        self._table: Table | None = None
        self._count = 0  # of loaders' commits, when the progress was read that the next one builds on
        self._schema: pa.Schema | None = None
        self._has_other_columns = False

    def open(self, schema: pa.Schema) -> Progress:
        """How far it is, which is nowhere if it is not there yet; nothing is written.

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
            there = pa.schema(table.schema())
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
                self._uri, self._schema, mode="ignore", configuration={QUEUES: "{}"}, storage_options=self._storage,
                raise_if_key_not_exists=False,
            )  # fmt: skip
            self._table = self._load()

    def _load(self) -> Table:
        from deltalake import DeltaTable as Table

        return Table(self._uri, storage_options=self._storage)

    def _progress(self, table: Table) -> Progress:
        self._count = table.transaction_version(LOADER) or 0
        names = self._names(table)
        if names is None:
            if table.count():
                what = f"{self.name}: it has rows and no property {QUEUES}: nobody knows of which messages they are"
                raise TableNotOurs(f"{what}; name a new table, or one without rows")
            return NOTHING
        stores = {}
        for broker, topics in names.items():
            queues = {}
            for topic, ids in topics.items():
                for queue_id in ids:
                    offset = table.transaction_version(_name(broker, topic, queue_id, OFFSET))
                    if offset is not None:
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
            return {broker: {topic: [int(one) for one in ids] for topic, ids in topics.items()}
                    for broker, topics in said.items()}  # fmt: skip
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            what = f"{self.name}: its property {QUEUES}, {text[:120]!r}, names no queues ({error})"
            raise OffsetsDamaged(f"{what}; set it as the table's history has it, or load a new table") from None

    def reload(self) -> Progress:
        """How far it is by now. Raises TableGone, LakeFailed."""
        with self._outside.asked("it cannot be looked at again"):
            return self._progress(self._newest())

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

        Raises Conflict where another loader's commit came first, TableGone, LakeFailed.
        """
        from deltalake import CommitProperties, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError, SchemaMismatchError

        try:
            with self._outside.asked("the commit failed", CommitFailedError, SchemaMismatchError):
                table = self._newest()  # a commit to the log of a table that was dropped would be half a table
                if (table.transaction_version(LOADER) or 0) != self._count:
                    raise Conflict("another loader has committed")
                self._name_queues(table, progress)
                numbers = {LOADER: self._count + 1, **_numbers(progress, before)}
                said = CommitProperties(app_transactions=[Transaction(*item) for item in numbers.items()])
                mode: Literal["merge"] | None = "merge" if self._has_other_columns else None
                write_deltalake(table, rows, mode="append", schema_mode=mode, commit_properties=said)
        except (CommitFailedError, SchemaMismatchError) as error:
            raise Conflict(self._outside.text_of(error)) from None
        self._count += 1
        return str(table.version())

    def _name_queues(self, table: Table, progress: Progress) -> None:
        names = {broker: {topic: set(ids) for topic, ids in topics.items()}
                 for broker, topics in (self._names(table) or {}).items()}  # fmt: skip
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
    """Of a transaction, each part quoted: a store may be called by its path."""
    return "/".join((LOADER, *(quote(str(part), safe="") for part in parts)))


def _numbers(progress: Progress, before: Progress) -> dict[str, Any]:
    """What has changed, by the names of transactions."""
    return dict(_changed(progress, before))


def _changed(progress: Progress, before: Progress) -> Iterator[tuple[str, int]]:
    for broker, store in progress.stores.items():
        known = before.stores.get(broker, StoreAt())
        if store == known:
            continue
        yield _name(broker, SUM), store.sum & INT64_MAX
        for (topic, queue_id), at in store.queues.items():
            if known.queues.get((topic, queue_id)) != at:
                yield _name(broker, topic, queue_id, OFFSET), at.offset
                yield _name(broker, topic, queue_id, LIES_AT), at.physical_offset
