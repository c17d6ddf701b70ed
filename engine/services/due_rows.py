"""Entries of a delay level as rows that the compiled delivery takes, and the queues that their messages go to.

Implements: ScheduleMessageService.messageTimeup's reading
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from engine.producer.queue_slots import Queue
from engine.services import deliver_kernel
from engine.services.deliver_kernel import COLUMNS, Row
from engine.services.queue_entries import QueueEntries
from engine.services.records import Records
from ipc.arrays import Words
from store.files.segment import Segment
from store.message.record import MAX_TOPIC_BYTES_V2
from store.message.topics import HALF_TOPIC, TOPIC_PATTERN
from store.put.policy import Facts


class DueRows(NamedTuple):
    """Neighbouring entries whose records lie in one segment."""

    segment: Segment
    rows: Words

    def queues(self, first: int = 0) -> Iterator[Queue | None]:
        """Yield where the messages of the rows from `first` on go; None for one that leaves the fast path."""
        columns = [Row.IS_FAST, Row.TOPIC_AT, Row.TOPIC_BYTES, Row.QUEUE_ID]
        for is_fast, topic_at, topic_bytes, queue_id in self.rows[first:, columns].tolist():
            topic = str(self.segment.view[topic_at : topic_at + topic_bytes], "ascii") if is_fast else ""
            yield (topic, queue_id) if is_fast else None


def due_rows(
    records: Records, facts: Facts, entries: QueueEntries, first: int, until: int, queue_offset: int
) -> DueRows | None:
    """The entries from `first` on, whose queue offset is given, examined; None where its part of the log is gone."""
    places = entries.physical_offsets[first:until]
    base = records.base_of(int(places[0]))
    segment = records.segment(base) if places[0] >= 0 else None
    if segment is None:
        return None
    beyond = np.flatnonzero((places < base) | (places >= base + segment.size_bytes))
    count = int(beyond[0]) if len(beyond) else len(places)
    rows = np.zeros((count, COLUMNS), np.int64)
    rows[:, Row.POSITION], rows[:, Row.SIZE] = places[:count] - base, entries.sizes[first : first + count]
    rows[:, Row.QUEUE_OFFSET] = np.arange(queue_offset, queue_offset + count)
    if not facts.appends_crc:
        policy = facts.policy
        deliver_kernel.examine(
            segment.array,
            rows.reshape(-1),
            count,
            policy.map_capacity,
            policy.trailing_separator,
            facts.message_bytes_max,
        )
    return DueRows(segment, rows)


def is_refused(topic: str) -> bool:
    """Whether nothing delayed goes to that topic: half messages are not delayed, and other names have no queue."""
    return topic == HALF_TOPIC or not TOPIC_PATTERN.fullmatch(topic) or len(topic) > MAX_TOPIC_BYTES_V2
