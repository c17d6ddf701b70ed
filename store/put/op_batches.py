"""Which half messages are done with, collected until their op message is due: pure, time is passed in.

Implements: TransactionalMessageServiceImpl.deletePrepareMessage, batchSendOpMessage and getOpMessage (5.x); 4.9 writes
an op message for each (spec: store-formats, section 8)
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

OP_BYTES_MAX, OP_INTERVAL_MS = 4096, 3000  # transactionOpMsgMaxSize, transactionOpBatchInterval


@dataclass
class _Queue:
    """The pending op messages of one queue of halves."""

    last_write_ms: int
    parts: deque[str] = field(default_factory=deque)
    size: int = 0


class OpBatches:
    """Offsets of half messages as text, by queue, on their way into op messages."""

    def __init__(self, *, bytes_max: int = OP_BYTES_MAX, interval_ms: int = OP_INTERVAL_MS) -> None:
        self._bytes_max, self._interval_ms = bytes_max, interval_ms
        self._queues: dict[int, _Queue] = {}

    def add(self, queue_id: int, offsets: str, now_ms: int) -> None:
        """Remember one more half message that is done with."""
        pending = self._queues.setdefault(queue_id, _Queue(now_ms))
        pending.parts.append(offsets)
        pending.size += len(offsets)

    def due(self, now_ms: int, *, all_of_them: bool = False) -> list[tuple[int, str]]:
        """(queue id, body) of the op messages to write now: of full queues, of those that have waited long enough."""
        written = []
        for queue_id, pending in self._queues.items():
            is_late = now_ms - pending.last_write_ms >= self._interval_ms
            while pending.parts and (all_of_them or is_late or pending.size > self._bytes_max):
                written.append((queue_id, self._take(pending, now_ms)))
        return written

    def next_due_ms(self) -> int | None:
        """Return when `due` has something to say at the latest; None while nothing is pending."""
        times = [pending.last_write_ms + self._interval_ms for pending in self._queues.values() if pending.parts]
        return min(times, default=None)

    def _take(self, pending: _Queue, now_ms: int) -> str:
        text = ""
        while pending.parts and len(text) < self._bytes_max:
            text += pending.parts.popleft()
        pending.size -= len(text)
        pending.last_write_ms = now_ms
        return text
