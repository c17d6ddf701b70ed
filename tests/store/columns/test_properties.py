"""Property strings: the same answers as the store's own parser, for whatever producers put there."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.columns.records import Records
from store.columns.window import LogWindow
from store.message.properties import parse_text
from store.message.property_kernel import PAIR_BYTES_MIN, STRING_BYTES_MAX
from store.message.record import encode

PIECES = st.lists(st.sampled_from(["\x01", "\x02", "TAGS", "KEYS", "a", "b", "é", "\n", "中", "XTAGS"]), max_size=24)


def records_with(texts: list[str]) -> Records:
    """A record of each property string."""
    encoded = [encode(topic="t", body=b"", properties=text.encode()) for text in texts]
    array, ends = np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([len(one) for one in encoded], dtype=np.int64)
    return Records(LogWindow("a segment", 0, array, len(array)), ends - [len(one) for one in encoded])


def both(texts: list[str]) -> None:
    records, parsed = records_with(texts), [parse_text(text) for text in texts]
    assert [dict(pairs) for pairs in records.properties.to_pylist()] == parsed
    assert [len(pairs) for pairs in records.properties.to_pylist()] == [len(pairs) for pairs in parsed]
    for name in ("TAGS", "KEYS"):
        values = records.property_value(name)
        assert values.to_pylist() == [pairs.get(name) for pairs in parsed]
        assert values.type == pa.string()


@given(st.lists(PIECES.map("".join), max_size=8))
def test_equal_to_the_stores_parser(texts: list[str]) -> None:
    both(texts)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "TAGS\x01a",
        "TAGS\x01a\x02",
        "TAGS\x01\x02KEYS\x01k",
        "\x01v\x02TAGS\x01a\x01b",
        "TAGS\x01a\x02TAGS\x01b\x02KEYS\x01x",
        "TAGS\x01a\x02TAGS\x01\x02",
        "NOTAGS\x01z\x02x",
        "\x02\x02\x02",
    ],
)
def test_odd_strings(text: str) -> None:
    both([text, "KEYS\x01k\x02KEYS\x01l", text])


def test_names_that_repeat_among_more_names_than_a_word_has_bits() -> None:
    text = "\x02".join(f"n{number}\x01{number}" for number in range(70))
    both([text, f"{text}\x02n3\x01again", "TAGS\x01t"])


def test_the_longest_string_of_pairs_with_one_name_or_many() -> None:
    many = "".join(f"{chr(200 + number)}\x01{number % 10}\x02" for number in range(5700))
    one = "a\x01b\x02" * (STRING_BYTES_MAX // PAIR_BYTES_MIN) + "a\x01c"
    both([one, many, one, "a\x01d", many])


def test_names_that_java_reads_as_equal_are_one() -> None:
    raw = b"n\xff\x011\x02n\xfe\x012\x02TAGS\x01t"
    record = encode(topic="t", body=b"", properties=raw)
    window = LogWindow("a segment", 0, np.frombuffer(record, np.uint8), len(record))
    assert Records(window, np.zeros(1, np.int64)).properties.to_pylist() == [[("n\ufffd", "2"), ("TAGS", "t")]]


def test_a_value_that_is_no_utf_8_is_read_as_java_reads_it() -> None:
    record = encode(topic="t", body=b"", properties=b"TAGS\x01a\xffb\x02KEYS\x01k")
    window = LogWindow("a segment", 0, np.frombuffer(record * 2, np.uint8), 2 * len(record))
    records = Records(window, np.array([0, len(record)]))
    assert records.property_value("TAGS").to_pylist() == ["a\ufffdb"] * 2
    assert records.property_value("KEYS").to_pylist() == ["k"] * 2
    assert records.property_value("none").to_pylist() == [None] * 2
