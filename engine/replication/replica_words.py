"""What a sender tells all others of its slave when a connection begins, and how much it may send it a second."""

from __future__ import annotations

import socket
from contextlib import suppress

from engine.protocol.ha.connection import HaConnection
from engine.protocol.ha.flow_monitor import UNLIMITED
from engine.protocol.ha.hello import REPEATED, Replica
from engine.protocol.ha.wire import REPORT_BYTES
from engine.shared_memory import address_cursors
from engine.shared_memory.cursors import BrokerCounters, HaConnectionCursors, HaSlotState, IdentityState
from engine.shared_memory.declarations import AddressCursors
from ipc import descriptors, waiting
from ipc.host_port import host_port

PROMPT_MS = 3000  # less than a RocketMQ slave takes for its second report
RELAY_PATIENCE_MS = 1_000
CATCH_UP_BYTES = 64 << 20  # who lacks more is catching up: for younger bytes puts may wait


def begin(words: HaConnectionCursors, connection: HaConnection, now_ms: int) -> None:
    """Reset a slot's words for a new connection; only its address was written before."""
    for cursor, value in (
        (words.slave_request_offset, connection.slave_request_offset),
        (words.next_transfer_offset, connection.next_transfer_offset),
        (words.slave_ack_offset, connection.slave_ack_offset),
        (words.held_offset, connection.held_offset),
        (words.flushed_offset, connection.flushed_offset),
        (words.identity, 0),
        (words.identity_state, IdentityState.BY_ADDRESS),
        (words.broker_id, -1),
        (words.remoting.word, 0),
        (words.transferred_bytes, 0),
        (words.acks_rejected, 0),
        (words.last_read_ms, now_ms),
        (words.connected_at_ms, now_ms),
        (words.state, HaSlotState.CONNECTED),
    ):
        waiting.publish(cursor, value)


def publish_identity(words: HaConnectionCursors, replica: Replica) -> None:
    """Tell who it is, before anything that it acknowledges."""
    publish_remoting(words.remoting, replica.facts.remoting)
    waiting.publish(words.broker_id, replica.facts.identity.broker_id)
    waiting.publish(words.identity, replica.facts.identity.number)
    waiting.publish(words.identity_state, IdentityState.SIGNED if replica.is_signed else IdentityState.CLAIMED)


def publish_remoting(at: AddressCursors, said: str) -> None:
    """Tell where the other side answers clients, if it says a numeric address."""
    place = host_port(said)
    with suppress(ValueError):
        if place is not None:
            address_cursors.publish(at, *place)


def more_reports(sock: socket.socket, waited_ms: int, patience_ms: int | None = None) -> bytes:
    """Return what else came in the packet of the first report: a Slipstream slave repeats the report.

    Of one that had to wait for its slot nothing is taken: a RocketMQ slave repeats its report while it waits. A
    slave that connects through a TLS relay is Slipstream's, and the packet's rest may arrive a little later, within
    `patience_ms`.
    """
    rest, wanted = b"", (REPEATED - 1) * REPORT_BYTES
    if patience_ms is None:
        patience_ms = RELAY_PATIENCE_MS if sock.family == socket.AF_UNIX else 0
    if waited_ms > PROMPT_MS:
        return rest
    with suppress(OSError):  # it is gone, which the next read tells
        while len(rest) < wanted and descriptors.await_readable(sock, timeout_ms=patience_ms):
            piece = sock.recv(wanted - len(rest), socket.MSG_DONTWAIT)
            if not piece:
                break
            rest += piece
    return rest


def transfer_limit(counters: BrokerCounters, lacks_bytes: int) -> int:
    """Return how many bytes a second a slave may be sent that lacks so many now.

    By the settings of administrators at this moment.
    """
    limit = counters.max_ha_transfer_byte_in_second.read() if counters.ha_flow_control_enable.read() else UNLIMITED
    catch_up_limit = counters.max_ha_catch_up_byte_in_second.read()
    return min(limit, catch_up_limit) if catch_up_limit and lacks_bytes > CATCH_UP_BYTES else limit
