"""An Iceberg table: rows and offsets are one commit of the catalog, the offsets in the snapshot's summary.

The offsets that count are those of the current snapshot's line (`ancestry`): a rollback brings its offsets back. A
property of the table has them, too, with the snapshot that they are of, for a line whose snapshots are expired.

Every commit names the snapshot that it builds on: the catalog refuses the second of two. PyIceberg would commit appends
again on top of the other one's; that is switched off, because the other one may have had the same messages.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from spark_bridge.lake import last_rows
from spark_bridge.lake.errors import DROPPED, MADE_ANEW, Conflict, OffsetsUnknown, RolledBack, TableGone, TableNotOurs
from spark_bridge.lake.outside import Outside
from spark_bridge.lake.progress import NOTHING, Progress, as_text, from_text
from spark_bridge.lake.schema import additions

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

# Which offsets an Iceberg table's current snapshot has: its own, or those of the nearest ancestor that says them.
#
#     S1 (ours: 100) ── S2 (ours: 200)        rolled back to S1: the current snapshot's line does not lead through S2,
#      └── C3 (compaction) ◀── current        so 100 counts
#
# Snapshots of other programs that add, delete or rewrite rows leave the offsets as they are. One that replaces rows may
# have taken a whole load away: Iceberg calls a DELETE that rewrites files `overwrite`, as it calls INSERT OVERWRITE.
OVERWRITE, DELETE, APPEND = "overwrite", "delete", "append"


class End(Enum):
    """The end of a line of snapshots."""

    AT_OFFSETS = auto()
    AT_FIRST = auto()
    AT_EXPIRED = auto()


class Line(NamedTuple):
    """The current snapshot and its ancestors, up to the first one with offsets.

    `ids` also has the parent of the last one, which may be expired. `replaced_by` is the oldest snapshot of another
    program that replaced rows, or None.
    """

    ids: tuple[int, ...]
    end: End
    offsets: str | None
    replaced_by: int | None
    is_empty: bool


def line_of(current: Snapshot, by_id: Callable[[int], Snapshot | None], key: str) -> Line:
    """The line of a snapshot; `key` names the offsets in a summary."""
    ids: list[int] = []
    replaced_by: int | None = None
    newer_operation = ""
    is_empty = _said(current, "total-records") == "0"
    end, offsets, snapshot = End.AT_EXPIRED, None, by_id(current.snapshot_id)
    while snapshot is not None:
        ids.append(snapshot.snapshot_id)
        offsets, parent = _said(snapshot, key), snapshot.parent_snapshot_id
        if offsets is not None or parent is None:
            end = End.AT_FIRST if offsets is None else End.AT_OFFSETS
            break
        operation = "" if snapshot.summary is None else str(snapshot.summary.operation.value)
        if _replaces(snapshot, operation, newer_operation):
            replaced_by = snapshot.snapshot_id
        newer_operation = operation
        if parent in ids:
            break
        snapshot = by_id(parent)
        if snapshot is None:
            ids.append(parent)
    return Line(tuple(ids), end, offsets, replaced_by, is_empty)


def _replaces(snapshot: Snapshot, operation: str, newer_operation: str) -> bool:
    """Whether another program may have put rows of its own in the place of the loader's.

    PyIceberg overwrites by two snapshots: one deletes rows, the next one appends. What only takes files away is a
    DELETE, whatever the engine calls it.
    """
    if operation == OVERWRITE and _said(snapshot, "added-data-files") not in (None, "0"):
        return _said(snapshot, "deleted-data-files") not in (None, "0")
    if operation == OVERWRITE:
        operation = DELETE
    if operation == DELETE:
        return newer_operation == APPEND
    return operation == ""


def _said(snapshot: Snapshot, key: str) -> str | None:
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(key)


log = logging.getLogger("slipstream.lake")

OFFSETS = "slipstream.offsets"
OF_SNAPSHOT = "slipstream.offsets-of"  # the snapshot that the property's offsets are of, and a digest of their text
CATALOG_NAME, CATALOG_NAME_DEFAULT = "name", "default"  # in SQL, tables of one name may be of several catalogs
RETRIES = "commit.retry.num-retries"
AT_FIRST = {
    OFFSETS: as_text(NOTHING),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


class IcebergTable:
    """One table of a catalog; `name` is `namespace.table`."""

    def __init__(self, name: str, catalog: Mapping[str, str], *, may_lose: bool = False) -> None:
        self.name = name
        self._may_lose = may_lose  # goes on where nobody can say what the offsets are
        self._properties = {key: value for key, value in catalog.items() if key != CATALOG_NAME}
        self._catalog_name = catalog.get(CATALOG_NAME, CATALOG_NAME_DEFAULT)
        self._outside = Outside(name, catalog)
        self._catalog: Catalog | None = None
        self._table: Table | None = None
        self._schema: pa.Schema | None = None
        self._new: list[str] = []

    def open(self, schema: pa.Schema) -> Progress:
        """Return how far it is, which is nowhere if it is not there yet; nothing is written.

        Raises TableNotOurs, SchemaRefused, OffsetsDamaged, LakeFailed.
        """
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError

        self._schema = schema
        if self._catalog is None:
            with self._outside.asked("its catalog cannot be opened"):
                self._catalog = load_catalog(self._catalog_name, **self._properties)
        with self._outside.asked("it cannot be opened"):
            try:
                table = self._table = self._catalog.load_table(self.name)
            except NoSuchTableError:
                return NOTHING
            progress = self._progress(table)
            self._new = additions(self.name, table.schema().as_arrow(), schema, may_widen=True)
        return progress

    def make(self) -> None:
        """Make the table where it is missing, the columns that it lacks, and wider ones. Raises as `open`."""
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        catalog, table, schema = self._catalog, self._table, self._schema
        assert catalog is not None and schema is not None
        try:
            with self._outside.asked("it cannot be made", CommitFailedException, TableAlreadyExistsError):
                if table is None:
                    catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
                    self._table = catalog.create_table(self.name, schema, properties=AT_FIRST)
                elif self._new:
                    with table.update_schema() as update:
                        update.union_by_name(schema)
        except (CommitFailedException, TableAlreadyExistsError):  # somebody else did, or changed it
            self.open(schema)
            self.make()

    def _progress(self, table: Table) -> Progress:
        """Return how far the current snapshot is. Raises TableNotOurs, OffsetsDamaged, OffsetsUnknown."""
        text, current = table.properties.get(OFFSETS), table.current_snapshot()
        if text is None:
            if current is not None and (
                current.summary is None or current.summary.additional_properties.get("total-records", "") != "0"
            ):
                what = f"{self.name}: it has rows and no property {OFFSETS}: their messages are unknown"
                raise TableNotOurs(f"{what}; name a new table, or one without rows")
            return NOTHING
        known = from_text(self.name, text)
        bound_to = _bound(text, table.properties.get(OF_SNAPSHOT))
        if bound_to is None or current is None:  # written by an earlier release, or by a person
            return known
        line = line_of(current, table.snapshot_by_id, OFFSETS)
        progress = known if line.offsets is None else from_text(self.name, line.offsets)
        is_rolled_back = bound_to not in line.ids and table.snapshot_by_id(bound_to) is not None
        if line.is_empty and line.end is End.AT_FIRST and is_rolled_back:
            return NOTHING  # as it was before the first load
        why = self._doubt(table, line, bound_to, progress)
        if why is not None:
            self._refuse_unless_told(why)
        return progress

    def _doubt(self, table: Table, line: Line, bound_to: int, progress: Progress) -> str | None:
        """Return why these may not be the current snapshot's offsets; None where they are."""
        if line.replaced_by is not None and not self._holds_last(table, progress, of_all_queues=True):
            what = f"snapshot {line.replaced_by} of another program replaced rows, and"
            return f"{what} the last messages that were loaded before it are not all among the rows that are there"
        if line.end is End.AT_OFFSETS or bound_to in line.ids:
            return None
        if self._holds_last(table, progress, of_all_queues=False):
            return None
        what = f"no snapshot between the current one and its first that is left, {line.ids[-1]}, has offsets"
        return f"{what}, and the last row of snapshot {bound_to}, which has the last ones, is not there"

    def _refuse_unless_told(self, why: str) -> None:
        if not self._may_lose:
            do = "roll it back to a snapshot with offsets, name a new table, or continue after everything ever loaded"
            raise OffsetsUnknown(f"{self.name}: {why}; {do}, with --on-loss go-on")
        log.warning("LAKE_OFFSETS_UNKNOWN: %s: %s; continuing because of --on-loss go-on", self.name, why)

    def _holds_last(self, table: Table, progress: Progress, *, of_all_queues: bool) -> bool:
        """Whether the rows of the last messages are there."""
        from pyiceberg.expressions import In

        look_for = last_rows.wanted(table.schema().column_names, progress, of_all_queues=of_all_queues)
        if look_for is None:
            return False
        within: Any = In  # whose own types do not have how it is called
        names = look_for.columns
        condition = within("queueOffset", look_for.offsets)
        rows = table.scan(row_filter=condition, selected_fields=tuple(names)).to_arrow_batch_reader()
        return last_rows.holds((batch.select(list(names)) for batch in rows), look_for.places)

    def reload(self) -> Progress:
        """Return how far it is by now. Raises RolledBack, OffsetsUnknown, TableGone, LakeFailed."""
        from pyiceberg.exceptions import NoSuchTableError

        catalog, before = self._catalog, self._table
        assert catalog is not None and before is not None
        try:
            with self._outside.asked("it cannot be looked at again", NoSuchTableError):
                table = self._table = catalog.load_table(self.name)
        except NoSuchTableError:
            raise TableGone(f"{self.name}: {DROPPED}") from None
        if table.metadata.table_uuid != before.metadata.table_uuid:
            raise TableGone(f"{self.name}: {MADE_ANEW}")
        self._require_line(before, table)
        with self._outside.asked("it cannot be looked at again"):
            return self._progress(table)

    def _require_line(self, before: Table, table: Table) -> None:
        """Raise RolledBack where the snapshot that was the current one is not in the line of the one that is."""
        was, now = before.current_snapshot(), table.current_snapshot()
        if was is None or now is None:
            return
        line = line_of(now, table.snapshot_by_id, "")  # all of it
        if was.snapshot_id not in line.ids and table.snapshot_by_id(was.snapshot_id) is not None:
            what = f"{self.name}: it was rolled back from snapshot {was.snapshot_id} while it was loaded"
            raise RolledBack(f"{what}; start again: the load continues after the offsets of snapshot {now.snapshot_id}")

    def commit(self, rows: pa.Table, before: Progress, progress: Progress) -> str:
        """Add the rows and set the offsets, in one; the snapshot's id.

        Raises Conflict where another commit came first, TableGone, LakeFailed.
        """
        from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

        table = self._table
        assert table is not None
        if self._progress(table) != before:
            raise Conflict("its offsets have changed")
        _commit_once(table)
        try:
            with self._outside.asked("the commit failed", CommitFailedException, NoSuchTableError):
                transaction: Any = table.transaction()
                text = as_text(progress)
                transaction.append(rows, snapshot_properties={OFFSETS: text})  # without rows it is a snapshot, too
                bound = f"{transaction.table_metadata.current_snapshot_id} {_digest(text)}"
                transaction.set_properties({OFFSETS: text, OF_SNAPSHOT: bound})
                transaction.commit_transaction()
        except CommitFailedException as error:
            raise Conflict(self._outside.text_of(error)) from None
        except NoSuchTableError:
            raise TableGone(f"{self.name}: {DROPPED}") from None
        snapshot = table.current_snapshot()
        return "" if snapshot is None else str(snapshot.snapshot_id)

    def close(self) -> None:
        """Let go of the catalog."""
        if self._catalog is not None:
            self._catalog.close()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _bound(text: str, said: str | None) -> int | None:
    """The snapshot that the property's offsets are of; None where they were set without one."""
    snapshot_id, _, digest = (said or "").partition(" ")
    return int(snapshot_id) if digest == _digest(text) and snapshot_id.isdecimal() else None


def _commit_once(table: Table) -> None:
    """PyIceberg takes the number of tries from the table that it holds; no property of the table itself is changed."""
    properties = {**table.metadata.properties, RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
