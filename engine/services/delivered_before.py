"""Finds how far a delay level was delivered where no file says so: by the delivered messages that the index names.

Implements: nothing of RocketMQ's, whose level begins again at its queue's oldest message
A level is delivered in its queue's order, so a search by halves finds where that ends. A message counts as delivered
where the log holds, behind it, one of its real topic with its UNIQ_KEY. One that cannot tell (it has no UNIQ_KEY, or is
damaged) is passed over for its neighbours. A few could be put out of order while the broker refused some: the first
that was not delivered of the UNDER_WAY before that end counts. A level of which nothing is known begins at its oldest.
"""

from __future__ import annotations

import logging
from pathlib import Path

from engine.protocol.services.delay import Level
from engine.services.queue_entries import FollowedQueue
from engine.services.records import Records
from engine.settings.config import BrokerConfig
from engine.shared_memory.cursors import BrokerCounters
from store.errors import StoreError
from store.files.directory import StoreDirectory
from store.files.segment_files import SegmentFiles
from store.index.index_file import Geometry
from store.message import properties
from store.message.record import decode
from store.names import DELAY_OFFSETS
from store.reading.index_search import IndexSearch, LogRecords
from store.reading.queue_view import LogLimits
from store.tables import mending
from store.tables import tables as broker_tables

log = logging.getLogger("slipstream")

NEIGHBOURS, UNDER_WAY = 8, 512
ANSWERS_MAX, ANSWERS_BYTES = 64, 64 << 20
END_OF_TIME_MS = 2**63 - 1


def said_offsets(folder: Path) -> dict[int, int]:
    """Return each level's offset as the table in `folder` has it. Raises MalformedConfig where a damaged file cannot be
    replaced."""
    path = folder / DELAY_OFFSETS
    return broker_tables.delay_offsets(mending.checked(path).value, str(path))


class DeliveredBefore:
    """Search in one store; `records` are its log."""

    def __init__(self, config: BrokerConfig, counters: BrokerCounters, records: Records) -> None:
        self._records, self._counters = records, counters
        directory = StoreDirectory(config.store_path_root_dir, config.store_path_commit_log)
        files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
        geometry = Geometry(config.max_hash_slot_num, config.max_index_num)
        self._index = IndexSearch(directory.index, geometry, LogRecords(files, self._limits))

    def _limits(self) -> LogLimits:
        return LogLimits(self._counters.min_physical_offset.read(), self._counters.reput_from_offset.read())

    def resume(self, level: Level, queue: FollowedQueue) -> None:
        """Set where a level goes on of which the table says nothing: all of it would be delivered again."""
        first, bounds = level.next_offset, queue.bounds(self._counters.reput_from_offset.read())
        if bounds is None or first >= bounds[1]:
            return
        level.next_offset = self.first_undelivered(queue, first, bounds[1])
        log.warning(
            "level %d: %s has no position of it; continuing at %d of %d to %d, after the last delivery in the log",
            level.number,
            DELAY_OFFSETS,
            level.next_offset,
            first,
            bounds[1],
        )

    def first_undelivered(self, queue: FollowedQueue, low: int, end: int) -> int:
        """The first of a level's queue offsets from `low` to `end` that is to be delivered; `end`: none is."""
        first = low
        while low < end:
            middle = (low + end) // 2
            last = next(
                (
                    at
                    for at in range(min(end, middle + NEIGHBOURS) - 1, middle - 1, -1)
                    if self._is_delivered(queue, at)
                ),
                None,
            )
            if last is None:
                end = middle
            else:
                low = last + 1
        under_way = range(max(first, low - UNDER_WAY), low)
        return next((at for at in under_way if self._is_delivered(queue, at) is False), low)

    def _is_delivered(self, queue: FollowedQueue, offset: int) -> bool | None:
        """Return whether the entry's message was delivered before; None where nobody can tell."""
        entries = queue.read(offset, 1, self._counters.reput_from_offset.read())
        if not entries or entries.physical_offsets[0] < 0:
            return None
        place = int(entries.physical_offsets[0])
        try:
            message = self._records.message(place)
        except StoreError:
            return None
        if message is None:
            return None
        topic, key = (message.properties.get(name) for name in (properties.REAL_TOPIC, properties.UNIQ_KEY))
        if not topic or not key:
            return None
        begin_ms = message.store_timestamp_ms
        records = self._index.query(topic, key, ANSWERS_MAX, begin_ms, END_OF_TIME_MS, ANSWERS_BYTES).records
        others = (decode(record, 0, check_body_crc=False) for record in records)
        return any(
            one.topic == topic and one.properties.get(properties.UNIQ_KEY) == key and one.physical_offset > place
            for one in others
        )
