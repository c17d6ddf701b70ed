"""All tables of one load: one of a name, or one a topic where the name has `{topic}` in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic

import pyarrow as pa

from spark_bridge.lake.load import Committed, Load, Table
from spark_bridge.lake.local_log import LocalLog
from spark_bridge.lake.request import BYTES_MAX, ICEBERG, ROWS_MAX, Request, catalog_properties
from spark_bridge.lake.schema import read_names, table_schema
from spark_bridge.options.values import InvalidOption, listed
from spark_bridge.plan import inventory
from spark_bridge.plan.stores import resolve_stores
from spark_bridge.split.splits import Selection
from spark_bridge.stream.options import StreamOptions, parse_stream_options

# Catalogs and storages on this host are asked past the proxies that the environment names.
#
# PyIceberg's requests, deltalake's and Arrow's clients of object stores all follow `http_proxy` and its like, for
# 127.0.0.1 as well, and would hand a catalog's token to the proxy. All of them follow `no_proxy`.
PROXIES = ("http_proxy", "https_proxy", "all_proxy")
EXCEPTIONS = ("no_proxy", "NO_PROXY")
OF_THIS_HOST = ("localhost", "127.0.0.1", "127.0.0.0/8", "::1", "[::1]")
ALL = "*"


def leave_out_this_host() -> None:
    """Add this host's names to the exceptions of this process, where it has a proxy."""
    if not any(os.environ.get(name) or os.environ.get(name.upper()) for name in PROXIES):
        return
    named = [name.strip() for key in EXCEPTIONS for name in os.environ.get(key, "").split(",") if name.strip()]
    if ALL in named:
        return
    for key in EXCEPTIONS:
        os.environ[key] = ",".join(dict.fromkeys([*named, *OF_THIS_HOST]))


TABLES_MAX = 1000
TOPICS_S = 10.0  # so often new topics are looked for


def _load_of(request: Request, table: str, topics: Sequence[str] | None) -> Load:
    """The load of these topics into that table. Raises InvalidOption."""
    given = request.given(topics)
    options = parse_stream_options(given)
    names = read_names(request.columns, options.read.rows)
    schema = table_schema(names, options.read.rows)
    if options.read.flights is None:
        log = LocalLog(table, options, names, schema)
    else:
        log = _remote(table, options, names, schema, given)
    may_lose = not options.read.rows.fail_on_data_loss
    return Load(log, _table(request, table, may_lose), schema, request.bytes_max)


def _table(request: Request, name: str, may_lose: bool) -> Table:
    if request.to == ICEBERG:
        from spark_bridge.lake.iceberg import IcebergTable

        return IcebergTable(name, request.properties, may_lose=may_lose)
    from spark_bridge.lake.delta import DeltaTable

    return DeltaTable(name, request.properties, may_lose=may_lose)


def _topics_now(request: Request) -> list[str]:
    """Return the topics that get a table each."""
    if request.topics is not None:
        return list(request.topics)
    hidden, read = Selection(system_topics=False), parse_stream_options(request.given(None)).read
    if read.flights is not None:
        raise InvalidOption(f"{request.table}: name the topics with --topic: a load through Flight cannot list them")
    stores = resolve_stores(read)
    return sorted({topic for store in stores for topic in inventory.topics_of(store.root, hidden)})


def _remote(
    table: str, options: StreamOptions, names: list[str], schema: pa.Schema, given: Mapping[str, str]
) -> LocalLog:
    from spark_bridge.lake.remote_log import RemoteLog  # gRPC is for those who need it

    return RemoteLog(table, options, names, schema, given)


class Tables:
    """Loads them, one after the other. A context manager."""

    def __init__(self, request: Request, *, is_once: bool) -> None:
        self._request, self._is_once = request, is_once
        self._loads: dict[str, Load] = {}
        self._listed = float("-inf")

    def __enter__(self) -> Tables:
        leave_out_this_host()
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
                load = _load_of(self._request, table, topics)
                self._loads[table] = load
                load.open()
                if self._is_once:
                    load.log.settle()

    def _wanted(self) -> dict[str, Sequence[str] | None]:
        request = self._request
        if not request.is_per_topic:
            return {request.table: request.topics}
        topics = _topics_now(request)
        if len(topics) > TABLES_MAX:
            raise InvalidOption(f"{len(topics)} topics, a table each: {TABLES_MAX} at most; name them with --topic")
        return {request.table_of(topic): [topic] for topic in topics}

    def commits(self, *, is_due: bool, is_stopped: Callable[[], bool] = lambda: False) -> Iterator[Committed]:
        """Yield what waits, in commits.

        All of it of a load that is to end, else one if it is due, and all that are full.
        """
        for load in self._loads.values():
            may_be_small = is_due
            while not is_stopped() and (committed := load.step(is_due=may_be_small)) is not None:
                yield committed
                may_be_small = self._is_once


def _names(argument: str, names: Sequence[str] | None) -> tuple[str, ...] | None:
    given = listed(argument, names)
    return None if given is None else tuple(given)


def lake(
    store: str | Sequence[str],
    table: str,
    *,
    to: str,
    catalog: str | Mapping[str, str] | None = None,
    storage: Mapping[str, str] | None = None,
    topics: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    max_rows: int = ROWS_MAX,
    max_bytes: int = BYTES_MAX,
    **options: object,
) -> list[Committed]:
    """Load what there is of a store into a table of Iceberg or Delta, behind what it has: its commits, oldest first.

    `to` is "iceberg", with a catalog's URI (`sqlite:///lake.db`) or its properties as PyIceberg has them, and
    `namespace.name` as table; or "delta", a directory or URL, with deltalake's options of its storage. `options`
    are those of a stream of Spark's (USAGE.md): decode, valueSchema, avroSchema, mode, startingOffsets,
    onlyConfirmed, failOnDataLoss.

    Raises InvalidOption, ExtraMissing, LakeError, DataLost, StoreNotReady, and what a store is found wrong with.
    """
    properties = dict(storage or {}) if catalog is None else catalog_properties(catalog)
    request = Request(
        store,
        to,
        table,
        properties,
        _names("topics", topics),
        _names("columns", columns),
        max_rows,
        max_bytes,
        options,
    )
    with Tables(request, is_once=True) as tables:
        tables.open()
        return list(tables.commits(is_due=True))
