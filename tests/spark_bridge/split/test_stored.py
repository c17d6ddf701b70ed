"""Bounds in time are found by queue, and told to a split in short."""

from __future__ import annotations

from spark_bridge.split.stored import StoredBounds, StoredByQueue

SAME = [StoredBounds("t", number, 5, None) for number in range(4)]
GENERAL = StoredBounds(None, None, None, 9)


def test_bounds_that_all_queues_of_a_split_share_are_sent_once() -> None:
    assert StoredByQueue(SAME).of_queues([("t", 1), ("t", 3)]) == (StoredBounds(None, None, 5, None),)
    assert StoredByQueue(SAME).of_queues([("t", 1), ("t", 9)]) == (SAME[1],), "one without bounds is read whole"
    other = StoredBounds("u", 0, 6, None)
    assert StoredByQueue([*SAME, other]).of_queues([("u", 0), ("t", 2)]) == (other, SAME[2])
    assert StoredByQueue([*SAME, GENERAL]).of_queues([("t", 0)]) == (GENERAL, StoredBounds(None, None, 5, None))
    assert StoredByQueue([GENERAL]).of_queues([("t", 0)]) == (GENERAL,)


def test_the_first_bounds_that_are_of_a_queue_count() -> None:
    assert StoredByQueue([*SAME, GENERAL]).times_of("t", 1) == (5, None)
    assert StoredByQueue([*SAME, GENERAL]).times_of("u", 1) == (None, 9)
    assert StoredByQueue([GENERAL, *SAME]).times_of("t", 1) == (None, 9)
    assert StoredByQueue(SAME).times_of("u", 0) == (None, None)
