"""Offsets that an administrator set: the first pull of the queue hears of it, whatever it asked for.

Implements: ConsumerOffsetManager.queryThenEraseResetOffset, as PullMessageProcessor of 5.x asks it
"""

from __future__ import annotations

from collections.abc import Callable

from engine.front.connections.log_body import LogRange
from engine.front.connections.relay import Relay
from engine.front.connections.tables import Json
from engine.front.pulls.log_view import Queue
from engine.protocol.pulling.decision import Catch, QueueExtent, Status
from engine.protocol.pulling.header import PullHeader


class Resets:
    """Offsets that pulls still have to hear. `table` comes from the clients role, which removes what was heard."""

    def __init__(self, table: dict[str, Json], relay: Relay) -> None:
        self.table, self._relay = table, relay

    def take(self, header: PullHeader, extent: Callable[[Queue], QueueExtent]) -> tuple[Catch, list[LogRange]] | None:
        """Take the offset set for a pull's queue; None without one, or where the clients role cannot be asked."""
        name = reset_name(header.topic, header.group)
        offset = self.table.get(name, {}).get(str(header.queue_id))
        if offset is None:
            return None
        fields = {"topic": header.topic, "group": header.group, "queueId": header.queue_id, "offset": offset}
        if not self._relay.ask("reset_heard", fields, lambda _answer: None):
            return None
        self.table[name] = {queue: at for queue, at in self.table[name].items() if queue != str(header.queue_id)}
        return Catch(Status.OFFSET_RESET, offset, extent((header.topic, header.queue_id))), []

    def has(self, topic: str, group: str) -> bool:
        """Whether a pull of one of these queues is to hear something."""
        return bool(self.table.get(reset_name(topic, group)))


def reset_name(topic: str, group: str) -> str:
    """Return the name of an entry of the table."""
    return f"{topic}@{group}"
