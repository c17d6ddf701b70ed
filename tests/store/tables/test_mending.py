"""Tables whose files are damaged: the file is kept, what is sound of it is used, whatever comes in between."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from store.errors import MalformedConfig
from store.files import file_io, set_aside
from store.names import CONSUMER_OFFSETS, DELAY_OFFSETS, DELETED_TOPICS, GROUPS, TOPICS
from store.tables import json_files, mending

OFFSETS = {"offsetTable": {f"t{n}@g": {0: n, 1: 7} for n in range(50)}}
OLDER = {"offsetTable": {"t0@g": {0: 0}, "t3@g": {0: 2}}}
TEXT = json_files.encode(OFFSETS)
HALF, SIX = {"offsetTable": dict(list(OFFSETS["offsetTable"].items())[:25])}, {"perm": 6}


def asides(path: Path) -> list[str]:
    return [one.name for one in set_aside.files_of(path)]


@pytest.fixture(params=[True, False], ids=["with a backup", "without"])
def backup(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    path = tmp_path / f"{CONSUMER_OFFSETS}.bak"
    if not request.param:
        return None
    path.write_bytes(json_files.encode(OLDER))
    return path


@pytest.mark.parametrize(
    ("damaged", "sound"),
    [
        (b"\0" * len(TEXT), {}),
        (b"", {}),
        (b"[]", {}),
        (TEXT[: len(TEXT) // 2], HALF),
        (TEXT[: len(TEXT) // 2].ljust(len(TEXT), b"\0"), HALF),
    ],
    ids=["zeros", "empty", "a list", "cut", "cut and zeros"],
)
def test_for_invalid_json_the_backup_or_the_part_before_the_damage_is_used(
    tmp_path: Path, backup: Path | None, damaged: bytes, sound: object, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / CONSUMER_OFFSETS
    path.write_bytes(damaged)
    found = mending.read(path)
    assert found == (OLDER if backup else sound, True)
    assert json_files.parse(path.read_bytes()) == found.value
    assert asides(path) == [f"{CONSUMER_OFFSETS}.aside"]
    assert path.with_name(f"{CONSUMER_OFFSETS}.aside").read_bytes() == damaged
    (line,) = caplog.messages
    assert f"set aside as {CONSUMER_OFFSETS}.aside" in line and ("its backup" if backup else "entries before") in line
    assert mending.read(path) == (found.value, False), "twice in a row"


@pytest.mark.parametrize(
    ("name", "wrong", "sound"),
    [
        (CONSUMER_OFFSETS, {"offsetTable": {"t0@g": {0: 1}, "nobody": {0: 1}}}, {"offsetTable": {"t0@g": {0: 1}}}),
        (CONSUMER_OFFSETS, {"offsetTable": {"t0@g": {0: "x"}, "u@g": {0: 1}}}, {"offsetTable": {"u@g": {0: 1}}}),
        (DELAY_OFFSETS, {"offsetTable": {1: 5, 2: "x"}}, {"offsetTable": {1: 5}}),
        (DELAY_OFFSETS, {"offsetTable": 7, "dataVersion": {"counter": 1}}, {"dataVersion": {"counter": 1}}),
        (TOPICS, {"topicConfigTable": {"t": {"perm": "six"}, "u": SIX}}, {"topicConfigTable": {"u": SIX}}),
        (TOPICS, {"topicConfigTable": {"t": 7}, "dataVersion": []}, {"topicConfigTable": {}}),
        (GROUPS, {"subscriptionGroupTable": {"g": 7, "h": {}}}, {"subscriptionGroupTable": {"h": {}}}),
        (GROUPS, {"forbiddenTable": {"g": {"t": "x"}, "h": {"t": 4}}}, {"forbiddenTable": {"h": {"t": 4}}}),
        (DELETED_TOPICS, {"deletedTopics": 7}, {}),
        ("kvConfig.json", {"configTable": {"n": {"k": []}, "m": {"k": "v"}}}, {"configTable": {"m": {"k": "v"}}}),
    ],
)
def test_one_wrong_entry_costs_no_other(tmp_path: Path, name: str, wrong: object, sound: object) -> None:
    path = tmp_path / name
    assert isinstance(wrong, dict)
    json_files.write(path, wrong)
    found = mending.mend(path)
    assert found == (sound, True) and mending.mend(path) == (sound, False)
    assert json_files.read(path.with_name(f"{name}.aside")) == json_files.parse(json_files.encode(wrong))


def test_a_wrong_entry_is_taken_from_the_backup(tmp_path: Path) -> None:
    path = tmp_path / CONSUMER_OFFSETS
    path.with_name(f"{CONSUMER_OFFSETS}.bak").write_bytes(json_files.encode(OLDER))
    path.write_bytes(b'{"offsetTable":{"t0@g":{0:9},"t3@g":{0:"x"},"u@g":{0:4}}}')
    assert mending.mend(path).value == {"offsetTable": {"t0@g": {0: 9}, "t3@g": {0: 2}, "u@g": {0: 4}}}


def test_a_backup_that_is_damaged_too_is_kept_and_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / CONSUMER_OFFSETS
    path.write_bytes(b"\0" * 100)
    path.with_name(f"{CONSUMER_OFFSETS}.bak").write_bytes(TEXT[: len(TEXT) // 2])
    assert len(mending.read(path).value["offsetTable"]) == 25
    assert asides(path) + asides(path.with_name(f"{CONSUMER_OFFSETS}.bak")) == [
        f"{CONSUMER_OFFSETS}.aside",
        f"{CONSUMER_OFFSETS}.bak.aside",
    ]


def test_no_files_and_a_backup_alone_are_no_damage(tmp_path: Path) -> None:
    path = tmp_path / CONSUMER_OFFSETS
    assert mending.read(path) == mending.mend(path) == ({}, False)
    path.with_name(f"{CONSUMER_OFFSETS}.bak").write_bytes(json_files.encode(OLDER))
    assert mending.read(path) == (OLDER, False)
    assert not asides(path)


def test_no_earlier_file_is_replaced_and_their_number_is_bounded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / CONSUMER_OFFSETS
    for number in range(set_aside.KEPT_MAX + 3):
        path.write_bytes(b"damage %d" % number)
        mending.read(path)
    kept = {one.read_bytes() for one in set_aside.files_of(path)}
    assert kept == {b"damage %d" % number for number in range(set_aside.KEPT_MAX)}
    assert "it is lost" in caplog.messages[-1] and mending.read(path) == ({}, False)


def test_a_death_before_the_table_is_replaced_leaves_it_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / CONSUMER_OFFSETS
    path.write_bytes(TEXT[: len(TEXT) // 2])
    with monkeypatch.context() as patch:
        patch.setattr(file_io, "replace_file", lambda *_args: (_ for _ in ()).throw(OSError(28, "no space")))
        with pytest.raises(MalformedConfig, match="cannot be replaced: no space"):
            mending.read(path)
    assert len(mending.read(path).value["offsetTable"]) == 25
    assert asides(path) == [f"{CONSUMER_OFFSETS}.aside"], "the same file is not kept twice"


@pytest.mark.parametrize("end", [b"", b"\0\0", b"}", b",", b",3"])
def test_a_number_that_may_go_on_behind_the_damage_is_not_believed(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / DELAY_OFFSETS
    path.write_bytes(b'{"offsetTable":{1:7,2:12' + end)
    expected = {1: 7} if end in (b"", b"\0\0") else {1: 7, 2: 12}
    assert mending.read(path).value == {"offsetTable": expected}


def test_damage_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / TOPICS
    path.write_bytes(b"{")
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            mending.read(path)
    assert len(caplog.messages) == 1
