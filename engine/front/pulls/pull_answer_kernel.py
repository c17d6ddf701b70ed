"""What a usual pull gets, compiled: its queue's units, the ranges of the log, the answer's head, all into the socket.

Implements: DefaultMessageStore.getMessage around its loop, ManyMessageTransfer (spec: remoting, 7)
Large ranges leave by sendfile, small ones are gathered behind the head. Where the socket takes no more, all that is
left of the answer is gathered, for the transport to send.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np

from engine.board.queue_ends import NO_SLOT
from engine.front.connections.log_body_kernel import MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL, SENDFILE_BYTES
from engine.front.frames.answer_kernel import HEAD_BYTES, end_head, write_decimal
from engine.front.frames.send_words import FORM_WORDS, PART_WORDS, PREFIXED, PartWord
from engine.front.pulls.pull_words import (
    AT_FIRST,
    FILE_WORDS,
    FORMS,
    HOLES,
    KINDS,
    KNOWN_WORDS,
    NO_SOCKET,
    FileWord,
    KnownWord,
    PullAnswer,
    PullHole,
    PullWord,
    Unusual,
)
from engine.protocol.pulling.checks import PERM_READ
from engine.protocol.pulling.decision import SCAN_BYTES
from engine.protocol.pulling.select_kernel import RANGES_MAX, Limit, RangeColumn, Taken, Unit, select
from ipc.arrays import Words
from ipc.compiled.atomics import address_of, load_acquire
from ipc.compiled.kernels import kernel
from ipc.compiled.memory import bytes_at, carray, copy_bytes, store_be32, words_at
from ipc.compiled.system_calls import send, sendfile
from store.queues.consume_queue import ENTRY_BYTES
from store.reading.units_kernel import decode_units

SCAN_UNITS = -(-SCAN_BYTES // ENTRY_BYTES)
FOUND, NOTHING_MORE, NOTHING_EVER = (int(said) for said in PullAnswer)
EAGAIN, EINTR, ENOMEM, ENOBUFS = -11, -4, -12, -105
LIMITS, TAKEN, UNIT_COLUMNS, RANGE_COLUMNS = len(Limit), len(Taken), len(Unit), len(RangeColumn)


@kernel
def begin(block: Words, fd: int) -> None:
    """Begin to write answers for a socket; NO_SOCKET: they stay in `out`."""
    block[PullWord.WRITTEN] = block[PullWord.SENT] = block[PullWord.ANSWERED] = block[PullWord.ERRNO] = 0
    block[PullWord.FD], block[PullWord.IS_BLOCKED] = fd, np.int64(fd == NO_SOCKET)


@kernel
def end_of(block: Words, row: int) -> int:
    """Return where the queue of a known pull ends."""
    known = carray(words_at(block[PullWord.KNOWN_AT]), (block[PullWord.KNOWN] * KNOWN_WORDS,))
    if known[row + KnownWord.SLOT] == NO_SLOT:
        return 0
    ends = carray(words_at(block[PullWord.ENDS_AT]), (block[PullWord.ENDS],))
    return load_acquire(ends, known[row + KnownWord.SLOT])


@kernel
def look(block: Words, row: int, offset: int, most: int) -> int:
    """Select what a known pull gets into `ranges` and `taken`; return 0, or why it is unusual."""
    known = carray(words_at(block[PullWord.KNOWN_AT]), (block[PullWord.KNOWN] * KNOWN_WORDS,))
    counters = carray(words_at(block[PullWord.COUNTERS_AT]), (block[PullWord.COUNTERS],))
    values = carray(words_at(block[PullWord.VALUES_AT]), (HOLES,))
    if load_acquire(counters, block[PullWord.PERMISSION]) & PERM_READ == 0:
        return Unusual.NOW
    if known[row + KnownWord.IS_USUAL] == 0:
        return Unusual.KEY
    begins = load_acquire(counters, block[PullWord.LOG_BEGINS])
    if begins != known[row + KnownWord.BEGINS]:
        return Unusual.STALE
    end = end_of(block, row)
    values[PullHole.MINIMUM], values[PullHole.MAXIMUM] = min(known[row + KnownWord.MINIMUM], end), end
    if offset == end:
        return Unusual.NOT_YET
    if not values[PullHole.MINIMUM] <= offset < end:
        return Unusual.OUTSIDE
    if not 0 <= offset - known[row + KnownWord.FILE_FIRST] < known[row + KnownWord.FILE_UNITS]:
        return Unusual.FILE
    limits = carray(words_at(block[PullWord.LIMITS_AT]), (LIMITS,))
    limits[Limit.MESSAGES], limits[Limit.TAKES_ALL] = most, known[row + KnownWord.TAKES_ALL]
    limits[Limit.LOG_BEGINS], limits[Limit.LOG_ENDS] = begins, load_acquire(counters, block[PullWord.LOG_ENDS])
    limits[Limit.SCAN_BEFORE] = offset + max(SCAN_UNITS, most)
    reason = _select(block, row, offset, end, min(max(SCAN_UNITS, most), block[PullWord.UNITS]))
    taken = carray(words_at(block[PullWord.TAKEN_AT]), (TAKEN,))
    values[PullHole.NEXT_OFFSET] = taken[Taken.NEXT_OFFSET]
    return reason


@kernel
def _select(block: Words, row: int, offset: int, end: int, room: int) -> int:
    """Select units of one file for an answer, as many as it may hold; more of them are read while none matches."""
    known = carray(words_at(block[PullWord.KNOWN_AT]), (block[PullWord.KNOWN] * KNOWN_WORDS,))
    limits = carray(words_at(block[PullWord.LIMITS_AT]), (LIMITS,))
    units = carray(words_at(block[PullWord.UNITS_AT]), (block[PullWord.UNITS], UNIT_COLUMNS))
    ranges = carray(words_at(block[PullWord.RANGES_AT]), (RANGES_MAX, RANGE_COLUMNS))
    taken = carray(words_at(block[PullWord.TAKEN_AT]), (TAKEN,))
    codes = carray(words_at(known[row + KnownWord.CODES_AT]), (known[row + KnownWord.CODES],))
    file = carray(bytes_at(known[row + KnownWord.FILE_AT]), (known[row + KnownWord.FILE_UNITS] * ENTRY_BYTES,))
    first = offset - known[row + KnownWord.FILE_FIRST]
    left = min(end - offset, known[row + KnownWord.FILE_UNITS] - first)
    most = min(AT_FIRST, room)
    while True:
        count = min(left, most)
        decode_units(file, first * ENTRY_BYTES, count, ENTRY_BYTES, offset, units)
        if units[0, Unit.SIZE] <= 0:
            return Unusual.STALE
        select(units, count, limits, codes, ranges, taken)
        if taken[Taken.IS_FULL] or count < most or most == room:
            break
        most = room
    return 0 if taken[Taken.MESSAGES] > 0 else Unusual.NOTHING


@kernel
def _file_of(block: Words, offset: int, segment_bytes: int) -> int:
    """Return the index of the words about the log's file with this offset; -1 where it is not open."""
    files = carray(words_at(block[PullWord.FILES_AT]), (block[PullWord.FILES] * FILE_WORDS,))
    number = offset // segment_bytes
    row = number % block[PullWord.FILES] * FILE_WORDS
    return row if files[row + FileWord.BASE] == number * segment_bytes else -1


@kernel
def answer(block: Words, row: int) -> int:
    """Write the answer for what was selected, and count it; return 0, or why it is unusual."""
    known = carray(words_at(block[PullWord.KNOWN_AT]), (block[PullWord.KNOWN] * KNOWN_WORDS,))
    ranges = carray(words_at(block[PullWord.RANGES_AT]), (RANGES_MAX, RANGE_COLUMNS))
    taken = carray(words_at(block[PullWord.TAKEN_AT]), (TAKEN,))
    limits = carray(words_at(block[PullWord.LIMITS_AT]), (LIMITS,))
    length = block[PullWord.HEAD_BYTES_MAX] + taken[Taken.BYTES]
    if 2 * length > block[PullWord.OUT_BYTES]:
        return Unusual.ROOM
    for k in range(taken[Taken.RANGES]):
        if _file_of(block, ranges[k, RangeColumn.OFFSET], limits[Limit.SEGMENT_BYTES]) < 0:
            return Unusual.FILE
    if block[PullWord.WRITTEN] + length > block[PullWord.OUT_BYTES]:
        flush(block, MSG_MORE)
        if block[PullWord.WRITTEN] + length > block[PullWord.OUT_BYTES]:
            return Unusual.ROOM
    behind = limits[Limit.LOG_ENDS] - taken[Taken.FURTHEST]
    is_behind = behind > limits[Limit.MEMORY_BYTES]
    block[PullWord.ANSWERED] += length
    suggested = known[row + (KnownWord.SUGGESTED_BEHIND if is_behind else KnownWord.SUGGESTED)]
    _write_head(block, row, FOUND, suggested, taken[Taken.BYTES])
    for k in range(taken[Taken.RANGES]):
        _write_range(block, ranges[k, RangeColumn.OFFSET], ranges[k, RangeColumn.BYTES], limits[Limit.SEGMENT_BYTES])
    _count(block, row, behind)
    return 0


@kernel
def answer_end(block: Words, row: int) -> int:
    """Answer that the queue ends here; return which answer that is, or why the pull is unusual."""
    known = carray(words_at(block[PullWord.KNOWN_AT]), (block[PullWord.KNOWN] * KNOWN_WORDS,))
    values = carray(words_at(block[PullWord.VALUES_AT]), (HOLES,))
    length = block[PullWord.HEAD_BYTES_MAX]
    if block[PullWord.WRITTEN] + length > block[PullWord.OUT_BYTES]:
        return Unusual.ROOM
    values[PullHole.NEXT_OFFSET] = end = values[PullHole.MAXIMUM]
    said = NOTHING_MORE if end > 0 else NOTHING_EVER
    block[PullWord.ANSWERED] += length
    _write_head(block, row, said, known[row + KnownWord.SUGGESTED], 0)
    return said


@kernel
def mark(block: Words, row: int) -> None:
    """Note that a row has changed."""
    known = carray(words_at(block[PullWord.KNOWN_AT]), (block[PullWord.KNOWN] * KNOWN_WORDS,))
    changed = carray(words_at(block[PullWord.CHANGED_AT]), (block[PullWord.KNOWN],))
    if known[row + KnownWord.IS_CHANGED] == 0:
        changed[block[PullWord.CHANGED]] = row
        block[PullWord.CHANGED] += 1
        known[row + KnownWord.IS_CHANGED] = 1


@kernel
def _count(block: Words, row: int, behind: int) -> None:
    """Note in the row what Python says to others later."""
    known = carray(words_at(block[PullWord.KNOWN_AT]), (block[PullWord.KNOWN] * KNOWN_WORDS,))
    taken = carray(words_at(block[PullWord.TAKEN_AT]), (TAKEN,))
    mark(block, row)
    known[row + KnownWord.PULLS] += 1
    known[row + KnownWord.IS_PULLED] = 1
    known[row + KnownWord.MESSAGES] += taken[Taken.MESSAGES]
    known[row + KnownWord.BYTES] += taken[Taken.BYTES]
    known[row + KnownWord.NEXT_OFFSET], known[row + KnownWord.BEHIND_BYTES] = taken[Taken.NEXT_OFFSET], behind
    block[PullWord.PULLS] += 1
    block[PullWord.MESSAGES] += taken[Taken.MESSAGES]
    block[PullWord.BYTES] += taken[Taken.BYTES]


@kernel
def _write_head(block: Words, row: int, said: int, suggested: int, body_bytes: int) -> None:
    """The frame of an answer, up to its body, behind what is written."""
    known = carray(words_at(block[PullWord.KNOWN_AT]), (block[PullWord.KNOWN] * KNOWN_WORDS,))
    forms = carray(words_at(block[PullWord.FORMS_AT]), (FORMS * FORM_WORDS,))
    text = carray(bytes_at(block[PullWord.FORMS_TEXT_AT]), (block[PullWord.FORMS_TEXT_BYTES],))
    values = carray(words_at(block[PullWord.VALUES_AT]), (HOLES,))
    out = carray(bytes_at(block[PullWord.OUT_AT]), (block[PullWord.OUT_BYTES],))
    values[PullHole.OPAQUE] = values[PullHole.OPAQUE_32] = block[PullWord.OPAQUE]
    values[PullHole.SUGGESTED] = suggested
    values[PullHole.GROUP_FLAG] = known[row + KnownWord.GROUP_FLAG]
    values[PullHole.TOPIC_FLAG] = known[row + KnownWord.TOPIC_FLAG]
    form, first = (said * KINDS + block[PullWord.FORM]) * FORM_WORDS, block[PullWord.WRITTEN]
    at, fields_at = first + HEAD_BYTES, np.int64(-1)
    for k in range(forms[form]):
        part = form + 1 + k * PART_WORDS
        copy_bytes(out, at, text, forms[part + PartWord.AT], forms[part + PartWord.BYTES])
        at += forms[part + PartWord.BYTES]
        hole = forms[part + PartWord.HOLE] & (PREFIXED - 1)
        if hole == PullHole.END:
            break
        if hole == PullHole.FIELDS_BYTES or hole == PullHole.OPAQUE_32:
            if hole == PullHole.FIELDS_BYTES:
                fields_at = at
            store_be32(out, at, values[hole])
            at += 4
        elif forms[part + PartWord.HOLE] >= PREFIXED:
            end = write_decimal(out, at + 4, values[hole])
            store_be32(out, at, end - at - 4)
            at = end
        else:
            at = write_decimal(out, at, values[hole])
    end_head(out, first, fields_at, at, forms[form + FORM_WORDS - 1], body_bytes)
    block[PullWord.WRITTEN] = at


@kernel
def _write_range(block: Words, offset: int, length: int, segment_bytes: int) -> None:
    """Write a range of the log behind what is written: from the file, or gathered."""
    files = carray(words_at(block[PullWord.FILES_AT]), (block[PullWord.FILES] * FILE_WORDS,))
    row = _file_of(block, offset, segment_bytes)
    position, sent = offset - files[row + FileWord.BASE], 0
    if length >= SENDFILE_BYTES and block[PullWord.IS_BLOCKED] == 0:
        flush(block, MSG_MORE)
        if block[PullWord.IS_BLOCKED] == 0:
            sent = _send_file(block, files[row + FileWord.FD], position, length)
    if sent < length:
        file = carray(bytes_at(files[row + FileWord.ADDRESS]), (segment_bytes,))
        out = carray(bytes_at(block[PullWord.OUT_AT]), (block[PullWord.OUT_BYTES],))
        copy_bytes(out, block[PullWord.WRITTEN], file, position + sent, length - sent)
        block[PullWord.WRITTEN] += length - sent


@kernel
def _send_file(block: Words, file_fd: int, position: int, length: int) -> int:
    """Send bytes of a file; return how many the socket took."""
    place = np.empty(1, np.int64)
    place[0] = position
    while place[0] < position + length:
        taken = sendfile(block[PullWord.FD], file_fd, address_of(place, 0), position + length - place[0])
        if taken <= 0:
            block[PullWord.IS_BLOCKED] = 1
            _note_error(block, taken)
            break
    return place[0] - position


@kernel
def _note_error(block: Words, error: int) -> None:
    """Note an error that ends the connection; after any other, its transport goes on."""
    if error < 0 and error != EAGAIN and error != EINTR and error != ENOMEM and error != ENOBUFS:
        block[PullWord.ERRNO] = -error


@kernel
def flush(block: Words, flags: int) -> None:
    """Send what is written, as far as the socket takes it."""
    while block[PullWord.IS_BLOCKED] == 0 and block[PullWord.SENT] < block[PullWord.WRITTEN]:
        count = block[PullWord.WRITTEN] - block[PullWord.SENT]
        address = block[PullWord.OUT_AT] + block[PullWord.SENT]
        taken = send(block[PullWord.FD], address, count, flags | MSG_DONTWAIT | MSG_NOSIGNAL)
        if taken <= 0 or block[PullWord.FD] == NO_SOCKET:
            block[PullWord.IS_BLOCKED] = 1
            _note_error(block, taken)
        else:
            block[PullWord.SENT] += taken
    if block[PullWord.SENT] == block[PullWord.WRITTEN]:
        block[PullWord.SENT] = block[PullWord.WRITTEN] = 0
