"""Writes that groups asked for offsets which their queues do not have: pulls note it, the front's puts say it.

Implements: PullMessageProcessor.generateOffsetMovedEvent
Nobody waits for such a message: one that the log refuses is dropped, as there; one that found no room is tried again.
"""

from __future__ import annotations

from collections import deque

from engine.front.sends.puts import PutOutcome
from engine.front.sends.send_desk import SendDesk
from engine.producer.pipeline import Busy
from ipc.clock import wall_ms
from store.errors import InvalidMessage, PropertiesTooLarge
from store.put.draft import draft_of
from store.put.events import MovedOffset, offset_moved
from store.put.request import to_log

A_TURN, WAITS_MS = 100, 3000


class MovedOffsets:
    """Events of one front; `noted` is what its pulls note, a bounded number."""

    def __init__(self, desk: SendDesk, noted: deque[MovedOffset]) -> None:
        self._desk, self._noted = desk, noted

    def turn(self) -> None:
        """Write at most A_TURN of the noted events."""
        for _ in range(min(A_TURN, len(self._noted))):
            self._write(self._noted.popleft())

    def _write(self, event: MovedOffset) -> None:
        desk, facts = self._desk, self._desk.facts.now()
        if desk.puts is None:  # a slave's log is its master's
            return
        stored = offset_moved(event, desk.config.broker_name, facts, wall_ms())
        try:
            draft = draft_of(to_log(stored, facts), facts)
            desk.puts.put(
                draft,
                waits=False,
                queue_id=stored.queue_id,
                on_done=_passed_over,
                on_expired=lambda _waited_ms: self._noted.append(event),
                limit_ms=WAITS_MS,
            )
        except Busy:
            self._noted.append(event)
        except (InvalidMessage, PropertiesTooLarge):
            return


def _passed_over(_outcome: PutOutcome) -> None:
    """Do nothing: the outcome of such a put is not used."""
