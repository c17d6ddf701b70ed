"""Replies to request messages (324, 325): pushed to who asked, and kept as messages.

Implements: ReplyMessageProcessor (spec: remoting, 7)
"""

from __future__ import annotations

import base64
from dataclasses import replace

from engine.front.sends.puts import PutOutcome
from engine.front.sends.send_desk import Json, SendDesk, Task, Then
from engine.front.sends.topic_checks import TopicChecks
from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.sending import answers, reply
from engine.protocol.sending.checks import check_whole
from engine.protocol.sending.headers import SendHeader, send_header
from engine.protocol.sending.reply import PushResult
from ipc.clock import wall_ms
from store.errors import InvalidMessage, PropertiesTooLarge
from store.message.properties import PUSH_REPLY_TIME, REPLY_TO_CLIENT
from store.put.draft import draft_of
from store.put.policy import parse_properties, property_text
from store.put.request import Stored, reserved_removed, to_log

CALL_LIMIT_MS = 12_000  # Broker2Client.callClient waits for ten seconds


class Replies:
    """Replies that one front receives."""

    def __init__(self, desk: SendDesk, topics: TopicChecks) -> None:
        self._desk, self._topics = desk, topics

    def begin(self, task: Task) -> None:
        """A request. Raises Refused, Thrown."""
        header = send_header(task.request)
        check_whole(self._desk.broker, header, len(task.request.body))
        with self._desk.guarded(task, self._desk.common):
            self._topics.check(task, header, lambda checked, _topic: self._push(task, header, checked.queue_id))

    def _push(self, task: Task, header: SendHeader, queue_id: int) -> None:
        desk, facts = self._desk, self._desk.facts.now()
        properties = reserved_removed(header.properties, facts)
        fields = parse_properties(facts.policy, properties)
        client_id = fields.get(REPLY_TO_CLIENT)
        stored = Stored(
            topic=str(header.topic),
            queue_id=queue_id,
            body=bytes(task.request.body),
            properties=properties,
            fields=fields.copy(),
            flag=header.flag,
            born_timestamp_ms=header.born_timestamp_ms,
            born_host=task.peer.address,
            store_host=facts.store_host,
            reconsume_times=header.reconsume_times,
        )
        if client_id is None:
            self._pushed(task, stored, reply.NOT_TOLD_WHOM)
            return
        task.question_limit_ms = CALL_LIMIT_MS
        name = f"{task.peer.number} {task.request.opaque} {task.began_ns}"

        def answered(answer: Json) -> None:
            is_taken = answer.get("code") == ResponseCode.SUCCESS
            self._pushed(task, stored, reply.PUSHED if is_taken else reply.push_failed(client_id))

        def known(answer: Json) -> None:
            if answer.get("channel") is None:
                self._pushed(task, stored, reply.requester_missing(client_id))
                return
            fields.put(PUSH_REPLY_TIME, str(wall_ms()))
            born, own = (f"{host.ip}:{host.port}" for host in (task.peer.address, facts.store_host))
            call = reply.push(header, property_text(facts.policy, fields), born, own, wall_ms())
            call |= {"channel": answer["channel"], "body": base64.b64encode(stored.body).decode()}
            desk.ask(task, "call", name, call, answered)

        desk.ask(task, "find_client", name, {"clientId": client_id}, known)

    def _pushed(self, task: Task, stored: Stored, pushed: PushResult) -> None:
        """Keep it, whether somebody took it or not; the answer tells of the push."""
        desk, facts = self._desk, self._desk.facts.now()
        if not desk.config.store_reply_message_enable:
            self._say(task, stored, pushed, None)
            return
        try:
            draft = draft_of(to_log(replace(stored, fields=stored.fields.copy()), facts), facts)
        except (PropertiesTooLarge, InvalidMessage):
            self._say(task, stored, pushed, None)
            return
        desk.put(
            task,
            draft,
            waits=stored.waits,
            queue_id=stored.queue_id,
            limit_ms=desk.config.wait_in_send_queue_ms,
            then=Then(lambda outcome: self._say(task, stored, pushed, outcome)),
        )

    def _say(self, task: Task, stored: Stored, pushed: PushResult, outcome: PutOutcome | None) -> None:
        fields, capacity = self._desk.common, self._desk.fields_capacity(task.request)
        if outcome is not None and outcome.status.is_stored:
            fields = answers.stored_fields(
                fields, outcome.message_id, stored.queue_id, outcome.queue_offset, capacity=capacity
            )
        elif pushed is reply.PUSHED:
            fields = answers.stored_fields(fields, "0", stored.queue_id, 0, capacity=capacity)
        self._desk.say(task, pushed.code, pushed.remark, fields)
