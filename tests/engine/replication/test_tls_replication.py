"""Replication over mutual TLS between real processes: the same bytes and acknowledgements, and who is refused why."""

from __future__ import annotations

import logging
import os
import random
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from engine.net import tls
from engine.protocol.ha.wire import REPORT, CloseReason
from engine.replication import ha_listener
from engine.shared_memory import address_cursors, addresses
from engine.shared_memory.cursors import HaConnectionCursors, HaSlotState
from tests.harness.certificates import Authority, Issued, tls_file
from tests.harness.conditions import await_that
from tests.harness.ha_node import WAIT_MS, Node, wait_for, wait_until

SEGMENT = 256 * 1024
SIZES = {"mappedFileSizeCommitLog": SEGMENT, "haReconnectInterval": 100}
SECONDS = 120.0
SLAVE_ROLES = ("housekeeper", "allocator", "receiver")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "other", "somebody else")


@pytest.fixture
def lines(tmp_path: Path) -> Iterator[Path]:
    """What the processes forked by this test log."""
    path, log = tmp_path / "lines", logging.getLogger("slipstream")
    handler = logging.FileHandler(path)
    log.addHandler(handler)
    yield path
    log.removeHandler(handler)
    handler.close()


def mutual(path: Path, own: Issued, trusted: Authority) -> dict[str, object]:
    """The settings of a node that shows `own` and trusts what `trusted` issued."""
    shown = {"server_certPath": own.certificate, "server_keyPath": own.key}
    file = tls_file(path, **shown, server_trustCertPath=trusted.certificate)
    return {"haTlsMode": "enforcing", "haTlsConfigFile": file}


def master_in(directory: Path, **settings: object) -> Node:
    return Node(directory / "master", **SIZES, **settings).start("ha_listener")


def slave_of(master: Node, directory: Path, **settings: object) -> Node:
    return Node(directory / "slave", master=master.counters.ha_listen_port.read(), **SIZES, **settings)


def caught_up(master: Node, slave: Node) -> HaConnectionCursors:
    """Wait until it has all, and has said so; the words of its slot: one that came again may have another."""
    end = master.counters.max_physical_offset.read()
    wait_for(slave.counters.max_physical_offset, end)

    def serving() -> HaConnectionCursors | None:
        words = (words for words in master.counters.ha if words.state.read() == HaSlotState.TRANSFER)
        return next((one for one in words if one.slave_ack_offset.read() >= end), None)

    return await_that(serving, f"the slave has acknowledged {end}")  # type: ignore[return-value]


def test_a_log_of_several_segments_comes_whole_through_kills_of_either_end(
    tmp_path: Path, authority: Authority
) -> None:
    data = b"\0" + random.Random(1).randbytes(6 * SEGMENT + 777)  # as every log begins
    settings = mutual(tmp_path / "tls", authority.issue("node"), authority)
    with (
        master_in(tmp_path, **settings) as master,
        slave_of(master, tmp_path, **settings).start(*SLAVE_ROLES) as slave,
    ):
        killed, words = 0, master.counters.ha[0]
        for at in range(0, len(data), 100_003):
            master.append(data[at : at + 100_003])
            if at and killed < 6:
                killed += 1
                if killed % 2:
                    slave.kill("receiver")
                    slave.start("receiver")
                else:
                    kill_sender(master, words)
            words = caught_up(master, slave)
        assert slave.log() == data
        assert master.counters.ha_ended[CloseReason.TLS].read() == 0
        shown = address_cursors.text_of(words.peer_address)
        assert shown.startswith("127.0.0.1:")  # the slave's own, not the relay's
        seen = addresses.unpack(*address_cursors.read(slave.counters.ha_client.master_address))
        assert seen == ("127.0.0.1", master.counters.ha_listen_port.read())


def kill_sender(master: Node, words: HaConnectionCursors) -> None:
    """The one of that connection."""
    pid = wait_until(
        master.counters.pids[f"sender.{words.slot}"], lambda pid: pid != 0
    )  # it may serve before it is told
    os.kill(pid, signal.SIGKILL)


def test_what_was_written_before_the_master_stops_arrives(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ha_listener, "STOP_SENDER_MS", WAIT_MS)
    settings = mutual(tmp_path / "tls", authority.issue("node"), authority)
    data = b"\0" + random.Random(2).randbytes(SEGMENT)
    with (
        master_in(tmp_path, **settings) as master,
        slave_of(master, tmp_path, **settings).start(*SLAVE_ROLES) as slave,
    ):
        master.append(data[:100])
        caught_up(master, slave)
        master.append(data[100:])
        assert master.stop("ha_listener") == 0
        wait_for(slave.counters.max_physical_offset, len(data))
        assert slave.log() == data
        assert master.counters.ha[0].reason.read() == CloseReason.STOPPED
        wait_until(slave.counters.ha_client.reason, lambda reason: reason != CloseReason.NONE)
        wait_until(slave.counters.ha_client.ended[CloseReason.PEER_CLOSED], lambda count: count == 1)


Settings = dict[str, object]
Certificates = Callable[[Path, Authority, Authority], tuple[Settings, Settings]]


def _both(path: Path, of_master: Issued, of_slave: Issued, trusted: Authority) -> tuple[Settings, Settings]:
    return mutual(path / "master.tls", of_master, trusted), mutual(path / "slave.tls", of_slave, trusted)


CASES: dict[str, tuple[Certificates, str, str]] = {
    "the master's has expired": (
        lambda path, ours, _other: _both(path, ours.issue("m", is_expired=True), ours.issue("s"), ours),
        "says that our certificate has expired",
        "not accepted: certificate has expired",
    ),
    "the slave's has expired": (
        lambda path, ours, _other: _both(path, ours.issue("m"), ours.issue("s", is_expired=True), ours),
        "not accepted: certificate has expired",
        "",
    ),
    "the master's is by somebody else": (
        lambda path, ours, other: _both(path, other.issue("m"), ours.issue("s"), ours),
        "does not trust the issuer of our certificate",
        "not accepted: unable to get local issuer certificate",
    ),
    "the slave's is by somebody else": (
        lambda path, ours, other: _both(path, ours.issue("m"), other.issue("s"), ours),
        "not accepted: unable to get local issuer certificate",
        "",
    ),
    "the master's is for another host": (
        lambda path, ours, _other: _both(path, ours.issue("m", names="DNS:elsewhere"), ours.issue("s"), ours),
        "",
        "IP address mismatch",
    ),
    "the slave speaks plaintext": (
        lambda path, ours, _other: (mutual(path / "tls", ours.issue("m"), ours), {}),
        "the other side speaks no TLS here",
        "",
    ),
    "the master speaks plaintext": (
        lambda path, ours, _other: ({}, mutual(path / "tls", ours.issue("s"), ours)),
        "it uses TLS, but haTlsMode=disabled here",
        "the other side closed the connection",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_which_slaves_are_refused_and_why(
    case: str, tmp_path: Path, authority: Authority, stranger: Authority, lines: Path
) -> None:
    certificates, masters_words, slaves_words = CASES[case]
    of_master, of_slave = certificates(tmp_path, authority, stranger)
    with (
        master_in(tmp_path, **of_master) as master,
        slave_of(master, tmp_path, **of_slave).start(*SLAVE_ROLES) as slave,
    ):
        master.append(b"something")
        refused = [CloseReason.TLS] if slaves_words else [CloseReason.TLS, CloseReason.REFUSED]
        ended = slave.counters.ha_client.ended
        await_that(lambda: sum(ended[reason].read() for reason in refused) >= 2, "the slave tries twice", SECONDS)
        if slaves_words:
            wait_until(slave.counters.ha_client.reason, lambda reason: reason == CloseReason.TLS)
        wait_until(master.counters.ha_ended[CloseReason.TLS], lambda count: count >= 1 or not masters_words)
        assert master.counters.pids["sender.0"].read() == slave.counters.max_physical_offset.read() == 0
        await_that(lambda: masters_words in lines.read_text() and slaves_words in lines.read_text(), "both say why")


def test_a_handshake_that_nobody_finishes_has_a_deadline_and_holds_up_nobody(
    tmp_path: Path, authority: Authority
) -> None:
    settings = mutual(tmp_path / "tls", authority.issue("node"), authority)
    short = {"haSendHeartbeatInterval": 200, "haHousekeepingInterval": 1000}
    with master_in(tmp_path, **settings, **short) as master:
        port = master.counters.ha_listen_port.read()
        silent = [socket.create_connection(("127.0.0.1", port), timeout=SECONDS) for _ in range(20)]
        for number, sock in enumerate(silent):
            sock.sendall(b"\x16\x03\x01"[: number % 4])
        master.append(b"something")
        with slave_of(master, tmp_path, **settings).start(*SLAVE_ROLES) as slave:
            caught_up(master, slave)
        for sock in silent:
            with sock, suppress(ConnectionResetError):  # what it said may not have been read by then
                assert sock.recv(1) == b""


def test_a_report_over_tls_may_come_in_pieces_and_more_behind_it_is_the_senders(
    tmp_path: Path, authority: Authority
) -> None:
    settings = mutual(tmp_path / "tls", authority.issue("node"), authority)
    context = tls.RenewedContext(Path(str(settings["haTlsConfigFile"])), tls.of_ha_client).current()
    with master_in(tmp_path, **settings) as master:
        master.append(b"something")
        raw = socket.create_connection(("127.0.0.1", master.counters.ha_listen_port.read()), timeout=SECONDS)
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as slave:
            assert slave.version() == "TLSv1.3"
            slave.sendall(REPORT.pack(4)[:3])
            slave.sendall(REPORT.pack(4)[3:] + REPORT.pack(4)[:5])
            came = b""
            while len(came) < 17:
                came += slave.recv(17 - len(came))
            assert came[12:] == b"thing"
            slave.sendall(REPORT.pack(4)[5:] + REPORT.pack(9))
            wait_for(master.counters.ha[0].slave_ack_offset, 9)


def test_a_connection_stands_through_a_renewal_and_the_next_one_uses_what_is_new(
    tmp_path: Path, authority: Authority, stranger: Authority
) -> None:
    shown = Issued(tmp_path / "own.pem", tmp_path / "own.key")
    shown.replace(authority.issue("node"))
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.certificate.read_bytes())
    shows = {"server_certPath": shown.certificate, "server_keyPath": shown.key}
    file = tls_file(tmp_path / "tls", **shows, server_trustCertPath=trusted)
    settings = {"haTlsMode": "enforcing", "tls.config.file": file}
    with (
        master_in(tmp_path, **settings) as master,
        slave_of(master, tmp_path, **settings).start(*SLAVE_ROLES) as slave,
    ):
        master.append(b"the first")
        caught_up(master, slave)
        trusted.write_bytes(stranger.certificate.read_bytes())
        shown.replace(stranger.issue("node"))
        master.append(b"the second")
        kill_sender(master, caught_up(master, slave))
        master.append(b"the third")
        caught_up(master, slave)
        old = ssl.create_default_context(cafile=os.fspath(authority.certificate))
        raw = socket.create_connection(("127.0.0.1", master.counters.ha_listen_port.read()), timeout=SECONDS)
        with pytest.raises(ssl.SSLCertVerificationError), old.wrap_socket(raw, server_hostname="127.0.0.1"):
            pass
