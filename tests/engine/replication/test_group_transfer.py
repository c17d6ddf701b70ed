"""The compiled case of one slave says what the pure rule says, and gives way to it in every other case."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.protocol.ha.group_transfer import SlaveAck, confirm_offset
from engine.replication.group_transfer import GroupTransfer
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.files.pointer import COUNTERS_FILE

FALLBEHIND_BYTES = 1000


def counters_of(tmp_path: Path) -> BrokerCounters:
    return BrokerCounters.create(tmp_path / COUNTERS_FILE)


def slave(counters: BrokerCounters, slot: int, acked: int) -> None:
    waiting.publish(counters.ha[slot].peer, (127 << 24 | 1) << 16 | 40_000 + slot)
    waiting.publish(counters.ha[slot].held_offset, acked)
    waiting.publish(counters.ha[slot].slave_ack_offset, acked)
    waiting.publish(counters.ha[slot].state, 2)


@pytest.mark.parametrize("acked", [0, 1, 499, 500])
def test_one_slave_in_step_is_followed_in_compiled_code(tmp_path: Path, acked: int) -> None:
    counters = counters_of(tmp_path)
    waiting.publish(counters.max_physical_offset, 500)
    slave(counters, 3, 0)
    role = GroupTransfer(counters, 2, FALLBEHIND_BYTES)
    role.do_work(0)
    assert counters.in_sync_slaves.read() == 1
    waiting.publish(counters.ha[3].held_offset, acked)
    waiting.publish(counters.ha[3].slave_ack_offset, acked)
    role.idle(1)
    assert counters.confirm_offset.read() == confirm_offset([SlaveAck(1, acked)], 2, 500) == acked


def test_what_was_confirmed_stays_confirmed(tmp_path: Path) -> None:
    counters = counters_of(tmp_path)
    waiting.publish(counters.max_physical_offset, 500)
    slave(counters, 0, 400)
    role = GroupTransfer(counters, 2, FALLBEHIND_BYTES)
    role.do_work(0)
    waiting.publish(counters.ha[0].held_offset, 300)
    waiting.publish(counters.ha[0].slave_ack_offset, 300)  # another connection of the slot, not that far yet
    role.idle(1)
    role.do_work(0)
    assert counters.confirm_offset.read() == 400


@pytest.mark.parametrize(
    ("why", "acks", "end", "in_sync", "confirmed"),
    [
        ("the slave went", {}, 500, 0, 100),
        ("a second one came", {0: 200, 1: 300}, 500, 2, 300),
        ("it fell too far behind", {0: 200}, 5000, 0, 200),
    ],
)
def test_any_other_case_is_left_to_the_rule(
    tmp_path: Path, why: str, acks: dict[int, int], end: int, in_sync: int, confirmed: int
) -> None:
    counters = counters_of(tmp_path)
    waiting.publish(counters.max_physical_offset, 500)
    slave(counters, 0, 100)
    role = GroupTransfer(counters, 2, FALLBEHIND_BYTES)
    role.do_work(0)
    waiting.publish(counters.ha[0].state, 0)
    waiting.publish(counters.max_physical_offset, end)
    for slot, acked in acks.items():
        slave(counters, slot, acked)
    role.idle(1)
    role.do_work(0)
    assert (counters.in_sync_slaves.read(), counters.confirm_offset.read()) == (in_sync, confirmed), why


def test_each_number_of_replicas_is_confirmed_where_puts_differ_in_it(tmp_path: Path) -> None:
    counters = counters_of(tmp_path)
    waiting.publish(counters.max_physical_offset, 500)
    for slot, acked in enumerate((400, 300)):
        slave(counters, slot, acked)
    role = GroupTransfer(counters, 2, FALLBEHIND_BYTES, for_each_count=True)
    role.do_work(0)
    confirmed = {count: cursor.read() for count, cursor in counters.confirm_offsets.items()}
    assert [confirmed[count] for count in (1, 2, 3, 4)] == [500, 400, 300, 0]
    waiting.publish(counters.ha[0].state, 0)
    role.do_work(0)
    assert counters.confirm_offsets[3].read() == 300, "what was held once stays confirmed"


def test_two_replicas_needed_are_never_confirmed_by_one(tmp_path: Path) -> None:
    counters = counters_of(tmp_path)
    waiting.publish(counters.max_physical_offset, 500)
    slave(counters, 0, 500)
    role = GroupTransfer(counters, 3, FALLBEHIND_BYTES)
    role.do_work(0)
    role.idle(1)
    role.do_work(0)
    assert counters.confirm_offset.read() == 0


def test_a_slave_is_in_step_by_what_it_says_and_confirms_what_it_is_shown_to_hold(tmp_path: Path) -> None:
    counters = counters_of(tmp_path)
    waiting.publish(counters.max_physical_offset, 5000)
    slave(counters, 0, 4900)
    waiting.publish(counters.ha[0].held_offset, 100)
    role = GroupTransfer(counters, 2, FALLBEHIND_BYTES)
    for _ in range(2):  # by the rule, then in compiled code
        role.do_work(0)
        role.idle(1)
        assert (counters.confirm_offset.read(), counters.in_sync_slaves.read()) == (100, 1)
    role.close()
