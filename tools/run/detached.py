"""`slipstream broker --detach`: the broker in a process of its own, and its first error where it does not serve."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

from ipc.module_names import named
from tools.common.exit_codes import ExitCode
from tools.run.serving import SERVES, await_broker

TAIL_BYTES_MAX = 64 << 10


def start(file: str, store: Path, roles: tuple[str, ...], output: str | None, timeout: float) -> int:
    """Start the broker of that file; 0 once it serves, else the exit code with which it ended.

    Its output goes to the end of `output`, broker.log beside the file unless another is named. Raises OSError,
    NoBroker, NotInTime, NotServed.
    """
    log = Path(output) if output else Path(file).absolute().with_name("broker.log")
    command = [sys.executable, "-m", named("tools.cli"), "broker", "-c", os.path.abspath(file)]
    environment = {name: value for name, value in os.environ.items() if name not in ("NOTIFY_SOCKET", "WATCHDOG_USEC")}
    with log.open("ab") as out:
        begin = out.tell()
        child = subprocess.Popen(
            [*command, *(word for role in roles for word in ("--only", role))], stdin=subprocess.DEVNULL, stdout=out,
            stderr=out, env=environment, start_new_session=True,
        )  # fmt: skip
    try:
        is_serving = await_broker(str(store), SERVES, timeout, lambda: child.poll() is not None, child.pid)
    finally:
        if child.poll() is None:
            child.returncode = 0  # it goes on without this process, which would else warn of it
    if is_serving:
        click.echo(f"ready: store {store}, process {child.pid}, output in {log}")
        return 0
    click.echo(_why(log, begin) or f"slipstream: the broker ended with {child.returncode}; {log} may say why", err=True)
    return child.returncode if child.returncode > 0 else ExitCode.STORE


def _why(log: Path, begin: int) -> str:
    """The last line of an error that the broker wrote; empty when it wrote none."""
    with log.open("rb") as written:
        written.seek(max(begin, written.seek(0, os.SEEK_END) - TAIL_BYTES_MAX))
        lines = written.read().decode("utf-8", "replace").splitlines()
    said = [line for line in lines if line.startswith("slipstream: ") and not line.startswith("slipstream: warning:")]
    return said[-1] if said else (lines[-1] if lines else "")
