"""Producers and consumers that speak remoting: programs in C, compiled when needed, which cost the machine little."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tools.dev.bench.bed.programs import TIMEOUT_SECONDS, begin, program, report_of

SENDS, PULLS = (Path(__file__).with_name(f"{name}_load.c") for name in ("send", "pull"))
LOOPBACK, QUEUES = "127.0.0.1", 4
Clock = Callable[[], float]  # of the CPU time that a broker has used


class NoCompiler(Exception):
    """Raised where no C compiler is at hand for a load's program."""

    def __init__(self) -> None:
        super().__init__("there is no C compiler (cc), so nothing is measured")


class Sending(NamedTuple):
    """The settings of what is sent: `batch` 0: one message a request; `level` 0: nothing is delayed."""

    connections: int
    in_flight: int
    size: int
    batch: int = 0
    form: str = "json"
    level: int = 0

    def __str__(self) -> str:
        load = f"{self.connections} x {self.in_flight}, {self.size} B"
        return load + (f", batches of {self.batch}" if self.batch else "") + (", binary" if self.form != "json" else "")


class Sent(NamedTuple):
    """The cost of sending: `cpu_us` of all of the broker's processes, a message."""

    cpu_us: float
    per_second: float
    p50_us: float
    p99_us: float


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


def no_clock() -> float:
    """Stand for the clock of a broker whose CPU time does not matter."""
    return 0.0


def compiled(directory: Path, source: Path = SENDS) -> Path:
    """Compile the program if needed, and return its path. Raises NoCompiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoCompiler
    made = directory / source.stem
    if not made.exists():
        command = [compiler, "-O2", "-D_GNU_SOURCE", "-o", str(made), str(source)]
        subprocess.run(command, check=True, timeout=TIMEOUT_SECONDS)
    return made


def send(
    path: Path, port: int, sending: Sending, topic: str, warm: int, messages: int, cpu_seconds: Clock = no_clock
) -> Sent:
    """Have it send; the broker's clock of CPU time is read around what is measured. Raises RuntimeError."""
    of = sending
    words = (of.connections, of.in_flight, of.size, of.batch, of.form, QUEUES, of.level, topic, warm, messages)
    report, spent = _worked(program([str(path), LOOPBACK, str(port), *map(str, words)]), cpu_seconds)
    sent = report["messages"]
    return Sent(spent / sent * 1e6, sent / report["seconds"], report["p50_us"], report["p99_us"])


def read_backlog(path: Path, port: int, topic: str, cpu_seconds: Clock) -> Pulled:
    """Read every queue from its beginning to its end."""
    report, spent = _worked(_consumer(path, port, topic, "backlog"), cpu_seconds)
    messages, seconds = report["messages"], report["seconds"]
    return Pulled(spent / messages * 1e6, messages / seconds, report["bytes"] / seconds / 2**20)


def push(path: Path, port: int, topic: str, messages: int, interval_us: int, cpu_seconds: Clock) -> Pushed:
    """Send one message each `interval_us`, and follow them."""
    consumer = _consumer(path, port, topic, "push", str(messages), str(interval_us))
    report, spent = _worked(consumer, cpu_seconds)
    return Pushed(spent / messages * 1e6, report["p50_us"], report["p99_us"])


@contextmanager
def following(path: Path, port: int, topic: str) -> Iterator[None]:
    """A consumer in step, as long as the context lasts."""
    with _consumer(path, port, topic, "follow") as process:
        begin(process)
        yield
        process.communicate("end\n", timeout=TIMEOUT_SECONDS)
        if process.returncode:
            raise RuntimeError("the consumer in step ended in the middle; see its error above")


def _consumer(
    path: Path, port: int, topic: str, mode: str, *more: str
) -> AbstractContextManager[subprocess.Popen[str]]:
    return program([str(path), LOOPBACK, str(port), topic, str(QUEUES), mode, *more])


def _worked(load: AbstractContextManager[subprocess.Popen[str]], cpu_seconds: Clock) -> tuple[dict[str, Any], float]:
    """Return the program's report, and the CPU seconds that the broker spent meanwhile. Raises RuntimeError."""
    with load as process:
        began = cpu_seconds()
        begin(process)
        report = report_of(process)
        spent = cpu_seconds() - began
    if report["failed"]:
        raise RuntimeError(f"{report['failed']} sends failed; see the first answer above")
    return report, spent
