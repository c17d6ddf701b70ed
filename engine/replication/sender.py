"""Sends the commit log to one slave, from the page cache: the bytes never enter Python.

Implements: HAConnection (WriteSocketService, ReadSocketService); the decisions are in engine/protocol/ha/connection.py;
            the usual case is one compiled loop, engine/replication/sender_kernel.py
spec: ha-protocol, 3 master side
Follows:    max_physical_offset, the writer's cursor
Publishes:  ha.N.*; the writing half next_transfer_offset and transferred_bytes, the reading half the others; ack_bell;
            confirm_offset, where one slave is enough: nobody else has to be woken for that
A header promises its body: once it is out, the body follows from the segment opened before, or the connection ends.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from engine.protocol.ha.connection import HaConnection
from engine.protocol.ha.connection_kernel import ConnectionLimits
from engine.protocol.ha.flow_monitor import FlowMonitor
from engine.protocol.ha.group_transfer import slave_identity
from engine.protocol.ha.hello import NONCE_BYTES, MasterGreeting, refusal
from engine.protocol.ha.next_steps import advice_of
from engine.protocol.ha.policy import put_policy
from engine.protocol.ha.wire import REPORT_BYTES, CloseReason, PeerError
from engine.replication import ha_facts, replica_words, sender_kernel
from engine.replication.replica_words import CATCH_UP_BYTES
from engine.replication.sender_kernel import FrameWord, Outcome
from engine.settings import replication
from engine.settings.config import BrokerConfig
from engine.shared_memory import address_cursors, addresses
from engine.shared_memory.cursors import BrokerCounters, HaSlotState
from ipc import waiting
from ipc.arrays import Bytes
from ipc.clock import monotonic_ms
from ipc.compiled import atomics
from store.files import file_io
from store.files.segment import Segment
from store.files.segment_files import SegmentFiles

log = logging.getLogger("slipstream.sender")

FRAMES_PER_TURN = 32
FRAMES_MAX = 1 << 30  # of a turn that ends by its time
REPORTS_BYTES_MAX = 64 * 1024
SEND_TIMEOUT_S = 1
READER_JOIN_S = 5.0
PROOF_LOOK_MS = 50  # how soon it is seen that acknowledgements count from now on
TIMEVAL = struct.Struct("@ll")


class Confirming(NamedTuple):
    """Who raises which confirmed offsets."""

    is_by_sender: bool = False  # where one slave is enough
    fallbehind_bytes_max: int = 0
    counts: Sequence[int] = ()  # of replicas, where puts choose how many they need


BY_GROUP_TRANSFER = Confirming()


class Sender:
    """One slave's connection: `do_work` is its writing half, `take_reports` its reading half."""

    def __init__(
        self,
        counters: BrokerCounters,
        slot: int,
        files: SegmentFiles,
        connection: HaConnection,
        now_ms: int,
        *,
        confirming: Confirming = BY_GROUP_TRANSFER,
        is_told: bool = True,
    ) -> None:
        self.name = f"sender.{slot}"
        self.connection = connection
        self.reason = CloseReason.NONE
        self._counters = counters
        self._words = counters.ha[slot]
        self._files = files
        self._segment: Segment | None = None
        self._socket: socket.socket | None = None
        self._socket_fd = -1
        self._reader: threading.Thread | None = None
        self._wake_seen = 0
        self._now_ms = now_ms
        self._confirms, self._fallbehind_bytes_max = confirming.is_by_sender, confirming.fallbehind_bytes_max
        self._is_told = is_told
        self._awaits_proof = False
        self._confirmed_by = [counters.confirm_offsets[count] for count in confirming.counts] or [
            counters.confirm_offset
        ]
        self._line = sender_kernel.line_of(counters, slot, self.connection)
        self._reports: Bytes = np.zeros(REPORTS_BYTES_MAX, np.uint8)

    def attach(self, sock: socket.socket, peer: tuple[str, int], now_ms: int) -> None:
        """Take over an accepted socket, and the slot's words with it. The peer may be gone again by now."""
        self._socket, self._socket_fd = sock, sock.fileno()
        words, connection = self._words, self.connection
        connection.recovered_offset = self._counters.recovered_offset.read()
        connection.known_offset = max(connection.recovered_offset, self._sent_before(peer))
        address_cursors.publish(words.peer_address, *peer)
        replica_words.begin(words, connection, now_ms)
        try:
            sock.setblocking(True)
            if sock.family != socket.AF_UNIX:  # a relay's end
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # The kernel keeps the deadlines: Python's own time-outs cost a poll before every call.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, TIMEVAL.pack(SEND_TIMEOUT_S, 0))
            self._look_up_after(connection.limits.housekeeping_interval_ms + 1000)
        except OSError as error:
            self._end(CloseReason.PEER_CLOSED, str(error))

    def meet(self, reports: bytes, greeting: MasterGreeting, now_ms: int) -> None:
        """Take the first reports; ask a Slipstream slave who it is."""
        if self.connection.meet(reports, greeting, now_ms):
            self._send_control()
        elif greeting.is_required:
            self._end(CloseReason.SIGNATURE, "it did not identify itself, but haSecretRequired is set")
        else:
            self.take_reports(reports, now_ms)

    def _send_control(self) -> None:
        """Send what is no frame of the log. The other half sends nothing before the slave is served."""
        assert self._socket is not None
        message, self.connection.outgoing = self.connection.outgoing, b""
        try:
            self._socket.sendall(message)
        except OSError as error:
            self._end(CloseReason.PEER_CLOSED, str(error))

    def _sent_before(self, peer: tuple[str, int]) -> int:
        """Return how far the last connection of this slave was sent the log, where nothing before that was missing.

        One that lasts still counts where its address tells that it is the same slave. Those before it may be of another
        disk.
        """
        own, sent, last_ms = addresses.pack(*peer), 0, -1
        for words in self._counters.ha:
            other = address_cursors.read(words.peer_address)
            is_over = words.state.read() == HaSlotState.FREE
            is_own = addresses.same_host(own, other) and (is_over or slave_identity(*own) == slave_identity(*other))
            if is_own and words.connected_at_ms.read() > last_ms:
                last_ms = words.connected_at_ms.read()
                held, acked = words.held_offset.read(), words.slave_ack_offset.read()
                next_offset = words.next_transfer_offset.read()
                began_at_0 = acked == 0 and next_offset < self.connection.limits.segment_bytes
                sent = next_offset if began_at_0 or held >= acked > 0 else held
        return max(sent, 0)

    def _look_up_after(self, timeout_ms: int) -> None:
        """Set how long the reading half waits for reports before it looks at the clock."""
        if self._socket is not None:
            timeout = TIMEVAL.pack(timeout_ms // 1000, timeout_ms % 1000 * 1000)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)

    @property
    def ended(self) -> bool:
        """Whether the connection is over: nothing more will be sent or believed."""
        return self.reason is not CloseReason.NONE

    # the writing half

    def do_work(self, now_ms: int) -> int:
        """Write what the log has for this slave, a few frames at most; the bytes written, 0 once there is no more.

        Also 0 when the last of it was written: a turn that finds nothing would cost every put its microseconds.
        """
        self._now_ms = now_ms
        self._wake_seen = self._words.wake.read()
        if self.ended:
            return 0
        before = int(self._line.frame[FrameWord.TRANSFERRED])
        self._bound()
        is_behind = self._transfer(now_ms, FRAMES_PER_TURN, 0)
        return int(self._line.frame[FrameWord.TRANSFERRED]) - before if is_behind else 0

    def _transfer(self, now_ms: int, frames: int, timeout_ms: int) -> bool:
        """Run one turn of the compiled loop, and do what it leaves to Python; return whether more may be written."""
        while True:
            outcome = sender_kernel.transfer(
                self._line, self.connection.limits, self._socket_fd, now_ms, frames, timeout_ms
            )
            if outcome != Outcome.NEEDS_SEGMENT:
                break
            if not self._open_segment(self._frame_base()):
                return False
        if outcome == Outcome.SHORT_FILE:
            raise EOFError(f"{self._frame_base()}: the segment is shorter than the log requires")
        if outcome == Outcome.LOOK:
            self._drop_if_silent(now_ms or monotonic_ms())
        elif outcome < 0 and outcome not in (-errno.EAGAIN, -errno.EINTR):  # a slow slave; the rest waits for its turn
            self._end(CloseReason.PEER_CLOSED, os.strerror(-outcome))
        return bool(outcome != Outcome.IN_STEP)

    def _bound(self) -> None:
        """Set how much may be sent a second.

        An administrator may have changed it, and a slave that catches up has its own bound.
        """
        self.connection.flow.bound(replica_words.transfer_limit(self._counters, self._lacks_bytes()))

    def _lacks_bytes(self) -> int:
        return self._counters.max_physical_offset.read() - self.connection.next_transfer_offset

    def _has_rest(self) -> bool:
        frame = self._line.frame
        return bool(frame[FrameWord.HEADER_LEFT] or frame[FrameWord.BODY_LEFT])

    def _frame_base(self) -> int:
        """The base of the segment that the frame begun, all of it unsent, lies in."""
        frame = self._line.frame
        return self.connection.next_transfer_offset - int(frame[FrameWord.BODY_LEFT] + frame[FrameWord.BODY_AT])

    def _open_segment(self, base_offset: int) -> bool:
        """Have the segment open, whatever becomes of its name then; False, and the end, when it has expired."""
        self._line.segment[:] = -1
        if self._segment is not None:
            if self._lacks_bytes() > CATCH_UP_BYTES:  # old ones, read once, must not push younger ones out of memory
                file_io.drop_cached(self._segment.fd, 0, self._segment.size_bytes)
            self._segment.close()
        self._segment = None  # stays so if the next line raises
        try:
            opened = self._segment = self._files.open(base_offset)
        except FileNotFoundError:
            begin = self._counters.min_physical_offset.read()
            if base_offset >= begin:
                raise
            self._end(CloseReason.GAP, f"at offset {base_offset}: the log begins at {begin}")
            return False
        self._line.segment[:] = opened.base_offset, opened.fd, opened.array.ctypes.data
        return True

    def idle(self, timeout_ms: int) -> None:
        """Sleep until the log grows, a first report or an end comes, or a heartbeat is due."""
        if self.ended or self._has_rest():
            return
        connection = self.connection
        if connection.next_transfer_offset < 0 or connection.flow.wait_ms(self._now_ms):
            wait_ms = min(timeout_ms, connection.wait_ms(self._now_ms))
            waiting.await_change(self._words.wake, self._wake_seen, wait_ms)
        else:
            self._transfer(0, FRAMES_MAX, timeout_ms)

    # the reading half

    def start_reading(self, clock_ms: Callable[[], int] = monotonic_ms) -> None:
        """Read reports in a thread of its own, blocked in recv: the wire, not a poll, wakes it."""
        self._reader = threading.Thread(target=self._read, args=(clock_ms,), name="ReadSocketService", daemon=True)
        self._reader.start()

    def _read(self, clock_ms: Callable[[], int]) -> None:
        while not self.ended:
            self.hear(clock_ms)

    def hear(self, clock_ms: Callable[[], int], now_ms: int = 0) -> bool:
        """Hear reports until one is to be judged here, or none comes for a while; whether one came.

        Reports that are believed at once count as heard at `now_ms`, or with 0 at the moment when they come.
        """
        rest = len(self.connection.rest)  # the kernel takes whole reports only, and gets none before this one's end
        space = self._reports[: REPORTS_BYTES_MAX if not rest else REPORT_BYTES - rest]
        confirms, fallbehind_bytes_max = self._confirms, self._fallbehind_bytes_max
        count = sender_kernel.hear(self._line, self._socket_fd, space, confirms, fallbehind_bytes_max, now_ms)
        if count >= 0:
            self.take_reports(self._reports[:count].tobytes(), clock_ms())
        elif count not in (-errno.EAGAIN, -errno.EINTR):
            self._end(CloseReason.PEER_CLOSED, os.strerror(-count))
        else:
            now_ms = clock_ms()  # one moment for both: who is not looked at again must have been judged by it
            self._drop_if_silent(now_ms)
            self.connection.look_at_proof(now_ms, self._confirmed())
            self._publish_held(now_ms)
        return bool(count >= 0)

    def _drop_if_silent(self, now_ms: int) -> None:
        """Hang up on a slave that said nothing for too long. Both halves look: either may be held up by the socket."""
        if self.connection.is_silent(now_ms):
            self._end(CloseReason.HOUSEKEEPING, f"{now_ms - self.connection.last_read_ms} ms")

    def take_reports(self, data: bytes, now_ms: int) -> None:
        """Judge what the slave sent (nothing: it hung up), publish what it acknowledged, ring."""
        if not data:
            self._end(CloseReason.PEER_CLOSED, "end of stream")
        if self.ended:
            return
        words, connection = self._words, self.connection
        acked_before = connection.slave_ack_offset
        try:
            connection.receive(
                data,
                now_ms,
                self._counters.min_physical_offset.read(),
                self._counters.max_physical_offset.read(),
                self._confirmed(),
            )
            if connection.greeting is not None and connection.greeting.replica is not None and connection.outgoing:
                replica_words.publish_identity(self._words, connection.greeting.replica)
                self._send_control()
                begin, end = self._counters.min_physical_offset.read(), self._counters.max_physical_offset.read()
                connection.serve(now_ms, begin, end)
        except PeerError as error:
            if connection.greeting is not None:
                self._refuse(error, connection.greeting)
            waiting.publish(words.acks_rejected, connection.acks_rejected)
            self._end(error.reason, error.detail)
            return
        self._publish_held(now_ms)
        if connection.slave_ack_offset != acked_before:
            waiting.publish(words.slave_ack_offset, connection.slave_ack_offset)
            if acked_before < 0:
                waiting.publish(words.slave_request_offset, connection.slave_request_offset)
                waiting.publish(words.state, HaSlotState.TRANSFER)
                self._wake_writing_half()
            waiting.ring(self._counters.ack_bell)
        waiting.note(words.last_read_ms, now_ms)

    def _refuse(self, error: PeerError, greeting: MasterGreeting) -> None:
        """Send a Slipstream slave the reason; if it proved that another master took over, note that here, too."""
        if greeting.newer_epoch:
            waiting.raise_to(self._counters.fenced_by_epoch, greeting.newer_epoch)
        if self.connection.next_transfer_offset < 0:
            self.connection.outgoing = refusal(error)
            self._send_control()

    def _confirmed(self) -> int:
        """The end of what no put waits for any longer, whatever number of replicas it asked for."""
        return min(cursor.read() for cursor in self._confirmed_by)

    def _publish_held(self, now_ms: int) -> None:
        """Say what counts of what the slave acknowledged, and be back in time when that is a matter of time."""
        connection = self.connection
        if connection.flushed_offset != self._words.flushed_offset.read():
            waiting.publish(self._words.flushed_offset, connection.flushed_offset)
        if connection.held_offset != self._words.held_offset.read():
            waiting.publish(self._words.held_offset, connection.held_offset)
            waiting.ring(self._counters.ack_bell)
        if connection.proof_is_due(now_ms) != self._awaits_proof:
            self._awaits_proof = not self._awaits_proof
            patience_ms = connection.limits.housekeeping_interval_ms + 1000
            self._look_up_after(PROOF_LOOK_MS if self._awaits_proof else patience_ms)

    def _end(self, reason: CloseReason, detail: str) -> None:
        """The connection is over. Called by either half; what the other one still does fails on the socket."""
        if self.ended:
            return
        self.reason = reason
        level = logging.INFO if reason in (CloseReason.PEER_CLOSED, CloseReason.STOPPED) else logging.WARNING
        peer = address_cursors.text_of(self._words.peer_address)
        log.log(
            level if self._is_told else logging.DEBUG,
            "%s: connection of %s ended: %s %s; %s",
            self.name,
            peer,
            reason.name,
            detail,
            advice_of(reason),
        )
        waiting.note(self._words.ended_at_ms, monotonic_ms())
        waiting.publish(self._words.reason, reason)
        waiting.publish(self._words.state, HaSlotState.FREE)
        waiting.ring(self._counters.ack_bell)
        self._shut_down()
        self._wake_writing_half()

    def _wake_writing_half(self) -> None:
        waiting.publish(self._words.wake, self._words.wake.read() + 1)
        end = self._counters.max_physical_offset
        atomics.wake(end.words, end.index)  # it may sleep there; the other sleepers look and sleep on

    def _shut_down(self) -> None:
        if self._socket is None:
            return
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError as error:
            log.debug("%s: already shut down: %s", self.name, error)

    def close(self) -> None:
        """Hang up, end the reading thread, give the segment back."""
        self._end(CloseReason.STOPPED, "")
        if self._reader is not None:
            self._reader.join(READER_JOIN_S)
        if self._socket is not None:
            self._socket.close()
        if self._segment is not None:
            self._segment.close()


def greeting_of(config: BrokerConfig, counters: BrokerCounters, nonce: bytes) -> MasterGreeting:
    """Return what this broker asks a Slipstream slave, and says of itself. Raises OwnFileDamaged, OSError."""
    facts = ha_facts.HaFacts(config, counters)
    return MasterGreeting(
        facts.now(),
        facts.secret(),
        nonce,
        counts_flushed=config.ha_ack_flushed,
        puts_wait=put_policy(replication.of_config(config)).in_sync_replicas > 1,
        is_required=config.ha_secret_required,
    )


def sender_of(
    config: BrokerConfig, counters: BrokerCounters, slot: int, now_ms: int, *, is_told: bool = True
) -> Sender:
    """Return the sender of a slot, without a connection. `is_told`: the log says why it ends."""
    policy = put_policy(replication.of_config(config))
    limits = ConnectionLimits(
        segment_bytes=config.mapped_file_size_commit_log_bytes,
        transfer_batch_bytes=config.ha_transfer_batch_bytes,
        send_heartbeat_interval_ms=config.ha_send_heartbeat_interval_ms,
        housekeeping_interval_ms=config.ha_housekeeping_interval_ms,
        slave_timeout_ms=config.slave_timeout_ms,
    )
    files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
    confirming = Confirming(
        is_by_sender=policy.in_sync_replicas == 2 and not policy.replicas_min and not config.ha_ack_flushed,
        fallbehind_bytes_max=config.ha_slave_fallbehind_max_bytes,
        counts=range(2, policy.in_sync_replicas + 1) if policy.replicas_min else (),
    )
    connection = HaConnection(
        limits,
        FlowMonitor(now_ms),
        now_ms,
        start_from_min=config.ha_start_from_min,
        counts_flushed=config.ha_ack_flushed,
    )
    return Sender(counters, slot, files, connection, now_ms, confirming=confirming, is_told=is_told)


def open_role(
    config: BrokerConfig,
    counters: BrokerCounters,
    slot: int,
    sock: socket.socket,
    peer: tuple[str, int],
    reports: bytes,
    is_told: bool = True,
) -> Sender:
    """The sender of a slave that sent `reports` first, reading already. `is_told`: the log says why it ends."""
    now_ms, greeting = monotonic_ms(), greeting_of(config, counters, os.urandom(NONCE_BYTES))
    sender = sender_of(config, counters, slot, now_ms, is_told=is_told)
    sender.attach(sock, peer, now_ms)
    sender.meet(reports, greeting, now_ms)
    sender.start_reading()
    return sender
