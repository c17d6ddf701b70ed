"""Drives an unmodified RocketMQ broker with the list, so that the order of the list is the order of its log.

One connection and one sending thread of the broker keep the order; requests that other threads of the broker serve
(END_TRANSACTION) wait until everything before them is answered, and for what they make it write.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from store.names import TOPICS
from tests.differential.operations import GROUP, SEND_MESSAGE, EndTransaction, Operation, Put, SendBack, Topic
from tests.differential.remoting import Answer, Client
from tests.differential.settings import Hosts, Outcome, real_settings
from tests.harness.conditions import await_that
from tests.interop.rocketmq import RocketMQBroker, is_five
from tools.common.local_broker import free_port

UPDATE_AND_CREATE_TOPIC, CONSUMER_SEND_MSG_BACK, END_TRANSACTION = 17, 36, 37
GET_MAX_OFFSET, GET_BROKER_RUNTIME_INFO = 30, 28
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
WAIT_SECONDS = 60.0

# The long spelling of a SEND_MESSAGE header's fields, and the short one of V2.
SEND_FIELDS = {
    "producerGroup": "a", "topic": "b", "defaultTopic": "c", "defaultTopicQueueNums": "d", "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g", "flag": "h", "properties": "i", "reconsumeTimes": "j", "unitMode": "k", "batch": "m",
}  # fmt: skip


class RealSide:
    """The driver of one run."""

    def __init__(self, broker: RocketMQBroker, hosts: Hosts, *, five: bool) -> None:
        self._hosts, self._five = hosts, five
        self._clients: dict[bool, Client] = {}
        self._current = False
        self._ended = 0
        self.outcomes: dict[int, Outcome] = {}
        self._puts: dict[int, Operation] = {}
        self._broker = broker

    def _client(self, ipv6: bool) -> Client:
        """The connection of an address family; the other's requests are answered before it is used."""
        if ipv6 != self._current and self._current in self._clients:
            self._barrier()
        self._current = ipv6
        if ipv6 not in self._clients:
            self._clients[ipv6] = Client(
                "::1" if ipv6 else "127.0.0.1", self._hosts.listen_port, self._hosts.client_port
            )
        return self._clients[ipv6]

    def _barrier(self) -> None:
        """Everything so far is in the log: the sending thread is one, and answers in order what is no oneway."""
        client = self._clients[self._current]
        client.ask(SEND_MESSAGE, {"producerGroup": GROUP})  # a header without a topic is refused by that very thread
        client.drain()

    def make_topics(self, topics: Iterable[Topic]) -> None:
        """UPDATE_AND_CREATE_TOPIC."""
        for topic in topics:
            fields = {
                "topic": topic.name,
                "defaultTopic": "TBW102",
                "readQueueNums": topic.queues,
                "perm": 6,
                "writeQueueNums": topic.queues,
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0,
                "order": False,
                "attributes": "+queue.type=BatchCQ" if topic.batch_queue else None,
            }
            answer = self._client(False).ask(UPDATE_AND_CREATE_TOPIC, fields)
            if answer.code:
                raise RuntimeError(f"topic {topic.name}: {answer}")

    def run(self, operations: Iterable[Operation]) -> dict[int, Outcome]:
        """Give it all operations; what became of each, by its number."""
        for number, operation in enumerate(operations):
            self._puts[number] = operation
            match operation:
                case Put():
                    self._put(number, operation)
                case SendBack():
                    self._send_back(number, operation)
                case EndTransaction():
                    self._end(number, operation)
        self._barrier()
        for number, operation in self._puts.items():
            self.outcomes[number] = self._outcome(number, operation)
        self._await_dispatch()
        return self.outcomes

    def _put(self, number: int, put: Put) -> None:
        fields = {
            "producerGroup": GROUP, "topic": put.topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
            "queueId": put.queue_id, "sysFlag": put.sys_flag, "bornTimestamp": put.born_timestamp_ms, "flag": put.flag,
            "properties": put.properties, "reconsumeTimes": put.reconsume_times, "unitMode": False, "batch": put.batch,
        }  # fmt: skip
        if put.code != SEND_MESSAGE:
            fields = {SEND_FIELDS[name]: value for name, value in fields.items()}
        self._client(put.ipv6).send(number, put.code, fields, put.body, oneway=put.oneway)

    def _answer(self, number: int) -> Answer:
        for client in self._clients.values():
            with contextlib.suppress(KeyError):
                return client.wait_for(number)
        raise KeyError(number)

    def _outcome(self, number: int, operation: Operation) -> Outcome:
        if isinstance(operation, Put) and operation.oneway:
            return Outcome(None)
        if number in self.outcomes:
            return self.outcomes[number]
        answer = self._answer(number)
        if answer.code or "msgId" not in answer.fields:
            return Outcome(answer.code == 0, said=f"code {answer.code}: {answer.remark[:200]}")
        offsets = [int(text[-16:], 16) for text in answer.fields["msgId"].split(",")]
        return Outcome(True, offsets, int(answer.fields["queueId"]), int(answer.fields["queueOffset"]))

    def _where(self, number: int) -> Outcome:
        return self._outcome(number, self._puts[number])

    def _send_back(self, number: int, back: SendBack) -> None:
        origin = self._where(back.origin)
        fields = {
            "offset": origin.physical_offsets[0] if origin.stored else 2**40,
            "group": back.group,
            "delayLevel": back.delay_level,
            "originMsgId": "",
            "originTopic": "",
            "unitMode": False,
            "maxReconsumeTimes": back.max_reconsume_times,
        }
        self._client(self._current).send(number, CONSUMER_SEND_MSG_BACK, fields)

    def _end(self, number: int, end: EndTransaction) -> None:
        half = self._where(end.half)
        if not half.stored:
            self.outcomes[number] = Outcome(False, said="its half message was refused")
            return
        self._barrier()
        client = self._client(self._current)
        fields = {
            "producerGroup": GROUP, "tranStateTableOffset": half.queue_offset,
            "commitLogOffset": half.physical_offsets[0],
            "commitOrRollback": end.decision, "fromTransactionCheck": False, "msgId": "", "transactionId": "",
        }  # fmt: skip
        client.send(number, END_TRANSACTION, fields)
        answer = client.wait_for(number)
        if answer.code:
            raise RuntimeError(f"operation {number}: END_TRANSACTION: {answer}")
        self._ended += 1
        if self._five:
            self._await_op_message(client)

    def _await_op_message(self, client: Client) -> None:
        """5.x writes it in a thread of its own: by its settings at once, for each half message one."""
        deadline = time.monotonic() + WAIT_SECONDS
        while int(client.ask(GET_MAX_OFFSET, {"topic": OP_TOPIC, "queueId": 0}).fields["offset"]) < self._ended:
            if time.monotonic() > deadline or self._broker.ended_within(0.001):
                raise RuntimeError(f"the {self._ended}th op message did not come")

    def _await_dispatch(self) -> None:
        """Until queues and index hold everything that is in the log."""
        deadline = time.monotonic() + WAIT_SECONDS
        client = self._client(self._current)
        while True:
            answer = client.ask(GET_BROKER_RUNTIME_INFO, {})  # 4.9 fails now and then to collect its own figures
            behind = answer.remark if answer.code else json.loads(answer.body)["table"]["dispatchBehindBytes"]
            if answer.code == 0 and int(behind) <= 0:
                return
            if time.monotonic() > deadline or self._broker.ended_within(0.05):
                raise RuntimeError(f"dispatch is behind: {behind}")

    def close(self) -> None:
        """Hang up."""
        for client in self._clients.values():
            client.close()


def new_broker(home: Path, version: str, *, features: bool, hosts: Hosts) -> RocketMQBroker:
    """A broker that is not started yet."""
    settings = real_settings(five=is_five(version), features=features)
    ours = {"brokerIP1": hosts.broker_ip, "brokerIP2": hosts.broker_ip, "listenPort": hosts.listen_port}
    return RocketMQBroker(home, version, **(settings | ours))


def run(
    broker: RocketMQBroker, version: str, operations: Iterable[Operation], topics: Iterable[Topic], hosts: Hosts
) -> dict[int, Outcome]:
    """Give a running broker everything, then tell it to stop: that takes it ten seconds of waiting.

    What it wrote of its configuration until then is in `home / "config"`.
    """
    side = RealSide(broker, hosts, five=is_five(version))
    try:
        side.make_topics(topics)
        outcomes = side.run(operations)
    finally:
        side.close()
    await_that(lambda: _is_copied(broker.store / "config", broker.home / "config"), "its configuration is whole")
    broker.begin_to_stop()
    return outcomes


def _is_copied(config: Path, to: Path) -> bool:
    """Copy it; False in the moment in which RocketMQ has deleted a file and not put the new one in its place yet."""
    try:
        shutil.copytree(config, to, dirs_exist_ok=True)
    except shutil.Error:
        return False
    return (to / TOPICS).exists()


def new_hosts(*, features: bool) -> Hosts:
    """Ports that nobody else is given, the client's neither: it binds it when the broker is up."""
    return Hosts(free_port(), free_port(), "::1" if features else "127.0.0.1")
