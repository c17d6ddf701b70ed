"""fastjson's forms against every config file that real brokers wrote, and what is no JSON."""

from __future__ import annotations

import json
import re
import tarfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.tables import fastjson
from store.tables.fastjson import (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    MalformedJson,
    dumps,
    dumps_pretty,
    loads,
    whole_number,
)

STORES = sorted((Path(__file__).parents[2] / "golden").glob("rocketmq-*/*-store.tar.xz"))
WRITTEN_COMPACT = ("transactionMetrics",)

plain = st.none() | st.booleans() | st.integers() | st.text()
values = st.recursive(
    plain,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.dictionaries(st.integers(), inner),
    max_leaves=12,
)


def with_integer_keys(value: Any) -> Any:
    """What Java's typed maps have: keys that are numbers."""
    if isinstance(value, dict):
        return {int(k) if re.fullmatch(r"-?\d+", k) else k: with_integer_keys(of) for k, of in value.items()}
    return [with_integer_keys(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("path", STORES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_config_files_are_read_and_written_again_to_the_same_bytes(path: Path) -> None:
    count = 0
    with tarfile.open(path) as archive:
        for member in archive:
            name = Path(member.name)
            file = archive.extractfile(member) if name.parent.name == "config" and member.isfile() else None
            if file is None:
                continue
            content = file.read().decode()
            if not content:  # a backup of nothing
                continue
            value = with_integer_keys(loads(content))
            write = dumps if name.name.startswith(WRITTEN_COMPACT) else dumps_pretty
            assert write(value) == content, name
            count += 1
    assert count >= 2  # a broker killed at its beginning has written no more


def test_keys_are_read_quoted_and_bare_and_texts_are_left_alone() -> None:
    assert loads('{0:{"a":1}, -1:[{x_y:2}],"3":"{4:5,\\"6:7"}') == {"0": {"a": 1}, "-1": [{"x_y": 2}], "3": '{4:5,"6:7'}


def test_integer_keys_are_written_bare_or_quoted() -> None:
    assert dumps({1: {"a": [True, None]}}) == '{1:{"a":[true,null]}}'
    assert dumps({1: "ä"}, bare_keys=False) == '{"1":"ä"}'


@given(values)
def test_what_is_written_is_read_again(value: Any) -> None:
    assert loads(dumps(value)) == loads(dumps_pretty(value)) == loads(dumps(value, bare_keys=False))
    assert loads(dumps(value, bare_keys=False)) == json.loads(json.dumps(value))


@given(st.binary(max_size=200) | st.text('{}[]":,0a\\', max_size=60).map(str.encode))
def test_any_bytes_are_json_or_malformed(content: bytes) -> None:
    try:
        loads(content, "the file")
    except MalformedJson as refused:
        assert "the file" in str(refused)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 50_000, '"' + "\\" * 100_001, "{1:" * 50_000])
def test_depth_and_length_are_bounded(content: str) -> None:
    with pytest.raises(MalformedJson):
        loads(content)
    with pytest.raises(MalformedJson, match="more than the 10"):
        loads(content, bytes_max=10)


@pytest.mark.parametrize(
    "content",
    [
        '"' + '\\"' * 100_000, '{"a":"' + '\\"' * 100_000, '\\"' * 100_000, '"a' * 100_000, "{ " * 100_000,
        "{" + " " * 200_000, "{a" + " " * 200_000, "{" + "a" * 200_000, "[\n" + " " * 200_000, "[\n" * 100_000,
        "{-" * 100_000, ",1 " * 70_000, '"' + "\\" * 200_001, '{1:"' + "\\\\" * 100_000, "1." + "1" * 200_000,
        "{a:" + "0" * 200_000 + "}", "{" + "1:1," * 50_000, "{1:1," * 40_000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("as_written", [False, True])
def test_reading_is_linear_in_what_a_stranger_sends(content: str, as_written: bool) -> None:
    """Twenty times as much takes no hundred times as long: the shares are of one thread's CPU time, both measured."""

    def cpu_seconds(text: str) -> float:
        begun = time.thread_time()
        with suppress(MalformedJson):
            loads(text, as_written=as_written)
        return time.thread_time() - begun

    short = max(min(cpu_seconds(content[: len(content) // 20]) for _ in range(3)), 0.001)
    assert min(cpu_seconds(content) for _ in range(3)) < 100 * short


@pytest.mark.parametrize(
    "content",
    [
        '{"a":NaN}', '{"a":[Infinity]}', '{"a":-Infinity}', '{"a":"\\ud800"}', '{"\\udfff":1}',
         '["\\ud83d x \\ude00"]', '{1:"\\uDC00"}', '{"a":' + "9" * 5000 + "}", '{1:Infinity}',
        "[" * 65 + "]" * 65, '{"a":' * 65 + "1" + "}" * 65, "[" * 600 + "]" * 600,
    ],
)  # fmt: skip
@pytest.mark.parametrize("as_written", [False, True])
def test_what_no_answer_could_say_is_refused(content: str, as_written: bool) -> None:
    with pytest.raises(MalformedJson):
        loads(content, as_written=as_written)


def test_a_number_beyond_all_numbers_is_refused_where_it_is_computed_with() -> None:
    for content in ('{"a":1e999}', '{"a":[-1e999]}'):
        with pytest.raises(MalformedJson, match="too large a number"):
            loads(content)
        assert dumps(loads(content, as_written=True)) == content.replace("e", "E+")


@pytest.mark.parametrize("key", [2**61 - 1 << 64, 2**63, "-" + "9" * 19, "9" * 4000])
def test_integer_keys_are_javas_longs(key: object) -> None:
    with pytest.raises(MalformedJson):
        loads(f"{{{key}:1}}", as_written=True)
    assert loads(f"{{{2**63 - 1}:1,-5:2}}", as_written=True) == {2**63 - 1: 1, -5: 2}


def test_depth_below_the_bound_pairs_of_surrogates_and_repeated_keys_are_read() -> None:
    assert loads("[" * 64 + "]" * 64) and loads("[[]," * 40 + "1" + "]" * 40)
    assert loads('{"\\ud83d\\ude00":"\\\\ud800"}') == {"\U0001f600": "\\ud800"}
    assert loads('{"a":1,"a":2,0:3,"0":4}') == {"a": 2, "0": 4}


def test_a_text_that_begins_with_a_nul_stays_a_text() -> None:
    content = '{"\\u00001":["\\u0000",1],"a":["\\u0000"]}'
    assert loads(content, as_written=True) == {"\x001": ["\0", 1], "a": ["\0"]}
    assert loads("{1:[\n2]}", as_written=True) == {1: [2]}


def test_a_map_of_offsets_is_read_as_its_entries_one_by_one_would_be() -> None:
    largest = "9" * 18
    for pairs in ("0:5", "0:5,1:-1", "7:0,7:1", "-3:2,-0:-0", f"{largest}:-{largest}"):
        expected = {int(key): int(of) for key, _, of in (pair.partition(":") for pair in pairs.split(","))}
        for text in (f"{{{pairs}}}", f"{{{pairs}\n\t\t}}", f"{{ \t{pairs}\r\n}}"):
            assert loads(text, as_written=True) == expected
            assert loads(f'{{"{{1:2}}":[\n{text},"{{1:2}}"],5:{text}}}', as_written=True) == {
                "{1:2}": [expected, "{1:2}"],
                5: expected,
            }
    for text in ("{007:1}", '{1:"a"}', "{1:2.5}", f"{{1:{largest}99}}", '{1:2,"3":4}', "{1 :2}"):
        (key, value), *_ = loads(text, as_written=True).items()
        assert type(key) is int and not isinstance(value, dict)
    for text in ("{1:01}", "{1:2,}", "{,1:2}", "{1:2 3:4}", "{1:--2}", "{1:2", "{{1:2}:3}", "{1:2}{", "{1:2}\u00a0"):
        with pytest.raises(MalformedJson):
            loads(text, as_written=True)


NO_WHOLE_NUMBERS = [1.5, True, "1.5", "1e3", "\u0663", " 1", "", None, [], 2**31, -(2**31) - 1, "9" * 19, 1e999]


@pytest.mark.parametrize("value", NO_WHOLE_NUMBERS)
def test_what_is_no_whole_number_of_that_range_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not a whole number from"):
        whole_number(value, INT32_MIN, INT32_MAX)


def test_whole_numbers_are_taken_quoted_or_not() -> None:
    values = (7, "7", "-7", "+7", INT64_MAX, str(INT64_MIN))
    assert [whole_number(value) for value in values] == [7, 7, -7, 7, INT64_MAX, INT64_MIN]


@given(values)
def test_the_library_writes_what_our_own_writer_writes(value: Any) -> None:
    for bare_keys in (True, False):
        parts: list[str] = []
        fastjson._compact(value, bare_keys, parts)
        assert dumps(value, bare_keys=bare_keys) == "".join(parts)


@given(st.dictionaries(st.text(), st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.just({}), values)))
def test_an_entry_has_the_same_pretty_form_from_the_library(value: dict[str, Any]) -> None:
    quick = dumps_pretty({"table": {"entry": value}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fastjson, "_flat", lambda _value, _apart: "")
        assert dumps_pretty({"table": {"entry": value}}) == quick
