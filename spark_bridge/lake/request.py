"""What a load is asked for: a store, tables of a lake, options; it is checked without loading Arrow."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ipc.extras import require_lake
from spark_bridge.options.decoding import JSON, TIME_ZONE
from spark_bridge.options.read import STREAM_OPTION_NAMES
from spark_bridge.options.values import InvalidOption, option_text, place_of
from spark_bridge.options.zones import UTC_NAME
from spark_bridge.stream.options import parse_stream_options
from store.files.directory import store_directory

ICEBERG, DELTA = "iceberg", "delta"
TOPIC = "{topic}"
ROWS_MAX, BYTES_MAX = 1_000_000, 128 << 20
IN_URLS = re.compile(r"[%|]")  # of what topics may be called
UNKEPT = re.compile(r"\||%(?=[0-9A-Fa-f]{2})")  # in paths of Delta's tables: deltalake decodes them, or gives up
SAID_BY_ARGUMENTS = frozenset({"path", "paths", "schema", "columns", "table"})
SQLITE, SQLITE_FILE, SQLITE_IN_MEMORY = "sqlite:", "sqlite:///", ":memory:"
TOPIC_OPTIONS = frozenset({"topic", "subscribe", "subscribepattern"})
PATTERN_MARKS = frozenset("*?[,:")  # of globs, lists and URLs, which planning resolves


def is_uri(catalog: str) -> bool:
    """Whether a catalog is named by its URI, and not by a file of properties."""
    return "://" in catalog or catalog.startswith(SQLITE)


def catalog_properties(catalog: str | Mapping[str, str], warehouse: str | None = None) -> dict[str, str]:
    """PyIceberg's properties of a catalog; tables of one in SQLite lie beside it unless `warehouse` is given.

    Raises InvalidOption for a text that is no URI.
    """
    if isinstance(catalog, str):
        if not is_uri(catalog):
            what = f"catalog={catalog!r}: not a URI such as sqlite:////srv/lake.db or https://catalog:8181"
            raise InvalidOption(f"{what}; give one, or a dictionary of PyIceberg's properties")
        catalog = {"uri": catalog}
    properties = dict(catalog)
    if warehouse is not None:
        properties["warehouse"] = warehouse
    uri = properties.get("uri", "")
    if uri.startswith(SQLITE) and not uri.startswith("sqlite://"):
        uri = properties["uri"] = SQLITE_FILE + uri.removeprefix(SQLITE)
    file = uri.removeprefix(SQLITE_FILE)
    if uri.startswith(SQLITE_FILE) and file != SQLITE_IN_MEMORY and "warehouse" not in properties:
        properties["warehouse"] = Path(file).absolute().with_suffix(".warehouse").as_uri()
    return properties


@dataclass(frozen=True)
class Request:
    """The source and target of a load. `properties` are the catalog's (Iceberg), or the storage's (Delta)."""

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
        parts = self.table.split(".")
        if self.to == ICEBERG and (len(parts) < 2 or not all(map(str.strip, parts))):
            raise InvalidOption(f"--table {self.table}: an Iceberg table is NAMESPACE.NAME, as raw.orders")
        if self.to == DELTA and "://" not in self.table and UNKEPT.search(self.table):
            what = "deltalake keeps no table in a directory with | or % and two hexadecimal digits in its path"
            raise InvalidOption(f"--table {self.table}: {what}; name another one")
        require_lake("slipstream lake", self.to)

    def table_of(self, topic: str) -> str:
        """The name of a topic's table. Iceberg's have the topic's own name in it.

        So have Delta's, but that `%RETRY%accounts` lies in `~25RETRY~25accounts`: no URL is read otherwise than it.
        """
        name = IN_URLS.sub(lambda mark: f"~{ord(mark[0]):02X}", topic) if self.to == DELTA else topic
        return self.table.replace(TOPIC, name)

    @property
    def is_per_topic(self) -> bool:
        """Whether each topic has a table."""
        return TOPIC in self.table

    def given(self, topics: Sequence[str] | None) -> dict[str, str]:
        """Return what is read of these topics, as options of a stream. Raises InvalidOption."""
        given = {name: option_text(value) for name, value in self.options.items()}
        _refuse_said_otherwise(given, has_topics=topics is not None)
        limits = {"maxOffsetsPerTrigger": str(self.rows_max), "maxBytesPerTrigger": str(self.bytes_max)}
        named = {} if topics is None else {"topic": ",".join(topics)}
        if given.get("decode") == JSON and TIME_ZONE.lower() not in map(str.lower, given):
            given[TIME_ZONE] = UTC_NAME  # a table is loaded from any host
        return {**given, **limits, **named, **place_of(self.store)}

    def check(self) -> None:
        """Raise what is wrong with the options, and NotAStore for a plain name of nothing."""
        for path in parse_stream_options(self.given(self.topics)).read.paths:
            if not set(path) & PATTERN_MARKS and not Path(path).exists():
                store_directory(path)


def _refuse_said_otherwise(given: Mapping[str, str], *, has_topics: bool) -> None:
    """Raise InvalidOption for options that would be ignored, or contradict what a load says of itself."""
    of_streams = {name.lower() for name in STREAM_OPTION_NAMES}
    for name in given:
        if name.lower() in of_streams:
            what = "--max-rows and --max-bytes limit a commit, and a load commits to no group"
            raise InvalidOption(f"option {name} is one of Spark's streams: {what}; leave it out")
        if name.lower() in SAID_BY_ARGUMENTS:
            what = "store, table and columns of a load are arguments"
            raise InvalidOption(f"option {name}={given[name]!r}: {what}; leave it out")
        if has_topics and name.lower() in TOPIC_OPTIONS:
            raise InvalidOption(f"option {name}={given[name]!r}: the topics are already given; give them once")
