"""The manifest is RocketMQ's own, line for line: on the stores it left, and on what may become of them."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.compat import LINES
from store.errors import NotAStore, QueueFileMismatch, StoreError
from store.files.segment import file_name
from store.manifest.manifest import lines, quote
from store.manifest.store import load
from store.message.host import Host
from store.message.record import blank, encode
from store.reading.origin import line_of_store
from tests.store.golden import COMPAT, STORES, VERSIONS, manifest_lines, unpack

HOST = Host("127.0.0.1", 10911)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """A fresh copy of a golden store."""
    unpacked: dict[tuple[str, str], Path] = {}

    def copy(version: str, name: str) -> Path:
        if (version, name) not in unpacked:
            unpacked[version, name] = unpack(version, name, tmp_path_factory.mktemp("golden"))
        target = tmp_path_factory.mktemp("copy") / "store"
        shutil.copytree(unpacked[version, name], target)
        return target

    return copy


def parsed(found: list[str], kind: str) -> list[dict[str, Any]]:
    return [entry for entry in map(json.loads, found) if entry["kind"] == kind]


@pytest.mark.parametrize(("version", "name"), STORES)
def test_equals_rocketmq_s_own(stores: Callable[[str, str], Path], version: str, name: str) -> None:
    assert list(lines(stores(version, name))) == manifest_lines(version, name)


@pytest.mark.parametrize("name", ["killed", "killed-multi"])
def test_what_a_killed_store_s_queues_lack_is_dispatched_as_rocketmq_does(
    stores: Callable[[str, str], Path], name: str
) -> None:
    found = [line for line in lines(stores("rocketmq-5.3.3", name)) if '"kind": "undecoded"' not in line]
    assert found == manifest_lines("rocketmq-5.3.3", name)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_version_that_wrote_a_store_is_seen(stores: Callable[[str, str], Path], version: str) -> None:
    assert line_of_store(stores(version, "master")) is LINES[COMPAT[version]]


@pytest.mark.parametrize("version", VERSIONS)
def test_segments_reserved_ahead_change_nothing(stores: Callable[[str, str], Path], version: str) -> None:
    root = stores(version, "master")
    last = max((root / "commitlog").iterdir())
    for ahead in (1, 2):
        base = int(last.name) + ahead * last.stat().st_size
        (last.parent / file_name(base)).write_bytes(bytes(last.stat().st_size))
    assert list(lines(root)) == manifest_lines(version, "master")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_store_that_begins_above_zero(stores: Callable[[str, str], Path], version: str) -> None:
    root = stores(version, "master")
    for path in sorted((root / "commitlog").iterdir())[:-1]:
        path.unlink()
    found = list(lines(root))
    first = int(next((root / "commitlog").iterdir()).name)
    assert [line for line in manifest_lines(version, "master") if '"message"' in line[:20]][-5:] == [
        line for line in found if '"message"' in line[:20]
    ][-5:]
    assert all(entry["physicalOffset"] >= first for entry in parsed(found, "message"))
    for queue in parsed(found, "queue"):
        if queue["maxPhysicOffset"] <= first:  # no record of it is left: 5.x moves the minimum to the end, 4.9 does not
            assert queue["minOffset"] == (queue["maxOffset"] if version == "rocketmq-5.3.3" else 0)
        else:
            assert queue["entries"][0][0] >= first


@pytest.mark.parametrize("version", VERSIONS)
def test_after_an_abnormal_end_the_queues_are_built_from_the_log(
    stores: Callable[[str, str], Path], version: str
) -> None:
    root = stores(version, "master")
    shutil.rmtree(root / "consumequeue")
    (root / "checkpoint").unlink()
    (root / "abort").touch()
    found, expected = parsed(list(lines(root)), "queue"), parsed(manifest_lines(version, "master"), "queue")
    if version == "rocketmq-4.9.7":  # its recovery does not know delay levels yet: hashes instead of deliver times
        found, expected = (
            [queue for queue in queues if queue["topic"] != "SCHEDULE_TOPIC_XXXX"] for queues in (found, expected)
        )
    assert found == expected


def test_4_9_does_not_build_queues_after_an_ordinary_stop(stores: Callable[[str, str], Path]) -> None:
    root = stores("rocketmq-4.9.7", "master")
    shutil.rmtree(root / "consumequeue")
    assert parsed(list(lines(root)), "queue") == []
    assert len(parsed(list(lines(root, line=LINES["5"])), "queue")) == 27


@pytest.mark.parametrize("version", VERSIONS)
def test_the_log_ends_at_a_damaged_record_and_the_queues_with_it(
    stores: Callable[[str, str], Path], version: str
) -> None:
    root = stores(version, "master")
    last = parsed(manifest_lines(version, "master"), "message")[-1]
    path = max((root / "commitlog").iterdir())
    with path.open("r+b") as segment:
        segment.seek(last["physicalOffset"] - int(path.name) + 90)
        segment.write(b"\xff\x00\xff")
    found = list(lines(root))
    assert parsed(found, "message") == parsed(manifest_lines(version, "master"), "message")[:-1]
    assert all(entry[0] < last["physicalOffset"] for queue in parsed(found, "queue") for entry in queue["entries"])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_damaged_record_before_the_last_segments_is_only_unchecked(
    stores: Callable[[str, str], Path], version: str
) -> None:
    root = stores(version, "master")
    with (root / "commitlog" / file_name(0)).open("r+b") as segment:
        segment.seek(95)
        segment.write(b"\xff\x00\xff")
    first = parsed(list(lines(root)), "message")[0]
    assert first["checked"] is False
    assert first["dispatch"] == {"tagsCode": 0, "keys": "", "uniqKey": None, "storeTimestamp": 0, "msgSize": -1}


def test_a_store_without_a_log_has_nothing(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "consumequeue" / "T" / "0").mkdir(parents=True)
    assert list(lines(tmp_path)) == []


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NotAStore):
            list(lines(path))


def test_a_limit_ends_the_log(stores: Callable[[str, str], Path]) -> None:
    root = stores("rocketmq-5.3.3", "master")
    messages = parsed(manifest_lines("rocketmq-5.3.3", "master"), "message")
    limit = messages[100]["physicalOffset"]
    assert parsed(list(lines(root, limit=limit)), "message") == messages[:100]
    assert load(root, limit=limit + 5).max_offset == limit


def write_log(root: Path, records: list[bytes], segment_bytes: int = 4096) -> None:
    """A store of ours with these records, each given by a function of its offset's place."""
    (root / "commitlog").mkdir(parents=True, exist_ok=True)
    segments, rest = [b""], segment_bytes
    for record in records:
        if len(record) + 8 > rest:
            segments[-1] += blank(rest) + bytes(rest - 8)
            segments.append(b"")
            rest = segment_bytes
        segments[-1] += record
        rest -= len(record)
    for index, content in enumerate(segments):
        name = file_name(index * segment_bytes)
        (root / "commitlog" / name).write_bytes(content.ljust(segment_bytes, b"\x00"))


def test_texts_are_java_s(tmp_path: Path) -> None:
    pairs = 'K\x01a"b\\c\x02\U0001f600\x01\x7f\x02\uffff\x01é\x02K\x01later'
    topic, born = "%RETRY%ü\U0001f600", Host("::1", 1)
    record = encode(topic=topic, body=b"x", properties=pairs.encode(), born_host=born, store_host=HOST)
    write_log(tmp_path, [record])
    (line,) = (line for line in lines(tmp_path) if "message" in line[:20])
    assert '"topic": "%RETRY%\\u00fc\\ud83d\\ude00"' in line
    assert '"properties": {"K": "later", "\\ud83d\\ude00": "\\u007f", "\\uffff": "\\u00e9"}' in line
    assert '"bornHost": "0:0:0:0:0:0:0:1|1"' in line


def test_quotes() -> None:
    assert quote(None) == "null"
    assert quote('a"b\\c\n\x7f') == '"a\\"b\\\\c\\u000a\\u007f"'


def test_queues_are_sorted_as_java_sorts_file_names(tmp_path: Path) -> None:
    write_log(tmp_path, [encode(topic="T", body=b"x", store_host=HOST)])
    for name in ("b", "B", "%RETRY%g", "\U0001f600", "\uffff", "a/2", "a/10"):
        topic, _, queue_id = name.partition("/")
        (tmp_path / "consumequeue" / topic / (queue_id or "0")).mkdir(parents=True)
    (tmp_path / "consumequeue" / "a" / "note").mkdir()
    found = [(queue["topic"], queue["queueId"]) for queue in parsed(list(lines(tmp_path)), "queue")]
    assert found == [("%RETRY%g", 0), ("B", 0), ("a", 10), ("a", 2), ("b", 0), ("\U0001f600", 0), ("\uffff", 0)]


def test_a_queue_that_begins_above_entry_zero_is_filled_up(tmp_path: Path) -> None:
    record = encode(topic="T", body=b"x", queue_offset=3, store_host=HOST, store_timestamp_ms=1)
    write_log(tmp_path, [record])
    (tmp_path / "abort").touch()
    (queue,) = parsed(list(lines(tmp_path)), "queue")
    assert (queue["minOffset"], queue["maxOffset"]) == (0, 4)
    assert queue["entries"] == [[0, 0x7FFFFFFF, 0]] * 3 + [[0, len(record), 0]]


def test_a_queue_without_files_gets_files_as_long_as_the_others(tmp_path: Path) -> None:
    record = encode(topic="T", body=b"x", queue_offset=25, store_host=HOST, store_timestamp_ms=1)
    write_log(tmp_path, [record])
    (tmp_path / "abort").touch()
    (tmp_path / "consumequeue" / "T" / "0").mkdir(parents=True)
    (tmp_path / "consumequeue" / "U" / "0").mkdir(parents=True)
    (tmp_path / "consumequeue" / "U" / "0" / file_name(0)).write_bytes(bytes(200))
    queue, other = parsed(list(lines(tmp_path)), "queue")
    assert (queue["minLogicOffset"], queue["maxOffset"], len(queue["entries"])) == (400, 26, 6)
    assert (other["maxOffset"], other["entries"]) == (0, [])


def test_queue_files_of_different_lengths_are_refused(tmp_path: Path) -> None:
    write_log(tmp_path, [encode(topic="T", body=b"x", store_host=HOST)])
    for topic, size in (("T", 200), ("U", 220)):
        (tmp_path / "consumequeue" / topic / "0").mkdir(parents=True)
        (tmp_path / "consumequeue" / topic / "0" / file_name(0)).write_bytes(bytes(size))
    with pytest.raises(QueueFileMismatch):
        list(lines(tmp_path))


def test_a_compressed_body_that_does_not_decompress_is_undecoded(tmp_path: Path) -> None:
    write_log(tmp_path, [encode(topic="T", body=b"not zlib", sys_flag=1, store_host=HOST)])
    assert [json.loads(line)["kind"] for line in lines(tmp_path)] == ["undecoded"]


def test_a_delay_level_that_is_no_number_ends_the_log(tmp_path: Path) -> None:
    good = encode(topic="T", body=b"x", store_host=HOST)
    bad = encode(topic="SCHEDULE_TOPIC_XXXX", body=b"x", store_host=HOST, properties=b"DELAY\x01one")
    write_log(tmp_path, [good, bad])
    (tmp_path / "abort").touch()
    assert load(tmp_path).max_offset == len(good)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_bytes_in_a_store_give_a_manifest_or_our_errors(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("mutated")
    records, offset = [], 0
    for number in range(4):
        record = encode(
            topic="T",
            body=b"b" * 20,
            queue_offset=number,
            physical_offset=offset,
            store_host=HOST,
            store_timestamp_ms=1,
            properties=b"TAGS\x01a\x02DELAY\x011",
        )
        records.append(record)
        offset += len(record)
    write_log(root, records, 2048)
    queue = root / "consumequeue" / "T" / "0"
    queue.mkdir(parents=True)
    entries = b"".join(struct.pack(">qiq", i * len(record), len(record), 97) for i in range(4))
    (queue / file_name(0)).write_bytes(entries.ljust(200, b"\x00"))
    if data.draw(st.booleans()):
        (root / "abort").touch()
    for path in (root / "commitlog" / file_name(0), queue / file_name(0)):
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(0, 3))):
            content[data.draw(st.integers(0, min(len(content), 600) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(content)
    line = data.draw(st.sampled_from(list(LINES.values())))
    try:
        found = list(lines(root, line=line))
    except StoreError as error:
        pytest.fail(f"a store with damaged bytes is still readable: {error}")
    assert all(json.loads(line)["kind"] in ("message", "blank", "queue", "undecoded") for line in found)
    shutil.rmtree(root)


def test_a_manifest_changes_no_file_of_the_store(stores: Callable[[str, str], Path]) -> None:
    root = stores("rocketmq-5.3.3", "master")
    (root / "abort").touch()
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    assert len(list(lines(root))) > 1000
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
