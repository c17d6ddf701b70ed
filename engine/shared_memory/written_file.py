"""Which file the log's bytes go into, by its inode: the flusher opens it by name, and that may be another one by then.

Publishes:  written_base, written_inode
"""

from __future__ import annotations

import os

from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.files.segment import Segment

NOWHERE = -1


def note(counters: BrokerCounters, segment: Segment) -> None:
    """From now on bytes go into this segment's file. Only the writer, or the receiver, says so."""
    waiting.publish(counters.written_base, NOWHERE)
    waiting.publish(counters.written_inode, os.fstat(segment.fd).st_ino)
    waiting.publish(counters.written_base, segment.base_offset)


def is_another(counters: BrokerCounters, base: int, inode: int) -> bool:
    """Whether bytes of the segment that begins at `base` are known to go into another file than that one."""
    written = counters.written_inode.read()
    return written > 0 and counters.written_base.read() == base and written != inode
