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

from enum import IntEnum
from typing import Any, NamedTuple

from engine.rings.encode_kernel import fill_in, flip_magic
from engine.rings.payload import COMPOSED
from ipc.arrays import Bytes, Words
from ipc.compiled.atomics import load_acquire, release_fence, store_release, wake
from ipc.compiled.kernels import inlined, kernel
from ipc.compiled.memory import copy_bytes, load_be32, store_be32
from ipc.ring import DESCRIPTOR_WORDS, WORDS_PER_RING, ControlWord, Descriptor, descriptor_at, length_of, slot_of
from store.message.record import BLANK_BYTES, BLANK_MAGIC, FIXED_BYTES

BATCH_RECORDS_MAX = 8192
EBADMSG = 74


class JournalWord(IntEnum):
    """The words of the journal: the version, then the two commit records."""

    VERSION = 0
    RECORDS = 8


class CommitWord(IntEnum):
    """The words of a commit record before those that each ring has; HEADS: the first of these."""

    END = 0
    TIMESTAMP = 1
    MESSAGES = 2
    BYTES = 3
    REFUSED = 4
    TOUCHED = 5
    HEADS = 8


class CommitCounter(IntEnum):
    """`Shared.places`: indices of the counters that `redo` moves."""

    MAX_PHYSICAL = 0
    PUT_MESSAGES = 1
    PUT_BYTES = 2
    PUT_REFUSED = 3
    STORE_TIMESTAMP = 4


class ScratchColumn(IntEnum):
    """`Target.scratch`: the stamp of the last batch that touched a queue, its next offset in that batch."""

    STAMP = 0
    NEXT_OFFSET = 1


class DrainStop(IntEnum):
    """The reasons for which a call of `drain` stopped."""

    DRAINED = 0
    NEEDS_ROLL = 1
    NEEDS_COMPOSING = 2


class Shared(NamedTuple):
    """The words that a commit changes: in the journal first, then where others follow them."""

    journal: Words
    next_offsets: Words
    controls: Words
    counters: Words
    places: Words


class Target(NamedTuple):
    """The open segment and the writer's own memory; `scratch` has a row for each queue."""

    segment: Bytes
    base: int
    scratch: Any
    record_bytes_max: int


class Source(NamedTuple):
    """The ring that is drained."""

    data: Bytes
    words: Words
    ring: int


class Taken(NamedTuple):
    """What a commit takes from a ring: up to where, what it puts, how many records it refuses, and when."""

    head: int
    messages: int
    put_bytes: int
    refused: int
    now_ms: int


def record_words(rings: int) -> int:
    """Length of one commit record, in words."""
    return CommitWord.HEADS + 2 * rings + 2 * BATCH_RECORDS_MAX


def journal_bytes(rings: int) -> int:
    """Size of the journal's payload."""
    return (JournalWord.RECORDS + 2 * record_words(rings)) * 8


@inlined
def record_at(journal: Words, version: int) -> int:
    """Return where the commit record of a version lies."""
    return JournalWord.RECORDS + (version & 1) * ((journal.size - JournalWord.RECORDS) // 2)


@kernel
def _publish_commit(shared: Shared) -> None:
    """Bring every word that others follow to what the current commit record says; nobody is woken yet."""
    journal, controls, counters, places = shared.journal, shared.controls, shared.counters, shared.places
    at = record_at(journal, journal[JournalWord.VERSION])
    rings = controls.size // WORDS_PER_RING
    slots_at = at + CommitWord.HEADS + 2 * rings
    for k in range(journal[at + CommitWord.TOUCHED]):
        shared.next_offsets[journal[slots_at + k]] = journal[slots_at + BATCH_RECORDS_MAX + k]
    counters[places[CommitCounter.STORE_TIMESTAMP]] = journal[at + CommitWord.TIMESTAMP]
    counters[places[CommitCounter.PUT_MESSAGES]] = journal[at + CommitWord.MESSAGES]
    counters[places[CommitCounter.PUT_BYTES]] = journal[at + CommitWord.BYTES]
    counters[places[CommitCounter.PUT_REFUSED]] = journal[at + CommitWord.REFUSED]
    # The log's end after queue offsets and tallies, the heads after the end: a producer that sees its record passed
    # finds it below the end, too.
    store_release(counters, places[CommitCounter.MAX_PHYSICAL], journal[at + CommitWord.END])
    for ring in range(rings):
        controls[ring * WORDS_PER_RING + ControlWord.REFUSALS] = journal[at + CommitWord.HEADS + rings + ring]
        store_release(controls, ring * WORDS_PER_RING + ControlWord.HEAD, journal[at + CommitWord.HEADS + ring])


@kernel
def redo(shared: Shared) -> None:
    """Show what the current commit record says, and wake all who follow it; harmless when done already."""
    _publish_commit(shared)
    for ring in range(shared.controls.size // WORDS_PER_RING):
        wake(shared.controls, ring * WORDS_PER_RING + ControlWord.HEAD)
    wake(shared.counters, shared.places[CommitCounter.MAX_PHYSICAL])


@inlined
def begin_commit(journal: Words, rings: int) -> int:
    """Copy the current record, but for its touched slots, to the other one; where that lies."""
    version = journal[JournalWord.VERSION]
    here, there = record_at(journal, version), record_at(journal, version + 1)
    for k in range(CommitWord.HEADS + 2 * rings):
        journal[there + k] = journal[here + k]
    journal[there + CommitWord.TOUCHED] = 0
    return there


@inlined
def _commit_record(shared: Shared) -> None:
    # The commit: the record is complete in memory before the version that makes it the current one.
    store_release(shared.journal, JournalWord.VERSION, shared.journal[JournalWord.VERSION] + 1)


@kernel
def _commit_and_publish(shared: Shared, ring: int) -> None:
    """Publish all words before any wake-up, which may cost this process the CPU.

    A put that is confirmed by then must see that its ring's head has passed it. Of the rings only this one's
    producer has news, and wakes first: it takes the core that is free.
    """
    _commit_record(shared)
    _publish_commit(shared)
    wake(shared.controls, ring * WORDS_PER_RING + ControlWord.HEAD)
    wake(shared.counters, shared.places[CommitCounter.MAX_PHYSICAL])


@inlined
def end_commit(shared: Shared, there: int, ring: int, scratch: Any, taken: Taken) -> None:
    """Commit what was taken from one ring."""
    journal, rings = shared.journal, shared.controls.size // WORDS_PER_RING
    slots_at = there + CommitWord.HEADS + 2 * rings
    for k in range(journal[there + CommitWord.TOUCHED]):
        journal[slots_at + BATCH_RECORDS_MAX + k] = scratch[journal[slots_at + k], ScratchColumn.NEXT_OFFSET]
    journal[there + CommitWord.MESSAGES] += taken.messages
    journal[there + CommitWord.BYTES] += taken.put_bytes
    journal[there + CommitWord.REFUSED] += taken.refused
    journal[there + CommitWord.HEADS + rings + ring] += taken.refused
    journal[there + CommitWord.TIMESTAMP] = taken.now_ms
    journal[there + CommitWord.END] += taken.put_bytes
    journal[there + CommitWord.HEADS + ring] = taken.head
    _commit_and_publish(shared, ring)


@inlined
def _is_sound(source: Source, number: int, slots: int, length_max: int) -> bool:
    """Whether a descriptor and its record agree: another process wrote both."""
    at = descriptor_at(number, source.words.size // DESCRIPTOR_WORDS)
    length_and_slot, start = source.words[at + Descriptor.LENGTH_AND_SLOT], source.words[at + Descriptor.POSITION]
    length, start = length_of(length_and_slot), start % source.data.size
    if length < FIXED_BYTES or length > length_max or slot_of(length_and_slot) >= slots:
        return False
    return start + length <= source.data.size and load_be32(source.data, start) == length


@kernel
def _run_of(source: Source, head: int, tail: int, room: int, bytes_max: int, slots: int, length_max: int) -> Any:
    """(first record behind it, bytes, whether the segment is full): the records from `head` on that lie behind one
    another in the ring, are sound, and fit into `room` with a blank record behind them.

    A record may end exactly where the ring does: the one behind it lies at the ring's beginning, in another run."""
    words, descriptors = source.words, source.words.size // DESCRIPTOR_WORDS
    start, run_bytes = words[descriptor_at(head, descriptors) + Descriptor.POSITION], 0
    ring_rest = source.data.size - start % source.data.size
    while head < tail and run_bytes < bytes_max:
        at = descriptor_at(head, descriptors)
        is_behind = words[at + Descriptor.POSITION] == start + run_bytes and run_bytes < ring_rest
        if not is_behind or not _is_sound(source, head, slots, length_max):
            break
        length = length_of(words[at + Descriptor.LENGTH_AND_SLOT])
        if run_bytes + length + BLANK_BYTES > room:
            return head, run_bytes, True
        run_bytes += length
        head += 1
    return head, run_bytes, False


@inlined
def touch(slot: int, stamp: int, shared: Shared, scratch: Any, there: int, slots_at: int) -> None:
    """Have the queue's next offset in `scratch`; the first time in a batch, note the queue as touched."""
    if scratch[slot, ScratchColumn.STAMP] != stamp:
        scratch[slot, ScratchColumn.STAMP] = stamp
        scratch[slot, ScratchColumn.NEXT_OFFSET] = shared.next_offsets[slot]
        touched = shared.journal[there + CommitWord.TOUCHED]
        shared.journal[slots_at + touched] = slot
        shared.journal[there + CommitWord.TOUCHED] = touched + 1


@inlined
def _next_queue_offset(slot: int, stamp: int, shared: Shared, scratch: Any, there: int, slots_at: int) -> int:
    """Take the next offset of the queue for this batch."""
    touch(slot, stamp, shared, scratch, there, slots_at)
    queue_offset = scratch[slot, ScratchColumn.NEXT_OFFSET]
    scratch[slot, ScratchColumn.NEXT_OFFSET] = queue_offset + 1
    return queue_offset


@kernel
def _place(
    source: Source, first: int, head: int, target: Target, end: int, now_ms: int, shared: Shared, there: int
) -> int:
    """Give the records of a run, copied already, their offsets and time; tell their descriptors. The new end."""
    segment, words, descriptors = target.segment, source.words, source.words.size // DESCRIPTOR_WORDS
    stamp, rings = shared.journal[JournalWord.VERSION] + 1, shared.controls.size // WORDS_PER_RING
    slots_at = there + CommitWord.HEADS + 2 * rings
    for number in range(first, head):
        described = descriptor_at(number, descriptors)
        length_and_slot = words[described + Descriptor.LENGTH_AND_SLOT]
        slot = slot_of(length_and_slot)
        queue_offset = _next_queue_offset(slot, stamp, shared, target.scratch, there, slots_at)
        at = end - target.base
        fill_in(segment, at, queue_offset, end, now_ms)
        # The magic number last: until it is turned round, the bytes are no record to anybody, also after a kill.
        release_fence()
        flip_magic(segment, at)
        words[described + Descriptor.PHYSICAL_OFFSET] = end
        words[described + Descriptor.QUEUE_OFFSET] = queue_offset
        end += length_of(length_and_slot)
    return end


@kernel
def drain(source: Source, target: Target, shared: Shared, slots: int, now_ms: int, bytes_max: int) -> int:
    """Append what a ring holds, `bytes_max` at most, to the open segment, and commit it.

    DRAINED: as much as there was or may be done at once. NEEDS_ROLL: the next record does not fit the segment.
    NEEDS_COMPOSING: the next record is one for `engine.writer.compose_kernel`.
    """
    journal, ring = shared.journal, source.ring
    rings, descriptors = shared.controls.size // WORDS_PER_RING, source.words.size // DESCRIPTOR_WORDS
    there = begin_commit(journal, rings)
    begun = head = journal[there + CommitWord.HEADS + ring]
    # Acquire: the producer wrote records and descriptors below the tail before it moved the tail.
    tail = min(load_acquire(shared.controls, ring * WORDS_PER_RING + ControlWord.TAIL), head + BATCH_RECORDS_MAX)
    end = begun_at = journal[there + CommitWord.END]
    now_ms = max(now_ms, journal[there + CommitWord.TIMESTAMP])
    segment_end, refused, is_full, is_composed = target.base + target.segment.size, 0, False, False
    while head < tail and end - begun_at < bytes_max and not is_full:
        at = descriptor_at(head, descriptors)
        first, start = head, source.words[at + Descriptor.POSITION] % source.data.size
        left = bytes_max - (end - begun_at)
        head, run_bytes, is_full = _run_of(source, head, tail, segment_end - end, left, slots, target.record_bytes_max)
        copy_bytes(target.segment, end - target.base, source.data, start, run_bytes)
        end = _place(source, first, head, target, end, now_ms, shared, there)
        if head == first and not is_full:  # not even one: the record is not sound, or not for us
            at = descriptor_at(head, descriptors)
            if source.words[at + Descriptor.LENGTH_AND_SLOT] & COMPOSED:
                is_composed = True
                break
            source.words[at + Descriptor.PHYSICAL_OFFSET] = -EBADMSG
            refused += 1
            head += 1
    if head != begun:
        messages = head - begun - refused
        taken = Taken(head, messages, end - begun_at, refused, now_ms)
        end_commit(shared, there, ring, target.scratch, taken)
    if is_composed:
        return DrainStop.NEEDS_COMPOSING
    return DrainStop.NEEDS_ROLL if is_full else DrainStop.DRAINED


@kernel
def refuse(source: Source, errno: int, shared: Shared) -> int:
    """Refuse all that a ring holds, because of `errno`; how many."""
    journal, ring, rings = shared.journal, source.ring, shared.controls.size // WORDS_PER_RING
    there = begin_commit(journal, rings)
    head = journal[there + CommitWord.HEADS + ring]
    tail = load_acquire(shared.controls, ring * WORDS_PER_RING + ControlWord.TAIL)
    descriptors = source.words.size // DESCRIPTOR_WORDS
    for number in range(head, tail):
        source.words[descriptor_at(number, descriptors) + Descriptor.PHYSICAL_OFFSET] = -errno
    journal[there + CommitWord.REFUSED] += tail - head
    journal[there + CommitWord.HEADS + rings + ring] += tail - head
    journal[there + CommitWord.HEADS + ring] = tail
    _commit_and_publish(shared, ring)
    return tail - head


@kernel
def roll(segment: Bytes, base: int, shared: Shared) -> int:
    """Fill the rest of the segment with one blank record; the new end of the log, where the next segment begins."""
    there = begin_commit(shared.journal, shared.controls.size // WORDS_PER_RING)
    at = shared.journal[there + CommitWord.END] - base
    store_be32(segment, at, segment.size - at)
    store_be32(segment, at + 4, BLANK_MAGIC)
    shared.journal[there + CommitWord.END] = base + segment.size
    _commit_record(shared)
    redo(shared)
    return base + segment.size
