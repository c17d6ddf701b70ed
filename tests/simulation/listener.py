"""A listener in virtual time: the real one, over all of its processes. A fork makes an actor, not a process."""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections import deque
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from engine.replication import sender
from engine.replication.ha_listener import LOOK_MS, HaListener
from engine.replication.ha_senders import Accepted, Beginning, SenderDeaths, SenderForks, SenderProcess
from engine.role import IDLE_MS_MAX
from engine.shared_memory.cursors import HaSlotState
from engine.shared_memory.failures import Failures
from tests.simulation.limits import CALLERS_MAX, HOUSEKEEPING_MS
from tests.simulation.network import Connection
from tests.simulation.plug import Plug
from tests.simulation.referee import Broken
from tests.simulation.sender import Sending
from tests.simulation.settings import MASTER
from tests.simulation.world import Actor, World

if TYPE_CHECKING:
    from tests.simulation.master import Master

BACK_WITHIN_MS = (10, 300, 1000)
DEAD_WITHIN_MS = (0, 1, 250)
TURNS_MAX = 1000  # of one moment: there are not as many connections


@cache
def failures() -> Failures:
    """Return a region of this process; no file of it is left."""
    with TemporaryDirectory() as directory:
        return Failures.create(Path(directory))


class Arrivals(socket.socket):
    """The listening socket: it can be read as long as somebody waits to be accepted, of whom the network tells it."""

    def __init__(self, world: World) -> None:
        own, self._bell = socket.socketpair()
        super().__init__(fileno=own.detach())
        self._world = world
        self.came, self.accepted_ms = deque[Accepted](), dict[socket.socket, int]()
        self.has_room = True
        self.setblocking(False)

    def bring(self, accepted: Accepted) -> None:
        """Have somebody wait."""
        self.came.append(accepted)
        self._bell.send(b"\0")

    def accept(self) -> Accepted:
        """Return who waits longest. Raises BlockingIOError, OSError."""
        if not self.has_room:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.recv(1)
        accepted = self.came.popleft()
        self.accepted_ms[accepted.sock] = self._world.now_ms
        return accepted

    def getsockname(self) -> tuple[str, int]:
        """Return where slaves expect their master."""
        return MASTER

    def close(self) -> None:
        """Hang up on nobody: who waits is the network's."""
        self._bell.close()
        super().close()


class ActorForks(SenderForks):
    """Senders as actors. An eventfd tells the end of one; until it is reaped it is one of `sendings`."""

    def __init__(self, listening: Listening, deaths: SenderDeaths) -> None:
        self._listening, self._world = listening, listening.world
        self.sendings: dict[int, Sending] = {}  # by process id
        self.has_room = True
        self._ends: dict[int, int] = {}  # their eventfds
        self._killed: set[int] = set()
        master = listening.master
        super().__init__(master.config, master.log.counters, deaths, sender.open_role)

    def begin(self, begins_with: Beginning, close_inherited: Callable[[], None]) -> tuple[int, int]:
        """Begin an actor. Raises OSError."""
        if not self.has_room:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if any(begins_with.slot == sending.words.slot for sending in self.sendings.values()):
            raise Broken("a slot has one sender", f"{begins_with.slot} is given to another one")
        pid, pidfd = self._listening.next_pid(), os.eventfd(0, os.EFD_NONBLOCK)
        self._ends[pid] = pidfd
        plug = self._listening.forked(begins_with.accepted.sock)
        self.sendings[pid] = Sending(self._listening.master, plug, begins_with, lambda: self._ended(pid))
        return pid, pidfd

    def _ended(self, pid: int) -> None:
        if pid in self._ends:  # else its listener is gone, too
            os.eventfd_write(self._ends[pid], 1)
            self._listening.wake()

    def send_signal(self, process: SenderProcess, number: signal.Signals) -> None:
        """Kill an actor: what it does ends at once, that is known a little later."""
        if number == signal.SIGKILL and process.pid in self._killed:
            raise Broken("the listener kills a sender once", f"sender.{process.slot} is killed again")
        self._killed.add(process.pid)
        self.sendings[process.pid].killed(self._world.rng.choice(DEAD_WITHIN_MS))

    def await_end(self, process: SenderProcess, timeout_ms: int) -> bool:
        """Whether an actor has ended: nothing here waits."""
        return self.sendings[process.pid].is_gone

    def reap(self, process: SenderProcess) -> int:
        """Forget an actor that has ended; its status."""
        os.close(self._ends.pop(process.pid))
        return self.sendings.pop(process.pid).status


class Listening(Actor):
    """The listener of a master, over all of its processes, and the sockets of who has no sender yet."""

    def __init__(self, master: Master) -> None:
        super().__init__(master.world)
        self.master, self._log = master, master.log
        self._plugs: list[Plug] = []
        self._pids = 0
        self._turns = (0, 0)  # of this moment
        self._begin()

    def _begin(self) -> None:
        self._arrivals = Arrivals(self.world)
        counters = self._log.counters
        deaths = SenderDeaths(counters, failures())
        self._forks = ActorForks(self, deaths)
        self._listener: HaListener | None = HaListener(
            self.master.config, counters, self._arrivals, self._forks, deaths, CALLERS_MAX
        )
        self.wake()

    def next_pid(self) -> int:
        """Return the id of another process."""
        self._pids += 1
        return self._pids

    @property
    def is_there(self) -> bool:
        """Whether anybody accepts connections, or will."""
        return self._listener is not None

    @property
    def sendings(self) -> list[Sending]:
        """The senders that there are, and those that have ended and were not reaped."""
        return list(self._forks.sendings.values())

    @property
    def _slots(self) -> set[int]:
        return {sending.words.slot for sending in self.sendings}

    @property
    def callers(self) -> int:
        """How many wait for a slot, or have not said anything yet."""
        return len(self._plugs) - len(self._arrivals.came)

    # the network

    def bring(self, link: Connection) -> None:
        """A connection came; without a listener it is refused."""
        if self._listener is None:
            link.reset()
            return
        plug = Plug(link, self)
        self._plugs.append(plug)
        self._arrivals.bring(Accepted(plug.socket, (socket.inet_ntoa(link.host.to_bytes(4, "big")), link.port)))
        self.wake()

    def forked(self, sock: socket.socket) -> Plug:
        """Return the connection that a child has inherited."""
        plug = next(plug for plug in self._plugs if plug.socket is sock)
        self._plugs.remove(plug)
        plug.inherit()
        return plug

    def lack_room(self, lasts_ms: int) -> None:
        """The system has neither a descriptor nor a process to give, for a while."""
        arrivals, forks = self._arrivals, self._forks
        arrivals.has_room = forks.has_room = False

        def recover() -> None:
            arrivals.has_room = forks.has_room = True

        self.world.after(lasts_ms, recover)

    # turns

    def turn(self) -> None:
        """Let callers say what has come of them, and the listener do what it likes."""
        if self._listener is None:
            self._begin()
        assert self._listener is not None
        for plug in self._plugs:
            plug.deliver(whole=True)  # as a system does
        slots, bell = self._slots, self._log.counters.ack_bell.read()
        moved = self._listener.do_work(self.world.now_ms)
        if slots - self._slots and bell == self._log.counters.ack_bell.read():
            raise Broken("an ended sender rings the bell", f"the senders of {slots - self._slots} are gone")
        for plug in [one for one in self._plugs if one.is_closed]:
            self._plugs.remove(plug)
            plug.finish()
        self._look(self._listener)
        self.master.follow()
        has_more = any(plug.has_more for plug in self._plugs)
        self.wake(0 if moved else 1 if has_more else max(self._listener.wait_ms(IDLE_MS_MAX), 1))

    def _look(self, listener: HaListener) -> None:
        at_ms, turns = self._turns
        self._turns = self.world.now_ms, turns + 1 if at_ms == self.world.now_ms else 1
        if self._turns[1] > TURNS_MAX:
            raise Broken("a listener sleeps", f"{TURNS_MAX} turns at {at_ms}")
        slots = self._slots
        for words in self._log.counters.ha:
            if words.slot not in slots and words.state.read() != HaSlotState.FREE:
                raise Broken("a slot without a sender is free", f"{words.slot} is {words.state.read()}")
        for plug in self._plugs:
            waits_ms = at_ms - self._arrivals.accepted_ms.get(plug.socket, at_ms)
            if waits_ms > 2 * HOUSEKEEPING_MS + LOOK_MS:  # before its report, and after it
                raise Broken("nobody waits for ever", f"{plug.link.host}:{plug.link.port} waits for {waits_ms} ms")
        for process in listener._senders.values():
            connection = self._forks.sendings[process.pid].connection
            if process.is_proven and not 0 <= connection.slave_request_offset < connection.slave_ack_offset:
                raise Broken("who has acknowledged nothing has proved nothing", f"sender.{process.slot}")

    # its end

    def kill(self) -> None:
        """Its process is killed, and its senders die with it; the supervisor begins another one."""
        if self._listener is not None:
            self._end()
            self.stopped_until_ms = self.world.now_ms + self.world.rng.choice(BACK_WITHIN_MS)
            self.wake()

    def close(self, *, silently: bool) -> None:
        """All of it is gone: its peers are told, or they are not."""
        if silently:
            for plug in (*self._plugs, *(sending.plug for sending in self.sendings)):
                plug.link.die()
        self.is_gone = True
        if self._listener is not None:
            self._end()

    def _end(self) -> None:
        assert self._listener is not None
        sendings = self._forks.sendings.copy()
        for sending in sendings.values():
            sending.close()
        with self._log.unsaid():
            self._listener.close()
        self._forks.sendings = sendings  # whose slots are taken until there is another listener
        self._listener = None
        for plug in self._plugs:
            plug.finish()
        self._plugs.clear()
        self._arrivals.came.clear()
