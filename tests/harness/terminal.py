"""A command in a terminal of its own, of a given size: what it wrote there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from types import TracebackType

from ipc.descriptors import await_readable

SECONDS = 300.0
CONTROL = re.compile(rb"\x1b\[[0-9;?<>=]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>78]|\r")


def text_of(output: bytes) -> str:
    """Without what a terminal obeys."""
    return CONTROL.sub(b"", output).decode()


class Terminal:
    """A process in a terminal; a context manager that ends it."""

    def __init__(self, command: Sequence[str], columns: int, lines: int, **environment: str) -> None:
        self._fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**inherited, "TERM": "xterm-256color", **environment},
        )
        os.close(theirs)
        self.output = b""

    def __enter__(self) -> Terminal:
        return self

    def press(self, keys: bytes) -> None:
        """As typed."""
        os.write(self._fd, keys)

    def read_until(self, text: bytes) -> bytes:
        """All that came since, until it says so; empty text: until the process has closed the terminal."""
        deadline = time.monotonic() + SECONDS
        begin = len(self.output)
        while not text or text not in self.output[begin:]:
            assert time.monotonic() < deadline, f"{text!r} did not come: {self.output[-2000:]!r}"
            if not await_readable(self._fd, timeout_ms=1000):
                continue
            try:
                data = os.read(self._fd, 1 << 16)
            except OSError:  # EIO: nobody holds the other end
                data = b""
            if not data:
                assert not text, f"it ended before {text!r}: {self.output[-2000:]!r}"
                break
            self.output += data
        return self.output[begin:]

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._fd)


def in_terminal(command: Sequence[str], columns: int, lines: int, **environment: str) -> tuple[int, bytes]:
    """A command that ends by itself: its exit code, and what it wrote."""
    with Terminal(command, columns, lines, **environment) as terminal:
        out = terminal.read_until(b"")
        return terminal.process.wait(SECONDS), out
