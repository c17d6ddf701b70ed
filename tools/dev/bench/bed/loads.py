"""Producer processes of a measurement, started together: what they took, from the first word to the last answer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from ipc.module_names import named
from tools.dev.bench.bed.programs import begin, program, report_of


class Load(NamedTuple):
    """`seconds` from the earliest beginning to the latest end; `producers` as each reported it."""

    seconds: float
    messages: int
    producers: list[dict[str, Any]]

    @property
    def messages_per_second(self) -> float:
        """Return messages a second, of all producers together."""
        return self.messages / self.seconds


def load_command(store: Path, work: str, size: int, messages: int) -> list[str]:
    """Return the command of a producer process."""
    asked = ["--work", work, "--size", str(size), "--messages", str(messages)]
    return [sys.executable, "-m", named("tools.dev.bench.bed.load"), str(store), *asked]


def run_load(
    store: Path,
    work: str,
    size: int,
    messages: int,
    producers: int = 1,
    cpus: str = "",
    clock: Callable[[], float] = lambda: 0.0,
) -> Load:
    """Let `producers` processes append `messages` together, bodies of `size` bytes. Raises RuntimeError.

    `clock` is called when all of them are ready, and when all have ended.
    """
    each = messages // producers
    command = [*(["taskset", "-c", cpus] if cpus else []), *load_command(store, work, size, each)]
    with ExitStack() as stack:
        processes = [stack.enter_context(program([*command, "--topic", f"bench-{k}"])) for k in range(producers)]
        clock()
        for process in processes:
            begin(process)
        reports = [report_of(process) for process in processes]
        clock()
    began = min(line["began_ns"] for line in reports)
    ended = max(line["ended_ns"] for line in reports)
    return Load((ended - began) / 1e9, each * producers, reports)
