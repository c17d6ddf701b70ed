"""A slave in virtual time: the real receiver, allocator and flusher on a real log, behind a simulated network."""

from __future__ import annotations

import socket
from collections.abc import Callable

from engine.keeping.allocator import Allocator
from engine.keeping.empty_log import unused_before
from engine.protocol.ha.client import HaClientState
from engine.protocol.ha.hello import SlaveGreeting
from engine.protocol.ha.opening import NO_TAIL, Tail
from engine.protocol.ha.wire import CloseReason
from engine.replication.dial import Address, Dial, Dialed, NotConnected
from engine.replication.flush_reports import FlushReports
from engine.replication.receiver import Receiver
from tests.simulation.flusher import Flushing
from tests.simulation.logs import Log
from tests.simulation.network import Connection
from tests.simulation.plug import Plug
from tests.simulation.referee import Broken
from tests.simulation.settings import MASTER, Settings
from tests.simulation.world import Actor, World

NOTE_LOOK_MS = 1000
KEPT_WITHIN_MS = 5

# Asks the network for a connection to the master that this slave knows; it says later what came of it.
Connect = Callable[["Slave", Callable[[Connection | CloseReason], None]], None]


class RocketMqReceiver(Receiver):
    """A receiver that neither says who it is nor compares logs, as RocketMQ's."""

    def greeting(self) -> SlaveGreeting | None:
        """Return nothing: it has no greeting."""
        return None

    def tail(self) -> Tail:
        """Return nothing: it begins with its end."""
        return NO_TAIL


class SimulatedDial(Dial):
    """Asks the simulated network in place of the system."""

    def __init__(self, slave: Slave, connect: Connect) -> None:
        super().__init__(slave.log.counters.ha_listen_port)
        self._slave, self._connects_by = slave, connect
        self._is_begun = False
        self._outcome: Connection | CloseReason | None = None

    @property
    def is_begun(self) -> bool:
        """Whether the network has yet to answer, or has answered."""
        return self._is_begun

    def begin(self, master: Address, attempt: int, now_ms: int) -> None:
        """Ask the network."""
        self._is_begun, self._outcome = True, None
        self._connects_by(self._slave, self._came)

    def _came(self, outcome: Connection | CloseReason) -> None:
        if self._slave.is_gone and isinstance(outcome, Connection):
            outcome.to_listener.end()
        self._outcome = outcome
        self._slave.wake()

    def turn(self, now_ms: int) -> Dialed | None:
        """Return the connection that the network gave."""
        if self._outcome is None:
            return None
        outcome, self._outcome, self._is_begun = self._outcome, None, False
        if isinstance(outcome, CloseReason):
            raise NotConnected(outcome, "")
        return Dialed(self._slave.begin(outcome), MASTER)

    def close(self) -> None:
        """Nothing is asked any more."""
        if isinstance(self._outcome, Connection):
            self._outcome.to_listener.end()
        self._is_begun, self._outcome = False, None


class SimulatedFlushReports(FlushReports):
    """Tells what is on disk in turns of the receiver and the flusher, not in a thread."""

    def __init__(self, log: Log) -> None:
        super().__init__(log.counters.flushed_offset)
        self._told: tuple[socket.socket, int] | None = None

    def start(self, sock: socket.socket) -> None:
        """Report on this connection from now on."""
        self._told = sock, -1

    def stop(self) -> None:
        """Report nothing any more."""
        self._told = None

    def turn(self) -> None:
        """Tell what is new."""
        if self._told is not None:
            sock, told = self._told
            self._told = sock, self.tell(sock, told)


class Slave(Actor):
    """A broker that is a slave, from its start to its end; its turn is the receiver's."""

    def __init__(self, world: World, settings: Settings, log: Log, connect: Connect, name: str, broker_id: int) -> None:
        super().__init__(world)
        self.broker_id, self.log, self.name = broker_id, log, name
        self.settings, self.connects_by = settings, connect
        self.link: Connection | None = None
        self._plug: Plug | None = None
        self.farthest, config = log.end, settings.of_slave(log.root, broker_id)
        log.dispatch()
        self._dial, self.flush_reports = SimulatedDial(self, connect), SimulatedFlushReports(log)
        self._receiver = (Receiver if settings.are_ours else RocketMqReceiver)(
            config,
            log.counters,
            log.files,
            settings.client_limits,
            dial=self._dial,
            flush_reports=self.flush_reports,
        )
        self._receiver.overlap_bytes = settings.overlap_bytes
        self.client = self._receiver.client
        self._flushing = Flushing(world, log, config, self._flushed)
        self._keeper = Keeper(world, log, self.wake)
        self.wake()

    def close(self, *, silently: bool) -> None:
        """End the broker. After a kill the system tells the master; after a power cut (`silently`) nobody does."""
        self.is_gone = self._keeper.is_gone = True
        self._flushing.close()
        if self.link is not None and silently:
            self.link.die()
        with self.log.unsaid():
            self._receiver.close()
        if self._plug is not None:
            self._plug.finish()

    def begin(self, link: Connection) -> socket.socket:
        """Return the receiver's socket of a connection that the network gave."""
        self.link = link
        self._plug = Plug(link, self, is_callers=True)
        return self._plug.socket

    def turn(self) -> None:
        """Connect, or receive what is there and report."""
        link, receiver, now_ms = self.link, self._receiver, self.world.now_ms
        if self._plug is not None and link is not None:
            self._plug.deliver(self.world.rng.randint(1, 40) if link.breaks_in_head else None)
        while receiver.do_work(now_ms):
            pass
        self.flush_reports.turn()
        self.farthest = self.log.end
        if self._plug is not None:
            self._send(self._plug, is_new=link is None)
        self._flushing.look()
        self._keeper.look()
        if self.link is not None and self.link.breaks_in_head and self.client.max_physical_offset > self.client.end:
            self.link.reset()
        self._sleep()

    def _send(self, plug: Plug, *, is_new: bool) -> None:
        if self.client.state is HaClientState.TRANSFER:
            plug.collect()
        else:
            self.world.tell(f"{self.name}: {self.client.reason.name} at {self.log.end}")
            plug.finish()
        if is_new and self.link is not None and not self.link.to_listener.has_been_sent:
            raise Broken("a slave reports at once", self.name)
        if self.client.state is not HaClientState.TRANSFER:
            self.link = self._plug = None

    def _sleep(self) -> None:
        if self.client.state is not HaClientState.TRANSFER and self.log.is_diverged:
            self.wake(NOTE_LOOK_MS)
        elif self.link is not None and self.link.to_caller.inbox:
            self.wake(1)
        elif not self._dial.is_begun:  # else the network wakes it
            self.wake(max(self.client.wait_ms(self.world.now_ms), 1))

    def _flushed(self) -> None:
        """Tell a master that waits for the disk, and let the dispatcher follow: the mark does."""
        self.flush_reports.turn()
        if self._plug is not None:
            self._plug.collect()
        self.log.dispatch()


class Keeper(Actor):
    """The allocator, and what the housekeeper does for an empty log; wakes who waits for that."""

    def __init__(self, world: World, log: Log, wake_follower: Callable[[], None]) -> None:
        super().__init__(world)
        self._log, self._wake_follower = log, wake_follower
        self._allocator = Allocator(log.counters, log.files)
        self._seen = -1

    def look(self) -> None:
        """Work soon if another segment is asked for."""
        asked = self._log.counters.segment_request_offset.read()
        if asked != self._seen:
            self._seen = asked
            self.wake(self.world.rng.randint(0, KEPT_WITHIN_MS))

    def turn(self) -> None:
        """Make the segments that are asked for."""
        counters, files = self._log.counters, self._log.files
        asked = counters.segment_request_offset.read()
        before = unused_before(counters, files, asked)
        if before is not None:
            self._log.expire(files.base_of(asked))
        while self._allocator.do_work(self.world.now_ms):
            pass
        self._wake_follower()
