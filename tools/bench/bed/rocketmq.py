"""RocketMQ's own figures, from the program that starts and loads it: `measure.py send|catchup`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

TIMEOUT_SECONDS = 300.0


def _run(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, str(folder / "measure.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-1000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def sync_send(folder: Path) -> tuple[float, float]:
    """Microseconds (p50, p99) of a synchronous send of 1 KB to a SYNC_MASTER 4.9 with one slave."""
    report = _run(
        folder,
        "send",
        "--version",
        "4.9",
        "--role",
        "SYNC_MASTER",
        "--slaves",
        "1",
        "--threads",
        "1",
        "--sizes",
        "1024",
    )[0]
    return float(report["us_p50"]), float(report["us_p99"])


class CaughtUp(NamedTuple):
    """What it took an empty 4.9 slave to catch up with its master."""

    mib_per_s: float
    mib: float
    master_cpu_s: float
    slave_cpu_s: float


def catch_up(folder: Path) -> CaughtUp:
    """A slave that starts beside a master with about a gibibyte in one segment."""
    report = _run(folder, "catchup", "--version", "4.9", "--gib", "1.0")[0]
    return CaughtUp(*(float(report[field]) for field in CaughtUp._fields))
