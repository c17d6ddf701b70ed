"""When a broker tells a name server of itself, and what; what the answers say of its master.

Implements: BrokerController.registerBrokerAll, BrokerOuterAPI.registerBrokerAll (spec: remoting, 5 name server)
One object for each name server: one that is slow or down holds nobody else up. Time is passed in.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import ONEWAY_FLAG, MalformedFrame, RemotingCommand
from engine.protocol.tables.metadata import Metadata
from engine.protocol.tables.register_body import Member, deflated_in_steps
from store.compat import line_of
from store.errors import MalformedData
from store.message.properties import CRC_MASK
from store.names import TOPICS
from store.tables import fastjson

PERIOD_MS_MIN, PERIOD_MS_MAX = 10_000, 60_000
PLAIN_BYTES_MAX = 12 << 20  # a larger body is deflated, as with RocketMQ's compressedRegister: a frame has an end
SECOND_MS = 10_000  # from the first registration of all to the next, whatever the period: as RocketMQ's timer
RETRY_MS = 1000  # after a failure; RocketMQ waits for the next period

CRC_STEP = 1 << 20  # bytes
BODY_BEGINS, BODY_MIDDLE, BODY_ENDS = b'{"filterServerList":', b',"topicConfigSerializeWrapper":', b"}"

Making = Generator[int, None, RemotingCommand]


class Learned(NamedTuple):
    """The content of an answer: a slave's master, and the topics whose order matters."""

    master_address: str | None
    ha_server_address: str | None
    order_topics: Mapping[str, str] | None


class Heartbeats(NamedTuple):
    """5.x with enableSlaveActingMaster: how often, after what silence the broker is gone, and by which request."""

    interval_ms: int
    timeout_ms: int
    by_data_version: bool


class Registration:
    """One name server's view of this broker: what to send next, and when."""

    def __init__(
        self, member: Member, compat: str, *, period_ms: int, force: bool, heartbeats: Heartbeats | None = None
    ) -> None:
        self._line = line_of(compat)
        self._heartbeats = heartbeats if self._line.naming.heartbeats else None
        self._heartbeat_ms = 0
        self._member, self._force = member, force
        self._next_ms, self._period_ms = 0, min(max(period_ms, PERIOD_MS_MIN), PERIOD_MS_MAX)
        self._second_ms: int | None = None
        self._sent_ms = 0
        self._deflated_from = self._deflated_body = b""
        self._relayed: tuple[str, ...] = ()
        self.is_known = False  # an answer to a registration came on this connection

    @property
    def due_ms(self) -> int:
        """The time of the next request, unless `hurry` is called."""
        return self._next_ms

    def set_period(self, period_ms: int) -> None:
        """Set how often the broker registers; RocketMQ allows 10 to 60 seconds."""
        self._period_ms = min(max(period_ms, PERIOD_MS_MIN), PERIOD_MS_MAX)
        self._next_ms = min(self._next_ms, self._sent_ms + self._period_ms)

    def hurry(self) -> None:
        """The topics changed: register at once."""
        self._next_ms, self.is_known = 0, False

    def relay(self, texts: tuple[str, ...]) -> None:
        """Register these words for another master of this name (`ha.relayed`): at once, where they are others."""
        if texts != self._relayed:
            self._relayed, self._deflated_from = texts, b""
            self.hurry()

    def register_as(self, broker_id: int) -> None:
        """Register under this id from now on: at once, where it is another."""
        if broker_id != self._member.broker_id:
            self._member = replace(self._member, broker_id=broker_id)
            self.hurry()

    def lost(self, now_ms: int) -> None:
        """Try again soon: the name server did not answer, or refused."""
        self.is_known, self._next_ms = False, now_ms + RETRY_MS

    def next_request(self, metadata: Metadata, permission: int, now_ms: int) -> Making | None:
        """Return what makes the request to send now, in steps; None before it is time."""
        if now_ms < self._next_ms:
            return None
        self._sent_ms = now_ms
        self._second_ms = now_ms + SECOND_MS if self._second_ms is None else self._second_ms
        self._next_ms = self._second_ms if now_ms < self._second_ms else now_ms + self._period_ms
        return self._make(metadata, permission)

    def _make(self, metadata: Metadata, permission: int) -> Making:
        if self.is_known and not self._force:
            return self._request(RequestCode.QUERY_DATA_VERSION, self._names(), metadata.topics_version_json())
        plain = yield from metadata.topics_json_in_steps(permission)
        yield len(plain)
        servers = fastjson.dumps(list(self._relayed)).encode()
        is_large = sum(map(len, (BODY_BEGINS, servers, BODY_MIDDLE, plain, BODY_ENDS))) > PLAIN_BYTES_MAX
        if is_large:
            body = yield from self._deflated(metadata, plain, permission)
        else:
            body = b"".join((BODY_BEGINS, servers, BODY_MIDDLE, plain, BODY_ENDS))
        crc = yield from _crc_in_steps(body)
        fields = {
            **self._names(),
            "haServerAddr": self._member.ha_server_address,
            "compressed": str(is_large).lower(),
            "bodyCrc32": str(crc & CRC_MASK),
        }
        if self._line.naming.acting_masters:
            fields["enableActingMaster"] = "false" if self._heartbeats is None else "true"
        if self._heartbeats is not None:
            fields["heartbeatTimeoutMillis"] = str(self._heartbeats.timeout_ms)
        return self._request(RequestCode.REGISTER_BROKER, fields, body)

    def heartbeat(self, metadata: Metadata, now_ms: int) -> RemotingCommand | None:
        """A sign of life that nobody answers; None before it is time, or when none is wanted."""
        beats = self._heartbeats
        if beats is None or not self.is_known or now_ms < self._heartbeat_ms:
            return None
        self._heartbeat_ms = now_ms + beats.interval_ms
        if beats.by_data_version:
            request = self._request(RequestCode.QUERY_DATA_VERSION, self._names(), metadata.topics_version_json())
            return replace(request, flag=ONEWAY_FLAG)
        names = self._names()
        del names["brokerId"]
        return replace(self._request(RequestCode.BROKER_HEARTBEAT, names), flag=ONEWAY_FLAG)

    def _deflated(self, metadata: Metadata, plain: bytes, permission: int) -> Generator[int, None, bytes]:
        """The other form of the body, made once for each state of the topics."""
        if self._deflated_from is plain:
            return self._deflated_body
        version, topics = metadata.versions[TOPICS], metadata.topics_now(permission)
        names = yield from topics.names()
        body: bytes = yield from deflated_in_steps(
            version, names, topics.config, line=self._line, filter_servers=self._relayed
        )
        self._deflated_from, self._deflated_body = plain, body
        return body

    def unregister(self) -> RemotingCommand:
        """Return the request that ends the registration."""
        return self._request(RequestCode.UNREGISTER_BROKER, self._names())

    def on_answer(self, request: RemotingCommand, answer: RemotingCommand, now_ms: int) -> Learned | None:
        """Take an answer in; what it teaches, if it is a registration's."""
        if answer.code != ResponseCode.SUCCESS:
            self.lost(now_ms)
            return None
        if request.code == RequestCode.QUERY_DATA_VERSION:
            if (answer.ext_fields or {}).get("changed") != "false":
                self.hurry()
            return None
        registered_id = (request.ext_fields or {}).get("brokerId")
        self.is_known = registered_id == str(self._member.broker_id)  # else it has got another since
        fields = answer.ext_fields or {}
        return Learned(fields.get("masterAddr"), fields.get("haServerAddr"), _order_topics(bytes(answer.body)))

    def _names(self) -> dict[str, str]:
        member = self._member
        return {
            "brokerId": str(member.broker_id), "clusterName": member.cluster, "brokerAddr": member.address,
            "brokerName": member.broker_name,
        }  # fmt: skip

    def _request(self, code: RequestCode, fields: Mapping[str, str], body: bytes = b"") -> RemotingCommand:
        return RemotingCommand(code, ext_fields=fields, body=body, version=self._line.remoting.version)


def _crc_in_steps(body: bytes) -> Generator[int, None, int]:
    crc = 0
    for start in range(0, len(body), CRC_STEP):
        crc = zlib.crc32(memoryview(body)[start : start + CRC_STEP], crc)
        yield CRC_STEP
    return crc


def _order_topics(body: bytes) -> Mapping[str, str] | None:
    """The key-value table of ordered topics; None without one. Raises MalformedFrame."""
    if not body:
        return None
    try:
        table: Any = fastjson.loads(body).get("table")
    except (MalformedData, AttributeError) as reason:
        raise MalformedFrame("answer to a registration", str(reason)) from None
    return {str(topic): str(value) for topic, value in table.items()} if isinstance(table, dict) else None
