"""What entries of a consume queue say, held against the records they name: size, topic, queue and place in the queue.

An entry that names another whole record would give one message twice and hide another. A multi-dispatch queue
(`%LMQ%`) holds messages of other topics: those name the queue, and their place there, in two properties.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ipc.arrays import Int32s
from store.columns.records import Records, faults
from store.columns.spans import writable
from store.columns.window import LogWindow, Mask, Positions, what_is_wrong
from store.errors import CorruptRecord
from store.message.multi_dispatch import SEPARATOR
from store.message.properties import MULTI_DISPATCH, MULTI_QUEUE_OFFSET
from store.message.record import FIXED_BYTES, QUEUE_ID_AT, QUEUE_OFFSET_AT
from store.message.topics import is_lmq
from store.message.walk_kernel import Head, Named, Naming, Part, collect_named

REBUILD = "the queue is wrong: stop the broker and rebuild the queues with `slipstream log rebuild queue`"


class QueueEntries(NamedTuple):
    """Entries of one queue that name records of one window: their numbers, and the position and size each names."""

    topic: str
    queue_id: int
    numbers: Positions
    positions: Positions
    sizes: Int32s

    def at(self, rows: npt.NDArray[Any]) -> QueueEntries:
        """Return some of the entries, by their rows or a mask."""
        return self._replace(numbers=self.numbers[rows], positions=self.positions[rows], sizes=self.sizes[rows])


def records_named(window: LogWindow, entries: QueueEntries) -> Records:
    """The records that the entries name. Raises CorruptRecord unless each is of its entry's size, and its message."""
    records, wrong = judged(window, entries)
    if len(wrong):
        raise entry_error(window, entries, int(wrong[0]))
    return records


def judged(window: LogWindow, entries: QueueEntries) -> tuple[Records, npt.NDArray[np.intp]]:
    """The records, and the rows of entries that name no record of their size, or another message.

    Of rows without a record heads and parts say nothing.
    """
    count, topic = len(entries.positions), np.frombuffer(entries.topic.encode(), np.uint8)
    heads, parts = (np.empty((len(columns), count), np.int64) for columns in (Head, Part))
    sizes, verdicts = np.require(entries.sizes, np.int32, ["C", "W"]), np.empty(count, np.uint8)
    named = Named(writable(entries.positions), sizes, writable(entries.numbers), topic, entries.queue_id)
    if collect_named(window.bytes, named, window.base_offset, heads, parts, verdicts):
        others = np.flatnonzero(verdicts == Naming.OTHER)  # a multi-dispatch queue holds messages of other topics
        verdicts[others[_are_dispatched_to_the_queue(window, entries.at(others))]] = Naming.OWN
    return Records(window, heads[Head.START], heads, parts), np.flatnonzero(verdicts)


def _are_dispatched_to_the_queue(window: LogWindow, entries: QueueEntries) -> Mask:
    """Return which records name the queue, with the entry's number, among those they belong to besides their own."""
    import pyarrow.compute as pc  # few reads ask, and it is slow to load

    dispatched = np.zeros(len(entries.positions), np.bool_)
    sound = np.delete(np.arange(len(dispatched)), list(faults(Records(window, entries.positions))))
    records = Records(window, entries.positions[sound])
    names = _parts(records.property_value(MULTI_DISPATCH))
    offsets = _parts(records.property_value(MULTI_QUEUE_OFFSET))
    paired = pc.fill_null(pc.equal(pc.list_value_length(names), pc.list_value_length(offsets)), False)
    paired = np.flatnonzero(paired.to_numpy(zero_copy_only=False))
    if not len(paired):
        return dispatched
    names, offsets = names.take(pa.array(paired)), offsets.take(pa.array(paired))
    row = sound[paired][pc.list_parent_indices(names).to_numpy()]
    numbers = pa.array(entries.numbers[row]).cast(pa.string())
    named = pc.and_(pc.equal(names.flatten(), entries.topic), pc.equal(offsets.flatten(), numbers))
    dispatched[row[named.to_numpy(zero_copy_only=False)]] = True
    if not (is_lmq(entries.topic) and entries.queue_id == 0):
        dispatched &= window.int32(entries.positions + QUEUE_ID_AT) == entries.queue_id
    return dispatched


def _parts(texts: pa.StringArray) -> pa.ListArray:
    """The parts of each text as String.split has them: no empty ones at the end."""
    import pyarrow.compute as pc

    return pc.split_pattern(pc.utf8_rtrim(texts, SEPARATOR), SEPARATOR)


def entry_error(window: LogWindow, entries: QueueEntries, row: int) -> CorruptRecord:
    """The error for an entry that names no record of its size, or another message."""
    position, size = int(entries.positions[row]), int(entries.sizes[row])
    if position < 0 or size < FIXED_BYTES or position + size > window.length:
        return window.corrupt(position, f"a consume queue places a record of size {size} there, outside the log")
    in_record = int(window.view(">i4")[position])
    if in_record != size:
        return window.corrupt(position, f"size {in_record}, {size} in the consume queue")
    record = Records(window, entries.positions[row : row + 1])
    reason = what_is_wrong(window, position) or next(iter(faults(record).values()), "")
    if reason:
        return window.corrupt(position, reason)
    entry = f"entry {entries.numbers[row]} of queue {entries.queue_id} of {entries.topic!r} names it"
    place = record.int64_at(QUEUE_OFFSET_AT)[0], record.int32_at(QUEUE_ID_AT)[0], record.topic[0].as_py()
    reason = "{}, but it is message {} of queue {} of {!r}".format(entry, *place)
    return CorruptRecord(window.path, window.base_offset + position, reason, REBUILD)
