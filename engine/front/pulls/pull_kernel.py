"""Fast pulls from a receive buffer to their answers in the socket, compiled: one call for all whole frames.

Implements: PullMessageProcessor.processRequest for what Python's way has served before, DefaultMessageStore.getMessage
    around its loop, ManyMessageTransfer, PullRequestHoldService, ManyPullRequest for pulls of all messages (spec:
    remoting, 7 and 10)
A pull is fast where `engine.front.pulls.pulls` has served one with the same group, topic, queue, flags and
subscription, and nothing has changed since: so no check is written twice, in two languages. What comes out is byte for
byte what that way answers. A frame that leaves the fast path stays where it is. Lengths are a client's word: each
is compared with what is there before a byte is read.
Large ranges leave by sendfile, small ones are gathered behind the head. Where the socket takes no more, all that is
left of the answer is gathered, for the transport to send.
All pulls that wake, or have waited long enough, are answered in one call. What is beyond OF_A_KIND_MAX of one kind, and
one that wants some tags only, is held by `engine.protocol.pulling.hold_list`. Rows that are held lie without gaps: who
leaves makes room for the last.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np

from engine.front.connections.log_body_kernel import MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL, SENDFILE_BYTES
from engine.front.frames.answer_kernel import HEAD_BYTES, end_head
from engine.front.frames.header_kernel import (
    FIELD_WORDS,
    IGNORED,
    NONE,
    Fields,
    FormWord,
    HeaderWord,
    int_of,
    read_fields,
    spelled,
)
from engine.front.frames.send_words import FORM_WORDS, PART_WORDS, PREFIXED, PartWord
from engine.front.pulls.pull_words import (
    AT_FIRST,
    FILE_WORDS,
    FORMS,
    HEADER_WORDS,
    HELD_WORDS,
    HOLES,
    KEY_BYTES_MAX,
    KEY_FIELDS,
    NAMES,
    NO_SOCKET,
    OF_A_KIND_MAX,
    SERIALIZE_KINDS,
    SERVED_WORDS,
    FileWord,
    HeldWord,
    PullAnswer,
    PullBlock,
    PullFallback,
    PullField,
    PullHole,
    ServedWord,
)
from engine.protocol.pulling.checks import PERM_READ
from engine.protocol.pulling.decision import SCAN_BYTES
from engine.protocol.pulling.header import PullFlag
from engine.protocol.pulling.select_kernel import RANGES_MAX, Limit, RangeColumn, Taken, select
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import FRAME_BYTES_MAX, LENGTH_BYTES, Serialize
from engine.shared_memory.queue_ends import NO_SLOT
from ipc.arrays import Bytes, Words
from ipc.clock import NS_PER_MS
from ipc.compiled.atomics import address_of, load_acquire, monotonic_ns
from ipc.compiled.kernels import kernel
from ipc.compiled.memory import bytes_at, carray, copy_bytes, load_be32, store_be32, words_at
from ipc.compiled.system_calls import send, sendfile
from ipc.compiled.texts import same_bytes, seeded_hash, whole_number, write_decimal
from store.message.unit import Unit
from store.queues.consume_queue import ENTRY_BYTES
from store.reading.units_kernel import decode_units

SCAN_UNITS = -(-SCAN_BYTES // ENTRY_BYTES)
FOUND, NOTHING_MORE, NOTHING_EVER = (int(said) for said in PullAnswer)
EAGAIN, EINTR, ENOMEM, ENOBUFS = -11, -4, -12, -105
LIMITS, TAKEN, UNIT_COLUMNS, RANGE_COLUMNS = len(Limit), len(Taken), len(Unit), len(RangeColumn)


# answers


@kernel
def begin(block: Words, fd: int) -> None:
    """Begin to write answers for a socket; NO_SOCKET: they stay in `out`."""
    block[PullBlock.WRITTEN] = block[PullBlock.SENT] = block[PullBlock.ANSWERED] = block[PullBlock.ERRNO] = 0
    block[PullBlock.FD], block[PullBlock.IS_BLOCKED] = fd, np.int64(fd == NO_SOCKET)


@kernel
def end_of(block: Words, row: int) -> int:
    """Return where the queue of a known pull ends."""
    served = carray(words_at(block[PullBlock.SERVED_AT]), (block[PullBlock.SERVED] * SERVED_WORDS,))
    if served[row + ServedWord.SLOT] == NO_SLOT:
        return 0
    ends = carray(words_at(block[PullBlock.ENDS_AT]), (block[PullBlock.ENDS],))
    return load_acquire(ends, served[row + ServedWord.SLOT])


@kernel
def select_messages(block: Words, row: int, offset: int, most: int) -> int:
    """Select what a known pull gets into `ranges` and `taken`; return 0, or why it leaves the fast path."""
    served = carray(words_at(block[PullBlock.SERVED_AT]), (block[PullBlock.SERVED] * SERVED_WORDS,))
    counters = carray(words_at(block[PullBlock.COUNTERS_AT]), (block[PullBlock.COUNTERS],))
    values = carray(words_at(block[PullBlock.VALUES_AT]), (HOLES,))
    if load_acquire(counters, block[PullBlock.PERMISSION]) & PERM_READ == 0:
        return PullFallback.NOT_ACCEPTING
    if served[row + ServedWord.IS_LEARNED] == 0:
        return PullFallback.KEY
    begins = load_acquire(counters, block[PullBlock.LOG_BEGINS])
    if begins != served[row + ServedWord.BEGINS]:
        return PullFallback.STALE
    end = end_of(block, row)
    values[PullHole.MINIMUM], values[PullHole.MAXIMUM] = min(served[row + ServedWord.MINIMUM], end), end
    if offset == end:
        return PullFallback.NOT_YET
    if not values[PullHole.MINIMUM] <= offset < end:
        return PullFallback.OUTSIDE
    if not 0 <= offset - served[row + ServedWord.FILE_FIRST] < served[row + ServedWord.FILE_UNITS]:
        return PullFallback.FILE
    limits = carray(words_at(block[PullBlock.LIMITS_AT]), (LIMITS,))
    limits[Limit.MESSAGES], limits[Limit.TAKES_ALL] = most, served[row + ServedWord.TAKES_ALL]
    limits[Limit.LOG_BEGINS], limits[Limit.LOG_ENDS] = begins, load_acquire(counters, block[PullBlock.LOG_ENDS])
    limits[Limit.SCAN_BEFORE] = offset + max(SCAN_UNITS, most)
    reason = _select(block, row, offset, end, min(max(SCAN_UNITS, most), block[PullBlock.UNITS]))
    taken = carray(words_at(block[PullBlock.TAKEN_AT]), (TAKEN,))
    values[PullHole.NEXT_OFFSET] = taken[Taken.NEXT_OFFSET]
    return reason


@kernel
def _select(block: Words, row: int, offset: int, end: int, room: int) -> int:
    """Select units of one file for an answer, as many as it may hold; more of them are read while none matches."""
    served = carray(words_at(block[PullBlock.SERVED_AT]), (block[PullBlock.SERVED] * SERVED_WORDS,))
    limits = carray(words_at(block[PullBlock.LIMITS_AT]), (LIMITS,))
    units = carray(words_at(block[PullBlock.UNITS_AT]), (block[PullBlock.UNITS], UNIT_COLUMNS))
    ranges = carray(words_at(block[PullBlock.RANGES_AT]), (RANGES_MAX, RANGE_COLUMNS))
    taken = carray(words_at(block[PullBlock.TAKEN_AT]), (TAKEN,))
    codes = carray(words_at(served[row + ServedWord.CODES_AT]), (served[row + ServedWord.CODES],))
    file = carray(bytes_at(served[row + ServedWord.FILE_AT]), (served[row + ServedWord.FILE_UNITS] * ENTRY_BYTES,))
    first = offset - served[row + ServedWord.FILE_FIRST]
    left = min(end - offset, served[row + ServedWord.FILE_UNITS] - first)
    most = min(AT_FIRST, room)
    while True:
        count = min(left, most)
        decode_units(file, first * ENTRY_BYTES, count, ENTRY_BYTES, offset, units)
        if units[0, Unit.SIZE] <= 0:
            return PullFallback.STALE
        select(units, count, limits, codes, ranges, taken)
        if taken[Taken.IS_FULL] or count < most or most == room:
            break
        most = room
    return 0 if taken[Taken.MESSAGES] > 0 else PullFallback.NOTHING


@kernel
def _file_of(block: Words, offset: int, segment_bytes: int) -> int:
    """Return the index of the words about the log's file with this offset; -1 where it is not open."""
    files = carray(words_at(block[PullBlock.FILES_AT]), (block[PullBlock.FILES] * FILE_WORDS,))
    number = offset // segment_bytes
    row = number % block[PullBlock.FILES] * FILE_WORDS
    return row if files[row + FileWord.BASE] == number * segment_bytes else -1


@kernel
def answer(block: Words, row: int) -> int:
    """Write the answer for what was selected, and count it; return 0, or why it leaves the fast path."""
    served = carray(words_at(block[PullBlock.SERVED_AT]), (block[PullBlock.SERVED] * SERVED_WORDS,))
    ranges = carray(words_at(block[PullBlock.RANGES_AT]), (RANGES_MAX, RANGE_COLUMNS))
    taken = carray(words_at(block[PullBlock.TAKEN_AT]), (TAKEN,))
    limits = carray(words_at(block[PullBlock.LIMITS_AT]), (LIMITS,))
    length = block[PullBlock.HEAD_BYTES_MAX] + taken[Taken.BYTES]
    if 2 * length > block[PullBlock.OUT_BYTES]:
        return PullFallback.ROOM
    for k in range(taken[Taken.RANGES]):
        if _file_of(block, ranges[k, RangeColumn.OFFSET], limits[Limit.SEGMENT_BYTES]) < 0:
            return PullFallback.FILE
    if block[PullBlock.WRITTEN] + length > block[PullBlock.OUT_BYTES]:
        flush(block, MSG_MORE)
        if block[PullBlock.WRITTEN] + length > block[PullBlock.OUT_BYTES]:
            return PullFallback.ROOM
    behind = limits[Limit.LOG_ENDS] - taken[Taken.FURTHEST]
    is_behind = behind > limits[Limit.MEMORY_BYTES]
    block[PullBlock.ANSWERED] += length
    suggested = served[row + (ServedWord.SUGGESTED_BEHIND if is_behind else ServedWord.SUGGESTED)]
    _write_head(block, row, FOUND, suggested, taken[Taken.BYTES])
    for k in range(taken[Taken.RANGES]):
        _write_range(block, ranges[k, RangeColumn.OFFSET], ranges[k, RangeColumn.BYTES], limits[Limit.SEGMENT_BYTES])
    _count(block, row, behind)
    return 0


@kernel
def answer_end(block: Words, row: int) -> int:
    """Answer that the queue ends here; return which answer that is, or why the pull leaves the fast path."""
    served = carray(words_at(block[PullBlock.SERVED_AT]), (block[PullBlock.SERVED] * SERVED_WORDS,))
    values = carray(words_at(block[PullBlock.VALUES_AT]), (HOLES,))
    length = block[PullBlock.HEAD_BYTES_MAX]
    if block[PullBlock.WRITTEN] + length > block[PullBlock.OUT_BYTES]:
        return PullFallback.ROOM
    values[PullHole.NEXT_OFFSET] = end = values[PullHole.MAXIMUM]
    said = NOTHING_MORE if end > 0 else NOTHING_EVER
    block[PullBlock.ANSWERED] += length
    _write_head(block, row, said, served[row + ServedWord.SUGGESTED], 0)
    return said


@kernel
def mark(block: Words, row: int) -> None:
    """Note that a row has changed."""
    served = carray(words_at(block[PullBlock.SERVED_AT]), (block[PullBlock.SERVED] * SERVED_WORDS,))
    changed = carray(words_at(block[PullBlock.CHANGED_AT]), (block[PullBlock.SERVED],))
    if served[row + ServedWord.IS_CHANGED] == 0:
        changed[block[PullBlock.CHANGED]] = row
        block[PullBlock.CHANGED] += 1
        served[row + ServedWord.IS_CHANGED] = 1


@kernel
def _count(block: Words, row: int, behind: int) -> None:
    """Note in the row what Python says to others later."""
    served = carray(words_at(block[PullBlock.SERVED_AT]), (block[PullBlock.SERVED] * SERVED_WORDS,))
    taken = carray(words_at(block[PullBlock.TAKEN_AT]), (TAKEN,))
    mark(block, row)
    served[row + ServedWord.PULLS] += 1
    served[row + ServedWord.IS_PULLED] = 1
    served[row + ServedWord.MESSAGES] += taken[Taken.MESSAGES]
    served[row + ServedWord.BYTES] += taken[Taken.BYTES]
    served[row + ServedWord.NEXT_OFFSET], served[row + ServedWord.BEHIND_BYTES] = taken[Taken.NEXT_OFFSET], behind
    block[PullBlock.PULLS] += 1
    block[PullBlock.MESSAGES] += taken[Taken.MESSAGES]
    block[PullBlock.BYTES] += taken[Taken.BYTES]


@kernel
def _write_head(block: Words, row: int, said: int, suggested: int, body_bytes: int) -> None:
    """The frame of an answer, up to its body, behind what is written."""
    served = carray(words_at(block[PullBlock.SERVED_AT]), (block[PullBlock.SERVED] * SERVED_WORDS,))
    forms = carray(words_at(block[PullBlock.FORMS_AT]), (FORMS * FORM_WORDS,))
    text = carray(bytes_at(block[PullBlock.FORMS_TEXT_AT]), (block[PullBlock.FORMS_TEXT_BYTES],))
    values = carray(words_at(block[PullBlock.VALUES_AT]), (HOLES,))
    out = carray(bytes_at(block[PullBlock.OUT_AT]), (block[PullBlock.OUT_BYTES],))
    values[PullHole.OPAQUE] = values[PullHole.OPAQUE_32] = block[PullBlock.OPAQUE]
    values[PullHole.SUGGESTED] = suggested
    values[PullHole.GROUP_FLAG] = served[row + ServedWord.GROUP_FLAG]
    values[PullHole.TOPIC_FLAG] = served[row + ServedWord.TOPIC_FLAG]
    form, first = (said * SERIALIZE_KINDS + block[PullBlock.FORM]) * FORM_WORDS, block[PullBlock.WRITTEN]
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
    block[PullBlock.WRITTEN] = at


@kernel
def _write_range(block: Words, offset: int, length: int, segment_bytes: int) -> None:
    """Write a range of the log behind what is written: from the file, or gathered."""
    files = carray(words_at(block[PullBlock.FILES_AT]), (block[PullBlock.FILES] * FILE_WORDS,))
    row = _file_of(block, offset, segment_bytes)
    position, sent = offset - files[row + FileWord.BASE], 0
    if length >= SENDFILE_BYTES and block[PullBlock.IS_BLOCKED] == 0:
        flush(block, MSG_MORE)
        if block[PullBlock.IS_BLOCKED] == 0:
            sent = _send_file(block, files[row + FileWord.FD], position, length)
    if sent < length:
        file = carray(bytes_at(files[row + FileWord.ADDRESS]), (segment_bytes,))
        out = carray(bytes_at(block[PullBlock.OUT_AT]), (block[PullBlock.OUT_BYTES],))
        copy_bytes(out, block[PullBlock.WRITTEN], file, position + sent, length - sent)
        block[PullBlock.WRITTEN] += length - sent


@kernel
def _send_file(block: Words, file_fd: int, position: int, length: int) -> int:
    """Send bytes of a file; return how many the socket took."""
    place = np.empty(1, np.int64)
    place[0] = position
    while place[0] < position + length:
        taken = sendfile(block[PullBlock.FD], file_fd, address_of(place, 0), position + length - place[0])
        if taken <= 0:
            block[PullBlock.IS_BLOCKED] = 1
            _note_error(block, taken)
            break
    return place[0] - position


@kernel
def _note_error(block: Words, error: int) -> None:
    """Note an error that ends the connection; after any other, its transport goes on."""
    if error < 0 and error != EAGAIN and error != EINTR and error != ENOMEM and error != ENOBUFS:
        block[PullBlock.ERRNO] = -error


@kernel
def flush(block: Words, flags: int) -> None:
    """Send what is written, as far as the socket takes it."""
    while block[PullBlock.IS_BLOCKED] == 0 and block[PullBlock.SENT] < block[PullBlock.WRITTEN]:
        count = block[PullBlock.WRITTEN] - block[PullBlock.SENT]
        address = block[PullBlock.OUT_AT] + block[PullBlock.SENT]
        taken = send(block[PullBlock.FD], address, count, flags | MSG_DONTWAIT | MSG_NOSIGNAL)
        if taken <= 0 or block[PullBlock.FD] == NO_SOCKET:
            block[PullBlock.IS_BLOCKED] = 1
            _note_error(block, taken)
        else:
            block[PullBlock.SENT] += taken
    if block[PullBlock.SENT] == block[PullBlock.WRITTEN]:
        block[PullBlock.SENT] = block[PullBlock.WRITTEN] = 0


# pulls that wait

NOTIFIED_MAX = 256  # answered in a call
WOKEN_BYTES_MAX = 256 * 1024  # in a call
WOKEN_BODY_MAX = 64 * 1024  # of one, 32 messages of 1 KiB are 38; before a larger one Python looks if its peer takes it
LONG_MAX = (1 << 62) - 1
EVERYBODY, NEVER = -1, -1  # as a connection, as a time


@kernel
def note_end(block: Words) -> None:
    """Note in the row of the pull looked at last that its client knows the queue's end."""
    served = carray(words_at(block[PullBlock.SERVED_AT]), (block[PullBlock.SERVED] * SERVED_WORDS,))
    row = block[PullBlock.ROW]
    if served[row + ServedWord.IS_PULLED] == 0 or served[row + ServedWord.NEXT_OFFSET] != block[PullBlock.OFFSET]:
        mark(block, row)
        served[row + ServedWord.NEXT_OFFSET], served[row + ServedWord.BEHIND_BYTES] = block[PullBlock.OFFSET], -1
        served[row + ServedWord.IS_PULLED] = 1


@kernel
def hold(block: Words) -> bool:
    """Keep the pull that was looked at last, whose queue has nothing more; False where Python has to."""
    served = carray(words_at(block[PullBlock.SERVED_AT]), (block[PullBlock.SERVED] * SERVED_WORDS,))
    row = block[PullBlock.ROW]
    if served[row + ServedWord.FLAGS] & PullFlag.SUSPEND == 0 or served[row + ServedWord.TAKES_ALL] == 0:
        return False
    if served[row + ServedWord.HELD] >= OF_A_KIND_MAX:
        return False
    if block[PullBlock.HELD] >= min(block[PullBlock.HELD_MAX], block[PullBlock.SERVED]):
        return False
    held = carray(words_at(block[PullBlock.HELD_AT]), (block[PullBlock.SERVED] * HELD_WORDS,))
    at = block[PullBlock.HELD] * HELD_WORDS
    block[PullBlock.HELD] += 1
    served[row + ServedWord.HELD] += 1
    waits_ms = block[PullBlock.SUSPEND_MS] if block[PullBlock.SHORT_MS] < 0 else block[PullBlock.SHORT_MS]
    held[at + HeldWord.OFFSET] = block[PullBlock.OFFSET]
    held[at + HeldWord.ROW], held[at + HeldWord.PEER] = row, block[PullBlock.PEER]
    held[at + HeldWord.MOST], held[at + HeldWord.OPAQUE] = block[PullBlock.MOST], block[PullBlock.OPAQUE]
    held[at + HeldWord.FORM], held[at + HeldWord.COMMIT] = block[PullBlock.FORM], block[PullBlock.COMMIT]
    held[at + HeldWord.SUSPEND_MS] = block[PullBlock.SUSPEND_MS]
    held[at + HeldWord.CAME_NS] = monotonic_ns()
    held[at + HeldWord.UNTIL_MS] = min(held[at + HeldWord.CAME_NS] // NS_PER_MS + waits_ms, LONG_MAX)
    return True


@kernel
def _let_go(block: Words, place: int) -> None:
    """Move one from those that are held to the notified ones."""
    served = carray(words_at(block[PullBlock.SERVED_AT]), (block[PullBlock.SERVED] * SERVED_WORDS,))
    held = carray(words_at(block[PullBlock.HELD_AT]), (block[PullBlock.SERVED] * HELD_WORDS,))
    notified = carray(words_at(block[PullBlock.NOTIFIED_AT]), (NOTIFIED_MAX * HELD_WORDS,))
    at, to, last = place * HELD_WORDS, block[PullBlock.NOTIFIED] * HELD_WORDS, (block[PullBlock.HELD] - 1) * HELD_WORDS
    for k in range(HELD_WORDS):
        notified[to + k] = held[at + k]
        held[at + k] = held[last + k]
    served[notified[to + HeldWord.ROW] + ServedWord.HELD] -= 1
    block[PullBlock.NOTIFIED] += 1
    block[PullBlock.HELD] -= 1


@kernel
def _serve(block: Words, row: int, offset: int, most: int) -> int:
    """The answer to a pull that waited, behind what is written; which one that is, or why Python has to look."""
    taken = carray(words_at(block[PullBlock.TAKEN_AT]), (TAKEN,))
    reason = select_messages(block, row, offset, most)
    if reason == PullFallback.NOT_YET:
        return answer_end(block, row)
    if reason != 0:
        return reason
    if taken[Taken.BYTES] > WOKEN_BODY_MAX:
        return PullFallback.ROOM
    reason = answer(block, row)
    return reason if reason != 0 else FOUND


@kernel
def _begin(block: Words) -> None:
    """Begin a call: nothing is notified or written yet, and answers stay in `out`."""
    begin(block, NO_SOCKET)
    block[PullBlock.NOTIFIED] = 0


@kernel
def notify_held(block: Words, place: int, now_ms: int) -> int:
    """Answer those from that place on whose queues have more, or whose time is over: up to which place all are looked
    at."""
    held = carray(words_at(block[PullBlock.HELD_AT]), (block[PullBlock.SERVED] * HELD_WORDS,))
    notified = carray(words_at(block[PullBlock.NOTIFIED_AT]), (NOTIFIED_MAX * HELD_WORDS,))
    _begin(block)
    while place < block[PullBlock.HELD] and block[PullBlock.NOTIFIED] < NOTIFIED_MAX:
        at = place * HELD_WORDS
        is_over = held[at + HeldWord.UNTIL_MS] <= now_ms
        if not is_over and end_of(block, held[at + HeldWord.ROW]) <= held[at + HeldWord.OFFSET]:
            place += 1
            continue
        if block[PullBlock.ANSWERED] >= WOKEN_BYTES_MAX:
            break
        to, first = block[PullBlock.NOTIFIED] * HELD_WORDS, block[PullBlock.WRITTEN]
        _let_go(block, place)
        block[PullBlock.OPAQUE], block[PullBlock.FORM] = notified[to + HeldWord.OPAQUE], notified[to + HeldWord.FORM]
        offset, most = notified[to + HeldWord.OFFSET], notified[to + HeldWord.MOST]
        notified[to + HeldWord.ANSWER] = _serve(block, notified[to + HeldWord.ROW], offset, most)
        notified[to + HeldWord.BEGIN], notified[to + HeldWord.END] = first, block[PullBlock.WRITTEN]
    return place


@kernel
def send_notified(block: Words, fd: int, first: int, end: int) -> None:
    """Answers to notified pulls, out[first:end], into a socket; what it did not take is out[SENT:WRITTEN] then."""
    begin(block, fd)
    block[PullBlock.SENT], block[PullBlock.WRITTEN] = first, end
    flush(block, 0)


@kernel
def release_held(block: Words, place: int, peer: int) -> int:
    """Let those go from that place on that are a connection's, or everybody's; else as `notify_held`."""
    held = carray(words_at(block[PullBlock.HELD_AT]), (block[PullBlock.SERVED] * HELD_WORDS,))
    _begin(block)
    while place < block[PullBlock.HELD] and block[PullBlock.NOTIFIED] < NOTIFIED_MAX:
        at = place * HELD_WORDS
        if held[at + HeldWord.PEER] == peer or peer == EVERYBODY:
            to = block[PullBlock.NOTIFIED] * HELD_WORDS
            _let_go(block, place)
            notified = carray(words_at(block[PullBlock.NOTIFIED_AT]), (NOTIFIED_MAX * HELD_WORDS,))
            notified[to + HeldWord.BEGIN] = notified[to + HeldWord.END] = 0
        else:
            place += 1
    return place


# frames

HEADER_MASK = 0xFFFFFF
LONG_DIGITS = 18
OTHERS_MAX = 64  # fields that nobody looks at
MOST_MAX = 4096  # messages
PULL, LITE_PULL = int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE)
NAME_BYTES, NAME_ENDS = spelled(NAMES)
FORM = np.zeros(len(FormWord), np.int64)
FORM[FormWord.FIELDS], FORM[FormWord.TEXT], FORM[FormWord.OTHERS] = len(NAMES), NONE, IGNORED


@kernel
def _key_of(frame: Bytes, header: Words, key: Bytes) -> int:
    """The pull's key into `key`; its length, -1 where it is too long."""
    store_be32(key, 0, header[HeaderWord.CODE])
    count = 4
    for field in range(KEY_FIELDS):
        place = HeaderWord.FIELDS + field * FIELD_WORDS
        length = header[place + 1]
        if count + 4 + length > KEY_BYTES_MAX:
            return NONE
        store_be32(key, count, length)
        count += 4
        if length > 0:
            copy_bytes(key, count, frame, header[place], length)
            count += length
    return count


@kernel
def _row_of(block: Words, key: Bytes, count: int) -> int:
    """Return the row of a known pull by its key, or -1."""
    size = block[PullBlock.INDEX]
    index = carray(words_at(block[PullBlock.INDEX_AT]), (size,))
    served = carray(words_at(block[PullBlock.SERVED_AT]), (block[PullBlock.SERVED] * SERVED_WORDS,))
    keys = carray(bytes_at(block[PullBlock.KEYS_AT]), (block[PullBlock.KEYS_BYTES],))
    place = seeded_hash(key, 0, count, block[PullBlock.SEED]) & (size - 1)
    for _ in range(size):
        if index[place] == 0:
            return NONE
        row = (index[place] - 1) * SERVED_WORDS
        if served[row + ServedWord.KEY_BYTES] == count and same_bytes(
            keys, served[row + ServedWord.KEY_AT], key, 0, count
        ):
            return row
        place = place + 1 & size - 1
    return NONE


@kernel
def _asked(block: Words, frame: Bytes, header: Words) -> bool:
    """Read what changes from pull to pull into the block; False where it leaves the fast path."""
    at = HeaderWord.FIELDS + PullField.QUEUE_OFFSET * FIELD_WORDS
    block[PullBlock.OFFSET] = whole_number(frame, header[at], header[at + 1], LONG_DIGITS)
    at = HeaderWord.FIELDS + PullField.MAX_MESSAGES * FIELD_WORDS
    block[PullBlock.MOST] = int_of(frame, header[at], header[at + 1])
    at = HeaderWord.FIELDS + PullField.COMMIT_OFFSET * FIELD_WORDS
    block[PullBlock.COMMIT] = whole_number(frame, header[at], header[at + 1], LONG_DIGITS)
    at = HeaderWord.FIELDS + PullField.SUSPEND_MS * FIELD_WORDS
    block[PullBlock.SUSPEND_MS] = whole_number(frame, header[at], header[at + 1], LONG_DIGITS)
    if block[PullBlock.OFFSET] < 0 or block[PullBlock.COMMIT] < 0 or block[PullBlock.SUSPEND_MS] < 0:
        return False
    return 0 < block[PullBlock.MOST] <= MOST_MAX


@kernel
def _pull(block: Words, frame: Bytes, at: int, end: int) -> int:
    """The frame at frame[at:end], without its length, answered; 0, or why it leaves the fast path."""
    word = load_be32(frame, at)
    kind, header_at = word >> 24, at + LENGTH_BYTES
    if (kind != Serialize.JSON and kind != Serialize.ROCKETMQ) or header_at + (word & HEADER_MASK) != end:
        return PullFallback.HEADER
    header = carray(words_at(block[PullBlock.HEADER_AT]), (HEADER_WORDS,))
    key = carray(bytes_at(block[PullBlock.KEY_AT]), (KEY_BYTES_MAX,))
    fields = Fields(FORM, NAME_BYTES, NAME_ENDS)
    if not read_fields(frame, header_at, end, kind == Serialize.JSON, fields, header, key):
        return PullFallback.HEADER
    code = header[HeaderWord.CODE]
    if (code != PULL and code != LITE_PULL) or header[HeaderWord.FLAG] != 0 or header[HeaderWord.OTHERS] > OTHERS_MAX:
        return PullFallback.HEADER
    if not _asked(block, frame, header):
        return PullFallback.FIELDS
    count = _key_of(frame, header, key)
    row = _row_of(block, key, count) if count > 0 else NONE
    if row < 0:
        return PullFallback.KEY
    block[PullBlock.ROW], block[PullBlock.OPAQUE], block[PullBlock.FORM] = row, header[HeaderWord.OPAQUE], kind
    return _served(block, row)


@kernel
def _served(block: Words, row: int) -> int:
    """The pull that the block says, answered and counted; 0, or why it leaves the fast path."""
    reason = select_messages(block, row, block[PullBlock.OFFSET], block[PullBlock.MOST])
    if reason == 0:
        reason = answer(block, row)
    served = carray(words_at(block[PullBlock.SERVED_AT]), (block[PullBlock.SERVED] * SERVED_WORDS,))
    commits = served[row + ServedWord.FLAGS] & PullFlag.COMMIT_OFFSET != 0 and block[PullBlock.COMMITS] != 0
    is_new = served[row + ServedWord.COMMIT] != block[PullBlock.COMMIT]
    if (reason == 0 or reason == PullFallback.NOT_YET) and commits and is_new:
        mark(block, row)
        served[row + ServedWord.COMMIT] = block[PullBlock.COMMIT]
        served[row + ServedWord.COMMIT_PEER] = block[PullBlock.PEER]
        block[PullBlock.COMMITS_NOTED] += 1
        served[row + ServedWord.COMMIT_NUMBER] = block[PullBlock.COMMITS_NOTED]
    return reason


@kernel
def take_pulls(block: Words, at: int, end: int, fd: int, peer: int, bytes_max: int) -> int:
    """Answer the fast pulls among the frames in the receive buffer from `at` to `end`, up to the first frame that is
    not fast or not whole, or until so many bytes are answered: where it ends. block[REASON] says why. What the socket
    `fd` did not take is out[SENT:WRITTEN] afterwards: with NO_SOCKET all of it.
    """
    begin(block, fd)
    block[PullBlock.REASON], block[PullBlock.PEER], is_gathered = 0, peer, block[PullBlock.IS_BLOCKED]
    frame = carray(bytes_at(block[PullBlock.BUFFER_AT]), (block[PullBlock.BUFFER_BYTES],))
    if not 0 <= at <= end <= frame.size:
        return at
    while end - at >= 2 * LENGTH_BYTES:
        length = load_be32(frame, at)
        if not LENGTH_BYTES <= length <= FRAME_BYTES_MAX:
            block[PullBlock.REASON] = PullFallback.HEADER
            break
        if length > end - at - LENGTH_BYTES:
            break
        reason = np.int64(PullFallback.ROOM)
        if block[PullBlock.IS_BLOCKED] == is_gathered and block[PullBlock.ANSWERED] < bytes_max:
            reason = _pull(block, frame, at + LENGTH_BYTES, at + LENGTH_BYTES + length)
        if reason == PullFallback.NOT_YET:
            note_end(block)
            if hold(block):
                reason = np.int64(0)
        if reason != 0:
            block[PullBlock.REASON] = reason
            break
        at += LENGTH_BYTES + length
    flush(block, 0)
    return at


@kernel
def answer_served(block: Words, row: int, offset: int, most: int, opaque: int, form: int) -> int:
    """A pull that was held, answered into `out`: how many bytes, or why it leaves the fast path."""
    begin(block, NO_SOCKET)
    block[PullBlock.ROW], block[PullBlock.OPAQUE], block[PullBlock.FORM] = row, opaque, form
    block[PullBlock.OFFSET], block[PullBlock.MOST] = offset, most
    reason = select_messages(block, row, offset, most)
    if reason == 0:
        reason = answer(block, row)
    return reason if reason != 0 else block[PullBlock.WRITTEN]
