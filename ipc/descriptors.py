"""Close descriptors, and wait until they are ready, whatever their numbers: select() refuses those above 1,023."""

from __future__ import annotations

import os
import select
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

_READABLE = select.POLLIN | select.POLLPRI


class HasDescriptor(Protocol):
    """A socket, a pipe's file object."""

    def fileno(self) -> int:
        """Return the descriptor's number."""


Waitable = int | HasDescriptor


@contextmanager
def closing_fd(fd: int) -> Iterator[int]:
    """Yield a descriptor, and close it at the end."""
    try:
        yield fd
    finally:
        os.close(fd)


def await_readable(*waited: Waitable, timeout_ms: float) -> bool:
    """Whether one of them has something to read, or has ended or failed, before `timeout_ms` is over (0: look only)."""
    return await_ready(waited, (), timeout_ms)


def await_ready(reading: Iterable[Waitable], writing: Iterable[Waitable], timeout_ms: float) -> bool:
    """Whether one of `reading` can be read, or one of `writing` written, in time; what has ended or failed is."""
    poller = select.poll()
    for one in reading:
        poller.register(one, _READABLE)
    for one in writing:
        poller.register(one, select.POLLOUT)
    return bool(poller.poll(timeout_ms))
