"""The newest figures of each work, and of which machine they are: docs/benchmarks.json, which the site shows."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from ipc.module_names import DISTRIBUTION
from tools.dev.bench.bed.figures import Results

FORM = 1
GIB = 1 << 30
ROTATIONAL = "/sys/dev/block/{major}:{minor}/queue/rotational"


def machine(directory: Path) -> dict[str, Any]:
    """Return what the machine is, by kind: no name of a host, a person or a product."""
    return {
        "cpus": os.cpu_count(),
        "architecture": platform.machine(),
        "memory_gib": round(psutil.virtual_memory().total / GIB),
        "kernel": ".".join(platform.release().split(".")[:2]),
        "python": platform.python_version(),
        "disk": disk_kind(directory),
        "virtual": "hypervisor" in Path("/proc/cpuinfo").read_text(),
    }


def disk_kind(directory: Path) -> str:
    """File system, and what the kernel says of the device below it."""
    mounts = [part for part in psutil.disk_partitions(all=True) if directory.resolve().is_relative_to(part.mountpoint)]
    system = max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else "unknown"
    device = os.stat(directory).st_dev
    try:
        spins = Path(ROTATIONAL.format(major=os.major(device), minor=os.minor(device))).read_text().strip()
    except OSError:
        return system
    return f"{system}, {'the kernel takes it for a spinning disk' if spins == '1' else 'no spinning disk'}"


def load() -> float:
    """Return how many processes want a CPU, in the mean of the last minute."""
    return round(os.getloadavg()[0], 1)


def entry(work: str, measured: Results, where: dict[str, Any], loads: Sequence[float], repeat: int) -> dict[str, Any]:
    """Return one measurement's entry for docs/benchmarks.json."""
    return {
        "work": work,
        "at": datetime.now(UTC).strftime("%Y-%m-%d"),
        "version": version(DISTRIBUTION),
        "machine": where,
        "load_before": loads[0],
        "load_after": loads[-1],
        "runs": repeat,
        "figures": [asdict(figure) for figure in measured.figures],
        "ratios": [{**asdict(ratio), "value": ratio.value} for ratio in measured.ratios],
    }


def read(path: Path) -> list[dict[str, Any]]:
    """The entries that are there, by work."""
    if not path.exists():
        return []
    kept: dict[str, Any] = json.loads(path.read_text())
    return list(kept["works"])


def keep(path: Path, entries: Sequence[dict[str, Any]]) -> None:
    """Put these in the place of older ones of the same works; the file is whole at any moment."""
    works = {one["work"]: one for one in [*read(path), *entries]}
    text = json.dumps({"form": FORM, "works": [works[name] for name in sorted(works)]}, indent=1)
    arriving = path.with_suffix(".arriving")
    arriving.write_text(f"{text}\n")
    arriving.replace(path)
