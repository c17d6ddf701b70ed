"""Texts that each match of a regular expression has: in every text that it matches, and as long as they should be."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from store.message.properties import NAME_SEPARATOR
from tools.log.literals import in_records, literals_of

LETTERS = "ab7=-é\ufffd]}{,"
PIECES = st.one_of(
    st.text(LETTERS, min_size=1, max_size=3).filter(lambda text: text.count("{") == 0),
    st.text(".+*?()[]{}|^$-=\\", min_size=1, max_size=2).map(re.escape),
    st.sampled_from(
        ["[ab]", "[^a]", "[]a]", "[^]a]", r"[\]b]", r"\d", r"\w", r"\b", ".", "^", "$", "{", "{}", "{a}", "{1"]
    ),
)
TIMES = st.sampled_from(["", "", "", "*", "+", "?", "*?", "+?", "{2}", "{,2}", "{0,1}", "{1,}", "{2,3}?"])
PARTS = st.lists(st.tuples(PIECES, TIMES).map("".join), min_size=1, max_size=4).map("".join)
GROUPS = st.tuples(st.lists(PARTS, min_size=1, max_size=2).map("|".join), TIMES).map(lambda one: f"({one[0]}){one[1]}")
PATTERNS = st.lists(
    st.lists(st.one_of(PARTS, GROUPS), min_size=1, max_size=3).map("".join), min_size=1, max_size=3
).map("|".join)


@given(PATTERNS, st.data())
def test_a_text_that_matches_has_one_of_them(pattern: str, data: st.DataObject) -> None:
    try:
        compiled = re.compile(pattern)
    except re.error:
        assume(False)
    text = data.draw(st.from_regex(compiled))
    literals = literals_of(pattern)
    assert not literals or any(literal in text for literal in literals)


@pytest.mark.parametrize(("pattern", "literals"), [
    ("order-17", ["order-17"]),
    (r"^KEYS=key-7$", ["KEYS=key-7"]),
    (r'\{"order":17[0-9]', ['{"order":17']),
    ('{"order":17', ['{"order":17']),
    ("a{2}bc", ["bc"]),
    ("ab{2}c+d", ["a"]),
    (r"10\.0\.0\.[0-9]+:80", ["10.0.0."]),
    ("colou?r", ["colo"]),
    ("x(inner|other)+tail", ["tail"]),
    ("red|green|blue", ["red", "green", "blue"]),
    ("red|[0-9]", []),
    ("(a|b)|c", []),
    ("(?i)order", []),
    (r"a\x41b", []),
    (r"\.", ["."]),
    ("", []),
    ("\udc80", []),
])  # fmt: skip
def test_the_longest_piece_of_each_alternative(pattern: str, literals: list[str]) -> None:
    re.compile(pattern)
    assert literals_of(pattern) == literals


@given(st.text("ab=", min_size=1, max_size=4), st.text("ab=", min_size=1, max_size=4), st.text("ab=", min_size=1))
def test_they_are_found_in_a_property_as_it_is_stored(name: str, value: str, literal: str) -> None:
    if literal in f"{name}={value}":
        assert in_records([literal]).search(f"{name}{NAME_SEPARATOR}{value}".encode())
