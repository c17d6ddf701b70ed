"""What confirms a put: acknowledgements of what that slave was sent, and no number that anybody names."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.protocol.ha.wire import FRAME_HEADER_BYTES, REPORT
from tests.engine.replication.test_sender_receiver import SIZES, master, talk
from tests.harness.ha_node import Node, wait_for, wait_until
from tests.harness.sockets import exactly

__all__ = ["master"]  # the fixture


def test_confirm_offset_is_what_the_replicas_asked_for_hold(tmp_path: Path) -> None:
    with Node(tmp_path / "master", inSyncReplicas=3, **SIZES) as master:
        master.start("ha_listener", "group_transfer")
        master.begin_with(bytes(1000))
        first = talk(master, 1000)
        wait_until(master.counters.in_sync_slaves, lambda count: count == 1)
        assert master.counters.confirm_offset.read() == 0
        second = talk(master, 400)
        wait_until(master.counters.confirm_offset, lambda offset: offset == 400)
        exactly(second, FRAME_HEADER_BYTES + 600)
        second.sendall(REPORT.pack(1000))
        wait_until(master.counters.confirm_offset, lambda offset: offset == 1000)
        first.close()
        wait_until(master.counters.in_sync_slaves, lambda count: count == 1)
        assert master.counters.confirm_offset.read() == 1000, "it was held by three"
        second.close()
        wait_until(master.counters.in_sync_slaves, lambda count: count == 0)


def test_a_killed_group_transfer_goes_on_from_what_it_published(tmp_path: Path) -> None:
    with Node(tmp_path / "master", inSyncReplicas=3, **SIZES) as master:
        master.start("ha_listener", "group_transfer")
        master.begin_with(bytes(1000))
        with talk(master, 700) as sock, talk(master, 1000):
            wait_until(master.counters.confirm_offset, lambda offset: offset == 700)
            master.kill("group_transfer")
            exactly(sock, FRAME_HEADER_BYTES + 300)
            sock.sendall(REPORT.pack(1000))
            wait_for(master.counters.ha[0].slave_ack_offset, 1000)
            assert master.counters.confirm_offset.read() == 700
            master.start("group_transfer")
            wait_until(master.counters.confirm_offset, lambda offset: offset == 1000)


def test_where_one_slave_is_enough_nobody_else_has_to_run_for_its_acknowledgement(master: Node) -> None:
    master.begin_with(bytes(1000))
    with talk(master, 700) as sock:
        exactly(sock, FRAME_HEADER_BYTES + 300)
        assert master.counters.confirm_offset.read() == 0, "a first report is no acknowledgement of what was sent"
        sock.sendall(REPORT.pack(900))
        wait_until(master.counters.confirm_offset, lambda offset: offset == 900)
        sock.sendall(REPORT.pack(1000)[:3])
        sock.sendall(REPORT.pack(1000)[3:] + REPORT.pack(1001))
        wait_until(master.counters.ha_acks_rejected, lambda count: count == 1)  # its slot's count goes with the sender
        assert master.counters.confirm_offset.read() == 900


def in_step(master: Node) -> None:
    wait_until(master.counters.in_sync_slaves, lambda count: count == 1)


@pytest.mark.parametrize("position", [1000, 999])
def test_a_stranger_that_names_a_position_confirms_no_put_that_waits(tmp_path: Path, position: int) -> None:
    with Node(tmp_path / "master", slaveTimeout=60_000, **SIZES) as master:
        master.start("ha_listener", "group_transfer")
        master.append(bytes(1000))
        with talk(master, position) as sock:
            in_step(master)
            if position < 1000:
                exactly(sock, FRAME_HEADER_BYTES + 1)
                sock.sendall(REPORT.pack(1000))
                wait_for(master.counters.ha[0].slave_ack_offset, 1000)
            assert (master.counters.confirm_offset.read(), master.counters.ha[0].held_offset.read()) == (0, 0)


def test_a_slave_that_comes_back_holds_what_it_was_sent_before(tmp_path: Path) -> None:
    """The connection ends before its acknowledgement arrives; the put that waits for it is answered by the next one."""
    with Node(tmp_path / "master", slaveTimeout=60_000, **SIZES) as master:
        master.start("ha_listener", "group_transfer")
        with talk(master, 0) as sock:
            in_step(master)
            master.append(bytes(1000))
            exactly(sock, FRAME_HEADER_BYTES + 1000)
        wait_until(master.counters.pids["sender.0"], lambda pid: pid == 0)
        with talk(master, 1000):
            wait_for(master.counters.confirm_offset, 1000)
            master.append(b"never sent to anybody")
            assert master.counters.confirm_offset.read() == 1000


def test_two_connections_of_a_stranger_confirm_no_put_that_waits(tmp_path: Path) -> None:
    """The first is sent the last byte alone: the second one's position says nothing of what lies before that."""
    with Node(tmp_path / "master", slaveTimeout=60_000, **SIZES) as master:
        master.start("ha_listener", "group_transfer")
        master.append(bytes(1000))
        with talk(master, 999) as sock:
            exactly(sock, FRAME_HEADER_BYTES + 1)
        wait_until(master.counters.pids["sender.0"], lambda pid: pid == 0)
        with talk(master, 1000):
            in_step(master)
            assert (master.counters.confirm_offset.read(), master.counters.ha[0].held_offset.read()) == (0, 0)


def test_an_unknown_slave_confirms_what_is_put_after_the_puts_that_wait(tmp_path: Path) -> None:
    with Node(tmp_path / "master", slaveTimeout=300, **SIZES) as master:
        master.start("ha_listener", "group_transfer")
        master.append(bytes(1000))
        with talk(master, 1000) as sock:
            in_step(master)
            master.append(bytes(100))
            exactly(sock, FRAME_HEADER_BYTES + 100)
            sock.sendall(REPORT.pack(1100))
            wait_for(master.counters.confirm_offset, 1100)
