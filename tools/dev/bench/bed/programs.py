"""Programs that load a broker, each in a process of its own: it says `ready`, works once it is told to, and reports.

Its standard output has the line `ready`, then a line of JSON; it begins when it reads a line.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

TIMEOUT_SECONDS = 300.0


@contextmanager
def program(command: Sequence[str], ready: str = "ready") -> Iterator[subprocess.Popen[str]]:
    """Start a program and wait for the line that says it is ready; kill it at the end unless it has ended.

    Raises RuntimeError if it does not get ready.
    """
    with programs([command], ready) as (process,):
        yield process


@contextmanager
def programs(commands: Iterable[Sequence[str]], ready: str = "ready") -> Iterator[list[subprocess.Popen[str]]]:
    """The same for programs of which each may need the others to get ready."""
    processes: list[subprocess.Popen[str]] = []
    try:
        for command in commands:
            processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline().strip() != ready:
                raise RuntimeError(f"{process.args!r} did not get ready; see its error above")
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def begin(process: subprocess.Popen[str]) -> None:
    """Tell a program that is ready to begin."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def report_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for a program's end, and return its report. Raises RuntimeError if it failed."""
    said = process.communicate(timeout=TIMEOUT_SECONDS)[0]
    if process.returncode:
        raise RuntimeError(f"{process.args!r} ended with {process.returncode}; see its error above")
    report: dict[str, Any] = json.loads(said)
    return report
