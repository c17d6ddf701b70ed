"""Texts that are JSON to fastjson alone, and the ways in which they are broken. Java's own reading: tests/interop."""

from __future__ import annotations

import json
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.tables import fastjson, loose_json
from store.tables.fastjson import MalformedJson

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
)


def sent(text: str) -> Any:
    return fastjson.sent(text.encode(), "it", 1 << 20)


@given(plain, st.sampled_from([None, 1]))
def test_what_is_json_to_everybody_is_the_same_here(value: Any, indent: int | None) -> None:
    for ascii_alone in (True, False):
        assert loose_json.read(json.dumps(value, indent=indent, ensure_ascii=ascii_alone)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{a:1,'b':\"x\",$c_1:[,1,,2,],,}", {"a": 1, "b": "x", "$c_1": [1, 2]}),
        ("{1:{-2:3}}", {"1": {"-2": 3}}),
        ("/*a*/{/*b*/a/*c*/:/*d*/1/*e*/}//f", {"a": 1}),
        ("[+7,007,5.,1.50,5F,5L,1e3]", [7, 7, 5, Decimal("1.50"), Decimal("5.0"), 5, Decimal("1E+3")]),
        ("[NaN,undefined,null,Set[1],TreeSet[]]", [None, None, None, [1], []]),
        (r"'\x41\0\7\v\F\'\u00e4\ud83d\ude00'", "A\0\7\v\f'ä\U0001f600"),
        ("\ufeff\0 [1]\x1a\x1a", [1]),
        (" \n", None),
        (r'["\ud800","\udc00x",{"\ud800":"ä"}]', ["?", "?x", {"?": "ä"}]),
    ],
)
def test_what_fastjson_alone_reads_is_read(text: str, value: Any) -> None:
    assert sent(text) == value


def test_bytes_that_are_no_utf8_are_marks_as_javas_strings_have_them() -> None:
    assert fastjson.sent(b'{"a":"\xff"}', "it", 99) == {"a": "\ufffd"}


@pytest.mark.parametrize(
    "text",
    ["{", "[", "{a}", "{a:}", "{a:,}", "[1 2]", "{a:1 b:2}", "'x", '"x\\', r'"\q"', r'"\u00g0"', "--1", "tru", "[1]]",
     "{}{}", "/*", "/* *", "x", "{ä:1}", "1.5.5", "[" * 70, "{a:" * 70, "Set", "Set{}", ",", "{:1}", "9" * 5000],
)  # fmt: skip
def test_what_fastjson_refuses_is_refused(text: str) -> None:
    with pytest.raises(MalformedJson, match="it: "):
        sent(text)


def test_a_text_for_fastjson_alone_is_bounded() -> None:
    assert fastjson.sent(b"{a:1}", "it", 99, 5) == {"a": 1}
    with pytest.raises(MalformedJson):
        fastjson.sent(b"{a:11}", "it", 99, 5)
    with pytest.raises(MalformedJson, match="more than the 5"):
        fastjson.sent(b'{"a":1}', "it", 5)


@given(st.text("{}[]\":,0a\\/*'x.-\n", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(MalformedJson):
        sent(text)
