"""Sends drafts of messages in a client's event loop: routes, heartbeats, tries, answers to checks of transactions.

Implements: DefaultMQProducerImpl, MQClientInstance (its producers)
What is decided is in `publishing`, `latency` and `messages`; here requests go out, and answers come back.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

from engine.clients.cluster import MASTER, Cluster, Place, log
from engine.clients.names import ClientError
from engine.clients.sending.latency import LatencyTable
from engine.clients.sending.messages import Draft, transaction_fields
from engine.clients.sending.publishing import Attempts, RemoteSendResult, Turns, outcome_of
from engine.clients.sending.transactions import Check, CheckThread, Decide, check_of, decided
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.sockets.client import PeerRefused, PeerUnreachable
from ipc import chance
from ipc.clock import monotonic_ms, wall_ms
from store.errors import StoreError

PERIOD_SECONDS = 30.0  # between two heartbeats, and between two looks at a route
SOON_SECONDS = 1.0  # until a topic that a message makes is looked up again; of a look after a failure at most
GOODBYE_SECONDS = 3.0
TOPICS_MAX = 4096  # whose routes are kept
FAILURES = (PeerUnreachable, PeerRefused, ClientError, StoreError, TimeoutError)


class Published(NamedTuple):
    """A topic's queues. `is_made`: nobody knows the topic yet, and a message makes it. `seen` is loop time."""

    turns: Turns
    is_made: bool
    seen: float


class Sends:
    """What a producer of `group` does in its loop. `retries`: how often a failed send is tried again."""

    def __init__(
        self, cluster: Cluster, group: str, retries: tuple[int, bool], table: LatencyTable, decide: Decide | None
    ) -> None:
        self._cluster, self._group, self._table, self._decide = cluster, group, table, decide
        self._retries, self._retries_unstored = retries
        self._topics: dict[str, Published] = {}
        self._looks: dict[str, asyncio.Task[Published]] = {}
        self._greeted: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.checks = CheckThread()
        cluster.on_push = self._pushed

    async def keep(self) -> None:
        """Send heartbeats and look up routes until it is cancelled."""
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            await asyncio.gather(*map(self._greet, self._masters()))
            with suppress(PeerUnreachable):  # of a name server, which is asked again in the next round
                for topic in list(self._topics):
                    with suppress(PeerRefused, ClientError, StoreError):
                        await self._look_up(topic)

    # sends

    async def send(self, draft: Draft, deadline: float) -> RemoteSendResult:
        """Send a message, and retry until a broker has it. Raises what `RemoteProducer.send` raises."""
        attempts = Attempts(1 if draft.has_one_queue else 1 + self._retries, self._retries_unstored)
        published = await self._published(draft.topic, deadline)
        while True:
            place = self._place(published, draft, attempts)
            await self._try(draft, place, attempts, deadline)
            if attempts.is_over or time.monotonic() >= deadline:
                return attempts.result()
            published = await self._published_again(draft.topic, deadline)

    async def send_one_way(self, draft: Draft, deadline: float) -> None:
        """Send a message that no broker answers. Raises PeerUnreachable, PeerRefused, ClientError."""
        published = await self._published(draft.topic, deadline)
        place = self._place(published, draft, Attempts(1, False))
        connection = self._cluster.broker(place.broker)
        fields = draft.header(self._group, place.queue_id, wall_ms())
        async with _until(deadline, connection.address):
            await connection.tell(draft.code, fields, draft.body)

    async def _try(self, draft: Draft, place: Place, attempts: Attempts, deadline: float) -> None:
        connection, began = self._cluster.broker(place.broker), time.monotonic()
        fields, left = draft.header(self._group, place.queue_id, wall_ms()), max(0.0, deadline - began)
        try:
            answer = await connection.ask(draft.code, fields, draft.body, round(left, 3))
        except PeerUnreachable as error:
            was_refused = isinstance(error.__cause__, ConnectionRefusedError)
            attempts.unanswered(place.broker, error, may_be_appended=not was_refused)
            self._table.note(place.broker, 0, monotonic_ms(), failed=True)
            return
        outcome = outcome_of(answer, ",".join(draft.message_ids), place)
        took_ms = int((time.monotonic() - began) * 1000)
        self._table.note(place.broker, took_ms, monotonic_ms(), failed=outcome is None)
        if outcome is not None:
            attempts.stored(outcome)
        else:
            attempts.refused(place.broker, answer.code, PeerRefused(connection.address, draft.code, answer))

    def _place(self, published: Published, draft: Draft, attempts: Attempts) -> Place:
        if isinstance(draft.queue_id, Place):
            return draft.queue_id
        if draft.shard_by is not None:
            return published.turns.of_key(draft.shard_by)
        return published.turns.next(attempts.avoided, self._table, monotonic_ms(), draft.queue_id)

    # routes

    async def queues(self, topic: str, deadline: float) -> list[Place]:
        """Return the queues to which a topic's messages can be sent. Raises what `send` raises."""
        return list((await self._published(topic, deadline)).turns.places)

    async def _published(self, topic: str, deadline: float) -> Published:
        known = self._topics.get(topic)
        if known is None or (known.is_made and known.seen + SOON_SECONDS <= time.monotonic()):
            async with _until(deadline, self._cluster.name_servers or "the broker"):
                try:
                    return await self._look_up(topic)
                except FAILURES:
                    if known is None:
                        raise
        assert known is not None
        return known

    async def _published_again(self, topic: str, deadline: float) -> Published:
        """Look a topic up after a failure, for a short time at most: the route that was known is good enough."""
        left = min(SOON_SECONDS, (deadline - time.monotonic()) / 2)
        with suppress(*FAILURES):
            async with asyncio.timeout(left):
                return await self._look_up(topic)
        return self._topics[topic]

    async def _look_up(self, topic: str) -> Published:
        """Return a topic's queues as they are now. Sends that ask at the same time share one request."""
        task = self._looks.get(topic)
        if task is None:
            task = self._looks[topic] = self._begin(self._ask_route(topic))
            task.add_done_callback(lambda _task: self._looks.pop(topic, None))
        return await asyncio.shield(task)

    async def _ask_route(self, topic: str) -> Published:
        route = await self._cluster.route(topic)
        before = self._topics.get(topic)
        if route is None and before is not None and not before.is_made:
            return before  # as Java's client: the name server may have lost its brokers for a while
        is_made = route is None
        if route is None:
            route = await self._cluster.route_to_make(topic)
        if not route.writes:
            raise ClientError(f"topic {topic!r} has no writable queue on a running master")
        first = chance.below(len(route.writes)) if before is None else before.turns.position
        if before is None and len(self._topics) >= TOPICS_MAX:
            del self._topics[next(iter(self._topics))]
        published = Published(Turns(route.writes, first), is_made, time.monotonic())
        if before is not None and before.turns.places == route.writes:
            published = published._replace(turns=before.turns)
        self._topics[topic] = published
        masters = self._masters()
        for address in masters - self._greeted:
            self._begin(self._greet(address))
        self._greeted = masters
        return published

    def _masters(self) -> set[str]:
        return {master for known in self._cluster.addresses.values() if (master := known.get(MASTER))}

    # heartbeats

    async def _greet(self, address: str) -> None:
        producers = [{"groupName": self._group}]
        beat = {"clientID": self._cluster.client_id, "consumerDataSet": [], "producerDataSet": producers}
        with suppress(PeerUnreachable):
            await self._cluster.to(address).ask(RequestCode.HEART_BEAT, body=json.dumps(beat).encode())

    async def close(self) -> None:
        """Tell the brokers that this producer leaves its group."""
        fields = {"clientID": self._cluster.client_id, "producerGroup": self._group}
        leaving = (self._leave(address, fields) for address in self._greeted)
        with suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_SECONDS):
                await asyncio.gather(*leaving)

    async def _leave(self, address: str, fields: dict[str, str]) -> None:
        with suppress(PeerUnreachable):
            await self._cluster.to(address).ask(RequestCode.UNREGISTER_CLIENT, fields)

    # transactions

    async def end(self, half: RemoteSendResult, decision: bool | None, deadline: float) -> None:
        """Commit or roll back a half message. Raises PeerUnreachable, PeerRefused, ClientError."""
        ids = half.message_id, half.transaction_id or half.message_id
        fields = transaction_fields(self._group, half.queue_offset, half.physical_offset, ids, decision)
        connection = self._cluster.broker(half.broker)
        async with _until(deadline, connection.address):
            if decision is None:  # which no broker answers
                await connection.tell(RequestCode.END_TRANSACTION, fields)
            else:
                left = round(max(0.0, deadline - time.monotonic()), 3)
                await connection.need(RequestCode.END_TRANSACTION, fields, timeout=left)

    def _pushed(self, address: str, command: RemotingCommand) -> None:
        """Hand a broker's question about a transaction to the callback, if there is one: `Cluster.on_push`."""
        if self._decide is None or command.code != RequestCode.CHECK_TRANSACTION_STATE:
            return
        try:
            check = check_of(command, self._group)
        except (StoreError, ValueError) as error:
            log.warning("%s asked about a transaction in a malformed request: %s", address, error)
            return
        loop, decide = asyncio.get_running_loop(), self._decide
        if check is not None and not self.checks.submit(partial(self._check, loop, decide, address, check)):
            log.warning("too many transactions wait for on_check; brokers will ask again")

    def _check(self, loop: asyncio.AbstractEventLoop, decide: Decide, address: str, check: Check) -> None:
        """Run the callback, in its own thread, and answer the broker, in the loop."""
        decision = decided(decide, check.message)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(lambda: self._begin(self._answer(address, check.answer(self._group, decision))))

    async def _answer(self, address: str, fields: dict[str, str]) -> None:
        try:
            await self._cluster.to(address).tell(RequestCode.END_TRANSACTION, fields)
        except PeerUnreachable as error:
            log.warning("a transaction's check was not answered, and its broker will ask again: %s", error)

    def _begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin a task that the loop does not forget, and whose error somebody retrieves."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task


@asynccontextmanager
async def _until(deadline: float, what: str) -> AsyncIterator[None]:
    """A context that ends at a deadline of `time.monotonic`. Raises PeerUnreachable of `what` then."""
    seconds = round(max(0.0, deadline - time.monotonic()), 3)
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise PeerUnreachable(what, f"no answer within {seconds:g} s") from None
