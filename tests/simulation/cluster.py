"""A cluster in virtual time: nodes with their disks, who is master, and the network between them."""

from __future__ import annotations

import random
from collections.abc import Callable

from engine.protocol.ha.client_kernel import ClientLimits
from engine.protocol.ha.connection_kernel import ConnectionLimits
from engine.protocol.ha.policy import PutPolicy
from engine.protocol.ha.wire import CloseReason
from tests.simulation.limits import (
    FIRST_HOST,
    FIRST_PORT,
    FLUSH_TIMEOUT_MS,
    HEARTBEAT_MS,
    HOUSEKEEPING_MS,
    LOOPBACK,
    RECONNECT_MS,
    SLAVE_TIMEOUT_MS,
)
from tests.simulation.logs import History, Log
from tests.simulation.master import Master, Settings
from tests.simulation.network import Connection, Weather
from tests.simulation.receiver import CONNECT_TIMEOUT_MS, Receiver
from tests.simulation.referee import Referee
from tests.simulation.rogue import Rogue
from tests.simulation.world import World


class Node:
    """A host with a disk, and the broker on it, if it runs."""

    def __init__(self, name: str, host: int) -> None:
        self.name, self.host, self.broker_id = name, host, int(name[1:]) + 1
        self.log = Log()
        self.history: History | None = None  # that it wrote last, as master
        self.master: Master | None = None
        self.receiver: Receiver | None = None
        self.is_off = False
        self.cut_off_until_ms = 0
        self.misled_until_ms = 0  # until then something else answers at its master's address

    @property
    def is_running(self) -> bool:
        """Whether there is a broker."""
        return self.master is not None or self.receiver is not None


def chosen_settings(rng: random.Random, slaves: int, *, are_ours: bool) -> Settings:
    """What somebody may configure."""
    replicas = rng.randint(1, slaves + 1) if rng.random() < 0.95 else slaves + 2
    is_automatic = replicas > 1 and rng.random() < 0.25
    policy = PutPolicy(
        replicas,
        rng.random() < 0.3,
        rng.random() < 0.5,
        is_automatic,
        rng.randint(1, replicas) if is_automatic else 0,
    )
    segment = rng.choice((2048, 4096, 16_384))
    flow_limit, overlap_bytes = rng.choice((0, 0, 0, 1500)), rng.choice((200, 2000, 65_536))
    return Settings(
        policy,
        ConnectionLimits(segment, rng.choice((100, 1000, 32_768)), HEARTBEAT_MS, HOUSEKEEPING_MS, SLAVE_TIMEOUT_MS),
        ClientLimits(segment, HEARTBEAT_MS, HOUSEKEEPING_MS, RECONNECT_MS),
        flow_limit=flow_limit,
        fallbehind_bytes_max=rng.choice((1000, 1 << 20)),
        slave_timeout_ms=SLAVE_TIMEOUT_MS,
        flush_timeout_ms=FLUSH_TIMEOUT_MS,
        flush_every_ms=rng.choice((200, 500, 5000)),
        are_ours=are_ours,
        whole_history=are_ours and rng.random() < 0.7,
        counts_flushed=are_ours and rng.random() < 0.2,
        secret=rng.choice((b"", b"a secret")),
        overlap_bytes=min(overlap_bytes, flow_limit or overlap_bytes),  # it has to pass while strangers want the slot
    )


class Cluster:
    """All nodes. `leader` is who the slaves are told to follow."""

    def __init__(self, world: World, referee: Referee, *, are_ours: bool) -> None:
        rng = world.rng
        self.world, self.referee = world, referee
        referee.cluster = self
        slaves = rng.choice((0, 1, 1, 2, 2, 2, 3))
        self.settings = chosen_settings(rng, slaves, are_ours=are_ours)
        self.weather = Weather(rng.choice((0, 2, 40, 900)), rng.choice((0.0, 0.1, 0.6)))
        is_local = rng.random() < 0.2
        self.nodes = [Node(f"n{n}", LOOPBACK if is_local else FIRST_HOST + n) for n in range(slaves + 1)]
        self.links: list[Connection] = []
        self._ports = FIRST_PORT
        self.leader = self.nodes[0]
        self.begin()

    def begin(self) -> None:
        """An empty master, and empty slaves."""
        self.start(self.leader)
        for node in self.slaves:
            self.start(node)

    @property
    def slaves(self) -> list[Node]:
        """All but the leader."""
        return [node for node in self.nodes if node is not self.leader]

    # brokers

    def start(self, node: Node) -> None:
        """Start a node's broker, in the role that is its now; what its recovery keeps are whole records."""
        assert not node.is_running
        node.is_off = False
        if node.log.end != node.log.boundary():
            node.log.cut(node.log.boundary())
            self.referee.forget(node)
        if node is self.leader:
            node.master = Master(self.world, self.referee, self.settings, node.log, self._history_of(node))
        else:
            node.receiver = Receiver(self.world, self.settings, node.log, self._connect, node.name, node.broker_id)
        self.world.tell(f"{node.name}: starts as {'master' if node.master else 'slave'} at {node.log.end}")

    def _history_of(self, node: Node) -> History:
        """The one that a master writes on: where its log is not all of that, another one forks."""
        log = node.log
        if not log.end:
            node.history = self.referee.new_history(f"h{len(self.referee.histories)}")
            return node.history
        before = self.referee.followed(node)
        if node.history is before and len(before.data) == log.end:
            return before
        node.history = self.referee.new_history(f"h{len(self.referee.histories)}", bytes(before.data[: log.end]))
        return node.history

    def end(self, node: Node, *, silently: bool = False) -> None:
        """End a node's broker: its peers are told by the system, or they are not; on their own host always."""
        silently = silently and node.host != LOOPBACK
        for broker in (node.master, node.receiver):
            if broker is not None:
                broker.close(silently=silently)
        node.master = node.receiver = None
        node.is_off = silently
        self.world.tell(f"{node.name}: ends at {node.log.end}{', silently' if silently else ''}")

    # the network

    def _connect(self, receiver: Receiver, done: Callable[[Connection | CloseReason], None]) -> None:
        node = next((node for node in self.nodes if node.receiver is receiver), None)
        if node is None:
            return
        delay_ms = self.world.rng.randint(0, self.weather.delay_ms_max)
        self.world.after(delay_ms, lambda: self._arrive(node, receiver, done))

    def _arrive(self, node: Node, receiver: Receiver, done: Callable[[Connection | CloseReason], None]) -> None:
        target, now_ms = self.leader, self.world.now_ms
        if node.misled_until_ms > now_ms:
            link = Connection(self.world, self.weather, node.host, FIRST_PORT)
            link.owner = receiver
            Rogue(self.world, link, self.settings, target.log)
            done(link)
        elif target.is_off or max(node.cut_off_until_ms, target.cut_off_until_ms) > now_ms:
            self.world.after(CONNECT_TIMEOUT_MS, lambda: done(CloseReason.CONNECT_TIMEOUT))
        elif target.master is None:
            done(CloseReason.NO_LISTENER)
        else:
            link = self.call(target.master, node.host)
            link.owner = receiver
            done(link)

    def call(self, master: Master, host: int) -> Connection:
        """A connection to a master that is there."""
        self._ports += 1
        link = Connection(self.world, self.weather, host, self._ports)
        self.links = [*[one for one in self.links if not one.to_caller.is_ended][-50:], link]
        master.accept(link)
        return link
