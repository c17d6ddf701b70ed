"""Producer processes of a measurement, started together: what they took, from the first word to the last answer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ipc.module_names import named

TIMEOUT_SECONDS = 300.0


class Load(NamedTuple):
    """`seconds` from the earliest beginning to the latest end; `producers` as each reported it."""

    seconds: float
    messages: int
    producers: list[dict[str, Any]]

    @property
    def messages_per_second(self) -> float:
        """Return messages a second, of all producers together."""
        return self.messages / self.seconds


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
    command = [*(["taskset", "-c", cpus] if cpus else []), sys.executable, "-m", named("tools.dev.bench.bed.load")]
    command += [str(store), "--work", work, "--size", str(size), "--messages", str(each)]
    processes = [
        subprocess.Popen([*command, "--topic", f"bench-{k}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for k in range(producers)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError("a producer of the measurement did not get ready; see its error above")
        clock()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        reports = [json.loads(process.communicate(timeout=TIMEOUT_SECONDS)[0]) for process in processes]
        clock()
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    began = min(line["began_ns"] for line in reports)
    ended = max(line["ended_ns"] for line in reports)
    return Load((ended - began) / 1e9, each * producers, reports)
