"""`slipstream produce` against a running broker: lines in, messages out, whatever happens in between."""

from __future__ import annotations

import os
import pty
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from store.message.record import Message
from store.reading.extent import readable_range
from tests.harness.audit import messages_of
from tests.harness.conditions import await_that
from tools.common.local_broker import LocalBroker
from tools.run.produce import Interrupt, Lines

TIMEOUT_SECONDS = 300
PRODUCE = ("produce", "--timeout", "120", "--store")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("produce"), mappedFileSizeCommitLog=1 << 20, maxMessageSize=1000) as one:
        yield one


def produce(broker: LocalBroker, topic: str, *arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.cli", *PRODUCE, str(broker.store), "--topic", topic, *arguments]
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


def test_empty_lines_are_counted_and_skipped(broker: LocalBroker) -> None:
    ran = produce(broker, "gaps", data=b"a\n\n\r\nb\n")
    assert (ran.returncode, bodies(broker, "gaps")) == (0, [b"a", b"b"])
    assert "2 empty lines skipped" in ran.stdout


def test_nothing_in_is_nothing_out(broker: LocalBroker) -> None:
    before = readable_range(broker.store)
    ran = produce(broker, "nothing")
    assert ran.returncode == 0
    assert ran.stdout.startswith("0 messages acknowledged")
    assert readable_range(broker.store) == before


@pytest.mark.parametrize("batch", [1, 1000])
@pytest.mark.parametrize("end", [b"\nnever sent\n", b""])
def test_a_line_that_is_too_long_is_refused_by_its_number(broker: LocalBroker, batch: int, end: bytes) -> None:
    topic = f"long-{batch}-{len(end)}"
    ran = produce(broker, topic, "--batch", str(batch), data=b"short\n\nanother\n" + b"x" * 1001 + end)
    assert ran.returncode == 2
    assert ran.stdout.startswith("2 messages acknowledged")
    assert ran.stderr.startswith("slipstream: MESSAGE_ILLEGAL: standard input, line 4: ")
    assert "1001 bytes" in ran.stderr and "maxMessageSize is 1000" in ran.stderr and ran.stderr.count("\n") == 1
    assert "the 3 lines before it were sent" in ran.stderr
    assert bodies(broker, topic) == [b"short", b"another"]


def test_the_longest_line_that_may_be_is_sent(broker: LocalBroker) -> None:
    ran = produce(broker, "longest", data=b"x" * 1000 + b"\r\n" + b"y" * 1000)
    assert (ran.returncode, bodies(broker, "longest")) == (0, [b"x" * 1000, b"y" * 1000])


def test_a_line_without_an_end_is_not_waited_for(broker: LocalBroker) -> None:
    """As from /dev/zero: what is read is bounded by what a message may have."""
    command = [sys.executable, "-m", "tools.cli", *PRODUCE, str(broker.store), "--topic", "endless"]
    with open("/dev/zero", "rb") as zeros:
        ran = subprocess.run(command, stdin=zeros, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
    assert ran.returncode == 2
    assert b"standard input, line 1: more than 1000 bytes without a line end" in ran.stderr
    assert b"nothing was sent" in ran.stderr and bodies(broker, "endless") == []


def test_produce_at_a_slave_says_that_it_is_a_slave(broker: LocalBroker, tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "s", brokerRole="SLAVE", brokerId=1, mappedFileSizeCommitLog=1 << 20) as slave:
        ran = produce(slave, "t", data=b"a\n")
    assert ran.returncode == 4
    assert ran.stderr.startswith(f"slipstream: SERVICE_NOT_AVAILABLE: {slave.store}: its broker is a slave")
    assert ran.stderr.count("\n") == 1


CLOSED = [closed for count in (1, 2, 3) for closed in combinations(("<&-", ">&-", "2>&-"), count)]


@pytest.mark.parametrize("closed", CLOSED, ids=" ".join)
def test_a_closed_descriptor_is_never_the_brokers_memory(broker: LocalBroker, closed: tuple[str, ...]) -> None:
    topic = "closed-" + str(CLOSED.index(closed))
    before = readable_range(broker.store)
    words = [sys.executable, "-m", "tools.cli", *PRODUCE, str(broker.store), "--topic", topic]
    script = " ".join([*map(shlex.quote, words), *closed])
    given = b"a line\n"
    ran = subprocess.run(["sh", "-c", script], input=given, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
    assert ran.returncode == 0, ran.stderr
    assert bodies(broker, topic) == ([] if "<&-" in closed else [b"a line"])
    if "<&-" in closed:
        assert readable_range(broker.store) == before
    if ">&-" not in closed:
        assert ran.stdout.startswith(b"0 messages" if "<&-" in closed else b"1 message ")


def test_a_producer_in_a_process_with_closed_descriptors_writes_no_output_into_shared_memory(
    broker: LocalBroker,
) -> None:
    script = (
        "import os, sys\n"
        "os.closerange(0, 3)\n"
        "from engine.producer import Producer\n"
        f"with Producer({str(broker.store)!r}, timeout=60) as producer:\n"
        "    taken = [os.readlink(f'/proc/self/fd/{fd}') for fd in range(3)]\n"
        "    producer.send('quiet', b'one')\n"
        "sys.exit(0 if taken == ['/dev/null'] * 3 else 7)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], timeout=TIMEOUT_SECONDS, check=False)
    assert ran.returncode == 0
    assert bodies(broker, "quiet") == [b"one"]


def test_a_topic_that_rocketmq_would_refuse_is_refused(broker: LocalBroker) -> None:
    ran = produce(broker, "no spaces", data=b"a\n")
    assert ran.returncode == 2
    assert "MESSAGE_ILLEGAL" in ran.stderr


def test_on_a_terminal_it_says_that_it_reads(broker: LocalBroker) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tools.cli", "produce", "--store", str(broker.store), "-t", "typed"]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        os.close(theirs)
        assert process.stderr is not None
        assert process.stderr.readline() == "reading messages from this terminal, one per line; press Ctrl-D to end\n"
        os.write(ours, b"typed\n\x04")
        told, _said = process.communicate(timeout=120)
    os.close(ours)
    assert told.startswith("1 message acknowledged")


def test_ctrl_c_counts_what_was_acknowledged(broker: LocalBroker) -> None:
    command = [sys.executable, "-m", "tools.cli", *PRODUCE, str(broker.store), "--topic", "stopped"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\ntwo\nthe third has no end yet")
        process.stdin.flush()
        await_that(lambda: process.poll() is not None or len(bodies(broker, "stopped")) == 2, "two lines", pause=0.05)
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
    reader = Lines(read, "a pipe", 1000).batches(10)
    for chunk in chunks:
        os.write(write, chunk)
        if b"\n" in chunk:
            found += next(reader)
    os.close(write)
    for rest in reader:
        found += rest
    os.close(read)
    assert found == [b"a", b"b", b"c"]
