"""Where a group's offsets are kept: at its brokers, or in this host's file for a group whose members get all messages.

Implements: RemoteBrokerOffsetStore; OffsetStore's two kinds behind one face
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from engine.clients.cluster import Cluster, Place
from engine.clients.consuming.own_offsets import OwnOffsets
from engine.clients.consuming.requests import number_of
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.remoting.sockets.client import PeerRefused
from store.tables import fastjson


class Offsets(Protocol):
    """The offsets of one group. Raises PeerRefused, PeerUnreachable, ClientError, OSError."""

    async def committed(self, place: Place) -> int | None:
        """The group's offset in a queue; None before the first."""

    async def commit(self, place: Place, offset: int) -> None:
        """Take the offset of a queue, which is kept for sure after `flush`."""

    async def flush(self) -> None:
        """Keep all offsets that were taken, where they are kept."""


def queue_fields(group: str, place: Place) -> dict[str, str]:
    """What a header says of a group's queue."""
    return {"consumerGroup": group, "topic": place.topic, "queueId": str(place.queue_id)}


class BrokerOffsets:
    """The offsets of a group whose members share the messages, at the broker of each queue."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster, self._group = cluster, group

    async def committed(self, place: Place) -> int | None:
        """The group's offset in a queue; None before the first."""
        connection = self._cluster.broker(place.broker)
        asked = {**queue_fields(self._group, place), "setZeroIfNotFound": "false"}  # which 5.x heeds
        answer = await connection.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise PeerRefused(connection.address, RequestCode.QUERY_CONSUMER_OFFSET, answer)
        offset = number_of(answer, "offset", 0)
        return offset if offset or await self._is_committed(place) else None

    async def _is_committed(self, place: Place) -> bool:
        """Whether a group has an offset 0, which 4.9 also answers for one that has none."""
        answer = await self._cluster.broker(place.broker).ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        if answer.code != ResponseCode.SUCCESS:  # access rules may keep it for administrators
            return True
        table = fastjson.loads(answer.body, "the broker's offsets").get("offsetTable") or {}
        return str(place.queue_id) in (table.get(f"{place.topic}@{self._group}") or {})

    async def commit(self, place: Place, offset: int) -> None:
        """Keep the offset of a queue."""
        fields = {**queue_fields(self._group, place), "commitOffset": str(offset)}
        await self._cluster.broker(place.broker).need(RequestCode.UPDATE_CONSUMER_OFFSET, fields)

    async def flush(self) -> None:
        """Do nothing: brokers keep what they answered."""


class ProgramOffsets(BrokerOffsets):
    """The offsets of a program that saves them with its work. The broker learns them, too, and shows how far it is."""

    def __init__(self, cluster: Cluster, group: str, offset_of: Callable[[Place], int | None]) -> None:
        super().__init__(cluster, group)
        self._offset_of = offset_of

    async def committed(self, place: Place) -> int | None:
        """The program's offset in a queue; the group's where the program has none."""
        offset = await asyncio.to_thread(self._offset_of, place)
        return await super().committed(place) if offset is None else offset


class FileOffsets:
    """The offsets of a member that gets all messages: one write of its file for all queues."""

    def __init__(self, own: OwnOffsets) -> None:
        self._own = own
        self._unwritten: set[Place] = set()

    async def committed(self, place: Place) -> int | None:
        """The member's offset in a queue; None before the first."""
        return self._own.offset_of(place)

    async def commit(self, place: Place, offset: int) -> None:
        """Take the offset of a queue."""
        self._own.update(place, offset)
        self._unwritten.add(place)

    async def flush(self) -> None:
        """Write the file; what cannot be written waits for the next call."""
        if not self._unwritten:
            return
        writing, self._unwritten = self._unwritten, set()
        try:
            await asyncio.to_thread(self._own.write, writing)
        except BaseException:
            self._unwritten |= writing
            raise
