"""JSON read in steps: what the whole at once gives or refuses, and no step reads much."""

from __future__ import annotations

import random
from typing import Any

import pytest

from store.tables import fastjson, json_steps
from store.tables.fastjson import MalformedJson
from store.tables.fastjson import read_as_written as reading
from store.tables.json_steps import PART_CHARS, STEP_CHARS, loads_in_steps
from store.tables.steps import at_once

KEYS = ("1", "-3", '"k"', '"1"', "ab", '"\\u0031"', "007", '"\u00e9"', '"}"', "9999999999999999999", "٣")
PLAIN = (
    "1", "-2.5", "true", "null", '"a\\"b"', '"{"', '"\u00e9,[\\n 1"', "1e5", "1e999999999999999999",
    "NaN", "12345678901234567890", '"a":1', '"\t"',
)  # fmt: skip
NUMBERS = ("0", "1", "-0", "-17", "5", "9" * 18, "7" * 19, "-" + "9" * 18, "007", "-01")
SPACES = ("", "", "", " ", "\n", "\n\t\t", "\r", "\u00a0", "\ufeff")
SPOILT = ("", "{", "}", "[", "]", ",", ":", '"', "\\", "1", " ")


def text_of(made: random.Random, depth: int = 0) -> str:
    """JSON as fastjson reads it, with some nonsense."""
    space = SPACES[made.randrange(len(SPACES) if made.random() < 0.02 else len(SPACES) - 2)]
    count, kind = made.randrange(6), made.randrange(9) if depth else 8
    if depth > 5 or kind < 4:
        return space + made.choice(PLAIN[: None if made.random() < 0.05 else 7]) + space
    if made.random() < 0.2:
        return "{" + ",".join(f"{made.choice(NUMBERS)}:{made.choice(NUMBERS[:8])}" for _ in range(count)) + space + "}"
    if kind < 6:
        return f"{space}[{','.join(text_of(made, depth + 1) for _ in range(count))}{space}]"
    keys = KEYS[: None if made.random() < 0.02 else 9]
    entries = (f"{space}{made.choice(keys)}{space}:{text_of(made, depth + 1)}" for _ in range(count))
    return f"{space}{{{','.join(entries)}{space}}}"


def read(content: bytes) -> Any:
    """As one call reads it; the error's class where it refuses."""
    try:
        return fastjson.loads(content, as_written=True)
    except MalformedJson as error:
        return type(error)


def stepped(content: bytes) -> Any:
    try:
        return at_once(loads_in_steps(content))
    except MalformedJson as error:
        return type(error)


def said(value: Any) -> tuple[str, str]:
    """Types and order, and how it is written: lists with lines are lists, too."""
    return repr(value), "" if isinstance(value, type) else fastjson.dumps_pretty(value)


@pytest.mark.parametrize("part_chars", [3, 8, 30, PART_CHARS])
def test_in_steps_a_text_is_what_it_is_at_once(monkeypatch: pytest.MonkeyPatch, part_chars: int) -> None:
    monkeypatch.setattr(json_steps, "PART_CHARS", part_chars)
    made, read_well, refused = random.Random(part_chars), 0, 0
    for _ in range(4000):
        text = text_of(made)
        if made.random() < 0.4:
            at = made.randrange(len(text))
            text = text[:at] + made.choice(SPOILT) + text[at + made.randrange(2) :]
        content = text.encode()
        whole = read(content)
        assert said(stepped(content)) == said(whole), text
        read_well, refused = read_well + (whole is not MalformedJson), refused + (whole is MalformedJson)
    assert read_well > 500 and refused > 500, "both are tried"


@pytest.mark.parametrize("around", [("[", "]"), ('{"a":', "}"), ("{1:", "}")])
@pytest.mark.parametrize("within", ["1", "{}", "[1]", '{"b":[2]}'])
def test_as_many_levels_are_read(around: tuple[str, str], within: str) -> None:
    for levels in (1, 60, 61, 62, 63, 64, 65, 100_000):
        content = f"{around[0] * levels}{within}{around[1] * levels}".encode()
        assert said(stepped(content)) == said(read(content)), levels


@pytest.mark.parametrize(
    "content", [b"", b" ", b"{", b'{"a', b'{"a":1}x', b"\xff", b'{"a":1,}', b"{a}", b"\xef\xbb\xbf{}"]
)
def test_what_is_no_json_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedJson, match="no JSON"):
        at_once(loads_in_steps(content))


def test_a_character_of_two_numbers_is_one() -> None:
    content = b'{"a":"\\ud83d\\ude00"}'
    assert stepped(content) == read(content) == {"a": "\U0001f600"}


def test_what_is_too_long_is_refused() -> None:
    with pytest.raises(MalformedJson, match="it has 9 bytes, more than the 8 that are read"):
        at_once(loads_in_steps(b'{"a":123}', bytes_max=8))


@pytest.mark.parametrize(
    "value",
    [
        {"table": {f"topic-{n}@group": dict.fromkeys(range(10), 7) for n in range(3000)}},
        {"table": {"topic@group": dict.fromkeys(range(30000), 1 << 40)}},
        {"table": {f"t{n}": {"attributes": {"a": "b"}, "perm": 6} for n in range(3000)}},
        {"list": [f"name-{n}" for n in range(30_000)]},
    ],
)
def test_no_step_reads_much(monkeypatch: pytest.MonkeyPatch, value: dict[str, Any]) -> None:
    content, largest = fastjson.dumps(value).encode(), 0

    def noted(text: str) -> Any:
        nonlocal largest
        largest = max(largest, len(text))
        return reading(text)

    monkeypatch.setattr(json_steps, "read_as_written", noted)
    steps = list(loads_in_steps(content))
    assert max(steps) <= STEP_CHARS + PART_CHARS and sum(steps) > len(content) - 2 * STEP_CHARS
    assert largest <= PART_CHARS, "all that the library reads in one call"
    assert said(stepped(content)) == said(read(content))
