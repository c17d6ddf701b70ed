"""`slipstream log` on stores without a broker and on a live one: output, exit codes, pipes."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.producer import Producer
from engine.shared_memory.cursors import BrokerCounters
from store.message.host import Host
from store.message.record import decode, encode
from store.reading import extent
from tests.harness import command_line
from tests.harness.command_line import Ran
from tests.harness.conditions import await_that
from tests.harness.logs import SmallLog
from tests.store.golden import manifest_lines, unpack
from tools.common.local_broker import LocalBroker
from tools.common.message_text import as_json, as_line

TIMEOUT_SECONDS = 300
HOST = Host("127.0.0.1", 10911)


@pytest.fixture
def small(tmp_path: Path) -> SmallLog:
    """80 messages without queues."""
    made = SmallLog(tmp_path / "store")
    made.fill(80)
    return made


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("log"), mappedFileSizeCommitLog=1 << 20) as one:
        with Producer(one.store, timeout=60.0) as producer:
            producer.send_batch("T", [b"body %d" % number for number in range(200)], tags="a")
        yield one


def run(*arguments: object) -> Ran:
    return command_line.run("log", *arguments)


def slipstream(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tools.cli", "log", *(str(argument) for argument in arguments)]


def slipstream_run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = slipstream(*arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)


def test_cat_for_people(small: SmallLog) -> None:
    lines = run("cat", small.root).stdout.splitlines()
    assert len(lines) == 80
    assert lines[0] == "           0  2023-11-14T22:13:20.000Z  topic0/0#0 [t0]  body 0"


def test_cat_for_pipes(small: SmallLog) -> None:
    first = json.loads(run("cat", "--json", small.root).stdout.splitlines()[0])
    assert (first["topic"], first["body"], first["tags"], first["physicalOffset"]) == ("topic0", "body 0", "t0", 0)
    assert first["msgId"] == "0" * 32


def test_cat_a_part(small: SmallLog) -> None:
    lines = run("cat", "--from", small.records[10].offset + 1, "--limit", 3, "--topic", "topic1", small.root).stdout
    offsets = [int(line.split()[0]) for line in lines.splitlines()]
    assert offsets == [record.offset for record in small.records[11:17] if record.topic == "topic1"]
    assert run("cat", "--limit", 0, small.root).stdout == ""


def test_cat_ends_at_damage(small: SmallLog) -> None:
    small.write(small.records[5].offset, b"\x7f")
    ran = slipstream_run("cat", small.root)
    assert ran.returncode == 4
    assert len(ran.stdout.splitlines()) == 5
    assert ran.stderr.startswith("slipstream: CORRUPT_RECORD: ")
    assert len(ran.stderr.splitlines()) == 1


def test_control_characters_do_not_reach_a_terminal() -> None:
    message = decode(encode(topic="T\x1b", body=b"\x1b[2Jred\nline", store_host=HOST, properties=b"TAGS\x01\x07"))
    line = as_line(message)
    assert line.isprintable()
    assert "\\x1b[2Jred\\x0aline" in line


def test_bodies_that_are_no_text() -> None:
    message = decode(encode(topic="T", body=b"\xff\x00", store_host=HOST))
    assert as_line(message).endswith("<2 bytes> ff00")
    assert base64.b64decode(json.loads(as_json(message))["bodyBase64"]) == b"\xff\x00"


def test_verify_says_what_where_and_what_to_do(tmp_path: Path) -> None:
    root = unpack("rocketmq-5.3.3", "master", tmp_path)
    clean = run("verify", root)
    assert (clean.exit_code, "no findings" in clean.stdout) == (0, True)
    with (root / "commitlog" / "00000000000000000000").open("r+b") as segment:
        segment.seek(100)
        segment.write(b"\xff\x00\xff")
    found = run("verify", root)
    assert found.exit_code == 1
    assert found.stdout.startswith(f"DAMAGED: {root}/commitlog/00000000000000000000 at offset 0: its body has CRC ")
    as_objects = run("verify", "--json", root)
    assert as_objects.exit_code == 1
    *findings, sums = map(json.loads, as_objects.stdout.splitlines())
    assert sums["findings"] == len(findings) == 2


def test_stat(small: SmallLog) -> None:
    shown = run("stat", small.root)
    assert shown.exit_code == 0
    assert shown.stdout.startswith(f"80 messages in {small.end:,} bytes of log, offsets 0 to {small.end:,} (no broker")
    sums = json.loads(run("stat", "--json", small.root).stdout)
    assert (sums["messages"], sums["segments"], sums["maxOffset"]) == (80, 3, small.end)
    assert sums["topics"]["topic1"]["messages"] == 40


def test_diff(small: SmallLog, tmp_path: Path) -> None:
    other = SmallLog(tmp_path / "other")
    other.fill(80)
    equal = run("diff", small.root, other.root)
    assert (equal.exit_code, equal.stdout.split(";")[0]) == (0, f"equal in {small.end} bytes, offsets 0 to {small.end}")
    small.flip(small.records[3].offset + 88)
    differ = run("diff", small.root, other.root)
    assert differ.exit_code == 1
    assert differ.stdout.startswith(f"differ at offset {small.records[3].offset + 88}: ")
    empty = tmp_path / "empty"
    (empty / "commitlog").mkdir(parents=True)
    assert run("diff", small.root, empty).exit_code == 1
    assert run("diff", empty, empty).exit_code == 0


@pytest.mark.parametrize("version", ["rocketmq-4.9.7", "rocketmq-5.3.3"])
def test_manifest_is_rocketmq_s_own(tmp_path: Path, version: str) -> None:
    ran = run("manifest", unpack(version, "master", tmp_path))
    assert ran.exit_code == 0
    assert ran.stdout.splitlines() == manifest_lines(version, "master")


@pytest.mark.parametrize("command", ["cat", "verify", "stat", "manifest"])
def test_a_path_that_is_no_store(tmp_path: Path, command: str) -> None:
    for path in (tmp_path, tmp_path / "missing", Path(__file__)):
        ran = run(command, path)
        assert ran.exit_code == 2
        assert "NOT_A_STORE" in ran.stderr
        assert len(ran.stderr.splitlines()) == 1
    assert run("diff", tmp_path, tmp_path).exit_code == 2


def test_a_directory_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    for name, size in (("00000000000000000000", 100), ("00000000000000000100", 90)):
        (tmp_path / "commitlog" / name).write_bytes(bytes(size))
    ran = run("cat", tmp_path)
    assert (ran.exit_code, "SEGMENT_SIZE_MISMATCH" in ran.stderr) == (2, True)


@pytest.mark.parametrize(
    "arguments", [["cat"], ["cat", "--limit", "-1", "x"], ["nothing"], ["cat", "--from", "x", "y"]]
)
def test_wrong_arguments(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


def test_an_offset_outside_of_the_log(small: SmallLog) -> None:
    ran = run("cat", "--from", small.end + 1, small.root)
    assert (ran.exit_code, "OFFSET_OUT_OF_RANGE" in ran.stderr) == (2, True)


def test_follow_needs_a_broker(small: SmallLog) -> None:
    ran = slipstream_run("cat", "--follow", small.root)
    assert (ran.returncode, "NO_BROKER" in ran.stderr) == (3, True)


@pytest.mark.parametrize("command", ["cat", "manifest"])
def test_a_reader_that_has_seen_enough(tmp_path: Path, command: str) -> None:
    root = unpack("rocketmq-5.3.3", "master", tmp_path)
    with subprocess.Popen(slipstream(command, root), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(TIMEOUT_SECONDS) == 0


def test_a_live_store(broker: LocalBroker) -> None:
    counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory)
    await_that(lambda: counters.reput_from_offset.read() == counters.max_physical_offset.read(), "all is dispatched")
    lines = run("cat", "--topic", "T", broker.store).stdout.splitlines()
    assert len(lines) >= 200
    assert "body 0" in lines[0]
    assert run("verify", broker.store).exit_code == 0
    assert "(a broker runs)" in run("stat", broker.store).stdout
    manifest = [json.loads(line) for line in run("manifest", broker.store).stdout.splitlines()]
    messages = [entry for entry in manifest if entry["kind"] == "message"]
    assert all(entry["checked"] for entry in messages)
    entries = sum(len(entry["entries"]) for entry in manifest if entry["kind"] == "queue")
    assert entries == len(messages) >= 200


def test_follow_a_live_store(broker: LocalBroker) -> None:
    command = slipstream("cat", "--json", "--follow", "--topic", "followed", broker.store)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        watchdog = threading.Timer(TIMEOUT_SECONDS, process.kill)
        watchdog.start()
        assert process.stdout is not None
        with Producer(broker.store, timeout=60.0) as producer:
            for number in range(5):
                producer.send("followed", b"%d" % number)
                assert json.loads(process.stdout.readline())["body"] == str(number)
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_SECONDS) == 130
        watchdog.cancel()
