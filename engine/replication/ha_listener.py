"""Accepts slaves: one slot and one sender process for each that reports where its log ends; the others wait, or go.

Implements: AcceptSocketService (spec: ha-protocol, 1 roles and wiring, 5 timers)
Publishes:  ha_listen_port, pid.sender.N, deaths.sender.N; ha.N.state, ha.N.reason when a sender died without doing it
A connection gets its process with its first report: a health probe (connect, close) costs an accept and nothing else.
engine/protocol/ha/callers.py gives out the slots. All tables are bounded; nothing that a peer does, at whatever
step it vanishes, ends this process. The senders are its children and die with it.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import select
import signal
import socket
import ssl

from engine.net import tls
from engine.net.listeners import bind_address, listen
from engine.net.rare_lines import RareLines
from engine.net.tls import HELLO, BrokerTls, RenewedContext, words_of
from engine.protocol.access.allow_list import may_enter
from engine.protocol.ha.callers import Caller, CallerLimits, Callers, Holder
from engine.protocol.ha.connection import is_of_a_slave
from engine.protocol.ha.next_steps import advice_of
from engine.protocol.ha.wire import REPORT, CloseReason
from engine.replication import tls_relay
from engine.replication.ha_senders import (
    Accepted,
    Address,
    Beginning,
    OpenSender,
    SenderDeaths,
    SenderForks,
    SenderProcess,
)
from engine.role import stop_alarm
from engine.settings.config import BrokerConfig
from engine.settings.keys import HA_CALLERS
from engine.shared_memory import address_cursors, addresses
from engine.shared_memory.cursors import HA_CONNECTIONS_MAX, BrokerCounters, HaSlotState
from engine.shared_memory.failures import Failures
from ipc import waiting
from ipc.clock import monotonic_ms

log = logging.getLogger("slipstream.ha_listener")

ACCEPTS_PER_TURN = 64
LOOK_MS = 100  # while there are callers: who is overdue, whether a slot is free by now
NO_ROOM_PAUSE_MS, FULL_LOOK_MS = 100, 1000
STOP_SENDER_MS = 3_000
GONE = select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP  # a slave never closes one half alone
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
HELLO_BYTES = bytes((HELLO, 3))  # of TLS, all versions
BROKEN = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EFAULT)


class HaListener:
    """The acceptor, its callers and its senders."""

    name = "ha_listener"

    def __init__(
        self,
        config: BrokerConfig,
        counters: BrokerCounters,
        listening: socket.socket,
        forks: SenderForks,
        deaths: SenderDeaths,
        callers_max: int = HA_CALLERS,
        how: RenewedContext | None = None,
    ) -> None:
        self._config = config
        self._counters = counters
        self._listening = listening
        self._forks, self._deaths = forks, deaths
        self._tls = how
        self._callers = Callers(
            CallerLimits(callers_max, config.ha_send_heartbeat_interval_ms, config.ha_housekeeping_interval_ms)
        )
        self._accepted: dict[int, Accepted] = {}  # by descriptor, as the callers are
        self._senders: dict[int, SenderProcess] = {}
        self._lines = RareLines(log)
        self._look_at_ms = self._accept_at_ms = 0
        self._poll = select.epoll()
        self._poll.register(listening, select.EPOLLIN)
        self._poll.register(stop_alarm(), select.EPOLLIN)
        for words in counters.ha:  # the senders of a listener that was killed died with it
            if words.state.read() != HaSlotState.FREE:
                self._count_end(words.slot, CloseReason.KILLED, monotonic_ms())
            waiting.publish(words.state, HaSlotState.FREE)
            waiting.publish(counters.pids[f"sender.{words.slot}"], 0)
        waiting.publish(counters.ha_listen_port, listening.getsockname()[1])

    def do_work(self, now_ms: int) -> int:
        """Accept, hear, fork for who has reported, reap who has ended; how many of these."""
        ready = dict(self._poll.poll(0))
        ready.pop(stop_alarm(), None)
        by_pidfd = {process.pidfd: process for process in self._senders.values()}
        may_accept = ready.pop(self._listening.fileno(), 0)
        done = len(ready)
        for fd, events in ready.items():
            if fd in by_pidfd:
                self._reap(by_pidfd[fd], now_ms)
            else:
                self._hear(fd, events, now_ms)
        if may_accept:  # last: a descriptor closed above may be given again
            done += self._accept(now_ms)
        if now_ms >= self._look_at_ms or self._callers.is_waited_for:
            self._look_at_ms = now_ms + LOOK_MS
            self._look(now_ms)
        return done + self._serve(now_ms)

    def _look(self, now_ms: int) -> None:
        """Do what is due by the clock."""
        if self._accept_at_ms and now_ms >= self._accept_at_ms:
            self._accept_at_ms = 0
            self._poll.register(self._listening, select.EPOLLIN)
        for process in self._senders.values():
            words = self._counters.ha[process.slot]
            if (state := words.state.read()) == HaSlotState.FREE:  # its words are still those of the slave before
                continue
            acknowledged = words.slave_ack_offset.read()
            is_served = state == HaSlotState.TRANSFER  # else it has yet to say who it is
            is_owing = words.next_transfer_offset.read() > acknowledged or not is_served
            process.look(words.last_read_ms.read(), acknowledged, is_owing, now_ms)
        for caller in self._callers.overdue(now_ms):
            self._send_away(caller, now_ms)
        self._deaths.forget(now_ms)
        self._lines.flush(now_ms)

    def _send_away(self, caller: Caller, now_ms: int) -> None:
        """End what waits for too long."""
        if caller.has_reported:
            peer = addresses.host_and_port(*self._accepted[caller.number].peer)
            self._lines.tell(
                "slaves that found no slot",
                now_ms,
                "%s: all %d slots are taken by slaves; refused",
                peer,
                HA_CONNECTIONS_MAX,
            )
            waiting.add(self._counters.ha_ended[CloseReason.SLOTS_TAKEN], 1)
        self._forget(caller.number)

    # callers

    def _accept(self, now_ms: int) -> int:
        for count in range(ACCEPTS_PER_TURN):
            try:
                sock, address = self._listening.accept()
            except BlockingIOError:
                return count
            except OSError as error:  # of that connection, which is gone, or for want of room
                if error.errno in BROKEN:
                    raise
                if error.errno in NO_ROOM:
                    self._make_room(error, now_ms)
                    return count
                continue
            sock.setblocking(False)
            peer = str(address[0]), int(address[1])
            if not self._lets_in(sock, peer, now_ms):
                continue
            caller = tls_relay.of_caller(sock, self._tls)
            if caller is None:
                continue
            sock = caller
            self._accepted[sock.fileno()] = Accepted(sock, peer)
            self._poll.register(sock, select.EPOLLIN | select.EPOLLRDHUP)
            leaves = self._callers.arrived(sock.fileno(), addresses.network_of(peer[0]), now_ms)
            if leaves is not None:
                who = addresses.host_and_port(*self._accepted[leaves].peer)
                self._lines.tell(
                    "connections closed for newer ones",
                    now_ms,
                    "%d connections wait at the HA port; closed %s, of the network with the most, to admit a newer one",
                    len(self._callers),
                    who,
                )
                self._forget(leaves)
        return ACCEPTS_PER_TURN

    def _lets_in(self, sock: socket.socket, peer: Address, now_ms: int) -> bool:
        """Whether its address may follow; else it is closed before it costs a place, and before a byte is read."""
        allowed = self._config.ha_allow_list
        if allowed is None or may_enter(allowed, peer[0], str(sock.getsockname()[0])):
            return True
        sock.close()
        reason = CloseReason.NOT_ALLOWED
        waiting.add(self._counters.ha_ended[reason], 1)
        who = addresses.host_and_port(*peer)
        self._lines.tell(reason.name, now_ms, "%s: %s; %s", who, reason.name, self._advice(reason))
        return False

    def _advice(self, reason: CloseReason) -> str:
        return advice_of(reason, str(self._config.store_path_root_dir))

    def _make_room(self, error: OSError, now_ms: int) -> None:
        """The system has no descriptor for one more: one caller goes, and nobody is accepted for a moment."""
        self._lines.tell(
            "connections not accepted",
            now_ms,
            "the HA port cannot accept a connection: %s; %d are waiting",
            error.strerror,
            len(self._callers),
        )
        self._let_one_go(now_ms)
        self._poll.unregister(self._listening)
        self._accept_at_ms = now_ms + NO_ROOM_PAUSE_MS

    def _let_one_go(self, now_ms: int) -> None:
        leaves = self._callers.dispensable(now_ms)
        if leaves is not None:
            self._forget(leaves)

    def _hear(self, fd: int, events: int, now_ms: int) -> None:
        """Read the first report and what came with it, and nothing behind it: that is the sender's."""
        is_gone = bool(events & GONE)
        if is_gone and (self._tls is None or not self._callers.missing(fd)):
            self._forget(fd)
            return
        try:
            data = tls_relay.first_bytes(self._accepted[fd].sock, self._callers.missing(fd), is_gone)
        except ssl.SSLError as error:
            self._refuse(fd, CloseReason.TLS, words_of(error), now_ms)
            return
        if data is None:
            return
        if not data:
            self._forget(fd)
        elif self._callers.heard(fd, data, now_ms):
            self._poll.modify(fd, select.EPOLLRDHUP)  # what it says now, its sender will hear
            self._judge(fd, now_ms)

    def _refuse(self, fd: int, reason: CloseReason, why: str, now_ms: int) -> None:
        waiting.add(self._counters.ha_ended[reason], 1)
        peer = addresses.host_and_port(*self._accepted[fd].peer)
        self._lines.tell(reason.name, now_ms, "%s: %s, %s; %s", peer, reason.name, why, self._advice(reason))
        self._forget(fd)

    def _judge(self, fd: int, now_ms: int) -> None:
        """Hang up on who cannot be a slave at all; whether a slave can be served, its sender says."""
        report = self._callers.report_of(fd)
        (offset,) = REPORT.unpack(report)
        if is_of_a_slave(offset, self._counters.max_physical_offset.read()):
            return
        if report.startswith(HELLO_BYTES):
            self._refuse(fd, CloseReason.TLS, "it uses TLS, but haTlsMode=disabled here", now_ms)
        else:
            self._refuse(fd, CloseReason.NOT_A_SLAVE, f"it begins with {report!r}", now_ms)

    def _forget(self, fd: int) -> None:
        accepted = self._accepted.pop(fd)
        self._poll.unregister(fd)
        accepted.sock.close()
        self._callers.left(fd)

    # slots

    def _serve(self, now_ms: int) -> int:
        """Give slots to who waits for one; how many."""
        served = 0
        while self._callers.is_waited_for:
            holders = [process.as_holder() for process in self._senders.values() if not process.gives_way]
            caller = self._callers.next(holders, now_ms)
            if caller is None:
                break
            slot = next((n for n in range(HA_CONNECTIONS_MAX) if n not in self._senders), None)
            if slot is None:
                self._take_slot(caller, holders, now_ms)
                break
            if not self._fork_sender(slot, caller, now_ms):
                break
            served += 1
        return served

    def _take_slot(self, caller: Caller, holders: list[Holder], now_ms: int) -> None:
        """End the sender of one that is no slave, if there is one; once it is reaped its slot is free."""
        if len(holders) < len(self._senders):
            return  # one is giving way already
        if (victim := self._callers.gives_up(caller, holders, now_ms)) is None:
            return
        process = self._senders[victim.slot]
        process.gives_way = True
        self._lines.tell(
            CloseReason.GAVE_WAY.name,
            now_ms,
            "sender.%d: connection of %s ended: %s; %s",
            process.slot,
            address_cursors.text_of(self._counters.ha[process.slot].peer_address),
            CloseReason.GAVE_WAY.name,
            self._advice(CloseReason.GAVE_WAY),
        )
        self._forks.send_signal(process, signal.SIGKILL)

    def _fork_sender(self, slot: int, caller: Caller, now_ms: int) -> bool:
        accepted = self._accepted[caller.number]
        is_told = self._lines.may_tell("connections of slaves ended", now_ms)
        waiting.note(self._counters.ha[slot].reason, CloseReason.NONE)
        begins_with = Beginning(slot, accepted, caller.reports, is_told)
        try:
            pid, pidfd = self._forks.begin(begins_with, lambda: self._close_inherited(accepted.sock))
        except OSError as error:
            self._lines.tell("senders not begun", now_ms, "cannot fork for a slave: %s; it waits", error.strerror)
            self._let_one_go(now_ms)
            return False
        self._callers.begun(caller.crowd, now_ms)
        self._senders[slot] = SenderProcess(slot, pid, pidfd, str(caller.crowd), now_ms, now_ms, now_ms)
        self._poll.register(pidfd, select.EPOLLIN)
        waiting.publish(self._counters.pids[f"sender.{slot}"], pid)
        self._forget(caller.number)
        return True

    def _close_inherited(self, kept: socket.socket) -> None:
        self._poll.close()
        self._listening.close()
        for accepted in self._accepted.values():
            if accepted.sock is not kept:
                accepted.sock.close()
        for process in self._senders.values():
            os.close(process.pidfd)

    def _reap(self, process: SenderProcess, now_ms: int, *, is_told_to_end: bool = False) -> None:
        self._poll.unregister(process.pidfd)
        status = self._forks.reap(process)
        if status and not process.gives_way and not is_told_to_end:
            self._deaths.died(process.slot, status, now_ms)
        del self._senders[process.slot]
        self._count_end(process.slot, CloseReason.GAVE_WAY if process.gives_way else CloseReason.KILLED, now_ms)
        waiting.publish(self._counters.pids[f"sender.{process.slot}"], 0)
        waiting.publish(self._counters.ha[process.slot].state, HaSlotState.FREE)  # a killed sender could not
        waiting.ring(self._counters.ack_bell)

    def _count_end(self, slot: int, otherwise: CloseReason, now_ms: int) -> None:
        """Count why a sender ended, here, because a tally has one writer; a killed one could not say why."""
        words = self._counters.ha[slot]
        if words.reason.read() == CloseReason.NONE:
            waiting.note(words.reason, otherwise)
            waiting.note(words.ended_at_ms, now_ms)
        reason = CloseReason(words.reason.read())
        waiting.add(self._counters.ha_ended[reason], 1)
        waiting.add(self._counters.ha_acks_rejected, words.acks_rejected.read())
        waiting.note(words.acks_rejected, 0)

    # waiting and ending

    def wait_ms(self, timeout_ms: int) -> int:
        """Return how long to sleep until callers or senders must be looked at, `timeout_ms` at most."""
        if len(self._callers) or self._accept_at_ms:
            return min(timeout_ms, LOOK_MS)
        if len(self._senders) == HA_CONNECTIONS_MAX:  # the next one takes the slot of who was silent longest
            return min(timeout_ms, FULL_LOOK_MS)
        return timeout_ms

    def idle(self, timeout_ms: int) -> None:
        """Sleep until somebody comes, speaks or ends, or until it must look."""
        self._poll.poll(self.wait_ms(timeout_ms) / 1000)

    def close(self) -> None:
        """Stop the senders: each sends what the log has, then hangs up; one that cannot is killed."""
        for process in self._senders.values():
            self._forks.send_signal(process, signal.SIGTERM)
        for process in list(self._senders.values()):
            if not self._forks.await_end(process, STOP_SENDER_MS):
                self._forks.send_signal(process, signal.SIGKILL)
            self._reap(process, monotonic_ms(), is_told_to_end=True)
        for fd in list(self._accepted):
            self._forget(fd)
        self._poll.close()
        self._listening.close()


def open_role(
    config: BrokerConfig,
    counters: BrokerCounters,
    failures: Failures,
    open_sender: OpenSender,
    how: BrokerTls | None = None,
) -> HaListener:
    """Return the listener; `open_sender` is `engine.replication.sender.open_role`, called in the forked child."""
    port = config.ha_listen_port or counters.ha_listen_port.read()  # an ephemeral one stays: slaves know it
    address = bind_address(config.bind_address, config.broker_ip2)
    try:
        listening = listen(address, port)
    except OSError as error:
        raise OSError(error.errno, f"HA port {error.strerror} (haListenPort, bindAddress)") from error
    descriptors, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    callers_max = min(config.ha_callers_max, max(1, descriptors // 2))
    secured = (how or tls.of_broker(config)).ha_server
    deaths = SenderDeaths(counters, failures)
    forks = SenderForks(config, counters, deaths, open_sender)
    return HaListener(config, counters, listening, forks, deaths, callers_max, secured)
