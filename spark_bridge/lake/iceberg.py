"""An Iceberg table: rows and offsets are one commit of the catalog, the offsets as a property of the table.

A property stays when snapshots are expired or compacted away. Whoever commits names the snapshot that he built on: the
catalog refuses the second of two. PyIceberg would commit appends again on top of the other one's; that is switched off,
because the other one may have had the same messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_bridge.lake.errors import DROPPED, MADE_ANEW, Conflict, TableGone, TableNotOurs
from spark_bridge.lake.outside import Outside
from spark_bridge.lake.progress import NOTHING, Progress, as_text, from_text
from spark_bridge.lake.schema import additions

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

OFFSETS = "slipstream.offsets"
CATALOG_NAME, CATALOG_NAME_DEFAULT = "name", "default"  # in SQL, tables of one name may be of several catalogs
RETRIES = "commit.retry.num-retries"
AT_FIRST = {
    OFFSETS: as_text(NOTHING),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


class IcebergTable:
    """One table of a catalog; `name` is `namespace.table`."""

    def __init__(self, name: str, catalog: Mapping[str, str]) -> None:
        self.name = name
        self._properties = {key: value for key, value in catalog.items() if key != CATALOG_NAME}
        self._catalog_name = catalog.get(CATALOG_NAME, CATALOG_NAME_DEFAULT)
        self._outside = Outside(name, catalog)
        self._catalog: Catalog | None = None
        self._table: Table | None = None
        self._schema: pa.Schema | None = None
        self._new: list[str] = []

    def open(self, schema: pa.Schema) -> Progress:
        """How far it is, which is nowhere if it is not there yet; nothing is written.

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
        text = table.properties.get(OFFSETS)
        if text is not None:
            return from_text(self.name, text)
        snapshot = table.current_snapshot()
        if snapshot is not None and (snapshot.summary is None or snapshot.summary.get("total-records", "") != "0"):
            what = f"{self.name}: it has rows and no property {OFFSETS}: nobody knows of which messages they are"
            raise TableNotOurs(f"{what}; name a new table, or one without rows")
        return NOTHING

    def reload(self) -> Progress:
        """How far it is by now. Raises TableGone, LakeFailed."""
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
        return self._progress(table)

    def commit(self, rows: pa.Table, before: Progress, progress: Progress) -> str:
        """Add the rows and set the offsets, in one; the snapshot's id.

        Raises Conflict where another commit came first, TableGone, LakeFailed.
        """
        from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

        table = self._table
        assert table is not None
        if self._progress(table) != before:
            raise Conflict("its offsets are others by now")
        _commit_once(table)
        try:
            with self._outside.asked("the commit failed", CommitFailedException, NoSuchTableError):
                transaction: Any = table.transaction()
                transaction.set_properties({OFFSETS: as_text(progress)})
                if rows.num_rows:
                    transaction.append(rows)
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


def _commit_once(table: Table) -> None:
    """PyIceberg takes the number of tries from the table that it holds; no property of the table itself is changed."""
    properties = {**table.metadata.properties, RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
