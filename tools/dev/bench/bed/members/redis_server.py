"""A redis-server for a comparison, all in memory, ended by its own process id."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.common.local_broker import end, free_port
from tools.dev.bench.bed.listening import await_listening

START_SECONDS, STOP_SECONDS = 30.0, 20.0


@contextmanager
def redis_server(directory: Path) -> Iterator[str]:
    """Run one, and yield its address. Raises RuntimeError if it does not start."""
    directory.mkdir(parents=True)
    port, program = free_port(), shutil.which("redis-server") or "redis-server"
    log = directory / "redis.log"
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory), "--save", ""]
    with log.open("wb") as output:
        process = subprocess.Popen([*command, "--appendonly", "no"], stdout=output, stderr=subprocess.STDOUT)
    try:
        if not await_listening(process, port, START_SECONDS):
            raise RuntimeError(f"redis-server did not start:\n{log.read_text()[-500:]}")
        yield f"127.0.0.1:{port}"
    finally:
        end(process, STOP_SECONDS)
