"""Inner batches as the messages inside them, each a record of its own, as consumers get them.

A 5.x broker keeps a batch as one record. Where one comes up, the records around it are copied with it into memory of
their own, the batch's messages in its place with their own queue offset, flag, body and properties: everything that
reads records then reads these, in the log's order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spark_bridge.records.damage import Damage
from store.columns.records import Records
from store.columns.window import CopiedRecords, LogWindow, Positions
from store.errors import CorruptRecord, MalformedData
from store.message.inner_batch import records_in
from store.message.record import SysFlag, decode

COPIED_BYTES_MAX = 4 << 20
_INNER = int(SysFlag.INNER_BATCH)


def unpacked(records: Records, check_crc: bool) -> Iterator[Records | Damage]:
    """Yield the records with each inner batch replaced by its messages, and damage for an invalid batch."""
    window, positions = records.window, records.starts
    batches = np.flatnonzero(records.sys_flag & _INNER)
    if not len(batches):
        yield records
        return
    copy, done = _Copy(window), 0
    for row in batches.tolist():
        yield from copy.add_records(positions[done:row])
        try:
            copy.add_messages(int(positions[row]), check_crc)
        except (MalformedData, CorruptRecord) as error:
            yield from copy.taken()
            yield _damage(window, int(positions[row]), error)
        done = row + 1
    yield from copy.add_records(positions[done:])
    yield from copy.taken()


def _damage(window: LogWindow, position: int, error: MalformedData | CorruptRecord) -> Damage:
    """Return what is known of a batch that cannot be read: all but its messages."""
    message = decode(window.bytes.data, position, check_body_crc=False, path=window.path)
    if isinstance(error, MalformedData):
        error = MalformedData(f"{window.path}: {error.what}", error.reason)
    return Damage(error, message.physical_offset, message.topic, message.queue_id, message.queue_offset)


class _Copy:
    """Records copied out of one window."""

    def __init__(self, window: LogWindow) -> None:
        self._window, self._view = window, window.bytes.data
        self._parts: list[bytes | memoryview] = []
        self._starts: list[Positions] = []
        self._bytes = 0

    def taken(self) -> Iterator[Records]:
        """Yield what was copied so far, if anything; begins anew."""
        if self._starts:
            array = np.frombuffer(b"".join(self._parts), np.uint8)
            copied = CopiedRecords(self._window.path, array, self._window.broker_name)
            yield Records(copied, np.concatenate(self._starts))
        self._parts, self._starts, self._bytes = [], [], 0

    def add_records(self, positions: Positions) -> Iterator[Records]:
        """Copy records as they are; yields what has become large enough."""
        sizes = self._window.int32(positions).astype(np.int64)
        behind = np.cumsum(sizes)
        while len(positions):
            count = max(1, int(np.searchsorted(behind, COPIED_BYTES_MAX - self._bytes, "right")))
            self._starts.append(self._bytes + behind[:count] - sizes[:count])
            for at, size in zip(positions[:count].tolist(), sizes[:count].tolist(), strict=True):
                self._parts.append(self._view[at : at + size])
            self._bytes += int(behind[count - 1])
            positions, sizes, behind = positions[count:], sizes[count:], behind[count:] - behind[count - 1]
            if self._bytes >= COPIED_BYTES_MAX:
                yield from self.taken()

    def add_messages(self, position: int, check_crc: bool) -> None:
        """Copy the messages of a batch, all of them or none. Raises MalformedData, CorruptRecord."""
        message = decode(self._view, position, check_body_crc=check_crc, path=self._window.path)
        records = [*records_in(self._view, position, message)]
        sizes = np.array([len(record) for record in records], np.int64)
        self._starts.append(self._bytes + np.cumsum(sizes) - sizes)
        self._parts += records
        self._bytes += int(sizes.sum())
