"""A step of the set-up shows itself on a terminal alone, hands on what its command says, and ends as that does."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress

import pytest

from ipc.module_names import SOURCES

STEP = [sys.executable, "-P", str(SOURCES / "tools" / "common" / "step.py"), "a title"]
SECONDS = 600
UNTIL_CLOSED = "import sys; sys.stdin.read(); print('out', flush=True); print('said', file=sys.stderr); sys.exit(7)"


def seen_on_terminal(term: str) -> tuple[int, str]:
    """Its exit code, and all that the terminal got; where the title is shown, it is before the command may end."""
    terminal, other = pty.openpty()
    seen = b""
    command, environment = [*STEP, sys.executable, "-c", UNTIL_CLOSED], {**os.environ, "TERM": term}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=other, stderr=other, env=environment) as step:
        os.close(other)
        assert step.stdin is not None
        while term != "dumb" and b"a title" not in seen:
            seen += os.read(terminal, 4096)
        step.stdin.close()
        with suppress(OSError):  # its other end is closed
            while part := os.read(terminal, 4096):
                seen += part
        code = step.wait(SECONDS)
    os.close(terminal)
    return code, seen.decode()


def test_a_terminal_sees_that_it_is_at_work_and_what_the_command_says() -> None:
    code, seen = seen_on_terminal("xterm")
    assert code == 7
    assert re.search(r"a title \d+:\d\d", seen) and "\x1b[Kout\r\n" in seen and "said\r\n" in seen
    assert seen.endswith("\r\x1b[K"), "nothing of it stays"


def test_a_terminal_without_control_codes_gets_plain_text() -> None:
    code, seen = seen_on_terminal("dumb")
    assert (code, seen.split()) == (7, ["out", "said"])


@pytest.mark.parametrize(("script", "code"), [("", 0), ("exit 3", 3), ("kill -9 $$", 137)])
def test_without_a_terminal_there_is_the_command_alone(script: str, code: int) -> None:
    ran = subprocess.run(
        [*STEP, "sh", "-c", f"echo out; echo err >&2; {script}"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, "out\n", "err\n")
