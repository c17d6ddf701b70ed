"""Which put is answered with what."""

from __future__ import annotations

import pytest

from engine.protocol.ha.group_transfer import (
    SlaveAck,
    confirm_offset,
    in_sync_slaves,
    push2_slave_max_offset,
    slave_identity,
)
from engine.protocol.ha.policy import PutPolicy
from engine.protocol.ha.put_status import PutMessageStatus, Reached, put_status
from tests.engine.protocol.ha.test_policy import policy_of

OK, DISK = PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_DISK_TIMEOUT
SLAVE, NONE = PutMessageStatus.FLUSH_SLAVE_TIMEOUT, PutMessageStatus.SLAVE_NOT_AVAILABLE
FLUSH_MS, SLAVE_MS = 5000, 3000


def acks(*pairs: tuple[int, int]) -> list[SlaveAck]:
    return [SlaveAck(*pair) for pair in pairs]


@pytest.mark.parametrize(
    ("why", "slaves", "replicas", "expected"),
    [
        ("the master alone", [], 1, 1000),
        ("no slave holds anything", [], 2, 0),
        ("one slave", [(1, 400)], 2, 400),
        ("the farther of two", [(1, 400), (2, 700)], 2, 700),
        ("both of two", [(1, 400), (2, 700)], 3, 400),
        ("too few", [(1, 400), (2, 700)], 4, 0),
        ("one slave on two connections counts once", [(1, 400), (1, 700)], 3, 0),
        ("and by its better connection", [(1, 400), (1, 700)], 2, 700),
        ("never beyond the master's own end", [(1, 1100)], 2, 1000),
    ],
)
def test_confirm_offset_is_what_enough_different_slaves_hold(
    why: str, slaves: list[tuple[int, int]], replicas: int, expected: int
) -> None:
    assert confirm_offset(acks(*slaves), replicas, 1000) == expected, why


def test_push2_slave_max_offset_is_of_the_slaves_connected_now() -> None:
    assert push2_slave_max_offset(acks((1, 400), (2, 700))) == 700
    assert push2_slave_max_offset([]) == 0


def test_a_slave_is_in_sync_when_it_is_less_than_the_limit_behind() -> None:
    assert in_sync_slaves(acks((1, 900), (2, 901), (2, 1), (3, 1000)), 1000, 100) == 2


def test_a_slave_is_known_by_its_address_and_on_loopback_by_its_port_too() -> None:
    remote, loopback = 0x0A000001 << 16, 0x7F000001 << 16
    assert slave_identity(remote | 40_000) == slave_identity(remote | 40_001)
    assert slave_identity(loopback | 40_000) != slave_identity(loopback | 40_001)
    high = 0x2001_0DB8 << 32
    assert slave_identity(40_000, high, 1) == slave_identity(40_001, high, 1) != slave_identity(40_000, high, 2)
    assert slave_identity(40_000, 0, 1) != slave_identity(40_001, 0, 1)


def status(
    policy: PutPolicy, now_ms: int, *, flushed: int = 0, confirmed: int = 0, in_sync: int = 1, failed: bool = False
) -> PutMessageStatus | None:
    return put_status(100, now_ms, FLUSH_MS, SLAVE_MS, Reached(flushed, confirmed, failed), in_sync, policy)


def test_an_async_master_waits_for_nobody() -> None:
    policy = policy_of("4.9", sync_master=False, in_sync_replicas=2, sync_flush=False)
    assert status(policy, 0, in_sync=0) is OK


@pytest.mark.parametrize(
    ("why", "now_ms", "confirmed", "in_sync", "expected"),
    [
        ("not yet", 0, 99, 1, None),
        ("held", 0, 100, 1, OK),
        ("held, and gone since", 0, 100, 0, OK),
        ("nobody there: at once", 0, 99, 0, NONE),
        ("just before the deadline", SLAVE_MS - 1, 99, 1, None),
        ("at the deadline", SLAVE_MS, 99, 1, SLAVE),
        ("held at the deadline", SLAVE_MS, 100, 1, OK),
    ],
)
def test_a_sync_master_of_4_9_waits_for_a_slave_until_the_deadline(
    why: str, now_ms: int, confirmed: int, in_sync: int, expected: object
) -> None:
    policy = policy_of("4.9", sync_master=True, in_sync_replicas=2, sync_flush=False)
    assert status(policy, now_ms, confirmed=confirmed, in_sync=in_sync) is expected, why


def test_a_sync_master_of_5_waits_for_a_slave_that_is_not_there() -> None:
    policy = policy_of("5", sync_master=True, in_sync_replicas=2, sync_flush=False)
    assert status(policy, 0, in_sync=0) is None
    assert status(policy, SLAVE_MS, in_sync=0) is SLAVE


def test_in_sync_replicas_1_written_out_waits_for_nobody() -> None:
    policy = policy_of("5", sync_master=True, in_sync_replicas=1, sync_flush=False)
    assert status(policy, 0, in_sync=0) is OK


@pytest.mark.parametrize(
    ("why", "now_ms", "flushed", "confirmed", "in_sync", "expected"),
    [
        ("both pending", 0, 0, 0, 1, None),
        ("the disk pending", 0, 99, 100, 1, None),
        ("both held", 0, 100, 100, 1, OK),
        ("the disk late", FLUSH_MS, 99, 100, 1, DISK),
        ("the slave late, the disk pending", SLAVE_MS, 99, 99, 1, None),
        ("the slave late, the disk in time", SLAVE_MS, 100, 99, 1, SLAVE),
        ("both late: the slave's word counts", FLUSH_MS, 99, 99, 1, SLAVE),
        ("no slave, the disk pending", 0, 99, 99, 0, None),
        ("no slave, the disk in time", 0, 100, 99, 0, NONE),
    ],
)
def test_a_put_that_waits_for_disk_and_slave_names_the_late_one(
    why: str, now_ms: int, flushed: int, confirmed: int, in_sync: int, expected: object
) -> None:
    policy = policy_of("4.9", sync_master=True, in_sync_replicas=2, sync_flush=True)
    assert status(policy, now_ms, flushed=flushed, confirmed=confirmed, in_sync=in_sync) is expected, why


def test_after_a_failed_fsync_nothing_is_ok_any_more() -> None:
    policy = policy_of("4.9", sync_master=False, in_sync_replicas=1, sync_flush=False)
    assert status(policy, 0, failed=True) is DISK


def test_four_put_statuses_say_that_the_message_is_stored() -> None:
    assert {each for each in PutMessageStatus if each.is_stored} == {OK, DISK, SLAVE, NONE}
