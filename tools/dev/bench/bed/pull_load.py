"""Consumers that speak remoting: a program in C, as that of the producers (`tools.dev.bench.bed.front_load`)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tools.dev.bench.bed.front_load import QUEUES, TIMEOUT_SECONDS

PULLS = Path(__file__).with_name("pull_load.c")


class Pulled(NamedTuple):
    """The cost of pulling: `cpu_us` of all of the broker's processes, a message."""

    cpu_us: float
    per_second: float
    mib_per_second: float


class Pushed(NamedTuple):
    """From a send to what a listener sees of it."""

    cpu_us: float
    p50_us: float
    p99_us: float


def _started(program: Path, port: int, topic: str, mode: str, *more: str) -> subprocess.Popen[str]:
    command = [str(program), "127.0.0.1", str(port), topic, str(QUEUES), mode, *more]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        process.kill()
        process.wait()
        raise RuntimeError(f"{' '.join(command)} did not get ready; see its error above")
    return process


def _worked(process: subprocess.Popen[str], cpu_seconds: Callable[[], float]) -> tuple[dict[str, Any], float]:
    """Return the program's report, and the CPU seconds that the broker spent meanwhile. Raises RuntimeError."""
    try:
        began = cpu_seconds()
        said = process.communicate("go\n", timeout=TIMEOUT_SECONDS)[0]
        spent = cpu_seconds() - began
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode:
        raise RuntimeError("the consumers ended in the middle; see their error above")
    report: dict[str, Any] = json.loads(said)
    if report["failed"]:
        raise RuntimeError(f"{report['failed']} sends failed")
    return report, spent


def read_backlog(program: Path, port: int, topic: str, cpu_seconds: Callable[[], float]) -> Pulled:
    """Read every queue from its beginning to its end."""
    report, spent = _worked(_started(program, port, topic, "backlog"), cpu_seconds)
    messages, seconds = report["messages"], report["seconds"]
    return Pulled(spent / messages * 1e6, messages / seconds, report["bytes"] / seconds / 2**20)


def push(
    program: Path, port: int, topic: str, messages: int, interval_us: int, cpu_seconds: Callable[[], float]
) -> Pushed:
    """Send one message each `interval_us`, and follow them."""
    process = _started(program, port, topic, "push", str(messages), str(interval_us))
    report, spent = _worked(process, cpu_seconds)
    return Pushed(spent / messages * 1e6, report["p50_us"], report["p99_us"])


@contextmanager
def following(program: Path, port: int, topic: str) -> Iterator[None]:
    """A consumer in step, as long as the context lasts."""
    process = _started(program, port, topic, "follow")
    assert process.stdin is not None
    try:
        process.stdin.write("go\n")
        process.stdin.flush()
        yield
        process.communicate("end\n", timeout=TIMEOUT_SECONDS)
        if process.returncode:
            raise RuntimeError("the consumer in step ended in the middle; see its error above")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
