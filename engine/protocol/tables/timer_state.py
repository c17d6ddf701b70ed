"""How far a 5.x broker's timer wheel is: its checkpoint as bytes, and what a slave takes of its master's.

Implements: TimerCheckpoint (spec: remoting, 6 metadata request bodies)
Our broker turns no wheel: it keeps and passes on what a RocketMQ broker found, or will find, in the store.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from struct import Struct

from store.tables.tables import DataVersion

_CHECKPOINT = Struct(">7q")
CHECKPOINT_BYTES = _CHECKPOINT.size
FILE_BYTES = 4096  # RocketMQ maps a page


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    """Times in ms, places in the timer's log and queue."""

    last_read_ms: int = 0
    last_timer_log_flush_offset: int = 0
    last_timer_queue_offset: int = 0
    master_timer_queue_offset: int = 0
    version: DataVersion = field(default_factory=lambda: DataVersion(state_version=0))

    @classmethod
    def decode(cls, data: bytes) -> TimerCheckpoint:
        """Decode an answer, or the file, which may be longer; too few bytes give the initial checkpoint."""
        if len(data) < CHECKPOINT_BYTES:
            return cls()
        read, flush, queue, master, state, timestamp, counter = _CHECKPOINT.unpack_from(data)
        return cls(read, flush, queue, master, DataVersion(counter, timestamp, state))

    def encode(self) -> bytes:
        """Return the checkpoint as bytes on the wire."""
        version = self.version
        return _CHECKPOINT.pack(
            self.last_read_ms,
            self.last_timer_log_flush_offset,
            self.last_timer_queue_offset,
            self.master_timer_queue_offset,
            version.state_version or 0,
            version.timestamp_ms,
            version.counter,
        )

    def file(self) -> bytes:
        """Return the checkpoint as its file's bytes, padded with zeros."""
        return self.encode().ljust(FILE_BYTES, b"\0")

    def following(self, master: TimerCheckpoint) -> TimerCheckpoint:
        """A slave's, after its master's: what is the master's own stays there."""
        return replace(
            self,
            last_read_ms=master.last_read_ms,
            master_timer_queue_offset=master.master_timer_queue_offset,
            version=master.version,
        )
