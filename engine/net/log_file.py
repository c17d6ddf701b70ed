"""A log in a file that several processes share: each line is one append; a process that finds the file full rotates it.

A line is written whole by one call, which appends; a process that still holds a rotated file writes its line there, and
looks at the name again before the next one. One process at a time rotates, under a lock of the folder that a killed
process gives up; a process that finds the file twice too large waits for that, briefly. A killed rotation leaves a gap,
which the next one fills first.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path

from store.files.file_io import NO_ROOM

MODE = 0o640
COMPLAIN_SECONDS = 10.0
WAIT_SECONDS, PAUSE_SECONDS = 0.1, 0.001


class LogFile(logging.Handler):
    """Appends records. `max_bytes`: of a file; `kept`: how many full ones stay, as NAME.1 (the last one) to NAME.N."""

    def __init__(self, path: Path, max_bytes: int, kept: int) -> None:
        super().__init__()
        self._path, self._max_bytes, self._kept = path, max_bytes, kept
        self._fd, self._lost, self._is_new, self._complained_at = -1, 0, True, -COMPLAIN_SECONDS
        self._patient_at = 0.0
        self._reopen()

    def emit(self, record: logging.LogRecord) -> None:
        """Append it. What cannot be written is counted, and said in the next line that can."""
        try:
            self._append(f"{self.format(record)}\n".encode("utf-8", "backslashreplace"))
        except OSError as error:
            self._lost += 1
            self._complain(error)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Close this process's descriptor; other processes keep theirs."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        super().close()

    def _append(self, line: bytes) -> None:
        self._follow_name()
        state = os.fstat(self._fd)
        if stat.S_ISREG(state.st_mode) and state.st_size and state.st_size + len(line) > self._max_bytes:
            self._move_aside()
            state = os.fstat(self._fd)
        if self._lost:
            line = f"(before this {self._lost} lines of process {os.getpid()} could not be written)\n".encode() + line
        if self._is_torn(state):
            line = b"\n" + line
        self._write(line)
        if not os.fstat(self._fd).st_nlink:  # it was moved off the end meanwhile
            self._reopen()
            self._write(line)
        self._lost, self._is_new = 0, False

    def _is_torn(self, state: os.stat_result) -> bool:
        """Whether a full disk, or a power cut, may have left a part of a line; only then: another's line may be on its
        way page by page, and an empty one would follow it."""
        is_suspect = (self._is_new or self._lost > 0) and stat.S_ISREG(state.st_mode) and state.st_size > 0
        return is_suspect and os.pread(self._fd, 1, state.st_size - 1) != b"\n"

    def _write(self, line: bytes) -> None:
        while line:
            line = line[os.write(self._fd, line) :]

    def _follow_name(self) -> None:
        try:
            if os.path.samestat(os.stat(self._path), os.fstat(self._fd)):
                return
        except FileNotFoundError:
            pass
        self._reopen()

    def _reopen(self) -> None:
        self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        flags = os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY
        try:
            fd = os.open(self._path, os.O_RDWR | flags, MODE)
        except PermissionError:  # what may be written alone: standard error of another user's, a pipe
            fd = os.open(self._path, os.O_WRONLY | flags, MODE)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd

    def _move_aside(self) -> None:
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._lock(folder)
            if os.path.samestat(os.stat(self._path), os.fstat(self._fd)):  # nobody else has done it by now
                self._shift()
            self._reopen()
        except (BlockingIOError, FileNotFoundError):
            pass  # somebody else is at it
        finally:
            os.close(folder)

    def _lock(self, folder: int) -> None:
        """Lock the folder to rotate. Raises BlockingIOError while another process has the lock.

        A file that is twice too large waits for the lock for a while.
        """
        began = time.monotonic()
        is_too_large = os.fstat(self._fd).st_size >= 2 * self._max_bytes and began >= self._patient_at
        deadline = began + WAIT_SECONDS if is_too_large else began
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                now = time.monotonic()
                if now < deadline:
                    time.sleep(PAUSE_SECONDS)
                    continue
                if deadline > began:
                    self._patient_at = now + COMPLAIN_SECONDS  # it stands still: no second wait for a while
                raise

    def _shift(self) -> None:
        """Rename each file to the next number, up to the first that is free; the last one is deleted."""
        beyond = self._kept + 1
        while self._numbered(beyond).exists():  # more were kept before
            self._numbered(beyond).unlink(missing_ok=True)
            beyond += 1
        if not self._kept:
            self._path.unlink(missing_ok=True)
            return
        free = next((n for n in range(1, self._kept + 1) if not self._numbered(n).exists()), self._kept)
        for number in range(free, 1, -1):
            os.replace(self._numbered(number - 1), self._numbered(number))
        os.replace(self._path, self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _complain(self, error: OSError) -> None:
        """Print an error to standard error, at most every COMPLAIN_SECONDS."""
        now = time.monotonic()
        if now - self._complained_at >= COMPLAIN_SECONDS:
            self._complained_at = now
            advice = "free some disk space" if error.errno in NO_ROOM else "check its owner and permissions"
            with suppress(OSError, ValueError):
                what = f"the log {self._path} cannot be written: {error.strerror}; {advice}"
                print(f"slipstream: {what}", file=sys.stderr)
