"""Tables of a lake for tests: a small store and a table of each format, read back by others than who wrote it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
from pyiceberg.catalog import load_catalog

from spark_bridge.lake.load import Committed
from spark_bridge.lake.request import Request
from spark_bridge.lake.tables import Tables, lake
from spark_bridge.options.values import option_text
from tests.spark_bridge.stores import Row, SmallStore

ICEBERG_NAME = "raw.orders"
FORMATS = ("iceberg", "delta")
Place = tuple[str, int, int, bytes | None]


@dataclass
class Lake:
    """A table below a directory, of a store that is made message by message."""

    directory: Path
    format: str
    name: str = ""
    store: SmallStore = field(init=False)
    sent: list[Place] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = self.name or (ICEBERG_NAME if self.format == "iceberg" else str(self.directory / "delta"))
        self.store = SmallStore(self.directory / "log", 8192)

    @property
    def properties(self) -> dict[str, str]:
        """The catalog's."""
        if self.format == "delta":
            return {}
        directory = self.directory
        return {"uri": f"sqlite:///{directory}/catalog.db", "warehouse": (directory / "warehouse").as_uri()}

    def fill(self, count: int, topic: str = "orders", queues: int = 3, size: int = 20) -> None:
        """More messages, in the log and its queues."""
        first = len(self.sent)
        self.put(
            topic, *(b"%d " % number + b"." * (number % size) for number in range(first, first + count)), queues=queues
        )

    def put(self, topic: str, *bodies: bytes, queues: int = 1, **fields: Any) -> None:
        """These messages, in turn into the queues."""
        for number, body in enumerate(bodies):
            self.store.put(topic, body, number % queues, **fields)
            self.sent.append((*self.store.records[-1][2:], body))
        self.store.dispatch()

    def load(self, **options: Any) -> list[Committed]:
        """Load what there is."""
        given = {"catalog": self.properties} if self.format == "iceberg" else {"storage": self.properties}
        name = options.pop("name", self.name)
        store = options.pop("store", str(self.store.root))
        return lake(store, name, to=self.format, **given, **options)

    def tables(self, *, rows_max: int = 1_000_000, topics: tuple[str, ...] | None = None, **options: Any) -> Tables:
        """A load that a test takes step by step."""
        texts = {name: option_text(value) for name, value in options.items()}
        return Tables(
            Request(
                str(self.store.root), self.format, self.name, self.properties, topics, rows_max=rows_max, options=texts
            ),
            is_once=True,
        )

    def iceberg(self) -> Any:
        """PyIceberg's table, as it is now."""
        catalog = load_catalog("default", **self.properties)
        try:
            return catalog.load_table(self.name)
        finally:
            catalog.close()

    def make_partitioned(self, schema: pa.Schema) -> None:
        """An empty table of these columns, a partition for each topic, made by another program."""
        if self.format == "delta":
            deltalake.DeltaTable.create(self.name, schema, partition_by=["topic"])
            return
        catalog = load_catalog("default", **self.properties)
        try:
            catalog.create_namespace("raw")
            table = catalog.create_table(self.name, schema)
            with table.update_spec() as update:
                update.add_identity("topic")
        finally:
            catalog.close()

    def delta(self) -> deltalake.DeltaTable:
        """deltalake's table, as it is now."""
        return deltalake.DeltaTable(self.name)

    @property
    def version(self) -> int:
        """How many versions the table has."""
        return len(self.iceberg().metadata.snapshots) if self.format == "iceberg" else self.delta().version()

    @property
    def current(self) -> int:
        """The snapshot, or the version, that the table is at."""
        if self.format == "iceberg":
            return int(self.iceberg().current_snapshot().snapshot_id)
        return self.delta().version()

    def roll_back(self, to: int) -> None:
        """Bring back how the table was, as an administrator does."""
        if self.format == "iceberg":
            self.iceberg().manage_snapshots().rollback_to_snapshot(to).commit()
        else:
            self.delta().restore(to)

    def overwrite(self, rows: pa.Table) -> None:
        """Another program's rows in the place of all of the table's."""
        if self.format == "iceberg":
            self.iceberg().overwrite(rows)
        else:
            deltalake.write_deltalake(self.name, rows, mode="overwrite")

    def table(self) -> pa.Table:
        """All rows: through PyIceberg, or through polars for Delta."""
        if self.format == "iceberg":
            return self.iceberg().scan().to_arrow()
        return pl.read_delta(self.name).to_arrow()

    def rows(self) -> list[Row]:
        """All rows, in the order of their queues."""
        rows: list[Row] = self.table().to_pylist()
        return sorted(rows, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))

    def places(self) -> list[Place]:
        """What every row is of, and its body."""
        return [(row["topic"], row["queueId"], row["queueOffset"], row["body"]) for row in self.rows()]

    @property
    def expected(self) -> list[Place]:
        """What was put."""
        return sorted(self.sent)

    def set_offsets(self, text: str) -> None:
        """Overwrite what the table has as offsets, as somebody might."""
        if self.format == "iceberg":
            with self.iceberg().transaction() as transaction:
                transaction.set_properties({"slipstream.offsets": text})
            return
        self.delta().alter.set_table_properties({"slipstream.queues": text}, raise_if_not_exists=False)

    def said_offsets(self) -> Any:
        """What the table has of them that can be read as JSON."""
        if self.format == "iceberg":
            return json.loads(self.iceberg().properties["slipstream.offsets"])
        return json.loads(self.delta().metadata().configuration["slipstream.queues"])
