"""The files of `config`: every golden one read and written back, tables in Java's order, backups, bad bytes."""

from __future__ import annotations

import json
import random
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import MalformedConfig
from store.tables import json_files
from store.tables import tables as broker_tables
from store.tables.fastjson import LineList
from store.tables.tables import DataVersion, java_order
from tests.store.golden import GOLDEN, STORES


def config_files(version: str, name: str) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(GOLDEN / version / f"{name}-store.tar.xz") as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None and Path(member.name).parent.name == "config":
                yield Path(member.name).name, file.read()


def shuffled(table: Mapping[Any, Any]) -> dict[Any, Any]:
    keys = list(table)
    random.Random(4).shuffle(keys)
    return {key: table[key] for key in keys}


def made_again(name: str, value: dict[Any, Any]) -> dict[str, Any] | None:
    """The file's value from its tables, whose entries come in another order."""
    version = DataVersion.of(value)
    if name.startswith("topics.json"):
        assert version is not None
        return broker_tables.topics_value(shuffled(broker_tables.topics(value)), version)
    if name.startswith("subscriptionGroup.json"):
        assert version is not None
        return broker_tables.groups_value(shuffled(broker_tables.groups(value)), version, {})
    if name.startswith("consumerOffset.json"):
        offsets = shuffled(broker_tables.consumer_offsets(value))
        return broker_tables.consumer_offsets_value(offsets, version, value.get("groupTopicMap"))
    if name.startswith("delayOffset.json"):
        return broker_tables.delay_offsets_value(shuffled(broker_tables.delay_offsets(value)), version)
    return None


@pytest.mark.parametrize("version, store", STORES)
def test_golden_files_come_out_again_as_they_are_and_made_anew(version: str, store: str) -> None:
    names = set()
    for name, content in config_files(version, store):
        value = json_files.parse(content, name)
        assert content in (json_files.encode(value), json_files.encode(value, pretty=False)), name
        assert json_files.encode(json_files.parse_beside(content, name)) == json_files.encode(value), name
        anew = made_again(name, value)
        if anew is not None:
            assert json_files.encode(anew) == content, name
            names.add(name)
    assert {"topics.json", "delayOffset.json", "subscriptionGroup.json"} <= names


def test_what_golden_tables_say() -> None:
    files = dict(config_files("rocketmq-5.3.3", "features"))
    topics = json_files.parse(files["topics.json"])
    assert broker_tables.batch_topics(topics) == {"featBcq"}
    assert broker_tables.topics(topics)["SCHEDULE_TOPIC_XXXX"]["readQueueNums"] == 18
    assert DataVersion.of(topics) == DataVersion(6, 1795237307741, 0)
    assert broker_tables.delay_offsets(json_files.parse(files["delayOffset.json"])) == {1: 6}
    old = json_files.parse(dict(config_files("rocketmq-4.9.7", "master"))["consumerOffset.json"])
    assert broker_tables.consumer_offsets(old)["alphaFour", "G_alpha"] == {0: 36, 1: 33, 2: 35, 3: 32}
    assert DataVersion.of(old) is None


def test_integer_keys_count_quoted_or_not() -> None:
    bare, quoted = b'{"offsetTable":{"t@g":{0:1, 1 : 2}}}', b'{"offsetTable":{"t@g":{"0":1,"1":"2"}}}'
    for content in (bare, quoted):
        assert broker_tables.consumer_offsets(json_files.parse(content)) == {("t", "g"): {0: 1, 1: 2}}
    assert json_files.encode(json_files.parse(bare), pretty=False) == b'{"offsetTable":{"t@g":{0:1,1:2}}}'
    assert json_files.encode(json_files.parse(quoted), pretty=False) == quoted


def test_the_forms_of_fastjson() -> None:
    """What fastjson 1.2.69 and 1.2.83 write with PrettyFormat, taken from them."""
    value = {"list": LineList([1, LineList([2]), []]), "set": ["a", "b"], "map": {}, 1: {2: "\x7f\x0b\u2028é\t\\"}}
    assert json_files.encode(value).decode() == (
        '{\n\t"list":[\n\t\t1,\n\t\t[\n\t\t\t2\n\t\t],\n\t\t[]\n\t],\n\t"set":["a","b"],\n\t"map":{},'
        '\n\t1:{2:"\\u007F\\u000B\\u2028é\\t\\\\"\n\t}\n}'
    )
    assert json_files.parse(json_files.encode(value)) == value
    assert isinstance(json_files.parse(json_files.encode(value))["list"][1], LineList)
    assert json_files.encode(json_files.parse(b'{"a":1.50,"b":1E+2}'), pretty=False) == b'{"a":1.50,"b":1E+2}'


def test_a_version_counts_changes() -> None:
    assert DataVersion(3, 5, 0).next(9).value() == {"counter": 4, "stateVersion": 0, "timestamp": 9}
    assert DataVersion(3, 5).value() == {"counter": 3, "timestamp": 5}


def test_java_lists_a_map_by_its_buckets() -> None:
    assert java_order([33, 1, 64, 65, 0], 32) == [64, 0, 1, 65, 33]  # 64 buckets
    assert java_order(range(47, -1, -1), 32) == list(range(48))  # from the 48th entry on it has 128


def test_writing_keeps_the_last_content_as_backup_and_never_a_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    backup = path.with_name("topics.json.bak")
    json_files.write(path, {"n": 1})
    assert (path.read_bytes(), backup.exists()) == (b'{\n\t"n":1\n}', False)
    json_files.write(path, {"n": 2})
    assert backup.read_bytes() == b'{\n\t"n":1\n}'
    path.write_bytes(b'{"n":')
    found = json_files.load(path)
    assert (found.value, found.source) == ({"n": 1}, backup)
    assert str(path) in found.problem
    json_files.write(path, {"n": 3}, pretty=False)
    assert (path.read_bytes(), backup.read_bytes()) == (b'{"n":3}', b'{\n\t"n":1\n}')
    assert sorted(file.name for file in path.parent.iterdir()) == ["topics.json", "topics.json.bak"]


def test_a_missing_or_empty_file_is_its_backups_word(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    assert json_files.load(path) == ({}, None, "")
    path.with_name("a.json.bak").write_bytes(b'{"n":1}')
    assert json_files.read(path) == {"n": 1}
    path.touch()
    assert json_files.read(path) == {"n": 1}
    path.with_name("a.json.bak").unlink()
    with pytest.raises(MalformedConfig, match="it is empty"):
        json_files.read(path)


@pytest.mark.parametrize("content", [b"[1]", b'{"a"', b'{"a":1}}', b"\xff", b'{"a":1e99999999999999999999}', b"null"])
def test_what_cannot_be_read_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes(content)
    with pytest.raises(MalformedConfig, match=r"topics\.json: .*restore the file"):
        json_files.read(path)


@pytest.mark.parametrize(
    "content, why",
    [
        ('{"topicConfigTable":[]}', "not an object"), ('{"topicConfigTable":{"t":1}}', "not an object"),
        ('{"topicConfigTable":{"t":{"attributes":"x"}}}', "attributes of t"),
        ('{"dataVersion":{"counter":"x"}}', "counter"),
        ('{"offsetTable":{"t":{}}}', "topic@group"), ('{"offsetTable":{"t@g":{"x":1}}}', "not a whole number"),
        ('{"offsetTable":{"t@g":{0:true}}}', "whole number"), ('{"subscriptionGroupTable":{"g":[]}}', "not an object"),
    ],
)  # fmt: skip
def test_tables_of_another_shape_are_refused(content: str, why: str) -> None:
    value = json_files.parse(content.encode())
    with pytest.raises(MalformedConfig, match=why):
        every_table(value)


def every_table(value: dict[Any, Any]) -> None:
    DataVersion.of(value, "the file")
    broker_tables.batch_topics(value, "the file")
    broker_tables.consumer_offsets(value, "the file")
    broker_tables.groups(value, "the file")


longs = st.integers(-(2**63), 2**63 - 1)  # what a bare key is
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | longs, inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["dataVersion", "topicConfigTable", "offsetTable", "subscriptionGroupTable"])


@given(st.dictionaries(names, junk), st.booleans())
def test_any_value_gives_tables_or_an_error(value: dict[str, Any], pretty: bool) -> None:
    found = json_files.parse(json_files.encode(value, pretty=pretty))
    assert json.dumps(found) == json.dumps(value)
    try:
        every_table(found)
    except MalformedConfig as error:
        assert "the file" in str(error)


@given(st.binary(max_size=60) | st.text('{}[]":,01-.eE a\n\\u', max_size=60).map(str.encode))
def test_any_bytes_are_an_object_or_an_error(content: bytes) -> None:
    try:
        found = json_files.parse(content, "the file")
    except MalformedConfig as error:
        assert "the file" in str(error)
    else:
        assert json_files.parse(json_files.encode(found)) == found
