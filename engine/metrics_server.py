"""Serves `/metrics` over HTTP, on loopback unless told otherwise: one request a connection, every length bounded.

Implements: PrometheusHttpServer behind metricsExporterType=PROM (metricsPromExporterHost, metricsPromExporterPort)
Publishes:  metrics_port
Without a port in the file it is RocketMQ's 5557, or a free one where another broker of this host has that. A port that
cannot be had is tried again; nothing else waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from http import HTTPStatus

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from engine import addresses
from engine.config import BrokerConfig
from engine.cursors import Board
from engine.metrics import TableSizes, families
from ipc import waiting
from store.errors import NoBroker

log = logging.getLogger("slipstream.metrics")

PATH, DEFAULT_PORT = "/metrics", 5557
REQUEST_BYTES_MAX, CONNECTIONS_MAX = 8192, 16
REQUEST_SECONDS = 5.0
END_OF_REQUEST = b"\r\n\r\n"


class MetricsServer:
    """The server; `sizes` is asked at each request."""

    def __init__(self, config: BrokerConfig, board: Board, sizes: Callable[[], TableSizes]) -> None:
        self._config, self._board, self._sizes = config, board, sizes
        self._store = os.fspath(config.store_path_root_dir)
        self._server: asyncio.Server | None = None
        self._connections = 0
        self._is_told = False

    @property
    def is_served(self) -> bool:
        """Whether there is nothing left to begin."""
        return self._server is not None or self._config.metrics_exporter_type == "DISABLE"

    def ports(self) -> list[int]:
        """Which ports to try: the one that is written, else the one from before a restart, else any."""
        configured, before = self._config.metrics_port, self._board.metrics_port.read()
        if configured:
            return [configured]
        return [before or (DEFAULT_PORT if configured is None else 0), 0]

    async def start(self) -> None:
        """Listen, if that is wished and possible now."""
        if self.is_served:
            return
        host, failure = self._config.metrics_host, ""
        for port in self.ports():
            try:
                server = await asyncio.start_server(self._serve, host, port, limit=REQUEST_BYTES_MAX)
            except OSError as error:
                failure = f"{addresses.told(host, port)}: {error.strerror}"
                continue
            self._server = server
            bound = server.sockets[0].getsockname()[1]
            log.info("metrics at http://%s%s", addresses.told(host, bound), PATH)
            waiting.publish(self._board.metrics_port, bound)
            return
        if not self._is_told:
            log.error("metrics cannot be served at %s; it is tried again. Set metricsPromExporterPort", failure)
            self._is_told = True

    async def stop(self) -> None:
        """Hang up."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= CONNECTIONS_MAX:
                await asyncio.wait_for(self._answer(reader, writer), REQUEST_SECONDS)
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError) as error:
            log.debug("a request for metrics came to nothing: %r", error)
        finally:
            self._connections -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(END_OF_REQUEST)).decode("latin-1").split("\r\n")
        status, content_type, body = self._response(request)
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + (b"" if request[0].startswith("HEAD ") else body))
        await writer.drain()

    def _response(self, request: list[str]) -> tuple[HTTPStatus, str, bytes]:
        """(status, content type, body) for the lines of a request."""
        plain = "text/plain; charset=utf-8"
        method, _space, rest = request[0].partition(" ")
        if method not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, plain, b"only GET and HEAD\n"
        if rest.partition(" ")[0].partition("?")[0] != PATH:
            return HTTPStatus.NOT_FOUND, plain, f"only {PATH}\n".encode()
        headers = dict(line.lower().split(":", 1) for line in request[1:] if ":" in line)
        encode, content_type = choose_encoder(headers.get("accept", "").strip())
        registry = CollectorRegistry()
        try:
            registry.register(Collected(self._store, self._sizes()))
            return HTTPStatus.OK, content_type, encode(registry)
        except NoBroker:
            return HTTPStatus.SERVICE_UNAVAILABLE, plain, b"this broker is starting or stopping\n"


class Collected(Collector):
    """The library's form of a source of metrics."""

    def __init__(self, store: str, sizes: TableSizes) -> None:
        self._found = list(families(store, sizes))

    def collect(self) -> list[Metric]:
        """What was found when it was made: the library asks once to register, once to write."""
        return list(self._found)
