"""Checks consume queue extensions: the unit that an entry names has its record's tags code and store time.

Implements: ConsumeQueueExt.get (spec: store-formats, section 11)
In bulk: the entries of one segment's records at a time. A unit's bitmap cannot be checked: which filters took the
message is known nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ipc.arrays import Words
from store.files import mapped_files
from store.files.segment import file_name
from store.files.segment_files import named_files
from store.names import QUEUE_EXTENSIONS
from store.queues.extension import ADDRESS_ZERO, EXT_DTYPE, UNIT_BYTES
from store.verify import check_kernel as kernel
from store.verify.check_words import Event
from store.verify.finding import Finding
from store.verify.queues import CheckedQueue

LOST = (
    "rebuild the queue (`slipstream log rebuild queue STORE`): its entries then carry their tags codes themselves;"
    " filters by SQL92 are then evaluated for each message"
)


class ExtCheck:
    """The extension files of a store, mapped as they are needed."""

    def __init__(self, root: Path) -> None:
        self._root = root / QUEUE_EXTENSIONS
        self._files: dict[tuple[Path, int], npt.NDArray[np.uint8]] = {}
        self._file_bytes: dict[Path, int] = {}

    def findings(self, queue: CheckedQueue, rows: Words) -> Iterator[Finding]:
        """The events EXT of one queue: which of them name no unit, or another record's."""
        directory = self._root / queue.topic / str(queue.queue_id)
        positions = rows[:, Event.VALUE] - np.int64(ADDRESS_ZERO)
        units, there = self._units(directory, positions)
        codes = rows[:, Event.TAGS_CODE]
        right = (units["tags_code"] == codes) | (codes == kernel.ANY_TAGS)
        right &= units["store_timestamp_ms"] == rows[:, Event.STORE_TIMESTAMP]
        right &= units["size"] == UNIT_BYTES + units["bitmap_bytes"].astype(np.int64)
        for wrong, what in ((~there, "name no unit"), (there & ~right, "name a unit that is not their record's")):
            if wrong.any():
                first = rows[int(wrong.argmax())]
                text = f"{int(wrong.sum())} entries {what}, first that of the record at offset"
                text += f" {first[Event.POSITION]}, unit {int(first[Event.VALUE]) - ADDRESS_ZERO}"
                yield Finding("EXT_UNIT", str(directory), text, LOST)

    def _units(self, directory: Path, positions: Words) -> tuple[npt.NDArray[np.void], npt.NDArray[np.bool_]]:
        """The units there, and which of them lie in a file at all."""
        units = np.zeros(len(positions), EXT_DTYPE)
        there = np.zeros(len(positions), np.bool_)
        size = self._size_of(directory)
        if not size:
            return units, there
        bases = positions - positions % size
        for base in np.unique(bases).tolist():
            array = self._map(directory, base, size)
            chosen = (bases == base) & (positions - base + UNIT_BYTES <= len(array))
            if chosen.any():
                at = (positions[chosen] - base)[:, None] + np.arange(UNIT_BYTES)
                units[chosen] = array[at].reshape(-1).view(EXT_DTYPE)
                there |= chosen
        return units, there

    def _size_of(self, directory: Path) -> int:
        """The length of that queue's files, 0 without any."""
        if directory not in self._file_bytes:
            files = named_files(directory)
            self._file_bytes[directory] = files[0][1] if files else 0
        return self._file_bytes[directory]

    def _map(self, directory: Path, base: int, size: int) -> npt.NDArray[np.uint8]:
        """The bytes of a file, none when it is missing or of another length."""
        if (directory, base) not in self._files:
            path = directory / file_name(base)
            usable = 0 <= base < 1 << 62 and path.is_file() and path.stat().st_size == size
            self._files[directory, base] = mapped_files.map_array(path) if usable else np.zeros(0, np.uint8)
        return self._files[directory, base]
