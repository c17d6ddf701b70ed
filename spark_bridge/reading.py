"""What an executor does with a split: map, find, decode, and hand on Arrow batches of bounded size.

Maps are read-only and kept per Python worker, so the tasks of one worker share them; a window over a map ends at the
limit that was planned.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_bridge.bodies import with_bodies
from spark_bridge.columns import Column, damage_batch, record_batch
from spark_bridge.damage import Damage, sound_entries, sound_starts
from spark_bridge.records import Records
from spark_bridge.row_options import DEFAULT_ROWS, RowOptions
from spark_bridge.scan import LogWindow, Positions, check_records, record_starts
from spark_bridge.splits import LogExtent, QueuePiece, QueueSplit, RangeSplit, Selection, Split
from spark_bridge.unpacking import Chunk, unpacked
from store.consume_queue import ConsumeQueue
from store.errors import QueueEntriesRemoved, SegmentRemoved, SegmentSizeMismatch
from store.record import QUEUE_ID_AT, QUEUE_OFFSET_AT, SysFlag
from store.segment import Segment
from store.segment_files import SegmentFiles
from store.topics import SYSTEM_PREFIX, SYSTEM_TOPICS, is_system_topic

BATCH_BYTES_MAX = 4 << 20
BATCH_ROWS_MAX = 1 << 16
QUEUE_STEP_ENTRIES = 1 << 14
SEGMENTS_KEPT_MAX = 32
DAMAGES_MAX = 1 << 10
PREPARED_OR_ROLLED_BACK = int(SysFlag.TRANSACTION_PREPARED)  # this bit is in both, and in no commit
SYSTEM_BEGINS = np.unique([int.from_bytes(name.encode()[:4], "big") for name in (*SYSTEM_TOPICS, SYSTEM_PREFIX)])
SYSTEM_LETTERS = np.isin(np.arange(256), SYSTEM_BEGINS >> 24)


_Identity = tuple[int, int, int]
_segments: OrderedDict[str, tuple[_Identity, Segment]] = OrderedDict()


def read_split(
    split: Split, columns: Sequence[Column], schema: pa.Schema, rows: RowOptions = DEFAULT_ROWS
) -> Iterator[pa.RecordBatch]:
    """The wanted columns of a split's records.

    Damage is an error that names file and offset (CorruptRecord, MalformedData), or a row, as `rows.mode` says; so
    is what was removed since the plan (SegmentRemoved, QueueEntriesRemoved), unless its loss may pass.
    """
    heavy = any(column.heavy for column in columns)
    bodies = any(column.reads_body for column in columns)
    chunks = _queue_chunks(split, rows) if isinstance(split, QueueSplit) else _range_chunks(split, rows)
    for part in _batches(chunks, heavy):
        if isinstance(part, list):
            yield damage_batch(part, schema, split.log.broker_name)
            continue
        for records in with_bodies(Records(*part), rows, bodies):
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
    return LogWindow(path, base_offset, segment.array, log.max_physical_offset, log.broker_name)


def _range_chunks(split: RangeSplit, rows: RowOptions) -> Iterator[Chunk | Damage]:
    """The records that start in a range of one segment and are wanted."""
    log, selection = split.log, split.selection
    if not selection.system_topics and split.end <= log.reput_from_offset and not _has_system_queues(log.root):
        selection = replace(selection, system_topics=True)
    try:
        window = open_window(log, split.base_offset)
    except (SegmentRemoved, SegmentSizeMismatch) as error:
        yield from _told(Damage(error, split.start), rows)
        return
    chain_from, start, end = (at - split.base_offset for at in (split.chain_from, split.start, split.end))
    if not rows.permissive:
        found: Iterable[Positions | Damage] = record_starts(window, chain_from, start, end)
    else:
        found = sound_starts(window, log, chain_from, start, end)
    for positions in found:
        if isinstance(positions, Damage):
            yield positions
        else:
            yield from _messages(window, positions, selection, rows)


def _has_system_queues(root: str) -> bool:
    """Whether any of the dispatched records may be of a topic that brokers make for themselves."""
    try:
        return not root or any(is_system_topic(name) for name in os.listdir(os.path.join(root, "consumequeue")))
    except OSError:
        return True


def _queue_chunks(split: QueueSplit, rows: RowOptions) -> Iterator[Chunk | Damage]:
    """The records that some pieces of consume queues point to."""
    windows: dict[int, LogWindow] = {}
    for piece in split.pieces:
        for entries in _piece_chunks(piece, split.log.segment_bytes):
            if isinstance(entries, Damage):
                yield from _told(entries, rows)
                continue
            base, offsets, sizes, first = entries
            try:
                window = windows[base] if base in windows else open_window(split.log, base)
            except (SegmentRemoved, SegmentSizeMismatch) as error:
                yield from _told(Damage(error, int(offsets[0]), piece.topic, piece.queue_id, first), rows)
                continue
            windows[base] = window
            if not rows.permissive:
                check_records(window, offsets - base, sizes)
                yield from _messages(window, offsets - base, None, rows)
                continue
            for found in sound_entries(window, offsets - base, sizes, piece.topic, piece.queue_id, first):
                if isinstance(found, Damage):
                    yield found
                else:
                    yield from _messages(window, found, None, rows)


def _messages(
    window: LogWindow, positions: Positions, selection: Selection | None, rows: RowOptions
) -> Iterator[Chunk | Damage]:
    """The messages in some records: those wanted, inner batches unpacked. A queue's piece is wanted as it is."""
    if selection is not None:
        positions = select(window, positions, selection)
    for part in unpacked(window, positions, rows.verify_body_crc):
        if isinstance(part, Damage):
            yield from _told(part, rows)
            continue
        messages, found = part
        if selection is not None and selection.bounds and len(found):
            found = found[_inside_bounds(messages, found, selection)]
        if len(found):
            yield messages, found


def _told(damage: Damage, rows: RowOptions) -> Iterator[Damage]:
    """The damage as a row; or its error; or, for what was removed and may be lost, a line in the executor's log."""
    lost = isinstance(damage.error, SegmentRemoved | QueueEntriesRemoved)
    if (lost and rows.fail_on_data_loss) or (not lost and not rows.permissive):
        raise damage.error
    if rows.permissive:
        yield damage
    else:
        logging.getLogger(__name__).warning("failOnDataLoss=false, left out: %s", damage.text)


def _piece_chunks(
    piece: QueuePiece, segment_bytes: int
) -> Iterator[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int32], int] | Damage]:
    """(segment, physical offsets, sizes, first queue offset) of a piece's entries, some thousands at a time."""
    queue = ConsumeQueue.open(piece.directory)
    for start in range(piece.start, piece.end, QUEUE_STEP_ENTRIES):
        end = min(piece.end, start + QUEUE_STEP_ENTRIES)
        try:
            entries = queue.entries(start, end)
        except FileNotFoundError:
            entries = queue.entries(0, 0)
        if len(entries) != end - start:  # what is there is read: the oldest went, or all
            lost = QueueEntriesRemoved(str(piece.directory), start, end - len(entries))
            yield Damage(lost, None, piece.topic, piece.queue_id, start)
        start = end - len(entries)
        offsets, sizes = entries["physical_offset"].astype(np.int64), entries["size"].astype(np.int32)
        bases = offsets - offsets % segment_bytes
        borders = [0, *(np.flatnonzero(np.diff(bases)) + 1).tolist(), len(bases)]
        for first, behind in zip(borders, borders[1:], strict=False):
            if first < behind:
                yield int(bases[first]), offsets[first:behind], sizes[first:behind], start + first


def select(window: LogWindow, positions: Positions, selection: Selection) -> Positions:
    """Those of the records that are wanted, but for `selection.bounds`; never what a transaction has not committed."""
    records = Records(window, positions)
    pending = records.sys_flag & PREPARED_OR_ROLLED_BACK
    if pending.any():
        positions = positions[pending == 0]
        records = Records(window, positions)
    if selection.topics is None and not selection.system_topics and len(positions):
        positions = np.delete(positions, _of_system_topics(records))
    if selection.queue_ids is not None:
        queue_ids = window.int32(positions + QUEUE_ID_AT)
        positions = positions[np.isin(queue_ids, list(selection.queue_ids))]
    if selection.topics is not None and len(positions):
        wanted = pa.array(sorted(selection.topics), pa.string())
        found = pc.is_in(Records(window, positions).topic, value_set=wanted)
        positions = positions[found.to_numpy(zero_copy_only=False)]
    return positions


def _of_system_topics(records: Records) -> npt.NDArray[np.intp]:
    """Which of the records belong to topics that brokers make for themselves: few are looked at, by their beginning."""
    window, positions = records.window, records.starts
    topic_at = np.clip(records.likely_topic_at, 0, window.length - 4)
    likely = np.flatnonzero(SYSTEM_LETTERS[window.bytes[topic_at]])
    likely = likely[np.isin(window.view(">u4")[topic_at[likely]], SYSTEM_BEGINS)]
    if not len(likely):
        return likely
    topics = Records(window, positions[likely]).topic.dictionary_encode()
    system = np.array([is_system_topic(topic) for topic in topics.dictionary.to_pylist()], np.bool_)
    return np.compress(system[topics.indices.to_numpy()], likely)


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


def _batches(chunks: Iterable[Chunk | Damage], heavy: bool) -> Iterator[Chunk | list[Damage]]:
    """Join small chunks of one window and cut large ones; what a batch weighs counts when bytes are wanted.

    What tells of damage stays in its place between them.
    """
    held = _Held()
    for chunk in chunks:
        if isinstance(chunk, Damage):
            if held.positions or len(held.damages) >= DAMAGES_MAX:
                yield held.taken()
            held.damages.append(chunk)
            continue
        window, positions = chunk
        for part, part_bytes in _cut(window, positions, heavy):
            full = held.rows + len(part) > BATCH_ROWS_MAX or held.weight + part_bytes > BATCH_BYTES_MAX
            if held.damages or (held.positions and (full or window is not held.window)):
                yield held.taken()
            held.add(window, part, part_bytes)
    if held.damages or held.positions:
        yield held.taken()


class _Held:
    """A batch in the making: records of one window, or damages."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.window: LogWindow | None = None
        self.positions: list[Positions] = []
        self.damages: list[Damage] = []
        self.rows = self.weight = 0

    def add(self, window: LogWindow, positions: Positions, weight: int) -> None:
        """Take more records of the window."""
        self.window = window
        self.positions.append(positions)
        self.rows, self.weight = self.rows + len(positions), self.weight + weight

    def taken(self) -> Chunk | list[Damage]:
        """What is held; begins anew."""
        damages, window, positions = self.damages, self.window, self.positions
        self._clear()
        return damages if window is None else (window, np.concatenate(positions))


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
