"""Usual batches into the front's ring, compiled: a record for each message, all of them one piece to the writer.

Implements: SendMessageProcessor.sendBatchMessage, MessageExtEncoder of a MessageExtBatch (spec: store-formats, 5)
What comes out is what `store.put.batch` and `engine.rings.payload` make. The fields were looked at, the properties of
the batch are in their order: they go behind those of each message.
"""

# mypy: disable-error-code="no-any-return,return-value"

from __future__ import annotations

import numpy as np

from engine.front.frames.header_kernel import FIELD_WORDS, HeaderWord
from engine.front.frames.send_words import (
    HEADER_WORDS,
    RECORDS_MAX,
    RULES_WORDS,
    AnswerForm,
    BlockWord,
    Field,
    RulesWord,
    SaidWord,
    Unusual,
)
from engine.front.sends.send_properties_kernel import write_properties
from engine.front.sends.send_record_kernel import (
    BODY_AT,
    ENTRIES_AT,
    LOCAL_WORDS,
    ORDER_AT,
    SAID_AT,
    SCRATCH_WORDS,
    STATE_WORDS,
    TEXT_BYTES,
    Entered,
    Own,
    Send,
    enter,
    has_room,
    place_for,
    write_record,
)
from engine.rings.payload import COMPOSED, HEAD_WORDS, PayloadFlag, PayloadWord
from ipc.arrays import Bytes, Words
from ipc.compiled.atomics import load_acquire
from ipc.compiled.kernels import bare_kernel, kernel
from ipc.compiled.memory import bytes_at, carray, copy_bytes, load_be16, load_be32, store_be16, store_be64, words_at
from ipc.ring import LocalWord
from store.message.properties import MAX_PROPERTIES_BYTES, PAIR_SEPARATOR
from store.message.record import MAGIC_V1, MAX_RECORD_OVERHEAD_BYTES
from store.put.batch import ITEM_HEAD

PAIR_END = ord(PAIR_SEPARATOR)
ITEM_HEAD_BYTES, ITEM_FLAG_AT, ITEM_BODY_AT = ITEM_HEAD.size, 12, 16
PAYLOAD_HEAD_BYTES = (HEAD_WORDS + 1) * 8  # and the one part's length
PART_AT = HEAD_WORDS * 8
FLAGS = int(PayloadFlag.IS_COUNTED | PayloadFlag.OTHERS_COUNT)


@bare_kernel
def _separators(frame: Bytes, at: int, count: int) -> int:
    """Return how many separators stand between a message's own properties and the common ones."""
    return 1 if count > 0 and frame[at + count - 1] != PAIR_END else 0


@bare_kernel
def _measure(frame: Bytes, at: int, end: int, lengths: Words, first: int, fixed: int, shared: int) -> int:
    """Count the messages in frame[at:end], and note their records' lengths from lengths[first] on; -1: unusual."""
    count = np.int64(0)
    while at < end:
        if count >= RECORDS_MAX or end - at < ITEM_HEAD_BYTES:
            return -1
        body_bytes = load_be32(frame, at + ITEM_BODY_AT)
        at += ITEM_HEAD_BYTES
        if not 0 < body_bytes <= end - at - 2:
            return -1
        at += body_bytes
        own = load_be16(frame, at)
        at += 2
        if not 0 <= own <= end - at:
            return -1
        own_bytes = own + _separators(frame, at, own) + shared
        if own_bytes > MAX_PROPERTIES_BYTES:
            return -1
        lengths[first + count] = fixed + body_bytes + own_bytes
        count += 1
        at += own
    return count


@kernel
def _write_records(block: Words, data: Bytes, to: int, send: Send, lengths: Words, first: int) -> None:
    """The records one behind the other to data[to:]."""
    frame, at, end = send.frame, send.body, send.end
    scratch = carray(words_at(block[BlockWord.SCRATCH_AT]), (SCRATCH_WORDS,))
    header, said = scratch[:HEADER_WORDS], scratch[SAID_AT:ENTRIES_AT]
    rules = carray(words_at(block[BlockWord.RULES_AT]), (RULES_WORDS,))
    text = carray(bytes_at(block[BlockWord.TEXT_AT]), (TEXT_BYTES,))
    own_text = carray(bytes_at(block[BlockWord.OWN_TEXT_AT]), (block[BlockWord.OWN_TEXT_BYTES],))
    shared, shared_at, host = said[SaidWord.OUT_BYTES], np.int64(-1), block[BlockWord.STORE_HOST]
    while at < end:
        flag, body_bytes = load_be32(frame, at + ITEM_FLAG_AT), load_be32(frame, at + ITEM_BODY_AT)
        at += ITEM_HEAD_BYTES
        length = lengths[first]
        after = write_record(data, to, Own(length, MAGIC_V1, flag, at, body_bytes), send, header, host)
        at += body_bytes
        own = load_be16(frame, at)
        at += 2
        between = _separators(frame, at, own)
        store_be16(data, after, own + between + shared)
        copy_bytes(data, after + 2, frame, at, own)
        after += 2 + own
        if between:
            data[after] = PAIR_END
            after += 1
        if shared_at < 0:
            shared_at = after
            entries, order = scratch[ENTRIES_AT:ORDER_AT], scratch[ORDER_AT:]
            write_properties(data, after, text, own_text, entries, said, rules, order)
        else:
            copy_bytes(data, after, data, shared_at, shared)
        at, to, first = at + own, to + length, first + 1


@bare_kernel
def _write_head(data: Bytes, at: int, records: int, length: int, bytes_max: int) -> None:
    """Write the head of a batch's payload, which the writer reads."""
    for word in range(HEAD_WORDS):
        store_be64(data, at + word * 8, 0)
    store_be64(data, at + PayloadWord.FLAGS * 8, FLAGS)
    store_be64(data, at + PayloadWord.STEP * 8, 1)
    store_be64(data, at + PayloadWord.RECORDS * 8, records)
    store_be64(data, at + PayloadWord.BYTES_MAX * 8, bytes_max)
    store_be64(data, at + PayloadWord.PARTS * 8, 1)
    store_be64(data, at + PART_AT, length)


@kernel
def put_batch(block: Words, send: Send, slot: int) -> int:
    """The messages in a frame's body into the ring; 0, or why they are unusual."""
    body, end, peers, peer = send.body, send.end, send.peers, send.peer
    scratch = carray(words_at(block[BlockWord.SCRATCH_AT]), (SCRATCH_WORDS,))
    header, said = scratch[:HEADER_WORDS], scratch[SAID_AT:ENTRIES_AT]
    rules = carray(words_at(block[BlockWord.RULES_AT]), (RULES_WORDS,))
    local = carray(words_at(block[BlockWord.LOCAL_AT]), (LOCAL_WORDS,))
    lengths = carray(words_at(block[BlockWord.LENGTHS_AT]), (block[BlockWord.ROWS] * RECORDS_MAX,))
    number, shared, most = local[LocalWord.TAIL], said[SaidWord.OUT_BYTES], rules[RulesWord.BODY_BYTES_MAX]
    if end - body > most or shared > MAX_PROPERTIES_BYTES:
        return Unusual.SIZE
    state = carray(words_at(block[BlockWord.STATE_AT]), (STATE_WORDS,))
    if not has_room(block, state, local, peers, peer, end - body):  # the row of `number` may be another's still
        return Unusual.ROOM
    first = number % block[BlockWord.ROWS] * RECORDS_MAX
    fixed = BODY_AT + 1 + header[HeaderWord.FIELDS + Field.TOPIC * FIELD_WORDS + 1] + 2
    records, length = _measure(send.frame, body, end, lengths, first, fixed, shared), np.int64(0)
    for k in range(records):
        length += lengths[first + k]
    if records < 2 or length + PAYLOAD_HEAD_BYTES > block[BlockWord.RECORD_BYTES_MAX]:
        return Unusual.SIZE
    counters = carray(words_at(block[BlockWord.COUNTERS_AT]), (block[BlockWord.COUNTERS],))
    in_sync = load_acquire(counters, block[BlockWord.IN_SYNC_SLAVES])
    taken = PAYLOAD_HEAD_BYTES + length
    position = place_for(block, peers, peer, said[SaidWord.WAITS], in_sync, length, taken)
    if position < 0:
        return position
    data = carray(bytes_at(block[BlockWord.DATA_AT]), (block[BlockWord.DATA_BYTES],))
    to = position % data.size
    _write_head(data, to, records, length, most + MAX_RECORD_OVERHEAD_BYTES)
    _write_records(block, data, to + PAYLOAD_HEAD_BYTES, send, lengths, first)
    form = AnswerForm.JSON if send.is_json else AnswerForm.ROCKETMQ
    if said[SaidWord.UNIQUE_BYTES] == 0:
        form = AnswerForm.KEYLESS_JSON if send.is_json else AnswerForm.KEYLESS_ROCKETMQ
    entered = Entered(in_sync, form, records, int(length), position, int(taken), slot | COMPOSED)
    enter(block, said, header, send, entered)
    return 0
