"""Where every consume queue ends, as its queue offset, in shared memory: what a reader may read of it.

Implements: MessageStore.getMaxOffsetInQueue
Written by the dispatcher alone, after the queue's files and before it moves reput_from_offset: who sees the cursor move
finds here which queues have more. The supervisor fills it from recovery. A killed dispatcher's successor writes the
words of the queues that it comes to again; what is there already is in the files, too.

Region "queue_ends": as `engine.shared_memory.queue_table` has it.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np

from engine.shared_memory.queue_table import TOPIC_BYTES_MAX, NoQueueSlot, QueueTable, TableWord
from ipc.arrays import Words
from ipc.compiled.atomics import Followed, await_change, load_acquire, monotonic_ns, store_release
from ipc.compiled.kernels import kernel

NO_SLOT = -1
LOOK_NS = 50_000_000  # for who need not know at once: RocketMQ looks for delayed messages each 100 ms


@kernel
def set_ends(words: Words, slots: Words, ends: Words) -> None:
    """Write the words of these slots, after all that was written before."""
    for index in range(slots.size):
        store_release(words, slots[index], ends[index])


@kernel
def await_more(
    followed: Words, index: int, seen: int, table: Words, used: int, slots: Words, ends: Words, timeout_ns: int
) -> int:
    """Sleep until the word `followed` (reput_from_offset) has moved and one of these queues ends behind `ends`.

    Or there are more queues than `used`, or the time is over; the word then. While the word moves it is looked at each
    LOOK_NS, and nobody sleeps on it: for who does the dispatcher goes by each message. While it rests it is slept on.
    Returns early when a signal arrives.
    """
    until_ns, nothing = monotonic_ns() + timeout_ns, np.zeros(Followed.WAITERS + 1, np.int64)
    moves = True
    while True:
        now, began_ns = load_acquire(followed, index), monotonic_ns()
        if now != seen:
            if load_acquire(table, TableWord.USED) > used:
                return now
            for k in range(slots.size):
                if load_acquire(table, TableWord.NEXT_OFFSETS + slots[k]) > ends[k]:
                    return now
        nap_ns = until_ns - began_ns
        if moves:
            nap_ns = min(LOOK_NS, nap_ns)
            await_change(nothing, 0, 0, nap_ns)
        else:
            await_change(followed, index, now, nap_ns)
        moved = load_acquire(followed, index) != now
        if (not moved or moves) and (monotonic_ns() < began_ns + nap_ns or nap_ns <= 0):
            return now
        moves = moved


class QueueEnds(QueueTable):
    """The end of every queue, by slot."""

    file = "queue_ends"

    def slot_for(self, topic: bytes, queue_id: int) -> int:
        """The queue's slot, a new one at its first entry; NO_SLOT where there is no room for one more."""
        if len(topic) > TOPIC_BYTES_MAX:
            return NO_SLOT
        try:
            return self.slot_of(topic, queue_id)
        except NoQueueSlot:
            return NO_SLOT

    def find(self, topic: bytes, queue_id: int) -> int:
        """The slot of a queue that has entries; NO_SLOT for any other."""
        slot = self._slots.get((topic, queue_id))
        if slot is None:
            self.look()
            slot = self._slots.get((topic, queue_id), NO_SLOT)
        return slot

    def set_ends(self, slots: Words, ends: Words) -> None:
        """Write the ends of queues."""
        set_ends(self.next_offsets, slots, ends)
