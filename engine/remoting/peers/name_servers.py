"""Which name servers a broker has: those that its file lists, or what DNS or an address server answers, asked again.

Implements: BrokerController.updateNamesrvAddr, BrokerOuterAPI.fetchNameServerAddr, DefaultTopAddressing
"""

from __future__ import annotations

import asyncio
import http.client
import socket
import time
from typing import cast

from engine.net.printable import printable
from engine.net.rare_lines import RareLines
from engine.remoting.loop.role_tasks import RoleTasks
from engine.settings.config import BrokerConfig
from ipc.clock import monotonic_ms
from ipc.host_port import host_port
from ipc.timed_socket import TimedSocket

LOOKUP_SECONDS = 3.0
ANSWER_BYTES_MAX = 64 * 1024
ADDRESSES_MAX = 64  # that are believed
HTTP_PORT, HTTP_OK = 8080, 200
RETRY_MS = 1000  # while none is known
LOOKUP = "name servers"


class LookupFailed(Exception):
    """Raised when an address server or DNS gives no name server; says what was asked and what came."""


class NameServers:
    """A broker's name servers `now`, each `host:port`. A look-up that fails leaves them as they are."""

    def __init__(self, config: BrokerConfig, tasks: RoleTasks, lines: RareLines) -> None:
        self.config, self._tasks, self._lines = config, tasks, lines
        self.now = () if is_looked_up(config) else config.name_servers
        self._due_ms = 0

    def turn(self, now_ms: int) -> None:
        """Look them up again where that is due."""
        if is_looked_up(self.config) and now_ms >= self._due_ms and LOOKUP not in self._tasks:
            self._due_ms = now_ms + RETRY_MS
            self._tasks.begin(LOOKUP, self._renew())

    async def _renew(self) -> None:
        try:
            addresses = await asyncio.to_thread(looked_up, self.config)
        except LookupFailed as error:
            self._lines.tell(LOOKUP, monotonic_ms(), "%s", error)
            return
        by_dns = bool(self.config.name_servers)
        period_ms = self.config.update_name_server_addr_period_ms if by_dns else self.config.fetch_namesrv_interval_ms
        self._due_ms, before, self.now = monotonic_ms() + period_ms, self.now, addresses
        if set(before) != set(addresses):
            self._lines.tell(LOOKUP, monotonic_ms(), "name servers are now %s", ";".join(addresses))


def is_looked_up(config: BrokerConfig) -> bool:
    """Whether the file says where to ask for name servers, instead of which they are."""
    return config.fetch_name_servers_by_dns if config.name_servers else config.fetch_name_servers_by_address_server


def looked_up(config: BrokerConfig) -> tuple[str, ...]:
    """A broker's name servers, within LOOKUP_SECONDS and the time that DNS takes. Raises LookupFailed."""
    if not is_looked_up(config):
        return config.name_servers
    if config.name_servers:
        return _of_name(config.name_servers[0])
    return _of_address_server(config.namesrv_domain, f"/rocketmq/{config.namesrv_domain_subgroup}")


def _of_name(name: str) -> tuple[str, ...]:
    host, port = cast(tuple[str, int], host_port(name))
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise LookupFailed(f"namesrvAddr={name}: DNS has no address of it: {error.strerror}") from None
    hosts = dict.fromkeys(str(answer[4][0]) for answer in answers[:ADDRESSES_MAX])
    return tuple(f"[{one}]:{port}" if ":" in one else f"{one}:{port}" for one in hosts)


def _of_address_server(domain: str, path: str) -> tuple[str, ...]:
    """The name servers in the first line that an address server answers."""
    place = host_port(domain) or (domain, HTTP_PORT)
    asked = f"address server http://{place[0]}:{place[1]}{path}"
    try:
        status, text = _answer_of(place, path)
    except (OSError, http.client.HTTPException) as error:
        reason = "timed out" if isinstance(error, TimeoutError) else printable(str(error)) or type(error).__name__
        raise LookupFailed(f"{asked}: {reason}; is it running?") from None
    if status != HTTP_OK:
        raise LookupFailed(f"{asked}: it answers {status}; see rocketmq.namesrv.domain")
    line = next(iter(text.strip().splitlines()), "")
    addresses = [part for part in map(str.strip, line.split(";")) if part]
    if not addresses or len(addresses) > ADDRESSES_MAX or not all(map(host_port, addresses)):
        raise LookupFailed(f"{asked}: {printable(line[:200])!r} is no list of HOST:PORT, separated by semicolons")
    return tuple(dict.fromkeys(addresses))


def _answer_of(place: tuple[str, int], path: str) -> tuple[int, str]:
    """The status and the text of an answer, its first ANSWER_BYTES_MAX bytes. Raises OSError, HTTPException."""
    deadline, connection = time.monotonic() + LOOKUP_SECONDS, http.client.HTTPConnection(*place)
    with socket.create_connection(place, LOOKUP_SECONDS) as plain:
        connection.sock = TimedSocket(plain, deadline)
        connection.request("GET", path)
        response = connection.getresponse()
        data = response.read(ANSWER_BYTES_MAX)
    if response.length and len(data) < ANSWER_BYTES_MAX:
        raise http.client.IncompleteRead(data, response.length)
    return response.status, data.decode("ascii", "replace")
