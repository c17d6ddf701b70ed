"""Accepts slaves: one slot and one sender process for each that says something, nothing for one that only looks in.

Implements: AcceptSocketService (spec: ha-protocol, 1 roles and wiring, 5 timers)
Publishes:  ha_listen_port, pid.sender.N; ha.N.state when a sender died without doing it
A connection gets its process with its first byte: a health probe (connect, close) costs an accept and nothing else.
Both tables are bounded. The senders are children of this process and die with it.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
from collections.abc import Callable
from typing import NamedTuple, Protocol

from engine.config import BrokerConfig
from engine.cursors import HA_CONNECTIONS_MAX, Board
from engine.protocol.ha_wire import CloseReason
from engine.role import Role, enter_child, run_role, wall_clock_ms
from ipc import waiting

log = logging.getLogger("slipstream.ha_listener")

SILENT_CONNECTIONS_MAX = 32
FREE, CONNECTED, TRANSFER = 0, 1, 2
IPV4_LOOPBACK, IPV6_LOOPBACK = ("127.", "localhost"), ("::1",)
STOP_SENDER_S = 3.0


class SenderRole(Role, Protocol):
    """A role that also ends by itself, together with its connection."""

    @property
    def ended(self) -> bool:
        """Whether the connection is over."""


OpenSender = Callable[[BrokerConfig, Board, int, socket.socket], SenderRole]


class SenderProcess(NamedTuple):
    """A running child."""

    slot: int
    pid: int
    pidfd: int


def listen(address: str, port: int) -> socket.socket:
    """The listening socket: on all interfaces of both families, or on loopback alone where that is the HA address."""
    host = address if address in IPV6_LOOPBACK else "127.0.0.1" if address.startswith(IPV4_LOOPBACK) else ""
    is_ipv6 = ":" in host or (not host and socket.has_dualstack_ipv6())
    listening = socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_ipv6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(bool(host)))
        listening.bind((host, port))
        listening.listen(SILENT_CONNECTIONS_MAX)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"HA port {port}: {error.strerror}; set haListenPort to a free one") from error
    listening.setblocking(False)
    return listening


class HaListener:
    """The acceptor and its table of senders."""

    name = "ha_listener"

    def __init__(self, config: BrokerConfig, board: Board, listening: socket.socket, open_sender: OpenSender) -> None:
        self._config = config
        self._board = board
        self._listening = listening
        self._open_sender = open_sender
        self._silent: dict[socket.socket, int] = {}  # accepted, nothing said yet → since when
        self._senders: dict[int, SenderProcess] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ)
        for words in board.ha:  # the senders of a listener that was killed died with it
            if words.state.read() != FREE:
                self._count_end(words.slot)
            waiting.publish(words.state, FREE)
            waiting.publish(board.pids[f"sender.{words.slot}"], 0)
        waiting.publish(board.ha_listen_port, listening.getsockname()[1])

    def do_work(self, now_ms: int) -> int:
        """Accept, fork for who has spoken, reap who has ended; how many of these."""
        done = 0
        for key, _ in self._selector.select(0):
            if key.fileobj is self._listening:
                done += self._accept(now_ms)
            elif isinstance(key.fileobj, socket.socket):
                self._hear(key.fileobj)
                done += 1
            else:
                self._reap(key.data)
                done += 1
        self._drop_mute(now_ms)
        return done

    def _accept(self, now_ms: int) -> int:
        try:
            sock, _ = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return 0  # it went before we came
        sock.setblocking(False)
        if len(self._silent) == SILENT_CONNECTIONS_MAX:
            self._forget(next(iter(self._silent)))
        self._silent[sock] = now_ms
        self._selector.register(sock, selectors.EVENT_READ)
        return 1

    def _hear(self, sock: socket.socket) -> None:
        try:
            first = sock.recv(1, socket.MSG_PEEK)
        except OSError as error:
            log.debug("went before it said anything: %s", error)
            first = b""
        slot = next((n for n in range(HA_CONNECTIONS_MAX) if n not in self._senders), None)
        if first and slot is not None:
            self._selector.unregister(sock)
            del self._silent[sock]
            self._fork_sender(slot, sock)
            sock.close()
            return
        if first:
            log.warning("%s: all %d slots are taken by slaves; refused", sock.getpeername(), HA_CONNECTIONS_MAX)
            waiting.add(self._board.ha_ended[CloseReason.SLOTS_TAKEN], 1)
        self._forget(sock)

    def _forget(self, sock: socket.socket) -> None:
        self._selector.unregister(sock)
        del self._silent[sock]
        sock.close()

    def _drop_mute(self, now_ms: int) -> None:
        oldest = now_ms - self._config.ha_housekeeping_interval_ms
        for sock in [sock for sock, since_ms in self._silent.items() if since_ms < oldest]:
            self._forget(sock)

    # processes

    def _fork_sender(self, slot: int, sock: socket.socket) -> None:
        parent_pid = os.getpid()
        waiting.note(self._board.ha[slot].reason, CloseReason.NONE)
        pid = os.fork()
        if pid == 0:
            os._exit(self._run_sender(slot, sock, parent_pid))
        process = SenderProcess(slot, pid, os.pidfd_open(pid))
        self._senders[slot] = process
        self._selector.register(process.pidfd, selectors.EVENT_READ, process)
        waiting.publish(self._board.pids[f"sender.{slot}"], pid)

    def _run_sender(self, slot: int, sock: socket.socket, parent_pid: int) -> int:
        """The child's life; its exit status."""
        try:
            stop = enter_child(f"sender.{slot}", parent_pid)
            self._close_inherited()
            sender = self._open_sender(self._config, self._board, slot, sock)
            run_role(sender, self._board.heartbeats[sender.name], lambda: stop() or sender.ended)
        except BaseException:
            log.exception("sender.%d failed", slot)
            return 1
        return 0

    def _close_inherited(self) -> None:
        self._selector.close()
        self._listening.close()
        for sock in self._silent:
            sock.close()
        for process in self._senders.values():
            os.close(process.pidfd)

    def _reap(self, process: SenderProcess) -> None:
        self._selector.unregister(process.pidfd)
        os.close(process.pidfd)
        os.waitpid(process.pid, 0)
        del self._senders[process.slot]
        self._count_end(process.slot)
        waiting.publish(self._board.pids[f"sender.{process.slot}"], 0)
        waiting.publish(self._board.ha[process.slot].state, FREE)  # a killed sender could not
        waiting.ring(self._board.ack_bell)

    def _count_end(self, slot: int) -> None:
        """Count why a sender ended, here, because a tally has one writer; a killed one could not say why."""
        words = self._board.ha[slot]
        if words.reason.read() == CloseReason.NONE:
            waiting.note(words.reason, CloseReason.KILLED)
            waiting.note(words.ended_at_ms, wall_clock_ms())
        reason = CloseReason(words.reason.read())
        waiting.add(self._board.ha_ended[reason], 1)
        waiting.add(self._board.ha_acks_rejected, words.acks_rejected.read())
        waiting.note(words.acks_rejected, 0)

    def idle(self, timeout_ms: int) -> None:
        """Sleep until somebody comes, speaks or ends."""
        self._selector.select(timeout_ms / 1000)

    def close(self) -> None:
        """Stop the senders: each sends what the log has, then hangs up; one that cannot is killed."""
        for process in self._senders.values():
            os.kill(process.pid, signal.SIGTERM)
        for process in list(self._senders.values()):
            with selectors.DefaultSelector() as end:
                end.register(process.pidfd, selectors.EVENT_READ)
                if not end.select(STOP_SENDER_S):
                    os.kill(process.pid, signal.SIGKILL)
            self._reap(process)
        for sock in list(self._silent):
            self._forget(sock)
        self._selector.close()
        self._listening.close()


def open_role(config: BrokerConfig, board: Board, open_sender: OpenSender) -> HaListener:
    """The listener of this broker; `open_sender` is `engine.sender.open_role`, called in the forked child.

    After a restart an ephemeral port stays what it was, because slaves know it.
    """
    port = config.ha_listen_port or board.ha_listen_port.read()
    return HaListener(config, board, listen(config.broker_ip2, port), open_sender)
