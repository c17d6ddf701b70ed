"""What administrators ask of queues: what is in them, and how far groups have come.

Implements: AdminBrokerProcessor.getTopicStatsInfo, getConsumeStats, queryConsumeTimeSpan, queryCorrectionOffset,
    fetchAllConsumeStatsInBroker, queryConsumeQueue (202, 208, 303, 308, 317, 321)
The tables are looked at on the loop; the queues' files are read on threads.
"""

from __future__ import annotations

from engine.protocol.broker import admin_bodies
from engine.protocol.broker.admin_bodies import Consumed, ConsumeStats, TimeSpan, TopicOffset
from engine.protocol.remoting.answers import (
    NO_REMARK,
    NULL_POINTER,
    Json,
    Refused,
    Thrown,
    body_of,
    given,
    null_pointer,
    shown,
    whole_number,
)
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.remoting.places import Place
from engine.remoting.processors.admin.admin_part import QUEUES_MAX, AdminPart, AdminShared
from engine.remoting.processors.parts import PartContext
from store.reading.queue_view import QueueEntry
from store.tables.fastjson import INT32_MAX, INT32_MIN, INT64_MAX
from store.tables.tables import hash_map_order, java_order

ENTRIES_MAX = 20_000  # of a queue, in one answer
GROUP_CAPACITY = 1024
LONG_VALUE = "java.lang.Long.longValue()"
NO_ENTRY = f"{NULL_POINTER}: " + null_pointer(LONG_VALUE, 'the return value of "java.util.Map.get(Object)"')
At = tuple[Place, int, int]  # a queue, how far a group has consumed it, how far it has pulled


class QueueReports(AdminPart):
    """Handlers of requests about queues, by request code."""

    def __init__(self, context: PartContext, shared: AdminShared) -> None:
        super().__init__(context, shared)
        self.later = {
            RequestCode.GET_TOPIC_STATS_INFO: self._topic_stats,
            RequestCode.GET_CONSUME_STATS: self._consume_stats,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self._time_span,
            RequestCode.QUERY_CORRECTION_OFFSET: self._correction,
            RequestCode.GET_BROKER_CONSUME_STATS: self._broker_stats,
            RequestCode.QUERY_CONSUME_QUEUE: self._queue,
        }

    def _config_of(self, topic: str) -> Json:
        config = self.metadata.topics.get(topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        return config

    # 202

    async def _topic_stats(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        topic = self._needed_topic(request)
        config = self._config_of(topic)
        count = config["writeQueueNums"]
        if self.rules.tells_read_queues:
            count = max(count, config["readQueueNums"])
        queues = self.message_queues(topic, count)
        table = await self.pool.run(lambda: {queue: self._offsets(queue) for queue in queues})
        return self.answered(request, body=admin_bodies.topic_stats(table, self.stats.put_tps(topic), self.line))

    def _needed_topic(self, request: RemotingCommand) -> str:
        topic = given(request, "topic")
        if topic is None:
            raise Thrown(f"{NULL_POINTER}: {null_pointer('Object.hashCode()', '<parameter1>')}")
        return topic

    def _offsets(self, queue: Place) -> TopicOffset:
        view = self.store.queues.view(queue.topic, queue.queue_id)
        end = view.max_offset
        return TopicOffset(view.min_offset, end, view.stored_ms(end - 1) if end > 0 else 0)

    # 208, 317

    async def _consume_stats(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        group, topic = shown(given(request, "consumerGroup")), given(request, "topic") or ""
        listed = [name for name in (given(request, "topicList") or "").split(";") if name]
        if not (self.rules.takes_topic_list and listed):
            listed = [topic] if topic.strip() else self.topics_of(group)
            listed = [name for name in listed if not self.online.is_unsubscribed(group, name)]
        places, tps = self._places(group, listed, "readQueueNums"), 0.0
        for name in hash_map_order(dict.fromkeys(listed)):
            tps += self.stats.get_tps(group, name) if name in self.metadata.topics else 0.0
        stats = ConsumeStats(await self.pool.run(self._consumed, places, self.rules.tells_pull_offsets), tps)
        return self.answered(request, body=admin_bodies.consume_stats(stats, self.line))

    def _places(self, group: str, topics: list[str], queue_nums: str) -> list[At]:
        places: list[At] = []
        for topic in dict.fromkeys(topics):
            config = self.metadata.topics.get(topic)
            for queue in self.message_queues(topic, config[queue_nums] if config else 0):
                consumed = max(0, self.consumer_offset(group, topic, queue.queue_id))
                pulled = self.context.clients.pulled.query(group, topic, queue.queue_id) or 0
                places.append((queue, consumed, max(consumed, pulled)))
        if len(places) > QUEUES_MAX:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{len(places)} queues are too many for one answer: name a topic")
        return places

    def _consumed(self, places: list[At], with_pulls: bool) -> dict[Place, Consumed]:
        table = {}
        for queue, offset, pulled in places:
            view = self.store.queues.view(queue.topic, queue.queue_id)
            last_ms = max(0, view.stored_ms(offset - 1)) if offset > 0 else 0
            table[queue] = Consumed(view.max_offset, offset, pulled if with_pulls else 0, last_ms)
        return table

    async def _broker_stats(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        only_ordered = (given(request, "isOrder") or "").lower() == "true"
        groups: dict[str, list[tuple[str, list[At]]]] = {}
        count = 0
        for group in java_order(self.metadata.groups, GROUP_CAPACITY):
            groups[group] = []
            for topic in hash_map_order(self.topics_of(group)):
                config = self.metadata.topics.get(topic)
                if config is None or (only_ordered and not config.get("order")):
                    continue
                if self.online.is_unsubscribed(group, topic):
                    continue
                groups[group].append((topic, self._places(group, [topic], "writeQueueNums")))
                count += len(groups[group][-1][1])
        if count > QUEUES_MAX:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{count} queues are too many for one answer: name one group")
        tables = await self.pool.run(self._of_groups, groups)
        address = f"{self.context.config.broker_ip1}:{self.context.config.listen_port}"
        return self.answered(request, body=admin_bodies.broker_consume_stats(tables, address, self.line))

    def _of_groups(self, groups: dict[str, list[tuple[str, list[At]]]]) -> dict[str, list[ConsumeStats]]:
        return {
            group: [
                ConsumeStats(self._consumed(places, with_pulls=False), self.stats.get_tps(group, topic))
                for topic, places in topics
            ]
            for group, topics in groups.items()
        }

    # 303

    async def _time_span(self, request: RemotingCommand, _channel: int, now_ms: int) -> RemotingCommand:
        topic, group = self._needed_topic(request), shown(given(request, "group"))
        queues = self.message_queues(topic, self._config_of(topic)["writeQueueNums"])
        places = [(queue, self.consumer_offset(group, topic, queue.queue_id)) for queue in queues]
        spans = await self.pool.run(lambda: [self._span(queue, offset, now_ms) for queue, offset in places])
        return self.with_json(request, admin_bodies.time_spans(spans))

    def _span(self, queue: Place, offset: int, now_ms: int) -> TimeSpan:
        view = self.store.queues.view(queue.topic, queue.queue_id)
        first_ms, end = view.earliest_ms, view.max_offset
        consumed_ms = view.stored_ms(offset - 1) if offset > 0 else first_ms
        delay_ms = now_ms - view.stored_ms(offset) if offset < end else 0
        return TimeSpan(queue, first_ms, view.stored_ms(end - 1), consumed_ms, delay_ms)

    # 308

    async def _correction(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        """RocketMQ also forgets the offsets of the groups that are left out: slipstream keeps them (DECISIONS 46)."""
        topic, compared = shown(given(request, "topic")), given(request, "compareGroup")
        without = {group for group in (given(request, "filterGroups") or "").split(",") if group}
        every = [
            dict(offsets)
            for (name, group), offsets in self.metadata.offsets.items()
            if name == topic and group not in without
        ]
        lowest = await self.pool.run(self._lowest, topic, every)
        if self.rules.compares_offsets:
            for queue_id, offset in self.metadata.offsets.get((topic, shown(compared)), {}).items():
                if queue_id not in lowest:
                    raise Thrown(NO_ENTRY)
                lowest[queue_id] = INT64_MAX if lowest[queue_id] > offset else lowest[queue_id]
        return self.with_json(request, {"correctionOffsets": {each: lowest[each] for each in hash_map_order(lowest)}})

    def _lowest(self, topic: str, every: list[dict[int, int]]) -> dict[int, int]:
        starts: dict[int, int] = {}
        lowest: dict[int, int] = {}
        for offsets in every:
            for queue_id, offset in offsets.items():
                if queue_id not in starts:
                    starts[queue_id] = self.store.queues.view(topic, queue_id).min_offset
                if offset >= starts[queue_id]:
                    lowest[queue_id] = min(lowest.get(queue_id, INT64_MAX), offset)
        return lowest

    # 321

    async def _queue(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        topic, group = shown(given(request, "topic")), given(request, "consumerGroup")
        queue_id, count = (whole_number(request, name, INT32_MIN, INT32_MAX) or 0 for name in ("queueId", "count"))
        index = whole_number(request, "index") or 0
        body: Json = {}
        if group is not None:
            of = self.online.subscription(group, topic)
            body["filterData"] = f"{group}@{topic} is not online!" if of is None else "null"
            if of is not None:
                body["subscriptionData"] = admin_bodies.subscription(topic, of)
        read = await self.pool.run(self._entries, topic, queue_id, index, min(count, ENTRIES_MAX))
        if read is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        low, high, entries = read
        if entries is None:
            remark = f"Index {index} of {queue_id}@{topic} is not exist!"
            return self.answered(request, ResponseCode.SUCCESS, remark)
        body |= {"maxQueueIndex": high, "minQueueIndex": low, "queueData": [_entry(one) for one in entries]}
        return self.answered(request, ResponseCode.SUCCESS, NO_REMARK, body=body_of(dict(sorted(body.items()))))

    def _entries(
        self, topic: str, queue_id: int, index: int, count: int
    ) -> tuple[int, int, list[QueueEntry] | None] | None:
        view = self.store.queues.view(topic, queue_id)
        if not view.is_there:
            return None
        low, high = view.min_offset, view.max_offset
        return low, high, view.entries(index, count) if low <= index < high else None


def _entry(one: QueueEntry) -> Json:
    return {"eval": False, "physicOffset": one.physical_offset, "physicSize": one.size, "tagsCode": one.tags_code}
