"""A split of one segment's records from its side file where that may be believed, and from the segment where not.

Rows, their order and their types are the same either way. What only records have (bodies, properties, a condition on
them) is taken from the segment, of those rows that are left after the columns were asked.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from ipc.arrays import Int32s
from spark_bridge.columnar.conditions import Limits, SideRows, Wanted
from spark_bridge.columnar.names import CONSTANT, POSITION, SIZE, side_name
from spark_bridge.columnar.opened import NAMES, OpenSide, SideDamaged
from spark_bridge.records import reader as in_place
from spark_bridge.records.bodies import with_bodies
from spark_bridge.records.columns import Asked
from spark_bridge.records.freed_memory import keep_freed_memory
from spark_bridge.records.row_filter import RowFilter
from spark_bridge.records.walk import collected
from spark_bridge.replica.replica import await_planned
from spark_bridge.split.splits import RangeSplit, Split
from store.columns.columns import Column
from store.columns.records import Records
from store.columns.window import LogWindow, Positions, what_is_wrong
from store.errors import SegmentRemoved, SegmentSizeMismatch

logger = logging.getLogger("slipstream.spark")


class SideFigures:
    """Segments whose rows came from side files, and segments read in place, whole or in part."""

    def __init__(self) -> None:
        self.from_side_files: set[tuple[str, int]] = set()
        self.in_place: set[tuple[str, int]] = set()

    def by_name(self) -> dict[str, int]:
        """Return the number of segments of either kind, by name."""
        return {"fromSideFiles": len(self.from_side_files), "inPlace": len(self.in_place)}


def read_split(split: Split, asked: Asked) -> Iterator[pa.RecordBatch]:
    """Read a split like `records.reader.read_split`, from side files where rows may be and they cover what is asked.

    Damage that is looked for (`mode=permissive`, `verifyCrc=body`) is looked for in the segment. Raises the same.
    """
    for job in split_jobs(split, asked, SideFigures()):
        yield from job()


def split_jobs(split: Split, asked: Asked, figures: SideFigures) -> Iterator[in_place.Job]:
    """The same as jobs for threads: one for all of a segment with a side file, and those of a read in place."""
    rows = asked.rows
    if isinstance(split, RangeSplit):
        if rows.side_files and not (rows.permissive or rows.verify_body_crc):
            wanted = Wanted.of(split, asked.row_filter, NAMES)
            if wanted is not None and OpenSide.is_there(split.log, split.base_offset):
                yield partial(_with_side_file, split, wanted, asked, figures)
                return
        figures.in_place.add((split.log.commitlog, split.base_offset))
    yield from in_place.split_jobs(split, asked)


def _with_side_file(split: RangeSplit, wanted: Wanted, asked: Asked, figures: SideFigures) -> Iterator[pa.RecordBatch]:
    """The rows that the side file gives, and those behind them from the segment."""
    keep_freed_memory()
    place = split.log.commitlog, split.base_offset
    if (side := OpenSide.of(split.log, split.base_offset)) is not None:
        await_planned(split, asked.rows.replica_wait_s, queues_too=False)
        try:
            done = yield from _batches(side, wanted, split, asked)
        finally:
            side.close()
        if done > split.start:
            figures.from_side_files.add(place)
        if done >= split.end:
            return
        split = replace(split, start=max(split.start, done))
    figures.in_place.add(place)
    yield from in_place.read_split(split, asked)


def _batches(side: OpenSide, wanted: Wanted, split: RangeSplit, asked: Asked) -> Generator[pa.RecordBatch, None, int]:
    """The rows of a split; returns up to where: its end, or where damage begins, which is left to the segment."""
    window = None
    if wanted.later is not None or not _only_columns(asked.columns):
        try:
            window = in_place.open_window(split.log, split.base_offset)
        except (SegmentRemoved, SegmentSizeMismatch):  # who reads it in place tells
            return split.start
    names = _names(asked.columns, window is not None)
    for group, limits in enumerate(side.limits):
        if wanted.none_within(limits):
            continue
        _keep_lease(split)
        try:
            table = _rows_of(side, group, wanted, limits, names)
        except SideDamaged as error:
            logger.warning("read in the segment instead: %s", error)
            return int(limits[POSITION][0])
        if not len(table):
            continue
        if window is None:
            yield from _of_columns(table, asked, split.log.broker_name)
        else:
            yield from _with_records(table, window, wanted.later, asked)
    return split.end


def _keep_lease(split: RangeSplit) -> None:
    if split.log.lease is not None:
        from spark_bridge.split.leases import keep  # it has to know processes, which reading does not

        keep(split.log.lease)


def _only_columns(columns: Sequence[Column]) -> bool:
    """Whether no record has to be looked at."""
    return all(side_name(column.name) in NAMES or column.name in CONSTANT for column in columns)


def _names(columns: Sequence[Column], with_records: bool) -> list[str]:
    """Return the columns of the side file that have to be read to make these."""
    names = {side_name(column.name) for column in columns} & NAMES
    if with_records:
        names |= {POSITION, SIZE}
    return sorted(names or {POSITION})


def _rows_of(side: OpenSide, group: int, wanted: Wanted, limits: Limits, names: list[str]) -> pa.Table:
    """The wanted rows of a group, with these columns; what is asked about is read before the rest."""
    first = sorted({name for question in wanted.questions(limits) for name in question.columns})
    if not first:
        return side.read(group, names)
    table = side.read(group, first)
    mask = wanted.mask(SideRows(table.column), limits)
    if mask is not None and not mask.any():
        return table.slice(0, 0)
    others = [name for name in names if name not in first]
    rest = side.read(group, others) if others else table
    whole = pa.table({name: (rest if name in others else table).column(name) for name in names})
    return whole if mask is None else whole.filter(pa.array(mask))


def _of_columns(table: pa.Table, asked: Asked, broker_name: str) -> Iterator[pa.RecordBatch]:
    """Batches for which no record is looked at."""
    nowhere = LogWindow("", 0, np.empty(0, np.uint8), 0, broker_name)
    for start in range(0, len(table), in_place.BATCH_ROWS_MAX):
        part = table.slice(start, in_place.BATCH_ROWS_MAX)
        yield _batch(part, Records(nowhere, np.zeros(len(part), np.int64)), asked)


def _with_records(
    table: pa.Table, window: LogWindow, later: RowFilter | None, asked: Asked
) -> Iterator[pa.RecordBatch]:
    """Batches whose rows are records of the segment, too."""
    all_positions = table.column(POSITION).to_numpy() - window.base_offset
    for first, whole in records_in_batches(window, all_positions, table.column(SIZE).to_numpy()):
        known, positions, done = table.slice(first, len(whole)), whole.starts, 0
        if later is not None:
            whole = later.kept(whole)
            known = known.take(pa.array(np.searchsorted(positions, whole.starts)))
        for records in with_bodies(whole, asked.rows, asked.reads_bodies) if len(whole) else ():
            yield _batch(known.slice(done, len(records)), records, asked)
            done += len(records)


def records_in_batches(window: LogWindow, positions: Positions, sizes: Int32s) -> Iterator[tuple[int, Records]]:
    """The records at the positions, as many at a time as a batch takes, with the number of the first of them.

    Heads are copied by the batch, which caches hold. Raises CorruptRecord unless a record of its size begins at each.
    """
    for first, end, _ in in_place.cuts(sizes):
        yield first, _records_of(window, positions[first:end], sizes[first:end])


def _records_of(window: LogWindow, positions: Positions, sizes: Int32s) -> Records:
    records = collected(window, positions)
    if len(records) == len(positions):
        wrong = np.flatnonzero(records.sizes != sizes)
        if len(wrong):
            row = int(wrong[0])
            raise window.corrupt(int(positions[row]), f"size {records.sizes[row]}, {sizes[row]} in its side file")
        return records
    at = next(at for at in positions.tolist() if not len(collected(window, np.array([at]))))
    raise window.corrupt(at, what_is_wrong(window, at) or "it is cut off")


def _batch(table: pa.Table, records: Records, asked: Asked) -> pa.RecordBatch:
    names = [side_name(column.name) for column in asked.columns]
    return asked.batch(
        _joined(table.column(name)) if name in NAMES else column.build(records)
        for name, column in zip(names, asked.columns, strict=True)
    )


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
