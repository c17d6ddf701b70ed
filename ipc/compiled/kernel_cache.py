"""A kernel's place on disk, such that of all processes that need it at once one compiles and the others wait for it.

After a change of the sources the processes of a test run, or two brokers on one machine, ask for the same kernels at
the same time. Who finds one missing locks the folder of its module, looks again, and holds the lock until the kernel
is saved. Modules do not import each other in circles and neither do kernels call, so nobody waits for one who waits.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from typing import Any

from numba.core import caching

LONGEST_WAIT_SECONDS = 600.0  # then it is compiled here, too: only time is lost
LOOK_EACH_SECONDS = 0.02

cache_class: Any = caching.FunctionCache  # untyped


class Folders:
    """The folders that this process has locked; numba compiles in one thread at a time."""

    def __init__(self, waiting: Callable[[], None]) -> None:
        self._waiting = waiting  # called again and again while another process compiles; may raise
        self._held: dict[str, list[int]] = {}  # path: descriptor, how many kernels of it are being compiled

    def lock(self, path: str) -> None:
        """Wait for the folder; without one that can be locked everybody compiles for himself."""
        if held := self._held.get(path):
            held[1] += 1
            return
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            self._wait(fd)
        except BaseException:
            os.close(fd)
            raise
        self._held[path] = [fd, 1]

    def unlock(self, path: str) -> None:
        """The kernel is saved, or could not be made."""
        if held := self._held.get(path):
            held[1] -= 1
            if not held[1]:
                os.close(held[0])
                del self._held[path]

    def _wait(self, fd: int) -> None:
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        while time.monotonic() < deadline:
            try:
                return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._waiting()
                time.sleep(LOOK_EACH_SECONDS)
            except OSError:  # a file system without locks
                return None
        return None


class KernelCache(cache_class):  # type: ignore[misc]
    """numba's, which leaves its lock with the compiler between a miss and what is saved then."""

    def __init__(self, function: Callable[..., Any], folders: Folders) -> None:
        super().__init__(function)
        self._folders = folders
        self._compiles = 0  # forms of this kernel that are being compiled here: one may need another

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The kernel from disk; None where it is to be compiled, with the lock held."""
        overload = super().load_overload(sig, target_context)
        if overload is not None:
            return overload
        self._folders.lock(self.cache_path)
        try:
            overload = super().load_overload(sig, target_context)
        finally:
            if overload is not None:
                self._folders.unlock(self.cache_path)
        self._compiles += overload is None
        return overload

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save the kernel to disk, for the processes that wait."""
        try:
            super().save_overload(sig, data)
        finally:
            self.given_up()

    def given_up(self) -> None:
        """End the wait of others: it was saved, or compiling raised an exception."""
        if self._compiles:
            self._compiles -= 1
            self._folders.unlock(self.cache_path)
