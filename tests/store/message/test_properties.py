"""Property strings, Java's hash and Java's decoding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import InvalidMessage, StoreError
from store.message import properties

texts = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1, max_size=20)


@given(st.dictionaries(texts, texts, max_size=5), st.booleans())
def test_what_is_formatted_is_parsed(pairs: dict[str, str], trailing: bool) -> None:
    raw = properties.format(pairs, trailing_separator=trailing)
    assert properties.parse(raw) == pairs
    assert raw.endswith(b"\x02") == (trailing and bool(pairs))


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"", {}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b\x02\x02c\x01d", {"a": "b", "c": "d"}),
        (b"a\x01b\x02a\x01c", {"a": "c"}),  # the later one counts
        (b"a\x01\x02b\x01c", {"b": "c"}),  # no value
        (b"\x01ab\x02b\x01c", {"b": "c"}),  # no name
        (b"abc\x02b\x01c", {"b": "c"}),  # no separator
        (b"a\x01b\x01c", {"a": "b\x01c"}),  # the first separator counts
    ],
)
def test_malformed_parts_are_dropped_as_rocketmq_drops_them(raw: bytes, found: dict[str, str]) -> None:
    assert properties.parse(raw) == found


@given(st.binary(max_size=100))
def test_any_bytes_are_parsed(raw: bytes) -> None:
    assert all(name and value for name, value in properties.parse(raw).items())


@pytest.mark.parametrize("pairs", [{"": "x"}, {"a": ""}, {"a\x01": "b"}, {"a": "b\x02"}, {"a": "b" * 32767}])
def test_what_could_not_be_read_back_is_refused(pairs: dict[str, str]) -> None:
    with pytest.raises(InvalidMessage) as refused:
        properties.format(pairs)
    assert isinstance(refused.value, StoreError)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("AaAa", 2031744),
        ("tag-ü", 110118793),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 1772899),
        ("Aa", 2112),
        ("BB", 2112),
    ],
)
def test_java_hash(text: str, value: int) -> None:
    assert properties.java_hash(text) == value


def test_tags_code_of_no_tags_is_zero() -> None:
    assert [properties.tags_code(tags) for tags in (None, "", "a")] == [0, 0, 97]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\xff", "�"),
        (b"a\xed\xa0\x80b", "a�b"),  # a lone surrogate is one character for Java
        (b"\xe2\x82", "�"),
        (b"\xf0\x9f\x98\x80", "\U0001f600"),
        (b"\xc0\xaf", "��"),
    ],
)
def test_malformed_utf_8_is_replaced_as_java_does(raw: bytes, text: str) -> None:
    assert properties.java_text(raw) == text


def test_utf16_units_and_lengths_are_java_s() -> None:
    assert properties.utf16_length("a\U0001f600") == 3
    assert list(properties.utf16_units("a\U0001f600")) == [0x61, 0xD83D, 0xDE00]
    assert sorted(["\uffff", "\U0001f600"], key=properties.utf16_sort_key) == ["\U0001f600", "\uffff"]
