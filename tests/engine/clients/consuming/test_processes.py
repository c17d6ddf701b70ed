"""Consumers that run their handler in processes: killed ones are replaced, all end together, and nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.clients.consuming.consumer import Consumer
from engine.clients.consuming.processes import ENDS_MAX
from engine.clients.loop_thread import ClientClosed
from engine.clients.names import ClientError
from engine.producer import Producer
from ipc.process import start_time
from tests.harness.conditions import SECONDS, await_that
from tools.common.local_broker import LocalBroker

QUEUES, MESSAGES = 4, 160
SIZES: dict[str, Any] = {
    "mappedFileSizeCommitLog": 1 << 20, "messageDelayLevel": "1s " * 17 + "1s",
    "brokerFastFailureEnable": "false", "osPageCacheBusyTimeOutMills": 600_000,
}  # fmt: skip
PROGRAM = """
import logging, os, sys
from engine.clients.consuming import processes
from engine.clients.consuming.consumer import Consumer

logging.basicConfig(filename=sys.argv[4], format="%(message)s")
processes.FIRST_PAUSE_SECONDS = float(sys.argv[5])
where, topic, seen = sys.argv[1:4]
at = {"where": where} if os.sep in where else {"where": None, "broker": where}
consumer = Consumer(group=topic, topics=iter([topic]), consume_from="first", timeout=120.0, **at)
file = os.open(seen, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def handle(message):
    if message.text == "0" and not message.reconsume_times:
        raise ValueError("not yet")
    os.write(file, f"{os.getpid()} {message.text}\\n".encode())

consumer.run(handler=handle, workers=2, processes=2)
"""


class Program:
    """A program with two processes, and the lines that its handler and its log wrote."""

    def __init__(self, folder: Path, where: object, topic: str, pause: float = 0.05) -> None:
        self._seen, self._log = folder / "seen", folder / "log"
        command = [sys.executable, "-c", PROGRAM, str(where), topic, str(self._seen), str(self._log), str(pause)]
        with (folder / "errors").open("w") as errors:
            self.process = subprocess.Popen(command, start_new_session=True, stderr=errors)
        self._folder = folder

    @property
    def lines(self) -> list[tuple[int, str]]:
        """The process and the text of each message that was handled."""
        text = self._seen.read_text() if self._seen.exists() else ""
        return [(int(pid), body) for pid, body in (line.split() for line in text.splitlines())]

    @property
    def pids(self) -> set[int]:
        """The processes that handled a message, and run."""
        return {pid for pid, _body in self.lines if start_time(pid) is not None}

    @property
    def bodies(self) -> set[str]:
        return {body for _pid, body in self.lines}

    def ended(self) -> tuple[int, str]:
        """Wait for its end; its exit code, and what it wrote on standard error."""
        return self.process.wait(SECONDS), (self._folder / "errors").read_text()

    @property
    def log(self) -> str:
        return self._log.read_text()


@contextmanager
def running(folder: Path, where: object, topic: str, pause: float = 0.05) -> Iterator[Program]:
    program = Program(folder, where, topic, pause)
    try:
        yield program
    finally:
        if program.process.poll() is None:
            os.killpg(program.process.pid, signal.SIGKILL)
        program.process.wait()


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("processes") / "b", compat="5", **SIZES) as broker:
        yield broker


@pytest.fixture(params=["local", "wire"])
def where(request: pytest.FixtureRequest, started: LocalBroker) -> object:
    return started.store if request.param == "local" else f"127.0.0.1:{started.port}"


def send(broker: LocalBroker, topic: str, numbers: range) -> None:
    with Producer(broker.store, timeout=120.0) as producer:
        for number in numbers:
            producer.send(topic, str(number), queue_id=number % QUEUES)


def await_both(broker: LocalBroker, topic: str, program: Program) -> None:
    """Send until both processes have handled a message: one that starts first can handle all that is there."""
    count = iter(range(MESSAGES, 1_000_000))

    def both_work() -> bool:
        send(broker, topic, range(first := next(count) * QUEUES, first + QUEUES))
        return len(program.pids) == 2

    await_that(both_work, "both processes handle messages")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_nothing_is_lost_with_processes_that_are_killed(
    number: signal.Signals, started: LocalBroker, where: object, tmp_path: Path
) -> None:
    topic = f"killed{number}_{'local' if where == started.store else 'wire'}"
    send(started, topic, range(MESSAGES // 2))
    with running(tmp_path, where, topic) as program:
        await_that(lambda: program.bodies and program.pids, "messages are handled")
        killed = min(program.pids)
        os.kill(killed, signal.SIGKILL)
        send(started, topic, range(MESSAGES // 2, MESSAGES))
        await_that(lambda: program.bodies == {str(one) for one in range(MESSAGES)}, "each message is handled")
        await_that(
            lambda: f"process {killed} of group {topic} ended with exit code -9" in program.log, "it is reported"
        )
        await_both(started, topic, program)
        assert "its handler failed; it is delivered again" in program.log
        pids = program.pids
        if number == signal.SIGINT:  # as a terminal does it
            os.killpg(program.process.pid, number)
        else:
            program.process.send_signal(number)
        assert program.ended() == (0, "")
        assert not [pid for pid in pids if start_time(pid) is not None]


def test_processes_end_when_their_parent_is_killed(started: LocalBroker, where: object, tmp_path: Path) -> None:
    topic = f"orphans_{'local' if where == started.store else 'wire'}"
    send(started, topic, range(1))
    with running(tmp_path, where, topic) as program:
        await_both(started, topic, program)
        pids = program.pids
        program.process.kill()
        program.process.wait()
        await_that(lambda: not [pid for pid in pids if start_time(pid) is not None], "its processes end")


def test_a_process_that_fails_at_each_start_ends_the_program(tmp_path: Path) -> None:
    with running(tmp_path, "127.0.0.1:1", "nowhere", pause=0.0) as program:
        code, errors = program.ended()
        assert (
            code == 1 and f"ended with exit code 1, the last of {ENDS_MAX} that ended soon after their start" in errors
        )
        assert program.log.count("PEER_UNREACHABLE") >= ENDS_MAX and "starting another one" in program.log


def test_what_cannot_run_in_processes_is_refused_by_name(started: LocalBroker) -> None:
    def consumer(**options: Any) -> Consumer:
        return Consumer(None, "g", "t", broker=f"127.0.0.1:{started.port}", timeout=120.0, **options)

    for options, count, text in (
        ({}, 0, "processes=0"), ({"broadcasts": True}, 2, "exclude broadcasts"), ({"instance": "a"}, 2, "and instance"),
    ):  # fmt: skip
        one = consumer(**options)
        with pytest.raises(ClientError, match=text):
            one.run(print, processes=count)
        one.close()
    send(started, "t", range(1))
    with consumer() as member, pytest.raises(ClientError, match="no member yet"):
        member.run(print, processes=2)
    ended = consumer()
    ended.stop()
    ended.run(print, processes=2)
    with pytest.raises(ClientClosed):
        ended.run(print, processes=2)
