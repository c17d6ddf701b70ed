"""Every name below a store's root: its paths, the lock, the abort marker, the pointer to a running broker.

Implements: StorePathConfigHelper, DefaultMessageStore's lock and abort file (spec: store-formats, section 15)
The lock is RocketMQ's own: a POSIX record lock on byte [0,1) of `lock`, so a RocketMQ broker and ours exclude each
other. POSIX drops such a lock when the process closes *any* descriptor of the file: nobody else here opens it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from store import file_io
from store.errors import ForeignFile, NotAStore, StoreLocked

POINTER_NAME = "slipstream.run"
LEASES_NAME, AUDIT_NAME = "slipstream.leases", "slipstream.audit.jsonl"
POINTER_BYTES_MAX = 1 << 20
LOCK_CONTENT = b"lock"
FLOCK = struct.Struct("@hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid


class StoreDirectory:
    """The paths of one store. `commit_log_path` is given when storePathCommitLog is set apart from the root."""

    def __init__(self, root: Path | str, commit_log_path: Path | str | None = None) -> None:
        self.root = Path(root)
        self.commitlog = Path(commit_log_path) if commit_log_path is not None else self.root / "commitlog"
        self.consumequeue = self.root / "consumequeue"
        self.index = self.root / "index"
        self.config = self.root / "config"
        self.checkpoint = self.root / "checkpoint"
        self.abort = self.root / "abort"
        self.lock_path = self.root / "lock"
        self.pointer = self.root / POINTER_NAME
        self.leases = self.root / LEASES_NAME
        self.audit = self.root / AUDIT_NAME
        self._lock_fd: int | None = None

    def create(self) -> None:
        """Make the directories that a broker needs; those there are stay as they are. Raises ForeignFile."""
        for directory in (self.root, self.commitlog, self.consumequeue, self.config):
            try:
                directory.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError) as error:
                raise ForeignFile(str(directory), "there is a file in the place of this directory") from error
        for path in (self.abort, self.lock_path, self.checkpoint, self.pointer):
            if path.is_dir():
                raise ForeignFile(str(path), "there is a directory in the place of this file")

    def require(self) -> None:
        """Raise NotAStore unless there is a commit log directory."""
        if not self.commitlog.is_dir():
            raise NotAStore(str(self.root), f"it has no directory {self.commitlog}")

    # the lock

    def lock(self) -> None:
        """Own the store until `unlock` or the end of this process; forked children do not own it.

        Raises StoreLocked, with the owner's pid if the kernel names it.
        """
        assert self._lock_fd is None, "locked twice"
        fd = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
        except OSError as error:
            owner = _lock_owner(fd)
            os.close(fd)
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            raise StoreLocked(str(self.lock_path), owner) from error
        file_io.truncate(fd, 0)
        file_io.write_at(fd, LOCK_CONTENT, 0)
        self._lock_fd = fd

    def unlock(self) -> None:
        """Give the store back; the file stays, as RocketMQ's does."""
        fd, self._lock_fd = self._lock_fd, None
        if fd is not None:
            os.close(fd)

    # the abort marker

    def was_aborted(self) -> bool:
        """True when the last broker on this store did not stop in order."""
        return self.abort.exists()

    def mark_running(self) -> None:
        """From now on an end without `mark_stopped` is an abnormal one."""
        file_io.replace_file(self.abort, b"")

    def mark_stopped(self) -> None:
        """The store was left in order: everything flushed, queues built to the log's end."""
        file_io.unlink(self.abort)
        file_io.sync_directory(self.root)

    # the pointer to a running broker

    def write_pointer(self, fields: Mapping[str, Any]) -> None:
        """Tell other processes where this broker's regions are."""
        file_io.replace_file(self.pointer, json.dumps(fields, indent=1).encode("utf-8"))

    def read_pointer(self) -> dict[str, Any] | None:
        """What `write_pointer` wrote; None without one. Raises NotAStore when it is something else."""
        try:
            with self.pointer.open("rb") as file:
                fields = json.loads(file.read(POINTER_BYTES_MAX))
        except FileNotFoundError:
            return None
        except NotADirectoryError as error:
            raise NotAStore(str(self.root), "it is a file") from error
        except (ValueError, RecursionError, IsADirectoryError) as error:
            raise NotAStore(str(self.pointer), f"not a pointer file of Slipstream ({error}); remove it") from error
        if not _is_pointer(fields):
            raise NotAStore(str(self.pointer), "not a pointer file of Slipstream; remove it")
        return dict(fields)

    def remove_pointer(self) -> None:
        """No broker runs here any more."""
        file_io.unlink(self.pointer)


def _is_pointer(fields: Any) -> bool:
    """Whether everything that our readers take from it is of its type."""
    if not isinstance(fields, dict) or not isinstance(fields.get("settings"), dict):
        return False
    path = fields["settings"].get("storePathCommitLog", "")
    return all(isinstance(fields.get(name), int) for name in ("pid", "start_time")) and isinstance(path, str)


def _lock_owner(fd: int) -> int | None:
    """The pid that holds byte [0,1), None when it cannot be told (gone by now, or in another pid namespace)."""
    request = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    kind, _whence, _start, _length, pid = FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, request))
    return pid if kind != fcntl.F_UNLCK and pid > 0 else None
