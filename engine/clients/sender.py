"""Sends messages to the masters that a topic lies on, queue after queue.

Implements: DefaultMQProducerImpl.sendDefaultImpl, MessageClientIDSetter
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from engine.clients.cluster import DEFAULT_QUEUES, Cluster, Place, Route
from engine.clients.names import ClientError
from engine.producer.unique_keys import UniqueKeys
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.remoting.sockets.client import PeerRefused, PeerUnreachable
from store.message import properties as property_string
from store.message.properties import KEYS, TAGS, UNIQ_KEY, WAIT
from store.message.topics import AUTO_CREATE_TOPIC

STORED: dict[int, str] = {
    ResponseCode.SUCCESS: "SEND_OK", ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT", ResponseCode.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
}  # fmt: skip
TRIED_AGAIN = (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.TOPIC_NOT_EXIST)
TRIES = 3
GROUP = "slipstream-send"


class Sent(NamedTuple):
    """Outcome of sending a message."""

    status: str
    message_id: str
    offset_message_id: str
    place: Place
    queue_offset: int


class Sender:
    """Sender to one topic, by its route."""

    def __init__(self, cluster: Cluster, topic: str, group: str = GROUP) -> None:
        self._cluster, self._topic, self._group = cluster, topic, group
        self._keys = UniqueKeys(cluster.client_id.partition("@")[0])
        self._route: Route | None = None
        self._next = 0

    async def send(
        self, body: bytes, tag: str | None = None, key: str | None = None, extra: Mapping[str, str] | None = None
    ) -> Sent:
        """Send a message, and retry until a broker has it. Raises ClientError, PeerRefused, PeerUnreachable."""
        message_id = self._keys.new()
        texts = {**(extra or {}), **({KEYS: key} if key else {}), UNIQ_KEY: message_id, WAIT: "true"}
        texts |= {TAGS: tag} if tag else {}
        failed: PeerRefused | PeerUnreachable | None = None
        for _ in range(TRIES):
            place = await self._place()
            fields = send_fields(self._group, place.topic, place.queue_id, texts)
            connection = self._cluster.broker(place.broker)
            try:
                answer = await connection.ask(RequestCode.SEND_MESSAGE_V2, fields, body)
            except PeerUnreachable as unreachable:
                failed, self._route = unreachable, None
                continue
            status, said = STORED.get(answer.code), answer.ext_fields or {}
            if status is not None:
                queue_id, queue_offset = int(said.get("queueId", "-1")), int(said.get("queueOffset", "-1"))
                return Sent(
                    status, message_id, said.get("msgId", ""), Place(place.topic, place.broker, queue_id), queue_offset
                )
            failed = PeerRefused(connection.address, RequestCode.SEND_MESSAGE_V2, answer)
            if answer.code not in TRIED_AGAIN:
                break
        assert failed is not None
        raise failed

    async def _place(self) -> Place:
        if self._route is None:
            self._route = await self._cluster.route(self._topic) or await self._cluster.route_to_make(self._topic)
        if not self._route.writes:
            raise ClientError(f"topic {self._topic!r} has no writable queue on a running master")
        self._next += 1
        return self._route.writes[self._next % len(self._route.writes)]


def send_fields(group: str, topic: str, queue_id: int, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the header of a message with these properties, as SEND_MESSAGE_V2 has it."""
    return {
        "a": group,
        "b": topic,
        "c": AUTO_CREATE_TOPIC,
        "d": str(DEFAULT_QUEUES),
        "e": str(queue_id),
        "f": "0",
        "g": str(time.time_ns() // 1_000_000),
        "h": "0",
        "i": property_string.format(texts).decode("utf-8", "replace"),
        "j": "0",
        "k": "false",
        "m": "false",
    }
