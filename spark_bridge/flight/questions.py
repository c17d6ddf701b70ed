"""What the driver of a stream asks a Flight server, and what it is answered: the action `stream`, as JSON.

    {"version": 1, "ask": "look", "options": {"topic": "orders"}, "seen": DIGEST}
    {"version": 1, "ask": "cut", "options": {...}, "spans": {"orders": {"0": [17, 40]}}, "rows": 100, "bytes": null}

A question says all that its answer depends on, so any replica answers it, and a server forgets it at once. It is a
stranger's text: what it says is checked here as far as that goes without a store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_bridge.options.decoding import LOCAL_OPTION_NAMES
from spark_bridge.options.flights import FLIGHT_OPTION_NAMES
from spark_bridge.options.read import KAFKA_SERVERS, STORE_OPTION_NAMES, STREAM_OPTION_NAMES
from spark_bridge.options.values import InvalidOption
from spark_bridge.options.views import TLS_CONFIG_FILE

VERSION = 1
STREAM_ACTION = "stream"
LOOK, START, NAMES, CUT, SIZES, HOLD = "look", "start", "names", "cut", "sizes", "hold"
ASKED = (LOOK, START, NAMES, CUT, SIZES, HOLD)
QUESTION_BYTES_MAX = 8 << 20
OPTIONS_MAX = 64
NAME_CHARACTERS_MAX = 128  # of who holds, of what was seen
OFFSET_MAX = 2**63 - 1
FIELDS = frozenset({"version", "ask", "options", "seen", "spans", "rows", "bytes", "done", "topics", "holder"})
NOT_TOLD = frozenset(
    name.lower()
    for name in (
        *STORE_OPTION_NAMES,
        KAFKA_SERVERS,
        *FLIGHT_OPTION_NAMES,
        *STREAM_OPTION_NAMES,
        *LOCAL_OPTION_NAMES,
        "columns",
        TLS_CONFIG_FILE,
    )
)
Queue = tuple[str, int]
Nested = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Question:
    """One question of a driver. `spans` are entries [start, end) of queues, `done` how far each queue was read."""

    ask: str
    options: Mapping[str, str]
    seen: str = ""  # the digest of the last look: an equal one is not sent again
    spans: Mapping[Queue, tuple[int, int]] = field(default_factory=dict)
    rows: int | None = None
    size: int | None = None
    done: Mapping[Queue, int] = field(default_factory=dict)
    topics: tuple[str, ...] = ()
    holder: str = ""

    def encoded(self) -> bytes:
        """Return the question as an action's body. Raises InvalidOption when it is larger than servers take."""
        fields: dict[str, Any] = {"version": VERSION, "ask": self.ask, "options": dict(self.options)}
        if self.seen:
            fields["seen"] = self.seen
        if self.ask in (CUT, SIZES):
            fields["spans"] = nested(self.spans)
        if self.ask == CUT:
            fields |= {"rows": self.rows, "bytes": self.size}
        if self.ask == HOLD:
            fields |= {"done": nested(self.done), "holder": self.holder}
        if self.topics:
            fields["topics"] = list(self.topics)
        body = json.dumps(fields, separators=(",", ":")).encode("ascii")
        if len(body) > QUESTION_BYTES_MAX:
            what = f"a stream's question of {len(body)} bytes, {QUESTION_BYTES_MAX} at most"
            raise InvalidOption(f"{what}; name fewer topics, or read where the store lies")
        return body


def told_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return a stream's options without those that servers must not see: places, and what the driver does."""
    return {name: text for name, text in given.items() if name.lower() not in NOT_TOLD}


def parsed(body: bytes) -> Question:
    """The question that a client sent. Raises InvalidOption."""
    fields = fields_of(body, QUESTION_BYTES_MAX, FIELDS, _wrong)
    if fields.get("ask") not in ASKED:
        raise _wrong(f"ask is not one of {', '.join(ASKED)}")
    return Question(
        ask=fields["ask"],
        options=_options(fields.get("options", {})),
        seen=_name("seen", fields.get("seen", "")),
        spans=_spans(fields.get("spans", {})),
        rows=_limit("rows", fields.get("rows")),
        size=_limit("bytes", fields.get("bytes")),
        done=_offsets("done", fields.get("done", {})),
        topics=_texts("topics", fields.get("topics", [])),
        holder=_name("holder", fields.get("holder", "")),
    )


def fields_of(body: bytes, bytes_max: int, names: frozenset[str], wrong: Callable[[str], Exception]) -> dict[str, Any]:
    """Return what a stranger's JSON object says, of this version and with no field but these.

    Raises what `wrong` makes.
    """
    if len(body) > bytes_max:
        raise wrong(f"{len(body)} bytes, {bytes_max} at most")
    try:
        fields = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise wrong("no JSON") from None
    if not isinstance(fields, dict) or not fields.keys() <= names:
        raise wrong(f"not an object with the fields {', '.join(sorted(names))}")
    if type(fields.get("version")) is not int or fields["version"] != VERSION:
        raise wrong(f"another version, this server speaks version {VERSION}")
    return fields


def nested(by_queue: Mapping[Queue, Any]) -> Nested:
    """Values by topic and queue, as JSON has them."""
    topics: Nested = {}
    for (topic, queue_id), value in by_queue.items():
        topics.setdefault(topic, {})[str(queue_id)] = list(value) if isinstance(value, tuple) else value
    return topics


def flat(topics: Mapping[str, Mapping[str, Any]]) -> dict[Queue, Any]:
    """Values by queue, from what `nested` made. Raises ValueError, AttributeError, TypeError for what it did not."""
    return {(topic, int(name)): value for topic, queues in topics.items() for name, value in queues.items()}


def _options(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise _wrong("options are texts")
    if len(value) > OPTIONS_MAX:
        raise _wrong(f"{len(value)} options, {OPTIONS_MAX} at most")
    for name in value:
        if name.lower() in NOT_TOLD:
            raise InvalidOption(f"{name} is not for servers: it names a place, or what the stream's driver does itself")
    if len({name.lower() for name in value}) < len(value):
        raise InvalidOption("an option is given twice, in different case; give it once")
    return value


def _spans(value: object) -> dict[Queue, tuple[int, int]]:
    spans = {}
    for queue, item in _by_queue("spans", value).items():
        if not isinstance(item, list) or len(item) != 2 or not all(map(_is_offset, item)) or item[0] > item[1]:
            raise _wrong("spans are [start, end) by topic and queue")
        spans[queue] = item[0], item[1]
    return spans


def _offsets(name: str, value: object) -> dict[Queue, int]:
    offsets = _by_queue(name, value)
    if not all(map(_is_offset, offsets.values())):
        raise _wrong(f"{name} are offsets by topic and queue")
    return offsets


def _by_queue(name: str, value: object) -> dict[Queue, Any]:
    try:
        return flat(value)  # type: ignore[arg-type]
    except (AttributeError, TypeError, ValueError):
        raise _wrong(f"{name} are by topic and queue") from None


def _is_offset(value: object) -> bool:
    return type(value) is int and 0 <= value <= OFFSET_MAX


def _limit(name: str, value: object) -> int | None:
    if value is not None and not _is_offset(value):
        raise _wrong(f"{name} is a number or null")
    return value  # type: ignore[return-value]


def _texts(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(item, str) for item in value):
        raise _wrong(f"{name} is a list of texts")
    return tuple(value)


def _name(name: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > NAME_CHARACTERS_MAX:
        raise _wrong(f"{name} is a text of up to {NAME_CHARACTERS_MAX} characters")
    return value


def _wrong(what: str) -> InvalidOption:
    return InvalidOption(f"a stream's question: {what}; docs/flight.md says what may be asked")


def by_queue(queues: Iterable[Queue], values: Iterable[Any]) -> dict[Queue, Any]:
    """Return the values by their queues."""
    return dict(zip(queues, values, strict=True))
