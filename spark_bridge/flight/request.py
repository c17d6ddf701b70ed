"""What a client asks a Flight server to read: topics, columns and the options of a batch read, as JSON on the wire.

    {"version": 1, "topics": ["orders"], "columns": ["queueId", "body"], "options": {"startingTimestamp": "-10m"},
     "where": [["bodyLength", ">", 100]]}

Options have the names that Spark's have. Those that name places are refused: which store is read, the server knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_bridge.options.decoding import LOCAL_OPTION_NAMES
from spark_bridge.options.flights import FLIGHT_OPTION_NAMES
from spark_bridge.options.read import KAFKA_SERVERS, STORE_OPTION_NAMES, STREAM_OPTION_NAMES, TOPIC_OPTION_NAMES
from spark_bridge.options.rows import ROW_OPTION_NAMES
from spark_bridge.options.values import InvalidOption, json_value
from spark_bridge.options.views import TLS_CONFIG_FILE
from spark_bridge.records.row_filter import parse_conditions

VERSION = 1
STORE_ACTION = "store"  # whose log it is, and its ends
EXPLAIN_ACTION = "explain"  # what a request would touch
TABLE_OPTION = "table"
REQUEST_BYTES_MAX = 1 << 20
OPTIONS_MAX = 64
Condition = tuple[Any, Any, Any]
FIELDS = frozenset({"version", "topics", "columns", "options", "where"})
TOPIC_SELECTIONS = frozenset(name.lower() for name in TOPIC_OPTION_NAMES[:4])
EXAMPLE = '{"version": 1, "topics": ["orders"], "columns": ["queueId", "body"], "options": {"keys": "k-1"}}'
_PLACES = frozenset(
    name.lower() for name in (*STORE_OPTION_NAMES, KAFKA_SERVERS, TLS_CONFIG_FILE, *FLIGHT_OPTION_NAMES)
)
_OF_READERS = frozenset(name.lower() for name in LOCAL_OPTION_NAMES)
_OF_STREAMS = frozenset(name.lower() for name in STREAM_OPTION_NAMES)
_OF_ROWS = frozenset(name.lower() for name in ROW_OPTION_NAMES)


@dataclass(frozen=True)
class ScanRequest:
    """One read. `topics` None is what the options select, else every topic; `columns` None is the default schema's.

    `where` are conditions that all must hold, (column, operator, value) as `scan` has them; times are ISO texts. They
    are asked of each record on the server, before its body is touched. Raises InvalidOption for what no server takes.
    """

    topics: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    where: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        if len(self.options) > OPTIONS_MAX:
            raise InvalidOption(f"{len(self.options)} options: {OPTIONS_MAX} at most")
        given = {name.lower(): name for name in self.options}
        for lower, name in given.items():
            if lower in _PLACES:
                raise InvalidOption(f"{name} names a place: which store is read, the Flight server knows; leave it out")
            if lower in _OF_READERS:
                raise InvalidOption(f"{name}: no Flight server asks a registry for others; decode where you read")
            if lower in _OF_STREAMS:
                raise InvalidOption(f"{name} belongs to a stream; Flight serves batch reads, leave it out")
        if len(given) < len(self.options):
            raise InvalidOption("an option is given twice, in different case; give it once")
        _refuse_twice("topics", self.topics, TOPIC_SELECTIONS & given.keys())
        _refuse_twice("columns", self.columns, {"columns"} & given.keys())
        if self.where and TABLE_OPTION in given:
            raise InvalidOption("where asks messages, not the rows of a metadata table; leave it out")
        parse_conditions(list(self.where))

    @property
    def read_options(self) -> dict[str, str]:
        """Return all of it as the options of a read, without the store's place."""
        options = dict(self.options)
        if self.topics is not None:
            options["topic"] = ",".join(self.topics)
        if self.columns is not None:
            options["columns"] = json.dumps(self.columns)
        return options

    @property
    def row_options(self) -> dict[str, str]:
        """Return the options that say what a row is, which every ticket repeats."""
        return {name: text for name, text in self.options.items() if name.lower() in _OF_ROWS}

    @property
    def is_of_table(self) -> bool:
        """Whether a metadata table is asked for, not messages."""
        return any(name.lower() == TABLE_OPTION for name in self.options)

    def fields(self) -> dict[str, Any]:
        """Return the request as JSON fields."""
        fields: dict[str, Any] = {"version": VERSION, "options": dict(self.options)}
        if self.topics is not None:
            fields["topics"] = list(self.topics)
        if self.columns is not None:
            fields["columns"] = list(self.columns)
        if self.where:
            fields["where"] = self.where
        return fields

    def encoded(self) -> bytes:
        """Return the request as a FlightDescriptor's command. Raises InvalidOption when it is too large."""
        command = json.dumps(self.fields(), separators=(",", ":")).encode("ascii")
        if len(command) > REQUEST_BYTES_MAX:
            raise InvalidOption(f"a request of {len(command)} bytes, {REQUEST_BYTES_MAX} at most; name fewer queues")
        return command


def parsed(command: bytes) -> ScanRequest:
    """The request that a descriptor's command says. Raises InvalidOption."""
    if len(command) > REQUEST_BYTES_MAX:
        raise InvalidOption(f"a request of {len(command)} bytes, {REQUEST_BYTES_MAX} at most; name fewer queues")
    try:
        text = command.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidOption(f"a request that is not UTF-8: give JSON as {EXAMPLE}") from error
    fields = json_value("request", text, f"give JSON as {EXAMPLE}")
    if not isinstance(fields, dict) or not fields.keys() <= FIELDS:
        raise InvalidOption(f"a request has the fields {', '.join(sorted(FIELDS))}: give JSON as {EXAMPLE}")
    if fields.get("version") != VERSION or type(fields["version"]) is not int:
        raise InvalidOption(f"request version {fields.get('version')!r}: this server speaks version {VERSION}")
    options = fields.get("options", {})
    if not isinstance(options, dict) or not all(isinstance(text, str) for text in options.values()):
        raise InvalidOption('options of a request are texts: {"minPartitions": "8"}')
    topics, columns = _texts("topics", fields.get("topics")), _texts("columns", fields.get("columns"))
    return ScanRequest(topics, columns, options, conditions_of(fields.get("where", [])))


def conditions_of(value: object) -> tuple[Condition, ...]:
    """Return what JSON says as conditions, as far as their form goes. Raises InvalidOption."""
    if not isinstance(value, list) or not all(isinstance(item, list) and len(item) == 3 for item in value):
        raise InvalidOption('where of a request is a list of conditions: [["queueId", "in", [0, 1]]]')
    return tuple((name, operator, _hashable(given)) for name, operator, given in value)


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _texts(name: str, value: object) -> tuple[str, ...] | None:
    """A list of texts, none of them empty; None where it is not given."""
    if value is None:
        return None
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
        raise InvalidOption(f"{name} of a request is a list of texts, at least one")
    return tuple(value)


def _refuse_twice(name: str, value: object, options: set[str] | frozenset[str]) -> None:
    if value is not None and options:
        raise InvalidOption(f"{name} and the option {min(options)} say the same thing twice: give one of them")
