"""`--detach`: a broker or another server in a process of its own, and its first error where it does not serve."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import click

from ipc.module_names import named
from tools.common.exit_codes import ExitCode
from tools.run.serving import POLL_SECONDS, SERVES, NotInTime, await_broker

TAIL_BYTES_MAX = 64 << 10
READY = "ready: "
LOG_MODE = 0o600  # the line of a Flight server says the token that it made


def start(file: str, store: Path, roles: tuple[str, ...], output: str | None, timeout: float) -> int:
    """Start the broker of that file; 0 once it serves, else the exit code with which it ended.

    Its output goes to the end of `output`, broker.log beside the file unless another is named. Raises OSError,
    NoBroker, NotInTime, NotServed.
    """
    log = Path(output) if output else Path(file).absolute().with_name("broker.log")
    command = ["broker", "-c", os.path.abspath(file), *(word for role in roles for word in ("--only", role))]
    child, begin = _begun(command, log)
    try:
        is_serving = await_broker(str(store), SERVES, timeout, lambda: child.poll() is not None, child.pid)
    finally:
        _let_go(child)
    if is_serving:
        click.echo(f"{READY}store {store}, process {child.pid}, output in {log}")
        return 0
    return _told_why(child, log, begin)


def start_server(command: list[str], log: Path, pid_file: Path | None, timeout: float) -> int:
    """Start another command that says `ready:`; 0 once it does, else the exit code with which it ended.

    Its output goes to the end of `log`, its process number into `pid_file`. Raises OSError, NotInTime.
    """
    child, begin = _begun(command, log)
    deadline = time.monotonic() + timeout
    try:
        while True:
            ended = child.poll() is not None  # asked first: what it said before its end is there by now
            ready = next((line for line in _lines(log, begin) if line.startswith(READY)), None)
            if ready is not None:
                break
            if ended:
                return _told_why(child, log, begin)
            if time.monotonic() >= deadline:
                what = f"process {child.pid} (slipstream {command[0]}) is not ready within {timeout:g} s; it continues"
                raise NotInTime(f"{what} to start; its output is in {log}")
            time.sleep(POLL_SECONDS)
    finally:
        _let_go(child)
    if pid_file is not None:
        pid_file.write_text(f"{child.pid}\n")
    click.echo(f"{ready}, output in {log}")
    return 0


def _begun(command: list[str], log: Path) -> tuple[subprocess.Popen[bytes], int]:
    """The process of a command, and where in the log its output begins."""
    environment = {name: value for name, value in os.environ.items() if name not in ("NOTIFY_SOCKET", "WATCHDOG_USEC")}
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, LOG_MODE)
    with os.fdopen(fd, "ab") as out:
        begin = out.seek(0, os.SEEK_END)
        child = subprocess.Popen(
            [sys.executable, "-m", named("tools.cli"), *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=environment,
            start_new_session=True,
        )
    return child, begin


def _let_go(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.returncode = 0  # it goes on without this process, which would else warn of it


def _told_why(child: subprocess.Popen[bytes], log: Path, begin: int) -> int:
    """Repeat the last line of an error that it wrote; its exit code."""
    lines = _lines(log, begin)
    said = [line for line in lines if line.startswith("slipstream: ") and not line.startswith("slipstream: warning:")]
    why = (said or lines or [f"slipstream: process {child.pid} ended with exit code {child.returncode}; see {log}"])[-1]
    click.echo(why, err=True)
    return child.returncode if child.returncode > 0 else ExitCode.STORE


def _lines(log: Path, begin: int) -> list[str]:
    """The last whole lines behind `begin`."""
    with log.open("rb") as written:
        written.seek(max(begin, written.seek(0, os.SEEK_END) - TAIL_BYTES_MAX))
        text, _end, _unfinished = written.read().decode("utf-8", "replace").rpartition("\n")
    return text.splitlines()
