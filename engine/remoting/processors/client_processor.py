"""Answers clients about themselves: heartbeats, goodbyes, members of groups, locks; tells members that others came.

Implements: ClientManageProcessor, ClientHousekeepingService, DefaultConsumerIdsChangeListener
What is decided stands in `engine.protocol.clients`; here are the channels it is said to.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable
from contextlib import suppress

from engine.protocol.clients import lock_bodies
from engine.protocol.clients.consumers import ConsumerManager
from engine.protocol.clients.producers import ProducerManager
from engine.protocol.clients.requests import ClientRequests
from engine.protocol.remoting.answers import Json
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import ONEWAY_FLAG, RemotingCommand
from engine.remoting.processors.parts import Part, PartContext
from engine.remoting.sockets.server import Answered
from ipc.clock import monotonic_ms, wall_ms

SCAN_MS = 10_000
CALL_SECONDS = 10.0  # for an answer of a client
REPLAY_SECONDS = 2.0  # for fronts to say who was there: a consumer waits 3 for the members of its group


class ClientProcessor(Part):
    """Requests of clients about themselves, for one broker."""

    def __init__(self, context: PartContext) -> None:
        super().__init__(context)
        config, shared = context.config, context.clients
        self._consumers: ConsumerManager = shared.consumers
        self._producers: ProducerManager = shared.producers
        self._locks = shared.locks
        self._requests = ClientRequests(
            config.compat,
            context.metadata,
            shared.consumers,
            shared.producers,
            shared.locks,
            monotonic_ms,
            makes_groups=config.auto_create_groups,
        )
        self.handlers = dict(self._requests.handlers)
        if context.replicas.is_strict:
            self.later = {
                RequestCode.LOCK_BATCH_MQ: self._lock_in_group,
                RequestCode.UNLOCK_BATCH_MQ: self._unlock_in_group,
            }
        self.questions = {
            "ensure_group": self._ensure_group, "has_locks": self._has_locks,
            "find_producer": self._find_producer, "find_client": self._find_client,
            "push": self._push, "call": self._call,
        }  # fmt: skip
        self._scan_at_ms = 0
        self._replay_until_ms = monotonic_ms() + int(REPLAY_SECONDS * 1000)

    def begin(self, request: RemotingCommand, channel: int, now_ms: int) -> Answered | Awaitable[Answered]:
        """Answer a client's request; members that must hear of it are notified before."""
        if request.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP and not self.context.links.replayed.is_set():
            return self._once_all_are_known(request, channel, now_ms)
        if request.code in self.later:
            return super().begin(request, channel, now_ms)
        answer = self._requests.answer(request, channel, now_ms)
        self._settle()
        return answer

    async def _once_all_are_known(self, request: RemotingCommand, channel: int, now_ms: int) -> Answered:
        """A consumer that hears of an empty group gives up all of its queues."""
        await self._replayed()
        return self._requests.answer(request, channel, now_ms)

    async def _replayed(self) -> None:
        """Wait until all fronts have said who was there before this process, or have had their time."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.context.links.replayed.wait(), REPLAY_SECONDS)

    async def _lock_in_group(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        asked = lock_bodies.request_of(request.body)
        locked = self._requests.try_lock(asked)
        if not asked.only_this_broker:
            locked = await self.context.replicas.locked(asked, locked)
        return self._requests.locked(request, locked)

    async def _unlock_in_group(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        asked = lock_bodies.request_of(request.body)
        self._requests.unlock(asked)
        if not asked.only_this_broker:
            self.context.replicas.unlock(asked)
        return self.answered(request)

    def replayed(self, request: RemotingCommand, channel: int, now_ms: int) -> None:
        """Take in a client that was there before this process: no member is notified."""
        self._requests.answer(request, channel, now_ms)
        self._consumers.take_notices()
        self._settle()

    def channel_left(self, channel: int) -> None:
        """Remove a closed channel from groups and locks."""
        self._consumers.channel_left(channel)
        self._producers.channel_left(channel)
        self._settle()

    def channel_lost(self, channel: int) -> None:
        """Note that a channel's front died: a consumer's client comes back, a producer's leaves."""
        self._consumers.channel_lost(channel, monotonic_ms())
        self._producers.channel_left(channel)
        self._settle()

    def turn(self, now_ms: int) -> None:
        """Look for clients that fell silent, and locks that nobody renewed, a part of them at a time."""
        self.context.replicas.turn(now_ms)
        if now_ms >= self._replay_until_ms:
            self.context.links.end_replay()
        if now_ms >= self._scan_at_ms:
            self._scan_at_ms = now_ms + SCAN_MS
            for one in (self._consumers, self._producers, self._locks):
                one.scan.begin(now_ms)
        self._consumers.take_overdue(now_ms)
        for one in (self._consumers, self._producers, self._locks):
            one.scan.step()
        self._settle()

    def _settle(self) -> None:
        """Say what is to be said."""
        notifies = self.context.config.notify_consumer_ids_changed_enable
        for group, channels in self._consumers.take_notices():
            for channel in channels if notifies else ():
                self.context.links.send(channel, self._requests.notice(group))
        for silent in (self._consumers.hang_ups, self._producers.hang_ups):
            for channel in silent:
                self.context.links.hang_up(channel)
            silent.clear()
        if self._requests.wants_registration:
            self._requests.wants_registration = False
            self.context.registrar.hurry()

    # what fronts ask

    def _ensure_group(self, fields: Json) -> Json:
        config = self._requests.group(str(fields.get("group", "")), wall_ms())
        return {} if config is None else {"config": config}

    def _has_locks(self, fields: Json) -> Json:
        return {"has": self._locks.is_any_held(str(fields.get("group", "")), monotonic_ms())}

    def _find_producer(self, fields: Json) -> Json | Awaitable[Json]:
        group = str(fields.get("group", ""))
        return self._channel_of(lambda: self._producers.available_channel(group))

    def _find_client(self, fields: Json) -> Json | Awaitable[Json]:
        client_id = str(fields.get("clientId", ""))
        return self._channel_of(lambda: self._producers.channel_of(client_id))

    def _channel_of(self, look: Callable[[], int | None]) -> Json | Awaitable[Json]:
        """Return a channel; that there is no channel is answered only once all clients are replayed."""
        channel = look()
        if channel is not None or self.context.links.replayed.is_set():
            return {"channel": channel}
        return self._channel_later(look)

    async def _channel_later(self, look: Callable[[], int | None]) -> Json:
        await self._replayed()
        return {"channel": look()}

    def _push(self, fields: Json) -> None:
        self.context.links.send(int(fields["channel"]), self._command(fields, ONEWAY_FLAG))

    async def _call(self, fields: Json) -> Json:
        """Push a command and return the client's answer: code and remark, both None where it gives no answer."""
        try:
            answer = await self.context.links.ask(int(fields["channel"]), self._command(fields, 0), CALL_SECONDS)
        except (TimeoutError, ConnectionResetError):
            return {"code": None, "remark": None}
        return {"code": answer.code, "remark": answer.remark}

    def _command(self, fields: Json, flag: int) -> RemotingCommand:
        try:
            body = base64.b64decode(fields.get("body") or "")
        except binascii.Error:
            body = b""
        return RemotingCommand(
            int(fields["code"]), flag=flag, ext_fields=fields.get("extFields"), body=body, version=self.version
        )

    def close(self) -> None:
        """Hang up on other brokers."""
        self.context.replicas.close()
