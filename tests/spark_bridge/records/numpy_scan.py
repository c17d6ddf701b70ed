"""What the compiled walk is compared with: records found by a search of every byte for their magic code, with numpy.

A candidate is a position with a record's magic code whose PHYSICALOFFSET names that very position. A body may hold
such bytes too, so a candidate counts only when the chain from a known record start reaches it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from store.columns.window import LogWindow, Positions, what_is_wrong
from store.message.record import BLANK_BYTES, BLANK_MAGIC, FIXED_BYTES, MAGIC_AT, MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT
from store.message.walk_kernel import HEAD_BYTES

MAGIC_FIRST_BYTE = MAGIC_V1 >> 24
SCAN_STEP_BYTES = 1 << 20


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
