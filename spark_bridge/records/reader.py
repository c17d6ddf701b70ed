"""What an executor does with a split: map, find, decode, and hand on Arrow batches of bounded size.

Maps are read-only and kept per Python worker, so the tasks of one worker share them; a window over a map ends at the
limit that was planned.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ipc.arrays import Int32s
from spark_bridge.options.ranges import Range
from spark_bridge.options.rows import RowOptions
from spark_bridge.records.bodies import with_bodies
from spark_bridge.records.columns import Asked, damage_batch
from spark_bridge.records.damage import Damage, sound_entries, sound_records
from spark_bridge.records.entries import QueueEntries, records_named
from spark_bridge.records.freed_memory import keep_freed_memory
from spark_bridge.records.head_filter import ANY, filter_of, left_of
from spark_bridge.records.inflation import unpacked
from spark_bridge.records.selection import may_have_tags, select, select_messages
from spark_bridge.records.walk import collected, walked
from spark_bridge.replica.replica import await_planned, explained
from spark_bridge.split.splits import LogExtent, QueuePiece, QueueSplit, RangeSplit, RecordSplit, Selection, Split
from store.columns.records import Records
from store.columns.window import LogWindow
from store.errors import CorruptRecord, QueueEntriesRemoved, SegmentRemoved, SegmentSizeMismatch
from store.files.segment import Segment
from store.files.segment_files import SegmentFiles
from store.queues.consume_queue import ConsumeQueue

BATCH_BYTES_MAX = 4 << 20
BATCH_ROWS_MAX = 1 << 16
QUEUE_STEP_ENTRIES = 1 << 14
SEGMENTS_KEPT_MAX = 32
DAMAGES_MAX = 1 << 10


Job = Callable[[], Iterator[pa.RecordBatch]]
_Identity = tuple[int, int, int]
_segments: OrderedDict[str, tuple[_Identity, Segment]] = OrderedDict()
_opening = threading.Lock()  # a segment that one thread puts out is closed: another one must hold its array by then


def read_split(split: Split, asked: Asked) -> Iterator[pa.RecordBatch]:
    """What is asked of a split's records.

    Damage is an error that names file and offset (CorruptRecord, MalformedData), or a row, as `asked.rows` says; so
    is what was removed since the plan (SegmentRemoved, QueueEntriesRemoved), unless its loss may pass. A replica that
    lags behind the planned one is no damage: it is waited for, then ReplicaBehind.
    """
    for job in split_jobs(split, asked):
        yield from job()


def split_jobs(split: Split, asked: Asked) -> Iterator[Job]:
    """The same as jobs for threads: records are found when the next one is asked for, columns are made in the job."""
    keep_freed_memory()
    heavy = any(column.heavy for column in asked.columns)
    lengths = ANY if asked.row_filter is None else asked.row_filter.body_bytes()
    for part in _batches(_chunks(split, asked.rows, heavy, lengths), heavy):
        if isinstance(part, list):
            yield partial(iter, [damage_batch(part, asked.schema, split.log.broker_name)])
        else:
            yield partial(_made, part, asked)


def _made(records: Records, asked: Asked) -> Iterator[pa.RecordBatch]:
    wanted = records if asked.row_filter is None else asked.row_filter.kept(records)
    for part in with_bodies(wanted, asked.rows, asked.reads_bodies):
        yield asked.batch_of(part)


def open_window(log: LogExtent, base_offset: int) -> LogWindow:
    """The segment at `base_offset` below the planned limit; its map comes from this worker's cache.

    Raises SegmentRemoved, SegmentSizeMismatch.
    """
    files = SegmentFiles(log.commitlog, log.segment_bytes)
    path = str(files.path_of(base_offset))
    try:
        status = os.stat(path)
    except FileNotFoundError as error:
        raise SegmentRemoved(path, base_offset) from error
    identity = (status.st_dev, status.st_ino, status.st_size)
    with _opening:
        cached = _segments.pop(path, None)
        segment = cached[1] if cached and cached[0] == identity else files.open(base_offset)
        _segments[path] = identity, segment
        while len(_segments) > SEGMENTS_KEPT_MAX:
            _segments.popitem(last=False)[1][1].close()
        return LogWindow(path, base_offset, segment.array, log.max_physical_offset, log.broker_name)


def _chunks(split: Split, rows: RowOptions, heavy: bool, lengths: Range) -> Iterator[Records | Damage]:
    """The wanted messages of a split, some thousands at a time, under its plan's lease if there is one.

    They are here: a replica that lags behind the planned one is waited for.
    """
    if split.log.lease is None:
        await_planned(split, rows.replica_wait_s, queues_too=rows.permissive)
        yield from _chunks_of(split, rows, heavy, lengths)
        return
    from spark_bridge.split.leases import keep  # it has to know processes, which reading does not

    keep(split.log.lease)
    await_planned(split, rows.replica_wait_s, queues_too=rows.permissive)
    for chunk in _chunks_of(split, rows, heavy, lengths):
        yield chunk
        keep(split.log.lease)


def _chunks_of(split: Split, rows: RowOptions, heavy: bool, lengths: Range) -> Iterator[Records | Damage]:
    if isinstance(split, QueueSplit):
        return _queue_chunks(split, rows)
    return _record_chunks(split, rows) if isinstance(split, RecordSplit) else _range_chunks(split, rows, heavy, lengths)


def _range_chunks(split: RangeSplit, rows: RowOptions, heavy: bool, lengths: Range) -> Iterator[Records | Damage]:
    """The records that start in a range of one segment and are wanted; `heavy` if their bodies are read next."""
    log = split.log
    try:
        window = open_window(log, split.base_offset)
    except (SegmentRemoved, SegmentSizeMismatch) as error:
        yield from _consequence(Damage(explained(error, log), split.start), rows)
        return
    chain_from, start, end = (at - split.base_offset for at in (split.chain_from, split.start, split.end))
    admitted = filter_of(split.selection, lengths)
    if not rows.permissive:
        chunks: Iterable[Records | Damage] = walked(window, chain_from, start, end, admitted, cached=heavy)
    else:
        chunks = sound_records(window, log, chain_from, start, end)
    for chunk in chunks:
        if isinstance(chunk, Damage):
            yield chunk
            continue
        records = collected(window, chunk.starts, admitted) if rows.permissive else chunk
        yield from _messages(select(records, split.selection), split.selection, rows, left_of(split.selection))


def _record_chunks(split: RecordSplit, rows: RowOptions) -> Iterator[Records | Damage]:
    """The records that begin at the split's offsets and are wanted."""
    admitted = filter_of(split.selection)
    for base, first, behind in segments_of(np.array(split.offsets, np.int64), split.log.segment_bytes):
        try:
            window = open_window(split.log, base)
        except (SegmentRemoved, SegmentSizeMismatch) as error:
            yield from _consequence(Damage(explained(error, split.log), split.offsets[first]), rows)
            continue
        records = collected(window, np.array(split.offsets[first:behind], np.int64) - base, admitted)
        yield from _messages(select(records, split.selection), split.selection, rows, left_of(split.selection))


def _queue_chunks(split: QueueSplit, rows: RowOptions) -> Iterator[Records | Damage]:
    """The records that some pieces of consume queues point to."""
    windows: dict[int, LogWindow] = {}
    pruning = Selection() if rows.permissive else split.selection  # damage is reported for every entry
    for piece in split.pieces:
        for entries in _piece_chunks(piece, split.log.segment_bytes, pruning):
            if isinstance(entries, Damage):
                yield from _consequence(entries._replace(error=explained(entries.error, split.log)), rows)
                continue
            base, named = entries
            first, offset = int(named.numbers[0]), base + int(named.positions[0])
            if not 0 <= base < split.log.max_physical_offset:
                why = f"entry {first} of {piece.directory} names it, outside the log"
                beyond = CorruptRecord(split.log.commitlog, offset, why)
                yield from _consequence(Damage(beyond, offset, piece.topic, piece.queue_id, first), rows)
                continue
            try:
                window = windows[base] if base in windows else open_window(split.log, base)
            except (SegmentRemoved, SegmentSizeMismatch) as error:
                reason = explained(error, split.log)
                yield from _consequence(Damage(reason, offset, piece.topic, piece.queue_id, first), rows)
                continue
            windows[base] = window
            if not rows.permissive:
                yield from _messages(records_named(window, named), split.selection, rows)
                continue
            for part in sound_entries(window, named):
                if isinstance(part, Damage):
                    yield part
                else:
                    yield from _messages(Records(window, part), split.selection, rows)


def _messages(
    records: Records, selection: Selection, rows: RowOptions, left: Selection | None = None
) -> Iterator[Records | Damage]:
    """The messages in some records, inner batches unpacked: those wanted. `left` is what a walk has not asked them."""
    for part in unpacked(records, rows.verify_body_crc):
        if isinstance(part, Damage):
            yield from _consequence(part, rows)
            continue
        asked = selection if left is None or part is not records else left
        messages = select_messages(part, asked) if asked.looks_at_messages else part
        if len(messages):
            yield messages


def _consequence(damage: Damage, rows: RowOptions) -> Iterator[Damage]:
    """The damage as a row; or its error; or, for what was removed and may be lost, a line in the executor's log."""
    lost = isinstance(damage.error, SegmentRemoved | QueueEntriesRemoved)
    if (lost and rows.fail_on_data_loss) or (not lost and not rows.permissive):
        raise damage.error
    if rows.permissive:
        yield damage
    else:
        logging.getLogger("slipstream.spark").warning("failOnDataLoss=false, left out: %s", damage.text)


def _piece_chunks(
    piece: QueuePiece, segment_bytes: int, selection: Selection
) -> Iterator[tuple[int, QueueEntries] | Damage]:
    """A piece's entries by segment, some thousands at a time."""
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
        numbers = np.arange(start, end)
        wanted = may_have_tags(piece.topic, entries, selection)
        if wanted is not None:
            entries, numbers = entries[wanted], numbers[wanted]
        offsets, sizes = entries["physical_offset"].astype(np.int64), entries["size"].astype(np.int32)
        for base, first, behind in segments_of(offsets, segment_bytes):
            part = slice(first, behind)
            yield base, QueueEntries(piece.topic, piece.queue_id, numbers[part], offsets[part] - base, sizes[part])


def segments_of(offsets: npt.NDArray[np.int64], segment_bytes: int) -> Iterator[tuple[int, int, int]]:
    """(segment, first, behind): which of some ascending offsets lie in which segment."""
    bases = offsets - offsets % segment_bytes
    borders = [0, *(np.flatnonzero(np.diff(bases)) + 1).tolist(), len(bases)]
    for first, behind in zip(borders, borders[1:], strict=False):
        if first < behind:
            yield int(bases[first]), first, behind


def _batches(chunks: Iterable[Records | Damage], heavy: bool) -> Iterator[Records | list[Damage]]:
    """Join small chunks of one window and cut large ones; what a batch weighs counts when bytes are wanted.

    What tells of damage stays in its place between them.
    """
    held: list[Any] = []
    place: LogWindow | None = None
    rows = weight = 0
    for chunk in chunks:
        for part, part_bytes in [(chunk, 0)] if isinstance(chunk, Damage) else _cut(chunk, heavy):
            window, count, rows_max = None, 1, DAMAGES_MAX
            if isinstance(part, Records):
                window, count, rows_max = part.window, len(part), BATCH_ROWS_MAX
            is_full = rows + count > rows_max or weight + part_bytes > BATCH_BYTES_MAX
            if held and (window is not place or is_full):
                yield held if place is None else Records.joined(held)
                held, rows, weight = [], 0, 0
            held.append(part)
            place, rows, weight = window, rows + count, weight + part_bytes
    if held:
        yield held if place is None else Records.joined(held)


def _cut(chunk: Records, heavy: bool) -> Iterator[tuple[Records, int]]:
    """Parts of a chunk that are within a batch's bytes, unless one record alone is above them."""
    if not heavy:
        yield chunk, 0
        return
    for first, end, part_bytes in cuts(chunk.sizes):
        yield chunk if end - first == len(chunk) else chunk.chosen(slice(first, end)), part_bytes


def cuts(sizes: Int32s) -> Iterator[tuple[int, int, int]]:
    """First, end and bytes of as many records of these sizes as a batch takes at a time, at least one."""
    ends, done = np.cumsum(sizes, dtype=np.int64), 0
    while done < len(sizes):
        before = int(ends[done - 1]) if done else 0
        until = max(done + 1, int(np.searchsorted(ends, before + BATCH_BYTES_MAX, "right")))
        until = min(until, done + BATCH_ROWS_MAX)
        yield done, until, int(ends[until - 1]) - before
        done = until
