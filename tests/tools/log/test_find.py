"""`slipstream log find`: by key with and without an index, by both kinds of id, by offset, by time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.producer import Producer
from ipc import waiting
from ipc.counters import Counters
from store.files import checkpoint
from store.files.pointer import COUNTERS_FILE
from store.index.service import IndexService
from store.reading.extent import require_running
from store.recovery.dispatch import Dispatcher
from tests.harness import command_line
from tests.harness.command_line import Ran
from tests.harness.logs import FIRST_STORE_MS, QUEUE_FILE_BYTES, SmallLog
from tests.store.golden import manifest_lines, unpack
from tools.common.local_broker import LocalBroker


def run(*arguments: object) -> Ran:
    return command_line.run("log", "find", *arguments)


def offsets(result: Ran) -> list[int]:
    return [json.loads(line)["physicalOffset"] for line in result.stdout.splitlines()]


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    """Records whose keys collide in the index: Java gives "Aa" and "BB" one hash."""
    made = SmallLog(tmp_path / "store")
    for number in range(60):
        keys = ("Aa", "BB x", "größe", "")[number % 4]
        texts = {"UNIQ_KEY": f"{number:032X}", "KEYS": keys}
        made.append(f"t{number % 2}", properties={name: text for name, text in texts.items() if text})
    return made


def dispatch(log: SmallLog, end: int | None = None) -> None:
    index = IndexService(log.directory.index, 5, 40)
    Dispatcher(log.files, log.directory.consumequeue, QUEUE_FILE_BYTES, index=index).dispatch(0, end or log.end)


@pytest.mark.parametrize("indexed", ["all", "half", "nothing"])
def test_a_key_is_that_key_and_no_other_of_its_hash(log: SmallLog, indexed: str) -> None:
    if indexed != "nothing":
        dispatch(log, log.records[30].offset if indexed == "half" else None)
    for key, rest in (("Aa", 0), ("BB", 1), ("x", 1), ("größe", 2)):
        expected = [record.offset for record in log.records[rest::4]]
        result = run(log.root, "--key", key, "--json")
        assert offsets(result) == expected
        assert ("searched the log" in result.stderr) == (indexed != "all")
        assert offsets(run(log.root, "--key", key, "--json", "--limit", 3)) == expected[-3:]
    result = run(log.root, "--key", "B")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "nothing found" in result.stderr


def test_a_topic_narrows(log: SmallLog) -> None:
    dispatch(log)
    assert offsets(run(log.root, "--key", "BB", "--topic", "t1", "--json")) == [r.offset for r in log.records[1::4]]
    assert run(log.root, "--key", "BB", "--topic", "t0").exit_code == 1


def test_a_message_is_found_by_both_kinds_of_id(log: SmallLog) -> None:
    dispatch(log)
    record = log.records[17]
    (line,) = run(log.root, "--offset", record.offset, "--json").stdout.splitlines()
    message = json.loads(line)
    for message_id in (message["msgId"], message["msgId"].lower(), message["properties"]["UNIQ_KEY"]):
        assert offsets(run(log.root, "--id", message_id, "--json")) == [record.offset]
    other_host = "0A000001" + message["msgId"][8:]
    result = run(log.root, "--id", other_host)
    assert result.exit_code == 1
    assert "stored it, not 10.0.0.1" in result.stderr


def test_an_offset_between_records_names_the_next_one(log: SmallLog) -> None:
    result = run(log.root, "--offset", log.records[3].offset + 1)
    assert result.exit_code == 1
    assert f"the next one at {log.records[4].offset}" in result.stderr


def test_a_queue_offset_is_found_by_time(log: SmallLog) -> None:
    dispatch(log)
    moment = FIRST_STORE_MS + 20  # number 20: queue offset 10 of t0
    found = json.loads(run(log.root, "--queue", "t0:0", "--time", moment, "--json").stdout)
    assert (found["queueOffset"], found["message"]["physicalOffset"]) == (10, log.records[20].offset)
    found = json.loads(run(log.root, "--queue", "t0:0", "--time", moment + 1, "--json").stdout)
    assert found["queueOffset"] == 11
    by_file = json.loads(run(log.root, "--queue", "t0:0", "--time", moment, "--as", "4.9", "--json").stdout)
    assert by_file["queueOffset"] == 9  # 4.9 looks into the first file that was written to since then, and only there
    late = run(log.root, "--queue", "t0:0", "--time", "2100-01-01T00:00:00Z")
    assert "queue offset 30" in late.stdout
    assert "no message there" in late.stdout
    assert run(log.root, "--queue", "t9:0", "--time", moment).exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--key", "a", "--offset", 1),
        ("--queue", "t0:0"),
        ("--time", 5),
        ("--queue", "t0", "--time", 5),
        ("--queue", "../x:0", "--time", 5),
        ("--queue", "t0:0", "--time", "soon"),
    ],
)
def test_what_makes_no_question_is_refused(log: SmallLog, arguments: tuple[object, ...]) -> None:
    assert run(log.root, *arguments).exit_code == 2


@pytest.mark.parametrize("version", ["rocketmq-4.9.7", "rocketmq-5.3.3"])
def test_find_finds_what_rocketmq_finds(version: str, tmp_path: Path) -> None:
    root = unpack(version, "master", tmp_path)
    found = [json.loads(line) for line in manifest_lines(version, "master")]
    asked = {(line["topic"], line["key"]): line["physicalOffsets"] for line in found if line["kind"] == "index"}
    for topic, key in list(asked)[::40]:
        result = run(root, "--topic", topic, "--key", key, "--json", "--limit", 32)
        assert offsets(result) == sorted(set(asked[topic, key]))  # a key given twice is there twice


def damaged(log: SmallLog, change: Callable[[Path], None]) -> None:
    dispatch(log)
    change(sorted(log.directory.index.iterdir())[0])


@pytest.mark.parametrize("left", [0, 39, 300])
def test_a_short_index_file_is_named(log: SmallLog, left: int) -> None:
    damaged(log, lambda path: path.write_bytes(path.read_bytes()[:left]))
    result = run(log.root, "--key", "Aa", "--json")
    assert offsets(result)[-1] == log.records[56].offset
    assert "INDEX" not in result.stdout
    assert "bytes long" in result.stderr


def test_a_checkpoint_says_how_far_the_index_goes(log: SmallLog) -> None:
    log.append(properties={"TAGS": "no keys"})
    dispatch(log)
    assert "searched the log" in run(log.root, "--key", "none").stderr
    checkpoint.write(log.directory.checkpoint, checkpoint.Checkpoint(flushed_offset=log.end, index_offset=log.end))
    assert "searched the log" not in run(log.root, "--key", "none").stderr


def await_dispatch(store: Path) -> None:
    counters = Counters.attach(require_running(store).region_directory / COUNTERS_FILE, writable=True)
    end, cursor = counters.cursor("max_physical_offset").read(), counters.cursor("reput_from_offset")
    while (seen := cursor.read()) < end:
        waiting.await_change(cursor, seen, 1000)
    counters.close()


def test_on_a_running_broker(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", mappedFileSizeCommitLog=1 << 20, maxHashSlotNum=50, maxIndexNum=300) as broker:
        with Producer(broker.store, timeout=60.0) as producer:
            for number in range(20):
                producer.send("T", b"body", keys=f"k{number % 5}", queue_id=0)
        await_dispatch(broker.store)
        result = run(broker.store, "--key", "k3", "--json")
        assert [json.loads(line)["queueOffset"] for line in result.stdout.splitlines()] == [3, 8, 13, 18]
        assert "searched the log" not in result.stderr
    shutil.rmtree(broker.store / "index")
    assert len(offsets(run(broker.store, "--key", "k3", "--json"))) == 4
