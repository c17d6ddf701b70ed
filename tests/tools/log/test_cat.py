"""`slipstream log cat`: what is chosen by topic, time and expression, and following a broker's log as it grows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from engine.producer import Producer
from ipc import waiting
from ipc.counters import Counters
from store.message.delay import SCHEDULE_TOPIC
from store.message.record import SysFlag, decode, encode, identity_at
from store.message.topics import HALF_TOPIC, OP_TOPIC
from store.reading import by_queues
from store.reading.extent import Running
from store.reading.log_reader import open_log
from tests.harness import command_line
from tests.harness.batches import batch_body
from tests.harness.command_line import Ran
from tests.harness.dispatched import dispatch_all
from tests.harness.logs import FIRST_STORE_MS, SmallLog
from tests.store.message.test_compression import KINDS
from tools.common.local_broker import LocalBroker
from tools.common.moments import time_text
from tools.log import cat as cat_module
from tools.log.cat import Grep, _following

TIMEOUT_SECONDS = 600
HOUR_MS = 3_600_000


def cat(*arguments: object) -> Ran:
    return command_line.run("log", "cat", *arguments)


def bodies(ran: Ran) -> list[str]:
    assert (ran.exit_code, ran.stderr) == (0, "")
    return [json.loads(line)["body"] for line in ran.stdout.splitlines()]


@pytest.fixture
def hours(tmp_path: Path) -> SmallLog:
    """60 messages of three topics, one an hour, with queues, over several segments."""
    made = SmallLog(tmp_path / "store")
    for number in range(60):
        made.append(
            f"topic{number % 3}",
            b"body %d" % number,
            queue_id=number % 4,
            properties={"TAGS": f"t{number % 2}", "KEYS": f"key-{number}"},
            store_timestamp_ms=FIRST_STORE_MS + number * HOUR_MS,
        )
    return dispatch_all(made)


def test_a_span_of_time(hours: SmallLog) -> None:
    since, until = (time_text(FIRST_STORE_MS + number * HOUR_MS) for number in (20, 30))
    assert bodies(cat("--json", "--since", since, "--until", until, hours.root)) == [f"body {n}" for n in range(20, 30)]
    assert bodies(cat("--json", "--since", FIRST_STORE_MS + 57 * HOUR_MS + 1, hours.root)) == ["body 58", "body 59"]
    assert bodies(cat("--json", "--until", time_text(FIRST_STORE_MS + 1), hours.root)) == ["body 0"]
    assert bodies(cat("--json", "--since", "-1h", hours.root)) == []


def test_messages_of_a_clock_before_1970_are_shown(tmp_path: Path) -> None:
    made = SmallLog(tmp_path / "store")
    for at in (-5, 5):
        made.append(body=str(at).encode(), store_timestamp_ms=at)
    for more in ((), ("--until", FIRST_STORE_MS)):
        assert bodies(cat("--json", *more, made.root)) == ["-5", "5"]
    assert bodies(cat("--json", "--since", 0, made.root)) == ["5"]


def test_a_clock_that_was_set_back_hides_nothing(tmp_path: Path) -> None:
    made = SmallLog(tmp_path / "store")
    times = [0, 100, 59_000, 200, 300, 59_500, 400]
    for at in times:
        made.append(body=str(at).encode(), store_timestamp_ms=FIRST_STORE_MS + at)
    shown = bodies(cat("--json", "--since", FIRST_STORE_MS + 100, "--until", FIRST_STORE_MS + 500, made.root))
    assert shown == ["100", "200", "300", "400"]


def test_several_topics_by_their_queues(hours: SmallLog, monkeypatch: pytest.MonkeyPatch) -> None:
    both = ("--topic", "topic0", "--topic", "topic2")
    scanned = cat("--json", "--scan", *both, hours.root)
    read: list[str] = []
    real = by_queues._record
    monkeypatch.setattr(by_queues, "_record", lambda *given: read.append(given[3]) or real(*given))
    assert cat("--json", *both, hours.root) == scanned
    assert len(read) == len(bodies(scanned)) == 40
    assert len(bodies(cat("--json", *both, "--topic", "topic1", hours.root))) == 60
    assert len(read) == 40  # all of the log is read as it lies
    since = FIRST_STORE_MS + 50 * HOUR_MS
    assert len(bodies(cat("--json", *both, "--since", since, "--limit", 3, hours.root))) == 3
    part = ("--json", *both, "--from", hours.records[30].offset)
    assert cat(*part, hours.root) == cat(*part, "--scan", hours.root)


@pytest.mark.parametrize("harm", ["a missing queue", "an end that no queue has", "an abnormal end", "no queues at all"])
def test_queues_that_may_lack_something_are_not_gone_by(hours: SmallLog, harm: str) -> None:
    scanned = cat("--json", "--scan", "--topic", "topic0", hours.root)
    if harm == "an abnormal end":
        hours.directory.abort.touch()
        (hours.directory.consumequeue / "topic0" / "0" / ("0" * 20)).unlink()
    elif harm == "an end that no queue has":
        hours.append("topic0", b"body 60", queue_id=0)
        assert len(bodies(cat("--json", "--topic", "topic0", hours.root))) == len(bodies(scanned)) + 1
        return
    else:
        topics = ["topic0"] if harm == "a missing queue" else ["topic0", "topic1", "topic2"]
        for topic in topics:
            for path in sorted((hours.directory.consumequeue / topic).rglob("*"), reverse=True):
                path.unlink() if path.is_file() else path.rmdir()
            (hours.directory.consumequeue / topic).rmdir()
    assert cat("--json", "--topic", "topic0", hours.root) == scanned
    assert len(bodies(scanned)) == 20


@pytest.mark.parametrize("topic", ["nobody", "..", "a/b", ""])
def test_an_unknown_topic_has_no_messages(hours: SmallLog, topic: str) -> None:
    ran = cat("--json", "--topic", topic, hours.root)
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert ran.stderr == f"no such message of {topic}; `slipstream log stat {hours.root}` lists the topics\n"


def test_an_entry_that_leads_nowhere(hours: SmallLog) -> None:
    queue = hours.directory.consumequeue / "topic0" / "0" / ("0" * 20)
    entry = bytearray(queue.read_bytes())
    entry[7] ^= 1  # of its place in the log
    queue.write_bytes(entry)
    ran = cat("--topic", "topic0", hours.root)
    assert (ran.exit_code, ran.stderr.count("\n"), "--scan" in ran.stderr) == (4, 1, True)
    assert len(cat("--topic", "topic0", "--scan", hours.root).stdout.splitlines()) == 20


def test_an_expression(hours: SmallLog) -> None:
    assert bodies(cat("--json", "--grep", "y 5[78]$", hours.root)) == ["body 57", "body 58"]
    assert bodies(cat("--json", "--grep", "^KEYS=key-7$", hours.root)) == ["body 7"]
    assert len(bodies(cat("--json", "--grep", "^TAGS=t1$", "--topic", "topic1", hours.root))) == 10
    assert bodies(cat("--json", "--grep", "nothing of the kind", hours.root)) == []


EXPRESSIONS = (
    "needle", "^needle$", "need.e", "needle|nothing", "TAGS=needle", "^KEYS=needle=2$", "=2", "n{1}eedle", "le {10}",
    "[n]eedle", "(needle|hay)-1", r"hay\x2d1", "(?i)NEEDLE", "\x01", "é", "\ufffd", "TRAN_MSG=true", "DELAY=", "$",
)  # fmt: skip


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> SmallLog:
    """Bodies as they are, compressed, damaged, in inner batches; delayed messages, prepared and committed ones."""
    made = SmallLog(tmp_path_factory.mktemp("hidden"), 1 << 16)
    texts = [b"needle", b"hay-1", b"a needle-1 in it", b"NEEDLE", "é".encode(), b"\xff\xfe", b"a\x01b", b"=2" * 9, b""]
    committed, prepared = int(SysFlag.TRANSACTION_COMMIT), int(SysFlag.TRANSACTION_PREPARED)
    for text in texts:
        made.append(body=text)
        made.append(body=text, properties={"TAGS": "needle", "KEYS": "needle=2"})
        for flag, compressed in KINDS.items():
            made.append(body=compressed(text * 20), sys_flag=flag)
        made.append(body=zlib.compress(text)[:-2], sys_flag=1)
        batch = batch_body(
            (0, body, properties) for body in (text, b"hay") for properties in (b"", b"TAGS\x01needle\x02")
        )
        made.append(body=batch, sys_flag=int(SysFlag.INNER_BATCH))
        made.append(body=zlib.compress(batch), sys_flag=int(SysFlag.INNER_BATCH) | 1)
        made.append(SCHEDULE_TOPIC, text, properties={"DELAY": "3", "REAL_TOPIC": "needle", "REAL_QID": "0"})
        made.append(HALF_TOPIC, text, properties={"TRAN_MSG": "true", "PGROUP": "g"}, sys_flag=prepared)
        made.append(OP_TOPIC, b"17", properties={"TAGS": "d"})
        made.append(body=text, properties={"TRAN_MSG": "true"}, sys_flag=committed)
    return dispatch_all(made)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_records_that_are_not_decoded_would_not_match(
    hidden: SmallLog, expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: tuple[tuple[object, ...], ...] = ((), ("--topic", "topic"), ("--until", FIRST_STORE_MS + 40), ("--limit", 3))
    decoded: list[object] = []
    monkeypatch.setattr(cat_module, "decode", lambda record, **more: decoded.append(1) or decode(record, **more))
    found = [cat("--json", "--grep", expression, *more, hidden.root) for more in given]
    quickly, _ = len(decoded), decoded.clear()
    monkeypatch.setattr(Grep, "may_match", lambda _self, _record: True)
    assert [cat("--json", "--grep", expression, *more, hidden.root) for more in given] == found
    assert quickly <= len(decoded)
    if expression in ("needle", "TAGS=needle", "hay", "TRAN_MSG=true"):
        assert found[0].stdout and quickly < len(decoded)


@pytest.mark.parametrize("flags", [re.IGNORECASE, re.VERBOSE, re.ASCII])
def test_an_expression_with_flags_is_asked_of_every_message(flags: re.RegexFlag) -> None:
    assert Grep(re.compile("a b", flags)).may_match(encode(topic="t", body=b"AB"))
    assert not Grep(re.compile("a b")).may_match(encode(topic="t", body=b"AB"))


def test_an_expression_that_never_ends_is_ended(tmp_path: Path) -> None:
    made = SmallLog(tmp_path / "store")
    made.append(body=b"a harmless one")
    made.append(body=b"a" * 64 + b"!")
    ran = cat("--grep", "(a|aa)+$", made.root)
    assert ran.exit_code == 2
    assert ran.stderr.startswith("slipstream: PATTERN_TOO_SLOW: ") and ran.stderr.count("\n") == 1
    assert f"offset {made.records[1].offset}" in ran.stderr


@pytest.mark.parametrize("arguments", [
    ("--grep", "("), ("--grep", "a" * 10_001), ("--since", "yesterday"), ("--until", "-1"),
    ("--since", "-1h", "--until", "-2h"),
])  # fmt: skip
def test_wrong_arguments_are_one_line(hours: SmallLog, arguments: tuple[str, ...]) -> None:
    ran = cat(*arguments, hours.root)
    assert (ran.exit_code, ran.stderr.count("\n"), ran.stdout) == (2, 1, "")


def test_a_file_is_not_followed(tmp_path: Path) -> None:
    file = tmp_path / "slipstream.kept-0"
    file.write_bytes(b"")
    assert cat("--follow", file).exit_code == 2


# following


@contextmanager
def following(store: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tools.cli", "log", "cat", "--json", "--follow", *arguments, str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        watchdog = threading.Timer(TIMEOUT_SECONDS, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()


def test_following_over_rolls_until_the_broker_has_stopped(tmp_path: Path) -> None:
    count, size = 40, 100_000  # some four segments
    with (
        LocalBroker(tmp_path / "broker", mappedFileSizeCommitLog=1 << 20) as broker,
        Producer(broker.store, timeout=60.0) as producer,
    ):
        producer.send("other", b"before")
        producer.send("followed", b"0")
        with (
            following(broker.store, "--topic", "followed", "--since", "-1h") as process,
            following(broker.store, "--limit", "3", "--grep", "^(1|KEYS=late)$") as limited,
        ):
            assert process.stdout is not None and process.stderr is not None and limited.stdout is not None
            assert json.loads(process.stdout.readline())["body"] == "0"
            for number in range(1, count):
                producer.send("followed", str(number), keys="late" if number in (20, 30) else None)
                producer.send("other", b"x" * size)
            seen = [json.loads(process.stdout.readline())["body"] for _ in range(1, count)]
            assert seen == [str(number) for number in range(1, count)]
            assert [json.loads(line)["body"] for line in limited.stdout] == ["1", "20", "30"]
            assert limited.wait(TIMEOUT_SECONDS) == 0
            broker.stop()
            assert (process.stdout.read(), process.stderr.read()) == ("", "the broker has stopped\n")
            assert process.wait(TIMEOUT_SECONDS) == 0


def test_following_ends_at_its_time(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "broker", mappedFileSizeCommitLog=1 << 20) as broker:
        with Producer(broker.store, timeout=60.0) as producer:
            producer.send("T", b"first")
        assert cat("--json", "--follow", "--until", "-1h", broker.store) == Ran(0, "", "")


class Published:
    """A broker's two words, which move at each question whether it lives; then it has died."""

    def __init__(self, path: Path, steps: list[tuple[int, int]]) -> None:
        self._words, self._steps = Counters.create(path, 2), steps
        self._cursors = [
            self._words.allocate(f"{name}_physical_offset", kind="cursor", owner="writer") for name in ("min", "max")
        ]
        self.is_alive()

    def counters(self) -> Counters:
        return self._words

    def is_alive(self) -> bool:
        if not self._steps:
            return False
        for cursor, value in zip(self._cursors, self._steps.pop(0), strict=True):
            waiting.publish(cursor, value)
        return True


def test_following_reads_what_is_published_and_not_what_lies_behind_it(
    hours: SmallLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = [record.offset for record in hours.records]
    steps = [(0, at[10]), (0, at[10]), (0, at[31]), (at[40], at[45]), (at[40], at[50])]
    broker = cast(Running, Published(tmp_path / "counters", steps))
    seen = [identity_at(record, 0)[0] for record in _following(hours.root, open_log(hours.root), 0, broker, None)]
    assert seen == at[:31] + at[40:50]
    said = capsys.readouterr().err.splitlines()
    assert said == [f"offsets {at[31]} to {at[40]} expired before they were printed", "the broker has stopped"]
