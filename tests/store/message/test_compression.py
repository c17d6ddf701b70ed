"""Compressed bodies: what clients of each kind send, damaged ones, and ones that would fill the memory."""

from __future__ import annotations

import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from store.errors import MalformedData
from store.message.compression import body_of, compressed

KINDS = {0x001: zlib.compress, 0x301: zlib.compress, 0x101: lz4.frame.compress, 0x201: zstandard.compress}


@pytest.mark.parametrize("flag", KINDS)
@given(body=st.binary(min_size=1, max_size=2000))
def test_round_trip(flag: int, body: bytes) -> None:
    assert body_of(KINDS[flag](body), flag) == body
    assert body_of(memoryview(KINDS[flag](body)), flag) == body


def test_what_is_not_compressed_is_itself() -> None:
    body = b"plain"
    assert body_of(body, 0x300) is body
    assert body_of(b"", 0x1) == b""


@pytest.mark.parametrize("flag", [0x101, 0x201])
def test_several_frames_are_one_body(flag: int) -> None:
    assert body_of(KINDS[flag](b"one") + KINDS[flag](b"two"), flag) == b"onetwo"


@pytest.mark.parametrize("flag", KINDS)
def test_output_is_bounded(flag: int) -> None:
    assert len(body_of(KINDS[flag](bytes(1000)), flag, 1000)) == 1000
    with pytest.raises(MalformedData, match="grows beyond 999 bytes"):
        body_of(KINDS[flag](bytes(1000)), flag, 999)
    with pytest.raises(MalformedData, match="grows beyond"):
        body_of(KINDS[flag](bytes(50_000_000)), flag, 1_000_000)


@pytest.mark.parametrize("flag", KINDS)
@given(data=st.data())
def test_damage_is_one_of_our_errors_or_another_body(flag: int, data: st.DataObject) -> None:
    content = bytearray(KINDS[flag](b"body" * 50))
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(content[: data.draw(st.integers(1, len(content)))])
    try:
        assert isinstance(body_of(cut, flag, 10_000), bytes)
    except MalformedData as error:
        assert "compressed body" in str(error)


@pytest.mark.parametrize("flag", KINDS)
def test_a_cut_body_is_refused(flag: int) -> None:
    with pytest.raises(MalformedData):
        body_of(KINDS[flag](b"body" * 50)[:-1], flag)


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(MalformedData, match="unknown compression 5"):
        body_of(b"x", 0x501)


def test_a_zlib_stream_that_asks_for_a_dictionary_is_empty_as_for_java() -> None:
    packer = zlib.compressobj(zdict=b"words that come often")
    packed = packer.compress(b"words that come often, and others") + packer.flush()
    assert bytes(body_of(packed, 1)) == b""
    with pytest.raises(MalformedData):
        body_of(packed[:5], 1)


def test_a_body_is_compressed_as_by_a_java_producer() -> None:
    packed = compressed(b"body" * 2000)
    assert packed == zlib.compress(b"body" * 2000, 5)
    assert bytes(body_of(packed, 1)) == b"body" * 2000
