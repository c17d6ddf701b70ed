"""The body of a broker's registration: its topics and their version, plain JSON or deflated, as bytes and as values.

Implements: RegisterBrokerBody, TopicConfigSerializeWrapper, TopicConfig (spec: remoting, 5 name server)
Every count, number and name is bounded before anything is made of it: any host that reaches the port may send one.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.protocol.remoting.frame import FRAME_BYTES_MAX, MalformedFrame
from store.compat import Line
from store.errors import MalformedData
from store.tables import fastjson
from store.tables.entry_texts import STEP
from store.tables.fastjson import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, whole_number
from store.tables.tables import DataVersion

INFLATED_BYTES_MAX = FRAME_BYTES_MAX
TOPICS_MAX = 120_000  # of one broker
FILTER_SERVERS_MAX = 64
NAME_BYTES_MAX, TOPIC_BYTES_MAX = 255, 512
VERSION_BYTES_MAX = 4096
VERSION_WITH_FILTER_SERVERS = 37  # 3.0.11: before, the body was the topics alone
VERSION_WITH_MAPPING = 413  # 5.0.0: a deflated body ends in the static topics' mapping
LENGTH_BYTES = 4
NUMBERS_OF_TOPIC = ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag")


@dataclass(frozen=True, slots=True)
class Member:
    """The broker that sends a registration."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_server_address: str


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic as a broker has it."""

    topic: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_sys_flag: int = 0
    filter_type: str = "SINGLE_TAG"
    order: bool = False


@dataclass(frozen=True, slots=True)
class RegisterBody:
    """Topics and their version, as a broker registers them."""

    data_version: DataVersion = field(default_factory=DataVersion)
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    filter_servers: tuple[str, ...] = ()


def decode(body: bytes | memoryview, *, compressed: bool, version: int, line: Line) -> RegisterBody:
    """The body of REGISTER_BROKER; `version` is the sender's, `line` ours.

    Raises MalformedFrame.
    """
    if not len(body):
        return RegisterBody(DataVersion(state_version=0 if line.tables.state_versions else None))
    try:
        if compressed and version >= VERSION_WITH_FILTER_SERVERS:
            return _decode_deflated(bytes(body), version, line)
        return _decode_json(bytes(body), version, line)
    except (LookupError, TypeError, ValueError, AttributeError, MalformedData, zlib.error) as reason:
        raise MalformedFrame("registration's body", f"{type(reason).__name__}: {reason}") from None


def is_name(text: object, bytes_max: int = NAME_BYTES_MAX) -> bool:
    """Whether it may stand in a list, a log line and on a terminal: printable, of a sensible length."""
    return isinstance(text, str) and 0 < len(text) <= bytes_max and text.isprintable() and _fits(text, bytes_max)


def _fits(text: str, bytes_max: int) -> bool:
    return text.isascii() or len(text.encode()) <= bytes_max


def _name(text: object, what: str, bytes_max: int = NAME_BYTES_MAX) -> str:
    if not is_name(text, bytes_max):
        raise ValueError(f"{what} is not a name: printable, of 1 to {bytes_max} bytes")
    return str(text)


def _whole(value: Any, low: int = INT32_MIN, high: int = INT32_MAX) -> int:
    """Return a whole number; 0 where the value is missing or empty."""
    return 0 if value is None or value == "" else whole_number(value, low, high)


def data_version_of(content: bytes | memoryview, line: Line) -> DataVersion:
    """A DataVersion alone, as QUERY_DATA_VERSION sends it. Raises MalformedFrame."""
    try:
        return _data_version(fastjson.loads(content, bytes_max=VERSION_BYTES_MAX), line)
    except (TypeError, ValueError, AttributeError, MalformedData) as reason:
        raise MalformedFrame("data version", str(reason)) from None


def _data_version(fields: Mapping[str, Any], line: Line) -> DataVersion:
    names = ("counter", "timestamp", "stateVersion")
    counter, timestamp, state = (_whole(fields.get(name), INT64_MIN, INT64_MAX) for name in names)
    return DataVersion(counter, timestamp, state if line.tables.state_versions else None)


def _decode_json(body: bytes, version: int, line: Line) -> RegisterBody:
    fields = fastjson.loads(body)
    wrapper = fields.get("topicConfigSerializeWrapper") or {} if version >= VERSION_WITH_FILTER_SERVERS else fields
    table = wrapper.get("topicConfigTable") or {}
    _check_count(len(table), TOPICS_MAX, "topics")
    topics = {name: _topic(name, config) for name, config in table.items()}
    return RegisterBody(_data_version(wrapper.get("dataVersion") or {}, line), topics, _servers(fields))


def _servers(fields: Any) -> tuple[str, ...]:
    servers = fields.get("filterServerList") or () if isinstance(fields, dict) else fields
    _check_count(len(servers), FILTER_SERVERS_MAX, "filter servers")
    return tuple(_name(server, "a filter server") for server in servers)


def _check_count(count: int, count_max: int, what: str) -> None:
    if not 0 <= count <= count_max:
        raise ValueError(f"it claims {count} {what}, allowed are 0 to {count_max}")


def _topic(name: str, config: Mapping[str, Any]) -> TopicConfig:
    read, write, perm, flag = (_whole(config.get(key)) for key in NUMBERS_OF_TOPIC)
    return TopicConfig(
        _name(config.get("topicName") or name, "a topic", TOPIC_BYTES_MAX),
        read,
        write,
        perm,
        flag,
        str(config.get("topicFilterType") or "SINGLE_TAG")[:NAME_BYTES_MAX],
        bool(config.get("order")),
    )


def deflated_in_steps(
    version: DataVersion,
    topics: Sequence[str],
    config: Callable[[str], Mapping[str, Any]],
    *,
    line: Line,
    filter_servers: Sequence[str] = (),
) -> Generator[int, None, bytes]:
    """A body in the deflated form, which a frame takes of some hundred thousand topics.

    As in RocketMQ it says less than the plain one: neither whether a topic is ordered nor its flags. In steps of so
    many topics.
    """
    deflater = zlib.compressobj()
    parts = [deflater.compress(_part(fastjson.dumps(version.value())) + len(topics).to_bytes(LENGTH_BYTES))]
    for start in range(0, len(topics), STEP):
        some = topics[start : start + STEP]
        parts.append(deflater.compress(b"".join(_part(_deflated_topic(name, config(name), line)) for name in some)))
        yield len(some)
    no_static_topics = bytes(LENGTH_BYTES if line.tables.static_topics else 0)
    end = _part(fastjson.dumps(list(filter_servers))) + no_static_topics
    parts += [deflater.compress(end), deflater.flush()]
    return b"".join(parts)


def _deflated_topic(name: str, config: Mapping[str, Any], line: Line) -> str:
    numbers = f"{config['readQueueNums']} {config['writeQueueNums']} {config['perm']}"
    text = f"{name} {numbers} {config.get('topicFilterType') or 'SINGLE_TAG'}"
    return f"{text} {fastjson.dumps(config.get('attributes') or {})}" if line.tables.topic_attributes else text


def _part(text: str) -> bytes:
    data = text.encode("utf-8", "replace")
    return len(data).to_bytes(LENGTH_BYTES) + data


class _Parts:
    """Reads the parts of a deflated body: each has its length, or a count, before it."""

    def __init__(self, deflated: bytes) -> None:
        inflater = zlib.decompressobj()
        self._data, self._at = inflater.decompress(deflated, INFLATED_BYTES_MAX), 0
        if inflater.unconsumed_tail:
            raise ValueError(f"inflates to more than {INFLATED_BYTES_MAX} bytes")

    def count(self, count_max: int, what: str) -> int:
        number = int.from_bytes(self._take(LENGTH_BYTES), signed=True)
        _check_count(number, count_max, what)
        return number

    def text(self) -> str:
        return self._take(int.from_bytes(self._take(LENGTH_BYTES), signed=True)).decode()

    def _take(self, count: int) -> bytes:
        if not 0 <= count <= len(self._data) - self._at:
            raise ValueError(f"a part claims {count} bytes, {len(self._data) - self._at} are left")
        self._at += count
        return self._data[self._at - count : self._at]


def _decode_deflated(body: bytes, version: int, line: Line) -> RegisterBody:
    parts = _Parts(body)
    data_version, topics = _data_version(fastjson.loads(parts.text()), line), {}
    for _ in range(parts.count(TOPICS_MAX, "topics")):
        words = parts.text().split(" ", 5)
        read, write, perm = (whole_number(word, INT32_MIN, INT32_MAX) for word in words[1:4])
        name, filter_type = _name(words[0], "a topic", TOPIC_BYTES_MAX), words[4][:NAME_BYTES_MAX]
        config = TopicConfig(name, read, write, perm, 0, filter_type)
        topics[config.topic] = config
    servers = _servers(fastjson.loads(parts.text()))
    if version >= VERSION_WITH_MAPPING:
        for _ in range(parts.count(TOPICS_MAX, "static topics")):
            parts.text()  # their mapping is the brokers' business
    return RegisterBody(data_version, topics, servers)
