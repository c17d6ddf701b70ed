"""Starts the brokers of tests by fork, in a process that has loaded their code: most of a start's time is loading.

A broker that is started so runs the same command line in a process of its own. What differs from the worker in which a
test runs (its environment, limits, namespaces, ...) is given to it by `subprocess` only, so then that starts it.
"""

from __future__ import annotations

import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from tools.common import local_broker

MESSAGE_BYTES_MAX, FDS = 256 * 1024, 2
ANSWER_SECONDS = 900.0  # a first fork waits until all is loaded, or even compiled
COMMAND = (sys.executable, "-m", "tools.cli")
BYTES = 4
ROOT = Path(__file__).resolve().parents[2]
# What a session of Spark and commands that tests run in their own process set there for good. A broker reads none of
# it, but the last, which `slipstream broker` sets itself, the nursery too.
NOT_A_BROKERS = re.compile(
    "PYTEST_|SPARK_|PYSPARK_|PYTHONPATH|NO_PROXY|no_proxy|JAVA_HOME|GRPC_VERBOSITY|NO_MKDOCS_2_WARNING"
    "|OPENBLAS_NUM_THREADS"
)
LIMITS = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))


def inherited() -> dict[str, Any]:
    """What a process gets from the one that starts it, but for descriptors and the current directory."""
    with open("/proc/self/status") as status:
        umask = next(line for line in status if line.startswith("Umask"))
    with open("/proc/self/cgroup") as file:
        cgroup = file.read()
    return {
        "environment": {name: value for name, value in os.environ.items() if not NOT_A_BROKERS.match(name)},
        "limits": [resource.getrlimit(getattr(resource, name)) for name in LIMITS],
        "who": [umask, os.getresuid(), os.getresgid(), os.getgroups(), os.nice(0), sorted(os.sched_getaffinity(0))],
        "namespaces": [os.readlink(f"/proc/self/ns/{name}") for name in sorted(os.listdir("/proc/self/ns"))],
        "root": os.readlink("/proc/self/root"),
        "cgroup": cgroup,
        "signals": [
            sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            [number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN],
        ],
    }


class ForkedProcess:
    """Implements: local_broker.Process, for a process that is a child of the nursery's."""

    def __init__(self, status: int, args: Sequence[str]) -> None:
        self._status, self.args = status, args
        self.returncode: int | None = None
        self.pid = self._number(ANSWER_SECONDS)
        if not self.pid:
            raise OSError("the process that forks brokers could not")

    def _number(self, seconds: float | None) -> int:
        """Return the next number that the nursery says. Raises TimeoutExpired."""
        waiting = select.poll()
        waiting.register(self._status, select.POLLIN)
        if not waiting.poll(None if seconds is None else seconds * 1000):
            raise subprocess.TimeoutExpired(self.args, seconds or 0.0)
        if len(said := os.read(self._status, BYTES)) < BYTES:
            raise OSError("the process that forks brokers has ended")
        return int.from_bytes(said, signed=True)

    def poll(self) -> int | None:
        """As subprocess.Popen does."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """As subprocess.Popen does."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(self._number(timeout))
            os.close(self._status)
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """As subprocess.Popen does."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        """As subprocess.Popen does."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """As subprocess.Popen does."""
        self.send_signal(signal.SIGKILL)


class Nursery:
    """The process that forks, as its user sees it. It ends when its user does."""

    def __init__(self) -> None:
        self.inherited = inherited()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.harness.nursery", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
            )

    def fork(self, command: Sequence[str], log: IO[bytes]) -> ForkedProcess:
        """Start a broker's command line."""
        ours, theirs = os.pipe()
        try:
            words = json.dumps({"arguments": command[len(COMMAND) :], "cwd": os.getcwd()}).encode()
            socket.send_fds(self._socket, [words], [log.fileno(), theirs])
        finally:
            os.close(theirs)
        return ForkedProcess(ours, command)


_nursery: Nursery | None = None


def start(command: Sequence[str], log: IO[bytes]) -> local_broker.Process:
    """Start a process that writes to `log` and reads nothing: by fork, where that comes to the same."""
    global _nursery
    if tuple(command[: len(COMMAND)]) != COMMAND:
        return local_broker.start(command, log)
    _nursery = _nursery or Nursery()
    if inherited() != _nursery.inherited:
        return local_broker.start(command, log)
    sys.audit("subprocess.Popen", command[0], command, None, None)
    return _nursery.fork(command, log)
