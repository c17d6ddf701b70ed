"""The parts that compiled sends of one message and of several share: fields, topics, room, a record's fixed part.

Implements: SendMessageRequestHeaderV2.decode, MessageExtEncoder (spec: store-formats, record v1)
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.front.frames.header_kernel import FIELD_WORDS, NO_NUMBER, HeaderWord, int_of, whole_number
from engine.front.frames.send_words import (
    ASKED_WORDS,
    TOPIC_WORDS,
    UNIQUE_KEY_BYTES,
    AnswerForm,
    AskedWord,
    BlockWord,
    Field,
    PeerWord,
    SaidWord,
    ScratchWord,
    TopicWord,
    Unusual,
)
from engine.front.sends.send_header_kernel import REQUIRED
from engine.front.sends.send_properties_kernel import (
    FALSE,
    TRUE,
    equals,
)
from engine.producer.pipeline_kernel import SENT_WORDS, SentWord, StateWord
from engine.protocol.remoting.frame import ONEWAY_FLAG
from ipc.arrays import Bytes, Words
from ipc.compiled.crc import crc32
from ipc.compiled.kernels import bare_kernel, kernel
from ipc.compiled.memory import bytes_at, carray, copy_bytes, store_be32, store_be64, words_at
from ipc.ring import DESCRIPTOR_WORDS, WORDS_PER_RING, LocalWord, describe, room_at
from store.message.record import (
    BODY_CRC_AT,
    BORN_HOST_AT,
    BORN_TIMESTAMP_AT,
    COMPRESSION_MASK,
    CRC_MASK,
    FAMILIES,
    FLAG_AT,
    MAGIC_AT,
    MAGIC_V1,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    SysFlag,
    store_host_at,
    store_timestamp_at,
)

LOCAL_WORDS, STATE_WORDS = len(LocalWord), len(StateWord)
TEXT_BYTES = 32 * 1024
SAID_AT, ENTRIES_AT, ORDER_AT, SCRATCH_WORDS = (
    int(word) for word in (ScratchWord.STATE, ScratchWord.ENTRIES, ScratchWord.ORDER, ScratchWord.END)
)
USUAL_FLAGS = int(SysFlag.COMPRESSED) | COMPRESSION_MASK
HIDDEN_MAGIC = MAGIC_V1 ^ 0xFFFFFFFF
FAMILY = FAMILIES[0]  # IPv4 hosts
BODY_AT, BODY_LENGTH_AT = FAMILY.body_at, FAMILY.body_length_at
STORE_TIME_AT, STORE_HOST_AT = store_timestamp_at(0), store_host_at(0)
RECONSUME_AT = STORE_HOST_AT + 8
PREPARED_AT = RECONSUME_AT + 4
REQUIRED_WORDS = Field.FLAG + 1
LONG_DIGITS = 18
assert REQUIRED and PREPARED_AT + 8 == BODY_LENGTH_AT


class Send(NamedTuple):
    """A send that is usual so far: its frame, whose body is frame[body:end], and the row of its connection."""

    frame: Bytes
    body: int
    end: int
    is_json: bool
    peers: Words
    peer: int
    now_ns: int


class Own(NamedTuple):
    """What a record does not share with others of its frame: frame[body:body + body_bytes] is its body."""

    length: int
    magic: int
    flag: int
    body: int
    body_bytes: int


class Entered(NamedTuple):
    """What a send puts: `length` bytes of records in the log, `taken` bytes in the ring from `position` on."""

    in_sync: int  # slaves, when it was taken
    form: int  # of its answer
    records: int
    length: int
    position: int
    taken: int
    slot: int


@kernel
def _row_of_topic(block: Words, data: Bytes, at: int, count: int) -> int:
    """Return the topic's row in the table, or -1."""
    rows = block[BlockWord.TOPICS]
    topics = carray(words_at(block[BlockWord.TOPICS_AT]), (rows * TOPIC_WORDS,))
    names = carray(bytes_at(block[BlockWord.NAMES_AT]), (block[BlockWord.NAMES_BYTES],))
    value = block[BlockWord.SEED]
    for k in range(at, at + count):
        value = (value ^ np.int64(data[k])) * 0x100000001B3
    row = (value ^ value >> 29) & (rows - 1)
    for _ in range(rows):
        begin = row * TOPIC_WORDS
        if topics[begin + TopicWord.NAME_BYTES] == 0:
            return -1
        if topics[begin + TopicWord.NAME_BYTES] == count:
            name, k = topics[begin + TopicWord.NAME_AT], 0
            while k < count and names[name + k] == data[at + k]:
                k += 1
            if k == count:
                return begin
        row = row + 1 & rows - 1
    return -1


@bare_kernel
def number_at(data: Bytes, header: Words, field: int, missing: int) -> int:
    """Return a field's number; `missing` without the field, NO_NUMBER where it is invalid."""
    place = HeaderWord.FIELDS + field * FIELD_WORDS
    return int_of(data, header[place], header[place + 1]) if header[place + 1] >= 0 else missing


@bare_kernel
def _is_truth(data: Bytes, header: Words, field: int, only_false: bool) -> bool:
    """Whether the field is missing, or says false, or may be true and says that."""
    place = HeaderWord.FIELDS + field * FIELD_WORDS
    at, count = header[place], header[place + 1]
    return count < 0 or equals(data, at, count, FALSE) or (not only_false and equals(data, at, count, TRUE))


@bare_kernel
def _is_true(data: Bytes, header: Words, field: int) -> bool:
    place = HeaderWord.FIELDS + field * FIELD_WORDS
    return header[place + 1] >= 0 and equals(data, header[place], header[place + 1], TRUE)


@bare_kernel
def look_at_fields(data: Bytes, header: Words, is_batch: bool) -> int:
    """0, or why the header's fields are unusual, but for topic and queue."""
    for field in range(REQUIRED_WORDS):
        if header[HeaderWord.FIELDS + field * FIELD_WORDS + 1] <= 0:
            return Unusual.FIELDS
    if header[HeaderWord.FLAG] != 0 and header[HeaderWord.FLAG] != ONEWAY_FLAG:
        return Unusual.HEADER
    flags = number_at(data, header, Field.SYS_FLAG, 0)
    if flags < 0 or flags & ~USUAL_FLAGS != 0:
        return Unusual.FIELDS
    times = number_at(data, header, Field.RECONSUME_TIMES, 0)
    most = number_at(data, header, Field.MAX_RECONSUME_TIMES, 0)
    if times < 0 or most == NO_NUMBER or number_at(data, header, Field.DEFAULT_QUEUES, 0) == NO_NUMBER:
        return Unusual.FIELDS
    if number_at(data, header, Field.FLAG, 0) == NO_NUMBER:
        return Unusual.FIELDS
    if not _is_truth(data, header, Field.UNIT_MODE, False) or _is_true(data, header, Field.BATCH) != is_batch:
        return Unusual.FIELDS
    return 0 if is_batch or _is_truth(data, header, Field.BATCH, True) else Unusual.FIELDS


@kernel
def slot_of(block: Words, data: Bytes, header: Words) -> int:
    """The slot of the queue that a header names, or why it is unusual."""
    place = HeaderWord.FIELDS + Field.TOPIC * FIELD_WORDS
    row = _row_of_topic(block, data, header[place], header[place + 1])
    if row < 0:
        return Unusual.TOPIC
    topics = carray(words_at(block[BlockWord.TOPICS_AT]), (block[BlockWord.TOPICS] * TOPIC_WORDS,))
    queue_id = number_at(data, header, Field.QUEUE_ID, -1)
    if not 0 <= queue_id < topics[row + TopicWord.QUEUES]:
        return Unusual.QUEUE
    slots = carray(words_at(block[BlockWord.SLOTS_AT]), (block[BlockWord.SLOTS],))
    slot = slots[topics[row + TopicWord.SLOTS_AT] + queue_id]
    return slot if slot >= 0 else Unusual.QUEUE


@bare_kernel
def has_room(block: Words, state: Words, local: Words, peers: Words, peer: int, count: int) -> bool:
    """Whether one more may be under way: in all, for its connection, and for the places of those that are."""
    tail = local[LocalWord.TAIL]
    under_way = tail - state[StateWord.ANSWERED]
    if under_way >= block[BlockWord.PUTS_MAX] or under_way >= block[BlockWord.ROWS]:
        return False
    if tail - state[StateWord.KEPT] >= block[BlockWord.DESCRIPTORS]:
        return False
    if peers[peer + PeerWord.PUTS] >= block[BlockWord.PEER_PUTS_MAX]:
        return False
    if peers[peer + PeerWord.BYTES] + count > block[BlockWord.PEER_BYTES_MAX]:
        return False
    return state[StateWord.BYTES] + count <= block[BlockWord.BYTES_MAX]


@kernel
def place_for(block: Words, peers: Words, peer: int, waits: int, in_sync: int, length: int, taken: int) -> int:
    """Return where in the ring so many bytes go, which make `length` in the log; or why they are unusual."""
    if waits and in_sync < block[BlockWord.IN_SYNC_MIN]:
        return Unusual.NOW
    state = carray(words_at(block[BlockWord.STATE_AT]), (STATE_WORDS,))
    local = carray(words_at(block[BlockWord.LOCAL_AT]), (LOCAL_WORDS,))
    if not has_room(block, state, local, peers, peer, length):
        return Unusual.ROOM
    control = carray(words_at(block[BlockWord.CONTROL_AT]), (WORDS_PER_RING,))
    words = carray(words_at(block[BlockWord.DESCRIPTORS_AT]), (block[BlockWord.DESCRIPTORS] * DESCRIPTOR_WORDS,))
    size = block[BlockWord.DATA_BYTES]
    position = room_at(control, words, size, local[LocalWord.TAIL], local[LocalWord.POSITION], taken)
    return position if position >= 0 else Unusual.ROOM


@bare_kernel
def write_record(data: Bytes, at: int, own: Own, send: Send, header: Words, store_host: int) -> int:
    """Write all of a record to data[at:] except its properties; return where these go."""
    frame, peers, peer = send.frame, send.peers, send.peer
    store_be32(data, at, own.length)
    store_be32(data, at + MAGIC_AT, own.magic)
    store_be32(data, at + BODY_CRC_AT, crc32(frame, own.body, own.body_bytes) & CRC_MASK)
    store_be32(data, at + QUEUE_ID_AT, number_at(frame, header, Field.QUEUE_ID, 0))
    store_be32(data, at + FLAG_AT, own.flag)
    store_be64(data, at + QUEUE_OFFSET_AT, 0)
    store_be64(data, at + PHYSICAL_OFFSET_AT, 0)
    store_be32(data, at + SYS_FLAG_AT, number_at(frame, header, Field.SYS_FLAG, 0))
    born = HeaderWord.FIELDS + Field.BORN_MS * FIELD_WORDS
    store_be64(data, at + BORN_TIMESTAMP_AT, whole_number(frame, header[born], header[born + 1], LONG_DIGITS))
    store_be32(data, at + BORN_HOST_AT, peers[peer + PeerWord.ADDRESS])
    store_be32(data, at + BORN_HOST_AT + 4, peers[peer + PeerWord.PORT])
    store_be64(data, at + STORE_TIME_AT, 0)
    store_be64(data, at + STORE_HOST_AT, store_host)
    store_be32(data, at + RECONSUME_AT, number_at(frame, header, Field.RECONSUME_TIMES, 0))
    store_be64(data, at + PREPARED_AT, 0)
    store_be32(data, at + BODY_LENGTH_AT, own.body_bytes)
    copy_bytes(data, at + BODY_AT, frame, own.body, own.body_bytes)
    at += BODY_AT + own.body_bytes
    topic = HeaderWord.FIELDS + Field.TOPIC * FIELD_WORDS
    data[at] = header[topic + 1]
    copy_bytes(data, at + 1, frame, header[topic], header[topic + 1])
    return at + 1 + header[topic + 1]


@kernel
def _note(block: Words, number: int, waits: int, header: Words, send: Send, entered: Entered) -> None:
    """Fill the rows of what is published next."""
    peers, peer, length = send.peers, send.peer, entered.length
    rows = block[BlockWord.ROWS]
    at = number % rows * SENT_WORDS
    table = carray(words_at(block[BlockWord.TABLE_AT]), (rows * SENT_WORDS,))
    table[at + SentWord.LENGTH], table[at + SentWord.WAITS] = length, waits
    table[at + SentWord.IN_SYNC_SLAVES], table[at + SentWord.BEGAN_NS] = entered.in_sync, send.now_ns
    table[at + SentWord.END_OFFSET], table[at + SentWord.BYTES] = 0, length
    state = carray(words_at(block[BlockWord.STATE_AT]), (STATE_WORDS,))
    state[StateWord.BYTES] += length
    at = number % rows * ASKED_WORDS
    asked = carray(words_at(block[BlockWord.ASKED_AT]), (rows * ASKED_WORDS,))
    asked[at + AskedWord.NUMBER], asked[at + AskedWord.OPAQUE] = number, header[HeaderWord.OPAQUE]
    asked[at + AskedWord.PEER], asked[at + AskedWord.PEER_NUMBER] = peer, peers[peer + PeerWord.NUMBER]
    asked[at + AskedWord.FORM] = entered.form if header[HeaderWord.FLAG] == 0 else AnswerForm.NONE
    asked[at + AskedWord.QUEUE_ID] = number_at(send.frame, header, Field.QUEUE_ID, 0)
    asked[at + AskedWord.BYTES], asked[at + AskedWord.RECORDS] = length, entered.records
    asked[at + AskedWord.UNIQUE_BYTES] = 0
    peers[peer + PeerWord.PUTS] += 1
    peers[peer + PeerWord.BYTES] += length
    block[BlockWord.UNDER_WAY] += 1
    block[BlockWord.BYTES_UNDER_WAY] += length


@kernel
def _keep_unique(block: Words, number: int, text: Bytes, at: int, count: int) -> None:
    """The message's unique key, of which 5.x makes the answer's transactionId."""
    rows = block[BlockWord.ROWS]
    asked = carray(words_at(block[BlockWord.ASKED_AT]), (rows * ASKED_WORDS,))
    asked[number % rows * ASKED_WORDS + AskedWord.UNIQUE_BYTES] = count
    keys = carray(bytes_at(block[BlockWord.UNIQUE_AT]), (rows * UNIQUE_KEY_BYTES,))
    copy_bytes(keys, number % rows * UNIQUE_KEY_BYTES, text, at, count)


@kernel
def enter(block: Words, said: Words, header: Words, send: Send, entered: Entered) -> None:
    """Describe what was written where `place_for` said, as the next in the ring."""
    local = carray(words_at(block[BlockWord.LOCAL_AT]), (LOCAL_WORDS,))
    words = carray(words_at(block[BlockWord.DESCRIPTORS_AT]), (block[BlockWord.DESCRIPTORS] * DESCRIPTOR_WORDS,))
    text = carray(bytes_at(block[BlockWord.TEXT_AT]), (TEXT_BYTES,))
    number, position, taken = local[LocalWord.TAIL], entered.position, entered.taken
    _note(block, number, said[SaidWord.WAITS], header, send, entered)
    _keep_unique(block, number, text, said[SaidWord.UNIQUE_AT], said[SaidWord.UNIQUE_BYTES])
    describe(words, number, position, taken, entered.slot)
    local[LocalWord.POSITION], local[LocalWord.TAIL] = position + taken, number + 1
