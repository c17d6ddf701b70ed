"""Where topics lie, and a connection to each broker that they lie on: by name servers, or one broker alone.

Implements: MQClientInstance's routes (spec: remoting, 5 name server, 9 real Java producer)
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from engine.clients.access import Credentials
from engine.clients.connection import Connection
from engine.clients.names import MALFORMED, ClientError, places
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.remoting.places import Place as Place
from engine.protocol.remoting.places import places_in
from engine.remoting.sockets.client import PeerRefused, PeerUnreachable
from store.message.topics import AUTO_CREATE_TOPIC
from store.tables import fastjson

if TYPE_CHECKING:
    from engine.net.tls import RenewedContext

log = logging.getLogger("slipstream.clients")  # what a program should know and no call raises
READ, WRITE = 4, 2
MASTER = 0
QUEUES_MAX = 1 << 16  # of a topic at a broker that are believed
DEFAULT_QUEUES = 4  # of a topic that a message makes

PushedBy = Callable[[str, RemotingCommand], RemotingCommand | None]  # a peer's address and question; our answer


class Route(NamedTuple):
    """A topic's queues to read from and to write to, and its brokers' addresses by name and id."""

    reads: list[Place]
    writes: list[Place]
    brokers: dict[str, dict[int, str]]


class Cluster:
    """The brokers that a client asks. `broker` is the address of one, in place of name servers."""

    def __init__(
        self,
        name_servers: str,
        broker: str | None,
        timeout: float,
        how: RenewedContext | None,
        credentials: Credentials | None = None,
    ) -> None:
        names = places(name_servers, broker)
        self.name_servers = ";".join(names)
        self._names = random.sample(names, len(names))  # as Java's: a random one first
        self._broker, self._timeout, self._how, self._credentials = broker, timeout, how, credentials
        self.on_push: PushedBy | None = None
        self._connections: dict[str, Connection] = {}
        self.addresses: dict[str, dict[int, str]] = {}  # by broker's name and id
        self.client_id = f"{_own_address()}@{os.getpid()}#{time.monotonic_ns()}"  # as Java's: one for each client

    def rename(self, instance: str) -> None:
        """Take a client id that is the same after a restart."""
        self.client_id = f"{_own_address()}@{instance}"

    def to(self, address: str) -> Connection:
        """The connection to an address."""
        if address not in self._connections:
            take = partial(self._take_push, address)
            self._connections[address] = Connection(address, self._timeout, self._how, take, self._credentials)
        return self._connections[address]

    def _take_push(self, address: str, command: RemotingCommand) -> RemotingCommand | None:
        return self.on_push(address, command) if self.on_push is not None else None

    def broker(self, name: str, broker_id: int = MASTER) -> Connection:
        """Return the connection to a broker: the one with that id, else any. Raises ClientError."""
        known = self.addresses.get(name) or {}
        if not known:
            raise ClientError(f"the address of broker {name} is unknown")
        return self.to(known.get(broker_id) or known[min(known)])

    def every_broker(self) -> Iterator[Connection]:
        """Yield connections to all brokers that have topics."""
        for known in self.addresses.values():
            yield from map(self.to, known.values())

    async def close(self) -> None:
        """Close the connections to all brokers."""
        await asyncio.gather(*(connection.close() for connection in self._connections.values()))

    # routes

    async def route(self, topic: str) -> Route | None:
        """Return where a topic lies; None where nobody knows it. Raises PeerUnreachable, PeerRefused, ClientError."""
        try:
            known = await (self._of_broker(topic) if self._broker else self._of_names(topic))
        except MALFORMED as error:
            raise ClientError(f"the answer about topic {topic!r} is malformed: {error!r}") from error
        if known is not None:
            self.addresses |= known.brokers
        return known

    async def route_to_make(self, topic: str) -> Route:
        """Return where a topic that nobody knows would be made by a message. Raises ClientError."""
        if self._broker is not None:
            self.addresses[self._broker] = {MASTER: self._broker}
            return Route([], [Place(topic, self._broker, -1)], self.addresses)  # the broker chooses the queue
        template = await self._of_names(AUTO_CREATE_TOPIC)
        if template is None or not template.writes:
            unknown = f"topic {topic!r} is unknown at {self.name_servers}"
            raise ClientError(f"{unknown}, and no broker creates topics automatically")
        self.addresses |= template.brokers
        writes = [Place(topic, *place[1:]) for place in template.writes if place.queue_id < DEFAULT_QUEUES]
        return Route([], writes, template.brokers)

    async def _of_names(self, topic: str) -> Route | None:
        answer = await self._ask_names({"topic": topic, "acceptStandardJsonOnly": "true"})
        if answer is None:
            return None
        value = fastjson.loads(answer.body, f"the route of {topic}")
        brokers = {
            str(one["brokerName"]): {int(number): str(at) for number, at in one["brokerAddrs"].items()}
            for one in value.get("brokerDatas") or ()
        }
        reads, writes = [], []
        for one in value.get("queueDatas") or ():
            name, perm = str(one["brokerName"]), int(one["perm"])
            read, written = int(one["readQueueNums"]), int(one["writeQueueNums"])
            if max(read, written) > QUEUES_MAX:
                raise ClientError(f"topic {topic!r} has {max(read, written)} queues at {name}, more than {QUEUES_MAX}")
            if perm & READ:
                reads += [Place(topic, name, number) for number in range(read)]
            if perm & WRITE and MASTER in brokers.get(name, {}):
                writes += [Place(topic, name, number) for number in range(written)]
        return Route(sorted(reads), sorted(writes), brokers)

    async def _ask_names(self, fields: Mapping[str, str]) -> RemotingCommand | None:
        failed: PeerUnreachable | None = None
        for address in [*self._names]:
            try:
                answer = await self.to(address).ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
            except PeerUnreachable as unreachable:
                failed = unreachable
                self._names.remove(address)
                self._names.append(address)  # the others are asked first from now on
                continue
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            if answer.code != ResponseCode.SUCCESS:
                raise PeerRefused(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, answer)
            return answer
        assert failed is not None
        raise failed

    async def _of_broker(self, topic: str) -> Route | None:
        assert self._broker is not None
        answer = await self.to(self._broker).ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise PeerRefused(self._broker, RequestCode.GET_TOPIC_STATS_INFO, answer)
        places = sorted(places_in(answer.body, "offsetTable"))
        return Route(places, places, {place.broker: {MASTER: self._broker} for place in places})


def _own_address() -> str:
    """Return the address that client ids begin with."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
