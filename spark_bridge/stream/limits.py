"""How much one micro-batch takes: pure, from queues' entries and limits to the ends of a batch.

A batch that is cut is cut at one place of the log: it holds, of all queues, what lies before that place. So a query
that is behind reads the log in its own order, and no queue starves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

BYTES_BATCH_ROWS_MAX = 1 << 20  # a batch limited by bytes looks at so many entries at most


class Entries(Protocol):
    """The part of a queue that a limit needs to know."""

    def physical_offset(self, queue_offset: int) -> int: ...
    def block(self, start: int, end: int) -> Any: ...


class Span(NamedTuple):
    """The entries [start, end) of one queue that wait to be read."""

    entries: Entries
    start: int
    end: int


@dataclass(frozen=True)
class Limits:
    """The bounds of a batch's size, as the options say; None is no limit."""

    rows_max: int | None = None
    rows_min: int | None = None
    bytes_max: int | None = None
    delay_max_ms: int = 15 * 60_000

    def waits(self, rows: int, since_last_batch_ms: float) -> bool:
        """Whether a batch waits for more rows."""
        return self.rows_min is not None and rows < self.rows_min and since_last_batch_ms < self.delay_max_ms


def cut_to_rows(spans: Sequence[Span], rows_max: int) -> list[int]:
    """The spans' ends such that they hold `rows_max` rows together, the first ones in the log."""
    if sum(span.end - span.start for span in spans) <= rows_max:
        return [span.end for span in spans]
    low, high = [span.start for span in spans], [span.end for span in spans]
    below, above = 0, max(span.entries.physical_offset(span.end - 1) for span in spans if span.start < span.end) + 1
    while below + 1 < above and low != high:  # [below, above): the log offset at which exactly so many lie before
        middle = (below + above) // 2
        ends = [_end_below(span, a, b, middle) for span, a, b in zip(spans, low, high, strict=True)]
        if sum(ends) - sum(span.start for span in spans) <= rows_max:
            below, low = middle, ends
        else:
            above, high = middle, ends
    return low


def _end_below(span: Span, low: int, high: int, physical_offset: int) -> int:
    """The first entry of [low, high) at or above an offset of the log."""
    while low < high:
        middle = (low + high) // 2
        if span.entries.physical_offset(middle) < physical_offset:
            low = middle + 1
        else:
            high = middle
    return low


def cut_to_bytes(spans: Sequence[Span], bytes_max: int) -> list[int]:
    """The spans' ends such that their records have `bytes_max` bytes at most, one record at least."""
    import numpy as np  # not to read a stream's options, of which limits are some

    from store.message.record import FIXED_BYTES

    least_ends = cut_to_rows(spans, min(max(1, bytes_max // FIXED_BYTES), BYTES_BATCH_ROWS_MAX))
    blocks = [span.entries.block(span.start, end) for span, end in zip(spans, least_ends, strict=True)]
    offsets = np.concatenate([block["physical_offset"].astype(np.int64) for block in blocks])
    sizes = np.concatenate([block["size"].astype(np.int64) for block in blocks])
    if not len(offsets) or int(sizes.sum()) <= bytes_max:
        return least_ends
    order = np.argsort(offsets, kind="stable")
    fitting = max(1, int(np.searchsorted(np.cumsum(sizes[order]), bytes_max, "right")))
    last = int(offsets[order[fitting - 1]])
    return [
        span.start + int(np.count_nonzero(block["physical_offset"] <= last))
        for span, block in zip(spans, blocks, strict=True)
    ]
