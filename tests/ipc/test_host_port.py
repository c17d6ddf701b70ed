"""Addresses that are one, and texts that are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipc.host_port import host_port


def test_a_host_and_a_port() -> None:
    assert host_port("broker-a:10911") == ("broker-a", 10911)
    assert host_port("[::1]:1") == ("::1", 1)
    assert host_port("fe80::1:10911") == ("fe80::1", 10911), "RocketMQ writes IPv6 addresses without brackets"
    assert host_port("h:65535", lowest=65535) == ("h", 65535)


NONE = (None, "", ":", "h", "h:", ":1", "[]:1", "h:0", "h:65536", "h:-1", "h:+1", "h:1 ", "h:\u0663", "h:" + "0" * 9)


@pytest.mark.parametrize("text", NONE)
def test_an_invalid_address_is_refused(text: str | None) -> None:
    assert host_port(text) is None


@given(text=st.text(), lowest=st.integers(1, 70_000))
def test_any_text_is_an_address_or_refused(text: str, lowest: int) -> None:
    found = host_port(text, lowest)
    assert found is None or (found[0] and lowest <= found[1] < 1 << 16)
