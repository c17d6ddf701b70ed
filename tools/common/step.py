"""A step of the set-up: runs a command, and shows on a terminal that it is at work and for how long.

`python -P tools/common/step.py TITLE COMMAND...` ends as the command does. Standard library alone: this runs before the
environment has any package, rich among them, with which `tools.common.progress` shows the same.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator

TURN_MS = 200
TURNING = "|/-\\"
ERASE = "\r\x1b[K"


def run(title: str, command: list[str]) -> int:
    """Run a command; return its exit code, as a shell has it."""
    shown = sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    if not shown:
        return _code(subprocess.run(command, check=False).returncode)
    began = time.monotonic()
    both = sys.stdout.isatty()  # its output would be in the shown line's way, too
    pipes = (subprocess.PIPE, subprocess.STDOUT) if both else (None, subprocess.PIPE)
    with subprocess.Popen(command, stdout=pipes[0], stderr=pipes[1]) as child:
        said_by = child.stdout if both else child.stderr
        assert said_by is not None
        says = said_by.fileno()
        for turn in _turns(says):
            seconds = int(time.monotonic() - began)
            _show(f"{ERASE}{TURNING[turn % len(TURNING)]} {title} {seconds // 60}:{seconds % 60:02d}".encode())
        _show(ERASE.encode())
        return _code(child.wait())


def _turns(says: int) -> Iterator[int]:
    """Counts on until the command has closed its standard error; what it says there goes on in the meantime."""
    turn, poller, begun = 0, select.poll(), b""  # of a line whose end is still to come
    poller.register(says, select.POLLIN)
    while True:
        yield (turn := turn + 1)
        if poller.poll(TURN_MS):
            said = os.read(says, 65536)
            lines, end, begun = (begun + said).rpartition(b"\n") if said else (begun, b"", b"")
            _show(ERASE.encode() + lines + end)
            if not said:
                return


def _show(text: bytes) -> None:
    sys.stderr.buffer.write(text)
    sys.stderr.buffer.flush()


def _code(returned: int) -> int:
    return returned if returned >= 0 else 128 - returned


if __name__ == "__main__":
    try:
        sys.exit(run(sys.argv[1], sys.argv[2:]))
    except KeyboardInterrupt:
        sys.exit(130)
