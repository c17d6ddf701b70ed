"""Bodies as a read asks for them: checked against their CRC, inflated, and with an error of their own if permissive."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import partial

from spark_bridge.options.rows import RowOptions
from spark_bridge.records.damage import error_text
from store.columns.bodies import inflated
from store.columns.records import Records
from store.errors import StoreError
from store.message.record import BODY_CRC_AT, CRC_MASK


def with_bodies(records: Records, options: RowOptions, wanted: bool) -> Iterator[Records]:
    """Yield the records, in parts where `wanted` bodies grow. Raises CorruptRecord, MalformedData unless permissive."""
    if options.verify_body_crc:
        _check_crc(records, options)
    if wanted:
        yield from inflated(records, partial(note, options=options))
    else:
        yield records


def note(records: Records, row: int, error: StoreError, options: RowOptions) -> None:
    """Keep why a row has no body, or raise it."""
    if not options.permissive:
        raise error
    records.errors[row] = error_text(error)


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
