"""The relay between a TLS socket and a plain one, alone: all bytes both ways, ends, and a peer that does not read."""

from __future__ import annotations

import random
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.net import tls
from engine.replication import tls_relay
from tests.harness.certificates import Authority, server_file
from tests.harness.conditions import await_that

SECONDS = 120.0
IDLE_SECONDS, IDLE_CPU_SECONDS = 0.5, 0.25


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    authority = Authority(tmp_path_factory.mktemp("tls") / "ca")
    own = authority.issue("node")
    return server_file(authority.certificate.parent / "tls", own, server_trustCertPath=authority.certificate)


@contextmanager
def relayed(file: Path, small_bytes: int = 0) -> Iterator[tuple[socket.socket, ssl.SSLSocket]]:
    """The plain end of a master's side, and the slave as it speaks TLS itself."""
    contexts = [tls.RenewedContext(file, use).current() for use in (tls.of_ha_server, tls.of_ha_client)]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        if small_bytes:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, small_bytes)
        raw = socket.socket()
        if small_bytes:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, small_bytes)
        raw.connect(listening.getsockname())
        accepted, _address = listening.accept()
    joined: list[ssl.SSLSocket] = []
    shaking = threading.Thread(target=lambda: joined.append(contexts[0].wrap_socket(accepted, server_side=True)))
    shaking.start()
    peer = contexts[1].wrap_socket(raw, server_hostname="127.0.0.1", suppress_ragged_eofs=False)
    shaking.join(SECONDS)
    peer.settimeout(SECONDS)
    with tls_relay.plain_of(joined[0]) as plain, peer:
        plain.settimeout(SECONDS)
        yield plain, peer


def all_of(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = sock.recv(min(1 << 20, count - len(data)))
        assert part, f"an end after {len(data)} bytes"
        data += part
    return bytes(data)


def test_all_bytes_come_both_ways_at_once(file: Path) -> None:
    out, back = random.Random(1).randbytes(8 << 20), random.Random(2).randbytes(1 << 20)
    with relayed(file) as (plain, peer):
        sending = threading.Thread(target=plain.sendall, args=(out,))
        sending.start()
        for at in range(0, len(back), 1 << 16):  # a peer's one thread: OpenSSL lets no two at a connection
            peer.sendall(back[at : at + (1 << 16)])
            assert all_of(plain, 1 << 16) == back[at : at + (1 << 16)]
        assert all_of(peer, len(out)) == out
        sending.join(SECONDS)


def test_what_was_written_before_a_role_ends_arrives_and_then_the_end(file: Path) -> None:
    data = random.Random(3).randbytes(300_000)
    with relayed(file) as (plain, peer):
        peer.sendall(b"a report that nobody reads")
        plain.sendall(data)
        plain.shutdown(socket.SHUT_RDWR)
        assert all_of(peer, len(data)) == data
        assert peer.recv(1) == b"", "its word that this is the end"


def test_what_the_peer_said_before_its_end_is_read_and_then_the_end(file: Path) -> None:
    data = random.Random(4).randbytes(300_000)
    with relayed(file) as (plain, peer):
        sending = threading.Thread(target=lambda: (peer.sendall(data), peer.close()))
        sending.start()
        assert all_of(plain, len(data)) == data
        assert plain.recv(1) == b""
        sending.join(SECONDS)


def test_a_peer_that_does_not_read_costs_bounded_memory_and_holds_up_no_end(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_relay, "FINISH_SECONDS", 0.2)
    with relayed(file, 1 << 16) as (plain, _peer):
        plain.settimeout(1.0)
        written = 0
        with pytest.raises(TimeoutError):
            while written < 64 << 20:
                written += plain.send(bytes(1 << 16))
        assert written < 8 << 20
    await_that(lambda: not relays(), "the relay has ended", SECONDS)


def test_an_idle_relay_costs_nothing(file: Path) -> None:
    await_that(lambda: not relays(), "those of other tests have ended")
    with relayed(file) as (plain, peer):
        plain.sendall(b"something")
        assert all_of(peer, 9) == b"something"
        (relay,) = relays()
        clock = time.pthread_getcpuclockid(relay.ident or 0)  # what other threads of this process do is no cost of it
        before = time.clock_gettime(clock)
        peer.settimeout(IDLE_SECONDS)
        with pytest.raises(TimeoutError):
            peer.recv(1)
        assert time.clock_gettime(clock) - before < IDLE_CPU_SECONDS


def relays() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "TlsRelay"]
