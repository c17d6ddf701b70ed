"""fastjson's forms against every config file that real brokers wrote, and what is no JSON."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import MalformedData
from store.fastjson import dumps, dumps_pretty, loads

STORES = sorted((Path(__file__).parents[1] / "golden").glob("rocketmq-*/*-store.tar.xz"))
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
    assert loads('{0:{"a":1}, -1:[{x_y:2}],"3":"{4:5,\\"6:7"}') == {
        "0": {"a": 1}, "-1": [{"x_y": 2}], "3": '{4:5,"6:7'
    }  # fmt: skip


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
    except MalformedData as refused:
        assert "the file" in str(refused)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 50_000, '"' + "\\" * 100_001, "{1:" * 50_000])
def test_depth_and_length_are_bounded(content: str) -> None:
    with pytest.raises(MalformedData):
        loads(content)
    with pytest.raises(MalformedData, match="more than the 10"):
        loads(content, bytes_max=10)
