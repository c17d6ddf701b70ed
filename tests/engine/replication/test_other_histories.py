"""A slave whose log is not a beginning of its master's: seen before a byte is taken or acknowledged, and remembered."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.protocol.ha.wire import CloseReason
from store.notes import divergence
from store.recovery.overlap import LOWEST_START
from tests.harness.ha_node import Node, wait_for, wait_until

SIZES = {"mappedFileSizeCommitLog": 256 * 1024}


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path / "master", **SIZES) as node:
        yield node.start("ha_listener")


def slave_of(master: Node, directory: Path) -> Node:
    return Node(directory, master=master.counters.ha_listen_port.read(), **SIZES)


def test_a_slave_that_is_ahead_hears_so_and_goes_on_once_its_master_has_the_same(master: Node, tmp_path: Path) -> None:
    data = random.Random(5).randbytes(300_000)
    master.append(data[:1000])
    with slave_of(master, tmp_path / "slave") as slave:
        slave.keep(0, data[:200_000])
        slave.start("housekeeper", "allocator", "receiver")
        wait_until(slave.counters.ha_client.reason, lambda reason: reason == CloseReason.AHEAD)
        master.append(data[1000:190_000])  # within what is compared
        ended = slave.counters.ha_client.ended[CloseReason.AHEAD].read()
        wait_until(slave.counters.ha_client.ended[CloseReason.AHEAD], lambda count: count > ended + 1)
        assert slave.counters.max_physical_offset.read() == 200_000
        assert max(words.slave_ack_offset.read() for words in master.counters.ha) < 190_000
        master.append(data[190_000:])
        wait_for(slave.counters.max_physical_offset, master.counters.max_physical_offset.read())
        assert slave.log() == data


def test_another_history_is_seen_and_remembered_until_somebody_removes_the_note(master: Node, tmp_path: Path) -> None:
    """The master was wiped and has grown past its slave's end: every number fits."""
    master.append(random.Random(6).randbytes(300_000))
    with slave_of(master, tmp_path / "slave") as slave:
        slave.keep(0, own := random.Random(7).randbytes(200_000))
        slave.start("housekeeper", "allocator", "receiver")
        wait_until(slave.counters.ha_client.reason, lambda reason: reason == CloseReason.DIVERGED)
        noted = divergence.read(tmp_path / "slave")
        assert noted is not None and (noted.offset, noted.end) == (LOWEST_START, 200_000)
        assert bytes.fromhex(noted.own_bytes_hex) == own[noted.offset :][:16]
        slave.kill("receiver")
        slave.start("receiver")
        wait_until(slave.counters.ha_client.reason, lambda reason: reason == CloseReason.DIVERGED)
        assert slave.counters.ha_client.ended[CloseReason.DIVERGED].read() == 1, "it does not ask again"
        divergence.remove(tmp_path / "slave")
        wait_until(slave.counters.ha_client.ended[CloseReason.DIVERGED], lambda count: count == 2)
        assert slave.log() == own
        assert max(words.held_offset.read() for words in master.counters.ha) <= noted.offset
