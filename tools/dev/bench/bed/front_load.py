"""Producers that speak remoting: a program in C, compiled when it is needed, which costs the machine almost nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

SENDS = Path(__file__).with_name("send_load.c")
TIMEOUT_SECONDS = 240.0
QUEUES = 4


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


def compiled(directory: Path, source: Path = SENDS) -> Path:
    """Compile the program if needed, and return its path. Raises NoCompiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoCompiler
    program = directory / source.stem
    if not program.exists():
        command = [compiler, "-O2", "-D_GNU_SOURCE", "-o", str(program), str(source)]
        subprocess.run(command, check=True, timeout=TIMEOUT_SECONDS)
    return program


def send(
    program: Path, port: int, sending: Sending, topic: str, warm: int, messages: int, cpu_seconds: Callable[[], float]
) -> Sent:
    """Have it send; the broker's clock of CPU time is read around what is measured. Raises RuntimeError."""
    command = [
        str(program), "127.0.0.1", str(port), str(sending.connections), str(sending.in_flight), str(sending.size),
        str(sending.batch), sending.form, str(QUEUES), str(sending.level), topic, str(warm), str(messages),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdin is not None and process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{' '.join(command)} did not get ready; see its error above")
        began = cpu_seconds()
        report: dict[str, Any] = json.loads(process.communicate("go\n", timeout=TIMEOUT_SECONDS)[0])
        spent = cpu_seconds() - began
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if report["failed"]:
        raise RuntimeError(f"{report['failed']} of {report['requests']} sends failed; see the first answer above")
    sent = report["messages"]
    return Sent(spent / sent * 1e6, sent / report["seconds"], report["p50_us"], report["p99_us"])
