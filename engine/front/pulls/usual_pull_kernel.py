"""Usual pulls from a receive buffer to their answers in the socket, compiled: one call for all whole frames.

Implements: PullMessageProcessor.processRequest for what Python's way has served before (spec: remoting, 7)
A pull is usual where `engine.front.pulls.pulls` has served one with the same group, topic, queue, flags and
subscription, and nothing has changed since: so no check is written twice, in two languages. What comes out is byte for
byte what that way answers. A frame that is unusual in anything is left where it is. Lengths are a client's word: each
is compared with what is there before a byte is read.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np

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
    whole_number,
)
from engine.front.pulls.held_pull_kernel import hold, note_end
from engine.front.pulls.pull_answer_kernel import answer, begin, flush, look, mark
from engine.front.pulls.pull_words import (
    HEADER_WORDS,
    KEY_BYTES_MAX,
    KEY_FIELDS,
    KNOWN_WORDS,
    NAMES,
    NO_SOCKET,
    KnownWord,
    PullField,
    PullWord,
    Unusual,
)
from engine.protocol.pulling.header import PullFlag
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import FRAME_BYTES_MAX, LENGTH_BYTES, Serialize
from ipc.arrays import Bytes, Words
from ipc.compiled.kernels import kernel
from ipc.compiled.memory import bytes_at, carray, copy_bytes, load_be32, store_be32, words_at

HEADER_MASK = 0xFFFFFF
LONG_DIGITS = 18
OTHERS_MAX = 64  # fields that nobody looks at
MOST_MAX = 4096  # messages
MULTIPLIER, SHIFT = 0x100000001B3, 29
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
    size = block[PullWord.INDEX]
    index = carray(words_at(block[PullWord.INDEX_AT]), (size,))
    known = carray(words_at(block[PullWord.KNOWN_AT]), (block[PullWord.KNOWN] * KNOWN_WORDS,))
    keys = carray(bytes_at(block[PullWord.KEYS_AT]), (block[PullWord.KEYS_BYTES],))
    value = block[PullWord.SEED]
    for k in range(count):
        value = (value ^ np.int64(key[k])) * MULTIPLIER
    place = (value ^ value >> SHIFT) & (size - 1)
    for _ in range(size):
        if index[place] == 0:
            return NONE
        row = (index[place] - 1) * KNOWN_WORDS
        if known[row + KnownWord.KEY_BYTES] == count:
            own, k = known[row + KnownWord.KEY_AT], 0
            while k < count and keys[own + k] == key[k]:
                k += 1
            if k == count:
                return row
        place = place + 1 & size - 1
    return NONE


@kernel
def _asked(block: Words, frame: Bytes, header: Words) -> bool:
    """Read what changes from pull to pull into the block; False where that is unusual."""
    at = HeaderWord.FIELDS + PullField.QUEUE_OFFSET * FIELD_WORDS
    block[PullWord.OFFSET] = whole_number(frame, header[at], header[at + 1], LONG_DIGITS)
    at = HeaderWord.FIELDS + PullField.MAX_MESSAGES * FIELD_WORDS
    block[PullWord.MOST] = int_of(frame, header[at], header[at + 1])
    at = HeaderWord.FIELDS + PullField.COMMIT_OFFSET * FIELD_WORDS
    block[PullWord.COMMIT] = whole_number(frame, header[at], header[at + 1], LONG_DIGITS)
    at = HeaderWord.FIELDS + PullField.SUSPEND_MS * FIELD_WORDS
    block[PullWord.SUSPEND_MS] = whole_number(frame, header[at], header[at + 1], LONG_DIGITS)
    if block[PullWord.OFFSET] < 0 or block[PullWord.COMMIT] < 0 or block[PullWord.SUSPEND_MS] < 0:
        return False
    return 0 < block[PullWord.MOST] <= MOST_MAX


@kernel
def _pull(block: Words, frame: Bytes, at: int, end: int) -> int:
    """The frame at frame[at:end], without its length, answered; 0, or why it is unusual."""
    word = load_be32(frame, at)
    kind, header_at = word >> 24, at + LENGTH_BYTES
    if (kind != Serialize.JSON and kind != Serialize.ROCKETMQ) or header_at + (word & HEADER_MASK) != end:
        return Unusual.HEADER
    header = carray(words_at(block[PullWord.HEADER_AT]), (HEADER_WORDS,))
    key = carray(bytes_at(block[PullWord.KEY_AT]), (KEY_BYTES_MAX,))
    fields = Fields(FORM, NAME_BYTES, NAME_ENDS)
    if not read_fields(frame, header_at, end, kind == Serialize.JSON, fields, header, key):
        return Unusual.HEADER
    code = header[HeaderWord.CODE]
    if (code != PULL and code != LITE_PULL) or header[HeaderWord.FLAG] != 0 or header[HeaderWord.OTHERS] > OTHERS_MAX:
        return Unusual.HEADER
    if not _asked(block, frame, header):
        return Unusual.FIELDS
    count = _key_of(frame, header, key)
    row = _row_of(block, key, count) if count > 0 else NONE
    if row < 0:
        return Unusual.KEY
    block[PullWord.ROW], block[PullWord.OPAQUE], block[PullWord.FORM] = row, header[HeaderWord.OPAQUE], kind
    return _served(block, row)


@kernel
def _served(block: Words, row: int) -> int:
    """The pull that the block says, answered and counted; 0, or why it is unusual."""
    reason = look(block, row, block[PullWord.OFFSET], block[PullWord.MOST])
    if reason == 0:
        reason = answer(block, row)
    known = carray(words_at(block[PullWord.KNOWN_AT]), (block[PullWord.KNOWN] * KNOWN_WORDS,))
    commits = known[row + KnownWord.FLAGS] & PullFlag.COMMIT_OFFSET != 0 and block[PullWord.COMMITS] != 0
    is_new = known[row + KnownWord.COMMIT] != block[PullWord.COMMIT]
    if (reason == 0 or reason == Unusual.NOT_YET) and commits and is_new:
        mark(block, row)
        known[row + KnownWord.COMMIT] = block[PullWord.COMMIT]
        known[row + KnownWord.COMMIT_PEER] = block[PullWord.PEER]
        block[PullWord.COMMITS_NOTED] += 1
        known[row + KnownWord.COMMIT_NUMBER] = block[PullWord.COMMITS_NOTED]
    return reason


@kernel
def take_pulls(block: Words, at: int, end: int, fd: int, peer: int, bytes_max: int) -> int:
    """Answer the usual pulls among the frames in the receive buffer from `at` to `end`, up to the first frame that is
    not usual or not whole, or until so many bytes are answered: where it ends. block[REASON] says why. What the socket
    `fd` did not take is out[SENT:WRITTEN] afterwards: with NO_SOCKET all of it.
    """
    begin(block, fd)
    block[PullWord.REASON], block[PullWord.PEER], is_gathered = 0, peer, block[PullWord.IS_BLOCKED]
    frame = carray(bytes_at(block[PullWord.BUFFER_AT]), (block[PullWord.BUFFER_BYTES],))
    if not 0 <= at <= end <= frame.size:
        return at
    while end - at >= 2 * LENGTH_BYTES:
        length = load_be32(frame, at)
        if not LENGTH_BYTES <= length <= FRAME_BYTES_MAX:
            block[PullWord.REASON] = Unusual.HEADER
            break
        if length > end - at - LENGTH_BYTES:
            break
        reason = np.int64(Unusual.ROOM)
        if block[PullWord.IS_BLOCKED] == is_gathered and block[PullWord.ANSWERED] < bytes_max:
            reason = _pull(block, frame, at + LENGTH_BYTES, at + LENGTH_BYTES + length)
        if reason == Unusual.NOT_YET:
            note_end(block)
            if hold(block):
                reason = np.int64(0)
        if reason != 0:
            block[PullWord.REASON] = reason
            break
        at += LENGTH_BYTES + length
    flush(block, 0)
    return at


@kernel
def answer_known(block: Words, row: int, offset: int, most: int, opaque: int, form: int) -> int:
    """A pull that was held, answered into `out`: how many bytes, or why it is unusual."""
    begin(block, NO_SOCKET)
    block[PullWord.ROW], block[PullWord.OPAQUE], block[PullWord.FORM] = row, opaque, form
    block[PullWord.OFFSET], block[PullWord.MOST] = offset, most
    reason = look(block, row, offset, most)
    if reason == 0:
        reason = answer(block, row)
    return reason if reason != 0 else block[PullWord.WRITTEN]
