"""Leases: who still reads the log from some offset on, so that retention waits for it.

A lease is a small file in `slipstream.leases` below the store's root, made by the reader, named by its maker and a
number. It holds in the folder that it was made for (a copied one holds nothing), until the machine starts again, while
its process runs and it has not expired. A process in another PID namespace, a container's, is asked by the file that it
holds; where another process than its maker's stands behind it, its end tells. Times are monotonic, this machine's.
Retention waits destroyMapedFileIntervalForcibly for it at most: a reader must be ready for SegmentRemoved.
A lease never blocks the broker: one that cannot be read holds nothing, stays where it is, and is reported.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from ipc.clock import monotonic_ms, wall_ms
from ipc.process import boot_id, is_alive, is_hidden, namespace, start_time
from store.files import file_io, small_files
from store.files.place import Place
from store.names import LEASES

LEASE_BYTES_MAX = 1024
LEASES_MAX = 10_000  # looked at; more are reported
LEFT_SECONDS = 3600.0  # what was not finished for so long is given up, where nobody can tell whose it is
RENEWED_EACH = 3  # times while it lasts
PID_DIGITS_MAX = 10
NUMBERS = "pid", "start_time", "low_offset", "expires_ms"

_numbers = itertools.count()


class Held(NamedTuple):
    """The result of a store's leases: the lowest offset needed (None: nobody needs any), and what was odd."""

    from_offset: int | None
    findings: list[str]


@dataclass(slots=True)
class Lease:
    """One reader's hold on the log from `low_offset` on. A context manager: `release` at its end."""

    path: Path
    low_offset: int
    ttl_ms: int
    owner_pid: int
    _fd: int = -1
    _due_ms: int = 0

    def renew(self, low_offset: int | None = None, now_ms: int | None = None) -> None:
        """Hold on for another `ttl_ms`, from `low_offset` on if that has moved."""
        self.low_offset = self.low_offset if low_offset is None else low_offset
        now_ms = monotonic_ms() if now_ms is None else now_ms
        expires_ms, self._due_ms = now_ms + self.ttl_ms, now_ms + self.ttl_ms // RENEWED_EACH
        pid, started = self.owner_pid, start_time(self.owner_pid)
        folder = _made(self.path.parent)
        fields = {
            "pid": pid,
            "start_time": started,
            "low_offset": self.low_offset,
            "expires_ms": expires_ms,
            "boot_id": boot_id(),
            "namespace": namespace(),
            "folder": [folder.device, folder.inode],
            "held": pid == os.getpid(),
        }
        before, self._fd = self._fd, file_io.replace_held(self.path, json.dumps(fields).encode("ascii"))
        os.fchmod(self._fd, file_io.FILE_MODE)  # whatever this user's umask is: the broker has to read it
        if before >= 0:
            os.close(before)

    def keep(self, now_ms: int | None = None) -> None:
        """Renew it, if it is time: to be called again and again while it is needed. Raises OSError."""
        now_ms = monotonic_ms() if now_ms is None else now_ms
        if now_ms >= self._due_ms:
            self.renew(now_ms=now_ms)

    def release(self) -> None:
        """End the lease, and delete its file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
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
    name = f"{pid}-{start_time(pid)}-{next(_numbers)}-{namespace()}"
    lease = Lease(Path(root) / LEASES / name, low_offset, ttl_ms, owner_pid or pid)
    lease.renew(now_ms=now_ms)
    return lease


def held_from(root: Path | str, now_ms: int) -> int | None:
    """The lowest offset that some living reader needs; None without one."""
    return look(root, now_ms).from_offset


def look(root: Path | str, now_ms: int) -> Held:
    """Return all leases of a store; those of dead processes, and expired ones, are removed."""
    directory = Path(root) / LEASES
    lowest: int | None = None
    findings: list[str] = []
    try:
        if directory.is_symlink():
            return Held(None, [f"{directory}: a symbolic link to another store's files; remove the link"])
        folder = Place.of(directory)
        with os.scandir(directory) as entries:
            paths = [Path(entry.path) for entry in itertools.islice(entries, LEASES_MAX + 1)]
    except FileNotFoundError:
        return Held(None, [])
    if len(paths) > LEASES_MAX:
        findings.append(f"{directory}: more than {LEASES_MAX} files; the others are ignored; remove them")
    for path in paths[:LEASES_MAX]:
        low_offset = _valid(path, folder, now_ms, findings)
        if low_offset is not None and (lowest is None or low_offset < lowest):
            lowest = low_offset
    return Held(lowest, findings)


def _valid(path: Path, folder: Place, now_ms: int, findings: list[str]) -> int | None:
    """The offset that this file holds; None, and the file is removed, when it holds nothing any more."""
    if path.name.endswith(file_io.CREATING_SUFFIX):
        if _is_left(path):
            _remove(path, findings)
        return None
    try:
        fd = small_files.open_plain(path)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):  # released meanwhile
            findings.append(f"{path}: cannot be read ({error.strerror}); it holds nothing, remove it")
        return None
    try:
        held, text = small_files.is_held(fd), os.pread(fd, LEASE_BYTES_MAX + 1, 0)
    finally:
        os.close(fd)
    try:
        fields = json.loads(text)
        values = [fields[name] for name in NUMBERS]
        if not all(type(value) is int for value in values):
            raise ValueError("not whole numbers")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        findings.append(f"{path}: not a lease ({error!r}); it holds nothing, remove it")
        return None
    pid, started, low_offset, expires_ms = values
    is_ours = fields.get("folder") == [folder.device, folder.inode] and fields.get("boot_id") == boot_id()
    if is_ours and now_ms < expires_ms and 0 < pid < 1 << 31 and _is_needed(fields, pid, started, held):
        return int(low_offset)
    _remove(path, findings)
    return None


def _is_needed(fields: dict[str, object], pid: int, started: int, held: bool) -> bool:
    """Return whether a lease's process lives, as far as this process can see."""
    if fields.get("namespace") == namespace():
        return is_alive(pid, started) or is_hidden(pid)
    return held or not fields.get("held")


def _is_left(path: Path) -> bool:
    """Whether nobody will finish the file: its maker has gone, or cannot be seen and would have long ago."""
    pid, _, rest = path.name.removesuffix(file_io.CREATING_SUFFIX).partition("-")
    if not pid.isdecimal() or len(pid) > PID_DIGITS_MAX:
        return False
    if rest.partition("-")[2].partition("-")[2] in ("", namespace()):
        return start_time(int(pid)) is None and not is_hidden(int(pid))
    try:
        return wall_ms() / 1000 - path.lstat().st_mtime > LEFT_SECONDS
    except OSError:
        return False


def _made(folder: Path) -> Place:
    """The folder of leases, made where it is missing. Raises NotADirectoryError for a link to somebody else's."""
    folder.mkdir(mode=file_io.DIRECTORY_MODE, exist_ok=True)
    if folder.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, "a symbolic link has the name of the folder of leases", str(folder))
    return Place.of(folder)


def _remove(path: Path, findings: list[str]) -> None:
    try:
        file_io.unlink(path)
    except OSError as error:
        findings.append(f"{path}: holds nothing and cannot be removed ({error.strerror}); remove it")
