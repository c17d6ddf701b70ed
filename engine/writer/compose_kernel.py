"""Records that only the writer can finish, compiled: batches of one piece, offsets as text, CRCs over the whole record.

Implements: DefaultAppendMessageCallback.doAppend of a batch, and with INNER_BASE, INNER_MULTI_QUEUE_OFFSET or
`__CRC32#` (spec: store-formats, 3, 5, 8)
Their descriptors are marked, so that `engine.writer.drain_kernel` leaves them to this slower path; plain messages do
not pay for it. Each is made in memory of its own and copied behind the end of the log; one, or several batches behind
each other, are committed like a batch of plain ones. Magic numbers come last, the first record's last of all: to a
reader of the file a batch is there whole or not.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import errno
from typing import Any

import numpy as np

from engine.rings.encode_kernel import fill_in, flip_magic
from engine.rings.payload import COMPOSED, HEAD_WORDS, PayloadFlag, PayloadWord
from engine.writer.drain_kernel import (
    CommitWord,
    DrainStop,
    JournalWord,
    ScratchColumn,
    Shared,
    Source,
    Taken,
    Target,
    begin_commit,
    end_commit,
    touch,
)
from ipc.arrays import Bytes
from ipc.compiled.atomics import load_acquire, release_fence
from ipc.compiled.crc import crc32
from ipc.compiled.kernels import inlined, kernel
from ipc.compiled.memory import copy_bytes, load_be32, load_be64, store_be16, store_be32
from ipc.compiled.texts import decimal_bytes, write_decimal
from ipc.ring import DESCRIPTOR_WORDS, WORDS_PER_RING, ControlWord, Descriptor, descriptor_at, length_of, slot_of
from store.message.properties import CRC_DIGITS, CRC_HEAD, CRC_PROPERTY_BYTES, MAX_PROPERTIES_BYTES, PAIR_SEPARATOR
from store.message.record import BLANK_BYTES, CRC_MASK, FIXED_BYTES
from store.put.draft import DISPATCHES_MAX, Hole

PARTS_MAX = 8
TOGETHER_BYTES_MAX = 256 * 1024  # of simple ones: as many queues as a commit has room for take more
STEP_MAX, RECORDS_MAX = (1 << 15) - 1, 1 << 20
CRC_NAME = np.frombuffer(CRC_HEAD, np.uint8)
COMMA, ZERO, PAIR_END = ord(","), ord("0"), ord(PAIR_SEPARATOR)
EBADMSG, EMSGSIZE = errno.EBADMSG, errno.EMSGSIZE


@inlined
def _word(data: Bytes, start: int, number: int) -> int:
    return load_be64(data, start + number * 8)


@inlined
def _messages(data: Bytes, start: int) -> int:
    """Return how many queue offsets the payload's records take."""
    return _word(data, start, PayloadWord.STEP) * _word(data, start, PayloadWord.RECORDS)


@kernel
def _measure(data: Bytes, start: int, length: int, slot: int, shared: Shared, slots: int) -> int:
    """Return how many bytes the payload makes, or -errno: another process wrote it, nothing in it is trusted."""
    if length < HEAD_WORDS * 8 or slot >= slots or start + length > data.size:
        return -EBADMSG
    others, parts = _word(data, start, PayloadWord.OTHERS), _word(data, start, PayloadWord.PARTS)
    if others < 0 or others > DISPATCHES_MAX or parts < 1 or parts > PARTS_MAX or parts % 2 == 0:
        return -EBADMSG
    step, records = _word(data, start, PayloadWord.STEP), _word(data, start, PayloadWord.RECORDS)
    if not 1 <= step <= STEP_MAX or not 1 <= records <= RECORDS_MAX:
        return -EBADMSG
    used = (HEAD_WORDS + others + parts) * 8
    others_bytes = max(others - 1, 0)
    for k in range(others):
        other = _word(data, start, HEAD_WORDS + k) if used <= length else slots
        if other < -1 or other >= slots:
            return -EBADMSG
        if other >= 0:
            others_bytes += decimal_bytes(shared.next_offsets[other])
    total = 0
    for k in range(parts):
        part = _word(data, start, HEAD_WORDS + others + k) if used <= length else -3
        if k % 2 == 0:
            if part < 0 or part > length - used:
                return -EBADMSG
            used += part
            total += part
        elif part == Hole.OWN_OFFSET:
            total += decimal_bytes(shared.next_offsets[slot])
        elif part == Hole.OTHER_OFFSETS:
            total += others_bytes
        else:
            return -EBADMSG
    return total if used == length else -EBADMSG


@kernel
def _compose(data: Bytes, start: int, slot: int, shared: Shared, made: Bytes) -> None:
    """Write all pieces, and what belongs between them."""
    others, parts = _word(data, start, PayloadWord.OTHERS), _word(data, start, PayloadWord.PARTS)
    piece_at, at = start + (HEAD_WORDS + others + parts) * 8, 0
    for k in range(parts):
        part = _word(data, start, HEAD_WORDS + others + k)
        if part >= 0:
            copy_bytes(made, at, data, piece_at, part)
            piece_at += part
            at += part
        elif part == Hole.OWN_OFFSET:
            at = write_decimal(made, at, shared.next_offsets[slot])
        else:
            for j in range(others):
                if j > 0:
                    made[at] = COMMA
                    at += 1
                other = _word(data, start, HEAD_WORDS + j)
                if other >= 0:
                    at = write_decimal(made, at, shared.next_offsets[other])


@inlined
def _write_crc(made: Bytes, at: int, size: int) -> None:
    """`__CRC32#` over all of the record before it: ten digits, the last one first."""
    crc_at = at + size - CRC_PROPERTY_BYTES
    crc = crc32(made, at, crc_at - at) & CRC_MASK
    for k in range(CRC_NAME.size):
        made[crc_at + k] = CRC_NAME[k]
    for k in range(CRC_DIGITS):
        made[crc_at + CRC_NAME.size + k] = ZERO + crc % 10
        crc //= 10
    made[crc_at + CRC_PROPERTY_BYTES - 1] = PAIR_END


@kernel
def _fill(made: Bytes, records: int, flags: int, queue_offset: int, end: int, now_ms: int, bytes_max: int) -> bool:
    """Give all records their offsets, time and CRC, and hide their magic numbers; False when they do not add up."""
    at = 0
    for number in range(records):
        size = load_be32(made, at) if at + FIXED_BYTES <= made.size else 0
        if size < FIXED_BYTES or size > bytes_max or at + size > made.size:
            return False
        fill_in(made, at, queue_offset + number if flags & PayloadFlag.IS_COUNTED else 0, end + at, now_ms)
        if flags & PayloadFlag.HAS_CRC:
            _write_crc(made, at, size)
        flip_magic(made, at)
        at += size
    return at == made.size


@inlined
def _set_lengths(made: Bytes, properties_at: int) -> int:
    """The lengths that depend on what stands in the holes; 0, or -errno."""
    properties_bytes = made.size - properties_at - 2
    if properties_at < FIXED_BYTES - 2 or properties_bytes < 0:
        return -EBADMSG
    if properties_bytes > MAX_PROPERTIES_BYTES:
        return -EMSGSIZE
    store_be32(made, 0, made.size)
    store_be16(made, properties_at, properties_bytes)
    return 0


@kernel
def _reveal(segment: Bytes, begin: int, made: Bytes, records: int) -> None:
    """Show the magic numbers of records that are in place, the first one last."""
    starts = np.empty(records, np.int64)
    at = 0
    for number in range(records):
        starts[number] = at
        at += load_be32(made, at)
    for number in range(records - 1, -1, -1):
        release_fence()
        flip_magic(segment, begin + starts[number])


@kernel
def _count(data: Bytes, start: int, slot: int, shared: Shared, scratch: Any, there: int, slots_at: int) -> None:
    """Move the offsets of all queues concerned on."""
    flags, others = _word(data, start, PayloadWord.FLAGS), _word(data, start, PayloadWord.OTHERS)
    stamp = shared.journal[JournalWord.VERSION] + 1
    touch(slot, stamp, shared, scratch, there, slots_at)
    if flags & PayloadFlag.IS_COUNTED:
        scratch[slot, ScratchColumn.NEXT_OFFSET] += _messages(data, start)
    for k in range(others):
        other = _word(data, start, HEAD_WORDS + k)
        if other >= 0 and flags & PayloadFlag.OTHERS_COUNT:
            touch(other, stamp, shared, scratch, there, slots_at)
            repeats = flags & PayloadFlag.OTHERS_REPEAT
            before = scratch[other, ScratchColumn.NEXT_OFFSET] if repeats else shared.next_offsets[other]
            scratch[other, ScratchColumn.NEXT_OFFSET] = before + 1


@kernel
def _place(source: Source, described: int, target: Target, shared: Shared, slots: int, end: int, now_ms: int) -> int:
    """Put what a descriptor says behind the end of the log; its bytes, 0 when the segment is full, or -errno."""
    data, start = source.data, source.words[described + Descriptor.POSITION] % source.data.size
    length_and_slot, scratch = source.words[described + Descriptor.LENGTH_AND_SLOT], target.scratch
    length, slot = length_of(length_and_slot), slot_of(length_and_slot) & ~COMPOSED
    total = _measure(data, start, length, slot, shared, slots)
    if total < 0:
        return total
    bytes_max = min(_word(data, start, PayloadWord.BYTES_MAX), target.record_bytes_max)
    made = np.empty(total, np.uint8)
    _compose(data, start, slot, shared, made)
    if _word(data, start, PayloadWord.PARTS) > 1:
        failed = _set_lengths(made, _word(data, start, PayloadWord.PROPERTIES_AT))
        if failed == 0 and total > bytes_max:
            failed = -EMSGSIZE
        if failed != 0:
            return failed
    if total + BLANK_BYTES > target.segment.size:
        return -EMSGSIZE
    if total + BLANK_BYTES > target.base + target.segment.size - end:
        return 0
    flags, records = _word(data, start, PayloadWord.FLAGS), _word(data, start, PayloadWord.RECORDS)
    queue_offset = shared.next_offsets[slot]
    if scratch[slot, ScratchColumn.STAMP] == shared.journal[JournalWord.VERSION] + 1:  # one before it in this commit
        queue_offset = scratch[slot, ScratchColumn.NEXT_OFFSET]
    if not _fill(made, records, flags, queue_offset, end, now_ms, bytes_max):
        return -EBADMSG
    copy_bytes(target.segment, end - target.base, made, 0, total)
    _reveal(target.segment, end - target.base, made, records)
    source.words[described + Descriptor.PHYSICAL_OFFSET] = end
    source.words[described + Descriptor.QUEUE_OFFSET] = queue_offset if flags & PayloadFlag.IS_COUNTED else 0
    return total


@inlined
def _is_simple(source: Source, described: int) -> bool:
    """Whether a descriptor is marked, and its payload asks for no offset but that of its own queue."""
    start = source.words[described + Descriptor.POSITION] % source.data.size
    length_and_slot = source.words[described + Descriptor.LENGTH_AND_SLOT]
    if not length_and_slot & COMPOSED or length_of(length_and_slot) < HEAD_WORDS * 8:
        return False
    if start + HEAD_WORDS * 8 > source.data.size:
        return False
    return _word(source.data, start, PayloadWord.OTHERS) == 0 and _word(source.data, start, PayloadWord.PARTS) == 1


@kernel
def append_composed(source: Source, target: Target, shared: Shared, slots: int, now_ms: int) -> int:
    """Append what the first descriptor of a ring says, which is marked, and commit it: DRAINED, or NEEDS_ROLL.

    Simple ones behind each other are one commit: who waits for the last of them is woken once.
    """
    journal, rings = shared.journal, shared.controls.size // WORDS_PER_RING
    there, descriptors = begin_commit(journal, rings), source.words.size // DESCRIPTOR_WORDS
    slots_at = there + CommitWord.HEADS + 2 * rings
    head, begun_at = journal[there + CommitWord.HEADS + source.ring], journal[there + CommitWord.END]
    tail = load_acquire(shared.controls, source.ring * WORDS_PER_RING + ControlWord.TAIL)
    first, end, messages, refused = head, begun_at, 0, 0
    now_ms = max(now_ms, journal[there + CommitWord.TIMESTAMP])
    while True:
        described = descriptor_at(head, descriptors)
        total = _place(source, described, target, shared, slots, end, now_ms)
        if total <= 0 and head > first:
            break
        if total == 0:
            return DrainStop.NEEDS_ROLL
        head += 1
        if total < 0:
            source.words[described + Descriptor.PHYSICAL_OFFSET] = total
            refused = 1
            break
        start = source.words[described + Descriptor.POSITION] % source.data.size
        slot = slot_of(source.words[described + Descriptor.LENGTH_AND_SLOT]) & ~COMPOSED
        messages += _messages(source.data, start)
        _count(source.data, start, slot, shared, target.scratch, there, slots_at)
        end += total
        if not _is_simple(source, described) or head >= tail or end - begun_at >= TOGETHER_BYTES_MAX:
            break
        if not _is_simple(source, descriptor_at(head, descriptors)):
            break
    taken = Taken(head, messages, end - begun_at, refused, now_ms)
    end_commit(shared, there, source.ring, target.scratch, taken)
    return DrainStop.DRAINED
