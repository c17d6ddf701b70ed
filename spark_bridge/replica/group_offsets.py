"""A consumer group at one broker, as a stream speaks of it: is it free to be committed to, how far is it, commit.

Implements: the client's side of UPDATE_CONSUMER_OFFSET, QUERY_CONSUMER_OFFSET, GET_MAX_OFFSET,
GET_CONSUMER_LIST_BY_GROUP, and of HEART_BEAT and UNREGISTER_CLIENT for a group that is new (spec: remoting, 5 to 7)
A stream is no member of the group: nobody would be given its queues, and it takes none from anybody.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from spark_bridge.replica.remoting import Conversation, Question, properties, refusal
from store.errors import MalformedData
from store.tables import fastjson

MASTER_ID, SLAVE = "0", "SLAVE"
MEMBERS_TOLD_MAX = 3

QueueName = tuple[str, int]  # topic, queue id


class CommitRefused(ValueError):
    """Raised when a stream's offsets cannot be committed to a consumer group; the stream continues.

    Next: do what the error says: use another group, or give the master's address as `commitBroker`.
    """

    code = "COMMIT_REFUSED"


class Place(NamedTuple):
    """The offset of a group in a queue (None: nobody said), and where that ends."""

    committed: int | None
    end: int


def require_master(broker: Conversation, broker_name: str) -> None:
    """Raise CommitRefused unless that is the master of the broker whose store is read."""
    said = properties(broker.need(Question(RequestCode.GET_BROKER_CONFIG)).body)
    name = said.get("brokerName", "")
    if name != broker_name:
        raise CommitRefused(f"{broker.address} is broker {name!r}, the store is of {broker_name!r}; give commitBroker")
    if said.get("brokerId", MASTER_ID) != MASTER_ID or said.get("brokerRole") == SLAVE:
        what = f"{broker.address} is a slave, whose offsets its master overwrites"
        raise CommitRefused(f"{what}; give the master's address as commitBroker")


def require_free(broker: Conversation, group: str) -> None:
    """Raise CommitRefused while consumers are in the group: they commit there, and would go on from our offsets."""
    answer = broker.ask(Question(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}))
    if answer.code != ResponseCode.SUCCESS:  # SYSTEM_ERROR where nobody is
        return
    try:
        members = fastjson.loads(answer.body, f"members of {group}").get("consumerIdList") or []
    except (MalformedData, AttributeError) as error:
        raise ValueError(f"{broker.address}: {error}") from error
    if members:
        named = ", ".join(map(str, members[:MEMBERS_TOLD_MAX]))
        what = f"{broker.address}: consumers are in group {group!r} ({named}): they would use a stream's offsets"
        raise CommitRefused(f"{what}; give the stream its own group")


def introduce(broker: Conversation, group: str) -> None:
    """Have the broker make the group and its retry topic, where it makes groups for consumers that come.

    A hello and a goodbye in one breath: mqadmin and 5.x know no group that no consumer ever was in.
    """
    client_id = f"{socket.gethostname()}@{os.getpid()}#slipstream"
    consumer = {
        "groupName": group, "consumeType": "CONSUME_ACTIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [], "unitMode": False,
    }  # fmt: skip
    said = {"clientID": client_id, "producerDataSet": [], "consumerDataSet": [consumer]}
    broker.ask_all(
        [
            Question(RequestCode.HEART_BEAT, body=json.dumps(said).encode()),
            Question(RequestCode.UNREGISTER_CLIENT, {"clientID": client_id, "consumerGroup": group}),
        ]
    )


def places(broker: Conversation, group: str, queues: Iterable[QueueName]) -> dict[QueueName, Place]:
    """Return how far the group is in these queues; those that the broker does not know are left out."""
    asked = list(queues)
    questions = []
    for topic, queue_id in asked:
        queue = {"topic": topic, "queueId": str(queue_id)}
        of_group = {"consumerGroup": group, "setZeroIfNotFound": "false", **queue}
        questions.append(Question(RequestCode.QUERY_CONSUMER_OFFSET, of_group))
        questions.append(Question(RequestCode.GET_MAX_OFFSET, queue))
    answers = broker.ask_all(questions)
    known: dict[QueueName, Place] = {}
    for name, committed, end in zip(asked, answers[::2], answers[1::2], strict=True):
        last = _offset_of(broker.address, end)
        if last is not None:
            known[name] = Place(_offset_of(broker.address, committed), last)
    return known


def commit(broker: Conversation, group: str, offsets: Mapping[QueueName, int]) -> dict[QueueName, str]:
    """Set the group's offsets; those that the broker refused, with its reason.

    One queue of each topic first: RocketMQ looks whether it has something of a group's topic, and makes it, in two
    steps, and of first commits that come together one may be gone again.
    """
    first: dict[str, QueueName] = {}
    for queue in offsets:
        first.setdefault(queue[0], queue)
    refused: dict[QueueName, str] = {}
    for queues in (list(first.values()), [queue for queue in offsets if queue != first[queue[0]]]):
        questions = [
            Question(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                {"consumerGroup": group, "topic": topic, "queueId": str(queue_id),
                 "commitOffset": str(offsets[topic, queue_id])},
            )
            for topic, queue_id in queues
        ]  # fmt: skip
        answers = zip(queues, broker.ask_all(questions), strict=True)
        refused |= {
            queue: refusal(broker.address, answer) for queue, answer in answers if answer.code != ResponseCode.SUCCESS
        }
    return refused


def _offset_of(address: str, answer: RemotingCommand) -> int | None:
    """The offset that an answer gives; None for one that gives none. Raises ValueError."""
    if answer.code != ResponseCode.SUCCESS:
        return None
    text = (answer.ext_fields or {}).get("offset", "")
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{address} answers with an offset {text[:40]!r}") from None
