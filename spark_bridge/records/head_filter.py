"""What a selection asks of records' heads and topics, as the compiled walk takes it. Each new topic is judged once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from ipc.arrays import Bytes, Words
from spark_bridge.options.ranges import NUMBER_MAX, UNLIMITED, Range
from spark_bridge.split.splits import Selection
from store.message.properties import java_text
from store.message.record import NOT_FOR_QUEUES
from store.message.topics import SYSTEM_PREFIX, SYSTEM_TOPICS, is_lmq
from store.message.walk_kernel import ALL_TAGS, LETTERS_BYTES, Asked, Tags, TopicColumn, Topics, Wanted, enter_topics

NOTHING = np.zeros(0, np.int64)
SYSTEM_BEGINNINGS = np.array(sorted({
    int.from_bytes(name.encode()[:LETTERS_BYTES], "big", signed=True) for name in (*SYSTEM_TOPICS, SYSTEM_PREFIX)
}))  # fmt: skip
TOPICS_MAX, NAMES_BYTES_MAX = 1 << 16, 1 << 24  # those that are known; with more the filter begins anew
NAMES_BYTES, TABLE_WORDS = 1 << 10, 1 << 4
ANY = Range()
TAGS_MAX, REPLACEMENT = 64, "\ufffd"  # a record's is compared with each
NUMBER_MIN, NO_QUEUE_ID = -NUMBER_MAX - 1, 1 << 32
Numbers = TypeVar("Numbers", Bytes, Words)


class HeadFilter:
    """Answers to what the compiled walk asks; `wanted` is what it is given, another one after each `learn`."""

    def __init__(
        self,
        admits: Callable[[str], bool] | None = None,
        beginnings: Words | None = None,
        without_flags: int = 0,
        queue_ids: Words = NOTHING,
        limits: Words = NOTHING,
        tags: Tags = ALL_TAGS,
    ) -> None:
        """Without `admits` topics are not looked at; with `beginnings` only those that begin with such four bytes."""
        self._admits = admits
        asked = Asked.NONE if admits is None else Asked.ALL if beginnings is None else Asked.BEGINNING_SO
        letters, places = NOTHING if beginnings is None else beginnings, np.zeros((1, len(TopicColumn)), np.int64)
        names, table = np.zeros(NAMES_BYTES, np.uint8), np.zeros(TABLE_WORDS, np.int64)
        topics = Topics(int(asked), letters, places, names, table)
        self.wanted = Wanted(without_flags, queue_ids, limits, topics, tags)
        self._count = self._used = 0

    def learn(self, name: bytes) -> None:
        """Judge a topic that the walk did not know."""
        assert self._admits is not None
        if self._count == TOPICS_MAX or self._used + len(name) > NAMES_BYTES_MAX:
            self._count = self._used = 0
        topics, number = self.wanted.topics, self._count
        names = _with_room(topics.names, self._used + len(name))
        names[self._used : self._used + len(name)] = np.frombuffer(name, np.uint8)
        places = _with_room(topics.places, number + 1)
        places[number] = self._used, len(name), self._admits(java_text(name))
        self._count, self._used = number + 1, self._used + len(name)
        is_crowded = number == 0 or 2 * self._count > len(topics.table)
        table = np.zeros(max(TABLE_WORDS, 4 << number.bit_length()), np.int64) if is_crowded else topics.table
        topics = topics._replace(places=places, names=names, table=table)
        enter_topics(topics, 0 if is_crowded else number, self._count)
        self.wanted = self.wanted._replace(topics=topics)


def _with_room(array: Numbers, length: int) -> Numbers:
    """The array, or a longer copy of it."""
    if length <= len(array):
        return array
    longer = np.zeros((2 * length, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


def filter_of(selection: Selection, body_bytes: Range = ANY) -> HeadFilter:
    """The filter of a selection, and of lengths of bodies, which never admits what a transaction has not committed.

    The selection's pairs of topic and queue are asked about later; and where it names a multi-dispatch queue all topics
    are, since that queue holds messages of others.
    """
    queue_ids, limits = NOTHING, NOTHING
    if selection.queue_ids is not None:
        queue_ids = np.array(sorted(selection.queue_ids) or [NO_QUEUE_ID], np.int64)
    if selection.ranges != UNLIMITED or body_bytes != ANY:
        limits = np.array([_limits(one) for one in (*selection.ranges, body_bytes)], np.int64).ravel()
    admits: Callable[[str], bool] | None = None
    beginnings = None
    if not any(map(is_lmq, selection.topics or ())):
        is_any = selection.topics is None and selection.topic_pattern is None and selection.queues is None
        admits = None if is_any and not selection.hides_system else selection.admits
        beginnings = SYSTEM_BEGINNINGS if is_any else None
    return HeadFilter(admits, beginnings, NOT_FOR_QUEUES, queue_ids, limits, _tags_of(selection))


def left_of(selection: Selection) -> Selection:
    """The selection without what its filter has asked of all records but inner batches."""
    tags = selection.tags if _tags_of(selection) is ALL_TAGS else None
    return replace(selection, ranges=UNLIMITED, tags=tags)


def _tags_of(selection: Selection) -> Tags:
    """The tags as bytes; all, where they are very many or other bytes are read as one of them."""
    texts = selection.tags
    if texts is None or len(texts) > TAGS_MAX or any(REPLACEMENT in text for text in texts):
        return ALL_TAGS
    names = [text.encode("utf-8", "surrogatepass") for text in sorted(texts)]
    return Tags(np.frombuffer(b"".join(names) or b"-", np.uint8), np.cumsum([0, *map(len, names)]))


def _limits(one: Range) -> tuple[int, int]:
    """The first and the last value of a range; none is between the two of one that no number is in."""
    first = NUMBER_MIN if one.first is None else max(one.first, NUMBER_MIN)
    last = NUMBER_MAX if one.end is None else min(one.end - 1, NUMBER_MAX)
    return (first, last) if first <= last else (NUMBER_MAX, NUMBER_MIN)


EVERY_RECORD = HeadFilter()
