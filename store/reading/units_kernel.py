"""Units of a consume queue of either kind as rows of words, decoded where they lie.

Implements: ConsumeQueueIterator, BatchConsumeQueueIterator
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from ipc.arrays import Bytes, Words
from ipc.compiled.kernels import kernel
from ipc.compiled.memory import load_be16, load_be32, load_be64
from store.message.unit import Unit
from store.queues.batch_consume_queue import BATCH_DTYPE
from store.queues.consume_queue import ENTRY_BYTES, ENTRY_SIZE_AT, ENTRY_TAGS_AT, PREFILL_SIZE

BASE_AT, COUNT_AT = (int(BATCH_DTYPE.fields[name][1]) for name in ("base_offset", "count"))  # type: ignore[index]


@kernel
def decode_units(array: Bytes, at: int, count: int, unit_bytes: int, queue_offset: int, rows: Words) -> None:
    """The `count` units from byte `at` on; a plain queue's first one has that queue offset."""
    for index in range(count):
        rows[index, Unit.PHYSICAL_OFFSET] = load_be64(array, at)
        rows[index, Unit.SIZE] = load_be32(array, at + ENTRY_SIZE_AT)
        rows[index, Unit.TAGS_CODE] = load_be64(array, at + ENTRY_TAGS_AT)
        if unit_bytes == ENTRY_BYTES:
            rows[index, Unit.QUEUE_OFFSET], rows[index, Unit.MESSAGES] = queue_offset + index, 1
        else:
            rows[index, Unit.QUEUE_OFFSET] = load_be64(array, at + BASE_AT)
            rows[index, Unit.MESSAGES] = load_be16(array, at + COUNT_AT)
        at += unit_bytes


@kernel
def first_living(array: Bytes, units: int, unit_bytes: int, min_physical_offset: int) -> int:
    """The first of the units that are there whose record the log still has; `units` where it has none.

    Units that point nowhere stand before all others; behind the last one there are zeros.
    """
    low, high = 0, units
    while low < high:
        middle = (low + high) // 2
        at = middle * unit_bytes
        size = load_be32(array, at + ENTRY_SIZE_AT)
        is_used = size > 0
        if is_used and (size == PREFILL_SIZE or load_be64(array, at) < min_physical_offset):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def batch_unit_of(array: Bytes, units: int, unit_bytes: int, queue_offset: int) -> int:
    """The last of a batch queue's units whose messages begin at or before that one; -1 where none does."""
    low, high = 0, units
    while low < high:
        middle = (low + high) // 2
        at = middle * unit_bytes
        if load_be32(array, at + ENTRY_SIZE_AT) > 0 and load_be64(array, at + BASE_AT) <= queue_offset:
            low = middle + 1
        else:
            high = middle
    return low - 1
