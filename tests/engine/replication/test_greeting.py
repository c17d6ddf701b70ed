"""The greeting between real processes: who is believed, what is refused in words, what counts as flushed."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.protocol.ha.hello import CONTROL_OFFSET, Identity, first_report
from engine.protocol.ha.wire import FRAME_HEADER, FRAME_HEADER_BYTES, REPORT_BYTES, CloseReason
from engine.shared_memory.cursors import IdentityState
from ipc import waiting
from store.epochs import Epoch
from store.notes import epochs
from tests.harness.ha_node import Node, wait_for, wait_until
from tests.harness.sockets import exactly

SEGMENT = 256 * 1024
SIZES = {"mappedFileSizeCommitLog": SEGMENT, "brokerName": "broker-a"}
SECRET = "0123456789abcdef-secret"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    return path


@pytest.fixture
def master(tmp_path: Path, secret: Path) -> Iterator[Node]:
    with Node(tmp_path / "master", **SIZES, haSecretFile=secret) as node:
        yield node.start("ha_listener", "group_transfer")


def slave_of(master: Node, directory: Path, **settings: object) -> Node:
    port = master.counters.ha_listen_port.read()
    return Node(directory, master=port, **{**SIZES, **settings}).start("housekeeper", "allocator", "receiver")


def test_two_replicas_of_one_host_that_prove_their_names_are_two(master: Node, tmp_path: Path, secret: Path) -> None:
    master.append(b"x" * 1000)
    with (
        slave_of(master, tmp_path / "one", haSecretFile=secret) as one,
        slave_of(master, tmp_path / "two", haSecretFile=secret, brokerId=2) as two,
    ):
        wait_until(master.counters.in_sync_slaves, lambda count: count == 2)
        for slave in (one, two):
            wait_for(slave.counters.max_physical_offset, 1000)
        states = sorted((w.broker_id.read(), w.identity_state.read()) for w in master.counters.ha if w.state.read())
        assert states == [(1, IdentityState.SIGNED), (2, IdentityState.SIGNED)]
        numbers = {words.identity.read() for words in master.counters.ha if words.state.read()}
        assert numbers == {Identity("DefaultCluster", "broker-a", number).number for number in (1, 2)}


def test_one_replica_from_two_ports_is_one(master: Node, tmp_path: Path) -> None:
    master.append(b"x" * 1000)
    with slave_of(master, tmp_path / "one") as one, slave_of(master, tmp_path / "copy") as copy:
        for slave in (one, copy):
            wait_for(slave.counters.max_physical_offset, 1000)
        for words in master.counters.ha[:2]:
            wait_until(words.slave_ack_offset, lambda acked: acked == 1000)
        wait_until(master.counters.in_sync_slaves, lambda count: count == 1)


def test_another_secret_is_refused_on_both_sides(master: Node, tmp_path: Path) -> None:
    (tmp_path / "other").write_text(SECRET + "!")
    master.append(b"x" * 1000)
    with slave_of(master, tmp_path / "slave", haSecretFile=tmp_path / "other") as slave:
        wait_until(slave.counters.ha_client.reason, lambda reason: reason == CloseReason.SIGNATURE)
        wait_until(master.counters.ha_ended[CloseReason.SIGNATURE], lambda count: count > 0)
        assert slave.counters.max_physical_offset.read() == 0, "not a byte was taken"


def test_where_the_secret_is_required_nobody_is_served_or_followed_without_it(
    master: Node, tmp_path: Path, secret: Path
) -> None:
    required = {"haSecretFile": secret, "haSecretRequired": True}
    with Node(tmp_path / "strict", **SIZES, **required) as strict:
        port = strict.start("ha_listener", "group_transfer").counters.ha_listen_port.read()
        strict.append(b"x" * 1000)
        with socket.create_connection(("127.0.0.1", port), timeout=120) as rocketmq:
            rocketmq.sendall((0).to_bytes(8, "big"))
            assert rocketmq.recv(100) == b""
        with slave_of(strict, tmp_path / "unsigned") as slave:
            wait_until(slave.counters.ha_client.reason, lambda reason: reason == CloseReason.SIGNATURE)
        with slave_of(strict, tmp_path / "signed", **required) as slave:
            wait_for(slave.counters.max_physical_offset, 1000)
    with socket.create_server(("127.0.0.1", 0)) as rocketmq_master:
        port = rocketmq_master.getsockname()[1]
        settings = {**SIZES, **required, "syncFromLastFile": True}
        with Node(tmp_path / "follower", master=port, **settings) as slave:
            slave.start("housekeeper", "allocator", "receiver")
            accepted, _ = rocketmq_master.accept()
            with accepted:
                accepted.sendall(FRAME_HEADER.pack(0, 5) + b"bytes")
                wait_until(slave.counters.ha_client.reason, lambda reason: reason == CloseReason.SIGNATURE)
            assert slave.counters.max_physical_offset.read() == 0


def test_a_secret_that_cannot_be_read_holds_the_slave_and_says_so(master: Node, tmp_path: Path) -> None:
    with slave_of(master, tmp_path / "slave", haSecretFile=tmp_path / "nowhere") as slave:
        wait_until(slave.counters.ha_client.reason, lambda reason: reason == CloseReason.LOG_UNREADABLE)


def test_a_slave_of_another_cluster_is_refused(master: Node, tmp_path: Path) -> None:
    master.append(b"x" * 1000)
    with slave_of(master, tmp_path / "slave", brokerClusterName="other") as slave:
        wait_until(slave.counters.ha_client.reason, lambda reason: reason == CloseReason.OTHER_CLUSTER)
        assert slave.counters.max_physical_offset.read() == 0


def test_a_slave_that_has_seen_a_newer_master_fences_this_one(master: Node, tmp_path: Path, secret: Path) -> None:
    master.append(b"x" * 1000)
    (tmp_path / "slave").mkdir()
    known = epochs.read(tmp_path / "slave").following([Epoch(3, 500, "broker-a:1", 1)])
    epochs.write(tmp_path / "slave", known)
    with slave_of(master, tmp_path / "slave", haSecretFile=secret) as slave:
        wait_until(slave.counters.ha_client.reason, lambda reason: reason == CloseReason.FENCED)
        assert slave.counters.max_physical_offset.read() == 0


def test_a_slave_takes_over_the_epochs_of_its_master(master: Node, tmp_path: Path) -> None:
    entries = (Epoch(1, 0, "broker-a:0", 1), Epoch(4, 200, "broker-a:1", 2))
    epochs.write(tmp_path / "master", epochs.read(tmp_path / "master").following(entries))
    master.append(b"x" * 1000)
    with slave_of(master, tmp_path / "slave") as slave:
        wait_for(slave.counters.max_physical_offset, 1000)
        assert epochs.read(tmp_path / "slave").entries == entries


@pytest.mark.parametrize("said", [b"\x83garbage", b"\x81\xff\xff12345", b"\x81\x00\x30" + b"{" * 5])
def test_an_invalid_greeting_ends_the_connection(master: Node, said: bytes) -> None:
    with socket.create_connection(("127.0.0.1", master.counters.ha_listen_port.read()), timeout=120) as sock:
        sock.sendall(first_report(0))
        offset, size = FRAME_HEADER.unpack(exactly(sock, FRAME_HEADER_BYTES))
        assert offset == CONTROL_OFFSET
        exactly(sock, size)
        sock.sendall(said * (1 if said[0] == 0x83 else 10))
        wait_until(master.counters.ha_ended[CloseReason.HANDSHAKE], lambda count: count == 1)
    assert len(said) == REPORT_BYTES


def test_with_ha_ack_flushed_what_the_slave_has_on_disk_counts(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(5000)
    with Node(tmp_path / "m", **SIZES, haAckFlushed=True) as master:
        master.start("ha_listener", "group_transfer")
        with slave_of(master, tmp_path / "slave") as slave:
            master.append(data)
            wait_for(master.counters.ha[0].slave_ack_offset, 5000)
            assert master.counters.confirm_offset.read() == 0
            waiting.publish(slave.counters.flushed_offset, 3000)  # the test is its flusher
            wait_for(master.counters.confirm_offset, 3000)
            assert master.counters.confirm_offset.read() == 3000
            waiting.publish(slave.counters.flushed_offset, 5000)
            wait_for(master.counters.confirm_offset, 5000)
            assert master.counters.ha[0].flushed_offset.read() == 5000


def test_a_slave_that_cannot_report_its_disk_is_never_waited_for(tmp_path: Path) -> None:
    with Node(tmp_path / "m", **SIZES, haAckFlushed=True) as master:
        port = master.start("ha_listener", "group_transfer").counters.ha_listen_port.read()
        with socket.create_connection(("127.0.0.1", port), timeout=120) as sock:
            sock.sendall((0).to_bytes(8, "big"))
            wait_until(master.counters.ha[0].state, lambda state: state == 2)
            master.append(b"x" * 100)
            exactly(sock, FRAME_HEADER_BYTES + 100)
            sock.sendall((100).to_bytes(8, "big"))
            wait_for(master.counters.ha[0].slave_ack_offset, 100)
            wait_until(master.counters.in_sync_slaves, lambda count: count == 1)
            assert (master.counters.ha[0].held_offset.read(), master.counters.confirm_offset.read()) == (0, 0)
