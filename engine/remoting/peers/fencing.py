"""Asks the name servers who else holds id 0 of a broker's name, and that broker for its epoch: within six seconds.

A name server that does not answer, a broker that is gone, or one of RocketMQ's, says nothing.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from engine.errors import EngineError
from engine.net import tls
from engine.net.tls import RenewedContext
from engine.protocol.broker.log_requests import Extent
from engine.protocol.remoting.codes import RequestCode
from engine.remoting.peers.log_peer import asked_extent
from engine.remoting.sockets.client import RemotingClient
from engine.settings.config import BrokerConfig
from ipc.clock import wall_ms
from store.errors import StoreError
from store.files.epochs import Epochs, Fence
from store.tables import fastjson

SECONDS, OF_ONE_SECONDS = 6.0, 2.0  # a busy machine takes its time, and a second master costs more
BODY_BYTES_MAX = 16 << 20
MASTER_ID = 0


class Master(NamedTuple):
    """A broker that the name servers call the master, at its remoting address, and what it says of itself."""

    address: str
    extent: Extent


def newer_master(config: BrokerConfig, known: Epochs) -> Fence | None:
    """The master of this broker's name whose epoch is above ours, or is ours and another's; None without one."""
    own = f"{config.broker_ip1}:{config.listen_port}"
    how = tls.of_broker(config).client
    other = other_master(config.name_servers, config.broker_cluster_name, config.broker_name, own, how)
    if other is None or not other.extent.is_master or other.extent.epoch < max(1, known.last_epoch):
        return None
    if other.extent.epoch == known.last_epoch and other.extent.identity == known.entries[-1].broker:
        return None
    return Fence(other.extent.epoch, other.extent.identity, other.extent.ha_address, wall_ms())


def other_master(
    name_servers: tuple[str, ...], cluster: str, broker_name: str, own: str, how: RenewedContext | None
) -> Master | None:  # fmt: skip
    """The master of that name that answers and is not at our own address."""
    until = time.monotonic() + SECONDS
    for name_server in name_servers:
        address = _registered(name_server, cluster, broker_name, until, how)
        if address is None or address == own:
            continue
        try:
            with RemotingClient(address, _left(until), how) as client:
                extent = asked_extent(client)
        except (EngineError, StoreError):
            continue
        if (extent.cluster, extent.broker_name) == (cluster, broker_name):
            return Master(address, extent)
    return None


def _left(until: float) -> float:
    return max(0.05, min(OF_ONE_SECONDS, until - time.monotonic()))


def _registered(
    name_server: str, cluster: str, broker_name: str, until: float, how: RenewedContext | None
) -> str | None:  # fmt: skip
    """Where that name server says the master is."""
    if time.monotonic() >= until:
        return None
    try:
        with RemotingClient(name_server, _left(until), how) as client:
            body = client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
        broker = fastjson.loads(body, "the cluster's brokers", BODY_BYTES_MAX)["brokerAddrTable"][broker_name]
        addresses = {int(number): address for number, address in broker["brokerAddrs"].items()}
        address = addresses.get(MASTER_ID)
        return address if broker["cluster"] == cluster and isinstance(address, str) else None
    except (EngineError, StoreError, LookupError, TypeError, ValueError, AttributeError):
        return None
