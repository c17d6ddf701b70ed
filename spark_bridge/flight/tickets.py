"""A split as a ticket: JSON that says what to read, in the log's own terms, and nothing of where the log lies.

A ticket is all that a server knows of a read: it remembers none, so one survives the server's restart, and any replica
of the same broker that is far enough along can serve it. It is a stranger's text: everything in it is checked here, as
far as it can be without the log, before anything is read. It grants nothing that its bearer could not ask for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spark_bridge.flight import request as requests
from spark_bridge.flight.errors import InvalidTicket
from spark_bridge.flight.request import Condition, ScanRequest, conditions_of
from spark_bridge.options.decoding import LOCAL_OPTION_NAMES
from spark_bridge.options.ranges import UNLIMITED, Range, Ranges
from spark_bridge.options.rows import ROW_OPTION_NAMES
from spark_bridge.options.values import InvalidOption
from spark_bridge.split.splits import (
    LogExtent,
    QueuePiece,
    QueueSplit,
    RangeSplit,
    RecordSplit,
    Selection,
    Split,
)
from spark_bridge.split.stored import StoredBounds
from store.message.topics import TOPIC_PATTERN

VERSION = 1
TICKET_BYTES_MAX = 1 << 20
PIECES_MAX = 4096  # of one ticket; larger splits become several
OFFSETS_MAX = 1 << 14
VALUES_MAX = 1 << 16  # of a list in a selection
TEXT_MAX = 1 << 16
TOPIC_CHARACTERS_MAX = 255  # a directory has its name
OFFSET_MAX = 2**63 - 1
QUEUE_ID_MAX = 2**31 - 1
SEGMENT_BYTES_MAX = 1 << 40
ASK_AGAIN = "ask for a new plan with GetFlightInfo"
FIELDS = frozenset(
    {"version", "broker", "segment", "log", "range", "queues", "records", "select", "columns", "rows", "where"}
)
TABLE_FIELDS = frozenset({"version", "broker", "request"})
SELECTED = frozenset({"topics", "queueIds", "bounds", "system", "queues", "stored", "tags", "keys", "ranges"})
SERVED_ROW_NAMES = tuple(name for name in ROW_OPTION_NAMES if name not in LOCAL_OPTION_NAMES)
_ROW_NAMES = frozenset(name.lower() for name in SERVED_ROW_NAMES)


@dataclass(frozen=True)
class SplitTicket:
    """A split without places, the columns that are wanted of it, what a row is, and the conditions that it meets."""

    split: Split
    columns: tuple[str, ...]
    rows: Mapping[str, str] = field(default_factory=dict)
    where: tuple[Condition, ...] = ()

    @property
    def broker_name(self) -> str:
        """Return the name of the broker whose log the ticket is of."""
        return self.split.log.broker_name


@dataclass(frozen=True)
class TableTicket:
    """A metadata table of a broker's store: the request itself, whose rows are made when the ticket comes."""

    broker_name: str
    request: ScanRequest

    def encoded(self) -> bytes:
        """Return the ticket as bytes for Flight. Raises InvalidOption when it is larger than servers take."""
        return _sent({"version": VERSION, "broker": self.broker_name, "request": self.request.fields()}, "fewer topics")


def tickets_of(
    split: Split, columns: Sequence[str], rows: Mapping[str, str], where: tuple[Condition, ...] = ()
) -> Iterator[SplitTicket]:
    """A planned split as one ticket, or as several where it names very many queues or records."""
    log = LogExtent(
        "",
        split.log.segment_bytes,
        split.log.min_physical_offset,
        split.log.reput_from_offset,
        split.log.max_physical_offset,
        broker_name=split.log.broker_name,
    )
    for part in _parts(replace(split, log=log)):
        yield SplitTicket(part, tuple(columns), dict(rows), where)


def _parts(split: Split) -> Iterator[Split]:
    if isinstance(split, QueueSplit):
        pieces = [piece._replace(directory="") for piece in split.pieces]
        for first in range(0, len(pieces), PIECES_MAX):
            yield replace(split, pieces=tuple(pieces[first : first + PIECES_MAX]))
    elif isinstance(split, RecordSplit):
        for first in range(0, len(split.offsets), OFFSETS_MAX):
            yield replace(split, offsets=split.offsets[first : first + OFFSETS_MAX])
    else:
        yield split


def placed(split: Split, log: LogExtent, directory_of: Callable[[str, int], str]) -> Split:
    """A ticket's split where one store has it: `log` is the store's, cut to what the ticket's plan saw."""
    if isinstance(split, QueueSplit):
        pieces = tuple(piece._replace(directory=directory_of(piece.topic, piece.queue_id)) for piece in split.pieces)
        return replace(split, log=log, pieces=pieces)
    return replace(split, log=log)


def encoded(ticket: SplitTicket) -> bytes:
    """Return the ticket as bytes for Flight. Raises InvalidOption when it is larger than servers take."""
    split, log = ticket.split, ticket.split.log
    fields: dict[str, Any] = {
        "version": VERSION, "broker": log.broker_name, "segment": log.segment_bytes,
        "log": [log.min_physical_offset, log.reput_from_offset, log.max_physical_offset],
        "select": _selection_fields(split.selection), "columns": list(ticket.columns), "rows": dict(ticket.rows),
    }  # fmt: skip
    if ticket.where:
        fields["where"] = ticket.where
    if isinstance(split, RangeSplit):
        fields["range"] = [split.base_offset, split.chain_from, split.start, split.end]
    elif isinstance(split, QueueSplit):
        fields["queues"] = [piece[1:] for piece in split.pieces]
    else:
        fields["records"] = split.offsets
    return _sent(fields, "offsets or times for fewer queues at once, or fewer keys")


def _sent(fields: Mapping[str, Any], smaller: str) -> bytes:
    text = json.dumps(fields, separators=(",", ":")).encode("ascii")
    if len(text) > TICKET_BYTES_MAX:
        what = f"a ticket of this read has {len(text)} bytes, {TICKET_BYTES_MAX} at most"
        raise InvalidOption(f"{what}; give {smaller}")
    return text


def _selection_fields(selection: Selection) -> dict[str, Any]:
    if selection.topic_pattern is not None:
        raise ValueError("a pattern is resolved before tickets are made")
    lists = {
        "topics": _sorted(selection.topics),
        "queueIds": _sorted(selection.queue_ids),
        "tags": _sorted(selection.tags),
        "keys": _sorted(selection.keys),
        "queues": _sorted(selection.queues),
        "bounds": list(selection.bounds) or None,
        "stored": [_since_1970(bound) for bound in selection.stored] or None,
        "ranges": list(selection.ranges) if selection.ranges != UNLIMITED else None,
    }
    return {"system": selection.system_topics, **{name: held for name, held in lists.items() if held is not None}}


def _since_1970(bound: StoredBounds) -> StoredBounds:
    """Clip times to 1970: nothing was stored before."""
    times = (None if at is None else max(0, at) for at in (bound.from_ms, bound.until_ms))
    return StoredBounds(bound.topic, bound.queue_id, *times)


def _sorted(values: frozenset[Any] | None) -> list[Any] | None:
    return None if values is None else sorted(values)


def parsed(text: bytes) -> SplitTicket:
    """The ticket of messages that a client sent. Raises InvalidTicket."""
    ticket = parsed_of_any_kind(text)
    if isinstance(ticket, TableTicket):
        raise InvalidTicket("a ticket of a metadata table, where one of messages is read; give it to a Flight server")
    return ticket


def parsed_of_any_kind(text: bytes) -> SplitTicket | TableTicket:
    """The ticket that a client sent. Raises InvalidTicket."""
    if len(text) > TICKET_BYTES_MAX:
        raise InvalidTicket(f"a ticket of {len(text)} bytes, {TICKET_BYTES_MAX} at most; {ASK_AGAIN}")
    try:
        fields = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        raise InvalidTicket(f"a ticket that is not JSON; {ASK_AGAIN}") from None
    if not isinstance(fields, dict) or not (fields.keys() <= FIELDS or fields.keys() == TABLE_FIELDS):
        raise InvalidTicket(f"a ticket has the fields {', '.join(sorted(FIELDS))}; {ASK_AGAIN}")
    if type(fields.get("version")) is not int or fields["version"] != VERSION:
        raise InvalidTicket(f"a ticket of another version; this server uses version {VERSION}; {ASK_AGAIN}")
    return _of_table(fields) if "request" in fields else _of_split(fields)


def _of_table(fields: Mapping[str, Any]) -> TableTicket:
    try:
        request = requests.parsed(json.dumps(fields["request"]).encode("ascii"))
    except InvalidOption as error:
        raise _wrong("request", str(error)) from None
    if not request.is_of_table:
        raise _wrong("request", "not a metadata table")
    return TableTicket(_text("broker", fields["broker"]), request)


def _of_split(fields: Mapping[str, Any]) -> SplitTicket:
    log, selection = _log(fields), _selection(fields.get("select", {}))
    given = [name for name in ("range", "queues", "records") if name in fields]
    match given:
        case ["range"]:
            split: Split = _range(fields["range"], log, selection)
        case ["queues"]:
            split = QueueSplit(log, _pieces(fields["queues"]), selection)
        case ["records"]:
            split = RecordSplit(log, _offsets(fields["records"], log), selection)
        case _:
            raise InvalidTicket(f"a ticket has one of range, queues and records; {ASK_AGAIN}")
    columns = _list("columns", fields.get("columns"), _text, least=1)
    return SplitTicket(split, columns, _rows(fields.get("rows", {})), _where(fields.get("where", [])))


def _log(fields: Mapping[str, Any]) -> LogExtent:
    segment = _number("segment", fields.get("segment"), SEGMENT_BYTES_MAX)
    low, queued, end = _numbers("log", fields.get("log"), 3)
    if not segment or not low <= queued <= end:
        raise _wrong("log", "an impossible extent")
    return LogExtent("", segment, low, queued, end, broker_name=_text("broker", fields.get("broker")))


def _range(value: object, log: LogExtent, selection: Selection) -> RangeSplit:
    base, chain, start, end = _numbers("range", value, 4)
    inside = max(base, log.min_physical_offset) <= chain <= start < end <= min(base + log.segment_bytes, OFFSET_MAX)
    if base % log.segment_bytes or not inside or end > log.max_physical_offset:
        raise _wrong("range", "not a part of one segment of the log")
    return RangeSplit(log, base, chain, start, end, selection)


def _pieces(value: object) -> tuple[QueuePiece, ...]:
    return _list("queues", value, _piece, least=1, most=PIECES_MAX)


def _piece(name: str, value: object) -> QueuePiece:
    topic, queue_id, start, end = _of_length(name, value, 4)
    piece = QueuePiece(
        "", _topic(name, topic), _number(name, queue_id, QUEUE_ID_MAX), _number(name, start), _number(name, end)
    )
    if piece.start >= piece.end:
        raise _wrong(name, "a piece of a queue without entries")
    return piece


def _offsets(value: object, log: LogExtent) -> tuple[int, ...]:
    offsets = _list("records", value, _number, least=1, most=OFFSETS_MAX)
    ascending = all(one < other for one, other in zip(offsets, offsets[1:], strict=False))
    if not ascending or offsets[0] < log.min_physical_offset or offsets[-1] >= log.max_physical_offset:
        raise _wrong("records", "offsets that do not ascend inside the log")
    return offsets


def _selection(value: object) -> Selection:
    if not isinstance(value, dict) or not value.keys() <= SELECTED or type(value.get("system", True)) is not bool:
        raise _wrong("select", f"not an object with {', '.join(sorted(SELECTED))}")
    return Selection(
        topics=_set(value, "topics", _text),
        queue_ids=_set(value, "queueIds", lambda name, item: _number(name, item, QUEUE_ID_MAX)),
        bounds=tuple(_list("bounds", value.get("bounds", []), _bound)),
        system_topics=value.get("system", True),
        queues=_set(value, "queues", _queue),
        stored=tuple(_list("stored", value.get("stored", []), _stored)),
        tags=_set(value, "tags", _text),
        keys=_set(value, "keys", _text),
        ranges=_ranges(value["ranges"]) if "ranges" in value else UNLIMITED,
    )


def _ranges(value: object) -> Ranges:
    return Ranges(*(_a_range("ranges", item) for item in _of_length("ranges", value, len(UNLIMITED))))


def _a_range(name: str, value: object) -> Range:
    limits = _of_length(name, value, 2)
    if not all(limit is None or (type(limit) is int and abs(limit) <= OFFSET_MAX) for limit in limits):
        raise _wrong(name, f"not limits from -{OFFSET_MAX} to {OFFSET_MAX}, or null")
    return Range(*limits)


def _set(value: Mapping[str, Any], name: str, item: Callable[[str, object], Any]) -> frozenset[Any] | None:
    return frozenset(_list(name, value[name], item)) if name in value else None


def _queue(name: str, value: object) -> tuple[str, int]:
    topic, queue_id = _of_length(name, value, 2)
    return _text(name, topic), _number(name, queue_id, QUEUE_ID_MAX)


def _bound(name: str, value: object) -> tuple[str, int, int, int | None]:
    topic, queue_id, first, end = _of_length(name, value, 4)
    return (*_queue(name, [topic, queue_id]), _number(name, first), None if end is None else _number(name, end))


def _stored(name: str, value: object) -> StoredBounds:
    topic, queue_id, start, end = _of_length(name, value, 4)
    return StoredBounds(
        None if topic is None else _text(name, topic),
        *(None if item is None else _number(name, item) for item in (queue_id, start, end)),
    )


def _rows(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise _wrong("rows", "not options with texts")
    if not {name.lower() for name in value} <= _ROW_NAMES:
        raise _wrong("rows", f"options that are not among {', '.join(SERVED_ROW_NAMES)}")
    return dict(value)


def _where(value: object) -> tuple[Condition, ...]:
    try:
        return conditions_of(value)
    except InvalidOption:
        raise _wrong("where", "not a list of conditions") from None


def _list(
    name: str, value: object, item: Callable[[str, object], Any], *, least: int = 0, most: int = VALUES_MAX
) -> tuple[Any, ...]:
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise _wrong(name, f"not a list of {least} to {most}")
    return tuple(item(name, one) for one in value)


def _numbers(name: str, value: object, length: int) -> tuple[int, ...]:
    return tuple(_number(name, item) for item in _of_length(name, value, length))


def _of_length(name: str, value: object, length: int) -> list[Any]:
    if not isinstance(value, list) or len(value) != length:
        raise _wrong(name, f"not a list of {length}")
    return value


def _number(name: str, value: object, most: int = OFFSET_MAX) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise _wrong(name, f"not a whole number from 0 to {most}")
    return value


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > TEXT_MAX or not _is_text(value):
        raise _wrong(name, f"not a text of up to {TEXT_MAX} characters")
    return value


def _is_text(value: str) -> bool:
    """Whether it has no half of a surrogate pair."""
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)


def _topic(name: str, value: object) -> str:
    """A topic: nothing that leads to another directory is one."""
    if not isinstance(value, str) or len(value) > TOPIC_CHARACTERS_MAX or TOPIC_PATTERN.fullmatch(value) is None:
        raise _wrong(name, "not a topic of letters, digits, %, |, - and _")
    return value


def _wrong(name: str, what: str) -> InvalidTicket:
    return InvalidTicket(f"a ticket's {name}: {what}; {ASK_AGAIN}")
