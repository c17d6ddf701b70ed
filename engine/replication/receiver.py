"""Follows a master: bytes go from the socket into the segment, then our end is published, then reported.

Implements: HAClient (spec: ha-protocol, 4 slave side); the decisions are in engine/protocol/ha/client.py; the usual
            case is one compiled loop, engine/replication/receiver_kernel.py
Follows:    allocated_offset, the allocator's; ha_server_address, when haMasterAddress is not given
            (engine/replication/dial.py makes the connection)
Publishes:  max_physical_offset, segment_request_offset, store_timestamp_ms, ha_client.*
Writes:     slipstream.diverged, once the master's log is another than ours: from then on no master is asked for more,
            until an operator has removed it; slipstream.epochs, as its master's log has them
Frames split records: our end is any byte, and readers see whole records only. A restart goes on from our own cursor.
"""

from __future__ import annotations

import logging
import os
import socket

from engine.net import tls
from engine.net.tls import BrokerTls
from engine.protocol.ha.client import HaClient, HaClientState
from engine.protocol.ha.client_kernel import ClientLimits
from engine.protocol.ha.hello import NONCE_BYTES, SlaveGreeting
from engine.protocol.ha.next_steps import advice_of
from engine.protocol.ha.opening import NO_TAIL, Tail
from engine.protocol.ha.wire import FRAME_HEADER_BYTES, TRIED_SOON, CloseReason, PeerError
from engine.replication import ha_facts, receiver_kernel, replica_words
from engine.replication.dial import Address, Dial, Dialed, NotConnected
from engine.replication.flush_reports import FlushReports
from engine.replication.receiver_kernel import INBOX_BYTES, NO_SEGMENT, HeldWord, Outcome
from engine.replication.tls_relay import TlsRelay
from engine.role import stop_alarm
from engine.settings.config import BrokerConfig
from engine.shared_memory import address_cursors, addresses, written_file
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.failures import errno_text, is_unreadable
from ipc import descriptors, waiting
from ipc.clock import monotonic_ms, wall_ms
from store.errors import StoreError
from store.files.segment import Segment
from store.files.segment_files import SegmentFiles
from store.notes import divergence
from store.notes.divergence import Divergence
from store.recovery import overlap
from store.recovery.log_end import bytes_missing

log = logging.getLogger("slipstream.receiver")

BYTES_PER_TURN = 16 << 20  # about ten milliseconds of them
LOOK_MS = 1000  # at a note that may be removed, at the disk's state, at where name servers say that the master is


class Receiver:
    """The slave's end of replication, over all reconnects; the only writer of a slave's log."""

    name = "receiver"

    overlap_bytes = overlap.OVERLAP_BYTES  # of our log's end, compared with the master's when a connection begins

    def __init__(
        self,
        config: BrokerConfig,
        counters: BrokerCounters,
        files: SegmentFiles,
        limits: ClientLimits,
        *,
        dial: Dial,
        flush_reports: FlushReports,
    ) -> None:
        end, built_to = counters.max_physical_offset.read(), counters.reput_from_offset.read()
        known = max(built_to, counters.min_physical_offset.read())  # where a record begins
        left = bytes_missing(files, known, end)
        self.client = HaClient(limits, end, left, from_last_file=config.sync_from_last_file)
        self._facts = ha_facts.HaFacts(config, counters)
        self._dial, self._flush_reports = dial, flush_reports
        self._diverged_path = divergence.path_of(config.store_path_root_dir)
        self._look_for_note_at_ms = 0
        self._is_diverged = False
        self._counters = counters
        self._words = counters.ha_client
        self._files = files
        self._master = config.ha_master_address
        self._socket: socket.socket | None = None
        self._relay: TlsRelay | None = None
        self._segment: Segment | None = None
        self._target = NO_SEGMENT
        self._has_wiped = False
        self._line = receiver_kernel.line_of(counters, self.client)
        self._held = self._line.held
        self._now_ms = 0
        waiting.publish(self._words.state, HaClientState.READY)

    def do_work(self, now_ms: int) -> int:
        """Connect, or receive what is there and report; the bytes received, 0 once the socket is empty.

        Also 0 when they were the last: the next turn would only find that out, and every put would pay for it.
        """
        self._now_ms = now_ms
        if is_unreadable(self._counters):  # no acknowledgement of what nobody here can read
            if self._is_begun():
                self._hang_up(CloseReason.LOG_UNREADABLE, "")
            return 0
        if number := self._counters.flush_errno.read():  # nor of what the disk does not take, or what nobody can reach
            if self._is_begun():
                self._hang_up(CloseReason.DISK_FAILED, errno_text(number))
            return 0
        if self.client.state is not HaClientState.TRANSFER:
            return 0 if self._has_diverged(now_ms) else self._connect(now_ms)
        before = int(self._held[HeldWord.RECEIVED])
        has_more = self._receive(now_ms, 0)
        moved = int(self._held[HeldWord.RECEIVED]) - before
        if not moved and self._socket is not None and self.client.is_silent(now_ms) and not self._lacks_space():
            self._hang_up(CloseReason.HOUSEKEEPING, f"{now_ms - self.client.last_read_ms} ms")
        return moved if has_more else 0

    def _is_begun(self) -> bool:
        """Whether there is a connection, or one in the making."""
        return self._socket is not None or self._dial.is_begun

    def _has_diverged(self, now_ms: int) -> bool:
        """Whether it is noted that our log is not the master's; looked for now and then, since a command removes it."""
        if now_ms < self._look_for_note_at_ms:
            return self._is_diverged
        self._look_for_note_at_ms = now_ms + LOOK_MS
        was_diverged, self._is_diverged = self._is_diverged, self._diverged_path.exists()
        if self._is_diverged and not was_diverged:
            log.error("%s; %s", self._facts.divergence_text(), divergence.ADVICE)
            waiting.publish(self._words.reason, CloseReason.DIVERGED)
        return self._is_diverged

    # the connection

    def _connect(self, now_ms: int) -> int:
        try:
            if not self._dial.is_begun:
                master = self._master or self._advertised()
                if master is None or not self.client.may_connect(now_ms):
                    return 0
                self._dial.begin(master, self.client.failures, now_ms)
            dialed = self._dial.turn(now_ms)
        except NotConnected as error:
            self._hang_up(error.reason, error.detail)
            return 0
        return 0 if dialed is None else self._begin(dialed, now_ms)

    def _advertised(self) -> Address | None:
        """Return where the name server says that the master is, asked at each connect: it may be another one by now."""
        return addresses.unpack(*address_cursors.read(self._counters.ha_server_address))

    def _begin(self, dialed: Dialed, now_ms: int) -> int:
        """Begin a connection: say who we are and what we have."""
        self._socket, self._relay = dialed.sock, dialed.relay
        try:
            tail, greeting = self.tail(), self.greeting()
        except StoreError as error:  # what we have, or the secret, cannot be read
            self._hang_up(CloseReason.LOG_UNREADABLE, str(error))
            return 0
        self.client.connected(now_ms, tail, greeting)
        self._held[[HeldWord.BEGIN, HeldWord.END, HeldWord.IS_DRAINED]] = 0, 0, 1
        address_cursors.publish(self._words.master_address, *dialed.peer)
        waiting.note(self._words.last_read_ms, now_ms)
        waiting.publish(self._words.state, HaClientState.TRANSFER)
        return 1

    def greeting(self) -> SlaveGreeting | None:
        """Return what we say of ourselves. Raises StoreError."""
        return self._facts.greeting(os.urandom(NONCE_BYTES))

    def tail(self) -> Tail:
        """The end of our log, to be compared with the master's. Raises StoreError."""
        if self.client.end == 0:
            return NO_TAIL
        bases = self._files.base_offsets()
        begin = max(self._counters.min_physical_offset.read(), bases[0] if bases else 0)
        return Tail(*overlap.last_bytes(self._files, begin, self.client.end, self.overlap_bytes))

    def _note_difference(self) -> None:
        """Write down that this log and the master's are two histories, before anything else shows it."""
        opening = self.client.opening
        difference = None if opening is None else opening.difference
        if difference is None or opening is None:
            return
        master = None if opening.greeting is None else opening.greeting.master
        self._look_for_note_at_ms = 0
        divergence.write(
            self._diverged_path.parent,
            Divergence(
                difference.offset,
                opening.tail.end,
                address_cursors.text_of(self._words.master_address),
                "" if master is None else master.identity.text,
                difference.own.hex(),
                difference.masters.hex(),
                wall_ms(),
            ),
        )

    def _hang_up(self, reason: CloseReason, detail: str) -> None:
        self._publish_end()
        if self._relay is not None and self._relay.failure is not None and reason is CloseReason.PEER_CLOSED:
            reason, detail = CloseReason.TLS, self._relay.failure
        self._flush_reports.stop()
        waiting.publish(self._counters.flush_at_once, 0)
        if reason is CloseReason.DIVERGED:
            self._note_difference()
        reason = self.client.seen_as(reason)
        is_news = reason is not self.client.reason or reason not in TRIED_SOON
        if is_news and reason is not CloseReason.STOPPED:
            log.warning("connection to the master ended: %s %s; %s", reason.name, detail, advice_of(reason))
        self._dial.close()
        if self._socket is not None:
            self._socket.close()
        self._socket = self._relay = None
        self.client.closed(reason, self._now_ms)
        waiting.add(self._words.ended[reason], 1)
        waiting.note(self._words.ended_at_ms, self._now_ms)
        waiting.publish(self._words.reason, reason)
        waiting.publish(self._words.state, self.client.state)

    # receiving

    def _receive(self, now_ms: int, sleep_ms: int) -> bool:
        """Run one turn of the compiled loop, and do what it leaves to Python; return whether there is more to read."""
        try:
            self._publish_end()
            has_more = self._take_in(now_ms, sleep_ms)
            if not sleep_ms:
                self._report(now_ms)
            return has_more
        except PeerError as error:
            self._hang_up(error.reason, error.detail)
        except ConnectionError as error:
            self._hang_up(CloseReason.PEER_CLOSED, str(error))
        return False

    def _take_in(self, now_ms: int, sleep_ms: int) -> bool:
        assert self._socket is not None
        fd, limits = self._socket.fileno(), self.client.limits
        while True:
            outcome = receiver_kernel.receive(self._line, self._target, limits, fd, now_ms, BYTES_PER_TURN, sleep_ms)
            if outcome == Outcome.JUDGE:
                self._judge(now_ms or monotonic_ms())
            elif outcome != Outcome.NEEDS_SEGMENT:
                break
            elif self._lacks_space():
                return False
        if outcome == Outcome.UNFIT:
            self._publish_end()
            self._report(now_ms or monotonic_ms())
            raise self.client.unfit()
        if outcome == Outcome.PEER_ENDED:
            raise ConnectionError("end of stream")
        if outcome <= Outcome.DISK:
            failed = Outcome.DISK - outcome
            raise OSError(failed, os.strerror(failed), str(self._files.path_of(self._target.base)))
        if outcome < 0:
            raise ConnectionError(os.strerror(-outcome))
        return bool(outcome == Outcome.MORE)

    def _judge(self, now_ms: int) -> None:
        """Let the protocol have the next header: it begins an empty log, or cannot be taken. Raises PeerError."""
        begin = int(self._held[HeldWord.BEGIN])
        if self.client.is_opening:
            came = self._line.inbox[begin : int(self._held[HeldWord.END])].data
            self._held[HeldWord.BEGIN] += self.client.take(came, now_ms)
            if not self.client.is_opening:
                self._opened()
            self._publish_end()
            self._report(now_ms)
            return
        self.client.header_space[:] = self._line.inbox[begin : begin + FRAME_HEADER_BYTES].tobytes()
        self._held[HeldWord.BEGIN] += FRAME_HEADER_BYTES
        self.client.received(FRAME_HEADER_BYTES, now_ms)
        self._publish_end()

    def _opened(self) -> None:
        """The master is known to have what we have: its epochs are ours, and it may want to hear of our disk."""
        opening = self.client.opening
        if opening is not None and opening.greeting is not None and opening.greeting.master is not None:
            self._facts.follow(opening.greeting.master)
            replica_words.publish_remoting(self._words.remoting, opening.greeting.master.remoting)
        waiting.publish(self._counters.flush_at_once, int(self.client.puts_wait))
        if self.client.counts_flushed and self._socket is not None:
            self._flush_reports.start(self._socket)

    def _publish_end(self) -> None:
        end = self.client.end
        if end == self._held[HeldWord.PUBLISHED]:
            return
        if self._segment is None and self._lacks_space():
            return  # an empty log begins at `end`: said once its first segment exists
        waiting.publish(self._counters.max_physical_offset, end)
        self._held[HeldWord.PUBLISHED] = end

    def _report(self, now_ms: int) -> None:
        if self._held[HeldWord.PUBLISHED] != self.client.end:
            return  # never report what is not published
        report = self.client.report(now_ms)
        if report is None or self._socket is None:
            return
        try:
            sent = self._socket.send(report)
        except OSError as error:
            raise ConnectionError(str(error)) from error
        if sent != len(report):
            raise ConnectionError("the master does not read our reports")
        waiting.note(self._words.last_write_ms, now_ms)

    # room in the log

    def _lacks_space(self) -> bool:
        """Whether bytes are due whose segment is not there yet; asks the allocator for it, opens it when it is."""
        offset = self.client.max_physical_offset
        if self._segment is not None and offset < self._segment.end_offset:
            return False
        if not self.client.body_left and offset == self._held[HeldWord.PUBLISHED]:
            return False  # nothing is due: an empty slave must not begin a log before its master says where
        waiting.publish(self._counters.segment_request_offset, offset)
        if self._counters.allocated_offset.read() <= offset:
            return True
        if self._segment is not None:
            self._segment.close()
        self._segment, self._target = None, NO_SEGMENT  # stays so if the next line raises
        segment = self._segment = self._files.open(self._files.base_of(offset), writable=True)
        self._target = receiver_kernel.Target(segment.fd, segment.base_offset, segment.end_offset)
        written_file.note(self._counters, segment)
        if not self._has_wiped:
            self._wipe(segment, offset - segment.base_offset)
        return False

    def _wipe(self, segment: Segment, start: int) -> None:
        """Zeros again where a receiver that was killed may have put bytes that it did not come to publish."""
        behind = segment.array[start : start + INBOX_BYTES]
        if behind.any():
            behind[:] = 0
        self._has_wiped = True

    # waiting

    def idle(self, timeout_ms: int) -> None:
        """Sleep until bytes come, room comes, the connection stands, or something is due."""
        timeout_ms = min(timeout_ms, LOOK_MS)
        wait_ms = min(timeout_ms, self.client.wait_ms(self._now_ms))
        if self._is_diverged or is_unreadable(self._counters) or self._counters.flush_errno.read():
            wait_ms = timeout_ms
        if self.client.state is not HaClientState.TRANSFER:
            writing = self._dial.awaited
            descriptors.await_ready([stop_alarm()], writing, wait_ms if writing or self._master else timeout_ms)
            return
        allocated_seen = self._counters.allocated_offset.read()
        if self._lacks_space():
            waiting.await_change(self._counters.allocated_offset, allocated_seen, wait_ms)
            return
        self._receive(0, max(1, wait_ms))

    def close(self) -> None:
        """Hang up and give the segment back; what was received is published already."""
        self._hang_up(CloseReason.STOPPED, "")
        if self._segment is not None:
            self._segment.close()


def open_role(config: BrokerConfig, counters: BrokerCounters, how: BrokerTls | None = None) -> Receiver:
    """The receiver of this slave; without haMasterAddress it waits forever. `how`: its certificates, else read now."""
    limits = ClientLimits(
        segment_bytes=config.mapped_file_size_commit_log_bytes,
        send_heartbeat_interval_ms=config.ha_send_heartbeat_interval_ms,
        housekeeping_interval_ms=config.ha_housekeeping_interval_ms,
        reconnect_interval_ms=config.ha_reconnect_interval_ms,
    )
    files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
    dial = Dial(counters.ha_listen_port, (how or tls.of_broker(config)).ha_client)
    return Receiver(config, counters, files, limits, dial=dial, flush_reports=FlushReports(counters.flushed_offset))
