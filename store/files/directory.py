"""A store's directory: its paths, the lock, the abort marker, the pointer to a running broker.

Implements: StorePathConfigHelper, DefaultMessageStore's lock and abort file (spec: store-formats, section 15)
The lock is RocketMQ's own: a POSIX record lock on byte [0,1) of `lock`, so a RocketMQ broker and ours exclude each
other. POSIX drops such a lock when the process closes *any* descriptor of the file: nobody else here opens it.
Every directory that a broker writes is locked itself, too: two roots may share one by a setting, a link or a mount.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from store import names
from store.errors import ForeignFile, NotAStore, StoreLocked
from store.files import access, file_io, pointer
from store.files.directory_locks import DirectoryLocks
from store.files.file_io import FLOCK

LOCK_CONTENT = b"lock"


class StoreDirectory:
    """The paths of one store. `commit_log_path` is given when storePathCommitLog is set apart from the root."""

    def __init__(self, root: Path | str, commit_log_path: Path | str | None = None) -> None:
        self.root = Path(root)
        self.commitlog = Path(commit_log_path) if commit_log_path is not None else self.root / names.COMMIT_LOG
        self.consumequeue = self.root / names.CONSUME_QUEUES
        self.index = self.root / names.INDEX
        self.config = self.root / names.CONFIG
        self.checkpoint = self.root / names.CHECKPOINT
        self.abort = self.root / names.ABORT
        self.lock_path = self.root / names.LOCK
        self.pointer = self.root / names.POINTER
        self.mark = self.root / names.MARK
        self.leases = self.root / names.LEASES
        self.audit = self.root / names.AUDIT
        self._lock_fd: int | None = None
        self._directory_locks = DirectoryLocks()
        self._pointer_fd: int | None = None

    def create(self) -> None:
        """Make the directories that a broker needs; those there are stay as they are. Raises ForeignFile."""
        for directory in (self.root, self.commitlog, self.consumequeue, self.config):
            try:
                is_new = not directory.is_dir()
                directory.parent.mkdir(parents=True, exist_ok=True)
                directory.mkdir(mode=file_io.DIRECTORY_MODE, exist_ok=True)
                if is_new:  # what is synced in it would be nowhere without its name
                    file_io.sync_directory(directory.parent)
            except (FileExistsError, NotADirectoryError) as error:
                raise ForeignFile(str(directory), "a file has the name of this directory") from error
        for path in (self.abort, self.lock_path, self.checkpoint, self.pointer):
            if path.is_dir():
                raise ForeignFile(str(path), "a directory has the name of this file")

    def give_to_group(self, gid: int) -> None:
        """Let the group read all of it, and put leases there. Raises OSError."""
        access.give_leases(self.leases, gid)
        access.give([self.commitlog, *self.queue_directories(), self.index, self.config, self.root], gid)
        access.give_leases(self.leases, gid)  # the root's turn gave it the rights of all others

    def queue_directories(self) -> tuple[Path, ...]:
        """Return where queues of each kind lie; not all need be there."""
        return self.consumequeue, self.root / names.QUEUE_EXTENSIONS, self.root / names.BATCH_QUEUES

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
        try:
            fd = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, file_io.FILE_MODE)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise ForeignFile(str(self.lock_path), "a symbolic link has the lock file's name") from error
            raise
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
        except OSError as error:
            owner = _lock_owner(fd)
            os.close(fd)
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            raise StoreLocked(str(self.lock_path), owner) from error
        try:
            self._lock_directories()
        except BaseException:
            os.close(fd)
            raise
        file_io.truncate(fd, 0)
        file_io.write_at(fd, LOCK_CONTENT, 0)
        self._lock_fd = fd

    def _lock_directories(self) -> None:
        """Own what a broker writes. `config` is locked anew for each writing: a file stands for one that lies apart."""
        self._directory_locks.take([self.root, self.commitlog, self.index, *self.queue_directories()])
        if self.config.is_symlink() and self.config.is_dir():
            self._directory_locks.take_file(self.config / names.CONFIG_LOCK)

    def unlock(self) -> None:
        """Give the store back; the file stays, as RocketMQ's does."""
        self._directory_locks.release()
        fd, self._lock_fd = self._lock_fd, None
        if fd is not None:
            os.close(fd)

    # the abort marker

    def was_aborted(self) -> bool:
        """Return whether the last broker on this store did not stop in order."""
        return self.abort.exists()

    def mark_running(self) -> None:
        """Set the marker: from now on, an end without `mark_stopped` counts as abnormal."""
        file_io.replace_file(self.abort, b"")

    def mark_stopped(self) -> None:
        """The store was left in order: everything flushed, queues built to the log's end."""
        file_io.unlink(self.abort)
        file_io.sync_directory(self.root)

    # the pointer to a running broker

    def write_pointer(self, fields: Mapping[str, Any]) -> None:
        """Tell other processes where this broker's regions are; it counts until `remove_pointer` or our end."""
        assert self._pointer_fd is None, "written twice"
        self._pointer_fd = pointer.write(self.root, self.commitlog, fields)

    def read_pointer(self) -> dict[str, Any] | None:
        """Return what this store's broker, or its last one if that was killed, wrote there.

        None without one, and for one that is of another place. Raises NotAStore when it is something else.
        """
        broker = pointer.read(self.root)
        return None if broker is None else broker.fields

    def remove_pointer(self) -> None:
        """Remove the pointer that `write_pointer` wrote; without one, nothing happens."""
        fd, self._pointer_fd = self._pointer_fd, None
        if fd is None:
            return
        try:
            if os.path.samestat(os.fstat(fd), self.pointer.lstat()):
                file_io.unlink(self.pointer)
        except FileNotFoundError:
            pass
        finally:
            os.close(fd)


def _lock_owner(fd: int) -> int | None:
    """Return the pid that holds byte [0,1); None where it is gone by now, or in another pid namespace."""
    request = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    kind, _whence, _start, _length, pid = FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, request))
    return pid if kind != fcntl.F_UNLCK and pid > 0 else None


def store_directory(root: Path | str) -> StoreDirectory:
    """The store's paths; the commit log's own one, where it is set apart, is known by the broker's pointer file.

    Raises NotAStore.
    """
    directory = StoreDirectory(root)
    if not directory.root.is_dir():
        raise NotAStore(str(root), "no such directory")
    directory = StoreDirectory(root, commit_log_apart(root))
    directory.require()
    return directory


def commit_log_apart(root: Path | str) -> Path | None:
    """Return where the commit log lies if not below the root: only a broker's pointer file can tell."""
    fields = StoreDirectory(root).read_pointer() or {}
    path = fields.get("settings", {}).get(pointer.COMMIT_LOG_KEY)
    return Path(path) if path else None


def directories_in(path: Path | str) -> list[str]:
    """Return the names of the directories there, sorted; links to directories count, a link to itself does not.

    One look at the folder, which knows the kinds: there may be very many. Raises AccessDenied, OSError.
    """
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if _is_directory(entry))
    except PermissionError as error:
        raise file_io.denied(Path(error.filename or path)) from None


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False
        raise
