"""A member of a consumer group: heartbeats, its share of the queues, locks, long pulls, offsets committed.

Implements: DefaultMQPushConsumerImpl, RebalancePushImpl, PullMessageService
All of it are tasks of one loop. What was pulled lies on the shelf, from which any thread takes.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from engine.clients.blocks import Block, blocks_of, chosen
from engine.clients.cluster import MASTER, Cluster, Place, log
from engine.clients.consuming.assigned_queue import DEFAULT_BOUNDS, AssignedQueue, Bounds
from engine.clients.consuming.back_off import resent, send_back_fields
from engine.clients.consuming.local_reads import Heard, LocalReads
from engine.clients.consuming.offsets import BrokerOffsets, FileOffsets, Offsets, ProgramOffsets, queue_fields
from engine.clients.consuming.own_offsets import OwnOffsets, default_directory
from engine.clients.consuming.requests import (
    EVERYTHING,
    FIRST,
    LAST,
    Pull,
    Subscription,
    heartbeat_of,
    number_of,
    pull_fields,
    subscription_of,
)
from engine.clients.consuming.running_info import MemberState, QueueState, running_info
from engine.clients.consuming.shelf import Shelf
from engine.clients.consuming.strategies import Strategy, share_of
from engine.clients.names import MALFORMED, ClientError, check_group
from engine.clients.sending.messages import property_text, send_fields
from engine.net.rare_lines import RareLines
from engine.protocol.broker.admin_bodies import by_queue
from engine.protocol.clients.lock_bodies import locked_of, request_body
from engine.protocol.remoting.codes import REQUEST_VERSION, RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.remoting.places import places_in
from engine.remoting.sockets.client import PeerRefused, PeerUnreachable
from ipc.clock import monotonic_ms, wall_ms
from ipc.errors import IpcError
from store.errors import StoreError
from store.message.compression import body_of
from store.message.record import Message
from store.message.topics import RETRY_PREFIX
from store.tables import fastjson

HEARTBEAT_SECONDS, REBALANCE_SECONDS, COMMIT_SECONDS, PAUSE_SECONDS = 30.0, 20.0, 5.0, 1.0
LOOK_SECONDS = 0.2
NEW_TOPIC_SECONDS = 3.0  # until a topic that a producer made through shared memory is registered at name servers
PULL_SECONDS = 30.0
REFUSED_SECONDS = 3 * COMMIT_SECONDS  # without a broker's word: then a queue is read again
INNER_PRODUCER = "CLIENT_INNER_PRODUCER"  # of Java's consumers
OFFSET_RESET = "OFFSET_RESET"  # the remark of a 5.x broker's answer
UNLOCK_SECONDS = 20.0  # for messages in hand before another member gets their queue
BROKER_LOCK_SECONDS = 60.0  # that a broker keeps a lock for its member
LOCK_SECONDS, LOCK_AGAIN_SECONDS = 30.0, 10.0  # that the member believes in it; between two renewals
HANDOVER_SECONDS = 10.0  # in which the member that had a queue before may commit more than this one has done
NOT_FILTERED = (ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_PARSE_FAILED)
FAILURES = (PeerUnreachable, PeerRefused, ClientError, StoreError, OSError, *MALFORMED)


class Wanted(NamedTuple):
    """The group that consumes, the topics with what is wanted of each, and how."""

    group: str
    topics: Mapping[str, Subscription]
    begin: str | int = LAST  # or a time, in milliseconds since 1970; where the group has no offset yet
    in_order: bool = False
    broadcasts: bool = False  # every member gets all messages, and keeps its own offsets
    offset_of: Callable[[Place], int | None] | None = None  # where the program itself keeps the group's offsets
    strategy: Strategy = share_of
    bounds: Bounds = DEFAULT_BOUNDS


class Member:
    """One member. `shelf` has what comes; `stop` ends it in order. Raises ClientError for a group's wrong name."""

    def __init__(self, cluster: Cluster, wanted: Wanted) -> None:
        check_group(wanted.group)
        self._cluster, self._wanted = cluster, wanted
        cluster.on_push = self.pushed
        self.offsets: Offsets = BrokerOffsets(cluster, wanted.group)
        if wanted.offset_of is not None:
            self.offsets = ProgramOffsets(cluster, wanted.group, wanted.offset_of)
        if wanted.broadcasts:
            self.offsets = FileOffsets(OwnOffsets(default_directory(), cluster.client_id, wanted.group))
        retries = {} if wanted.broadcasts else {self._retry_topic: Subscription(EVERYTHING)}
        self._topics = {**wanted.topics, **retries}
        self._tags = {topic: chosen(one.tags).tags for topic, one in self._topics.items()}
        self.shelf = Shelf(self._taken)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pulls: dict[Place, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._goodbyes: set[asyncio.Task[None]] = set()
        self._changed, self._room = asyncio.Event(), asyncio.Event()
        self._waits_for_room = 0
        self._version_ms = wall_ms()
        self._rare = RareLines(log)
        self._is_ended = False

    # what brokers ask

    def pushed(self, _address: str, command: RemotingCommand) -> RemotingCommand | None:
        """A broker says or asks something of itself; the answer, None for what is not served: `Cluster.on_push`."""
        asked = command.ext_fields or {}
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            self._changed.set()
            return None
        answers = {
            RequestCode.GET_CONSUMER_RUNNING_INFO: ("consumerGroup", self._running_info),
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: ("group", self._reset),
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: ("group", self._status),
        }
        name, answer = answers.get(RequestCode(command.code), ("", None)) if command.code in answers else ("", None)
        if answer is None:
            return None
        if asked.get(name) != self._wanted.group:
            remark = f"The Consumer Group <{asked.get(name)}> not exist in this consumer"
            return command.answer(ResponseCode.SYSTEM_ERROR, remark, version=REQUEST_VERSION)
        return command.answer(ResponseCode.SUCCESS, body=answer(command), version=REQUEST_VERSION)

    def _running_info(self, command: RemotingCommand) -> bytes:
        with self.shelf.changed:
            states = {
                place: QueueState(
                    one.consumed_to, one.pulled_to, one.waiting, one.pulled_ms, one.taken_ms, one.in_order
                )
                for place, one in self.shelf.queues.items()
            }
        member = MemberState(self._subscriptions(), self._cluster.name_servers, self._version_ms, self._wanted.in_order)
        return running_info(states, member, with_stack=(command.ext_fields or {}).get("jstackEnable") == "true")

    def _reset(self, command: RemotingCommand) -> bytes:
        """An administrator resets offsets: go on from there at once, and tell the brokers."""
        for place, offset in places_in(command.body, "offsetTable").items():
            self.seek(place, offset)
        return b""

    def _status(self, _command: RemotingCommand) -> bytes:
        with self.shelf.changed:
            offsets = {place: queue.consumed_to for place, queue in self.shelf.queues.items()}
        table = by_queue({place: str(offset) for place, offset in offsets.items()})
        return f'{{"consumerTable":{{}},"messageQueueTable":{table}}}'.encode()

    # beginning and end

    async def start(self) -> None:
        """Become a member. Raises ClientError, PeerRefused, PeerUnreachable."""
        self._loop = asyncio.get_running_loop()
        until = time.monotonic() + NEW_TOPIC_SECONDS
        for topic in self._wanted.topics:
            while await self._cluster.route(topic) is None:
                if time.monotonic() > until:
                    raise ClientError(f"topic {topic!r} does not exist; `slipstream send` creates it with a message")
                await asyncio.sleep(LOOK_SECONDS)
        await self._heartbeat()
        try:
            await self._rebalance()
        except FAILURES as error:
            if not self.shelf.queues:
                raise
            self._warn("the queues could not be shared", str(error))
        rounds = [(HEARTBEAT_SECONDS, self._heartbeat), (COMMIT_SECONDS, self.commit), (60.0, self._tell_rest)]
        if self._wanted.in_order:
            rounds.append((LOCK_AGAIN_SECONDS, self._keep_locks))
        if self.shelf.near is not None:
            rounds.append((COMMIT_SECONDS, self.hear))
        self._tasks = [self._watched(self._again(seconds, work)) for seconds, work in rounds]
        self._tasks.append(self._watched(self._keep_balance()))

    async def stop(self) -> None:
        """Commit the offsets, give back what is locked, and say goodbye to every broker."""
        self._is_ended = True
        tasks = [*self._tasks, *self._pulls.values(), *self._goodbyes]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(*FAILURES):
            await self.commit()
        with suppress(*FAILURES):
            await self._unlock(self.shelf.queues)
        self.shelf.end()
        fields = {"clientID": self._cluster.client_id, "consumerGroup": self._wanted.group}
        for connection in self._cluster.every_broker():
            with suppress(*FAILURES):
                await connection.ask(RequestCode.UNREGISTER_CLIENT, fields)

    def _watched(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin a task whose error, which nobody expects, is raised from calls for messages: it does not come back."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._fell)
        return task

    def _fell(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.shelf.fail(error)

    # membership

    def _warn(self, kind: str, text: str) -> None:
        self._rare.tell(kind, monotonic_ms(), "%s", text)

    async def _tell_rest(self) -> None:
        self._rare.flush(monotonic_ms())

    async def _again(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while not self._is_ended:
            await asyncio.sleep(seconds)
            try:
                await work()
            except FAILURES as error:
                self._warn("a round of the member failed", str(error))
                if isinstance(error, PeerRefused) and error.response_code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    with suppress(*FAILURES):  # a broker that was started again learns of the group
                        await self._heartbeat()

    async def _heartbeat(self) -> None:
        wanted = self._wanted
        client_id, subscriptions = self._cluster.client_id, self._subscriptions()
        body = heartbeat_of(client_id, wanted.group, wanted.begin, subscriptions, broadcasts=wanted.broadcasts)
        beats = [connection.need(RequestCode.HEART_BEAT, body=body) for connection in self._cluster.every_broker()]
        said = await asyncio.gather(*beats, return_exceptions=True)
        failed = [one for one in said if isinstance(one, BaseException)]
        for error in failed:
            if len(failed) == len(said) or not isinstance(error, FAILURES):
                raise error
            if isinstance(error, PeerRefused):
                self._warn("a broker refuses this member", str(error))

    @property
    def _retry_topic(self) -> str:
        return RETRY_PREFIX + self._wanted.group

    def _subscriptions(self) -> list[dict[str, object]]:
        return [subscription_of(topic, wanted, self._version_ms) for topic, wanted in self._topics.items()]

    async def _keep_balance(self) -> None:
        while not self._is_ended:
            with suppress(TimeoutError):
                async with asyncio.timeout(REBALANCE_SECONDS):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self._rebalance()
            except FAILURES as error:
                self._warn("the queues could not be shared", str(error))

    async def _rebalance(self) -> None:
        """Take and give up queues. A topic whose members nobody tells stays as it is shared.

        Raises the last error, after all was tried that works.
        """
        failed: Exception | None = None
        for topic in self._topics:
            try:
                failed = await self._rebalance_topic(topic) or failed
            except FAILURES as error:
                failed = error
        if failed is not None:
            raise failed

    async def _rebalance_topic(self, topic: str) -> Exception | None:
        """The same for one topic; the last error of a broker, whose queues wait for the next time."""
        route = await self._cluster.route(topic)
        places = None if route is None else await self._share_of(route.reads)
        if places is None:
            return None
        failed = None
        await self._give_up([place for place in self.shelf.queues if place.topic == topic and place not in places])
        for broker, of_broker in _by_broker(sorted(places - set(self.shelf.queues))).items():
            try:
                until = _locked_until()
                wanted = await self._locked(broker, of_broker) if self._wanted.in_order else of_broker
                for place in wanted:
                    await self._begin(place, until)
            except FAILURES as error:
                failed = error
        return failed

    async def _share_of(self, places: list[Place]) -> set[Place] | None:
        """Which of a topic's queues are this member's; None where nobody says who the members are."""
        if self._wanted.broadcasts:
            return set(places)
        members = await self._members(places)
        return None if members is None else set(self._wanted.strategy(places, members, self._cluster.client_id))

    async def _begin(self, place: Place, locked_until: float) -> None:
        offset, is_committed = await self._begin_of(place)
        queue = AssignedQueue(place, offset, in_order=self._wanted.in_order)
        if offset and not is_committed:
            queue.committed = -1  # so that the group begins here also after a member that consumed nothing
        if queue.in_order:
            queue.locked_until = locked_until
        elif not self._wanted.broadcasts:  # locks hand over in order
            queue.asks_until = time.monotonic() + HANDOVER_SECONDS
        queue.refused_until = time.monotonic() + REFUSED_SECONDS  # of reads here, until the broker was asked
        with self.shelf.changing():
            self.shelf.queues[place] = queue
        self._start_pull(queue)
        if place not in self._pulls:
            await self._hear(queue)

    async def _give_up(self, places: Iterable[Place]) -> None:
        for place in places:
            pull = self._pulls.pop(place, None)
            if pull is not None:
                pull.cancel()
            with self.shelf.changing():
                queue = self.shelf.queues.pop(place, None)
                if queue is None:  # another task gave it up meanwhile
                    continue
                queue.is_dropped = True
            goodbye = asyncio.get_running_loop().create_task(self._commit_and_unlock(queue))
            self._goodbyes.add(goodbye)
            goodbye.add_done_callback(self._goodbyes.discard)
            if not queue.in_order:
                await asyncio.wait({goodbye})

    async def _commit_and_unlock(self, queue: AssignedQueue) -> None:
        """Commit what is done; in order, let what is in hand be done before another member gets the queue."""
        until = time.monotonic() + UNLOCK_SECONDS
        try:
            while queue.in_order and queue.handed_out and time.monotonic() < until:
                await asyncio.sleep(LOOK_SECONDS)
        finally:  # also when the member ends meanwhile
            with suppress(*FAILURES):
                await self._commit_one(queue)
                await self.offsets.flush()
            with suppress(*FAILURES):
                await self._unlock([queue.place])

    async def _members(self, places: list[Place]) -> list[str] | None:
        """Who is in the group, by one of the topic's brokers; None where none says. Raises PeerUnreachable."""
        if not places:
            return []
        failed: PeerUnreachable | None = None
        for broker in _by_broker(places):
            fields = {"consumerGroup": self._wanted.group}
            try:
                answer = await self._cluster.broker(broker).ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)
            except PeerUnreachable as unreachable:
                failed = unreachable
                continue
            if answer.code == ResponseCode.SUCCESS:
                return [str(one) for one in fastjson.loads(answer.body, "members").get("consumerIdList") or ()]
        if failed is not None:
            raise failed
        return None

    # locks of queues that are consumed in order

    async def _locked(self, broker: str, places: Iterable[Place]) -> list[Place]:
        """Those of a broker's queues that are this member's alone now."""
        answer = await self._cluster.broker(broker).need(RequestCode.LOCK_BATCH_MQ, body=self._lock_body(places))
        locked = set(locked_of(answer.body))
        return [place for place in places if place in locked]

    async def _keep_locks(self) -> None:
        """Lock all queues again, also while nobody says who is in the group; give up those that another member has.

        Each broker is tried before the last error is raised.
        """
        failed: Exception | None = None
        for broker, places in _by_broker(self.shelf.queues).items():
            try:
                until, locked = _locked_until(), await self._locked(broker, places)
                await self._give_up(set(places) - set(locked))
                for place in locked:
                    await self._renew(place, until)
            except FAILURES as error:
                failed = error
        if failed is not None:
            raise failed

    async def _renew(self, place: Place, until: float) -> None:
        """Believe in a lock again. Where another member may have had it since, go on at the group's offset."""
        queue = self.shelf.queues.get(place)
        if queue is None:
            return
        if until - queue.locked_until > BROKER_LOCK_SECONDS:
            self.seek(place, (await self._begin_of(place))[0])
        with self.shelf.changing():
            queue.locked_until = until

    async def _unlock(self, places: Iterable[Place]) -> None:
        if not self._wanted.in_order:
            return
        for broker, of_broker in _by_broker(places).items():
            await self._cluster.broker(broker).ask(RequestCode.UNLOCK_BATCH_MQ, body=self._lock_body(of_broker))

    def _lock_body(self, places: Iterable[Place]) -> bytes:
        return request_body(self._wanted.group, self._cluster.client_id, places, only_this_broker=False)

    # offsets

    async def _begin_of(self, place: Place) -> tuple[int, bool]:
        """Where the group goes on in a queue, and whether that is committed."""
        offset = await self.offsets.committed(place)
        if offset is not None:
            return offset, True
        if place.topic == self._retry_topic:
            return 0, False
        return await self.offset_at(place, self._wanted.begin), False

    async def offset_at(self, place: Place, where: str | int) -> int:
        """The first offset of a queue, that behind its last message, or that of a time. Raises PeerRefused."""
        fields = queue_fields(self._wanted.group, place)
        if where == FIRST:
            code = RequestCode.GET_MIN_OFFSET
        elif where == LAST:
            code = RequestCode.GET_MAX_OFFSET
        else:
            code, fields = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {**fields, "timestamp": str(where)}
        return number_of(await self._cluster.broker(place.broker).need(code, fields), "offset", 0)

    async def commit(self) -> None:
        """Tell the brokers what is done. Each broker is tried before PeerRefused or PeerUnreachable is raised."""
        failed: dict[str, Exception] = {}
        for queue in list(self.shelf.queues.values()):
            if queue.place.broker not in failed:
                try:
                    await self._commit_one(queue)
                except FAILURES as error:
                    failed[queue.place.broker] = error
        await self.offsets.flush()
        if failed:
            raise next(iter(failed.values()))

    async def _commit_one(self, queue: AssignedQueue) -> None:
        with self.shelf.changed:
            offset = queue.consumed_to
        if offset == queue.committed:
            return
        if time.monotonic() < queue.asks_until and (await self.offsets.committed(queue.place) or 0) > offset:
            return  # of the member before: less would be repeated once more after a kill
        await self.offsets.commit(queue.place, offset)
        queue.committed = offset

    def seek(self, place: Place, offset: int) -> None:
        """Go on at another offset of a queue, which is committed soon. Nothing for a queue that is not assigned."""
        with self.shelf.changing():
            queue = self.shelf.queues.get(place)
            if queue is None:
                return
            queue.read_from(offset)
        pull = self._pulls.pop(place, None)
        if pull is not None:
            pull.cancel()
        self._start_pull(queue)

    async def hear(self) -> None:
        """Ask of the queues that are read here what brokers tell pulls: no permission, offsets that were reset."""
        for queue in list(self.shelf.queues.values()):
            if queue.place not in self._pulls:
                await self._hear(queue)

    async def _hear(self, queue: AssignedQueue) -> None:
        place, pull = queue.place, Pull(queue.pulled_to, None, may_wait=False)
        fields = pull_fields(queue_fields(self._wanted.group, place), pull, self._topics[place.topic], self._version_ms)
        connection = self._cluster.broker(place.broker)
        answer = await connection.ask(RequestCode.PULL_MESSAGE, {**fields, "maxMsgNums": "1"})
        if answer.code == ResponseCode.PULL_OFFSET_MOVED and answer.remark == OFFSET_RESET:
            self.seek(place, number_of(answer, "nextBeginOffset", queue.pulled_to))
        is_refused = answer.code == ResponseCode.NO_PERMISSION
        if is_refused:
            self._warn("a pull failed", str(PeerRefused(connection.address, RequestCode.PULL_MESSAGE, answer)))
        if is_refused or queue.refused_until:
            with self.shelf.changing():
                queue.refused_until = time.monotonic() + REFUSED_SECONDS if is_refused else 0.0

    # messages

    async def give_back(self, message: Message, broker: str, delay_level: int, retries: int) -> None:
        """Have the broker deliver a message again, later, through the group's retry topic; then it is done here.

        Raises PeerRefused, PeerUnreachable: the message is not done.
        """
        fields = send_back_fields(message, self._wanted.group, broker, retries, delay_level)
        try:
            await self._cluster.broker(broker).need(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
        except (PeerUnreachable, PeerRefused, ClientError) as error:
            await self._send_again(message, retries, error)

    async def _send_again(self, message: Message, retries: int, error: Exception) -> None:
        """Send a message that its broker does not take back to the group's retry topic. Raises `error` without one."""
        route = await self._cluster.route(self._retry_topic)
        if route is None or not route.writes:
            raise error
        place = random.choice(route.writes)
        body = bytes(body_of(message.body, message.sys_flag))
        again = resent(message, body, self._wanted.group, retries)
        texts = property_text(again.properties)
        fields = send_fields(INNER_PRODUCER, again.topic, place.queue_id, texts, wall_ms())
        fields |= {"h": str(again.flag), "j": str(again.reconsume_times), "l": str(again.max_reconsume_times)}
        await self._cluster.broker(place.broker).need(RequestCode.SEND_MESSAGE_V2, fields, again.body)

    def _taken(self) -> None:
        """There may be room again: said in any thread."""
        if self._waits_for_room and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._let_pull)

    def _let_pull(self) -> None:
        room, self._room = self._room, asyncio.Event()
        room.set()

    def read_near(self, store: Path) -> None:
        """Have the threads that poll read the store of the broker on this host, if they may."""
        try:
            heard = Heard(self._topics, self._wanted.bounds, self._moved, self._absent, self._warn)
            self.shelf.near = LocalReads(store, heard)
        except (IpcError, StoreError) as error:
            self._warn("the store is not read", f"{error}; its messages are pulled from the broker's address")

    def _absent(self, queue: AssignedQueue) -> None:
        """The replica's store that is read here lacks messages which its master may have: said in any thread."""
        with suppress(RuntimeError):  # the loop is closed
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._start_pull, queue)

    def _start_pull(self, queue: AssignedQueue) -> None:
        """Pull a queue in the loop, unless the threads that poll read it."""
        if queue.is_dropped:
            return
        if self.shelf.near is None or not self.shelf.near.serves(queue.place):
            self._pulls[queue.place] = self._watched(self._pull(queue))

    async def _pull(self, queue: AssignedQueue) -> None:
        while not queue.is_dropped:
            try:
                if queue.is_paused or queue.is_full(self._wanted.bounds):
                    await self._await_room()
                else:
                    await self._pull_once(queue)
            except FAILURES as error:
                is_by_tags = self._topics[queue.place.topic].is_by_tags
                if isinstance(error, PeerRefused) and error.response_code in NOT_FILTERED and not is_by_tags:
                    self.shelf.fail(error)  # no broker filters differently a second later
                    return
                queue.broker_id = MASTER
                self._warn("a pull failed", str(error))
                await asyncio.sleep(PAUSE_SECONDS)

    async def _await_room(self) -> None:
        self._waits_for_room += 1
        try:
            async with asyncio.timeout(PAUSE_SECONDS):
                await self._room.wait()
        except TimeoutError:
            pass
        finally:
            self._waits_for_room -= 1

    async def _pull_once(self, queue: AssignedQueue) -> None:
        place, turn, wanted = queue.place, queue.turn, self._topics[queue.place.topic]
        with self.shelf.changed:
            done = queue.consumed_to
        commits = done > 0 and queue.broker_id == MASTER and not self._wanted.broadcasts
        commits &= done != queue.committed and time.monotonic() >= queue.asks_until
        pull = Pull(queue.pulled_to, done if commits else None, queue.is_at_end)
        fields = pull_fields(queue_fields(self._wanted.group, place), pull, wanted, self._version_ms)
        connection = self._cluster.broker(place.broker, queue.broker_id)
        answer = await connection.ask(RequestCode.PULL_MESSAGE, fields, timeout=PULL_SECONDS)
        blocks: list[Block] = []
        if answer.code == ResponseCode.SUCCESS:
            blocks = blocks_of(answer.body, self._tags[place.topic], pull.offset, place.broker)
        with self.shelf.changing():
            if turn == queue.turn and not queue.is_dropped:
                self._take_answer(queue, connection.address, answer, blocks)

    def _take_answer(self, queue: AssignedQueue, address: str, answer: RemotingCommand, blocks: list[Block]) -> None:
        next_offset = number_of(answer, "nextBeginOffset", queue.pulled_to)
        queue.pulled_ms = wall_ms()
        queue.end = number_of(answer, "maxOffset", queue.end)
        queue.broker_id = number_of(answer, "suggestWhichBrokerId", MASTER)
        match answer.code:
            case ResponseCode.SUCCESS | ResponseCode.PULL_NOT_FOUND | ResponseCode.PULL_RETRY_IMMEDIATELY:
                queue.pulled(blocks, next_offset)
                queue.is_at_end = answer.code == ResponseCode.PULL_NOT_FOUND or next_offset >= queue.end
            case ResponseCode.PULL_OFFSET_MOVED if answer.remark == OFFSET_RESET:
                queue.read_from(next_offset)
            case ResponseCode.PULL_OFFSET_MOVED:
                self._moved(queue, next_offset)
            case _:
                raise PeerRefused(address, RequestCode.PULL_MESSAGE, answer)

    def _moved(self, queue: AssignedQueue, offset: int) -> None:
        """The broker has not the offset that was asked for: it was deleted, or the queue is shorter than it was."""
        name = f"{queue.place.topic}/{queue.place.queue_id} at {queue.place.broker}"
        if offset > queue.pulled_to:
            lost = offset - queue.pulled_to
            queue.lost += lost
            text = f"{name}: {lost} offsets from {queue.pulled_to} on were deleted before group {self._wanted.group}"
            self._warn("messages were lost", f"{text} read them; going on at {offset}")
            queue.pulled([], offset)
        elif offset < queue.pulled_to:
            text = f"{name}: the queue ends at {offset}, before the offset {queue.pulled_to} of group"
            self._warn("a queue became shorter", f"{text} {self._wanted.group}; going on there")
            queue.read_from(offset)
        else:
            queue.is_at_end = True


def _locked_until() -> float:
    """Until when a member believes in locks that it asks for now."""
    return time.monotonic() + LOCK_SECONDS


def _by_broker(places: Iterable[Place]) -> dict[str, list[Place]]:
    table: dict[str, list[Place]] = {}
    for place in places:
        table.setdefault(place.broker, []).append(place)
    return table
