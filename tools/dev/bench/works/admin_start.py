"""`slipstream admin`: from its start to its answer, asked of a Slipstream name server and broker on this machine."""

from __future__ import annotations

import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ipc.module_names import named
from tools.common.local_broker import LocalBroker, free_port
from tools.dev.bench.bed.figures import Figure, Ratio

RUNS_EACH, GOAL_MS = 10, 150.0
COMMANDS = ("clusterList", "topicList")
STOP_SECONDS, READY_TRIES, READY_SECONDS = 10.0, 100, 0.1


@contextmanager
def _name_server(directory: Path, port: int) -> Iterator[str]:
    command = [sys.executable, "-m", named("tools.cli"), "namesrv", "--port", str(port), "--directory", str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_SECONDS)


def _ask(command: str, name_server: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Milliseconds from the start of the process to its end, and what it said."""
    program = Path(sys.executable).with_name("slipstream")
    start = [str(program)] if program.exists() else [sys.executable, "-m", named("tools.cli")]
    began = time.perf_counter()
    done = subprocess.run([*start, "admin", command, "-n", name_server], capture_output=True, text=True, check=False)
    return (time.perf_counter() - began) * 1000, done


def measure(directory: Path, repeat: int) -> tuple[list[Figure], list[Ratio]]:
    """Medians of some runs of each command, once the broker is in the name server's list."""
    home = directory / "admin"
    home.mkdir(parents=True)
    figures, ratios = [], []
    with (
        _name_server(home, free_port()) as address,
        LocalBroker(home, brokerRole="ASYNC_MASTER", namesrvAddr=address),
    ):
        for _ in range(READY_TRIES):
            if home.name in _ask("clusterList", address)[1].stdout:
                break
            time.sleep(READY_SECONDS)
        for command in COMMANDS:
            taken = []
            for _ in range(RUNS_EACH * repeat):
                milliseconds, done = _ask(command, address)
                if done.returncode:
                    raise RuntimeError(f"slipstream admin {command} failed:\n{done.stderr[-500:]}")
                taken.append(milliseconds)
            median, work = statistics.median(taken), f"slipstream admin {command}, start to end"
            figures.append(Figure(work, "slipstream", median, "ms", max(taken), "in the p99 column: the slowest"))
            ratios.append(Ratio(work, median, GOAL_MS, f"{GOAL_MS:.0f} ms", 1.0, more_is_better=False))
    shutil.rmtree(home)
    return figures, ratios
