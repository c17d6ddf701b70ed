"""Whether a server that was just started listens yet."""

from __future__ import annotations

import socket
import subprocess
import time

LOOPBACK, POLL_SECONDS = "127.0.0.1", 0.2


def await_listening(process: subprocess.Popen[bytes], port: int, seconds: float) -> bool:
    """Whether a process listens on a port before its deadline; False at once when it has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(POLL_SECONDS)
            if probe.connect_ex((LOOPBACK, port)) == 0:
                return True
        time.sleep(POLL_SECONDS)
    return False
