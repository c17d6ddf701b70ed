"""A message that a consumer hands to its program, and what the program says of it: done, or once more."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

from engine.clients.consuming.back_off import BROKER_DECIDES, sent_to
from engine.clients.consuming.shelf import Handed
from store.message.compression import body_of
from store.message.properties import RETRY_TOPIC, UNIQ_KEY
from store.message.record import SysFlag


class Source(Protocol):
    """Who handed a message out: it learns what becomes of it."""

    group: str

    def finish(self, message: ReceivedMessage) -> None:
        """The program is done with the message."""

    def give_back(self, message: ReceivedMessage, delay_level: int) -> None:
        """It is to be delivered again."""


COMPRESSED = int(SysFlag.COMPRESSED)


class ReceivedMessage:
    """One message. Its body is as its sender gave it: inflated when it is first asked for (MalformedData)."""

    __slots__ = ("_body", "_source", "handed", "is_done")

    def __init__(self, handed: Handed, source: Source) -> None:
        self.handed, self._source = handed, source
        self._body: bytes | None = None
        self.is_done = False

    @property
    def body(self) -> bytes:
        """Return the body. Raises MalformedData where it cannot be inflated."""
        if self._body is None:
            message = self.handed.message
            is_plain = not message.sys_flag & COMPRESSED
            self._body = bytes(message.body if is_plain else body_of(message.body, message.sys_flag))
        return self._body

    @property
    def view(self) -> memoryview:
        """The body without a copy of it, where it is not compressed. Raises MalformedData where it cannot be inflated.

        From a store on this host it is a view into the log's mapped segment. It is valid as long as you hold it: it
        keeps the segment mapped, also one that the broker has deleted, whose room on disk is free only afterwards.
        """
        message = self.handed.message
        return memoryview(self.body if message.sys_flag & COMPRESSED else message.body)

    @property
    def text(self) -> str:
        """The body as UTF-8. Raises UnicodeDecodeError."""
        return self.body.decode()

    @property
    def topic(self) -> str:
        """The topic that it was sent to, also when it is delivered again through the group's retry topic."""
        return sent_to(self.handed.message.topic, self.properties.get(RETRY_TOPIC))

    @property
    def properties(self) -> dict[str, str]:
        """Return the properties by name, tags and keys among them."""
        return self.handed.message.properties

    @property
    def tags(self) -> str | None:
        """Return the tags; None without any."""
        return self.handed.message.tags

    @property
    def keys(self) -> list[str]:
        """Return the keys, as their sender gave them."""
        return (self.handed.message.keys or "").split()

    @property
    def message_id(self) -> str:
        """The id that its sender gave it, else that of its place in the log (`offset_message_id`)."""
        return self.properties.get(UNIQ_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The id of its place in the log: RocketMQ's offsetMsgId."""
        return self.handed.message.message_id

    @property
    def group(self) -> str:
        """Return the group that it was delivered to."""
        return self._source.group

    @property
    def broker(self) -> str:
        """Return the name of the broker that it came from."""
        return self.handed.queue.place.broker

    @property
    def queue_id(self) -> int:
        """Return the number of the queue that it lies in."""
        return self.handed.message.queue_id

    @property
    def queue_offset(self) -> int:
        """Its offset in the queue."""
        return self.handed.message.queue_offset

    @property
    def reconsume_times(self) -> int:
        """How often it was delivered before."""
        return self.handed.message.reconsume_times

    @property
    def born(self) -> datetime:
        """Return when it was sent, by its sender's clock."""
        return datetime.fromtimestamp(self.handed.message.born_timestamp_ms / 1000, UTC)

    @property
    def stored(self) -> datetime:
        """Return when the broker stored it, by the broker's clock."""
        return datetime.fromtimestamp(self.handed.message.store_timestamp_ms / 1000, UTC)

    def ack(self) -> None:
        """Say that it is done: the group does not get it again. Nothing for one that is done already."""
        self._source.finish(self)

    def retry(self, delay_level: int = BROKER_DECIDES) -> None:
        """Have it delivered again to the group, after RocketMQ's growing delays or at a delay level (1 to 18).

        What was delivered again as often as the consumer's `max_times` goes to the group's dead letters; level -1 sends
        it there at once. A consumer in order gets it again itself after a second, before those behind it, and so does
        one whose broker does not take the message back. Nothing for a message that is done already.
        """
        self._source.give_back(self, delay_level)

    def __repr__(self) -> str:
        place = f"{self.topic}/{self.queue_id}#{self.queue_offset}"
        return f"<ReceivedMessage {place} of {self.broker}, {len(self.handed.message.body)} bytes>"
