"""The body of a broker's registration: its topics and their version, plain JSON or deflated, as bytes and as values.

Implements: RegisterBrokerBody, TopicConfigSerializeWrapper, TopicConfig (spec: remoting, 5 name server)
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.protocol.remoting import FRAME_BYTES_MAX, MalformedFrame
from store import fastjson
from store.broker_tables import DataVersion
from store.errors import MalformedData

INFLATED_BYTES_MAX = 4 * FRAME_BYTES_MAX
VERSION_WITH_FILTER_SERVERS = 37  # 3.0.11: before, the body was the topics alone
VERSION_WITH_MAPPING = 413  # 5.0.0: a deflated body ends in the static topics' mapping
LENGTH_BYTES = 4
NUMBERS_OF_TOPIC = ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag")


@dataclass(frozen=True, slots=True)
class Member:
    """Who registers."""

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
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RegisterBody:
    """What a broker registers."""

    data_version: DataVersion = field(default_factory=DataVersion)
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    filter_servers: tuple[str, ...] = ()


def decode(body: bytes | memoryview, *, compressed: bool, version: int, five: bool) -> RegisterBody:
    """The body of REGISTER_BROKER; `version` is the sender's, `five` whether we know 5.x's part of a data version.

    Raises MalformedFrame.
    """
    if not len(body):
        return RegisterBody(DataVersion(state_version=0 if five else None))
    try:
        if compressed and version >= VERSION_WITH_FILTER_SERVERS:
            return _decode_deflated(bytes(body), version, five)
        return _decode_json(bytes(body), version, five)
    except (KeyError, TypeError, ValueError, AttributeError, MalformedData, zlib.error) as reason:
        raise MalformedFrame("registration's body", f"{type(reason).__name__}: {reason}") from None


def data_version_of(content: bytes | memoryview, five: bool) -> DataVersion:
    """A DataVersion alone, as QUERY_DATA_VERSION sends it. Raises MalformedFrame."""
    try:
        return _data_version(fastjson.loads(content), five)
    except (TypeError, ValueError, AttributeError, MalformedData) as reason:
        raise MalformedFrame("data version", str(reason)) from None


def _data_version(told: Mapping[str, Any], five: bool) -> DataVersion:
    counter, timestamp, state = (int(told.get(name) or 0) for name in ("counter", "timestamp", "stateVersion"))
    return DataVersion(counter, timestamp, state if five else None)


def _decode_json(body: bytes, version: int, five: bool) -> RegisterBody:
    told = fastjson.loads(body)
    wrapper = told.get("topicConfigSerializeWrapper") or {} if version >= VERSION_WITH_FILTER_SERVERS else told
    table = wrapper.get("topicConfigTable") or {}
    topics = {name: _topic(name, config) for name, config in table.items()}
    servers = tuple(str(server) for server in told.get("filterServerList") or ())
    return RegisterBody(_data_version(wrapper.get("dataVersion") or {}, five), topics, servers)


def _topic(name: str, config: Mapping[str, Any]) -> TopicConfig:
    read, write, perm, flag = (int(config.get(key) or 0) for key in NUMBERS_OF_TOPIC)
    return TopicConfig(
        str(config.get("topicName") or name), read, write, perm, flag,
        str(config.get("topicFilterType") or "SINGLE_TAG"), bool(config.get("order")),
        dict(config.get("attributes") or {}),
    )  # fmt: skip


class _Parts:
    """Reads the parts of a deflated body: each has its length, or a count, before it."""

    def __init__(self, deflated: bytes) -> None:
        inflater = zlib.decompressobj()
        self._data, self._at = inflater.decompress(deflated, INFLATED_BYTES_MAX), 0
        if inflater.unconsumed_tail:
            raise ValueError(f"inflates to more than {INFLATED_BYTES_MAX} bytes")

    def number(self) -> int:
        return int.from_bytes(self._take(LENGTH_BYTES), signed=True)

    def text(self) -> str:
        return self._take(self.number()).decode()

    def _take(self, count: int) -> bytes:
        if not 0 <= count <= len(self._data) - self._at:
            raise ValueError(f"a part says to have {count} bytes, {len(self._data) - self._at} are left")
        self._at += count
        return self._data[self._at - count : self._at]


def _decode_deflated(body: bytes, version: int, five: bool) -> RegisterBody:
    parts = _Parts(body)
    data_version, topics = _data_version(fastjson.loads(parts.text()), five), {}
    for _ in range(parts.number()):
        words = parts.text().split(" ")
        attributes = fastjson.loads(words[5]) if len(words) > 5 else {}
        config = TopicConfig(words[0], int(words[1]), int(words[2]), int(words[3]), 0, words[4], False, attributes)
        topics[config.topic] = config
    servers = tuple(fastjson.loads(parts.text()))
    if version >= VERSION_WITH_MAPPING:
        for _ in range(parts.number()):
            parts.text()  # static topics: their mapping is the brokers' business
    return RegisterBody(data_version, topics, servers)
