"""`slipstream admin`: from its start to its answer, asked of a Slipstream name server and broker on this machine."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ipc.module_names import named
from tools.common.local_broker import LocalBroker, end, free_port
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.figures import Results

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
        end(process, STOP_SECONDS)


def _ask(command: str, name_server: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Milliseconds from the start of the process to its end, and what it said."""
    program = Path(sys.executable).with_name("slipstream")
    start = [str(program)] if program.exists() else [sys.executable, "-m", named("tools.cli")]
    began = time.perf_counter()
    done = subprocess.run([*start, "admin", command, "-n", name_server], capture_output=True, text=True, check=False)
    return (time.perf_counter() - began) * 1000, done


def measure(of: Asked, to: Results) -> None:
    """Medians of some runs of each command, once the broker is in the name server's list."""
    home = of.scratch / "admin"
    home.mkdir(parents=True)
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
            for _ in range(RUNS_EACH * of.repeat):
                milliseconds, done = _ask(command, address)
                if done.returncode:
                    raise RuntimeError(f"slipstream admin {command} failed:\n{done.stderr[-500:]}")
                taken.append(milliseconds)
            median, work = statistics.median(taken), f"slipstream admin {command}, start to end"
            to.figure(work, "slipstream", median, "ms", max(taken), "in the p99 column: the slowest")
            to.at_most(work, median, GOAL_MS, f"{GOAL_MS:.0f} ms")
    shutil.rmtree(home)
