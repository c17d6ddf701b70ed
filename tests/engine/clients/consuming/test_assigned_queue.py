"""What a queue hands out and what may be committed of it, whatever is done in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from engine.clients.blocks import Block, blocks_of
from engine.clients.cluster import Place
from engine.clients.consuming.assigned_queue import AssignedQueue, Bounds
from engine.clients.consuming.received import ReceivedMessage
from engine.clients.consuming.shelf import Handed
from engine.clients.measure_kernel import Part
from store.message import properties as property_string
from store.message.record import Message, encode
from store.message.walk_kernel import ALL_TAGS

PLACE = Place("t", "b", 0)


def at(*offsets: int) -> list[Block]:
    frame = b"".join(encode(topic="t", body=b"body", queue_offset=offset) for offset in offsets)
    return blocks_of(frame, ALL_TAGS, 0, "b")


def offsets_of(messages: Sequence[Message]) -> list[int]:
    return [message.queue_offset for message in messages]


def offsets_in(block: Block) -> list[int]:
    offsets: list[int] = block.parts[:, Part.QUEUE_OFFSET].tolist()
    return offsets


STEPS = st.lists(st.sampled_from(["pull", "take", "blocks", "done", "again"]), max_size=60)


@given(STEPS, st.randoms())
def test_nothing_undone_is_below_what_may_be_committed(steps: list[str], random: object) -> None:
    queue, done, pulled = AssignedQueue(PLACE, 5), set(), 5
    held: list[Block] = []  # a message's, or several together
    for step in steps:
        match step:
            case "pull":
                queue.pulled(at(pulled, pulled + 2), pulled + 3)  # the one between is not wanted
                pulled += 3
            case "take":
                held += [message.block() for message in queue.take(2)]
            case "blocks":
                held += queue.take_blocks(3, None)
            case _ if held:
                block = held.pop(random.randrange(len(held)))  # type: ignore[attr-defined]
                if step == "done":
                    queue.done(block.first, queue.turn)
                    done |= set(offsets_in(block))
                else:
                    queue.again(block, queue.turn, 0.0)
        wanted = {offset for offset in range(5, pulled) if (offset - 5) % 3 != 1}
        in_hand = [offset for block in held for offset in offsets_in(block)]
        assert queue.consumed_to == min(wanted - done, default=pulled)
        assert queue.waiting + len(in_hand) == len(wanted - done) and queue.handed_out == len(held)
    left = offsets_of(queue.take(999))
    assert left == sorted(set(left)) and {*left, *in_hand} == wanted - done if steps else not left


def test_blocks_of_one_broker_are_handed_out_together() -> None:
    queue = AssignedQueue(PLACE, 0)
    queue.pulled(at(0, 1), 2)
    queue.pulled(at(2, 3), 4)
    queue.pulled(blocks_of(encode(topic="t", body=b"body", queue_offset=4), ALL_TAGS, 0, "other"), 5)
    blocks = queue.take_blocks(3, None)
    assert [offsets_in(block) for block in blocks] == [[0, 1], [2]]
    assert [offsets_in(block) for block in queue.take_blocks(9, blocks[0].origin)] == [[3]]
    assert queue.take_blocks(9, blocks[0].origin) == [] and queue.waiting == 1
    queue.done(0, queue.turn)
    assert queue.consumed_to == 2


def test_a_message_that_comes_twice_is_handed_out_once() -> None:
    queue = AssignedQueue(PLACE, 0)
    queue.pulled(at(0, 1), 2)
    queue.pulled(at(1, 2), 3)
    assert offsets_of(queue.take(9)) == [0, 1, 2]


def test_in_order_nothing_comes_before_the_message_in_hand_is_done() -> None:
    queue = AssignedQueue(PLACE, 0, in_order=True)
    queue.pulled(at(0, 1), 2)
    [first] = queue.take(1)
    assert not queue.may_hand_out(0.0)
    queue.again(first.block(), queue.turn, until=1.0)
    assert not queue.may_hand_out(0.5) and queue.may_hand_out(1.0), "it rests"
    assert offsets_of(queue.take(1)) == [0], "the same one"
    queue.done(0, queue.turn)
    assert offsets_of(queue.take(1)) == [1]


def test_nothing_is_handed_out_once_another_member_may_have_the_lock() -> None:
    queue = AssignedQueue(PLACE, 0, in_order=True)
    queue.pulled(at(0), 1)
    queue.locked_until = 5.0
    assert queue.may_hand_out(4.9) and not queue.may_hand_out(5.0)


def test_only_a_retry_topic_hides_the_topic_that_a_message_was_sent_to() -> None:
    texts = property_string.format({"RETRY_TOPIC": "orders"})
    for topic, shown in (("%RETRY%g", "orders"), ("%DLQ%g", "%DLQ%g"), ("another", "another")):
        queue, record = AssignedQueue(PLACE, 0), encode(topic=topic, body=b"x", properties=texts)
        queue.pulled(blocks_of(record, ALL_TAGS, 0, "b"), 1)
        [message] = queue.take(1)
        assert ReceivedMessage(Handed(message, queue, 0), cast(Any, None)).topic == shown


def test_a_queue_that_is_read_from_elsewhere_forgets_what_was_handed_out() -> None:
    queue = AssignedQueue(PLACE, 0)
    queue.pulled(at(0, 1), 2)
    [old, _] = queue.take(2)
    turn = queue.turn
    queue.read_from(0)
    queue.pulled(at(0), 1)
    queue.done(old.queue_offset, turn)
    assert queue.consumed_to == 0, "what was done before the change says nothing of what comes behind it"
    queue.again(old.block(), turn, 0.0)
    assert offsets_of(queue.take(9)) == [0]


def test_a_queue_is_full_by_messages_by_bytes_and_by_its_span() -> None:
    queue = AssignedQueue(PLACE, 0)
    queue.pulled(at(0, 1, 2), 100)
    assert queue.is_full(Bounds(messages=3)) and not queue.is_full(Bounds(messages=4))
    assert queue.is_full(Bounds(bytes=12)) and not queue.is_full(Bounds(bytes=13))
    assert queue.is_full(Bounds(span=100)) and not queue.is_full(Bounds(span=101))
    for message in queue.take(3):
        queue.done(message.queue_offset, queue.turn)
    assert not queue.is_full(Bounds(messages=1, bytes=1, span=1))


def test_a_paused_queue_and_a_dropped_one_hand_out_nothing() -> None:
    queue = AssignedQueue(PLACE, 0)
    queue.pulled(at(0), 1)
    queue.is_paused = True
    assert not queue.may_hand_out(0.0)
    queue.is_paused = False
    assert queue.may_hand_out(0.0)
    queue.is_dropped = True
    assert not queue.may_hand_out(0.0)
