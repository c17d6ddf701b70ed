"""A bad network in user space: a TCP proxy on loopback that delays, stalls and cuts connections anywhere.

Between a slave and its master: the slave connects to `port`, the proxy to the master. What netem would do.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType

HELD_BYTES_MAX = 1 << 20
TURN_SECONDS = 0.05
ABORT = struct.pack("ii", 1, 0)  # SO_LINGER: the peer gets a reset, whatever was on its way is lost


@dataclass(eq=False)
class _Pipe:
    """One direction of one connection."""

    source: socket.socket
    sink: socket.socket
    budget: int | None  # bytes until the connection is cut
    held: deque[tuple[float, bytes]] = field(default_factory=deque)  # when each may go on
    held_bytes: int = 0
    ended: bool = False

    @property
    def is_over(self) -> bool:
        """The source has ended and everything it said was delivered."""
        return self.ended and not self.held


class Proxy:
    """Runs in a thread of its own until the context ends.

    `budgets`: the n-th connection is cut after that many bytes towards the slave; those after the last one live on.
    """

    def __init__(self, master: tuple[str, int], *, budgets: Iterable[int] = (), seed: int = 1) -> None:
        self.delay_seconds = 0.0
        self.chunk_bytes_max = 65536
        self.is_stalled = False
        self.connections = self.cuts = self.bytes_to_slave = 0
        self._master = master
        self._budgets: Iterator[int] = iter(budgets)
        self._random = random.Random(seed)
        self._pipes: list[_Pipe] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._ended = threading.Event()
        self._wants_cut = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def address(self) -> str:
        """For haMasterAddress."""
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Reset all connections, soon."""
        self._wants_cut.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            if self._wants_cut.is_set():
                self._wants_cut.clear()
                self._abort(list(self._pipes))
            self._turn()
        self._abort(list(self._pipes))

    def _turn(self) -> None:
        now = time.monotonic()
        moving = [] if self.is_stalled else list(self._pipes)
        due = [pipe for pipe in moving if pipe.held and pipe.held[0][0] <= now]
        later = [pipe.held[0][0] - now for pipe in moving if pipe.held and pipe.held[0][0] > now]
        reading = {p.source: p for p in moving if not p.ended and p.held_bytes < HELD_BYTES_MAX}
        writing = {pipe.sink: pipe for pipe in due}
        poller, events = select.poll(), dict.fromkeys([self._listening, *reading], select.POLLIN)
        for sock in writing:
            events[sock] = events.get(sock, 0) | select.POLLOUT
        for sock, wanted in events.items():
            poller.register(sock, wanted)
        ready = dict(poller.poll(min([TURN_SECONDS, *later]) * 1000))
        for sock in [sock for sock in writing if ready.get(sock.fileno(), 0) & ~select.POLLIN]:
            self._write(writing[sock])
        for sock in [sock for sock in (self._listening, *reading) if ready.get(sock.fileno(), 0) & ~select.POLLOUT]:
            if sock is self._listening:
                self._accept()
            elif reading[sock] in self._pipes:  # it may have been cut a moment ago
                self._read(reading[sock])
        for pipe in [pipe for pipe in self._pipes if pipe.is_over]:
            self._close(pipe)

    def _accept(self) -> None:
        slave = self._listening.accept()[0]
        try:
            master = socket.create_connection(self._master, timeout=60)
        except OSError:
            slave.close()  # as a router would: the slave finds nobody
            return
        for sock in (slave, master):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections += 1
        self._pipes += [_Pipe(slave, master, None), _Pipe(master, slave, next(self._budgets, None))]

    def _read(self, pipe: _Pipe) -> None:
        try:
            data = pipe.source.recv(self._random.randint(1, self.chunk_bytes_max))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        pipe.ended = not data
        if data:
            pipe.held.append((time.monotonic() + self.delay_seconds, data))
            pipe.held_bytes += len(data)

    def _write(self, pipe: _Pipe) -> None:
        due, data = pipe.held.popleft()
        if pipe not in self._pipes:
            return
        allowed = data if pipe.budget is None else data[: pipe.budget]
        try:
            sent = pipe.sink.send(allowed) if allowed else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(pipe)
            return
        pipe.held_bytes -= sent
        if pipe.budget is not None:
            pipe.budget -= sent
            self.bytes_to_slave += sent
            if pipe.budget == 0:
                self._close(pipe)  # in order: all of the budget arrives, nothing behind it
                self.cuts += 1
                return
        if sent < len(data):
            pipe.held.appendleft((due, data[sent:]))

    def _close(self, pipe: _Pipe) -> None:
        for each in [each for each in self._pipes if pipe.source in (each.source, each.sink)]:
            self._pipes.remove(each)
            each.source.close()

    def _abort(self, pipes: list[_Pipe]) -> None:
        for pipe in pipes:
            with contextlib.suppress(OSError):
                pipe.source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
            pipe.source.close()
            self._pipes.remove(pipe)
        self.cuts += len(pipes) // 2

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(120)
        self._listening.close()
        assert not self._thread.is_alive()
