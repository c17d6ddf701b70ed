"""Where records begin in a mapped segment, found without an index and without Python per record.

A candidate is a position with a record's magic code whose PHYSICALOFFSET names that very position. A body may hold
such bytes too, so a candidate counts only when the chain from a known record start reaches it: each record's size
leads to the next. The chain is compared as one array; where it breaks, it is followed, never guessed.

Everything here is cut at the limit that was planned: the views end there, so no later byte can be read by mistake.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from store.errors import CorruptRecord
from store.message.measure_columns import ByteViews
from store.message.record import BLANK_BYTES, BLANK_MAGIC, FIXED_BYTES, MAGIC_AT, MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT

Positions = npt.NDArray[np.int64]

MAGIC_FIRST_BYTE = MAGIC_V1 >> 24
HEAD_BYTES = PHYSICAL_OFFSET_AT + 8  # what a candidate is judged by
SCAN_STEP_BYTES = 1 << 20  # one step's temporary arrays stay in the CPU's caches


class LogWindow(ByteViews):
    """One segment's bytes below the planned limit."""

    def __init__(
        self, path: str, base_offset: int, array: npt.NDArray[np.uint8], limit_offset: int, broker_name: str = ""
    ) -> None:
        self.path = path
        self.broker_name = broker_name
        self.base_offset = base_offset
        self.segment_bytes = len(array)
        super().__init__(array[: max(0, limit_offset - base_offset)])
        self.buffer = pa.py_buffer(self.bytes)

    def offsets(self, positions: Positions) -> Positions:
        """The log offset of the record at each position."""
        return positions + self.base_offset

    def corrupt(self, position: int, reason: str) -> CorruptRecord:
        """The error for the record at `position`."""
        return CorruptRecord(self.path, self.base_offset + int(position), reason)


class CopiedRecords(LogWindow):
    """Records of one window in memory of their own, one behind the other: a position is no place in the log."""

    def __init__(self, window: LogWindow, records: bytes) -> None:
        array = np.frombuffer(records, np.uint8)
        super().__init__(window.path, 0, array, len(array), window.broker_name)

    def offsets(self, positions: Positions) -> Positions:
        """Return what each record says about where it lies."""
        return self.int64(positions + PHYSICAL_OFFSET_AT)

    def corrupt(self, position: int, reason: str) -> CorruptRecord:
        """The error for the record whose copy is at `position`."""
        return CorruptRecord(self.path, int(self.view(">i8")[position + PHYSICAL_OFFSET_AT]), reason)


def record_starts(window: LogWindow, chain_from: int, start: int, end: int) -> Iterator[Positions]:
    """Positions of the records that start in [start, end), a few thousand at a time, ascending.

    `chain_from` <= start is where some record certainly starts (a segment's first byte, a consume queue's entry).
    Stops quietly at a blank record, and at a record that the limit cuts. Raises CorruptRecord where the chain breaks.
    """
    expected = chain_from
    end = min(end, window.length)
    while expected < end:
        step_end = min(expected + SCAN_STEP_BYTES, end)
        likely, sizes = candidates(window, expected, step_end)
        chained, following = _chain(likely, sizes, expected)
        cut = len(chained) > 0 and following > window.length
        whole = chained[:-1] if cut else chained
        wanted = whole[np.searchsorted(whole, start) :] if expected < start else whole
        if len(wanted):
            yield wanted
        if cut:
            _check_cut(window, int(chained[-1]), following)
        if cut or (following < step_end and _is_end_of_records(window, following)):
            return
        expected = following


def candidates(window: LogWindow, start: int, end: int) -> tuple[Positions, Positions]:
    """Positions in [start, end) that look like a record's first byte, and the sizes that stand there."""
    end = min(end, window.length - HEAD_BYTES + 1)
    if end <= start:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    likely = np.flatnonzero(window.bytes[start + MAGIC_AT : end + MAGIC_AT] == MAGIC_FIRST_BYTE) + start
    magic = window.view(">u4")[likely + MAGIC_AT]
    likely = likely[(magic == MAGIC_V1) | (magic == MAGIC_V2)]
    likely = likely[window.view(">i8")[likely + PHYSICAL_OFFSET_AT] == likely + window.base_offset]
    sizes = window.int32(likely).astype(np.int64)
    plausible = sizes >= FIXED_BYTES
    return (likely, sizes) if plausible.all() else (likely[plausible], sizes[plausible])


def _chain(likely: Positions, sizes: Positions, expected: int) -> tuple[Positions, int]:
    """The candidates that the chain from `expected` visits, and where the next record should start."""
    if not len(likely):
        return likely, expected
    ends = likely + sizes
    breaks = np.flatnonzero(ends[:-1] != likely[1:])
    if not len(breaks) and likely[0] == expected:
        return likely, int(ends[-1])
    pieces: list[Positions] = []
    position = expected
    while True:  # once around for every break: each piece ends behind the one before
        first = int(np.searchsorted(likely, position))
        if first == len(likely) or likely[first] != position:
            return (np.concatenate(pieces) if pieces else likely[:0]), position
        at_break = int(np.searchsorted(breaks, first))
        last = int(breaks[at_break]) if at_break < len(breaks) else len(likely) - 1
        pieces.append(likely[first : last + 1])
        position = int(ends[last])


def _check_cut(window: LogWindow, position: int, following: int) -> None:
    """A record may reach beyond the limit (frames of replication split records), never beyond its segment."""
    if following > window.segment_bytes:
        size = following - position
        raise window.corrupt(position, f"its size {size} reaches beyond the end of the segment")


def _is_end_of_records(window: LogWindow, position: int) -> bool:
    """Return whether it is a blank record or one that the limit cuts. Raises CorruptRecord for anything else."""
    rest = window.length - position
    if rest >= BLANK_BYTES and int(window.view(">u4")[position + MAGIC_AT]) == BLANK_MAGIC:
        return True
    if rest < HEAD_BYTES and window.length < window.segment_bytes:
        return True
    raise window.corrupt(position, what_is_wrong(window, position))


def what_is_wrong(window: LogWindow, position: int) -> str:
    """Return why the bytes at `position` do not begin a record; empty when they do."""
    if window.length - position < HEAD_BYTES:
        return "the segment ends inside the record's header"
    magic = int(window.view(">u4")[position + MAGIC_AT])
    if magic not in (MAGIC_V1, MAGIC_V2):
        return f"expected a record, found magic code {magic:#010x}"
    named = int(window.view(">i8")[position + PHYSICAL_OFFSET_AT])
    if named != window.base_offset + position:
        return f"the record names itself as offset {named}"
    size = int(window.view(">i4")[position])
    return f"record of size {size}, the least is {FIXED_BYTES}" if size < FIXED_BYTES else ""
