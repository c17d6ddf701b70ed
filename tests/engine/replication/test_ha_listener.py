"""Strangers at the HA port, at every step, by the thousand: slaves are served, the listener lives, all is bounded."""

from __future__ import annotations

import logging
import os
import random
import resource
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine import warm
from engine.monitoring.problems import problems
from engine.net import rare_lines
from engine.net.rare_lines import LINES_A_PERIOD
from engine.protocol.access import allow_list
from engine.protocol.ha.wire import ADVICE, FRAME_HEADER_BYTES, REPORT, CloseReason
from engine.protocol.remoting.frame import RemotingCommand, encode
from engine.replication.ha_senders import DEATHS_WINDOW_MS, SenderDeaths
from engine.shared_memory.failures import LOOPING_DEATHS
from tests.harness.conditions import await_that
from tests.harness.ha_node import Node, wait_for, wait_until
from tests.harness.sockets import exactly

SEGMENT = 256 * 1024
SIZES = {"mappedFileSizeCommitLog": SEGMENT}
SLAVE_ROLES = ("housekeeper", "allocator", "receiver")
DEADLINE_S = 180.0
RESET = struct.pack("@ii", 1, 0)  # SO_LINGER 0: closing sends a reset


@pytest.fixture(scope="module", autouse=True)
def _kernels(tmp_path_factory: pytest.TempPathFactory) -> None:
    """As a broker does it: compiled once, before anybody forks."""
    with Node(tmp_path_factory.mktemp("warm"), **SIZES) as node:
        warm.run_replication_once(node.counters)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path / "master", **SIZES) as node:
        yield node.start("ha_listener")


def slave_of(master: Node, directory: Path, **settings: object) -> Node:
    return Node(directory, master=master.counters.ha_listen_port.read(), **SIZES, **settings)


def come(master: Node, said: bytes = b"") -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", master.counters.ha_listen_port.read()), timeout=DEADLINE_S)
    sock.sendall(said)
    return sock


def vanish(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    sock.close()


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def is_running(pid: int) -> bool:
    return os.waitpid(pid, os.WNOHANG) == (0, 0)


def hang_up_seen(sock: socket.socket) -> bool:
    try:
        return sock.recv(1 << 16) == b""
    except ConnectionResetError:
        return True


class Strangers:
    """Threads that come and go, in each of these ways in turn, until told to stop."""

    SAID = (b"", b"\0", REPORT.pack(0)[:5], REPORT.pack(0), REPORT.pack(0) + b"\0\0\0", b"GET / HTTP/1.1\r\n\r\n")

    def __init__(self, master: Node, threads: int) -> None:
        self.come, self._port = 0, master.counters.ha_listen_port.read()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(seed,)) for seed in range(threads)]

    def _run(self, seed: int) -> None:
        rng = random.Random(seed)
        while not self._stop.is_set():
            with socket.socket() as sock:
                try:
                    sock.connect(("127.0.0.1", self._port))
                    sock.sendall(rng.choice(self.SAID))
                    if rng.random() < 0.3:
                        sock.settimeout(0.01)
                        sock.recv(rng.choice((1, 100)))
                except OSError:  # refused, reset, or nothing to read: whatever it is, on to the next
                    self.come += 1
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET if rng.random() < 0.8 else bytes(8))
                self.come += 1

    def __enter__(self) -> Strangers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)


def test_a_slave_is_served_while_thousands_come_and_vanish_at_every_step(master: Node, tmp_path: Path) -> None:
    listener, data = master.pids["ha_listener"], random.Random(1).randbytes(3 * SEGMENT)
    master.append(data[:SEGMENT])
    with Strangers(master, threads=4) as strangers:
        with slave_of(master, tmp_path / "slave").start(*SLAVE_ROLES) as slave:
            for end in range(SEGMENT + 1000, len(data), SEGMENT // 4):
                at = master.counters.max_physical_offset.read()
                master.append(data[at:end])
                wait_for(slave.counters.max_physical_offset, end)
            deadline = time.monotonic() + DEADLINE_S
            while strangers.come < 2000 and time.monotonic() < deadline:
                end = master.append(b"more")
                wait_for(slave.counters.max_physical_offset, end)
            assert strangers.come >= 2000
        assert is_running(listener)
        assert descriptors(listener) < 700
    wait_until(master.counters.pids["sender.7"], lambda pid: pid == 0)
    assert is_running(listener)


@pytest.mark.parametrize("said", [b"\0", REPORT.pack(0)], ids=["one byte", "a first report"])
def test_eight_that_say_a_little_and_then_nothing_keep_no_slave_out(tmp_path: Path, said: bytes) -> None:
    quick = {"haSendHeartbeatInterval": 200}
    with Node(tmp_path / "master", **SIZES, **quick) as master, ExitStack() as held:
        master.append(b"something")
        master.start("ha_listener")
        for _ in range(8):
            held.callback(come(master, said).close)
        if len(said) == len(REPORT.pack(0)):
            for words in master.counters.ha:
                wait_until(words.state, lambda state: state == 2)
        with slave_of(master, tmp_path / "slave", **quick).start(*SLAVE_ROLES) as slave:
            wait_for(slave.counters.max_physical_offset, len(b"something"))


def test_a_slot_that_was_given_up_says_so(tmp_path: Path) -> None:
    with Node(tmp_path / "master", **SIZES, haSendHeartbeatInterval=200) as master, ExitStack() as held:
        master.append(b"something")
        master.start("ha_listener")
        for slot in range(8):
            held.callback(come(master, REPORT.pack(0)).close)
            wait_until(master.counters.ha[slot].state, lambda state: state == 2)
        with come(master, REPORT.pack(5)) as slave:
            assert exactly(slave, FRAME_HEADER_BYTES)[:8] == REPORT.pack(5)
        assert master.counters.ha_ended[CloseReason.GAVE_WAY].read() >= 1


def test_a_slave_that_is_silent_at_first_is_not_pushed_out_by_silent_ones(tmp_path: Path) -> None:
    """A RocketMQ 4.9 slave says nothing for five seconds."""
    patient = {"haSendHeartbeatInterval": 60_000, "haHousekeepingInterval": 120_000}
    with Node(tmp_path / "master", **SIZES, **patient).start("ha_listener") as master, ExitStack() as held:
        master.append(b"something")
        slave = held.enter_context(come(master))
        for _ in range(200):
            held.callback(come(master).close)
        slave.sendall(REPORT.pack(4))
        assert exactly(slave, FRAME_HEADER_BYTES + 5)[FRAME_HEADER_BYTES:] == b"thing"


def test_a_report_in_pieces_is_one_report_and_what_follows_it_is_the_senders(master: Node) -> None:
    master.append(b"something")
    with come(master, REPORT.pack(4)[:3]) as slave:
        slave.sendall(REPORT.pack(4)[3:] + REPORT.pack(4)[:5])
        assert exactly(slave, FRAME_HEADER_BYTES + 5)[FRAME_HEADER_BYTES:] == b"thing"
        slave.sendall(REPORT.pack(4)[5:] + REPORT.pack(9))
        wait_for(master.counters.ha[0].slave_ack_offset, 9)


@pytest.mark.parametrize(
    "said",
    [
        encode(RemotingCommand(105, ext_fields={"topic": "a"}, opaque=7)),
        encode(RemotingCommand(34, body=b"x" * 100, opaque=7)),
        b"GET /metrics HTTP/1.1\r\n",
        REPORT.pack(-1),
        REPORT.pack(1 << 62),
    ],
    ids=["route request", "heartbeat with a body", "http", "below zero", "an absurd number"],
)
def test_a_client_of_another_protocol_at_the_ha_port_is_no_slave(master: Node, said: bytes) -> None:
    master.append(bytes(1000))
    with come(master, said) as sock:
        assert hang_up_seen(sock)
    wait_until(master.counters.ha_ended[CloseReason.NOT_A_SLAVE], lambda count: count == 1)
    assert master.counters.ha_ended[CloseReason.REQUEST_ABOVE_END].read() == 0
    assert master.counters.pids["sender.0"].read() == 0


def test_no_advice_that_a_stranger_can_cause_is_to_remove_a_log() -> None:
    assert not [advice for advice in ADVICE.values() if "remove" in advice or "empty" in advice]


def test_without_a_descriptor_for_one_more_the_listener_waits_and_serves_on(master: Node, tmp_path: Path) -> None:
    listener = master.pids["ha_listener"]
    wait_until(master.counters.heartbeats["ha_listener"], lambda beat: beat != 0)
    _soft, hard = resource.prlimit(listener, resource.RLIMIT_NOFILE)
    resource.prlimit(listener, resource.RLIMIT_NOFILE, (descriptors(listener) + 12, hard))
    master.append(b"something")
    with ExitStack() as held:
        for _ in range(40):
            held.callback(come(master).close)
        with slave_of(master, tmp_path / "slave").start(*SLAVE_ROLES) as slave:
            wait_for(slave.counters.max_physical_offset, len(b"something"))
    assert is_running(listener)


def test_an_unlisted_address_is_closed_unheard_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allow_list, "is_this_host", lambda _peer, _own: False)
    with Node(tmp_path / "master", haAllowList="192.0.2.0/24", **SIZES).start("ha_listener") as master:
        master.append(b"something")
        wait_until(master.counters.heartbeats["ha_listener"], lambda beat: beat != 0)  # it has all that it opens
        before = descriptors(master.pids["ha_listener"])
        for _ in range(100):
            with come(master) as sock:
                assert hang_up_seen(sock), "before it said anything"
        wait_until(master.counters.ha_ended[CloseReason.NOT_ALLOWED], lambda count: count == 100)
        assert not master.counters.pids["sender.0"].read()
        await_that(lambda: descriptors(master.pids["ha_listener"]) == before, "none is left open")
    with Node(tmp_path / "other", haAllowList="127.0.0.1", **SIZES).start("ha_listener") as other:
        other.append(b"something")
        with slave_of(other, tmp_path / "slave").start(*SLAVE_ROLES) as slave:
            wait_for(slave.counters.max_physical_offset, len(b"something"))


def test_lines_about_strangers_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rare_lines, "PERIOD_MS", 3_600_000)  # all of it is within one
    told = tmp_path / "log"
    handler = logging.FileHandler(told)
    logging.getLogger("slipstream").addHandler(handler)
    try:
        with Node(tmp_path / "master", **SIZES).start("ha_listener") as master:
            for _ in range(100):
                with come(master, REPORT.pack(-1)) as sock:
                    assert hang_up_seen(sock)
            wait_until(master.counters.ha_ended[CloseReason.NOT_A_SLAVE], lambda count: count == 100)
            for _ in range(LINES_A_PERIOD + 4):
                sock = come(master, REPORT.pack(0))
                pid = wait_until(master.counters.pids["sender.0"], lambda pid: pid != 0)
                vanish(sock)
                wait_until(master.counters.pids["sender.0"], lambda now, was=pid: now != was)
            master.stop("ha_listener")
    finally:
        logging.getLogger("slipstream").removeHandler(handler)
        handler.close()
    lines = told.read_text().splitlines()
    assert 0 < len([line for line in lines if "NOT_A_SLAVE" in line]) <= LINES_A_PERIOD
    assert len(lines) <= 3 * LINES_A_PERIOD


def test_a_listener_that_stops_lets_everybody_go(master: Node) -> None:
    with come(master) as silent, come(master, REPORT.pack(0)) as slave:
        wait_until(master.counters.ha[0].state, lambda state: state == 2)
        assert master.stop("ha_listener") == 0
        assert hang_up_seen(silent)
        assert hang_up_seen(slave)


def test_a_killed_sender_frees_its_slot(master: Node) -> None:
    with come(master, REPORT.pack(0)):
        pid = wait_until(master.counters.pids["sender.0"], lambda pid: pid != 0)
        os.kill(pid, signal.SIGKILL)
        wait_until(master.counters.ha_ended[CloseReason.KILLED], lambda count: count == 1)


def fail_a_sender(master: Node, times: int) -> None:
    """By a segment that is gone from the middle of the log: whoever asks for it has his sender die."""
    deaths = master.counters.deaths["sender.0"].read()
    for death in range(deaths + 1, deaths + times + 1):
        with come(master, REPORT.pack(SEGMENT)) as slave:
            assert hang_up_seen(slave)
        wait_until(master.counters.deaths["sender.0"], lambda counted, want=death: counted == want)


def test_a_sender_that_dies_again_and_again_is_a_problem(master: Node) -> None:
    master.append(bytes(3 * SEGMENT))
    gone = master.config.store_path_commit_log / f"{SEGMENT:020d}"
    gone.unlink()
    fail_a_sender(master, LOOPING_DEATHS - 1)
    assert problems(master.counters, str(master.counters.directory), "SYNC_MASTER") == []
    fail_a_sender(master, 1)
    (told,) = problems(master.counters, str(master.counters.directory), "SYNC_MASTER")
    assert "sender.0" in told and "SEGMENT_REMOVED" in told and gone.name in told
    master.kill("ha_listener")
    master.start("ha_listener")
    wait_until(master.counters.deaths["sender.0"], lambda counted: counted == 0)


def test_connections_that_end_by_themselves_are_no_deaths(master: Node) -> None:
    for _ in range(LOOPING_DEATHS):
        with come(master, REPORT.pack(0)) as slave:
            pid = wait_until(master.counters.pids["sender.0"], lambda pid: pid != 0)
            vanish(slave)
            wait_until(master.counters.pids["sender.0"], lambda now, was=pid: now != was)
    with come(master, REPORT.pack(0)):
        wait_until(master.counters.ha[0].state, lambda state: state == 2)
        assert master.stop("ha_listener") == 0
    assert problems(master.counters, str(master.counters.directory), "SYNC_MASTER") == []


def test_deaths_of_senders_are_forgotten_after_a_minute(master: Node) -> None:
    master.stop("ha_listener")
    deaths, counted = SenderDeaths(master.counters, master.failures), master.counters.deaths["sender.3"]
    for now_ms in (0, 1000, 2000):
        deaths.died(3, signal.SIGSEGV, now_ms)
    assert counted.read() == 3
    assert "SIGSEGV" in problems(master.counters, str(master.counters.directory), "SYNC_MASTER")[0]
    deaths.forget(DEATHS_WINDOW_MS + 1000)
    assert counted.read() == 1
