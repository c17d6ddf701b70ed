"""Usual sends from a receive buffer into the front's ring, compiled: one call for all whole frames that have come.

Implements: SendMessageProcessor.sendMessage, MessageExtEncoder for plain messages (spec: remoting, 7; store-formats, 3)
What comes out is byte for byte what `store.put.request`, `store.put.draft` and `engine.rings.encode_kernel` make. A
frame that is unusual in anything is left where it is, and nothing is changed: Python takes it. Lengths are a client's
word: each is compared with what is there before a byte is read.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np

from engine.board.cursors import BrokerState
from engine.front.frames.header_kernel import FIELD_WORDS, HeaderWord, whole_number
from engine.front.frames.send_words import (
    HEADER_WORDS,
    PEER_WORDS,
    RULES_WORDS,
    AnswerForm,
    BlockWord,
    Field,
    PeerWord,
    RulesWord,
    SaidWord,
    Unusual,
)
from engine.front.sends.send_header_kernel import SEND_BATCH, read_header
from engine.front.sends.send_properties_kernel import (
    order_properties,
    read_properties,
    write_properties,
)
from engine.front.sends.send_record_kernel import (
    BODY_AT,
    ENTRIES_AT,
    HIDDEN_MAGIC,
    LOCAL_WORDS,
    LONG_DIGITS,
    ORDER_AT,
    SAID_AT,
    SCRATCH_WORDS,
    TEXT_BYTES,
    Entered,
    Own,
    Send,
    enter,
    look_at_fields,
    number_at,
    place_for,
    slot_of,
    write_record,
)
from engine.front.sends.usual_batch_kernel import put_batch
from engine.protocol.remoting.frame import FRAME_BYTES_MAX, LENGTH_BYTES, Serialize
from engine.protocol.store.retention import DiskState
from ipc.arrays import Bytes, Words
from ipc.compiled.atomics import load_acquire, monotonic_ns, ring, store_release
from ipc.compiled.kernels import kernel
from ipc.compiled.memory import bytes_at, carray, load_be32, store_be16, words_at
from ipc.ring import WORDS_PER_RING, ControlWord, LocalWord

HEADER_MASK = 0xFFFFFF


@kernel
def _properties(block: Words, header: Words, scratch: Words, text: Bytes, is_batch: bool) -> bool:
    """Read the properties into the scratch; False where they are unusual."""
    rules = carray(words_at(block[BlockWord.RULES_AT]), (RULES_WORDS,))
    entries, state = scratch[ENTRIES_AT:ORDER_AT], scratch[SAID_AT:ENTRIES_AT]
    count = header[HeaderWord.TEXT_BYTES]
    if not read_properties(text, count, entries, state):
        return False
    if rules[RulesWord.NEEDS_UNIQUE_KEY] and state[SaidWord.UNIQUE_BYTES] == 0 and not is_batch:
        return False
    return order_properties(entries, state, rules, scratch[ORDER_AT:], is_batch)


@kernel
def _put(block: Words, frame: Bytes, at: int, end: int, peers: Words, peer: int, now_ns: int) -> int:
    """The frame at frame[at:end], without its length, into the ring; 0, or why it is unusual."""
    word = load_be32(frame, at)
    kind, header_at = word >> 24, at + LENGTH_BYTES
    body = header_at + (word & HEADER_MASK)
    if (kind != Serialize.JSON and kind != Serialize.ROCKETMQ) or body > end:
        return Unusual.HEADER
    scratch = carray(words_at(block[BlockWord.SCRATCH_AT]), (SCRATCH_WORDS,))
    text = carray(bytes_at(block[BlockWord.TEXT_AT]), (TEXT_BYTES,))
    header = scratch[:HEADER_WORDS]
    reason = read_header(frame, header_at, body, kind == Serialize.JSON, header, text)
    if reason != 0:
        return reason
    is_batch = header[HeaderWord.CODE] == SEND_BATCH
    reason = look_at_fields(frame, header, is_batch)
    if reason != 0:
        return reason
    born = HeaderWord.FIELDS + Field.BORN_MS * FIELD_WORDS
    if whole_number(frame, header[born], header[born + 1], LONG_DIGITS) < 0:
        return Unusual.FIELDS
    slot = slot_of(block, frame, header)
    if slot < 0:
        return slot
    if not _properties(block, header, scratch, text, is_batch):
        return Unusual.PROPERTIES
    send = Send(frame, body, end, kind == Serialize.JSON, peers, peer, now_ns)
    return put_batch(block, send, slot) if is_batch else _publish(block, send, slot)


@kernel
def _publish(block: Words, send: Send, slot: int) -> int:
    """Write a checked send into the ring; it is the writer's once the tail has passed it."""
    scratch = carray(words_at(block[BlockWord.SCRATCH_AT]), (SCRATCH_WORDS,))
    header, said = scratch[:HEADER_WORDS], scratch[SAID_AT:ENTRIES_AT]
    rules = carray(words_at(block[BlockWord.RULES_AT]), (RULES_WORDS,))
    topic_bytes = header[HeaderWord.FIELDS + Field.TOPIC * FIELD_WORDS + 1]
    body_bytes = send.end - send.body
    length = BODY_AT + body_bytes + 1 + topic_bytes + 2 + said[SaidWord.OUT_BYTES]
    if not 0 < body_bytes <= rules[RulesWord.BODY_BYTES_MAX] or said[SaidWord.OUT_BYTES] >= TEXT_BYTES:
        return Unusual.SIZE
    if length > block[BlockWord.RECORD_BYTES_MAX]:
        return Unusual.SIZE
    counters = carray(words_at(block[BlockWord.COUNTERS_AT]), (block[BlockWord.COUNTERS],))
    in_sync = load_acquire(counters, block[BlockWord.IN_SYNC_SLAVES])
    position = place_for(block, send.peers, send.peer, said[SaidWord.WAITS], in_sync, length, length)
    if position < 0:
        return position
    data = carray(bytes_at(block[BlockWord.DATA_AT]), (block[BlockWord.DATA_BYTES],))
    to = position % data.size
    own = Own(length, HIDDEN_MAGIC, number_at(send.frame, header, Field.FLAG, 0), send.body, body_bytes)
    to = write_record(data, to, own, send, header, block[BlockWord.STORE_HOST])
    store_be16(data, to, said[SaidWord.OUT_BYTES])
    text = carray(bytes_at(block[BlockWord.TEXT_AT]), (TEXT_BYTES,))
    own_text = carray(bytes_at(block[BlockWord.OWN_TEXT_AT]), (block[BlockWord.OWN_TEXT_BYTES],))
    entries, order = scratch[ENTRIES_AT:ORDER_AT], scratch[ORDER_AT:]
    write_properties(data, to + 2, text, own_text, entries, said, rules, order)
    form = AnswerForm.JSON if send.is_json else AnswerForm.ROCKETMQ
    enter(block, said, header, send, Entered(in_sync, form, 1, length, position, length, slot))
    return 0


@kernel
def take_sends(block: Words, at: int, end: int, peer: int) -> int:
    """Put the usual sends among the frames in the receive buffer from `at` to `end`, up to the first frame that is not
    usual or not whole: where it begins. block[REASON] says why, block[TAKEN] how many were put.
    """
    block[BlockWord.TAKEN], block[BlockWord.REASON] = 0, 0
    frame = carray(bytes_at(block[BlockWord.BUFFER_AT]), (block[BlockWord.BUFFER_BYTES],))
    counters = carray(words_at(block[BlockWord.COUNTERS_AT]), (block[BlockWord.COUNTERS],))
    peers = carray(words_at(block[BlockWord.PEERS_AT]), (block[BlockWord.PEERS] * PEER_WORDS,))
    if not 0 <= at <= end <= frame.size or not 0 <= peer < block[BlockWord.PEERS]:
        block[BlockWord.REASON] = Unusual.NOW
        return at
    is_open = block[BlockWord.IS_OPEN] != 0
    is_open &= counters[block[BlockWord.BROKER_STATE]] == BrokerState.RUNNING
    is_open &= counters[block[BlockWord.DISK_STATE]] < DiskState.READ_ONLY
    local = carray(words_at(block[BlockWord.LOCAL_AT]), (LOCAL_WORDS,))
    row, now_ns, taken, position = peer * PEER_WORDS, monotonic_ns(), 0, local[LocalWord.POSITION]
    is_open &= peers[row + PeerWord.IS_USUAL] != 0
    while end - at >= 2 * LENGTH_BYTES:
        length = load_be32(frame, at)
        if not LENGTH_BYTES <= length <= FRAME_BYTES_MAX:
            block[BlockWord.REASON] = Unusual.HEADER
            break
        if length > end - at - LENGTH_BYTES:
            break
        reason = np.int64(Unusual.NOW)
        if is_open:
            reason = _put(block, frame, at + LENGTH_BYTES, at + LENGTH_BYTES + length, peers, row, now_ns)
        if reason != 0:
            block[BlockWord.REASON] = reason
            break
        taken += 1
        at += LENGTH_BYTES + length
    if taken:
        control = carray(words_at(block[BlockWord.CONTROL_AT]), (WORDS_PER_RING,))
        # One store for all frames, after their records, descriptors and rows: what the tail has passed is the writer's.
        store_release(control, ControlWord.TAIL, local[LocalWord.TAIL])
        block[BlockWord.UNRUNG] += local[LocalWord.POSITION] - position
        if block[BlockWord.UNRUNG] >= block[BlockWord.RINGS_FROM]:
            ring(counters, block[BlockWord.BELL])
            block[BlockWord.UNRUNG] = 0
        block[BlockWord.TAKEN] = taken
    return at
