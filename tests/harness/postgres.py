"""A PostgreSQL of a test, in a folder of its own, at a Unix socket. Without a server there the test is skipped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.harness.conditions import SECONDS, await_that
from tests.harness.other_user import NOBODY

CHEAP = ["-c", "fsync=off", "-c", "listen_addresses=", "-c", "shared_buffers=1MB"]


@contextmanager
def postgres() -> Iterator[str]:
    """Run a server; its address as psycopg takes it. No root may run one: then the user nobody does."""
    server = shutil.which("postgres")
    if server is None:
        pytest.skip("no postgres on this machine: install Debian's package postgresql")
    programs = Path(server).resolve().parent
    user = NOBODY if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="slipstream-postgres-", dir="/tmp") as folder:  # others may enter /tmp
        if user is not None:
            os.chown(folder, user, user)
        data = Path(folder) / "data"
        making = [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync"]
        subprocess.run(
            making, user=user, group=user, cwd=folder, check=True, stdout=subprocess.DEVNULL, timeout=SECONDS
        )
        with (Path(folder) / "log").open("w") as log:
            command = [programs / "postgres", "-D", data, "-k", folder, *CHEAP]
            process = subprocess.Popen(command, user=user, group=user, cwd=folder, stdout=log, stderr=log)
        try:
            address = f"host={folder} user=postgres dbname=postgres"
            await_that(lambda: _answers(address), "PostgreSQL answers")
            yield address
        finally:
            process.send_signal(signal.SIGINT)  # "fast": it ends its clients
            process.wait(SECONDS)


def _answers(address: str) -> bool:
    try:
        psycopg.connect(address).close()
    except psycopg.OperationalError:
        return False
    return True
