"""`slipstream produce` against a running broker: lines in, messages out, whatever happens in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.published import readable_range
from store.record import Message
from tests.harness.audit import messages_of
from tools.local_broker import LocalBroker
from tools.produce import Interrupt, batches

TIMEOUT_SECONDS = 120


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("produce"), mappedFileSizeCommitLog=1 << 20, maxMessageSize=1000) as one:
        yield one


def produce(broker: LocalBroker, topic: str, *arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.cli", "produce", "--store", str(broker.store), "--topic", topic, *arguments]
    ran = subprocess.run(command, input=data, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
    return subprocess.CompletedProcess(command, ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def of_topic(broker: LocalBroker, topic: str) -> list[Message]:
    found = messages_of(broker.store, readable_range(broker.store).max_physical_offset)
    return [message for message in found if message.topic == topic]


def bodies(broker: LocalBroker, topic: str) -> list[bytes]:
    return [bytes(message.body) for message in of_topic(broker, topic)]


def test_lines_of_standard_input_in_order(broker: LocalBroker) -> None:
    lines = [f"line {n}".encode() for n in range(2500)]
    ran = produce(broker, "stdin", "--tag", "numbers", "--key", "k", data=b"\n".join(lines) + b"\n")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("2,500 messages acknowledged (")
    found = of_topic(broker, "stdin")
    assert [bytes(message.body) for message in found] == lines
    assert {(message.tags, message.keys) for message in found} == {("numbers", "k")}


def test_files_in_their_order_with_any_line_end(broker: LocalBroker, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"a\r\nb\n")
    (tmp_path / "two").write_bytes(b"c\xff\x00\nno newline at the end")
    ran = produce(broker, "files", "--batch", "1", str(tmp_path / "one"), str(tmp_path / "two"))
    assert ran.returncode == 0, ran.stderr
    assert bodies(broker, "files") == [b"a", b"b", b"c\xff\x00", b"no newline at the end"]


def test_empty_lines_are_told_and_skipped(broker: LocalBroker) -> None:
    ran = produce(broker, "gaps", data=b"a\n\n\r\nb\n")
    assert (ran.returncode, bodies(broker, "gaps")) == (0, [b"a", b"b"])
    assert "2 empty lines skipped" in ran.stdout


def test_nothing_in_is_nothing_out(broker: LocalBroker) -> None:
    before = readable_range(broker.store)
    ran = produce(broker, "nothing")
    assert ran.returncode == 0
    assert ran.stdout.startswith("0 messages acknowledged")
    assert readable_range(broker.store) == before


def test_a_line_that_is_too_long_is_refused_with_what_went_before_counted(broker: LocalBroker) -> None:
    ran = produce(broker, "long", "--batch", "1", data=b"short\n" + b"x" * 1001 + b"\nnever sent\n")
    assert ran.returncode == 2
    assert ran.stdout.startswith("1 messages acknowledged")
    assert ran.stderr.startswith("slipstream: MESSAGE_ILLEGAL: ")
    assert bodies(broker, "long") == [b"short"]


def test_a_topic_that_rocketmq_would_refuse_is_refused(broker: LocalBroker) -> None:
    ran = produce(broker, "no spaces", data=b"a\n")
    assert ran.returncode == 2
    assert "MESSAGE_ILLEGAL" in ran.stderr


def test_ctrl_c_counts_what_was_acknowledged(broker: LocalBroker) -> None:
    command = [sys.executable, "-m", "tools.cli", "produce", "--store", str(broker.store), "--topic", "stopped"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\ntwo\nthe third has no end yet")
        process.stdin.flush()
        while len(bodies(broker, "stopped")) < 2:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 130, err
    assert out.startswith(b"interrupted; 2 messages acknowledged")
    assert bodies(broker, "stopped") == [b"one", b"two"]


def test_an_interrupt_waits_for_the_batch_under_way() -> None:
    interrupt, done = Interrupt(), []
    with pytest.raises(KeyboardInterrupt), interrupt.hold():
        interrupt.on_signal(signal.SIGINT, None)
        done.append("batch")
    assert done == ["batch"]


def test_a_second_interrupt_does_not_wait() -> None:
    interrupt = Interrupt()
    interrupt.held = True
    interrupt.on_signal(signal.SIGINT, None)
    with pytest.raises(KeyboardInterrupt):
        interrupt.on_signal(signal.SIGINT, None)


@pytest.mark.parametrize("chunks", [[b"a\nb\nc"], [b"a", b"\nb", b"\n", b"c"], [b"a\nb\n", b"c\n"]])
def test_lines_come_whole_however_they_arrive(chunks: list[bytes]) -> None:
    read, write = os.pipe()
    found = []
    reader = batches(read, 10)
    for chunk in chunks:
        os.write(write, chunk)
        if b"\n" in chunk:
            found += next(reader)
    os.close(write)
    for rest in reader:
        found += rest
    os.close(read)
    assert found == [b"a", b"b", b"c"]
