"""What tells one log from another: a sum of one message, made of what it says of itself and nothing of its body."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from spark_bridge.split.splits import LogExtent, RecordSplit, Selection, Split
from store.epochs import INT64_MAX
from store.errors import StoreError

SUMMED = ("topic", "queueId", "queueOffset", "physicalOffset", "msgId", "storeTimestamp", "bornTimestamp", "bodyLength")
DAMAGED = 0  # nobody can say what it was

Read = Callable[[Split, Sequence[str]], Iterable[pa.RecordBatch]]  # these columns of a split, nothing decoded


def sum_at(read: Read, log: LogExtent, physical_offset: int) -> int | None:
    """The sum of the message that begins there; None without one, DAMAGED where it cannot be read."""
    try:
        return sum_of(read(RecordSplit(log, (physical_offset,), Selection()), SUMMED))
    except StoreError:
        return DAMAGED


def sum_of(batches: Iterable[pa.RecordBatch]) -> int | None:
    """Return the sum of the one message in these batches of SUMMED; None without a message."""
    summed, rows = hashlib.sha256(), 0
    for batch in batches:
        rows += batch.num_rows
        for column in batch.columns:
            values = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
            summed.update(repr(values.to_pylist()).encode())
    if not rows:
        return None
    return int.from_bytes(summed.digest()[:8]) & INT64_MAX or 1
