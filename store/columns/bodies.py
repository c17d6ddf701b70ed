"""Bodies as their senders made them: inflated where they are compressed.

Only the compressed ones are touched one by one. What they grow to is bounded: a batch is cut where it gets large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from store.columns.records import Records
from store.errors import MalformedData
from store.message.compression import body_of
from store.message.record import SysFlag

INFLATED_BYTES_MAX = 16 << 20
_COMPRESSED = int(SysFlag.COMPRESSED)


def inflated(records: Records, note: Callable[[Records, int, MalformedData], None]) -> Iterator[Records]:
    """Yield the records, in parts where bodies grow. `note` keeps why a row has no body in `errors`, or raises it."""
    flags = records.sys_flag
    compressed = np.flatnonzero(flags & _COMPRESSED)
    if not len(compressed):
        yield records
        return
    done = grown = 0
    view, starts, lengths = records.window.bytes.data, records.body_at, records.body_length
    for row in compressed.tolist():
        if row in records.errors:
            continue
        try:
            stored = view[int(starts[row]) : int(starts[row] + lengths[row])]
            records.bodies[row] = body_of(stored, int(flags[row]))
            grown += len(records.bodies[row])
        except MalformedData as error:
            note(records, row, MalformedData(records.place(row), error.reason))
        if grown > INFLATED_BYTES_MAX:
            yield _part(records, done, row + 1)
            done, grown = row + 1, 0
    yield _part(records, done, len(records))


def _part(records: Records, first: int, end: int) -> Records:
    """Rows [first, end) alone; their bodies are let go of by the whole."""
    if (first, end) == (0, len(records)):
        return records
    part = records.chosen(slice(first, end))
    part.errors = {row - first: text for row, text in records.errors.items() if first <= row < end}
    part.bodies = {row - first: records.bodies.pop(row) for row in list(records.bodies) if first <= row < end}
    return part
