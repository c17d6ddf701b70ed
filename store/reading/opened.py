"""A store opened for reading in a program, with a broker or without: `from slipstream import open_store`. Never writes.

Each call looks anew how far the log goes by then. Messages are what a consumer would get: bodies as they were before
their senders compressed them, the messages of an inner batch one by one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path

from store.errors import StoreError
from store.files.directory import StoreDirectory
from store.message.compression import body_of
from store.message.inner_batch import messages_in
from store.message.record import Message
from store.names import TOPICS
from store.reading.extent import running
from store.reading.log_reader import open_log
from store.reading.search import finder_on
from store.reading.summary import TopicSummary, by_topic, messages
from store.tables import json_files
from store.tables.tables import TOPIC_TABLE

TOPICS_NOTED_MAX = 100_000  # names of other topics that are kept while one is looked for


@dataclass(frozen=True)
class ReadMessage(Message):
    """A message whose body is bytes of its own, ready to be used."""

    body: bytes


class NoSuchTopic(StoreError):
    """Raised for a topic of which the store has no messages, queues or configuration.

    Next: `slipstream log stat STORE` lists the topics.
    """

    code = "NO_SUCH_TOPIC"

    def __init__(self, root: str, topic: str, known: Iterable[str]) -> None:
        near = get_close_matches(topic, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        super().__init__(f"{root}: no topic {topic!r}; {hint}`slipstream log stat {root}` lists the topics")
        self.topic = topic


_FIELDS = tuple(field.name for field in fields(Message))


class OpenStore:
    """An opened store, of `open_store`. Any of its calls raises a StoreError whose text says what to do."""

    def __init__(self, store: str | os.PathLike[str]) -> None:
        self.path = Path(store)
        open_log(self.path)  # what is wrong is raised now

    @property
    def is_live(self) -> bool:
        """Whether a broker runs on it."""
        return running(self.path) is not None

    def offsets(self) -> tuple[int, int]:
        """Return where the log begins and where it ends now, in bytes."""
        reader = open_log(self.path)
        return reader.min_offset, reader.max_offset

    def topics(self) -> dict[str, TopicSummary]:
        """Return what the log holds of each topic; reads all of it. Raises CorruptRecord."""
        return by_topic(open_log(self.path))

    def messages(self, topic: str | None = None, start: int | None = None) -> Iterator[ReadMessage]:
        """The messages up to the log's end of now, in its order, of one topic or of all.

        From the first record at or behind `start`, a log offset; go on at `physical_offset` + `size` of the last one.
        A compressed body of more than 128 MiB is MalformedData. Raises OffsetOutOfRange, CorruptRecord, MalformedData;
        NoSuchTopic, at the end, for a topic that the store does not know.
        """
        reader = open_log(self.path)
        first = None if start is None else reader.boundary_at(start)
        others: set[str] = set()
        topic_is_known = False
        for record in messages(reader, first):
            if topic in (None, record.topic):
                topic_is_known = True
                yield from map(_read, messages_in(record))
            elif len(others) < TOPICS_NOTED_MAX:
                others.add(record.topic)
        if topic is not None and not topic_is_known:
            self._require_topic(topic, others)

    def _require_topic(self, topic: str, others: set[str]) -> None:
        directory = StoreDirectory(self.path)
        queues = (path.name for kind in directory.queue_directories() if kind.is_dir() for path in kind.iterdir())
        configured = json_files.read(directory.config / TOPICS).get(TOPIC_TABLE) or {}
        known = {*others, *queues, *configured}
        if topic not in known:
            raise NoSuchTopic(str(self.path), topic, known)

    def at(self, physical_offset: int) -> ReadMessage | None:
        """The message whose record begins there; None when none does, or an inner batch."""
        record = finder_on(self.path, open_log(self.path)).at(physical_offset)
        inside = [] if record is None else [*messages_in(record)]
        return _read(inside[0]) if len(inside) == 1 else None

    def find(self, key: str, topic: str | None = None, limit: int = 32) -> list[ReadMessage]:
        """The newest messages that carry this key, or unique key, in the log's order; through the index."""
        result = finder_on(self.path, open_log(self.path)).by_key(key, topic, limit)
        return [_read(message) for record in result.messages for message in messages_in(record)]


def _read(message: Message) -> ReadMessage:
    values = {name: getattr(message, name) for name in _FIELDS}
    return ReadMessage(**{**values, "body": bytes(body_of(message.body, message.sys_flag))})


def open_store(store: str | os.PathLike[str]) -> OpenStore:
    """Open a store's root for reading. Raises NotAStore, SegmentSizeMismatch, MissingSegment, CorruptRecord."""
    return OpenStore(store)
