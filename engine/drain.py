"""Rings into the log, compiled: copy a batch, patch what only the writer knows, commit all of it in one word.

Implements: DefaultAppendMessageCallback, what CommitLog does under its put lock (spec: store-formats, 1, 4, 8)

The writer may be killed between any two instructions, so a batch is committed like this:
1. copy and patch beyond the end of the log: nobody looks there;
2. write all that the batch changes (end of log, heads of the rings, queue offsets, tallies) into the commit record that
   is not the current one;
3. make that record the current one by storing its version: one word, the commit;
4. `redo` what it says into the words that others follow. A new writer begins with step 4, which may be done twice.

Region "journal": word 0 version | from word 8: two commit records (version & 1 says which is current):
end_offset, store_timestamp_ms, put_messages, put_bytes, put_refused, touched | heads of all rings |
records refused of all rings | touched slots | their next queue offsets
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

from ipc.atomics import load_acquire, publish, store_release
from ipc.compiling import inlined, kernel
from ipc.memory import copy_bytes, load_be32, store_be32, store_be64
from ipc.region import Bytes, Words
from ipc.ring import DESCRIPTOR_WORDS, HEAD, REFUSALS, SLOT_BITS, SLOT_MASK, TAIL, WORDS_PER_RING
from store.record import BLANK_BYTES, BLANK_MAGIC, FIXED_BYTES, PHYSICAL_OFFSET_AT, QUEUE_OFFSET_AT

BATCH_RECORDS_MAX = 8192
VERSION, RECORDS_AT = 0, 8
END, TIMESTAMP, MESSAGES, BYTES, REFUSED, TOUCHED, HEADS = 0, 1, 2, 3, 4, 5, 8

# What a call of `drain` came to
DRAINED, NEEDS_ROLL = 0, 1

# `state`: the writer's own words. What is committed, and what the batch at work has touched.
SEGMENT_BASE, SEGMENT_END, RECORD_BYTES_MAX, STAMP, STATE_WORDS = 0, 1, 2, 3, 8
# `scratch`: per slot the stamp of the last batch that touched it, its next offset in that batch; then the touched slots
# `places`: indices of the counters that `redo` moves
MAX_PHYSICAL, PUT_MESSAGES, PUT_BYTES, PUT_REFUSED, STORE_TIMESTAMP, PLACES = 0, 1, 2, 3, 4, 5

SYS_FLAG_LAST_BYTE_AT, BORN_HOST_V6 = 39, 0x10
STORE_TIMESTAMP_V4_AT, STORE_TIMESTAMP_V6_AT = 56, 68
EBADMSG = 74


def record_words(rings: int) -> int:
    """Length of one commit record, in words."""
    return HEADS + 2 * rings + 2 * BATCH_RECORDS_MAX


def journal_bytes(rings: int) -> int:
    """Size of the journal's payload."""
    return (RECORDS_AT + 2 * record_words(rings)) * 8


@inlined
def _record_at(journal: Words, version: int) -> int:
    return RECORDS_AT + (version & 1) * ((journal.size - RECORDS_AT) // 2)


@kernel
def redo(journal: Words, next_offsets: Words, controls: Words, counters: Words, places: Words) -> None:
    """Bring every word that others follow to what the current commit record says; harmless when done already."""
    at = _record_at(journal, journal[VERSION])
    rings = controls.size // WORDS_PER_RING
    slots_at = at + HEADS + 2 * rings
    for k in range(journal[at + TOUCHED]):
        next_offsets[journal[slots_at + k]] = journal[slots_at + BATCH_RECORDS_MAX + k]
    counters[places[STORE_TIMESTAMP]] = journal[at + TIMESTAMP]
    counters[places[PUT_MESSAGES]] = journal[at + MESSAGES]
    counters[places[PUT_BYTES]] = journal[at + BYTES]
    counters[places[PUT_REFUSED]] = journal[at + REFUSED]
    publish(counters, places[MAX_PHYSICAL], journal[at + END])
    for ring in range(rings):
        head = journal[at + HEADS + ring]
        controls[ring * WORDS_PER_RING + REFUSALS] = journal[at + HEADS + rings + ring]
        if controls[ring * WORDS_PER_RING + HEAD] != head:
            publish(controls, ring * WORDS_PER_RING + HEAD, head)


@inlined
def _begin(journal: Words, rings: int) -> int:
    """Copy the current record, but for its touched slots, to the other one; where that lies."""
    here, there = _record_at(journal, journal[VERSION]), _record_at(journal, journal[VERSION] + 1)
    for k in range(HEADS + 2 * rings):
        journal[there + k] = journal[here + k]
    journal[there + TOUCHED] = 0
    return there


@inlined
def _commit(journal: Words) -> None:
    store_release(journal, VERSION, journal[VERSION] + 1)


@inlined
def _is_sound(data: Bytes, position: int, length: int, slot: int, slots: int, length_max: int) -> bool:
    """Whether a descriptor and its record agree: another process wrote both."""
    start = position % data.size
    if length < FIXED_BYTES or length > length_max or slot >= slots or start + length > data.size:
        return False
    return load_be32(data, start) == length


@inlined
def _patch(segment: Bytes, at: int, queue_offset: int, physical_offset: int, now_ms: int) -> None:
    store_be64(segment, at + QUEUE_OFFSET_AT, queue_offset)
    store_be64(segment, at + PHYSICAL_OFFSET_AT, physical_offset)
    if segment[at + SYS_FLAG_LAST_BYTE_AT] & BORN_HOST_V6:
        store_be64(segment, at + STORE_TIMESTAMP_V6_AT, now_ms)
    else:
        store_be64(segment, at + STORE_TIMESTAMP_V4_AT, now_ms)


@inlined
def _next_queue_offset(
    slot: int, stamp: int, next_offsets: Words, scratch: Any, journal: Words, there: int, rings: int
) -> int:
    """Take the next offset of the queue for this batch; the first time, note the queue as touched."""
    if scratch[slot, 0] != stamp:
        scratch[slot, 0] = stamp
        scratch[slot, 1] = next_offsets[slot]
        touched = journal[there + TOUCHED]
        journal[there + HEADS + 2 * rings + touched] = slot
        journal[there + TOUCHED] = touched + 1
    queue_offset = scratch[slot, 1]
    scratch[slot, 1] = queue_offset + 1
    return queue_offset


@kernel
def drain(
    segment: Bytes,
    data: Bytes,
    words: Words,
    ring: int,
    controls: Words,
    journal: Words,
    next_offsets: Words,
    slots: int,
    scratch: Any,
    state: Words,
    counters: Words,
    places: Words,
    now_ms: int,
    bytes_max: int,
) -> int:
    """Append what ring `ring` holds, `bytes_max` at most, to the open segment, and commit it.

    DRAINED: as much as there was or may be done at once. NEEDS_ROLL: the next record does not fit the segment.
    """
    rings = controls.size // WORDS_PER_RING
    descriptors = words.size // DESCRIPTOR_WORDS
    there = _begin(journal, rings)
    head, tail = journal[there + HEADS + ring], load_acquire(controls, ring * WORDS_PER_RING + TAIL)
    tail = min(tail, head + BATCH_RECORDS_MAX)
    first, end = head, journal[there + END]
    stop = min(end + bytes_max, state[SEGMENT_END])
    now_ms = max(now_ms, journal[there + TIMESTAMP])
    state[STAMP] += 1
    outcome = DRAINED
    while head < tail:
        # a run: records that lie behind one another in the ring and fit the segment
        run_head, run_start, run_bytes = head, words[(head % descriptors) * DESCRIPTOR_WORDS], 0
        while head < tail:
            at = (head % descriptors) * DESCRIPTOR_WORDS
            length = words[at + 1] >> SLOT_BITS
            if words[at] != run_start + run_bytes or end + run_bytes >= stop:
                break
            if not _is_sound(data, words[at], length, words[at + 1] & SLOT_MASK, slots, state[RECORD_BYTES_MAX]):
                break
            if end + run_bytes + length + BLANK_BYTES > state[SEGMENT_END]:
                outcome = NEEDS_ROLL
                break
            run_bytes += length
            head += 1
        copy_bytes(segment, end - state[SEGMENT_BASE], data, run_start % data.size, run_bytes)
        for number in range(run_head, head):
            at = (number % descriptors) * DESCRIPTOR_WORDS
            queue_offset = _next_queue_offset(
                words[at + 1] & SLOT_MASK, state[STAMP], next_offsets, scratch, journal, there, rings
            )
            _patch(segment, end - state[SEGMENT_BASE], queue_offset, end, now_ms)
            words[at + 2] = end
            words[at + 3] = queue_offset
            end += words[at + 1] >> SLOT_BITS
        if outcome == NEEDS_ROLL or end >= stop:
            break
        if head < tail and head == run_head:  # not even one: the record is not sound
            words[(head % descriptors) * DESCRIPTOR_WORDS + 2] = -EBADMSG
            journal[there + REFUSED] += 1
            journal[there + HEADS + rings + ring] += 1
            first += 1
            head += 1
    if head == journal[there + HEADS + ring]:
        return outcome
    slots_at = there + HEADS + 2 * rings
    for k in range(journal[there + TOUCHED]):
        journal[slots_at + BATCH_RECORDS_MAX + k] = scratch[journal[slots_at + k], 1]
    journal[there + MESSAGES] += head - first
    journal[there + BYTES] += end - journal[there + END]
    journal[there + TIMESTAMP] = now_ms
    journal[there + END] = end
    journal[there + HEADS + ring] = head
    _commit(journal)
    redo(journal, next_offsets, controls, counters, places)
    return outcome


@kernel
def refuse(
    words: Words,
    ring: int,
    errno: int,
    controls: Words,
    journal: Words,
    next_offsets: Words,
    counters: Words,
    places: Words,
) -> int:
    """Refuse all that ring `ring` holds, because of `errno`; how many."""
    rings = controls.size // WORDS_PER_RING
    there = _begin(journal, rings)
    head, tail = journal[there + HEADS + ring], load_acquire(controls, ring * WORDS_PER_RING + TAIL)
    for number in range(head, tail):
        words[(number % (words.size // DESCRIPTOR_WORDS)) * DESCRIPTOR_WORDS + 2] = -errno
    journal[there + REFUSED] += tail - head
    journal[there + HEADS + rings + ring] += tail - head
    journal[there + HEADS + ring] = tail
    _commit(journal)
    redo(journal, next_offsets, controls, counters, places)
    return tail - head


@kernel
def roll(
    segment: Bytes, base: int, controls: Words, journal: Words, next_offsets: Words, counters: Words, places: Words
) -> int:
    """Fill the rest of the segment with one blank record; the new end of the log, where the next segment begins."""
    there = _begin(journal, controls.size // WORDS_PER_RING)
    at = journal[there + END] - base
    store_be32(segment, at, segment.size - at)
    store_be32(segment, at + 4, BLANK_MAGIC)
    journal[there + END] = base + segment.size
    _commit(journal)
    redo(journal, next_offsets, controls, counters, places)
    return base + segment.size
