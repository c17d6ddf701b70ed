"""Property strings: the same answers as the store's own parser, for whatever producers put there."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_bridge.records.properties import properties_map, property_value
from store.message.properties import parse_text

PIECES = st.lists(st.sampled_from(["\x01", "\x02", "TAGS", "KEYS", "a", "b", "é", "\n", "中", "XTAGS"]), max_size=24)


def both(texts: list[str]) -> None:
    strings = pa.array(texts, pa.string())
    parsed = [parse_text(text) for text in texts]
    assert [dict(pairs) for pairs in properties_map(strings).to_pylist()] == parsed
    for name in ("TAGS", "KEYS"):
        assert property_value(strings, name).to_pylist() == [pairs.get(name) for pairs in parsed]


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


def test_a_slice_of_rows_is_read_as_that_slice() -> None:
    rows = pa.array(["A\x01b", "C\x01d\x02E\x01f", "G\x01h"], pa.string()).slice(1, 2)
    assert [dict(pairs) for pairs in properties_map(rows).to_pylist()] == [{"C": "d", "E": "f"}, {"G": "h"}]
