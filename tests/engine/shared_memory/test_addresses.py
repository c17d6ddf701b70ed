"""Addresses in counters: every address and port comes back, nothing else goes in."""

from __future__ import annotations

import ipaddress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.shared_memory import address_cursors, addresses
from engine.shared_memory.declarations import AddressCursors
from ipc.counters import Cursor


@given(st.ip_addresses(v=4), st.integers(0, 65535))
def test_an_address_comes_back_from_its_word(address: ipaddress.IPv4Address, port: int) -> None:
    word, high, low = addresses.pack(str(address), port)
    assert (0 <= word < 1 << 48, high, low) == (True, 0, 0)
    if word:
        assert addresses.unpack(word) == (str(address), port)
        assert addresses.text(word) == f"{address}:{port}"


@given(st.ip_addresses(v=6), st.integers(0, 65535))
def test_an_ipv6_address_comes_back_from_its_three_words(address: ipaddress.IPv6Address, port: int) -> None:
    packed = addresses.pack(f"{address}%eth0", port)
    assert all(-(1 << 63) <= word < 1 << 63 for word in packed)
    told = str(address.ipv4_mapped or address)
    if not packed.word:  # ::ffff:0.0.0.0, port 0
        return
    assert addresses.unpack(*packed) == (told, port)
    assert addresses.split(addresses.text(*packed)) == (told, str(port))


@settings(deadline=None)  # the first publication loads compiled code
@given(st.lists(st.tuples(st.ip_addresses(), st.integers(1, 65535)), min_size=1, max_size=5))
def test_what_is_published_is_read_back_whole(found: list[tuple[ipaddress.IPv6Address, int]]) -> None:
    words = np.zeros(24, np.int64)
    at = AddressCursors(*(Cursor(words, 8 * number, "a") for number in range(3)))
    for address, port in found:
        address_cursors.publish(at, str(address), port)
        assert address_cursors.read(at) == addresses.pack(str(address), port)


def test_a_half_written_address_is_not_shown() -> None:
    words = np.zeros(24, np.int64)
    at = AddressCursors(*(Cursor(words, 8 * number, "a") for number in range(3)))
    address_cursors.publish(at, "2001:db8::1", 1)
    words[0] = 0  # its writer was killed there
    assert address_cursors.text_of(at) == "-"


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("10.0.0.1:2", "10.0.0.1", "2"), ("[::1]:2", "::1", "2"), ("fe80::1:10", "fe80::1", "10"), ("a:b", "a", "b")],
)
def test_split(text: str, host: str, port: str) -> None:
    assert addresses.split(text) == (host, port)


@pytest.mark.parametrize("word", [0, -1])
def test_a_word_without_an_address_is_shown_as_a_dash(word: int) -> None:
    assert (addresses.unpack(word), addresses.text(word)) == (None, "-")


@pytest.mark.parametrize(("host", "port"), [("localhost", 1), ("127.0.0.1", 65536), ("127.0.0.1", -1)])
def test_what_does_not_fit_is_refused(host: str, port: int) -> None:
    with pytest.raises(ValueError, match=r"port|IPv4|octets"):
        addresses.pack(host, port)
