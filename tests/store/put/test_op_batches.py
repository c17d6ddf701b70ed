"""When op messages are written: at once when there is enough, else after a while; nothing twice, nothing lost."""

from __future__ import annotations

from store.put.op_batches import OpBatches


def test_offsets_wait_for_the_interval() -> None:
    ops = OpBatches(interval_ms=3000)
    assert ops.next_due_ms() is None
    ops.add(0, "1,", 1000)
    ops.add(0, "2,", 2000)
    assert ops.due(3999) == []
    assert ops.next_due_ms() == 4000
    assert ops.due(4000) == [(0, "1,2,")]
    assert ops.due(9000) == []
    ops.add(0, "3,", 9000)
    assert ops.due(9000) == [(0, "3,")], "the last one was written long ago"


def test_a_full_queue_does_not_wait() -> None:
    ops = OpBatches(bytes_max=10)
    for number in range(5):
        ops.add(0, f"{number}1,", 0)
    assert ops.due(0) == [(0, "01,11,21,31,")]
    assert ops.due(0) == []
    assert ops.due(3000) == [(0, "41,")]


def test_with_a_size_of_one_each_offset_is_a_message_of_its_own() -> None:
    ops = OpBatches(bytes_max=1)
    ops.add(0, "7,", 0)
    ops.add(3, "8,", 0)
    ops.add(0, "9,", 0)
    assert ops.due(0) == [(0, "7,"), (0, "9,"), (3, "8,")]


def test_all_op_messages_are_due_at_the_end() -> None:
    ops = OpBatches()
    ops.add(0, "1,", 0)
    ops.add(1, "2,", 0)
    assert ops.due(0, all_of_them=True) == [(0, "1,"), (1, "2,")]
