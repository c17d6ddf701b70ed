"""One call that gives SQL a store: a database with a table a topic, two of all messages, and the metadata tables.

Spark finds catalogues by the names of Java classes, so Slipstream has none. A database of the session's own catalogue
is as good to ask: its tables, unlike a temporary view `USING rocketmq`, are planned anew by each query. Spark does not
tell a Python source which columns a query uses, so one table has the columns that cost little, and no bodies.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from spark_bridge.catalogue import PLACES, keeping
from spark_bridge.options.columns import canonical
from spark_bridge.options.flights import FLIGHT_OPTION_NAMES, Flights
from spark_bridge.options.read import TABLE_NAMES, ReadOptions, parse_options
from spark_bridge.options.rows import AVRO, ERROR_COLUMN, JSON
from spark_bridge.options.values import InvalidOption, listed, nearest, option_text, place_of
from spark_bridge.plan import inventory
from spark_bridge.plan.names import refuse_missing
from spark_bridge.plan.stores import PERM_INHERIT, REPLY_SUFFIX, resolve_stores
from spark_bridge.records.spark_schema import schema_of, settled
from spark_bridge.source import RocketMQSource
from spark_bridge.split.splits import Selection
from spark_bridge.sql.database import Table, make_tables
from spark_bridge.sql.functions import register_functions
from spark_bridge.sql.names import HEADS, MESSAGES, TableNames, quoted, table_names
from spark_bridge.tables.reader import table_schema
from store.errors import MalformedConfig
from store.message.topics import group_of, is_lmq
from store.names import CONFIG, TOPICS
from store.tables import json_files
from store.tables.tables import topics as topics_in

# A folder of schemas, a file a topic: `orders.avsc` is Avro's, `orders.ddl` and `orders.json` are of JSON bodies.

# Endings to what bodies are decoded as, and the option that takes the file's text.
KINDS = {".avsc": (AVRO, "avroSchema"), ".ddl": (JSON, "valueSchema"), ".json": (JSON, "valueSchema")}
SCHEMA_BYTES_MAX = 1 << 20


def decoding_of(folder: str | Path, topic: str) -> dict[str, str]:
    """Return the options that a topic's schema file means; {} without a file.

    Raises InvalidOption where the folder is none, a topic has two files, or a file is no text of at most 1 MiB.
    """
    root = Path(folder)
    if not root.is_dir():
        raise InvalidOption(f"schemas={str(folder)!r}: not a directory with a file per topic, such as orders.avsc")
    paths = [root / f"{topic}{ending}" for ending in KINDS] if Path(topic).name == topic else []
    files = [path for path in paths if path.is_file()]
    if len(files) > 1:
        names = " and ".join(path.name for path in files)
        raise InvalidOption(f"schemas={str(folder)!r}: {names} are of one topic; keep one of them")
    if not files:
        return {}
    decode, option = KINDS[files[0].suffix]
    return {"decode": decode, option: _text(files[0])}


def _text(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(SCHEMA_BYTES_MAX + 1)
    if len(data) > SCHEMA_BYTES_MAX:
        raise InvalidOption(f"{path}: more than {SCHEMA_BYTES_MAX} bytes, too long for a schema")
    try:
        return data.decode().strip()
    except UnicodeDecodeError as error:
        raise InvalidOption(f"{path}: not UTF-8 ({error})") from error


# Which topics of some stores have a table of their own: those with messages, and those that somebody made for them.
#
# System topics, multi-dispatch queues, the topics that a broker names after itself and its cluster, and retry, dead
# letter and reply topics without a message have none.
def topics_of_stores(options: ReadOptions) -> list[str]:
    """Their names, sorted. Raises what finding the stores raises, and NotAStore."""
    if options.flights is not None:
        return sorted(topic for topic in _served(options.flights) if Selection(system_topics=False).admits(topic))
    topics: set[str] = set()
    for store in resolve_stores(options):
        inventory.find_extent(store.root, beyond_rot=True)  # NotAStore, or what else is wrong with it
        wanted = Selection(system_topics=options.include_system_topics)
        topics |= inventory.topics_of(store.root, wanted)
        topics |= {topic for topic in _made(store.root) if wanted.admits(topic)}
    return sorted(topics)


def _served(flights: Flights) -> set[str]:
    """Return what servers list: of each store, one that answers. Raises ServerUnreachable."""
    from spark_bridge.flight.client import RemoteStore  # gRPC is for those who need it
    from spark_bridge.flight.errors import ServerUnreachable

    topics: set[str] = set()
    for locations in flights.stores:
        for location in locations:
            try:
                with RemoteStore(location, flights.token, flights.roots) as store:
                    topics.update(name for name in store.topics() if not is_lmq(name))
                break
            except ServerUnreachable:
                if location == locations[-1]:
                    raise
    return topics


def _made(root: str) -> list[str]:
    try:
        table = topics_in(json_files.read(Path(root) / CONFIG / TOPICS))
    except MalformedConfig:  # the queues tell what has messages
        return []
    return [topic for topic, fields in table.items() if _is_for_messages(topic, fields.get("perm"))]


def _is_for_messages(topic: str, perm: object) -> bool:
    inherited = isinstance(perm, int) and bool(perm & PERM_INHERIT)
    return not inherited and group_of(topic) is None and not topic.endswith(REPLY_SUFFIX)


DATABASE = "rocketmq"
TABLES_MAX = 10_000
OWN = ("topic", "subscribe", "subscribepattern", "assign", "table", "columns")  # what register says itself

HEAD_COLUMNS = (
    "topic", "queueId", "queueOffset", "physicalOffset", "sysFlag", "bornTimestamp", "storeTimestamp", "bodyLength",
    "brokerName",
)  # fmt: skip

Columns = str | Sequence[str] | None


@dataclass(frozen=True)
class Registration:
    """The state of SQL: topics to their tables, ready for a statement, and topics left out to the reason why."""

    database: str
    tables: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def register(
    spark: SparkSession,
    store: str | Path | Sequence[str | Path] | None = None,
    *,
    database: str = DATABASE,
    topics: Iterable[str] | None = None,
    names: Mapping[str, str] | None = None,
    columns: Columns = None,
    schemas: str | Path | None = None,
    per_topic: Mapping[str, Mapping[str, Any]] | None = None,
    **options: Any,
) -> Registration:
    """The format and its table functions for this session; with a store, or several, its tables in a database.

    `topics` None is every topic there is now; `names` are tables' names where a topic's own will not do; `columns` are
    names, or DDL with types; `schemas` is a folder with a schema a topic (`orders.avsc`, `.ddl`, `.json`); `per_topic`
    has more options of some topics, `options` those of all. Called again it is as called for the first time: new
    topics have tables, changed ones are made anew, those of topics that are gone go. Tables of others stay as they are.
    Raises InvalidOption, and what reading the stores raises.
    """
    _refuse_missing_python()
    topics = listed("topics", topics)
    columns = columns if isinstance(columns, str) else listed("columns", columns)
    _refuse_no_dictionary("names", names, str, '{"my-topic": "mine"}')
    _refuse_no_dictionary("per_topic", per_topic, Mapping, '{"orders": {"decode": "json"}}')
    spark.dataSource.register(RocketMQSource)
    register_functions(spark)
    given = {**_place(store), **{name.lower(): option_text(value) for name, value in options.items()}}
    if not any(name in PLACES for name in given):
        if any(value is not None for value in (topics, names, columns, schemas, per_topic)) or given:
            raise InvalidOption("register: a store is missing; register(spark, STORE, ...), or nameServer='host:9876'")
        return Registration(database)
    _refuse_own(given)
    place = {name: value for name, value in given.items() if name in PLACES}
    wanted = _topics(given, topics)
    named = _tables_named(wanted, names or {}, topics is not None)
    heads = [*HEAD_COLUMNS, *([ERROR_COLUMN] if parse_options(given).rows.permissive else [])]
    tables = [_messages(MESSAGES, given, columns), _messages(HEADS, given, heads), *_metadata(place, given)]
    for topic, name in named.tables.items():
        decoding = decoding_of(schemas, topic) if schemas is not None else {}
        own = {**given, **decoding, **_own(topic, wanted, per_topic or {}), "topic": topic}
        tables.append(_messages(name, own, None if "columns" in own else columns))
    left_out = {**named.left_out, **make_tables(spark, database, tables, place, prune=topics is None)}
    for reason in left_out.values():
        warnings.warn(f"register: no table for {reason}", stacklevel=2)
    made = {topic: quoted(database, name) for topic, name in named.tables.items() if topic not in left_out}
    return Registration(database, made, left_out)


def _refuse_missing_python() -> None:
    """Raise InvalidOption unless Spark finds the Python of executors on the driver, too, which plans with it."""
    context = SparkContext._active_spark_context
    python = context.pythonExec if context is not None else ""
    if os.sep in python and not os.access(python, os.X_OK):
        where = f" in {os.getcwd()}" if not os.path.isabs(python) else ""
        raise InvalidOption(
            f"PYSPARK_PYTHON={python}: it does not exist{where}, but the driver also plans with it: "
            "unpack the archive that executors are sent there, under the same name"
        )


def _refuse_no_dictionary(name: str, value: object, of: type, example: str) -> None:
    if not (value is None or (isinstance(value, Mapping) and all(isinstance(one, of) for one in value.values()))):
        raise InvalidOption(f"register: {name}={value!r}: a dictionary as {example}")


def _refuse_own(given: Mapping[str, str]) -> None:
    for name in OWN:
        if name in given:
            raise InvalidOption(f"register: {name}={given[name]!r}: each table has its own; there is topics=[...]")


def _own(topic: str, topics: Iterable[str], per_topic: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """A topic's own options. Raises InvalidOption for those of a topic that is not there."""
    for name in per_topic:
        if name not in topics:
            raise InvalidOption(f"per_topic: no topic {name!r} here; {nearest(name, topics)}")
    return {name.lower(): option_text(value) for name, value in per_topic.get(topic, {}).items()}


def _tables_named(topics: Iterable[str], names: Mapping[str, str], are_named: bool) -> TableNames:
    """Return the names of the topics' tables. Raises InvalidOption for an unknown topic and an impossible name."""
    for topic in names:
        if topic not in topics:
            raise InvalidOption(f"names: no topic {topic!r} here; {nearest(topic, topics)}")
    named = table_names(topics, names)
    if are_named and named.left_out:
        raise InvalidOption(f"register: no table for {next(iter(named.left_out.values()))}")
    if len(named.tables) > TABLES_MAX:
        what = f"{len(named.tables)} topics, at most {TABLES_MAX} have tables"
        raise InvalidOption(f"{what}: name some with topics=[...]")
    return named


def _metadata(place: Mapping[str, str], given: Mapping[str, str]) -> Iterator[Table]:
    """Yield each metadata table, with the place of its stores and the options that ask their servers."""
    asked = {name: given[name] for name in map(str.lower, FLIGHT_OPTION_NAMES) if name in given}
    for name in TABLE_NAMES:
        kept = {**place, **asked, "table": name}
        yield Table(name, keeping(table_schema(name), kept, f"{name} of {_place_text(place)}"), name)


def _place(store: str | Path | Sequence[str | Path] | None) -> dict[str, str]:
    if store is None:
        return {}
    if isinstance(store, str | Path):
        return place_of(_absolute(store))
    if not isinstance(store, Sequence) or not all(isinstance(path, str | Path) for path in store):
        raise InvalidOption(f"register: store={store!r}: a store's directory or address, or a list of them")
    return place_of([_absolute(path) for path in store])


def _absolute(path: str | Path) -> str:
    """Make a path absolute, for queries that run in another directory; lists with commas and URLs are unchanged."""
    text = str(path)
    return text if "," in text or ":" in text else os.path.abspath(text)


def _topics(given: Mapping[str, str], topics: Iterable[str] | None) -> list[str]:
    """Return the named topics, which must exist, or all topics of the stores."""
    if topics is None:
        return topics_of_stores(parse_options(given))
    named = list(dict.fromkeys(topics))
    options = parse_options(given)
    if options.flights is not None:
        known = topics_of_stores(options)
        for topic in named:
            if topic not in known:
                raise InvalidOption(f"topics: the servers have no topic {topic!r}; {nearest(topic, known)}")
    elif named:
        options = parse_options({**given, "topic": ",".join(named)})
        refuse_missing(options, resolve_stores(options))
    return named


def _messages(name: str, options: Mapping[str, str], columns: Columns) -> Table:
    """A table of messages. Raises InvalidOption for what a read would not take."""
    kept = dict(options)
    if "flighttoken" in kept:
        raise InvalidOption("register: flightToken would be kept in the catalogue; give flightTokenFile=FILE")
    if isinstance(columns, str):
        schema = _by_ddl(columns, parse_options(kept))
    else:
        if columns is not None:
            kept["columns"] = ",".join(columns)
        parsed = parse_options(kept)
        schema = schema_of(None if parsed.columns is None else canonical(parsed.columns), parsed.rows)
    topic = kept.get("topic")
    what = "all messages" if topic is None else f"messages of topic {topic}"
    return Table(name, keeping(schema, kept, f"{what}, {_place_text(kept)}"), topic or name)


def _place_text(options: Mapping[str, str]) -> str:
    return ", ".join(options[name] for name in PLACES if name in options)


def _by_ddl(columns: str, parsed: ReadOptions) -> StructType:
    """The columns with types. Raises InvalidOption."""
    try:
        schema = DataType.fromDDL(columns)
    except Exception as error:
        text = str(error).strip().split("\n", 1)[0]
        raise InvalidOption(f"columns={columns!r}: columns with types, as 'queueId int' ({text})") from error
    if not isinstance(schema, StructType) or not schema.fields:
        raise InvalidOption(f"columns={columns!r}: columns with types, as 'queueId int, body binary'")
    settled(schema, parsed.rows)
    return schema
