"""All tables of one load: one of a name, or one a topic where the name has `{topic}` in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic

import pyarrow as pa

from ipc.extras import require_lake
from spark_bridge.lake.load import Committed, Load, Table
from spark_bridge.lake.local_log import LocalLog
from spark_bridge.lake.schema import read_names, table_schema
from spark_bridge.options.read import STREAM_OPTION_NAMES
from spark_bridge.options.values import InvalidOption, option_text, place_of
from spark_bridge.plan import inventory
from spark_bridge.plan.stores import resolve_stores
from spark_bridge.split.splits import Selection
from spark_bridge.stream.options import StreamOptions, parse_stream_options

ICEBERG, DELTA = "iceberg", "delta"
TOPIC = "{topic}"
ROWS_MAX, BYTES_MAX = 1_000_000, 128 << 20
TABLES_MAX = 1000
TOPICS_S = 10.0  # so often new topics are looked for


@dataclass(frozen=True)
class Request:
    """What is to be loaded, and where to. `properties` are the catalog's (Iceberg), or the storage's (Delta)."""

    store: str | Sequence[str]
    to: str
    table: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    topics: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    rows_max: int = ROWS_MAX
    bytes_max: int = BYTES_MAX
    options: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.to not in (ICEBERG, DELTA):
            raise InvalidOption(f"to={self.to!r}: one of {ICEBERG}, {DELTA}")
        require_lake("slipstream lake", self.to)

    @property
    def is_per_topic(self) -> bool:
        """Whether each topic has a table."""
        return TOPIC in self.table

    def _given(self, topics: Sequence[str] | None) -> dict[str, str]:
        """What is read of these topics, as options of a stream. Raises InvalidOption."""
        given = {name: option_text(value) for name, value in self.options.items()}
        own = {name.lower() for name in STREAM_OPTION_NAMES}
        for name in given:
            if name.lower() in own:
                what = "how much a commit takes is said by --max-rows and --max-bytes, and no group is told"
                raise InvalidOption(f"option {name} is one of Spark's streams: {what}; leave it out")
        limits = {"maxOffsetsPerTrigger": str(self.rows_max), "maxBytesPerTrigger": str(self.bytes_max)}
        named = {} if topics is None else {"topic": ",".join(topics)}
        return {**given, **limits, **named, **place_of(self.store)}

    def load_of(self, table: str, topics: Sequence[str] | None) -> Load:
        """The load of these topics into that table. Raises InvalidOption."""
        given = self._given(topics)
        options = parse_stream_options(given)
        names = read_names(self.columns, options.read.rows)
        schema = table_schema(names, options.read.rows)
        if options.read.flights is None:
            log = LocalLog(table, options, names, schema)
        else:
            log = _remote(table, options, names, schema, given)
        return Load(log, self._table(table), schema, self.bytes_max)

    def _table(self, name: str) -> Table:
        if self.to == ICEBERG:
            from spark_bridge.lake.iceberg import IcebergTable

            return IcebergTable(name, self.properties)
        from spark_bridge.lake.delta import DeltaTable

        return DeltaTable(name, self.properties)

    def topics_now(self) -> list[str]:
        """Those that are to have a table each."""
        if self.topics is not None:
            return list(self.topics)
        hidden, read = Selection(system_topics=False), parse_stream_options(self._given(None)).read
        if read.flights is not None:
            raise InvalidOption(f"{self.table}: name the topics, with --topic: nobody looks which there are elsewhere")
        stores = resolve_stores(read)
        return sorted({topic for store in stores for topic in inventory.topics_of(store.root, hidden)})


def _remote(
    table: str, options: StreamOptions, names: list[str], schema: pa.Schema, given: Mapping[str, str]
) -> LocalLog:  # fmt: skip
    from spark_bridge.lake.remote_log import RemoteLog  # gRPC is for those who need it

    return RemoteLog(table, options, names, schema, given)


class Tables:
    """Loads them, one after the other. A context manager."""

    def __init__(self, request: Request, *, is_once: bool) -> None:
        self._request, self._is_once = request, is_once
        self._loads: dict[str, Load] = {}
        self._listed = float("-inf")

    def __enter__(self) -> Tables:
        return self

    def __exit__(self, *_exc: object) -> None:
        for load in self._loads.values():
            load.close()

    def open(self) -> None:
        """Find all tables, and open them; those of new topics, when it is called again after a while."""
        if self._loads and (not self._request.is_per_topic or monotonic() - self._listed < TOPICS_S):
            return
        self._listed = monotonic()
        for table, topics in self._wanted().items():
            if table not in self._loads:
                load = self._request.load_of(table, topics)
                self._loads[table] = load
                load.open()
                if self._is_once:
                    load.log.settle()

    def _wanted(self) -> dict[str, Sequence[str] | None]:
        request = self._request
        if not request.is_per_topic:
            return {request.table: request.topics}
        topics = request.topics_now()
        if len(topics) > TABLES_MAX:
            raise InvalidOption(f"{len(topics)} topics, a table each: {TABLES_MAX} at most; name them with --topic")
        return {request.table.replace(TOPIC, topic): [topic] for topic in topics}

    def commits(self, *, is_due: bool, is_stopped: Callable[[], bool] = lambda: False) -> Iterator[Committed]:
        """What waits, in commits: all of it of a load that is to end, else one if it is due, and all that are full."""
        for load in self._loads.values():
            may_be_small = is_due
            while not is_stopped() and (committed := load.step(is_due=may_be_small)) is not None:
                yield committed
                may_be_small = self._is_once


def lake(
    store: str | Sequence[str], table: str, *, to: str, catalog: Mapping[str, str] | None = None,
    storage: Mapping[str, str] | None = None, topics: Sequence[str] | None = None,
    columns: Sequence[str] | None = None, max_rows: int = ROWS_MAX, max_bytes: int = BYTES_MAX, **options: object,
) -> list[Committed]:  # fmt: skip
    """Load what there is of a store into a table of Iceberg or Delta, behind what it has: its commits, oldest first.

    `to` is "iceberg", with a catalog's properties as PyIceberg has them, and `namespace.name` as table; or "delta", a
    directory or URL, with deltalake's options of its storage. `options` are those of a stream of Spark's (USAGE.md):
    decode, valueSchema, avroSchema, mode, startingOffsets, onlyConfirmed, failOnDataLoss.

    Raises InvalidOption, ExtraMissing, LakeError, DataLost, StoreNotReady, and what a store is found wrong with.
    """
    request = Request(
        store, to, table, dict(catalog or storage or {}), None if topics is None else tuple(topics),
        None if columns is None else tuple(columns), max_rows, max_bytes, options,
    )  # fmt: skip
    with Tables(request, is_once=True) as tables:
        tables.open()
        return list(tables.commits(is_due=True))
