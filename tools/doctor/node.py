"""What is known of a node: its store where that is on this host, and what it answers over the network.

Every question has a deadline and may be refused: what is not answered stays empty, and `silence` says why.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import psutil

from engine.clients.admin import AdminClient
from engine.errors import EngineError
from engine.protocol.broker.log_requests import Extent
from engine.remoting.peers.log_peer import NotOurs, asked_extent
from engine.remoting.sockets.client import RemotingClient
from engine.shared_memory.addresses import host_and_port
from engine.shared_memory.cursors import BrokerCounters
from store.errors import StoreError
from store.reading.extent import Running

if TYPE_CHECKING:
    from engine.net.tls import RenewedContext

EVERYWHERE = ("0.0.0.0", "::", "*")
LOOPBACK = "127.0.0.1"
SAID_BY_EXTENT = {
    "brokerClusterName": "cluster", "brokerName": "broker_name", "brokerId": "broker_id",
    "mappedFileSizeCommitLog": "segment_bytes",
}  # fmt: skip
T = TypeVar("T")


class Asking(NamedTuple):
    """The way to ask questions: seconds for each, and over TLS where `how` is given."""

    timeout: float
    how: RenewedContext | None = None

    def client(self, address: str) -> RemotingClient:
        """A connection to that address."""
        return RemotingClient(address, self.timeout, self.how)

    def admin(self, name_servers: str = "") -> AdminClient:
        """Return a client for administrators' requests."""
        return AdminClient(name_servers, self.timeout, self.how)


@dataclass
class Node:
    """One broker. `listening` has the addresses of this host's listening sockets by port."""

    target: str
    address: str  # host:port of its listenPort, as asked from here
    running: Running | None = None
    listening: dict[int, list[str]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    runtime: dict[str, str] = field(default_factory=dict)
    extent: Extent | None = None
    ahead_ms: float | None = None  # its clock against ours
    silence: dict[str, str] = field(default_factory=dict)  # what was asked: why it was not answered
    is_ours: bool = True

    @property
    def store(self) -> Path | None:
        """Return the node's store, where that is on this host."""
        return self.running.store_root if self.running is not None else None

    @property
    def host(self) -> str:
        """Return the host at which the node is asked."""
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """Return the node's listenPort."""
        return int(self.address.rpartition(":")[2])

    def setting(self, name: str) -> str:
        """Return a setting as its file would have it; empty where it is unknown."""
        own = self.running.settings.get(name) if self.running is not None else None
        if own is None and self.extent is not None and name in SAID_BY_EXTENT:
            own = getattr(self.extent, SAID_BY_EXTENT[name])
        return self.settings.get(name) or ("" if own is None else str(own))


def of_store(running: Running, asking: Asking) -> Node:
    """The broker that runs on a store of this host. Raises RegionMissing, BrokerOutOfReach."""
    with closing(running.counters()) as counters:
        listen_port = counters.cursor("listen_port").read()
    named = str(running.settings["storeHost"])
    listening = sockets()
    port = listen_port or int(named.rpartition(":")[2])
    at = listening.get(port, [])
    host = LOOPBACK if set(at) & set(EVERYWHERE) else at[0] if at else named.rpartition(":")[0].strip("[]")
    return _asked(Node(str(running.store_root), host_and_port(host, port), running, listening), asking)


def of_address(address: str, asking: Asking) -> Node:
    """Return the broker at HOST:PORT, with its answers."""
    host = address.rpartition(":")[0].strip("[]")
    is_here = host in ("localhost", "::1") or host.startswith("127.")
    return _asked(Node(address, address, listening=sockets() if is_here else {}), asking)


def sockets() -> dict[int, list[str]]:
    """Return where this host's processes listen, by port; those of this network namespace."""
    by_port: dict[int, list[str]] = {}
    with suppress(psutil.Error, OSError):
        for one in psutil.net_connections(kind="tcp"):
            if one.status == psutil.CONN_LISTEN and one.laddr:
                by_port.setdefault(one.laddr.port, []).append(one.laddr.ip)
    return {port: sorted(set(hosts)) for port, hosts in by_port.items()}


def counters_of(running: Running) -> BrokerCounters:
    """Return the broker's counters. Raises RegionMissing, BrokerOutOfReach."""
    return BrokerCounters.attach(running.region_directory)


def _asked(node: Node, asking: Asking) -> Node:
    with asking.admin() as client:
        node.runtime = _answer(node, "figures", lambda: client.runtime(node.address)) or {}
        if "figures" in node.silence and not node.running:
            return node
        node.settings = _answer(node, "settings", lambda: client.config(node.address)) or {}
    node.extent, node.ahead_ms = _clocked(node, asking)
    return node


def _answer(node: Node, what: str, ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except (EngineError, StoreError, LookupError, ValueError, UnicodeDecodeError) as error:
        node.silence[what] = str(error)
        return None


def _clocked(node: Node, asking: Asking) -> tuple[Extent | None, float | None]:
    """Return the node's extent, and by how much its clock is at least ahead: it answered between two looks here."""
    with asking.client(node.address) as client:
        begun_ms, begun = time.time() * 1000, time.monotonic()
        try:
            extent = asked_extent(client)
        except NotOurs as error:
            node.is_ours = False
            node.silence["extent"] = str(error)
            return None, None
        except (EngineError, StoreError) as error:
            node.silence["extent"] = str(error)
            return None, None
        took_ms = (time.monotonic() - begun) * 1000
        return extent, max(0.0, extent.now_ms - (begun_ms + took_ms)) + min(0.0, extent.now_ms - begun_ms)
