"""Who a process is: its pid and the moment it began, which together are never used twice."""

from __future__ import annotations

from pathlib import Path


def start_time(pid: int) -> int | None:
    """Clock ticks between boot and the start of `pid` (field 22 of /proc/PID/stat); None: no such process.

    A zombie counts as gone: it runs nothing and owns nothing.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def is_alive(pid: int, started: int) -> bool:
    """Whether the very process that had `pid` and began at `started` still runs."""
    return start_time(pid) == started


def boot_id() -> str:
    """A text that is another one each time the machine (or its container's host) starts."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
