"""Flight servers for tests, in this process or in one of their own, and reads through them beside reads in place."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ipc.module_names import named
from spark_bridge.flight.client import RemoteStore, read_remote
from spark_bridge.flight.request import ScanRequest
from spark_bridge.flight.served import ServedStore
from spark_bridge.flight.server import Certificate, FlightServer, Writers
from spark_bridge.flight.streams import DEFAULT_LIMITS, Limits
from spark_bridge.options.columns import canonical
from spark_bridge.options.read import parse_options
from spark_bridge.options.rows import parse_row_options
from spark_bridge.plan.planner import plan_read
from tests.spark_bridge.stores import Row, read_rows
from tools.common.local_broker import end

TOKEN = "a-token-that-tests-know"
READY = re.compile(r"ready: Flight of (\S+) at (grpc\S*), process \d+(?:, token (\S+))?")
STOP_SECONDS = 120.0


@contextmanager
def served(
    root: object,
    topics: Sequence[str] = (),
    *,
    token: str | None = TOKEN,
    certificate: Certificate | None = None,
    may_enter: Callable[[str], bool] = lambda _host: True,
    limits: Limits = DEFAULT_LIMITS,
    port: int = 0,
    writers: Writers | None = None,
) -> Iterator[FlightServer]:
    """A server in this process."""
    store = ServedStore(str(root), frozenset(topics) or None)
    server = FlightServer(
        store,
        ("127.0.0.1", port),
        token=token,
        certificate=certificate,
        may_enter=may_enter,
        limits=limits,
        version="t",
        writers=writers,
    )
    try:
        yield server
    finally:
        server.stop()


class FlightProcess:
    """`slipstream flight` in a process of its own. A context manager that stops it in order."""

    def __init__(self, *arguments: object, port: int = 0) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        command = [sys.executable, "-m", named("tools.cli"), "flight", "--port", str(port), *map(str, arguments)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        line = self.process.stdout.readline()
        found = READY.match(line)
        if found is None:
            end(self.process, STOP_SECONDS)
            raise RuntimeError(f"no server: {line} {self.process.stderr.read()}")
        self.broker, self.location, self.token = found.groups()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.location.rpartition(":")[2])

    def __enter__(self) -> FlightProcess:
        return self

    def __exit__(self, *_error: object) -> None:
        end(self.process, STOP_SECONDS)
        assert self.process.stdout is not None and self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()


def remote_rows(location: str, request: ScanRequest, token: str | None = TOKEN, **more: Any) -> list[Row]:
    """The rows of a request, through Flight."""
    return list(read_remote(location, request, token, **more).read_all().to_pylist())


def rows_in_place(root: object, request: ScanRequest) -> list[Row]:
    """The rows of the same request, read where the store lies."""
    options = parse_options({**request.read_options, "path": str(root)})
    rows = parse_row_options(request.options)
    names = None if options.columns is None else canonical(options.columns)
    return read_rows(plan_read(options), names, rows)


def first_ticket(server: FlightServer, request: ScanRequest) -> bytes:
    """Of the request's plan."""
    with RemoteStore(server.location, TOKEN) as store:
        return store.plan(request).tickets[0]
