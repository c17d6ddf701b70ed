"""A member of a consumer group: heartbeats, its share of the queues, long pulls, offsets committed.

Implements: DefaultMQPushConsumerImpl, RebalanceImpl, RemoteBrokerOffsetStore
Queues are read by tasks of one loop, and their messages handed over one by one; what was handed over is committed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from engine.clients.cluster import Cluster, Place
from engine.clients.connection import warn
from engine.clients.names import ClientError, check_group
from engine.clients.strategies import share_of
from engine.protocol.broker.admin_bodies import MessageQueue, by_queue
from engine.protocol.remoting.codes import REQUEST_VERSION, RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.sockets.client import PeerRefused, PeerUnreachable
from store.errors import StoreError
from store.message.properties import java_hash
from store.message.record import Message, decode, inspect
from store.message.topics import RETRY_PREFIX
from store.tables import fastjson

# What a member of a group tells administrators of itself: request 307, which `mqadmin consumerStatus` asks.
#
# Implements: ConsumerRunningInfo, ProcessQueueInfo, as DefaultMQPushConsumerImpl.consumerRunningInfo fills them
CLIENT_VERSION = "SLIPSTREAM"
STACK_CHARACTERS_MAX = 64 * 1024


class QueueState(NamedTuple):
    """The state of one queue of the member: offsets, messages that wait to be taken, and times in ms since 1970."""

    consumed_to: int
    pulled_to: int
    waiting: int
    pulled_ms: int
    consumed_ms: int


def running_info(
    queues: Mapping[MessageQueue, QueueState],
    subscriptions: list[dict[str, Any]],
    name_servers: str,
    began_ms: int,
    *,
    with_stack: bool,
) -> bytes:
    """The body of the answer. `with_stack`: also what every thread is doing."""
    fields: dict[str, Any] = {
        "properties": {
            "PROP_CLIENT_VERSION": CLIENT_VERSION, "PROP_CONSUME_ORDERLY": "false",
            "PROP_CONSUMER_START_TIMESTAMP": str(began_ms), "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_NAMESERVER_ADDR": name_servers, "PROP_THREADPOOL_CORE_SIZE": "1",
        },
        "statusTable": {}, "subscriptionSet": subscriptions,
    }  # fmt: skip
    if with_stack:
        fields["jstack"] = _stacks()
    table = by_queue({queue: fastjson.dumps(_process_queue(state)) for queue, state in queues.items()})
    return f'{{"mqTable":{table},{fastjson.dumps(fields)[1:]}'.encode("utf-8", "replace")


def _process_queue(state: QueueState) -> dict[str, Any]:
    return {
        "cachedMsgCount": state.waiting,
        "cachedMsgMaxOffset": max(0, state.pulled_to - 1) if state.waiting else 0,
        "cachedMsgMinOffset": state.consumed_to if state.waiting else 0,
        "commitOffset": state.consumed_to,
        "droped": False,
        "lastConsumeTimestamp": state.consumed_ms,
        "lastLockTimestamp": 0,
        "lastPullTimestamp": state.pulled_ms,
        "locked": False,
        "transactionMsgCount": 0,
        "transactionMsgMaxOffset": 0,
        "transactionMsgMinOffset": 0,
        "tryUnlockTimes": 0,
    }


def _stacks() -> str:
    frames = sys._current_frames().items()
    stacks = (f"thread {number}\n{''.join(traceback.format_stack(frame))}" for number, frame in frames)
    return "\n".join(stacks)[:STACK_CHARACTERS_MAX]


HEARTBEAT_SECONDS, REBALANCE_SECONDS, COMMIT_SECONDS, PAUSE_SECONDS = 30.0, 20.0, 5.0, 1.0
LOOK_SECONDS = 0.2
NEW_TOPIC_SECONDS = 3.0  # until a topic that a producer made through shared memory is registered at name servers
SUSPEND_MS, PULL_SECONDS = 15_000, 30.0
MESSAGES_A_PULL = 32
MESSAGES_MAX = 1 << 62
WAITING_MAX = 256  # messages that nobody has taken yet
COMMIT_FLAG, SUSPEND_FLAG, SUBSCRIPTION_FLAG = 1, 2, 4
EVERYTHING = "*"
FIRST, LAST = "first", "last"
WHERE = {FIRST: "CONSUME_FROM_FIRST_OFFSET", LAST: "CONSUME_FROM_LAST_OFFSET"}
AT_TIME = "CONSUME_FROM_TIMESTAMP"


class Wanted(NamedTuple):
    """The group that consumes, and the topic, tags and first place of what it does."""

    group: str
    topic: str
    tags: str = EVERYTHING
    begin: str | int = LAST  # or a time, in milliseconds since 1970


class _Queue:
    """A queue that is assigned to this member now."""

    def __init__(self, place: Place, offset: int) -> None:
        self.place, self.pulled_to, self.consumed_to, self.committed = place, offset, offset, offset
        self.is_drained = False
        self.waiting = self.pulled_ms = self.taken_ms = 0
        self.task: asyncio.Task[None] | None = None


def subscription_of(topic: str, tags: str, version_ms: int) -> dict[str, object]:
    """A SubscriptionData: these tags, `a || b`, or EVERYTHING."""
    chosen = [] if tags == EVERYTHING else tags_in(tags)
    return {
        "classFilterMode": False,
        "codeSet": [java_hash(tag) for tag in chosen],
        "expressionType": "TAG",
        "subString": tags,
        "subVersion": version_ms,
        "tagsSet": chosen,
        "topic": topic,
    }


def tags_in(tags: str) -> list[str]:
    """Return the tags of an expression like `a || b`."""
    return [tag for tag in (part.strip() for part in tags.split("||")) if tag]


def heartbeat_of(client_id: str, group: str, begin: str | int, subscriptions: list[dict[str, object]]) -> bytes:
    """The body in which a consumer says that it lives."""
    return json.dumps(
        {
            "clientID": client_id,
            "producerDataSet": [],
            "consumerDataSet": [
                {
                    "consumeFromWhere": AT_TIME if isinstance(begin, int) else WHERE[begin],
                    "consumeType": "CONSUME_PASSIVELY",
                    "groupName": group,
                    "messageModel": "CLUSTERING",
                    "subscriptionDataSet": subscriptions,
                    "unitMode": False,
                }
            ],
        }
    ).encode()


class Consumer:
    """One member. `messages` gives what comes; `stop` ends it in order. Raises ClientError for a group's wrong name."""

    def __init__(self, cluster: Cluster, wanted: Wanted) -> None:
        check_group(wanted.group)
        self._cluster, self._wanted = cluster, wanted
        cluster.on_push = self.pushed
        self._queues: dict[Place, _Queue] = {}
        self._coming: asyncio.Queue[tuple[_Queue, Message]] = asyncio.Queue(WAITING_MAX)
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._version_ms = _now_ms()
        self._tags = tags_in(wanted.tags)
        self._is_ended = False

    def pushed(self, command: RemotingCommand) -> RemotingCommand | None:
        """A broker says or asks something of itself; the answer, None for what is not served: `Cluster.on_push`."""
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            self._changed.set()
        if command.code != RequestCode.GET_CONSUMER_RUNNING_INFO:
            return None
        asked = command.ext_fields or {}
        if asked.get("consumerGroup") != self._wanted.group:
            remark = f"The Consumer Group <{asked.get('consumerGroup')}> not exist in this consumer"
            return command.answer(ResponseCode.SYSTEM_ERROR, remark, version=REQUEST_VERSION)
        states = {
            MessageQueue(*place): QueueState(one.consumed_to, one.pulled_to, one.waiting, one.pulled_ms, one.taken_ms)
            for place, one in self._queues.items()
        }
        stacks = asked.get("jstackEnable") == "true"
        known = self._cluster.name_servers
        body = running_info(states, self._subscriptions(), known, self._version_ms, with_stack=stacks)
        return command.answer(ResponseCode.SUCCESS, body=body, version=REQUEST_VERSION)

    async def start(self) -> None:
        """Become a member. Raises ClientError, PeerRefused, PeerUnreachable."""
        until = time.monotonic() + NEW_TOPIC_SECONDS
        while await self._cluster.route(self._wanted.topic) is None:
            if time.monotonic() > until:
                why = "does not exist; `slipstream send` creates it with a message"
                raise ClientError(f"topic {self._wanted.topic!r} {why}")
            await asyncio.sleep(LOOK_SECONDS)
        await self._heartbeat()
        await self._rebalance()
        loop = asyncio.get_running_loop()
        rounds = ((HEARTBEAT_SECONDS, self._heartbeat), (COMMIT_SECONDS, self._commit))
        self._tasks = [loop.create_task(self._again(seconds, work)) for seconds, work in rounds]
        self._tasks.append(loop.create_task(self._keep_balance()))

    async def messages(self, count: int | None, *, follow: bool) -> AsyncIterator[Message]:
        """Yield at most `count` messages; without `follow`, stop once every assigned queue was empty."""
        left = MESSAGES_MAX if count is None else count
        getting: asyncio.Task[tuple[_Queue, Message]] | None = None
        try:
            while follow or getting is None or getting.done() or not self._is_drained():
                getting = getting or asyncio.get_running_loop().create_task(self._coming.get())
                done, _waiting = await asyncio.wait({getting}, timeout=LOOK_SECONDS)
                if done:
                    (queue, message), getting = getting.result(), None
                    queue.waiting, queue.taken_ms = queue.waiting - 1, _now_ms()
                    if self._queues.get(queue.place) is queue:  # else it is another member's by now
                        yield message
                        queue.consumed_to = message.queue_offset + 1
                        left -= 1
                        if not left:
                            return
        finally:
            if getting is not None:
                getting.cancel()

    def _is_drained(self) -> bool:
        return all(queue.is_drained for queue in self._queues.values()) and self._coming.empty()

    async def stop(self) -> None:
        """Commit the offsets, unregister, and close the connections."""
        self._is_ended = True
        tasks = [*self._tasks, *(queue.task for queue in self._queues.values() if queue.task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(PeerUnreachable):
            await self._commit()
        fields = {"clientID": self._cluster.client_id, "consumerGroup": self._wanted.group}
        for connection in self._cluster.every_broker():
            with suppress(PeerUnreachable):
                await connection.ask(RequestCode.UNREGISTER_CLIENT, fields)

    # membership

    async def _again(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while not self._is_ended:
            await asyncio.sleep(seconds)
            try:
                await work()
            except (PeerUnreachable, PeerRefused) as error:
                warn(str(error))

    async def _heartbeat(self) -> None:
        wanted = self._wanted
        body = heartbeat_of(self._cluster.client_id, wanted.group, wanted.begin, self._subscriptions())
        reached = 0
        failed: PeerUnreachable | None = None
        for connection in self._cluster.every_broker():
            try:
                await connection.need(RequestCode.HEART_BEAT, body=body)
                reached += 1
            except PeerUnreachable as unreachable:
                failed = unreachable
        if failed is not None and not reached:
            raise failed

    def _subscriptions(self) -> list[dict[str, object]]:
        topics = (self._wanted.topic, RETRY_PREFIX + self._wanted.group)
        return [subscription_of(topic, self._tags_of(topic), self._version_ms) for topic in topics]

    def _tags_of(self, topic: str) -> str:
        return EVERYTHING if topic.startswith(RETRY_PREFIX) else self._wanted.tags

    async def _keep_balance(self) -> None:
        while not self._is_ended:
            with suppress(TimeoutError):
                async with asyncio.timeout(REBALANCE_SECONDS):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self._rebalance()
            except (PeerUnreachable, PeerRefused, ClientError) as error:
                warn(str(error))

    async def _rebalance(self) -> None:
        places: list[Place] = []
        for topic in (self._wanted.topic, RETRY_PREFIX + self._wanted.group):
            route = await self._cluster.route(topic)
            places += share_of(route.reads, await self._members(route.reads), self._cluster.client_id) if route else []
        for place in self._queues.keys() - set(places):
            queue = self._queues.pop(place)
            if queue.task is not None:
                queue.task.cancel()
            await self._commit_one(queue)
        for place in places:
            if place not in self._queues:
                queue = self._queues[place] = _Queue(place, await self._begin_of(place))
                queue.task = asyncio.get_running_loop().create_task(self._pull(queue))

    async def _members(self, places: list[Place]) -> list[str]:
        if not places:
            return []
        fields = {"consumerGroup": self._wanted.group}
        answer = await self._cluster.broker(places[0].broker).ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)
        if answer.code != ResponseCode.SUCCESS:
            return []
        return [str(one) for one in fastjson.loads(answer.body, "members").get("consumerIdList") or ()]

    def _queue_fields(self, place: Place) -> dict[str, str]:
        return {"consumerGroup": self._wanted.group, "topic": place.topic, "queueId": str(place.queue_id)}

    async def _begin_of(self, place: Place) -> int:
        connection, fields = self._cluster.broker(place.broker), self._queue_fields(place)
        asked = {**fields, "setZeroIfNotFound": "false"}  # which 5.x heeds
        answer = await connection.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked)
        if answer.code == ResponseCode.SUCCESS:
            offset = int((answer.ext_fields or {}).get("offset", "0"))
            if offset or self._wanted.begin == FIRST or await self._is_committed(place):
                return offset
            answer = answer.answer(ResponseCode.QUERY_NOT_FOUND, version=REQUEST_VERSION)
        if answer.code != ResponseCode.QUERY_NOT_FOUND:
            raise PeerRefused(connection.address, RequestCode.QUERY_CONSUMER_OFFSET, answer)
        if self._wanted.begin == FIRST or place.topic.startswith(RETRY_PREFIX):
            return 0
        if isinstance(self._wanted.begin, int):
            timed = {**fields, "timestamp": str(self._wanted.begin)}
            answer = await connection.need(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timed)
        else:
            answer = await connection.need(RequestCode.GET_MAX_OFFSET, fields)
        return int((answer.ext_fields or {}).get("offset", "0"))

    async def _is_committed(self, place: Place) -> bool:
        """Whether a group has an offset 0, which 4.9 also answers for one that has none."""
        connection = self._cluster.broker(place.broker)
        answer = await connection.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        if answer.code != ResponseCode.SUCCESS:
            warn(f"{connection.address} did not say whether group {self._wanted.group} has offsets; beginning at 0")
            return True
        table = fastjson.loads(answer.body, "the broker's offsets").get("offsetTable") or {}
        return str(place.queue_id) in (table.get(f"{place.topic}@{self._wanted.group}") or {})

    # messages

    async def _pull(self, queue: _Queue) -> None:
        while not self._is_ended:
            try:
                await self._pull_once(queue)
            except (PeerUnreachable, PeerRefused, StoreError) as error:
                warn(str(error))
                await asyncio.sleep(PAUSE_SECONDS)

    async def _pull_once(self, queue: _Queue) -> None:
        place = queue.place
        flags = SUBSCRIPTION_FLAG | SUSPEND_FLAG * queue.is_drained | COMMIT_FLAG * (queue.consumed_to > 0)
        tags = self._tags_of(place.topic)
        fields = {
            **self._queue_fields(place),
            "queueOffset": str(queue.pulled_to),
            "maxMsgNums": str(MESSAGES_A_PULL),
            "sysFlag": str(flags),
            "commitOffset": str(queue.consumed_to),
            "suspendTimeoutMillis": str(SUSPEND_MS),
            "subscription": tags,
            "subVersion": str(self._version_ms),
            "expressionType": "TAG",
        }
        connection = self._cluster.broker(place.broker)
        answer = await connection.ask(RequestCode.PULL_MESSAGE, fields, timeout=PULL_SECONDS)
        queue.pulled_ms = _now_ms()
        next_offset = int((answer.ext_fields or {}).get("nextBeginOffset", str(queue.pulled_to)))
        match answer.code:
            case ResponseCode.SUCCESS:
                for message in messages_of(answer.body):
                    if tags == EVERYTHING or message.tags in self._tags:
                        queue.waiting += 1
                        await self._coming.put((queue, message))
                queue.pulled_to = next_offset
            case ResponseCode.PULL_NOT_FOUND | ResponseCode.PULL_RETRY_IMMEDIATELY | ResponseCode.PULL_OFFSET_MOVED:
                queue.is_drained |= answer.code == ResponseCode.PULL_NOT_FOUND
                queue.pulled_to = next_offset
                if not queue.is_drained and next_offset >= int((answer.ext_fields or {}).get("maxOffset", "0")):
                    queue.is_drained = True
            case _:
                raise PeerRefused(connection.address, RequestCode.PULL_MESSAGE, answer)

    async def _commit(self) -> None:
        for queue in list(self._queues.values()):
            await self._commit_one(queue)

    async def _commit_one(self, queue: _Queue) -> None:
        if queue.consumed_to == queue.committed:
            return
        offset = queue.consumed_to
        fields = {**self._queue_fields(queue.place), "commitOffset": str(offset)}
        answer = await self._cluster.broker(queue.place.broker).ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        if answer.code == ResponseCode.SUCCESS:
            queue.committed = offset


def _now_ms() -> int:
    """Now, for people and for versions."""
    return time.time_ns() // 1_000_000


def messages_of(body: bytes | memoryview) -> list[Message]:
    """The records of an answer. Raises CorruptRecord."""
    view, at, messages = memoryview(body), 0, []
    while at < len(view):
        size = inspect(view[at:], 0, None, check_body_crc=False).size
        if size <= 0:
            break
        messages.append(decode(bytes(view[at : at + size])))
        at += size
    return messages
