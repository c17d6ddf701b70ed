"""Addresses in counters: every IPv4 address and port comes back, nothing else goes in."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import addresses


@given(st.ip_addresses(v=4), st.integers(0, 65535))
def test_an_address_comes_back_from_its_word(address: ipaddress.IPv4Address, port: int) -> None:
    word = addresses.pack(str(address), port)
    assert 0 <= word < 1 << 48
    if word:
        assert addresses.unpack(word) == (str(address), port)
        assert addresses.text(word) == f"{address}:{port}"


@pytest.mark.parametrize("word", [0, -1])
def test_no_address(word: int) -> None:
    assert (addresses.unpack(word), addresses.text(word)) == (None, "-")


@pytest.mark.parametrize(("host", "port"), [("::1", 1), ("localhost", 1), ("127.0.0.1", 65536), ("127.0.0.1", -1)])
def test_what_does_not_fit_is_refused(host: str, port: int) -> None:
    with pytest.raises(ValueError, match=r"port|IPv4|octets"):
        addresses.pack(host, port)
