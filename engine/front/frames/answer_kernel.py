"""Answers to fast sends, compiled: whose puts are done by now, and their frames, one connection's behind each other.

Implements: SendMessageProcessor.handlePutMessageResult for what was stored (spec: remoting, 7)
The pipeline says what is answered (`engine.producer.pipeline_kernel`). A form (`engine.front.frames.answer_forms`) says
how it looks, so that the bytes equal those that Python writes.
"""

# mypy: disable-error-code="no-any-return,return-value,assignment"

from __future__ import annotations

import numpy as np

from engine.front.frames.send_words import (
    ASKED_WORDS,
    FORM_WORDS,
    PART_WORDS,
    PEER_WORDS,
    PREFIXED,
    RECORDS_MAX,
    RUN_WORDS,
    STATUS_CODES,
    UNIQUE_KEY_BYTES,
    AnswerForm,
    AskedWord,
    FormsWord,
    Hole,
    PartWord,
    PeerWord,
    RunWord,
    SendBlock,
)
from engine.producer.pipeline_kernel import DONE_WORDS, SENT_WORDS, DoneWord, StateWord, keep_places, tell_reached
from engine.protocol.remoting.frame import LENGTH_BYTES
from ipc.arrays import Bytes, Words
from ipc.compiled.atomics import load_acquire
from ipc.compiled.kernels import bare_kernel, kernel
from ipc.compiled.memory import bytes_at, carray, copy_bytes, store_be16, store_be32, words_at
from ipc.compiled.texts import write_decimal, write_hexadecimal
from ipc.ring import DESCRIPTOR_WORDS, WORDS_PER_RING

STATE_WORDS = len(StateWord)
FOREVER = 1 << 62
COMMA = ord(",")
FORMS_WORDS = int(FormsWord.END)
HEAD_BYTES = 2 * LENGTH_BYTES
LONG_DIGITS = 16  # hexadecimal ones
NOT_SO, NOBODY = -2, -1  # as REACHED_FIRST: each has to be looked at; none is waited for


@bare_kernel
def end_head(out: Bytes, first: int, fields_at: int, end: int, kind: int, body_bytes: int) -> None:
    """The lengths of a frame whose head is out[first:end]: of its fields, where they have one (else -1), of all."""
    if fields_at >= 0:
        store_be32(out, fields_at, end - fields_at - 4)
    store_be32(out, first, end - first - LENGTH_BYTES + body_bytes)
    store_be32(out, first + LENGTH_BYTES, kind << 24 | end - first - HEAD_BYTES)


@kernel
def _write_message_ids(block: Words, out: Bytes, at: int, row: int, place: int, records: int) -> int:
    """Write each record's message id, with commas between; return where they end."""
    lengths = carray(words_at(block[SendBlock.LENGTHS_AT]), (block[SendBlock.ROWS] * RECORDS_MAX,))
    for k in range(records):
        if k > 0:
            out[at] = COMMA
            at += 1
        at = write_hexadecimal(out, at, block[SendBlock.STORE_HOST], LONG_DIGITS)
        at = write_hexadecimal(out, at, place, LONG_DIGITS)
        place += lengths[row * RECORDS_MAX + k] if records > 1 else 0
    return at


@kernel
def _write_value(
    block: Words, out: Bytes, at: int, hole: int, code: int, row: int, place: int, queue_offset: int
) -> int:
    """Write one value to out[at:]; return where it ends."""
    asked = carray(words_at(block[SendBlock.ASKED_AT]), (block[SendBlock.ROWS] * ASKED_WORDS,))
    if hole == Hole.CODE:
        return write_decimal(out, at, code)
    if hole == Hole.OPAQUE:
        return write_decimal(out, at, asked[row * ASKED_WORDS + AskedWord.OPAQUE])
    if hole == Hole.QUEUE_ID:
        return write_decimal(out, at, asked[row * ASKED_WORDS + AskedWord.QUEUE_ID])
    if hole == Hole.QUEUE_OFFSET:
        return write_decimal(out, at, queue_offset)
    if hole == Hole.MESSAGE_ID:
        return _write_message_ids(block, out, at, row, place, asked[row * ASKED_WORDS + AskedWord.RECORDS])
    if hole == Hole.TRANSACTION_ID:
        keys = carray(bytes_at(block[SendBlock.UNIQUE_AT]), (block[SendBlock.ROWS] * UNIQUE_KEY_BYTES,))
        count = asked[row * ASKED_WORDS + AskedWord.UNIQUE_BYTES]
        copy_bytes(out, at, keys, row * UNIQUE_KEY_BYTES, count)
        return at + count
    if hole == Hole.CODE_16:
        store_be16(out, at, code)
        return at + 2
    store_be32(out, at, asked[row * ASKED_WORDS + AskedWord.OPAQUE] if hole == Hole.OPAQUE_32 else 0)
    return at + 4


@kernel
def _write_answer(block: Words, out: Bytes, at: int, code: int, row: int, place: int, queue_offset: int) -> int:
    """The frame to out[at:]; where it ends."""
    forms = carray(words_at(block[SendBlock.FORMS_AT]), (FORMS_WORDS,))
    text = carray(bytes_at(block[SendBlock.FORMS_TEXT_AT]), (block[SendBlock.FORMS_TEXT_BYTES],))
    asked = carray(words_at(block[SendBlock.ASKED_AT]), (block[SendBlock.ROWS] * ASKED_WORDS,))
    form = asked[row * ASKED_WORDS + AskedWord.FORM] * FORM_WORDS
    first, fields_at = at, np.int64(-1)
    at += HEAD_BYTES
    for k in range(forms[form]):
        part = form + 1 + k * PART_WORDS
        copy_bytes(out, at, text, forms[part + PartWord.AT], forms[part + PartWord.BYTES])
        at += forms[part + PartWord.BYTES]
        hole = forms[part + PartWord.HOLE] & (PREFIXED - 1)
        if hole == Hole.END:
            break
        prefix = forms[part + PartWord.HOLE] >= PREFIXED
        if hole == Hole.FIELDS_BYTES:
            fields_at = at
        value_at = at + 4 if prefix else at
        at = _write_value(block, out, value_at, hole, code, row, place, queue_offset)
        if prefix:
            store_be32(out, value_at - 4, at - value_at)
    end_head(out, first, fields_at, at, forms[form + FORM_WORDS - 1], 0)
    return at


@bare_kernel
def _note_run(runs: Words, count: int, peer: int, at: int, end: int) -> int:
    """Note bytes of a connection's answer; return how many runs there are now."""
    if count > 0:
        last = (count - 1) * RUN_WORDS
        if runs[last + RunWord.PEER] == peer and runs[last + RunWord.END] == at:
            runs[last + RunWord.END] = end
            return count
    to = count * RUN_WORDS
    runs[to + RunWord.PEER], runs[to + RunWord.AT], runs[to + RunWord.END] = peer, at, end
    return count + 1


@bare_kernel
def _leave_to_python(block: Words, done: Words, row: int) -> None:
    """Somebody else's: kept at the beginning of the table."""
    to = block[SendBlock.ROWS_FOR_PYTHON] * DONE_WORDS
    for k in range(DONE_WORDS):
        done[to + k] = done[row + k]
    block[SendBlock.ROWS_FOR_PYTHON] += 1


@kernel
def write_answers(block: Words) -> int:
    """Write the answers of what is done, as far as there is room: how many runs there are.

    block[NEXT_ROW] is below the number of those done where it is to be called again. Rows that are not ours, or that
    Python has to say something about, are the first block[ROWS_FOR_PYTHON] of `done` afterwards.
    """
    rows = block[SendBlock.ROWS]
    state = carray(words_at(block[SendBlock.STATE_AT]), (STATE_WORDS,))
    done = carray(words_at(block[SendBlock.DONE_AT]), (rows * DONE_WORDS,))
    asked = carray(words_at(block[SendBlock.ASKED_AT]), (rows * ASKED_WORDS,))
    peers = carray(words_at(block[SendBlock.PEERS_AT]), (block[SendBlock.PEERS] * PEER_WORDS,))
    forms = carray(words_at(block[SendBlock.FORMS_AT]), (FORMS_WORDS,))
    runs = carray(words_at(block[SendBlock.RUNS_AT]), (block[SendBlock.RUNS] * RUN_WORDS,))
    out = carray(bytes_at(block[SendBlock.OUT_AT]), (block[SendBlock.OUT_BYTES],))
    at, count, next_row = np.int64(0), np.int64(0), block[SendBlock.NEXT_ROW]
    while next_row < state[StateWord.DONE] and count < block[SendBlock.RUNS]:
        if at + block[SendBlock.ANSWER_BYTES_MAX] > out.size:
            break
        row = next_row * DONE_WORDS
        next_row += 1
        number, status = done[row + DoneWord.NUMBER], done[row + DoneWord.STATUS]
        of, own = number % rows, number % rows * ASKED_WORDS
        code = forms[FormsWord.STATUS_CODES + status] if 0 <= status < STATUS_CODES else np.int64(-1)
        if asked[own + AskedWord.NUMBER] != number or code < 0:
            _leave_to_python(block, done, row)
            continue
        peer, taken = asked[own + AskedWord.PEER], asked[own + AskedWord.BYTES]
        block[SendBlock.STORED] += asked[own + AskedWord.RECORDS]
        block[SendBlock.UNDER_WAY] -= 1
        block[SendBlock.BYTES_UNDER_WAY] -= taken
        if peers[peer + PeerWord.NUMBER] != asked[own + AskedWord.PEER_NUMBER]:
            continue
        peers[peer + PeerWord.PUTS] -= 1
        peers[peer + PeerWord.BYTES] -= taken
        if asked[own + AskedWord.FORM] == AnswerForm.NONE:
            continue
        place, queue_offset = done[row + DoneWord.PHYSICAL_OFFSET], done[row + DoneWord.QUEUE_OFFSET]
        end = _write_answer(block, out, at, code, of, place, queue_offset)
        count = _note_run(runs, count, peer, at, end)
        at = end
    block[SendBlock.NEXT_ROW] = next_row
    return count


@bare_kernel
def _reached(block: Words, counters: Words) -> int:
    """Return the log offset up to which every put succeeded; -1 where each put has to be judged by itself."""
    first, second, reached = block[SendBlock.REACHED_FIRST], block[SendBlock.REACHED_SECOND], np.int64(FOREVER)
    if first == NOT_SO or load_acquire(counters, block[SendBlock.FLUSH_ERRNO]) != 0:
        return -1
    if first >= 0:
        reached = min(reached, load_acquire(counters, first))
    if second >= 0:
        reached = min(reached, load_acquire(counters, second))
    return reached


@kernel
def look_at_log(block: Words) -> bool:
    """Have the pipeline note which puts are done; return whether Python has to judge each by `put_status`.

    `FrontRing.collect` (front_ring.py) calls it when the log, the disk or a slave has moved, then `write_answers`.
    """
    rows = block[SendBlock.ROWS]
    counters = carray(words_at(block[SendBlock.COUNTERS_AT]), (block[SendBlock.COUNTERS],))
    control = carray(words_at(block[SendBlock.CONTROL_AT]), (WORDS_PER_RING,))
    words = carray(words_at(block[SendBlock.DESCRIPTORS_AT]), (block[SendBlock.DESCRIPTORS] * DESCRIPTOR_WORDS,))
    table = carray(words_at(block[SendBlock.TABLE_AT]), (rows * SENT_WORDS,))
    state = carray(words_at(block[SendBlock.STATE_AT]), (STATE_WORDS,))
    done = carray(words_at(block[SendBlock.DONE_AT]), (rows * DONE_WORDS,))
    latencies = carray(words_at(block[SendBlock.LATENCIES_AT]), (block[SendBlock.LATENCIES],))
    block[SendBlock.NEXT_ROW] = block[SendBlock.ROWS_FOR_PYTHON] = 0
    keep_places(control, words, counters, block[SendBlock.LOG_END], table, state, done, latencies)
    reached = _reached(block, counters)
    tell_reached(table, state, done, reached, latencies)
    return reached < 0
