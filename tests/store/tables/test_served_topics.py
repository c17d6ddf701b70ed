"""topics.json: new topics are added, what is there stays, and a file that nobody can read is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.compat import LINES
from store.tables import json_files
from store.tables import tables as broker_tables
from store.tables.served_topics import ServedTopics

NOW_MS = 1_700_000_000_000


def topics_of(path: Path) -> dict[str, dict[str, object]]:
    table: dict[str, dict[str, object]] = json_files.read(path)["topicConfigTable"]
    return table


@pytest.mark.parametrize("five", [False, True])
def test_a_topic_is_served_as_rocketmq_would_have_made_it(tmp_path: Path, five: bool) -> None:
    path = tmp_path / "config" / "topics.json"
    served = ServedTopics(path, line=LINES["5" if five else "4.9"])
    served.note([("orders", 0), ("orders", 5), ("%RETRY%group", 0), ("SCHEDULE_TOPIC_XXXX", 2), ("%LMQ%x", 0)])
    assert served.is_due
    assert served.save(NOW_MS) == ["orders", "%RETRY%group"]
    assert not served.is_due and served.save(NOW_MS) == []
    found = topics_of(path)
    assert set(found) == {"orders", "%RETRY%group"}, "what RocketMQ makes by itself is left to it"
    wanted = {
        "order": False, "perm": 6, "readQueueNums": 6, "topicFilterType": "SINGLE_TAG", "topicName": "orders",
        "topicSysFlag": 0, "writeQueueNums": 6,
    }  # fmt: skip
    assert found["orders"] == ({"attributes": {}, **wanted} if five else wanted)
    assert found["%RETRY%group"]["writeQueueNums"] == 1
    version = {"counter": 1, "timestamp": NOW_MS}
    assert json_files.read(path)["dataVersion"] == ({**version, "stateVersion": 0} if five else version)


def test_what_is_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    theirs = {"topicName": "theirs", "perm": 2, "readQueueNums": 2, "writeQueueNums": 8, "anything": {"else": 1}}
    other = {"topicName": "other", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1}
    json_files.write(
        path,
        {"dataVersion": {"counter": 7, "timestamp": 1}, "topicConfigTable": {"theirs": theirs, "other": other}, "x": 1},
    )
    before = path.read_bytes()
    served = ServedTopics(path, line=LINES["5"])
    served.note([("theirs", 1), ("other", 0)])
    assert not served.is_due, "both are served as they are"
    assert path.read_bytes() == before
    served.note([("theirs", 5)])
    assert not served.is_due, "an administrator may have taken that queue away"
    served.note([("theirs", 5)], in_use=True)
    served.save(NOW_MS)
    found = json_files.read(path)
    assert found["topicConfigTable"] == {"theirs": {**theirs, "readQueueNums": 6}, "other": other}
    assert found["dataVersion"] == {"counter": 8, "timestamp": NOW_MS}
    assert found["x"] == 1
    assert path.with_name("topics.json.bak").read_bytes() == before


def test_many_topics_are_saved_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("store.tables.served_topics.time.monotonic", lambda: now[0])
    system_write = json_files.write

    def slow(path: Path, value: dict[object, object]) -> None:
        now[0] += 0.5
        system_write(path, value)

    monkeypatch.setattr(json_files, "write", slow)
    served, saved = ServedTopics(tmp_path / "topics.json", line=LINES["4.9"]), 0
    for number in range(100):
        served.note([(f"topic-{number}", 0)])
        if served.is_due:
            served.save(NOW_MS)
            saved += 1
    assert saved == 5, "two seconds at once, and a tenth of the time that took"
    now[0] += 10
    assert served.is_due
    served.save(NOW_MS)
    assert len(topics_of(tmp_path / "topics.json")) == 100


@pytest.mark.parametrize("content", [b"{not json", b"", b'{"topicConfigTable":{"u":7}}'])
def test_a_file_that_cannot_be_read_is_kept_and_a_new_one_is_saved(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes(content)
    served = ServedTopics(path, line=LINES["4.9"])
    served.note([("t", 0)])
    served.save(NOW_MS)
    assert set(topics_of(path)) == {"t"}
    assert path.with_name("topics.json.aside").read_bytes() == content


def test_a_topic_that_comes_while_the_file_is_written_is_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, original = tmp_path / "topics.json", json_files.write
    served = ServedTopics(path, line=LINES["4.9"])
    served.note([("first", 0)], in_use=True)

    def write(*arguments: object) -> None:
        served.note([("first", 0), ("meanwhile", 0)], in_use=True)
        original(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(json_files, "write", write)
        assert served.save(1) == ["first"]
    assert served.has_more
    assert served.save(2) == ["meanwhile"]
    assert set(broker_tables.topics(json_files.read(path))) == {"first", "meanwhile"}


def test_what_could_not_be_written_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = ServedTopics(tmp_path / "topics.json", line=LINES["4.9"])
    served.note([("t", 0)], in_use=True)

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(json_files, "write", full)
        served.save(1)
    assert served.save(2) == ["t"]
