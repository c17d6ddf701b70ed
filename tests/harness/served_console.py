"""A console as users start it, `slipstream web`, in a process of its own; and a client that is no browser."""

from __future__ import annotations

import http.client
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from ipc.module_names import named
from tools.common.local_broker import end

START_SECONDS, ANSWER_SECONDS, STOP_SECONDS = 180.0, 120.0, 180.0


class Answer(NamedTuple):
    """What came back; header names in small letters."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class ServedConsole:
    """A context manager; `url` is what it printed. `command` and `environment` are those of an installed one."""

    def __init__(
        self,
        *arguments: object,
        folder: Path | None = None,
        command: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        checkout = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        begin = [sys.executable, "-m", named("tools.cli")] if command is None else [str(command)]
        self.process = subprocess.Popen(
            [*begin, "web", "--port", "0", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=checkout if environment is None else environment,
        )
        self.url = self.token = ""
        self.port = 0

    def __enter__(self) -> ServedConsole:
        assert self.process.stdout is not None
        poller = select.poll()
        poller.register(self.process.stdout, select.POLLIN | select.POLLHUP)
        line = self.process.stdout.readline() if poller.poll(START_SECONDS * 1000) else ""
        if "http://" not in line:
            end(self.process, STOP_SECONDS)
            raise RuntimeError(f"no console: {line} {self.process.stderr.read()}")
        self.url = line.split()[-1]
        parts = urlsplit(self.url)
        self.token, self.port = parse_qs(parts.query)["token"][0], int(parts.port or 0)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        end(self.process, STOP_SECONDS)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def connection(self) -> http.client.HTTPConnection:
        """A connection of one's own."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)

    def ask(
        self, path: str, *, method: str = "GET", token: bool = True, body: bytes | None = None, **headers: str
    ) -> Answer:
        """One request; header names with _ for -. With the token, unless it is left out."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            given = {"authorization": f"Bearer {self.token}", **given}
        connection = self.connection()
        try:
            connection.request(method, path, body, given)
            response = connection.getresponse()
            said = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, said, response.read())
        finally:
            connection.close()

    def post(self, path: str, value: object, **headers: str) -> Answer:
        """As one of its own pages asks."""
        given = {"origin": f"http://127.0.0.1:{self.port}", "content_type": "application/json", **headers}
        return self.ask(path, method="POST", body=json.dumps(value).encode(), **given)
