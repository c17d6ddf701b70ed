"""What administrators ask of clients, or through the broker of a client itself.

Implements: AdminBrokerProcessor.getConsumerConnectionList, getProducerConnectionList, resetOffset, getConsumerStatus,
    queryTopicConsumeByWho, getConsumerRunningInfo, consumeMessageDirectly, callConsumer, getAllProducerInfo,
    querySubscriptionByConsumer; Broker2Client (203, 204, 222, 223, 300, 307, 309, 328, 345)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from engine.protocol.broker import admin_bodies
from engine.protocol.remoting.answers import (
    NULL_POINTER,
    Refused,
    Thrown,
    given,
    null_pointer,
    shown,
    whole_number,
)
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import ONEWAY_FLAG, RemotingCommand
from engine.protocol.remoting.places import Place
from engine.protocol.tables.consumer_offsets import NoRoom
from engine.remoting.processors.admin.admin_part import AdminPart, AdminShared
from engine.remoting.processors.admin.online import Member
from engine.remoting.processors.parts import PartContext
from store.errors import InvalidMessage, MalformedData
from store.message.host import parse_message_id
from store.tables.fastjson import INT32_MAX, INT32_MIN
from store.tables.tables import hash_map_order

CALL_SECONDS, STATUS_SECONDS = 10.0, 5.0  # that RocketMQ waits for a client
TO_END = NOT_SAID = -1  # a reset's timestamp, and offset
SELECTED, TOPIC, KEY = '"selectMappedBufferResult"', '"topic"', '"key"'  # names in what Java says


class ClientReports(AdminPart):
    """Handlers of requests about clients, by request code."""

    def __init__(self, context: PartContext, shared: AdminShared) -> None:
        super().__init__(context, shared)
        self.handlers = {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._producer_connections,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._groups_of_topic,
            RequestCode.GET_ALL_PRODUCER_INFO: self._all_producers,
        }
        if self.rules.serves_lists:
            self.handlers[RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER] = self._subscription
        self.later = {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self._status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
        }

    # who is there

    def _consumer_connections(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        group = self._group(request, "consumerGroup")
        online = self.online.group(group)
        if online is None:
            raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
        return self.with_json(
            request,
            admin_bodies.consumer_connection(
                [member.client for member in online.members],
                online.subscriptions,
                online.consume_type,
                online.message_model,
                online.consume_from_where,
            ),
        )

    def _group(self, request: RemotingCommand, name: str) -> str:
        group = given(request, name)
        if group is None:
            raise Thrown(f"{NULL_POINTER}: {null_pointer('Object.hashCode()', '<parameter1>')}")
        return group

    def _producer_connections(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        group = self._group(request, "producerGroup")
        members = self.online.producers().get(group)
        if members is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        return self.with_json(request, {"connectionSet": [admin_bodies.connection(one.client) for one in members]})

    def _all_producers(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        groups = self.online.producers()
        listed = {group: [one.client for one in groups[group]] for group in hash_map_order(groups)}
        return self.with_json(request, admin_bodies.all_producers(listed))

    def _groups_of_topic(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        topic = given(request, "topic")
        if topic is None:
            by_key, by_topic = null_pointer("Object.hashCode()", KEY), null_pointer("String.equals(Object)", TOPIC)
            what = by_key if self.line.broker.tells_hash_code else by_topic
            raise Thrown(f"{NULL_POINTER}: {what}")
        online = self.online.groups_of_topic(topic)
        groups = dict.fromkeys([*online, *self.metadata.groups_of(topic)])
        return self.with_json(request, {"groupList": hash_map_order(groups)})

    def _subscription(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        group, topic = given(request, "group"), given(request, "topic")
        of = self.online.subscription(group, topic) if group is not None and topic is not None else None
        body = {
            "group": group,
            "subscriptionData": None if of is None else admin_bodies.subscription(shown(topic), of),
            "topic": topic,
        }
        return self.with_json(request, {name: value for name, value in body.items() if value is not None})

    # what is asked of clients

    async def _running_info(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        return await self._call(request, request.ext_fields, bytes(request.body))

    async def _consume_directly(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        message_id = given(request, "msgId")
        try:
            _host, offset = parse_message_id(shown(message_id))
        except InvalidMessage:
            raise Thrown(f"java.lang.NumberFormatException: {shown(message_id)[:64]!r} is not a message id") from None
        record = await self.pool.run(self.store.records.at, offset)
        if record is None:
            call = "org.apache.rocketmq.store.SelectMappedBufferResult.getSize()"
            raise Thrown(f"{NULL_POINTER}: {null_pointer(call, SELECTED)}")
        fields = {**(request.ext_fields or {}), "brokerName": self.context.config.broker_name}
        if self.rules.directs_with_flags:
            topic = self.metadata.topics.get(fields.get("topic", ""))
            group = self.metadata.groups.get(fields.get("consumerGroup", ""))
            fields |= {"topicSysFlag": str(topic.get("topicSysFlag", 0))} if topic is not None else {}
            fields |= {"groupSysFlag": str(group.get("groupSysFlag", 0))} if group is not None else {}
        return await self._call(request, fields, record)

    async def _call(self, request: RemotingCommand, fields: Mapping[str, str] | None, body: bytes) -> RemotingCommand:
        """callConsumer: what the client answers."""
        group, client_id = given(request, "consumerGroup"), given(request, "clientId")
        member = None if group is None or client_id is None else self.online.member(group, client_id)
        if member is None:
            remark = f"The Consumer <{shown(group)}> <{shown(client_id)}> not online"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        asked = RemotingCommand(request.code, ext_fields=fields, body=body, version=self.version)
        try:
            answer = await self.context.links.ask(member.channel, asked, CALL_SECONDS)
        except TimeoutError:
            what = f"wait response on the channel <{member.client.address}> timeout, {CALL_SECONDS * 1000:.0f}(ms)"
            remark = f"consumer <{group}> <{client_id}> Timeout: RemotingTimeoutException, {what}"
            raise Refused(ResponseCode.CONSUME_MSG_TIMEOUT, remark) from None
        except ConnectionResetError:
            what = f"send request to <{member.client.address}> failed"
            remark = f"invoke consumer <{group}> <{client_id}> Exception: RemotingSendRequestException, {what}"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark) from None
        return self.answered(request, answer.code, answer.remark, answer.ext_fields, bytes(answer.body))

    async def _status(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        group, topic, wanted = (shown(given(request, "group")), given(request, "topic"), given(request, "clientAddr"))
        online = self.online.group(group)
        if online is None:
            call = "org.apache.rocketmq.broker.client.ConsumerGroupInfo.getChannelInfoTable()"
            by = "org.apache.rocketmq.broker.client.ConsumerManager.getConsumerGroupInfo(String)"
            raise Thrown(f"{NULL_POINTER}: " + null_pointer(call, f'the return value of "{by}"'))
        if not online.members:
            remark = f"No Any Consumer online in the consumer group: [{group}]"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        fields = {"group": group, **({"topic": topic} if topic is not None else {})}
        asked = [one for one in online.members if not (wanted or "").strip() or one.client.client_id == wanted]
        tables = await asyncio.gather(*(self._status_of(member, fields) for member in asked))
        said = {one.client.client_id: table for one, table in zip(asked, tables, strict=True) if table is not None}
        return self.answered(request, body=admin_bodies.consumer_status(said))

    async def _status_of(self, member: Member, fields: Mapping[str, str]) -> Mapping[Place, int] | None:
        code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        asked = RemotingCommand(code, ext_fields=fields, version=self.version)
        try:
            answer = await self.context.links.ask(member.channel, asked, STATUS_SECONDS)
            if answer.code or not len(answer.body):
                return None
            return admin_bodies.offsets_of(answer.body, "messageQueueTable", f"the status of {member.client.client_id}")
        except (TimeoutError, ConnectionResetError, MalformedData):
            return None  # as RocketMQ, which logs it

    # 222

    async def _reset(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        topic, group = shown(given(request, "topic")), shown(given(request, "group"))
        if self.context.config.use_server_side_reset_offset:
            return await self._reset_here(request, topic, group)
        is_forced = (given(request, "isForce") or "").lower() == "true"
        timestamp_ms = whole_number(request, "timestamp") or 0
        config = self.metadata.topics.get(topic)
        if config is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}"
            raise Refused(self.rules.reset_topic_code, remark)
        queues = self.message_queues(topic, config["writeQueueNums"])
        offsets = [self.consumer_offset(group, topic, queue.queue_id) for queue in queues]
        if -1 in offsets:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
        at_time = await self.pool.run(lambda: [self._offset_at(queue, timestamp_ms) for queue in queues])
        table = {
            queue: there if is_forced or there < known else known
            for queue, known, there in zip(queues, offsets, at_time, strict=True)
        }
        online = self.online.group(group)
        if online is None or not online.members:
            about = f"Group: {group} Topic: {topic} Timestamp: {timestamp_ms}"
            remark = f"Consumer not online, so can not reset offset, {about}"
            raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        listed = request.language == "CPP"
        body = admin_bodies.reset_offsets_listed(table) if listed else admin_bodies.reset_offsets(table)
        fields = {"topic": topic, "group": group, "timestamp": str(timestamp_ms), "isForce": "false"}
        fields |= {"queueId": "-1"} if self.rules.resets_name_queues else {}
        push = RemotingCommand(
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            flag=ONEWAY_FLAG,
            ext_fields=fields,
            body=body,
            version=self.version,
        )
        for member in online.members:
            self.context.links.send(member.channel, push)
        return self.answered(request, body=admin_bodies.reset_offsets(table))

    def _offset_at(self, queue: Place, timestamp_ms: int) -> int:
        view = self.store.queues.view(queue.topic, queue.queue_id)
        return view.max_offset if timestamp_ms == TO_END else max(0, view.offset_at(timestamp_ms))

    async def _reset_here(self, request: RemotingCommand, topic: str, group: str) -> RemotingCommand:
        """Reset offsets of one queue or all, like resetOffsetInner of 5.x; the next pull there hears the new offset."""
        if self.context.is_slave:
            raise Refused(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
        config = self.metadata.topics.get(topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        if group not in self.metadata.groups:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        queue_id = whole_number(request, "queueId", INT32_MIN, INT32_MAX)
        queues = self.message_queues(topic, config["readQueueNums"])
        if queue_id is not None and queue_id >= 0:
            queues = [Place(topic, self.context.config.broker_name, queue_id)]
        if not queues:
            raise Refused(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        wanted, timestamp_ms = whole_number(request, "offset"), whole_number(request, "timestamp") or 0
        if queue_id is None or queue_id < 0 or wanted == NOT_SAID:
            wanted = None
        offsets = await self.pool.run(lambda: [self._offset_to(queue, timestamp_ms, wanted) for queue in queues])
        table = dict(zip(queues, offsets, strict=True))
        try:
            self.metadata.reset_offsets(group, topic, {queue.queue_id: at for queue, at in table.items() if at >= 0})
        except NoRoom as no_room:
            raise Refused(ResponseCode.SYSTEM_BUSY, str(no_room)) from None
        return self.answered(request, body=admin_bodies.reset_offsets(table))

    def _offset_to(self, queue: Place, timestamp_ms: int, wanted: int | None) -> int:
        view = self.store.queues.view(queue.topic, queue.queue_id)
        if wanted is None:
            return view.max_offset if timestamp_ms < 0 else view.offset_at(timestamp_ms)
        low, high = view.min_offset, view.max_offset
        if (low >= 0 and wanted < low) or wanted > high + 1:
            remark = f"Target offset {wanted} not in consume queue range [{low}-{high}]"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        return wanted
