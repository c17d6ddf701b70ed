"""What the snapshot of replication makes of the counters: states, reason codes, lags, who has gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.monitoring.ha_status import HaStatus, of_counters
from engine.protocol.ha.client import HaClientState
from engine.protocol.ha.rates import HaSample, SlotSample
from engine.protocol.ha.wire import CloseReason
from engine.settings import replication
from engine.shared_memory import address_cursors
from ipc import waiting
from ipc.clock import monotonic_ms
from store.reading.history import History
from tests.harness.ha_node import Node

SEGMENT, GAP = 1 << 20, 1000


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path, mappedFileSizeCommitLog=SEGMENT, haSlaveFallbehindMax=GAP, compat="5") as made:
        yield made


def status_of(node: Node, *samples: HaSample, **others: Any) -> HaStatus:
    settings = {
        **replication.named(node.config),
        "brokerClusterName": "c",
        "brokerName": "b",
        "mappedFileSizeCommitLog": SEGMENT,
        "storePathCommitLog": str(node.config.store_path_commit_log),
        **others,
    }
    return of_counters(node.counters, samples, "/store", settings)


def connect(node: Node, slot: int, ack: int, state: int = 2, host: str = "10.0.0.1") -> None:
    words = node.counters.ha[slot]
    address_cursors.publish(words.peer_address, host, 5000 + slot)
    waiting.publish(words.connected_at_ms, 77)
    waiting.publish(words.slave_ack_offset, ack)
    waiting.publish(words.state, state)


def test_a_slave_is_in_sync_behind_or_without_a_report(node: Node) -> None:
    node.append(bytes(5000))
    for slot, (ack, state) in enumerate(((4001, 2), (4000, 2), (-1, 1))):
        connect(node, slot, ack, state)
    found = status_of(node)
    assert [(one.reason, one.in_sync, one.lag_bytes) for one in found.replicas] == [
        ("OK", True, 999),
        ("BEHIND", False, 1000),
        ("NO_REPORT", False, 5001),
    ]
    assert (found.push2_slave_max_offset, found.replicas_needed) == (4001, 2)


def test_from_where_on_the_log_has_its_history(node: Node) -> None:
    assert status_of(node).history == History(0, None)
    node.append(bytes(5000))
    waiting.publish(node.counters.min_physical_offset, 4000)
    assert status_of(node).history == History(4000, None)
    assert status_of(node).to_json()["history"] == {"from_offset": 4000, "from_ms": None}


def test_rate_and_time_to_catch_up_come_from_the_samples(node: Node) -> None:
    node.append(bytes(60_000))
    connect(node, 0, 20_000, host="2001:db8::7")
    nothing = SlotSample(0, 0, 0)
    before = HaSample(monotonic_ms() - 10_000, 60_000, 0, (SlotSample(77, 0, 0), *[nothing] * 7))
    (replica,) = status_of(node, before).replicas
    assert replica.peer == "[2001:db8::7]:5000"
    assert replica.acked_bytes_per_second == pytest.approx(2000, rel=0.5)
    assert replica.catch_up_seconds == pytest.approx(40_000 / replica.acked_bytes_per_second)


def test_a_slave_that_left_is_shown_with_the_reason_until_its_slot_is_taken(node: Node) -> None:
    connect(node, 3, 500)
    words = node.counters.ha[3]
    waiting.publish(words.ended_at_ms, monotonic_ms() - 4000)
    waiting.publish(words.reason, CloseReason.ACK_FELL)
    waiting.publish(words.state, 0)
    waiting.add(node.counters.ha_ended[CloseReason.ACK_FELL], 1)
    waiting.add(node.counters.ha_acks_rejected, 1)
    found = status_of(node)
    (gone,) = found.gone
    assert (gone.peer, gone.reason, gone.close_reason) == ("10.0.0.1:5003", "DIVERGED", "ACK_FELL")
    assert gone.ended_seconds >= 4
    assert (found.ended, found.acks_rejected, found.replicas) == ({"ACK_FELL": 1}, 1, [])
    waiting.publish(words.state, 2)
    assert status_of(node).gone == []


@pytest.mark.parametrize(
    ("state", "reason", "allocation_errno", "code"),
    [
        (HaClientState.READY, CloseReason.NONE, 0, "NO_ADDRESS"),
        (HaClientState.READY, CloseReason.NO_LISTENER, 0, "NO_LISTENER"),
        (HaClientState.READY, CloseReason.REFUSED, 0, "REFUSED"),
        (HaClientState.READY, CloseReason.OFFSET_MISMATCH, 0, "DIVERGED"),
        (HaClientState.READY, CloseReason.OWN_ADDRESS, 0, "IDENTITY"),
        (HaClientState.TRANSFER, CloseReason.PEER_CLOSED, 0, "OK"),
        (HaClientState.TRANSFER, CloseReason.NONE, 28, "DISK"),
    ],
)
def test_what_keeps_a_slave_from_its_master(
    node: Node, state: HaClientState, reason: CloseReason, allocation_errno: int, code: str
) -> None:
    waiting.publish(node.counters.ha_client.state, state)
    waiting.publish(node.counters.ha_client.reason, reason)
    waiting.publish(node.counters.allocation_errno, allocation_errno)
    client = status_of(node, brokerRole="SLAVE").client
    assert client is not None
    assert client.reason_code == code
    assert bool(client.advice) == (code != "OK"), "every trouble comes with a word about what to do"
