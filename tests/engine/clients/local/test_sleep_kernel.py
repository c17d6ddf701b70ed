"""What wakes a consumer on the broker's host: a new queue, or the end of one that it watches."""

from __future__ import annotations

import numpy as np

from engine.clients.local.sleep_kernel import has_more
from engine.shared_memory.queue_table import TableWord


def test_more_is_a_new_queue_or_a_watched_end_that_moved() -> None:
    table = np.zeros(TableWord.NEXT_OFFSETS + 4, np.int64)
    table[TableWord.USED] = 3
    watch = np.array([0, 3, 0, 5, 2, 7], np.int64)
    assert not has_more(table, watch)
    table[TableWord.NEXT_OFFSETS + 1] = 100  # of a queue that nobody watches
    table[TableWord.NEXT_OFFSETS + 2] = 7
    assert not has_more(table, watch)
    table[TableWord.NEXT_OFFSETS + 2] = 8
    assert has_more(table, watch)
    assert has_more(table, np.array([0, 2], np.int64))
