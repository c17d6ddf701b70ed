"""What the machine and its processes say of themselves, in /proc and /sys: as texts of bounded length."""

from __future__ import annotations

import os
import platform
import stat
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import psutil

from ipc.descriptors import closing_fd

PART_BYTES_MAX = 1 << 20
FILES_MAX, DESCRIPTORS_MAX, PROCESSES_MAX = 20_000, 500, 100
PACKAGES = "slipstream-log numpy numba llvmlite uvloop pyspark pyarrow psutil click rich cryptography textual".split()
MACHINE_FILES = (
    "/proc/version", "/proc/uptime", "/proc/loadavg", "/proc/meminfo", "/proc/vmstat", "/proc/self/mountinfo",
    "/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory", "/proc/self/cgroup", "/proc/sys/vm/dirty_ratio",
    "/proc/sys/vm/dirty_background_ratio", "/proc/sys/vm/max_map_count", "/proc/sys/vm/swappiness",
    "/proc/sys/vm/overcommit_memory", "/proc/sys/fs/file-nr", "/proc/sys/net/core/somaxconn",
    "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/pids.max",
)  # fmt: skip
PROCESS_FILES = ("status", "stat", "limits", "io", "wchan", "cgroup", "smaps_rollup", "schedstat", "oom_score")


def read_part(path: Path, bytes_max: int = PART_BYTES_MAX, *, tail: bool = False) -> bytes:
    """A part of a plain file, and of no link: its beginning, or its end. Raises OSError."""
    with closing_fd(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)) as fd:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode):
            raise OSError(22, "it is not a regular file", str(path))
        if tail and state.st_size > bytes_max:
            os.lseek(fd, state.st_size - bytes_max, os.SEEK_SET)
        parts, left = [], bytes_max
        while left and (part := os.read(fd, left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


def versions() -> str:
    """Return the versions of Python and of the packages it loads."""
    lines = [f"python {sys.version}", f"platform {platform.platform()}"]
    for name in PACKAGES:
        try:
            lines.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            lines.append(f"{name} is not installed")
    return "\n".join(lines)


def machine(store: Path) -> str:
    """Processors, memory, pressure, limits, mounts, and room where the store lies."""
    texts = [f"processors {os.cpu_count()}, of which this process may use {len(os.sched_getaffinity(0))}"]
    model = [line for line in _text("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    texts += model[:1]
    for folder in (store, Path("/dev/shm"), Path("/tmp")):
        try:
            room = os.statvfs(folder)
        except OSError as error:
            texts.append(f"{folder}: {error.strerror}")
            continue
        sizes = f"{room.f_blocks * room.f_frsize} bytes, {room.f_bavail * room.f_frsize} free"
        texts.append(f"{folder}: {sizes}, {room.f_files} files, {room.f_favail} free, device {os.stat(folder).st_dev}")
    return "\n".join([*texts, *(f"== {name}\n{_text(name)}" for name in MACHINE_FILES)])


def _text(name: str) -> str:
    try:
        return read_part(Path(name)).decode(errors="replace").rstrip()
    except OSError as error:
        return f"({error.strerror})"


def processes(pid: int) -> Iterator[tuple[str, str]]:
    """(role, facts) of a broker's processes."""
    try:
        supervisor = psutil.Process(pid)
        all_of_it = [supervisor, *supervisor.children(recursive=True)][:PROCESSES_MAX]
    except psutil.Error:
        return
    for one in all_of_it:
        folder = Path(f"/proc/{one.pid}")
        name = _text(f"{folder}/comm").removeprefix("slip:") if one.pid != pid else "supervisor"
        texts = [f"began {_when(one.create_time())}" if one.is_running() else "has ended"]
        texts += [f"== {each}\n{_text(f'{folder}/{each}')}" for each in PROCESS_FILES]
        texts.append(f"== fd\n{_descriptors(folder)}")
        plain = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
        yield f"{plain}-{one.pid}", "\n".join(texts)


def _descriptors(folder: Path) -> str:
    try:
        names = sorted(os.listdir(folder / "fd"), key=int)
    except (OSError, ValueError) as error:
        return f"({getattr(error, 'strerror', error)})"
    lines = [f"{len(names)} are open"]
    for name in names[:DESCRIPTORS_MAX]:
        try:
            lines.append(f"{name} {os.readlink(folder / 'fd' / name)}")
        except OSError:
            continue
    return "\n".join(lines)


def listing(root: Path) -> tuple[str, list[str]]:
    """Return a list of every file below, and what could not be read.

    Of each: kind, rights, owner, size, what of it is allocated, time, name.
    """
    lines, unread = ["mode uid gid bytes allocated modified name"], list[str]()

    def note(error: OSError) -> None:
        unread.append(f"{error.filename}: {error.strerror}")

    for folder, folders, files in os.walk(root, onerror=note):
        folders.sort()
        for name in sorted([*folders, *files]):
            path = Path(folder, name)
            if len(lines) > FILES_MAX:
                return "\n".join([*lines, f"(and more: {FILES_MAX} are listed)"]), unread
            try:
                state = os.lstat(path)
            except OSError as error:
                note(error)
                continue
            whose = f"{stat.filemode(state.st_mode)} {state.st_uid} {state.st_gid}"
            sizes = f"{state.st_size} {state.st_blocks * 512} {_when(state.st_mtime)}"
            lines.append(ascii(f"{whose} {sizes} {path.relative_to(root)}")[1:-1])
    return "\n".join(lines), unread


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
