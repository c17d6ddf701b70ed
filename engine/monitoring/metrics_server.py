"""Serves `/metrics`, `/healthz` and `/readyz` over HTTP, on loopback by default: one request a connection.

Implements: PrometheusHttpServer behind metricsExporterType=PROM (metricsPromExporterHost, metricsPromExporterPort)
Publishes:  metrics_port
Without a port in the file it is RocketMQ's 5557, or a free one where another broker of this host has that. A port that
cannot be had is tried again; nothing else waits for it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING

from engine.monitoring.health import Health, alive, ready
from engine.monitoring.metrics import TableSizes, families
from engine.net.listeners import listen
from engine.net.log_lines import Seldom
from engine.protocol.access.allow_list import may_enter
from engine.settings.config import BrokerConfig, BrokerRole
from engine.shared_memory import addresses
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.errors import NoBroker

if TYPE_CHECKING:  # the first request for metrics loads the library: no start waits for it
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

log = logging.getLogger("slipstream.metrics")

PATH, DEFAULT_PORT = "/metrics", 5557
HEALTH, READINESS = "/healthz", "/readyz"
PATHS = (PATH, HEALTH, READINESS)
REQUEST_BYTES_MAX = 8192
REQUEST_SECONDS = 5.0
FRESH_SECONDS = 0.5  # a second request within this time gets the same figures
ENCODINGS_MAX = 8  # of those figures: what clients accept is theirs to choose
END_OF_REQUEST = b"\r\n\r\n"


class MetricsServer:
    """The server; `sizes` is asked at each request for figures, a slave's `master_end` at each for its readiness."""

    def __init__(
        self,
        config: BrokerConfig,
        counters: BrokerCounters,
        sizes: Callable[[], Awaitable[TableSizes]],
        master_end: Callable[[], Awaitable[int | None]],
    ) -> None:
        self._config, self._counters, self._sizes, self._master_end = config, counters, sizes, master_end
        self._store = os.fspath(config.store_path_root_dir)
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.StreamWriter, None] = {}  # oldest first
        self._seldom = Seldom(log)
        self._registry_at = 0.0
        self._registry: CollectorRegistry | None = None
        self._encoded: dict[str, tuple[str, bytes]] = {}
        self._one_at_a_time = asyncio.Lock()
        self._is_told = False

    @property
    def is_served(self) -> bool:
        """Whether there is nothing left to begin."""
        return self._server is not None or self._config.metrics_exporter_type == "DISABLE"

    def ports(self) -> list[int]:
        """Return the ports to try: the configured one, else the one before a restart, else any."""
        configured, before = self._config.metrics_port, self._counters.metrics_port.read()
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
                server = await asyncio.start_server(self._serve, sock=listen(host, port), limit=REQUEST_BYTES_MAX)
            except OSError as error:
                failure = str(error.strerror)
                continue
            self._server = server
            bound = server.sockets[0].getsockname()[1]
            log.info("metrics at http://%s%s", addresses.host_and_port(host, bound), PATH)
            if failure:
                log.warning(
                    "metrics port %d: %s; metrics are served at port %d until the next start;"
                    " set metricsPromExporterPort",
                    self.ports()[0],
                    failure,
                    bound,
                )
            waiting.publish(self._counters.metrics_port, bound)
            return
        if not self._is_told:
            keys = "metricsPromExporterHost, metricsPromExporterPort"
            log.error("metrics cannot be served at %s (%s); will retry", failure, keys)
            self._is_told = True

    async def stop(self) -> None:
        """Stop serving, and close the listening socket."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request. At the limit the oldest connection is closed, so that silent ones keep nobody out."""
        peer, own = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
        if not peer or not own or not may_enter(self._config.metrics_allow_list, peer[0], own[0]):
            self._seldom.tell("%s: refused, metricsAllowList does not list its address", peer)
            writer.transport.abort()
            return
        most = self._config.metrics_connections_max
        if len(self._connections) >= most:
            oldest = next(iter(self._connections))
            del self._connections[oldest]
            oldest.transport.abort()
            self._seldom.tell("%d connections for metrics, the limit: closed the oldest", most)
        self._connections[writer] = None
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                await self._answer(reader, writer)
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError) as error:
            log.debug("a request for metrics failed: %r", error)
        except Exception:
            self._seldom.tell("a request for metrics failed", level=logging.ERROR, error=True)
        finally:
            self._connections.pop(writer, None)
            writer.transport.abort()  # what it has not read by now is lost

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(END_OF_REQUEST)).decode("latin-1").split("\r\n")
        status, content_type, body = await self._response(request)
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + (b"" if request[0].startswith("HEAD ") else body))
        await writer.drain()

    async def _response(self, request: list[str]) -> tuple[HTTPStatus, str, bytes]:
        """(status, content type, body) for the lines of a request."""
        plain = "text/plain; charset=utf-8"
        method, _space, rest = request[0].partition(" ")
        if method not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, plain, b"only GET and HEAD\n"
        path = rest.partition(" ")[0].partition("?")[0]
        if path not in PATHS:
            return HTTPStatus.NOT_FOUND, plain, f"only {', '.join(PATHS)}\n".encode()
        if path != PATH:
            async with self._one_at_a_time:
                health = await self._health(path)
            body = json.dumps(health.to_json()).encode() + b"\n"
            return HTTPStatus.OK if health.ok else HTTPStatus.SERVICE_UNAVAILABLE, "application/json", body
        headers = dict(line.lower().split(":", 1) for line in request[1:] if ":" in line)
        try:
            async with self._one_at_a_time:
                content_type, body = await self._figures(headers.get("accept", "").strip())
        except NoBroker:
            return HTTPStatus.SERVICE_UNAVAILABLE, plain, b"this broker is starting or stopping\n"
        return HTTPStatus.OK, content_type, body

    async def _health(self, path: str) -> Health:
        if path == HEALTH:
            return await asyncio.to_thread(alive, self._config, self._counters)
        end = await self._master_end() if self._config.broker_role is BrokerRole.SLAVE else None
        return await asyncio.to_thread(ready, self._config, self._counters, end)

    async def _figures(self, accept: str) -> tuple[str, bytes]:
        """(content type, body) of figures that are hardly older than this moment. Raises NoBroker.

        They are collected and written on a thread: of many groups they are many, and the loop has others to serve.
        """
        if self._registry is None or time.monotonic() - self._registry_at >= FRESH_SECONDS:
            registry = await asyncio.to_thread(_collected, self._store, await self._sizes())
            self._registry_at, self._registry, self._encoded = time.monotonic(), registry, {}
        encode, content_type = _encoder(accept)
        if content_type not in self._encoded and len(self._encoded) >= ENCODINGS_MAX:
            encode, content_type = _encoder("")
        if content_type not in self._encoded:
            self._encoded[content_type] = content_type, await asyncio.to_thread(encode, self._registry)
        return self._encoded[content_type]


def _encoder(accept: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    """Return the format that a client asks for, and text where the library does not understand the request."""
    from prometheus_client.exposition import choose_encoder

    try:
        return choose_encoder(accept)
    except Exception as error:  # whatever it trips over: the header is a stranger's
        log.debug("Accept: %r: %r", accept, error)
        return choose_encoder("")


class Collected:
    """What the library takes for a source of metrics."""

    def __init__(self, store: str, sizes: TableSizes) -> None:
        self._families = list(families(store, sizes))

    def collect(self) -> list[Metric]:
        """Return what was collected when this was made: the library asks once to register, once to write."""
        return list(self._families)


def _collected(store: str, sizes: TableSizes) -> CollectorRegistry:
    """Return all figures of this moment. Raises NoBroker."""
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    registry.register(Collected(store, sizes))
    return registry
