"""What a sender tells all others of its slave when a connection begins, and how much it may send it a second."""

from __future__ import annotations

from contextlib import suppress

from engine.protocol.ha.connection import HaConnection
from engine.protocol.ha.flow_monitor import UNLIMITED
from engine.protocol.ha.hello import Replica
from engine.shared_memory import address_cursors
from engine.shared_memory.cursors import BrokerCounters, HaConnectionCursors, HaSlotState, IdentityState
from engine.shared_memory.declarations import AddressCursors
from ipc import waiting
from ipc.host_port import host_port

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


def transfer_limit(counters: BrokerCounters, lacks_bytes: int) -> int:
    """Return how many bytes a second a slave may be sent that lacks so many now.

    By the settings of administrators at this moment.
    """
    limit = counters.max_ha_transfer_byte_in_second.read() if counters.ha_flow_control_enable.read() else UNLIMITED
    catch_up_limit = counters.max_ha_catch_up_byte_in_second.read()
    return min(limit, catch_up_limit) if catch_up_limit and lacks_bytes > CATCH_UP_BYTES else limit
