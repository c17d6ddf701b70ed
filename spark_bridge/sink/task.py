"""One task's right to write: a lock among its attempts, and since when any of them may have appended something.

Spark may run a task again while an earlier attempt still runs (speculation, a lost executor). The lock is a file of the
broker's regions, held by flock, so the kernel frees it when an attempt dies. It also notes the newest epoch that this
partition has begun: the next one cannot have been written yet. It goes with the broker; without it the index is asked.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from store.files.pointer import SINKS_NAME

POLL_SECONDS = 0.02
NOTES_MAX = 4096
NOTE_BYTES_MAX = 64
NOTE_KEPT_SECONDS = 24 * 3600


class TaskId(NamedTuple):
    """The identity of a task, which stays the same whenever Spark repeats it."""

    query: str
    epoch: int
    partition: int

    @property
    def scope(self) -> bytes:
        """Return the scope for the keys of the task's rows."""
        return f"{self.query}\n{self.epoch}\n{self.partition}".encode()


class TaskBusy(Exception):
    """Raised when another attempt of the task is still writing.

    Next: give it more time with the option `timeout`, or end the Python worker of the other attempt.
    """

    code = "TASK_BUSY"

    def __init__(self, task: TaskId, seconds: float) -> None:
        super().__init__(
            f"partition {task.partition} of epoch {task.epoch}: another attempt of this task has been writing for "
            f"{seconds:.0f} s; give it more time with the option timeout, or end its Python worker"
        )


class TaskLock:
    """Held while a task writes; `may_be_written` False: no attempt of it has appended anything."""

    def __init__(self, regions: Path, task: TaskId, timeout_s: float) -> None:
        self._task, self._timeout_s = task, timeout_s
        name = hashlib.sha256(f"{task.query}\n{task.partition}".encode()).hexdigest()[:24]
        self._path = regions / SINKS_NAME / name
        self._fd = -1
        self.may_be_written = True

    def __enter__(self) -> Self:
        self._path.parent.mkdir(exist_ok=True)
        if not self._path.exists():
            _forget_old(self._path.parent)
        self._fd = self._locked()
        noted, epoch = os.pread(self._fd, NOTE_BYTES_MAX, 0), self._task.epoch
        newest = int(noted) if noted.strip().isdigit() else None  # nothing, where an attempt died before it noted
        self.may_be_written = newest is None or newest + 1 != epoch
        os.pwrite(self._fd, b"%019d\n" % (epoch if newest is None else max(newest, epoch)), 0)
        return self

    def _locked(self) -> int:
        deadline = time.monotonic() + self._timeout_s
        while True:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(fd, self._path):
                    return fd
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(fd)
                    raise TaskBusy(self._task, self._timeout_s) from None
                time.sleep(POLL_SECONDS)
            os.close(fd)

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        os.close(self._fd)


def _is_at(fd: int, path: Path) -> bool:
    """Whether the file that is open still is the one of that name."""
    try:
        return os.fstat(fd).st_ino == os.stat(path).st_ino
    except FileNotFoundError:
        return False


def _forget_old(folder: Path) -> None:
    """Remove notes that nobody has touched for long once there are too many; one that is held stays."""
    paths = list(folder.iterdir())
    for path in paths if len(paths) > NOTES_MAX else ():
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            if time.time() - os.fstat(fd).st_mtime > NOTE_KEPT_SECONDS:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)
        except BlockingIOError:
            continue
        finally:
            os.close(fd)
