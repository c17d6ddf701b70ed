"""Leases: who still reads the log from some offset on, so that retention waits for it.

A lease is a small file in `slipstream.leases` below the store's root, made by the reader, named by its maker and a
number. It holds while its process runs (pid and start time: the same machine and pid namespace) and has not expired.
Retention waits destroyMapedFileIntervalForcibly for it at most: who reads must be ready to be told that a file went.
A lease never blocks the broker: one that cannot be read holds nothing, stays where it is, and is reported.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from ipc.process import is_alive, start_time
from store import file_io
from store.directory import LEASES_NAME

LEASE_BYTES_MAX = 1024
LEASES_MAX = 10_000  # looked at; more are reported

_numbers = itertools.count()


class Held(NamedTuple):
    """What the leases of a store come to: the lowest offset needed (None: nobody needs any), and what was odd."""

    from_offset: int | None
    findings: list[str]


@dataclass(slots=True)
class Lease:
    """One reader's hold on the log from `low_offset` on. A context manager: `release` at its end."""

    path: Path
    low_offset: int
    ttl_ms: int
    owner_pid: int

    def renew(self, low_offset: int | None = None, now_ms: int | None = None) -> None:
        """Hold on for another `ttl_ms`, from `low_offset` on if that has moved."""
        self.low_offset = self.low_offset if low_offset is None else low_offset
        expires_ms = (_now_ms() if now_ms is None else now_ms) + self.ttl_ms
        pid, started = self.owner_pid, start_time(self.owner_pid)
        fields = {"pid": pid, "start_time": started, "low_offset": self.low_offset, "expires_ms": expires_ms}
        self.path.parent.mkdir(exist_ok=True)
        file_io.replace_file(self.path, json.dumps(fields).encode("ascii"))

    def release(self) -> None:
        """Nothing is needed any more."""
        file_io.unlink(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.release()


def acquire(
    root: Path | str, low_offset: int, ttl_ms: int, now_ms: int | None = None, owner_pid: int | None = None
) -> Lease:
    """Hold the log of the store at `root` from `low_offset` on, for `ttl_ms` at most unless renewed.

    It ends with this process, or with the one that it is taken for.
    """
    pid = os.getpid()
    name = f"{pid}-{start_time(pid)}-{next(_numbers)}"
    lease = Lease(Path(root) / LEASES_NAME / name, low_offset, ttl_ms, owner_pid or pid)
    lease.renew(now_ms=now_ms)
    return lease


def held_from(root: Path | str, now_ms: int) -> int | None:
    """The lowest offset that some living reader needs; None without one."""
    return look(root, now_ms).from_offset


def look(root: Path | str, now_ms: int) -> Held:
    """All leases of a store; those of dead processes, and expired ones, are removed."""
    directory = Path(root) / LEASES_NAME
    lowest: int | None = None
    findings: list[str] = []
    try:
        with os.scandir(directory) as entries:
            paths = [Path(entry.path) for entry in itertools.islice(entries, LEASES_MAX + 1)]
    except FileNotFoundError:
        return Held(None, [])
    if len(paths) > LEASES_MAX:
        findings.append(f"{directory}: more than {LEASES_MAX} files; those behind are not looked at, remove them")
    for path in paths[:LEASES_MAX]:
        low_offset = _valid(path, now_ms, findings)
        if low_offset is not None and (lowest is None or low_offset < lowest):
            lowest = low_offset
    return Held(lowest, findings)


def _valid(path: Path, now_ms: int, findings: list[str]) -> int | None:
    """The offset that this file holds; None, and the file is removed, when it holds nothing any more."""
    if path.name.endswith(file_io.CREATING_SUFFIX):
        owner = path.name.partition("-")[0]
        if owner.isdecimal() and start_time(int(owner)) is None:
            file_io.unlink(path)
        return None
    try:
        with open(path, "rb") as file:
            text = file.read(LEASE_BYTES_MAX + 1)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):  # released meanwhile
            findings.append(f"{path}: cannot be read ({error.strerror}); it holds nothing, remove it")
        return None
    try:
        fields = json.loads(text)
        values = [fields[name] for name in ("pid", "start_time", "low_offset", "expires_ms")]
        if not all(type(value) is int for value in values):
            raise ValueError("not whole numbers")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        findings.append(f"{path}: not a lease ({error!r}); it holds nothing, remove it")
        return None
    pid, started, low_offset, expires_ms = values
    if now_ms < expires_ms and 0 < pid < 1 << 31 and is_alive(pid, started):
        return int(low_offset)
    file_io.unlink(path)
    return None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
