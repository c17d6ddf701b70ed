"""The offsets of a broadcasting consumer: what their file says, its backup, and files that cannot be read."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from engine.clients.cluster import Place
from engine.clients.consuming.own_offsets import OwnOffsets, decoded, default_directory, encoded
from engine.clients.names import ClientError
from store.files import file_io

CLIENT, GROUP = "127.0.0.1@DEFAULT", "group"
FIRST, SECOND, OTHER = Place("t", "broker-a", 0), Place("t", "broker-a", 1), Place("%RETRY%g", "b", 0)
JAVA_TEXT = """{
\t"offsetTable":{{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":1,
\t\t\t"topic":"t"
\t\t}:17,{
\t\t\t"brokerName":"b",
\t\t\t"queueId":0,
\t\t\t"topic":"%RETRY%g"
\t\t}:5
\t}
}"""


def opened(directory: Path) -> OwnOffsets:
    return OwnOffsets(directory, CLIENT, GROUP)


def test_offsets_are_read_again(tmp_path: Path) -> None:
    offsets = opened(tmp_path)
    assert offsets.offset_of(FIRST) is None
    offsets.update(FIRST, 7)
    offsets.update(SECOND, 0)
    offsets.write([FIRST, SECOND, OTHER])
    again = opened(tmp_path)
    assert [again.offset_of(place) for place in (FIRST, SECOND, OTHER)] == [7, 0, None]
    assert again.path == tmp_path / CLIENT / GROUP / "offsets.json"


def test_the_file_has_the_form_of_fastjson() -> None:
    assert decoded(JAVA_TEXT.encode()) == {SECOND: 17, OTHER: 5}
    assert encoded({OTHER: 5, SECOND: 17}).decode().split("\n") == [
        "{", '\t"offsetTable":{{', '\t\t\t"brokerName":"b",', '\t\t\t"queueId":0,', '\t\t\t"topic":"%RETRY%g"',
        "\t\t}:5,{", '\t\t\t"brokerName":"broker-a",', '\t\t\t"queueId":1,', '\t\t\t"topic":"t"', "\t\t}:17",
        "\t}", "}",
    ]  # fmt: skip
    assert decoded(encoded({})) == {}


def test_only_the_queues_that_are_named_are_written_and_others_stay(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    one.update(FIRST, 7)
    one.update(OTHER, 9)
    one.write([FIRST])
    other.update(SECOND, 3)
    other.write([SECOND])
    again = opened(tmp_path)
    assert [again.offset_of(place) for place in (FIRST, SECOND, OTHER)] == [7, 3, None]


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff", b'{"offsetTable":{"x":1}}', None])
def test_a_missing_or_damaged_file_is_replaced_by_its_backup(tmp_path: Path, damage: bytes | None) -> None:
    offsets = opened(tmp_path)
    for offset in (5, 6):
        offsets.update(FIRST, offset)
        offsets.write([FIRST])
    if damage is None:
        offsets.path.unlink()
    else:
        offsets.path.write_bytes(damage)
    again = opened(tmp_path)
    assert again.offset_of(FIRST) == 5
    again.write([FIRST])
    assert opened(tmp_path).offset_of(FIRST) == 5
    assert decoded(offsets.path.with_name("offsets.json.bak").read_bytes()) == {FIRST: 5}


@pytest.mark.parametrize(
    "damage",
    [
        b"[]", b'{"offsetTable":[]}', b'{"offsetTable":{{"topic":"t","queueId":0}:1}}',
        b'{"offsetTable":{{"topic":"t","brokerName":"b","queueId":-1}:1}}',
        b'{"offsetTable":{{"topic":"t","brokerName":"b","queueId":0}:-1}}',
        b'{"offsetTable":{{"topic":1,"brokerName":"b","queueId":0}:1}}',
    ],
)  # fmt: skip
def test_a_damaged_file_without_a_backup_is_refused(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / CLIENT / GROUP / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(damage)
    with pytest.raises(ClientError, match=r"offsets.json: .*; remove it and its .bak file to begin without offsets"):
        opened(tmp_path)
    assert path.read_bytes() == damage


def test_a_write_that_fails_keeps_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = opened(tmp_path)
    offsets.update(FIRST, 5)
    offsets.write([FIRST])
    offsets.update(FIRST, 6)

    def fail(fd: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(file_io, "sync_file", fail)
    with pytest.raises(OSError, match="no space left"):
        offsets.write([FIRST])
    monkeypatch.undo()
    assert opened(tmp_path).offset_of(FIRST) == 5
    assert [path.name for path in offsets.path.parent.iterdir()] == ["offsets.json"]


@pytest.mark.parametrize(
    ("client", "group"), [("../x", GROUP), ("..", GROUP), ("", GROUP), ("a\0", GROUP), (CLIENT, "../x"), (CLIENT, "")]
)
def test_names_that_are_no_folder_are_refused(tmp_path: Path, client: str, group: str) -> None:
    with pytest.raises(ClientError):
        OwnOffsets(tmp_path, client, group)


def test_offsets_lie_where_javas_consumers_keep_theirs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_directory() == tmp_path / ".rocketmq_offsets"
