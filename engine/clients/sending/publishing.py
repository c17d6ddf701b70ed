"""Decides to which queue a message is sent, whether a failed send is tried again, and what an answer means.

Implements: TopicPublishInfo, SelectMessageQueueByHash, DefaultMQProducerImpl.sendDefaultImpl (its decisions)
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine.clients.cluster import DEFAULT_QUEUES, Place
from engine.clients.sending.latency import LatencyTable
from engine.errors import EngineError, MessageIllegal
from engine.protocol.ha.put_status import STORED, PutMessageStatus
from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.sending.answers import CODES
from store.message.properties import java_hash

STATUSES: dict[int, PutMessageStatus] = {code: status for status, code in CODES.items() if status in STORED}
NO_BUYER_ID, NOT_IN_CURRENT_UNIT, GO_AWAY = 204, 205, 1500
TRIED_AGAIN = frozenset({
    ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST, NO_BUYER_ID, NOT_IN_CURRENT_UNIT, GO_AWAY,
})  # fmt: skip
ANY_QUEUE = -1  # the broker chooses
INT_MAX, INT_BITS, LONG_BITS = (1 << 31) - 1, 32, 64
OFFSET_DIGITS, NUMBER_DIGITS_MAX = 16, 19


class RemoteSendResult(NamedTuple):
    """Outcome of one message that a broker stored.

    `message_id` is the key that this producer gave the message (UNIQ_KEY, getMsgId of Java), `offset_message_id` the
    broker's id (getOffsetMsgId). `transaction_id` is None where the broker returns none.
    """

    status: PutMessageStatus
    message_id: str
    offset_message_id: str
    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None

    @property
    def physical_offset(self) -> int:
        """Return where the broker's log has the message, in bytes; -1 where the answer does not say it."""
        digits = self.offset_message_id.partition(",")[0][-OFFSET_DIGITS:]
        try:
            return int(digits, 16)
        except ValueError:
            return -1


def outcome_of(answer: RemotingCommand, message_id: str, place: Place) -> RemoteSendResult | None:
    """Return the outcome that an answer reports; None if the broker did not store the message."""
    status, fields = STATUSES.get(answer.code), answer.ext_fields or {}
    if status is None:
        return None
    return RemoteSendResult(
        status,
        message_id,
        fields.get("msgId") or "",
        place.topic,
        place.broker,
        _number(fields.get("queueId")),
        _number(fields.get("queueOffset")),
        fields.get("transactionId") or None,
    )


def _number(text: str | None) -> int:
    is_number = text is not None and text.isascii() and text.isdecimal() and len(text) <= NUMBER_DIGITS_MAX
    return int(text) if text is not None and is_number else -1


def queue_number(key: str | int, queues: int) -> int:
    """Return which of `queues` queues the messages of a key go to: the one that Java's hash code of the key gives."""
    if isinstance(key, str):
        value = java_hash(key)
    elif -INT_MAX - 1 <= key <= INT_MAX:
        value = key
    else:  # Long.hashCode
        bits = key & (1 << LONG_BITS) - 1
        value = (bits ^ bits >> INT_BITS) & (1 << INT_BITS) - 1
        value -= (value > INT_MAX) << INT_BITS
    return abs(value) % queues


class Turns:
    """The queues of a topic that take turns. `first` is the index of the queue that has the first turn."""

    def __init__(self, places: Sequence[Place], first: int) -> None:
        self.places = places
        self._next = first

    @property
    def position(self) -> int:
        """Return the index of the queue whose turn is next."""
        return self._next

    def next(self, avoided: Collection[str], table: LatencyTable, now_ms: int, queue_id: int | None = None) -> Place:
        """Return the queue whose turn it is, if possible on a broker that is neither avoided nor slow.

        Only queues with `queue_id` count, if it is given. Raises MessageIllegal if no queue has it.
        """
        chosen = next(self._fitting(avoided, table, now_ms, queue_id), None)
        if chosen is None:
            chosen = self._least_bad(avoided, table, queue_id)
        self._next = chosen + 1
        place = self.places[chosen]
        return place if queue_id is None else place._replace(queue_id=queue_id)

    def _fitting(
        self, avoided: Collection[str], table: LatencyTable, now_ms: int, queue_id: int | None
    ) -> Iterator[int]:
        """Yield the indexes of queues that can be taken, the one whose turn it is first."""
        for index in self._in_turn(queue_id):
            broker = self.places[index].broker
            if broker not in avoided and table.is_available(broker, now_ms):
                yield index

    def _in_turn(self, queue_id: int | None) -> Iterator[int]:
        count = len(self.places)
        for step in range(count):
            index = (self._next + step) % count
            if queue_id is None or self.places[index].queue_id in (queue_id, ANY_QUEUE):
                yield index

    def _least_bad(self, avoided: Collection[str], table: LatencyTable, queue_id: int | None) -> int:
        """Return the index of a queue although its broker failed or is slow. Raises MessageIllegal."""
        named = list(self._in_turn(queue_id))
        if not named:
            topic = self.places[0].topic
            raise MessageIllegal(f"queue id {queue_id}", f"no broker has that queue of topic {topic}")
        others = [index for index in named if self.places[index].broker not in avoided] or named
        soonest = table.soonest(self.places[index].broker for index in others)
        return next(index for index in others if self.places[index].broker == soonest)

    def of_key(self, key: str | int) -> Place:
        """Return the queue of all messages with this key."""
        queues = [
            place._replace(queue_id=number)
            for place in self.places
            for number in (range(DEFAULT_QUEUES) if place.queue_id == ANY_QUEUE else (place.queue_id,))
        ]
        return queues[queue_number(key, len(queues))]


class Attempts:
    """The tries of one send. `avoided` are the brokers that failed; `is_over` tells when to stop.

    `retries_unstored`: whether a stored message whose status is not PUT_OK is sent again, to another broker.
    """

    def __init__(self, tries: int, retries_unstored: bool) -> None:
        self.avoided: set[str] = set()
        self._left, self._retries_unstored = tries, retries_unstored
        self._stored: RemoteSendResult | None = None
        self._error: EngineError | None = None
        self._may_be_appended = False

    @property
    def is_over(self) -> bool:
        """Whether no further try is due."""
        return self._left <= 0

    def stored(self, outcome: RemoteSendResult) -> None:
        """Note that a broker stored the message."""
        self._stored = outcome
        self.avoided.add(outcome.broker)
        is_retried = self._retries_unstored and outcome.status is not PutMessageStatus.PUT_OK
        self._left = self._left - 1 if is_retried else 0

    def refused(self, broker: str, code: int, error: EngineError) -> None:
        """Note that a broker refused the message with this code."""
        self._error = error
        self.avoided.add(broker)
        self._left = self._left - 1 if code in TRIED_AGAIN else 0

    def unanswered(self, broker: str, error: EngineError, *, may_be_appended: bool) -> None:
        """Note that a broker gave no answer."""
        self._error = error
        self._may_be_appended |= may_be_appended
        self.avoided.add(broker)
        self._left -= 1

    def result(self) -> RemoteSendResult:
        """Return the outcome. Raises the last error if no broker stored the message."""
        if self._stored is not None:
            return self._stored
        assert self._error is not None, "a send has at least one try"
        self._error.may_be_appended = self._may_be_appended
        raise self._error


@dataclass(frozen=True)
class RemoteBatchResult:
    """Outcome of a batch, whose messages have consecutive offsets in one queue."""

    status: PutMessageStatus
    count: int
    topic: str
    broker: str
    queue_id: int
    queue_offsets: range
    message_ids: tuple[str, ...]
    offset_message_ids: tuple[str, ...]


def batch_result(outcome: RemoteSendResult, message_ids: Sequence[str]) -> RemoteBatchResult:
    """Return the outcome of a batch that was sent as one message."""
    first, count = outcome.queue_offset, len(message_ids)
    broker_ids = tuple(itertools.islice(filter(None, outcome.offset_message_id.split(",")), count))
    offsets = range(first, first + count)
    place = outcome.topic, outcome.broker, outcome.queue_id
    return RemoteBatchResult(outcome.status, count, *place, offsets, tuple(message_ids), broker_ids)
