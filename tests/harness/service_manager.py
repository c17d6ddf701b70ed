"""A socket as systemd listens at one for what a service says."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def listening(path: Path, seconds: float) -> Iterator[socket.socket]:
    """At that path; nothing is waited for longer than `seconds`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(seconds)
        yield manager
