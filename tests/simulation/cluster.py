"""A cluster in virtual time: nodes with their disks, who is master, and the network between them."""

from __future__ import annotations

from collections.abc import Callable

from engine.protocol.ha.wire import CloseReason
from engine.replication.dial import CONNECT_TIMEOUT_MS
from tests.simulation import settings
from tests.simulation.limits import FIRST_HOST, FIRST_PORT, LOOPBACK
from tests.simulation.logs import Disks, History, Log, counters_of
from tests.simulation.master import Master
from tests.simulation.network import Connection, Weather
from tests.simulation.receiver import Slave
from tests.simulation.referee import Referee
from tests.simulation.rogue import Rogue
from tests.simulation.world import World


class Node:
    """A host with a disk, and the broker on it, if it runs."""

    def __init__(self, name: str, host: int, log: Log) -> None:
        self.name, self.host, self.broker_id = name, host, int(name[1:]) + 1
        self.log = log
        self.history: History | None = None  # that it wrote last, as master
        self.master: Master | None = None
        self.receiver: Slave | None = None
        self.is_off, self.was_slave = False, True
        self.cut_off_until_ms = 0
        self.misled_until_ms = 0  # until then something else answers at its master's address

    @property
    def is_running(self) -> bool:
        """Whether there is a broker."""
        return self.master is not None or self.receiver is not None


class Cluster:
    """All nodes. `leader` is who the slaves are told to follow."""

    def __init__(self, world: World, referee: Referee, disks: Disks, *, are_ours: bool) -> None:
        rng = world.rng
        self.world, self.referee, self.disks = world, referee, disks
        referee.cluster = self
        slaves = rng.choice((0, 1, 1, 2, 2, 2, 3))
        self.settings = settings.chosen(rng, slaves, disks.root, are_ours=are_ours)
        self.weather = Weather(rng.choice((0, 2, 40, 900)), rng.choice((0.0, 0.1, 0.6)))
        is_local = rng.random() < 0.2
        logs = [disks.empty(counters_of(n), self.settings.segment_bytes) for n in range(slaves + 1)]
        hosts = [LOOPBACK if is_local else FIRST_HOST + n for n in range(slaves + 1)]
        self.nodes = [Node(f"n{n}", hosts[n], logs[n]) for n in range(slaves + 1)]
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
        whole = node.log.boundary()
        node.log.recover(is_slave=node.was_slave)
        self.referee.recovered(node, whole)
        node.was_slave = node is not self.leader
        if node is self.leader:
            node.master = Master(self.world, self.referee, self.settings, node.log, self._history_of(node))
        else:
            node.receiver = Slave(self.world, self.settings, node.log, self._connect, node.name, node.broker_id)
        self.world.tell(f"{node.name}: starts as {'master' if node.master else 'slave'} at {node.log.end}")

    def lose_power(self, node: Node) -> None:
        """A node's host loses power, and with it what was not flushed."""
        self.end(node, silently=True)
        on_disk = node.log.boundary(node.log.flushed)
        node.log.lose_power(self.world.rng, is_slave=node.was_slave)
        self.referee.recovered(node, on_disk)

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
        self.referee.reads_again(node)
        for broker in (node.master, node.receiver):
            if broker is not None:
                broker.close(silently=silently)
        node.master = node.receiver = None
        node.is_off = silently
        self.world.tell(f"{node.name}: ends at {node.log.end}{', silently' if silently else ''}")

    # the network

    def _connect(self, receiver: Slave, done: Callable[[Connection | CloseReason], None]) -> None:
        node = next((node for node in self.nodes if node.receiver is receiver), None)
        if node is None:
            return
        delay_ms = self.world.rng.randint(0, self.weather.delay_ms_max)
        self.world.after(delay_ms, lambda: self._arrive(node, receiver, done))

    def _arrive(self, node: Node, receiver: Slave, done: Callable[[Connection | CloseReason], None]) -> None:
        target, now_ms = self.leader, self.world.now_ms
        if node.misled_until_ms > now_ms:
            link = Connection(self.world, self.weather, node.host, FIRST_PORT)
            link.owner = receiver
            Rogue(self.world, link, self.settings, target.log)
            done(link)
        elif target.is_off or max(node.cut_off_until_ms, target.cut_off_until_ms) > now_ms:
            self.world.after(CONNECT_TIMEOUT_MS, lambda: done(CloseReason.CONNECT_TIMEOUT))
        elif target.master is None or not target.master.listening.is_there:
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
        master.listening.bring(link)
        return link
