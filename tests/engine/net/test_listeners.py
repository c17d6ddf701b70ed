"""Where a broker's ports are reached: what its file says, and loopback alone where the broker itself is there."""

from __future__ import annotations

import socket
from pathlib import Path

import psutil
import pytest

from engine.net.listeners import EVERYWHERE, bind_address, is_loopback, listen
from tests.harness.conditions import await_that
from tools.common.local_broker import LocalBroker

SECONDS = 60.0
SMALL = {"mappedFileSizeCommitLog": 1 << 18, "mappedFileSizeConsumeQueue": 20_000, "ringSizeInBytes": 1 << 20}


def has_ipv6() -> bool:
    try:
        listen("::1", 0).close()
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this host has no IPv6")


def addresses_listened_at(broker: LocalBroker) -> set[tuple[str, int]]:
    """(address, port relative to listenPort) of every listening socket of a broker's processes."""
    found = set()
    root = psutil.Process(broker.process.pid)
    for process in (root, *root.children(recursive=True)):
        for each in process.net_connections(kind="tcp"):
            if each.status == psutil.CONN_LISTEN and abs(each.laddr.port - broker.port) <= 2:
                found.add((each.laddr.ip, each.laddr.port - broker.port))
    return found


@pytest.mark.parametrize(
    ("keys", "address"),
    [
        ({}, "127.0.0.1"),
        ({"bindAddress": "127.0.0.2"}, "127.0.0.2"),
        ({"bindAddress": "0.0.0.0"}, "0.0.0.0"),
        pytest.param({"brokerIP1": "::1", "brokerIP2": "::1"}, "::1", marks=needs_ipv6),
    ],
)
def test_all_three_ports_are_reached_where_the_file_says(keys: dict[str, str], address: str, tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "broker", **SMALL, **keys) as broker:
        target = "127.0.0.1" if address == "0.0.0.0" else address
        wanted = {(address, 0), (address, 1), (address, -2)}
        await_that(lambda: len(addresses_listened_at(broker)) >= len(wanted), "its ports are bound", SECONDS, 0.05)
        assert addresses_listened_at(broker) == wanted
        for _address, distance in wanted:
            socket.create_connection((target, broker.port + distance), timeout=SECONDS).close()


@pytest.mark.parametrize(
    ("written", "own", "bound"),
    [
        (None, "127.0.0.1", "127.0.0.1"),
        (None, "127.3.2.1", "127.3.2.1"),
        (None, "::1", "::1"),
        (None, "::ffff:127.0.0.1", "::ffff:127.0.0.1"),
        ("10.1.2.3", "127.0.0.1", "10.1.2.3"),
        ("::", "127.0.0.1", "::"),
        ("0.0.0.0", "10.0.0.1", "0.0.0.0"),
    ],
)
def test_what_is_written_comes_before_what_follows_from_the_own_address(
    written: str | None, own: str, bound: str
) -> None:  # fmt: skip
    assert bind_address(written, own) == bound


def test_a_host_that_others_reach_is_reached_everywhere() -> None:
    assert bind_address(None, "10.0.0.1") in ("0.0.0.0", "::")
    assert not is_loopback("10.0.0.1") and not is_loopback("fe80::1%eth0")


@needs_ipv6
def test_everywhere_is_both_families() -> None:
    with listen(EVERYWHERE, 0) as listening:
        port = listening.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), timeout=SECONDS).close()


def test_an_address_that_cannot_be_bound_is_named() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(OSError, match=r"127\.0\.0\.1:\d+: Address already in use"):
        listen("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(OSError, match=r"192\.0\.2\.1:0: .*; give an address of this host"):
        listen("192.0.2.1", 0)
