"""What this machine is doing right now, as JSON messages: the input of the demonstration. Only psutil is asked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import psutil

PROCESS_FIELDS = ["pid", "ppid", "name", "username", "status", "cpu_percent", "memory_info", "num_threads", "cpu_times"]


def _message(fields: dict[str, Any]) -> bytes:
    return json.dumps({"timestamp_ms": time.time_ns() // 1_000_000, **fields}, separators=(",", ":")).encode()


def processes() -> list[bytes]:
    """The process table, a message for each process."""
    rows = []
    for process in psutil.process_iter(PROCESS_FIELDS):
        info = process.info
        memory, times = info.pop("memory_info"), info.pop("cpu_times")
        info["rss_bytes"] = memory.rss if memory else 0
        info["cpu_seconds"] = round(times.user + times.system, 2) if times else 0.0
        rows.append(_message(info))
    return rows


def cpu() -> list[bytes]:
    """The times of every CPU, in seconds since the start of the machine."""
    return [_message({"cpu": n, **times._asdict()}) for n, times in enumerate(psutil.cpu_times(percpu=True))]


def memory() -> list[bytes]:
    """Memory and swap, in bytes."""
    return [_message({"memory": psutil.virtual_memory()._asdict(), "swap": psutil.swap_memory()._asdict()})]


def disk() -> list[bytes]:
    """Return the counters of every disk."""
    return [_message({"disk": name, **io._asdict()}) for name, io in psutil.disk_io_counters(perdisk=True).items()]


def network() -> list[bytes]:
    """Return the counters of every network interface."""
    return [_message({"interface": name, **io._asdict()}) for name, io in psutil.net_io_counters(pernic=True).items()]


SAMPLERS: dict[str, Callable[[], list[bytes]]] = {
    "host-process": processes,
    "host-cpu": cpu,
    "host-memory": memory,
    "host-disk": disk,
    "host-network": network,
}
