"""What an executor does with a split: map, find, decode, and hand on Arrow batches of bounded size.

Maps are read-only and kept per Python worker, so the tasks of one worker share them; a window over a map ends at the
limit that was planned.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_bridge.columns import Column, Records, record_batch
from spark_bridge.row_options import DEFAULT_ROWS, RowOptions
from spark_bridge.scan import LogWindow, Positions, check_records, record_starts
from spark_bridge.splits import LogExtent, QueuePiece, QueueSplit, RangeSplit, Selection, Split
from store.consume_queue import ConsumeQueue
from store.errors import QueueEntriesRemoved, SegmentRemoved
from store.record import QUEUE_ID_AT, QUEUE_OFFSET_AT
from store.segment import Segment
from store.segment_files import SegmentFiles

BATCH_BYTES_MAX = 4 << 20
BATCH_ROWS_MAX = 1 << 16
QUEUE_STEP_ENTRIES = 1 << 14
SEGMENTS_KEPT_MAX = 32


_Identity = tuple[int, int, int]
_segments: OrderedDict[str, tuple[_Identity, Segment]] = OrderedDict()


def read_split(
    split: Split, columns: Sequence[Column], schema: pa.Schema, rows: RowOptions = DEFAULT_ROWS
) -> Iterator[pa.RecordBatch]:
    """The wanted columns of a split's records. Raises CorruptRecord, naming file and offset."""
    heavy = any(column.heavy for column in columns)
    chunks = _queue_chunks(split) if isinstance(split, QueueSplit) else _range_chunks(split)
    for window, positions in _batches(chunks, heavy):
        records = Records(window, positions)
        if rows.verify_body_crc:
            records.check_body_crc()
        yield record_batch(records, columns, schema)


def open_window(log: LogExtent, base_offset: int) -> LogWindow:
    """The segment at `base_offset` below the planned limit; its map comes from this worker's cache.

    Raises SegmentRemoved, SegmentSizeMismatch.
    """
    files = SegmentFiles(log.commitlog, log.segment_bytes)
    path = str(files.path_of(base_offset))
    try:
        found = os.stat(path)
    except FileNotFoundError as error:
        raise SegmentRemoved(path, base_offset) from error
    identity = (found.st_dev, found.st_ino, found.st_size)
    cached = _segments.pop(path, None)
    segment = cached[1] if cached and cached[0] == identity else files.open(base_offset)
    _segments[path] = identity, segment
    while len(_segments) > SEGMENTS_KEPT_MAX:
        _segments.popitem(last=False)[1][1].close()
    return LogWindow(path, base_offset, segment.array, log.max_physical_offset)


def _range_chunks(split: RangeSplit) -> Iterator[tuple[LogWindow, Positions]]:
    """The records that start in a range of one segment and are wanted."""
    window = open_window(split.log, split.base_offset)
    chain_from, start, end = (at - split.base_offset for at in (split.chain_from, split.start, split.end))
    for positions in record_starts(window, chain_from, start, end):
        wanted = positions if split.selection.is_everything else select(window, positions, split.selection)
        if len(wanted):
            yield window, wanted


def _queue_chunks(split: QueueSplit) -> Iterator[tuple[LogWindow, Positions]]:
    """The records that some pieces of consume queues point to."""
    windows: dict[int, LogWindow] = {}
    for piece in split.pieces:
        for base, offsets, sizes in _piece_chunks(piece, split.log.segment_bytes):
            if base not in windows:
                windows[base] = open_window(split.log, base)
            positions = offsets - base
            check_records(windows[base], positions, sizes)
            yield windows[base], positions


def _piece_chunks(
    piece: QueuePiece, segment_bytes: int
) -> Iterator[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int32]]]:
    """(segment, physical offsets, sizes) of a piece's entries, some thousands at a time.

    Raises QueueEntriesRemoved.
    """
    queue = ConsumeQueue.open(piece.directory)
    for start in range(piece.start, piece.end, QUEUE_STEP_ENTRIES):
        end = min(piece.end, start + QUEUE_STEP_ENTRIES)
        try:
            entries = queue.entries(start, end)
        except FileNotFoundError as error:
            raise QueueEntriesRemoved(str(piece.directory), start, end) from error
        if len(entries) != end - start:
            raise QueueEntriesRemoved(str(piece.directory), start, end)
        offsets, sizes = entries["physical_offset"].astype(np.int64), entries["size"].astype(np.int32)
        bases = offsets - offsets % segment_bytes
        borders = [0, *(np.flatnonzero(np.diff(bases)) + 1).tolist(), len(bases)]
        for first, behind in zip(borders, borders[1:], strict=False):
            if first < behind:
                yield int(bases[first]), offsets[first:behind], sizes[first:behind]


def select(window: LogWindow, positions: Positions, selection: Selection) -> Positions:
    """Those of the records that are wanted."""
    if selection.queue_ids is not None:
        queue_ids = window.int32(positions + QUEUE_ID_AT)
        positions = positions[np.isin(queue_ids, list(selection.queue_ids))]
    if selection.topics is not None and len(positions):
        wanted = pa.array(sorted(selection.topics), pa.string())
        found = pc.is_in(Records(window, positions).topic, value_set=wanted)
        positions = positions[found.to_numpy(zero_copy_only=False)]
    if selection.bounds and len(positions):
        positions = positions[_inside_bounds(window, positions, selection)]
    return positions


def _inside_bounds(window: LogWindow, positions: Positions, selection: Selection) -> npt.NDArray[np.bool_]:
    """True for records that no bounds of their queue exclude."""
    queue_ids = window.int32(positions + QUEUE_ID_AT)
    queue_offsets = window.int64(positions + QUEUE_OFFSET_AT)
    topics = Records(window, positions).topic
    inside = np.ones(len(positions), np.bool_)
    for topic, queue_id, first, end in selection.bounds:
        outside = queue_offsets < first
        if end is not None:
            outside |= queue_offsets >= end
        outside &= queue_ids == queue_id
        if outside.any():
            inside &= ~(outside & pc.equal(topics, topic).to_numpy(zero_copy_only=False))
    return inside


def _batches(chunks: Iterable[tuple[LogWindow, Positions]], heavy: bool) -> Iterator[tuple[LogWindow, Positions]]:
    """Join small chunks of one window and cut large ones; what a batch weighs counts when bytes are wanted."""
    held: list[Positions] = []
    held_window: LogWindow | None = None
    rows = weight = 0
    for window, chunk in chunks:
        for part, part_bytes in _cut(window, chunk, heavy):
            full = rows + len(part) > BATCH_ROWS_MAX or weight + part_bytes > BATCH_BYTES_MAX
            if held_window is not None and (full or window is not held_window):
                yield held_window, np.concatenate(held)
                held, rows, weight = [], 0, 0
            held_window = window
            held.append(part)
            rows, weight = rows + len(part), weight + part_bytes
    if held_window is not None:
        yield held_window, np.concatenate(held)


def _cut(window: LogWindow, chunk: Positions, heavy: bool) -> Iterator[tuple[Positions, int]]:
    """Parts of a chunk that are within a batch's bytes, unless one record alone is above them."""
    if not heavy:
        yield chunk, 0
        return
    ends = np.cumsum(window.int32(chunk), dtype=np.int64)
    if ends[-1] <= BATCH_BYTES_MAX:
        yield chunk, int(ends[-1])
        return
    done = 0
    while done < len(chunk):
        before = int(ends[done - 1]) if done else 0
        until = max(done + 1, int(np.searchsorted(ends, before + BATCH_BYTES_MAX, "right")))
        yield chunk[done:until], int(ends[until - 1]) - before
        done = until
