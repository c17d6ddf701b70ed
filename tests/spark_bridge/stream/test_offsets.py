"""Offsets of a stream: their JSON, how they move, and what is called lost."""

from __future__ import annotations

import json

import pytest

from spark_bridge.stream.offsets import OffsetsMismatch, QueueKey, advance, deleted, from_json, given_up, share, to_json

A, B = QueueKey("", "orders", 2), QueueKey("", "orders", 10)
NORTH, SOUTH = QueueKey("north", "orders", 0), QueueKey("south", "orders", 0)
ALL, NONE = {"", "north", "south"}, set[str]()


def test_json_is_sorted_by_number_whatever_the_order_of_the_queues() -> None:
    texts = {json.dumps(to_json(offsets, by_store=False)) for offsets in ({A: 1, B: 2}, {B: 2, A: 1})}
    assert texts == {'{"orders": {"2": 1, "10": 2}}'}
    assert from_json(json.loads(texts.pop()), by_store=False) == {A: 1, B: 2}


def test_several_stores_have_a_level_of_their_own() -> None:
    offsets = {NORTH: 5, SOUTH: 7}
    found = to_json(offsets, by_store=True)
    assert found == {"north": {"orders": {"0": 5}}, "south": {"orders": {"0": 7}}}
    assert from_json(found, by_store=True) == offsets
    assert to_json({}, by_store=True) == to_json({}, by_store=False) == {}


@pytest.mark.parametrize(
    ("found", "by_store"),
    [
        ({"north": {"orders": {"0": 5}}}, False),
        ({"orders": {"0": 5}}, True),
        ({"orders": {"0": -1}}, False),
        ({"orders": {"zero": 1}}, False),
        ({"orders": 3}, False),
    ],
)
def test_offsets_of_another_shape_are_refused(found: dict[str, object], by_store: bool) -> None:
    with pytest.raises(OffsetsMismatch, match="new checkpointLocation"):
        from_json(found, by_store)


@pytest.mark.parametrize(
    ("why", "start", "there", "judged", "end", "lost"),
    [
        ("nothing new", {A: 5}, {A: (0, 5)}, ALL, {A: 5}, []),
        ("more", {A: 5}, {A: (0, 9)}, ALL, {A: 9}, []),
        ("a new queue is read from its beginning", {A: 5}, {A: (0, 5), B: (0, 3)}, ALL, {A: 5, B: 3}, []),
        ("deleted before it was read", {A: 5}, {A: (7, 9)}, ALL, {A: 9}, ["messages 5 to 6 were deleted"]),
        ("all of it deleted", {A: 5}, {A: (9, 9)}, ALL, {A: 9}, ["messages 5 to 8 were deleted"]),
        ("a new queue that lost its beginning", {}, {A: (3, 9)}, ALL, {A: 9}, ["messages 0 to 2 were deleted"]),
        ("deleted, but all of it was read", {A: 7}, {A: (7, 9)}, ALL, {A: 9}, []),
        ("a replica that is behind, and may come", {A: 5}, {A: (0, 3)}, NONE, {A: 5}, []),
        ("a replica that was behind, and took over", {A: 5}, {A: (0, 3)}, ALL, {A: 3}, ["offset 5 but ends at 3"]),
        ("not there yet", {A: 5}, {}, NONE, {A: 5}, []),
        ("gone", {A: 5}, {}, ALL, {}, ["the queue was deleted; it was read to offset 5"]),
    ],
)
def test_a_stream_advances_to_the_end_and_names_lost_offsets(
    why: str,
    start: dict[QueueKey, int],
    there: dict[QueueKey, tuple[int, int]],
    judged: set[str],
    end: dict[QueueKey, int],
    lost: list[str],
) -> None:
    step = advance(start, there, judged)
    assert step.end == end, why
    assert len(step.losses) == len(lost), why
    for loss, text in zip(step.losses, lost, strict=True):
        assert text in str(loss), why
        assert "topic orders queue 2" in str(loss), why


def test_what_a_batch_gave_up_is_named_again_when_it_runs() -> None:
    losses = given_up({A: 5, B: 5, NORTH: 5}, {B: 3, NORTH: 9})
    assert [str(loss).partition(":")[0] for loss in losses] == ["topic orders queue 2", "topic orders queue 10"]
    assert given_up({A: 5}, {A: 5, B: 1}) == []


def test_deleted_counts_only_what_the_batch_holds() -> None:
    (loss,) = deleted({A: 2, NORTH: 1}, {A: 4, NORTH: 1}, {A: (9, 12), NORTH: (9, 12)})
    assert "messages 2 to 3 were deleted" in loss.what


def test_a_limit_is_shared_by_what_waits() -> None:
    assert share(100, {"north": 300, "south": 100, "west": 0}) == {"north": 75, "south": 25, "west": 0}
    assert share(10, {"north": 1_000_000, "south": 1}) == {"north": 9, "south": 1}
    assert share(1, {"north": 5, "south": 5}) in ({"north": 1, "south": 0}, {"north": 0, "south": 1})
    assert share(7, {"north": 0}) == {"north": 0}
