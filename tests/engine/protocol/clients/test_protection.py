"""Groups that read too slowly are stopped, once."""

from __future__ import annotations

from engine.protocol.clients import protection
from engine.protocol.clients.protection import SlowGroups


def test_a_group_too_far_behind_in_any_queue_is_reported_once() -> None:
    slow = SlowGroups()
    for group, queue_id, behind in (("a", 0, 5), ("a", 1, 500), ("b", 0, 100), ("c", 0, 900), ("c", 0, 20)):
        slow.note(group, "t", queue_id, behind)
    assert slow.take(100) == [("a", 500)]
    assert slow.take(100) == []
    slow.note("a", "t", 0, 101)
    assert slow.take(100) == [("a", 101)] and slow.take(50) == [("b", 100)]


def test_the_number_of_noted_queues_is_bounded_and_each_look_frees_room() -> None:
    slow, before = SlowGroups(), protection.QUEUES_MAX
    for queue_id in range(before):
        slow.note("a", "t", queue_id, 7)
    slow.note("b", "t", 0, 9)
    assert slow.take(8) == []
    assert slow.take(6) == [("a", 7)]
    slow.note("b", "t", 0, 9)
    assert slow.take(8) == [("b", 9)]
