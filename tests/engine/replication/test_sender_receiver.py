"""Replication between real processes, sockets and segments: whoever is killed, both logs hold the same bytes."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from engine.protocol.ha.wire import FRAME_HEADER, FRAME_HEADER_BYTES, REPORT, CloseReason
from engine.replication import ha_listener
from engine.shared_memory import address_cursors, addresses
from ipc import waiting
from tests.harness.ha_node import WAIT_MS, Node, wait_for, wait_until
from tests.harness.sockets import exactly

SEGMENT = 256 * 1024
SIZES = {"mappedFileSizeCommitLog": SEGMENT}
TURNS = 5


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is, a sender that is told to stop may send what the log has."""
    monkeypatch.setattr(ha_listener, "STOP_SENDER_MS", WAIT_MS)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path / "master", **SIZES) as node:
        yield node.start("ha_listener")


def slave_of(master: Node, directory: Path, **settings: object) -> Node:
    return Node(directory, master=master.counters.ha_listen_port.read(), **SIZES, **settings)


def caught_up(master: Node, slave: Node) -> None:
    wait_for(slave.counters.max_physical_offset, master.counters.max_physical_offset.read())


def talk(master: Node, *reports: int) -> socket.socket:
    """A slave made by hand."""
    sock = socket.create_connection(("127.0.0.1", master.counters.ha_listen_port.read()), timeout=120)
    for report in reports:
        sock.sendall(REPORT.pack(report))
    return sock


def read_to_end(sock: socket.socket) -> bytes:
    """What is still sent, until the other side hangs up; closes the socket."""
    data = b""
    with sock:
        while True:
            try:
                part = sock.recv(1 << 16)
            except ConnectionResetError:
                return data
            if not part:
                return data
            data += part


def test_a_slave_follows_an_empty_master_through_several_segments(master: Node, tmp_path: Path) -> None:
    data = random.Random(1).randbytes(5 * SEGMENT + 777)
    with slave_of(master, tmp_path / "slave").start("housekeeper", "allocator", "receiver") as slave:
        wait_until(master.counters.ha[0].state, lambda state: state == 2)
        master.append(data[:100])
        caught_up(master, slave)
        for at in range(100, len(data), 50_001):
            master.append(data[at : at + 50_001])
        caught_up(master, slave)
        wait_for(master.counters.ha[0].slave_ack_offset, len(data))
        assert slave.log() == data
        assert slave.counters.min_physical_offset.read() == 0
        assert master.counters.ha[0].next_transfer_offset.read() == len(data)


def test_a_new_slave_of_a_long_log_gets_all_of_it(master: Node, tmp_path: Path) -> None:
    data = random.Random(2).randbytes(2 * SEGMENT + 100_000)
    master.append(data)
    with slave_of(master, tmp_path / "slave").start("housekeeper", "allocator", "receiver") as slave:
        caught_up(master, slave)
        assert slave.log() == data


def test_a_new_slave_of_a_log_whose_beginning_has_expired_gets_what_is_left(master: Node, tmp_path: Path) -> None:
    data = random.Random(2).randbytes(3 * SEGMENT + 1000)
    master.append(data)
    waiting.publish(master.counters.min_physical_offset, SEGMENT)
    with slave_of(master, tmp_path / "slave").start("housekeeper", "allocator", "receiver") as slave:
        caught_up(master, slave)
        assert slave.files.base_offsets()[0] == SEGMENT
        assert slave.log(SEGMENT) == data[SEGMENT:]


def test_a_new_slave_that_asks_for_the_last_segment_gets_that(master: Node, tmp_path: Path) -> None:
    data = random.Random(2).randbytes(2 * SEGMENT + 100_000)
    master.append(data)
    last = slave_of(master, tmp_path / "slave", syncFromLastFile=True)
    with last.start("housekeeper", "allocator", "receiver") as slave:
        caught_up(master, slave)
        assert slave.counters.min_physical_offset.read() == 2 * SEGMENT
        assert slave.files.base_offsets()[0] == 2 * SEGMENT
        assert slave.log(2 * SEGMENT) == data[2 * SEGMENT :]


def test_an_empty_last_segment_is_begun_by_its_first_bytes_and_not_by_a_heartbeat(tmp_path: Path) -> None:
    settings = {"haSendHeartbeatInterval": 100}
    with Node(tmp_path / "other", **SIZES, **settings) as other:
        other.append(bytes(2 * SEGMENT))
        other.start("ha_listener")
        last = slave_of(other, tmp_path / "slave", syncFromLastFile=True)
        with last.start("housekeeper", "allocator", "receiver") as slave:
            wait_for(slave.counters.ha_client.transferred_bytes, 1000)  # its greeting and a few heartbeats
            assert slave.counters.max_physical_offset.read() == 0
            assert slave.counters.segment_request_offset.read() == -1
            assert slave.files.base_offsets() == []
            other.append(b"first bytes")
            caught_up(other, slave)
            wait_for(slave.counters.min_physical_offset, 2 * SEGMENT)
            assert slave.log(2 * SEGMENT) == b"first bytes"


def test_a_slave_that_has_a_part_goes_on_inside_a_record(master: Node, tmp_path: Path) -> None:
    data = random.Random(3).randbytes(3 * SEGMENT)
    master.append(data)
    with slave_of(master, tmp_path / "slave") as slave:
        slave.keep(0, data[:12_345])
        slave.start("housekeeper", "allocator", "receiver")
        caught_up(master, slave)
        assert slave.log() == data


@pytest.mark.parametrize("seed", range(3))
def test_kills_in_the_middle_of_a_transfer_leave_equal_logs(master: Node, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    data = rng.randbytes(12 * SEGMENT)
    with slave_of(master, tmp_path / "slave").start("housekeeper", "allocator", "receiver") as slave:
        at = master.append(data[:100])
        caught_up(master, slave)
        for victim in rng.choices(["receiver", "sender", "ha_listener"], k=8):
            step = rng.randint(1, SEGMENT)
            at = master.append(data[at : at + step])
            wait_for(slave.counters.max_physical_offset, at - rng.randint(0, step))
            if victim == "sender":
                kill_senders(master)
            else:
                node = slave if victim == "receiver" else master
                node.kill(victim)
                node.start(victim)
        master.append(data[at:])
        caught_up(master, slave)
        assert slave.log() == data


def kill_senders(master: Node) -> None:
    for slot in range(8):
        pid = master.counters.pids[f"sender.{slot}"].read()
        if pid:
            with suppress(ProcessLookupError):  # it has ended with its connection
                os.kill(pid, signal.SIGKILL)
            wait_until(master.counters.pids[f"sender.{slot}"], lambda now, was=pid: now != was)


def test_killing_the_listener_ends_its_senders_and_the_port_stays(master: Node, tmp_path: Path) -> None:
    port = master.counters.ha_listen_port.read()
    with slave_of(master, tmp_path / "slave").start("housekeeper", "allocator", "receiver") as slave:
        master.append(b"before it")
        caught_up(master, slave)
        master.kill("ha_listener")
        wait_until(slave.counters.ha_client.state, lambda state: state == 0)
        waiting.publish(master.counters.pids["sender.7"], os.getpid())  # as if it had died with its listener
        master.start("ha_listener")
        wait_until(master.counters.pids["sender.7"], lambda pid: pid == 0)
        assert master.counters.ha_listen_port.read() == port
        master.append(b"after")
        caught_up(master, slave)
        assert slave.log() == b"before itafter"


def test_an_ordinary_stop_sends_what_the_log_has(master: Node, tmp_path: Path) -> None:
    with slave_of(master, tmp_path / "slave").start("housekeeper", "allocator", "receiver") as slave:
        master.append(b"x" * 8)
        caught_up(master, slave)
        master.append(bytes(SEGMENT))
        assert master.stop("ha_listener") == 0
        caught_up(master, slave)
        assert slave.stop("receiver") == 0
        assert slave.counters.ha_client.state.read() == 4
        assert [words.state.read() for words in master.counters.ha] == [0] * 8


def test_a_health_probe_costs_no_process_and_no_slot(master: Node) -> None:
    for _ in range(100):
        talk(master).close()
    sock = talk(master, 0)  # whoever comes after them gets slot 0
    wait_until(master.counters.ha[0].state, lambda state: state == 2)
    wait_until(master.counters.pids["sender.0"], lambda pid: pid != 0)
    assert [master.counters.pids[f"sender.{slot}"].read() != 0 for slot in range(8)] == [True] + [False] * 7
    sock.close()
    wait_until(master.counters.pids["sender.0"], lambda pid: pid == 0)
    assert master.counters.ha[0].state.read() == 0


def test_the_table_is_bounded_and_a_freed_slot_goes_to_who_waits(tmp_path: Path) -> None:
    patient = {"haSendHeartbeatInterval": 60_000, "haHousekeepingInterval": 120_000}  # nobody here is silent for long
    with Node(tmp_path / "master", **SIZES, **patient).start("ha_listener") as master:
        socks = []
        for slot in range(8):
            socks.append(talk(master, 0))
            wait_until(master.counters.ha[slot].state, lambda state: state == 2)
        ninth = talk(master, 0)
        socks[3].close()
        port = ninth.getsockname()[1]
        wait_until(master.counters.ha[3].peer, lambda peer: peer & addresses.PORT_MASK == port)
        for sock in (*socks, ninth):
            sock.close()


def test_a_caller_that_waits_for_a_slot_is_refused_in_the_end(tmp_path: Path) -> None:
    quick = {"haHousekeepingInterval": 6000, "haSendHeartbeatInterval": 6000}
    for turn in range(TURNS):
        with Node(tmp_path / f"master{turn}", **SIZES, **quick).start("ha_listener") as master, ExitStack() as held:
            stop, socks = threading.Event(), list[socket.socket]()
            speaking = threading.Thread(target=keep_speaking, args=(socks, stop))
            speaking.start()
            held.callback(speaking.join)
            held.callback(stop.set)
            for words in master.counters.ha:
                sock = held.enter_context(talk(master, 0))
                wait_until(words.state, lambda state: state == 2)
                socks.append(sock)  # now: several reports at once, before it is served, are how one of ours begins
            came = read_to_end(talk(master, 0))
            if not master.counters.ha_ended[
                CloseReason.HOUSEKEEPING
            ].read():  # else this machine stood still: once more
                assert came == b"", "the ninth is refused, and the others stay"
                wait_until(master.counters.ha_ended[CloseReason.SLOTS_TAKEN], lambda count: count == 1)
                assert master.counters.ha_ended[CloseReason.GAVE_WAY].read() == 0
                return
    raise AssertionError("slaves that speak are taken for silent again and again")


def keep_speaking(socks: list[socket.socket], stop: threading.Event) -> None:
    """Eight idle slaves."""
    while not stop.wait(0.1):
        for sock in socks:
            with suppress(OSError):  # it was hung up on
                sock.sendall(REPORT.pack(0))


@pytest.mark.parametrize(("why", "reports"), [("above the end", (1001,)), ("below zero", (-1,))])
def test_a_request_that_cannot_be_served_is_closed_at_once(master: Node, why: str, reports: tuple[int, ...]) -> None:
    master.append(bytes(1000))
    assert read_to_end(talk(master, *reports)) == b"", why


def test_a_request_above_the_end_is_counted_and_refused(master: Node) -> None:
    master.append(bytes(1000))
    assert read_to_end(talk(master, 1001)) == b""
    wait_until(master.counters.ha_ended[CloseReason.REQUEST_ABOVE_END], lambda count: count == 1)


def test_a_forged_acknowledgement_is_counted_and_ends_the_connection(master: Node) -> None:
    master.append(bytes(1000))
    sock = talk(master, 500)
    assert exactly(sock, FRAME_HEADER_BYTES) == FRAME_HEADER.pack(500, 500)
    wait_until(master.counters.ha[0].state, lambda state: state == 2)
    sock.sendall(REPORT.pack(1001))
    read_to_end(sock)
    wait_until(master.counters.ha_acks_rejected, lambda count: count == 1)  # its slot's count goes with the sender
    assert master.counters.ha[0].slave_ack_offset.read() == 500


def test_an_idle_connection_lives_by_heartbeats(tmp_path: Path) -> None:
    quick = {"haSendHeartbeatInterval": 50, "haHousekeepingInterval": 60_000}
    with Node(tmp_path / "master", **SIZES, **quick).start("ha_listener") as master:
        master.append(b"something")
        with slave_of(master, tmp_path / "slave", **quick).start("housekeeper", "allocator", "receiver") as slave:
            caught_up(master, slave)
            heard = [master.counters.ha[0].last_read_ms, slave.counters.ha_client.last_read_ms]
            for _ in range(3):
                for cursor in heard:
                    seen = cursor.read()
                    wait_until(cursor, lambda now, seen=seen: now != seen)
            assert slave.counters.ha_client.reason.read() == CloseReason.NONE


def test_a_stopped_slave_loses_its_slot_though_a_frame_waits_for_it(tmp_path: Path) -> None:
    """As in a partition: nothing is read, nothing is said, no connection ends."""
    quick = {"haSendHeartbeatInterval": 100, "haHousekeepingInterval": 2000, "haTransferBatchSize": 4_000_000}
    large = {"mappedFileSizeCommitLog": 64 << 20}
    with Node(tmp_path / "master", **large, **quick).start("ha_listener", "group_transfer") as master:
        port = master.counters.ha_listen_port.read()
        with Node(tmp_path / "slave", master=port, **large, **quick) as slave:
            slave.start("housekeeper", "allocator", "receiver")
            master.append(b"something")
            caught_up(master, slave)
            wait_until(master.counters.in_sync_slaves, lambda count: count == 1)
            os.kill(slave.pids["receiver"], signal.SIGSTOP)
            master.append(bytes(24 << 20))
            wait_until(master.counters.in_sync_slaves, lambda count: count == 0)
            wait_until(master.counters.ha_ended[CloseReason.HOUSEKEEPING], lambda count: count > 0)
            os.kill(slave.pids["receiver"], signal.SIGCONT)
            caught_up(master, slave)


def test_a_slave_without_room_waits_and_goes_on(master: Node, tmp_path: Path) -> None:
    data = random.Random(4).randbytes(SEGMENT + 5000)
    master.append(data[:SEGMENT])
    with slave_of(master, tmp_path / "slave") as slave:
        slave.keep(0, data[:1000])
        slave.start("receiver")
        wait_for(slave.counters.ha_client.transferred_bytes, FRAME_HEADER_BYTES)
        wait_for(slave.counters.segment_request_offset, 1000)
        assert slave.counters.max_physical_offset.read() == 1000
        slave.start("housekeeper", "allocator")
        wait_for(slave.counters.max_physical_offset, SEGMENT)
        master.append(data[SEGMENT:])
        caught_up(master, slave)
        assert slave.log() == data


def test_a_killed_sender_is_counted_by_its_listener(master: Node) -> None:
    with talk(master, 0):
        wait_until(master.counters.ha[0].state, lambda state: state == 2)
        wait_until(master.counters.pids["sender.0"], lambda pid: pid != 0)
        kill_senders(master)
        wait_until(master.counters.ha_ended[CloseReason.KILLED], lambda count: count == 1)
        assert master.counters.ha[0].reason.read() == CloseReason.KILLED


def test_rejected_acknowledgements_are_still_counted_when_their_connection_has_ended(master: Node) -> None:
    for count in (1, 2):
        with talk(master, 0, 1 << 40) as sock:
            read_to_end(sock)
        wait_until(master.counters.ha_acks_rejected, lambda rejected, count=count: rejected == count)
    wait_until(master.counters.ha_ended[CloseReason.ACK_NOT_SENT], lambda count: count == 2)


def test_a_slave_that_was_given_its_own_ha_address_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as own:
        port = own.getsockname()[1]
        with Node(tmp_path / "slave", master=port, **SIZES) as slave:
            waiting.publish(slave.counters.ha_listen_port, port)
            slave.start("receiver")
            wait_until(slave.counters.ha_client.reason, lambda reason: reason == CloseReason.OWN_ADDRESS)


needs_ipv6 = pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="this machine has no IPv6")


@needs_ipv6
@pytest.mark.parametrize(("ours", "theirs"), [("::1", "[::1]"), ("::", "[::1]"), ("::", "127.0.0.1")])
def test_replication_over_ipv6(tmp_path: Path, ours: str, theirs: str) -> None:
    data = random.Random(4).randbytes(SEGMENT - 10)
    with Node(tmp_path / "m", brokerIP2=ours, **SIZES) as master:
        port = master.start("ha_listener", "group_transfer").counters.ha_listen_port.read()
        with Node(tmp_path / "s", master=port, **SIZES, haMasterAddress=f"{theirs}:{port}") as slave:
            slave.start("housekeeper", "allocator", "receiver")
            master.append(data)
            wait_for(master.counters.confirm_offset, len(data))
            assert slave.log() == data
            expected = "127.0.0.1" if theirs == "127.0.0.1" else "[::1]"
            assert address_cursors.text_of(slave.counters.ha_client.master_address) == f"{expected}:{port}"
            assert address_cursors.text_of(master.counters.ha[0].peer_address).startswith(f"{expected}:")


def test_a_master_with_other_segments_is_refused_with_the_reason(master: Node, tmp_path: Path) -> None:
    master.append(bytes(SEGMENT))
    with Node(
        tmp_path / "slave", master.counters.ha_listen_port.read(), mappedFileSizeCommitLog=SEGMENT // 16
    ) as slave:
        slave.keep(0, bytes(100))
        slave.start("housekeeper", "allocator", "receiver")
        wait_until(slave.counters.ha_client.reason, lambda reason: reason == CloseReason.BODY_SIZE)
        assert slave.counters.max_physical_offset.read() == 100
