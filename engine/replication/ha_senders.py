"""Sender processes as their listener sees them: how one begins and ends, when its slave was last heard, its death.

What is seen are the counters' words; when they changed is noted by the listener's own clock.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from engine.protocol.ha.callers import Holder
from engine.replication import tls_relay
from engine.role import Role, enter_child, run_role
from engine.settings.config import BrokerConfig
from engine.shared_memory.cursors import SENDERS, BrokerCounters
from engine.shared_memory.failures import Failures, exit_text, first_line, needs_no_traceback
from ipc import descriptors, waiting

log = logging.getLogger("slipstream.ha_listener")

DEATHS_WINDOW_MS, DEATHS_KEPT = 60_000, 100
FAILED = 1  # the exit code of a sender that has noted why

Address = tuple[str, int]


class SenderRole(Role, Protocol):
    """A role that also ends by itself, together with its connection."""

    @property
    def ended(self) -> bool:
        """Whether the connection is over."""


class Accepted(NamedTuple):
    """A connection, and where it came from: asked once, because later the peer may be gone."""

    sock: socket.socket
    peer: Address


class Beginning(NamedTuple):
    """What a sender begins with."""

    slot: int
    accepted: Accepted
    reports: bytes
    is_told: bool  # the log says why it ends


OpenSender = Callable[[BrokerConfig, BrokerCounters, int, socket.socket, Address, bytes, bool], SenderRole]


@dataclass(slots=True)
class SenderProcess:
    """A running child, and what was seen of its slave: the words themselves, and when they changed last."""

    slot: int
    pid: int
    pidfd: int
    crowd: str
    since_ms: int
    heard_ms: int
    acknowledged_ms: int
    heard: int = 0
    acknowledged: int = -1
    is_proven: bool = False
    gives_way: bool = False

    def look(self, heard: int, acknowledged: int, is_owing: bool, now_ms: int) -> None:
        """Note when the slave was last heard and when it last acknowledged more."""
        if heard != self.heard:
            self.heard, self.heard_ms = heard, now_ms
        if acknowledged != self.acknowledged or not is_owing:
            self.is_proven = self.is_proven or (acknowledged > self.acknowledged >= 0 and self.heard_ms > self.since_ms)
            self.acknowledged, self.acknowledged_ms = acknowledged, now_ms

    def as_holder(self) -> Holder:
        """Return the sender as the protocol's Holder."""
        return Holder(self.slot, self.crowd, self.since_ms, self.heard_ms, self.acknowledged_ms, self.is_proven)


class SenderDeaths:
    """Senders that died before the end of their connection: counted by slot, with the first line of the last error."""

    def __init__(self, counters: BrokerCounters, failures: Failures) -> None:
        self._counters, self._failures = counters, failures
        self._at_ms: dict[int, list[int]] = {}
        for sender in SENDERS:
            waiting.publish(counters.deaths[sender], 0)

    def failed(self, slot: int, error: BaseException, may_tell: bool) -> int:
        """The failing sender's own last deed: note why; its exit code."""
        name, said = SENDERS[slot], first_line(error)
        before = self._failures.text_of(name)
        self._failures.note(name, said)
        if said != before and not needs_no_traceback(error):
            log.error("%s failed", name, exc_info=error)
        elif may_tell:
            log.error("%s failed: %s", name, said)
        return FAILED

    def died(self, slot: int, status: int, now_ms: int) -> None:
        """Note that a sender died without being stopped; `status` is waitpid's."""
        if os.waitstatus_to_exitcode(status) != FAILED:
            self._failures.note(SENDERS[slot], exit_text(status))
        self._at_ms[slot] = [*self._at_ms.get(slot, ()), now_ms][-DEATHS_KEPT:]
        self.forget(now_ms)

    def forget(self, now_ms: int) -> None:
        """Count those of the last minute alone."""
        for slot, at_ms in self._at_ms.items():
            at_ms[:] = [one for one in at_ms if now_ms - one < DEATHS_WINDOW_MS]
            waiting.note(self._counters.deaths[SENDERS[slot]], len(at_ms))


class SenderForks:
    """Senders as children of this process."""

    def __init__(
        self, config: BrokerConfig, counters: BrokerCounters, deaths: SenderDeaths, open_sender: OpenSender
    ) -> None:
        self._config, self._counters, self._deaths, self._open_sender = config, counters, deaths, open_sender

    def begin(self, begins_with: Beginning, close_inherited: Callable[[], None]) -> tuple[int, int]:
        """Fork a sender; its process id, and the descriptor that tells its end. Raises OSError."""
        parent_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            os._exit(self._run(begins_with, close_inherited, parent_pid))
        return pid, pidfd_of(pid)

    def _run(self, begins_with: Beginning, close_inherited: Callable[[], None], parent_pid: int) -> int:
        """The child's life; its exit status."""
        slot, accepted, reports, is_told = begins_with
        try:
            stop = enter_child(SENDERS[slot], parent_pid)
            close_inherited()
            with tls_relay.plain_of(accepted.sock) as sock:
                sender = self._open_sender(self._config, self._counters, slot, sock, accepted.peer, reports, is_told)
                run_role(sender, self._counters.heartbeats[sender.name], lambda: stop() or sender.ended)
        except BaseException as error:
            return self._deaths.failed(slot, error, is_told)
        return 0

    def send_signal(self, process: SenderProcess, number: signal.Signals) -> None:
        """Send a signal to a sender that is not reaped yet."""
        os.kill(process.pid, number)

    def await_end(self, process: SenderProcess, timeout_ms: int) -> bool:
        """Whether a sender ends within this time."""
        return descriptors.await_readable(process.pidfd, timeout_ms=timeout_ms)

    def reap(self, process: SenderProcess) -> int:
        """Give back a sender that has ended; its status, as waitpid has it."""
        os.close(process.pidfd)
        _pid, status = os.waitpid(process.pid, 0)
        return status


def pidfd_of(pid: int) -> int:
    """The descriptor of a child; without one nobody would see its end, so it is ended. Raises OSError."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
