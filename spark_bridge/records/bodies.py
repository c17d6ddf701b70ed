"""Bodies as their senders made them: checked against their CRC if asked for, and inflated where they are compressed.

Only the compressed ones are touched one by one. What they grow to is bounded: a batch is cut where it gets large.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np

from spark_bridge.options.rows import RowOptions
from spark_bridge.records.damage import error_text
from store.columns.records import Records
from store.errors import MalformedData, StoreError
from store.message.compression import body_of
from store.message.record import BODY_CRC_AT, CRC_MASK, SysFlag

INFLATED_BYTES_MAX = 16 << 20
_COMPRESSED = int(SysFlag.COMPRESSED)


def with_bodies(records: Records, options: RowOptions, wanted: bool) -> Iterator[Records]:
    """Yield the records, in parts where `wanted` bodies grow. Raises CorruptRecord, MalformedData unless permissive."""
    if options.verify_body_crc:
        _check_crc(records, options)
    flags = records.sys_flag
    compressed = np.flatnonzero(flags & _COMPRESSED) if wanted else np.empty(0, np.intp)
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
            note(records, row, MalformedData(records.place(row), error.reason), options)
        if grown > INFLATED_BYTES_MAX:
            yield _part(records, done, row + 1)
            done, grown = row + 1, 0
    yield _part(records, done, len(records))


def note(records: Records, row: int, error: StoreError, options: RowOptions) -> None:
    """Keep why a row has no body, or raise it."""
    if not options.permissive:
        raise error
    records.errors[row] = error_text(error)


def _part(records: Records, first: int, end: int) -> Records:
    """Rows [first, end) alone; their bodies are let go of by the whole."""
    if (first, end) == (0, len(records)):
        return records
    part = records.chosen(slice(first, end))
    part.errors = {row - first: text for row, text in records.errors.items() if first <= row < end}
    part.bodies = {row - first: records.bodies.pop(row) for row in list(records.bodies) if first <= row < end}
    return part


def _check_crc(records: Records, options: RowOptions) -> None:
    """Note each body whose CRC-32 is not the stored one."""
    stored = records.int32_at(BODY_CRC_AT)
    view = records.window.bytes.data
    spans = zip(records.body_at.tolist(), records.body_length.tolist(), stored.tolist(), strict=True)
    for row, (at, length, expected) in enumerate(spans):
        crc = zlib.crc32(view[at : at + length]) & CRC_MASK
        if crc != expected and length:
            reason = f"its body has CRC {crc:#010x}, not {expected:#010x} as stored"
            note(records, row, records.window.corrupt(int(records.starts[row]), reason), options)
