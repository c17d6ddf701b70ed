"""Fast sends from a receive buffer into the front's ring, compiled: one call for all whole frames that have come.

Implements: SendMessageRequestHeaderV2.decode, SendMessageProcessor.sendMessage, sendBatchMessage, MessageExtEncoder,
    MessageDecoder.string2messageProperties, messageProperties2String, HashMap (spec: remoting, 2 and 7; store-formats)
The file has, in this order: the header (codes 10, 310 and 320), the properties, what sends of one message and of
several share, batches, a record's way into the ring, the loop over frames. What comes out is byte for byte what
`store.put.request`, `store.put.draft`, `store.put.batch` and `engine.rings` make. A frame that leaves the fast path
is left where it is, and nothing is changed: Python takes it. Lengths are a client's word: each is compared with what is
there before a byte is read. Python calls `take_sends`, at the end of this file. Begin to read there.
"""

# mypy: disable-error-code="no-any-return,return-value"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.front.frames.header_kernel import (
    FIELD_WORDS,
    UNKNOWN,
    Fields,
    FormWord,
    HeaderWord,
    int_of,
    read_fields,
    spelled,
)
from engine.front.frames.send_words import (
    ASKED_WORDS,
    FIELDS,
    HEADER_WORDS,
    OWN_MAX,
    PEER_WORDS,
    PROPERTIES_MAX,
    PROPERTY_WORDS,
    RECORDS_MAX,
    RULES_WORDS,
    TOPIC_WORDS,
    UNIQUE_KEY_BYTES,
    AnswerForm,
    AskedWord,
    Field,
    PeerWord,
    PropertiesWord,
    PropertyWord,
    RulesWord,
    ScratchWord,
    SendBlock,
    SendFallback,
    TopicWord,
)
from engine.producer.pipeline_kernel import SENT_WORDS, StateWord, note_sent
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import FRAME_BYTES_MAX, LENGTH_BYTES, ONEWAY_FLAG, Serialize
from engine.protocol.sending.headers import NAMES
from engine.protocol.store.retention import DiskState
from engine.rings.encode_kernel import Span, Template, flip_magic, write_body
from engine.rings.payload import COMPOSED, HEAD_WORDS, PayloadFlag, PayloadWord
from engine.shared_memory.cursors import BrokerState
from ipc.arrays import Bytes, Words
from ipc.compiled.atomics import load_acquire, monotonic_ns, ring, store_release
from ipc.compiled.kernels import bare_kernel, inlined, kernel
from ipc.compiled.memory import (
    bytes_at,
    carray,
    copy_bytes,
    load_be16,
    load_be32,
    store_be16,
    store_be32,
    store_be64,
    words_at,
)
from ipc.compiled.texts import NO_NUMBER, is_text, same_bytes, seeded_hash, whole_number
from ipc.ring import DESCRIPTOR_WORDS, WORDS_PER_RING, ControlWord, LocalWord, describe, room_at
from store.message import hash_map
from store.message.hash_map import BUCKET_ENTRIES_MAX, TREE_CAPACITY_MIN
from store.message.properties import (
    CLUSTER,
    INNER_PREFIX,
    MAX_PROPERTIES_BYTES,
    MSG_REGION,
    NAME_SEPARATOR,
    PAIR_SEPARATOR,
    TRACE_ON,
    UNIQ_KEY,
    WAIT,
    java_hash,
)
from store.message.record import (
    BORN_HOST_AT,
    COMPRESSION_MASK,
    FAMILIES,
    FLAG_AT,
    MAX_RECORD_OVERHEAD_BYTES,
    QUEUE_ID_AT,
    SYS_FLAG_AT,
    SysFlag,
    store_host_at,
)
from store.put.batch import ITEM_HEAD
from store.put.request import POLICY_PROPERTIES

folded, outgrows = inlined(hash_map.folded), inlined(hash_map.outgrows)

# headers

SEND_MESSAGE, SEND_MESSAGE_V2 = int(RequestCode.SEND_MESSAGE), int(RequestCode.SEND_MESSAGE_V2)
SEND_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)
IGNORED_NAMES = ("bname", "oway")  # RpcRequestHeader's that a broker does not look at
LONG_BYTES, LONG_ENDS = spelled((*NAMES, *IGNORED_NAMES))  # in the order of Field
FORM = np.zeros(len(FormWord), np.int64)
FORM[FormWord.FIELDS] = FORM[FormWord.LETTERS] = FIELDS
FORM[FormWord.TEXT], FORM[FormWord.OTHERS] = Field.PROPERTIES, UNKNOWN


@bare_kernel
def read_header(data: Bytes, at: int, end: int, is_json: bool, header: Words, text: Bytes) -> int:
    """The header at data[at:end] into `header`, its properties into `text`; 0, or why it leaves the fast path."""
    if not read_fields(data, at, end, is_json, Fields(FORM, LONG_BYTES, LONG_ENDS), header, text):
        return SendFallback.HEADER
    code = header[HeaderWord.CODE]
    if code in (SEND_MESSAGE_V2, SEND_BATCH):
        return SendFallback.FIELDS if header[HeaderWord.LONG_NAMES] else 0
    if code == SEND_MESSAGE:
        return SendFallback.FIELDS if header[HeaderWord.LETTERS] else 0
    return SendFallback.CODE


# properties

NAME_END, PAIR_END = ord(NAME_SEPARATOR), ord(PAIR_SEPARATOR)
ENTRIES_MAX = PROPERTIES_MAX + OWN_MAX
INDEX_BITS = 8
INDEX_MASK = (1 << INDEX_BITS) - 1
# Names by hash: where another name has the same one, it leaves the fast path, too.
REFUSED_HASHES = np.array(
    [java_hash(name) for name in sorted((POLICY_PROPERTIES | {CLUSTER, MSG_REGION, TRACE_ON}) - {WAIT})], np.int64
)
PREFIX_BYTES = 3
INNER_START = tuple(INNER_PREFIX.encode()[:PREFIX_BYTES])
TIMER_START = tuple(b"TIM")
WAIT_NAME, UNIQUE_NAME = (np.frombuffer(name.encode(), np.uint8).copy() for name in (WAIT, UNIQ_KEY))
WAIT_HASH, UNIQUE_HASH = java_hash(WAIT), java_hash(UNIQ_KEY)
TRUE, FALSE = (np.frombuffer(text, np.uint8).copy() for text in (b"true", b"false"))


@bare_kernel
def is_utf8(data: Bytes, at: int, count: int) -> bool:
    """Whether these bytes are UTF-8 without surrogates, in its shortest form."""
    end = at + count
    while at < end:
        byte = np.int64(data[at])
        at += 1
        if byte < 0x80:
            continue
        if 0xC2 <= byte < 0xE0:
            more, low, high = 1, 0x80, 0xBF
        elif 0xE0 <= byte < 0xF0:
            more, low, high = 2, 0xA0 if byte == 0xE0 else 0x80, 0x9F if byte == 0xED else 0xBF
        elif 0xF0 <= byte < 0xF5:
            more, low, high = 3, 0x90 if byte == 0xF0 else 0x80, 0x8F if byte == 0xF4 else 0xBF
        else:
            return False
        if end - at < more or not low <= data[at] <= high:
            return False
        for k in range(1, more):
            if not 0x80 <= data[at + k] <= 0xBF:
                return False
        at += more
    return True


@bare_kernel
def _name_end(text: Bytes, at: int, end: int, entries: Words, entry: int) -> int:
    """Return where the name at `at` ends, and hash it into its entry; -1 for an invalid one."""
    value = np.int64(0)
    first = at
    while at < end:
        byte = np.int64(text[at])
        if byte == NAME_END:
            entries[entry + PropertyWord.AT], entries[entry + PropertyWord.NAME_BYTES] = first, at - first
            signed = (value & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
            entries[entry + PropertyWord.HASH] = signed
            return at if at > first else -1
        if byte == PAIR_END or byte >= 0x80:
            return -1
        value = value * 31 + byte & 0xFFFFFFFF
        at += 1
    return -1


@bare_kernel
def _is_refused(text: Bytes, entries: Words, entry: int) -> bool:
    """Whether a broker does more about such a property than to keep it."""
    value = entries[entry + PropertyWord.HASH]
    for k in range(REFUSED_HASHES.size):
        if REFUSED_HASHES[k] == value:
            return True
    if entries[entry + PropertyWord.NAME_BYTES] < PREFIX_BYTES:
        return False
    at = entries[entry + PropertyWord.AT]
    first, second, third = text[at], text[at + 1], text[at + 2]
    if first == INNER_START[0] and second == INNER_START[1] and third == INNER_START[2]:
        return True
    return first == TIMER_START[0] and second == TIMER_START[1] and third == TIMER_START[2]


@bare_kernel
def _is_repeated(entries: Words, entry: int) -> bool:
    """Whether an earlier name has this one's hash, as the same name would."""
    value = entries[entry + PropertyWord.HASH]
    for k in range(PropertyWord.HASH, entry, PROPERTY_WORDS):
        if entries[k] == value:
            return True
    return False


@bare_kernel
def _note(text: Bytes, entries: Words, number: int, properties: Words) -> bool:
    """Look at WAIT and UNIQ_KEY; False where they are not as clients write them."""
    entry = number * PROPERTY_WORDS
    at, name_bytes = entries[entry + PropertyWord.AT], entries[entry + PropertyWord.NAME_BYTES]
    value_at, value_bytes = at + name_bytes + 1, entries[entry + PropertyWord.BYTES] - name_bytes - 1
    value_hash = entries[entry + PropertyWord.HASH]
    if value_hash == WAIT_HASH and is_text(text, at, name_bytes, WAIT_NAME):
        properties[PropertiesWord.WAIT_INDEX] = number
        properties[PropertiesWord.WAITS] = is_text(text, value_at, value_bytes, TRUE)
        return properties[PropertiesWord.WAITS] != 0 or is_text(text, value_at, value_bytes, FALSE)
    if value_hash == UNIQUE_HASH and is_text(text, at, name_bytes, UNIQUE_NAME):
        properties[PropertiesWord.UNIQUE_AT], properties[PropertiesWord.UNIQUE_BYTES] = value_at, value_bytes
        if value_bytes > UNIQUE_KEY_BYTES:
            return False
        for k in range(value_at, value_at + value_bytes):
            if not 0x20 < text[k] < 0x7F or text[k] == ord('"') or text[k] == ord("\\"):
                return False
    return True


@bare_kernel
def read_properties(text: Bytes, count: int, entries: Words, properties: Words) -> bool:
    """Read the properties in text[:count] into `entries` and `properties`; False where they are not plain."""
    at, number, bits = np.int64(0), np.int64(0), np.int64(0)
    properties[PropertiesWord.WAIT_INDEX], properties[PropertiesWord.WAITS] = -1, 1
    properties[PropertiesWord.UNIQUE_AT] = properties[PropertiesWord.UNIQUE_BYTES] = 0
    while at < count:
        entry = number * PROPERTY_WORDS
        if number >= PROPERTIES_MAX:
            return False
        end = _name_end(text, at, count, entries, entry)
        if end < 0 or _is_refused(text, entries, entry) or _is_repeated(entries, entry):
            return False
        value_at = end + 1
        end = value_at
        while end < count and text[end] != PAIR_END:
            if text[end] == NAME_END:
                return False
            bits |= np.int64(text[end])
            end += 1
        if end == value_at:
            return False
        entries[entry + PropertyWord.BYTES] = end - at
        if not _note(text, entries, number, properties):
            return False
        number += 1
        at = end + 1
    properties[PropertiesWord.COUNT] = number
    return bits < 0x80 or is_utf8(text, 0, count)


@bare_kernel
def _may_be_tree(entries: Words, count: int, capacity: int) -> bool:
    """Whether so many may meet in a bucket that Java's map does not only append to it."""
    mask = min(capacity, TREE_CAPACITY_MIN) - 1
    for k in range(count):
        met, own = 0, folded(entries[k * PROPERTY_WORDS + PropertyWord.HASH]) & mask
        for other in range(count):
            met += folded(entries[other * PROPERTY_WORDS + PropertyWord.HASH]) & mask == own
        if met >= BUCKET_ENTRIES_MAX:
            return True
    return False


@bare_kernel
def order_properties(entries: Words, properties: Words, rules: Words, order: Words, keeps_wait: bool) -> bool:
    """The broker's own behind the client's, all in Java's order; False where it leaves the fast path."""
    count, capacity, bytes_of_all = properties[PropertiesWord.COUNT], rules[RulesWord.MAP_CAPACITY], np.int64(0)
    for k in range(rules[RulesWord.OWN_PROPERTIES] * PROPERTY_WORDS):
        entries[count * PROPERTY_WORDS + k] = rules[RulesWord.OWN_FIRST + k]
    count += rules[RulesWord.OWN_PROPERTIES]
    if count >= BUCKET_ENTRIES_MAX and _may_be_tree(entries, count, capacity):
        return False
    while outgrows(count, capacity):
        capacity *= 2
    without = properties[PropertiesWord.WAIT_INDEX] if rules[RulesWord.REMOVES_WAIT] and not keeps_wait else -1
    listed = np.int64(0)
    for number in range(count):
        if number == without:
            continue
        entry = number * PROPERTY_WORDS
        bytes_of_all += entries[entry + PropertyWord.BYTES] + 1
        key = (folded(entries[entry + PropertyWord.HASH]) & (capacity - 1)) << INDEX_BITS | number
        at = listed
        while at > 0 and order[at - 1] > key:
            order[at] = order[at - 1]
            at -= 1
        order[at] = key
        listed += 1
    properties[PropertiesWord.OUT_BYTES] = bytes_of_all if rules[RulesWord.TRAILING] else bytes_of_all - 1
    order[listed] = -1
    return True


@bare_kernel
def write_properties(
    data: Bytes, at: int, text: Bytes, own_text: Bytes, entries: Words, properties: Words, rules: Words, order: Words
) -> None:
    """The property string of properties[PropertiesWord.OUT_BYTES] bytes to data[at:]."""
    end, k = at + properties[PropertiesWord.OUT_BYTES], 0
    while order[k] >= 0:
        number = order[k] & INDEX_MASK
        entry = number * PROPERTY_WORDS
        source, count = entries[entry + PropertyWord.AT], entries[entry + PropertyWord.BYTES]
        if number < properties[PropertiesWord.COUNT]:
            copy_bytes(data, at, text, source, count)
        else:
            copy_bytes(data, at, own_text, source, count)
        at += count
        if at < end:
            data[at] = PAIR_END
            at += 1
        k += 1


# parts that sends of one message and of several share

LOCAL_WORDS, STATE_WORDS = len(LocalWord), len(StateWord)
TEXT_BYTES = 32 * 1024
PROPERTIES_AT, ENTRIES_AT, ORDER_AT, SCRATCH_WORDS = (
    int(word) for word in (ScratchWord.PROPERTIES, ScratchWord.ENTRIES, ScratchWord.ORDER, ScratchWord.END)
)
FAST_FLAGS = int(SysFlag.COMPRESSED) | COMPRESSION_MASK
BODY_AT = FAMILIES[0].body_at  # with IPv4 hosts
RECONSUME_AT = store_host_at(0) + 8
REQUIRED_FIELDS = Field.FLAG + 1
LONG_DIGITS = 18


class Send(NamedTuple):
    """A send that is fast so far: its frame, whose body is frame[body:end], and the row of its connection."""

    frame: Bytes
    body: int
    end: int
    is_json: bool
    template: Template  # an empty record
    peers: Words
    peer_row: int
    now_ns: int


class RecordBody(NamedTuple):
    """What a record does not share with others of its frame: frame[body:body + body_bytes] is its body."""

    length: int
    flag: int
    body: int
    body_bytes: int


class RingEntry(NamedTuple):
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
    rows = block[SendBlock.TOPICS]
    topics = carray(words_at(block[SendBlock.TOPICS_AT]), (rows * TOPIC_WORDS,))
    names = carray(bytes_at(block[SendBlock.NAMES_AT]), (block[SendBlock.NAMES_BYTES],))
    row = seeded_hash(data, at, count, block[SendBlock.SEED]) & (rows - 1)
    for _ in range(rows):
        begin = row * TOPIC_WORDS
        if topics[begin + TopicWord.NAME_BYTES] == 0:
            return -1
        is_as_long = topics[begin + TopicWord.NAME_BYTES] == count
        if is_as_long and same_bytes(names, topics[begin + TopicWord.NAME_AT], data, at, count):
            return begin
        row = row + 1 & rows - 1
    return -1


@bare_kernel
def number_at(data: Bytes, header: Words, field: int, missing: int) -> int:
    """Return a field's number; `missing` without the field, NO_NUMBER where it is invalid."""
    place = HeaderWord.FIELDS + field * FIELD_WORDS
    return int_of(data, header[place], header[place + 1]) if header[place + 1] >= 0 else missing


@bare_kernel
def _is_bool_or_missing(data: Bytes, header: Words, field: int, only_false: bool) -> bool:
    """Whether the field is missing, or says false, or may be true and says that."""
    place = HeaderWord.FIELDS + field * FIELD_WORDS
    at, count = header[place], header[place + 1]
    return count < 0 or is_text(data, at, count, FALSE) or (not only_false and is_text(data, at, count, TRUE))


@bare_kernel
def _is_true(data: Bytes, header: Words, field: int) -> bool:
    place = HeaderWord.FIELDS + field * FIELD_WORDS
    return header[place + 1] >= 0 and is_text(data, header[place], header[place + 1], TRUE)


@bare_kernel
def look_at_fields(data: Bytes, header: Words, is_batch: bool) -> int:
    """0, or why the fields of the header leave the fast path, but for topic and queue."""
    for field in range(REQUIRED_FIELDS):
        if header[HeaderWord.FIELDS + field * FIELD_WORDS + 1] <= 0:
            return SendFallback.FIELDS
    if header[HeaderWord.FLAG] != 0 and header[HeaderWord.FLAG] != ONEWAY_FLAG:
        return SendFallback.HEADER
    flags = number_at(data, header, Field.SYS_FLAG, 0)
    if flags < 0 or flags & ~FAST_FLAGS != 0:
        return SendFallback.FIELDS
    times = number_at(data, header, Field.RECONSUME_TIMES, 0)
    most = number_at(data, header, Field.MAX_RECONSUME_TIMES, 0)
    if times < 0 or most == NO_NUMBER or number_at(data, header, Field.DEFAULT_QUEUES, 0) == NO_NUMBER:
        return SendFallback.FIELDS
    if number_at(data, header, Field.FLAG, 0) == NO_NUMBER:
        return SendFallback.FIELDS
    if not _is_bool_or_missing(data, header, Field.UNIT_MODE, False) or _is_true(data, header, Field.BATCH) != is_batch:
        return SendFallback.FIELDS
    return 0 if is_batch or _is_bool_or_missing(data, header, Field.BATCH, True) else SendFallback.FIELDS


@kernel
def slot_of(block: Words, data: Bytes, header: Words) -> int:
    """The slot of the queue that a header names, or why it leaves the fast path."""
    place = HeaderWord.FIELDS + Field.TOPIC * FIELD_WORDS
    row = _row_of_topic(block, data, header[place], header[place + 1])
    if row < 0:
        return SendFallback.TOPIC
    topics = carray(words_at(block[SendBlock.TOPICS_AT]), (block[SendBlock.TOPICS] * TOPIC_WORDS,))
    queue_id = number_at(data, header, Field.QUEUE_ID, -1)
    if not 0 <= queue_id < topics[row + TopicWord.QUEUES]:
        return SendFallback.QUEUE
    slots = carray(words_at(block[SendBlock.SLOTS_AT]), (block[SendBlock.SLOTS],))
    slot = slots[topics[row + TopicWord.SLOTS_AT] + queue_id]
    return slot if slot >= 0 else SendFallback.QUEUE


@bare_kernel
def has_room(block: Words, state: Words, local: Words, peers: Words, peer_row: int, count: int) -> bool:
    """Whether one more may be under way: in all, for its connection, and for the places of those that are."""
    tail = local[LocalWord.TAIL]
    under_way = tail - state[StateWord.ANSWERED]
    if under_way >= block[SendBlock.PUTS_MAX] or under_way >= block[SendBlock.ROWS]:
        return False
    if tail - state[StateWord.KEPT] >= block[SendBlock.DESCRIPTORS]:
        return False
    if peers[peer_row + PeerWord.PUTS] >= block[SendBlock.PEER_PUTS_MAX]:
        return False
    if peers[peer_row + PeerWord.BYTES] + count > block[SendBlock.PEER_BYTES_MAX]:
        return False
    return state[StateWord.BYTES] + count <= block[SendBlock.BYTES_MAX]


@kernel
def place_for(block: Words, peers: Words, peer_row: int, waits: int, in_sync: int, length: int, taken: int) -> int:
    """Return where in the ring so many bytes go, which make `length` in the log; or why they leave the fast path."""
    if waits and in_sync < block[SendBlock.IN_SYNC_MIN]:
        return SendFallback.NOT_ACCEPTING
    state = carray(words_at(block[SendBlock.STATE_AT]), (STATE_WORDS,))
    local = carray(words_at(block[SendBlock.LOCAL_AT]), (LOCAL_WORDS,))
    if not has_room(block, state, local, peers, peer_row, length):
        return SendFallback.ROOM
    control = carray(words_at(block[SendBlock.CONTROL_AT]), (WORDS_PER_RING,))
    words = carray(words_at(block[SendBlock.DESCRIPTORS_AT]), (block[SendBlock.DESCRIPTORS] * DESCRIPTOR_WORDS,))
    size = block[SendBlock.DATA_BYTES]
    position = room_at(control, words, size, local[LocalWord.TAIL], local[LocalWord.POSITION], taken)
    return position if position >= 0 else SendFallback.ROOM


@bare_kernel
def write_record(data: Bytes, at: int, record: RecordBody, send: Send, header: Words) -> int:
    """Write all of a record to data[at:] except its properties; return where these go."""
    frame, peers, peer_row = send.frame, send.peers, send.peer_row
    born = HeaderWord.FIELDS + Field.BORN_MS * FIELD_WORDS
    born_ms = whole_number(frame, header[born], header[born + 1], LONG_DIGITS)
    after = write_body(data, at, record.length, send.template, Span(frame, record.body, record.body_bytes), born_ms)
    store_be32(data, at + QUEUE_ID_AT, number_at(frame, header, Field.QUEUE_ID, 0))
    store_be32(data, at + FLAG_AT, record.flag)
    store_be32(data, at + SYS_FLAG_AT, number_at(frame, header, Field.SYS_FLAG, 0))
    store_be32(data, at + BORN_HOST_AT, peers[peer_row + PeerWord.ADDRESS])
    store_be32(data, at + BORN_HOST_AT + 4, peers[peer_row + PeerWord.PORT])
    store_be32(data, at + RECONSUME_AT, number_at(frame, header, Field.RECONSUME_TIMES, 0))
    topic = HeaderWord.FIELDS + Field.TOPIC * FIELD_WORDS
    data[after] = header[topic + 1]
    copy_bytes(data, after + 1, frame, header[topic], header[topic + 1])
    return after + 1 + header[topic + 1]


@kernel
def _note_put(block: Words, number: int, waits: int, header: Words, send: Send, entry: RingEntry) -> None:
    """Fill the rows of what is published next."""
    peers, peer_row, length = send.peers, send.peer_row, entry.length
    rows = block[SendBlock.ROWS]
    table = carray(words_at(block[SendBlock.TABLE_AT]), (rows * SENT_WORDS,))
    state = carray(words_at(block[SendBlock.STATE_AT]), (STATE_WORDS,))
    note_sent(table, state, number, length, waits, entry.in_sync, send.now_ns)
    at = number % rows * ASKED_WORDS
    asked = carray(words_at(block[SendBlock.ASKED_AT]), (rows * ASKED_WORDS,))
    asked[at + AskedWord.NUMBER], asked[at + AskedWord.OPAQUE] = number, header[HeaderWord.OPAQUE]
    asked[at + AskedWord.PEER], asked[at + AskedWord.PEER_NUMBER] = peer_row, peers[peer_row + PeerWord.NUMBER]
    asked[at + AskedWord.FORM] = entry.form if header[HeaderWord.FLAG] == 0 else AnswerForm.NONE
    asked[at + AskedWord.QUEUE_ID] = number_at(send.frame, header, Field.QUEUE_ID, 0)
    asked[at + AskedWord.BYTES], asked[at + AskedWord.RECORDS] = length, entry.records
    asked[at + AskedWord.UNIQUE_BYTES] = 0
    peers[peer_row + PeerWord.PUTS] += 1
    peers[peer_row + PeerWord.BYTES] += length
    block[SendBlock.UNDER_WAY] += 1
    block[SendBlock.BYTES_UNDER_WAY] += length


@kernel
def _keep_unique(block: Words, number: int, text: Bytes, at: int, count: int) -> None:
    """The message's unique key, of which 5.x makes the answer's transactionId."""
    rows = block[SendBlock.ROWS]
    asked = carray(words_at(block[SendBlock.ASKED_AT]), (rows * ASKED_WORDS,))
    asked[number % rows * ASKED_WORDS + AskedWord.UNIQUE_BYTES] = count
    keys = carray(bytes_at(block[SendBlock.UNIQUE_AT]), (rows * UNIQUE_KEY_BYTES,))
    copy_bytes(keys, number % rows * UNIQUE_KEY_BYTES, text, at, count)


@kernel
def add_to_ring(block: Words, properties: Words, header: Words, send: Send, entry: RingEntry) -> None:
    """Describe what was written where `place_for` said, as the next in the ring."""
    local = carray(words_at(block[SendBlock.LOCAL_AT]), (LOCAL_WORDS,))
    words = carray(words_at(block[SendBlock.DESCRIPTORS_AT]), (block[SendBlock.DESCRIPTORS] * DESCRIPTOR_WORDS,))
    text = carray(bytes_at(block[SendBlock.TEXT_AT]), (TEXT_BYTES,))
    number, position, taken = local[LocalWord.TAIL], entry.position, entry.taken
    _note_put(block, number, properties[PropertiesWord.WAITS], header, send, entry)
    _keep_unique(block, number, text, properties[PropertiesWord.UNIQUE_AT], properties[PropertiesWord.UNIQUE_BYTES])
    describe(words, number, position, taken, entry.slot)
    local[LocalWord.POSITION], local[LocalWord.TAIL] = position + taken, number + 1


# batches

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
    """Count the messages in frame[at:end], and note their records' lengths from lengths[first] on; -1: not fast."""
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
    scratch = carray(words_at(block[SendBlock.SCRATCH_AT]), (SCRATCH_WORDS,))
    header, properties = scratch[:HEADER_WORDS], scratch[PROPERTIES_AT:ENTRIES_AT]
    rules = carray(words_at(block[SendBlock.RULES_AT]), (RULES_WORDS,))
    text = carray(bytes_at(block[SendBlock.TEXT_AT]), (TEXT_BYTES,))
    own_text = carray(bytes_at(block[SendBlock.OWN_TEXT_AT]), (block[SendBlock.OWN_TEXT_BYTES],))
    shared, shared_at = properties[PropertiesWord.OUT_BYTES], np.int64(-1)
    while at < end:
        flag, body_bytes = load_be32(frame, at + ITEM_FLAG_AT), load_be32(frame, at + ITEM_BODY_AT)
        at += ITEM_HEAD_BYTES
        length = lengths[first]
        after = write_record(data, to, RecordBody(length, flag, at, body_bytes), send, header)
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
            write_properties(data, after, text, own_text, entries, properties, rules, order)
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
    """The messages in a frame's body into the ring; 0, or why they leave the fast path."""
    body, end, peers, peer_row = send.body, send.end, send.peers, send.peer_row
    scratch = carray(words_at(block[SendBlock.SCRATCH_AT]), (SCRATCH_WORDS,))
    header, properties = scratch[:HEADER_WORDS], scratch[PROPERTIES_AT:ENTRIES_AT]
    rules = carray(words_at(block[SendBlock.RULES_AT]), (RULES_WORDS,))
    local = carray(words_at(block[SendBlock.LOCAL_AT]), (LOCAL_WORDS,))
    lengths = carray(words_at(block[SendBlock.LENGTHS_AT]), (block[SendBlock.ROWS] * RECORDS_MAX,))
    number, shared, most = local[LocalWord.TAIL], properties[PropertiesWord.OUT_BYTES], rules[RulesWord.BODY_BYTES_MAX]
    if end - body > most or shared > MAX_PROPERTIES_BYTES:
        return SendFallback.SIZE
    state = carray(words_at(block[SendBlock.STATE_AT]), (STATE_WORDS,))
    if not has_room(block, state, local, peers, peer_row, end - body):  # the row of `number` may be another's still
        return SendFallback.ROOM
    first = number % block[SendBlock.ROWS] * RECORDS_MAX
    fixed = BODY_AT + 1 + header[HeaderWord.FIELDS + Field.TOPIC * FIELD_WORDS + 1] + 2
    records, length = _measure(send.frame, body, end, lengths, first, fixed, shared), np.int64(0)
    for k in range(records):
        length += lengths[first + k]
    if records < 2 or length + PAYLOAD_HEAD_BYTES > block[SendBlock.RECORD_BYTES_MAX]:
        return SendFallback.SIZE
    counters = carray(words_at(block[SendBlock.COUNTERS_AT]), (block[SendBlock.COUNTERS],))
    in_sync = load_acquire(counters, block[SendBlock.IN_SYNC_SLAVES])
    taken = PAYLOAD_HEAD_BYTES + length
    position = place_for(block, peers, peer_row, properties[PropertiesWord.WAITS], in_sync, length, taken)
    if position < 0:
        return position
    data = carray(bytes_at(block[SendBlock.DATA_AT]), (block[SendBlock.DATA_BYTES],))
    to = position % data.size
    _write_head(data, to, records, length, most + MAX_RECORD_OVERHEAD_BYTES)
    _write_records(block, data, to + PAYLOAD_HEAD_BYTES, send, lengths, first)
    form = AnswerForm.JSON if send.is_json else AnswerForm.ROCKETMQ
    if properties[PropertiesWord.UNIQUE_BYTES] == 0:
        form = AnswerForm.KEYLESS_JSON if send.is_json else AnswerForm.KEYLESS_ROCKETMQ
    entry = RingEntry(in_sync, form, records, int(length), position, int(taken), slot | COMPOSED)
    add_to_ring(block, properties, header, send, entry)
    return 0


# frames

HEADER_MASK = 0xFFFFFF


@kernel
def _properties(block: Words, header: Words, scratch: Words, text: Bytes, is_batch: bool) -> bool:
    """Read the properties into the scratch; False where they leave the fast path."""
    rules = carray(words_at(block[SendBlock.RULES_AT]), (RULES_WORDS,))
    entries, properties = scratch[ENTRIES_AT:ORDER_AT], scratch[PROPERTIES_AT:ENTRIES_AT]
    count = header[HeaderWord.TEXT_BYTES]
    if not read_properties(text, count, entries, properties):
        return False
    if rules[RulesWord.NEEDS_UNIQUE_KEY] and properties[PropertiesWord.UNIQUE_BYTES] == 0 and not is_batch:
        return False
    return order_properties(entries, properties, rules, scratch[ORDER_AT:], is_batch)


@kernel
def _put(block: Words, frame: Bytes, at: int, end: int, peers: Words, peer_row: int, now_ns: int) -> int:
    """The frame at frame[at:end], without its length, into the ring; 0, or why it leaves the fast path."""
    word = load_be32(frame, at)
    kind, header_at = word >> 24, at + LENGTH_BYTES
    body = header_at + (word & HEADER_MASK)
    if (kind != Serialize.JSON and kind != Serialize.ROCKETMQ) or body > end:
        return SendFallback.HEADER
    scratch = carray(words_at(block[SendBlock.SCRATCH_AT]), (SCRATCH_WORDS,))
    text = carray(bytes_at(block[SendBlock.TEXT_AT]), (TEXT_BYTES,))
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
        return SendFallback.FIELDS
    slot = slot_of(block, frame, header)
    if slot < 0:
        return slot
    if not _properties(block, header, scratch, text, is_batch):
        return SendFallback.PROPERTIES
    template = Template(carray(bytes_at(block[SendBlock.TEMPLATE_AT]), (BODY_AT,)), BODY_AT, 0)
    send = Send(frame, body, end, kind == Serialize.JSON, template, peers, peer_row, now_ns)
    return put_batch(block, send, slot) if is_batch else put_single(block, send, slot)


@kernel
def put_single(block: Words, send: Send, slot: int) -> int:
    """Write a checked send into the ring; it is the writer's once the tail has passed it."""
    scratch = carray(words_at(block[SendBlock.SCRATCH_AT]), (SCRATCH_WORDS,))
    header, properties = scratch[:HEADER_WORDS], scratch[PROPERTIES_AT:ENTRIES_AT]
    rules = carray(words_at(block[SendBlock.RULES_AT]), (RULES_WORDS,))
    topic_bytes = header[HeaderWord.FIELDS + Field.TOPIC * FIELD_WORDS + 1]
    body_bytes = send.end - send.body
    length = BODY_AT + body_bytes + 1 + topic_bytes + 2 + properties[PropertiesWord.OUT_BYTES]
    if not 0 < body_bytes <= rules[RulesWord.BODY_BYTES_MAX] or properties[PropertiesWord.OUT_BYTES] >= TEXT_BYTES:
        return SendFallback.SIZE
    if length > block[SendBlock.RECORD_BYTES_MAX]:
        return SendFallback.SIZE
    counters = carray(words_at(block[SendBlock.COUNTERS_AT]), (block[SendBlock.COUNTERS],))
    in_sync = load_acquire(counters, block[SendBlock.IN_SYNC_SLAVES])
    position = place_for(block, send.peers, send.peer_row, properties[PropertiesWord.WAITS], in_sync, length, length)
    if position < 0:
        return position
    data = carray(bytes_at(block[SendBlock.DATA_AT]), (block[SendBlock.DATA_BYTES],))
    to = position % data.size
    record = RecordBody(length, number_at(send.frame, header, Field.FLAG, 0), send.body, body_bytes)
    after = write_record(data, to, record, send, header)
    flip_magic(data, to)
    store_be16(data, after, properties[PropertiesWord.OUT_BYTES])
    text = carray(bytes_at(block[SendBlock.TEXT_AT]), (TEXT_BYTES,))
    own_text = carray(bytes_at(block[SendBlock.OWN_TEXT_AT]), (block[SendBlock.OWN_TEXT_BYTES],))
    entries, order = scratch[ENTRIES_AT:ORDER_AT], scratch[ORDER_AT:]
    write_properties(data, after + 2, text, own_text, entries, properties, rules, order)
    form = AnswerForm.JSON if send.is_json else AnswerForm.ROCKETMQ
    add_to_ring(block, properties, header, send, RingEntry(in_sync, form, 1, length, position, length, slot))
    return 0


@kernel
def take_sends(block: Words, at: int, end: int, peer_slot: int) -> int:
    """Put the fast sends among the frames in the receive buffer from `at` to `end`, up to the first frame that is not
    fast or not whole: where it begins. block[REASON] says why, block[TAKEN] how many were put.
    """
    block[SendBlock.TAKEN], block[SendBlock.REASON] = 0, 0
    frame = carray(bytes_at(block[SendBlock.BUFFER_AT]), (block[SendBlock.BUFFER_BYTES],))
    counters = carray(words_at(block[SendBlock.COUNTERS_AT]), (block[SendBlock.COUNTERS],))
    peers = carray(words_at(block[SendBlock.PEERS_AT]), (block[SendBlock.PEERS] * PEER_WORDS,))
    if not 0 <= at <= end <= frame.size or not 0 <= peer_slot < block[SendBlock.PEERS]:
        block[SendBlock.REASON] = SendFallback.NOT_ACCEPTING
        return at
    is_open = block[SendBlock.IS_OPEN] != 0
    is_open &= counters[block[SendBlock.BROKER_STATE]] == BrokerState.RUNNING
    is_open &= counters[block[SendBlock.DISK_STATE]] < DiskState.READ_ONLY
    local = carray(words_at(block[SendBlock.LOCAL_AT]), (LOCAL_WORDS,))
    peer_row, now_ns, taken, position = peer_slot * PEER_WORDS, monotonic_ns(), 0, local[LocalWord.POSITION]
    is_open &= peers[peer_row + PeerWord.IS_FAST] != 0
    while end - at >= 2 * LENGTH_BYTES:
        length = load_be32(frame, at)
        if not LENGTH_BYTES <= length <= FRAME_BYTES_MAX:
            block[SendBlock.REASON] = SendFallback.HEADER
            break
        if length > end - at - LENGTH_BYTES:
            break
        reason = np.int64(SendFallback.NOT_ACCEPTING)
        if is_open:
            reason = _put(block, frame, at + LENGTH_BYTES, at + LENGTH_BYTES + length, peers, peer_row, now_ns)
        if reason != 0:
            block[SendBlock.REASON] = reason
            break
        taken += 1
        at += LENGTH_BYTES + length
    if taken:
        control = carray(words_at(block[SendBlock.CONTROL_AT]), (WORDS_PER_RING,))
        # One store for all frames, after their records, descriptors and rows: what the tail has passed is the writer's.
        store_release(control, ControlWord.TAIL, local[LocalWord.TAIL])
        block[SendBlock.UNRUNG] += local[LocalWord.POSITION] - position
        if block[SendBlock.UNRUNG] >= block[SendBlock.RINGS_FROM]:
            ring(counters, block[SendBlock.BELL])
            block[SendBlock.UNRUNG] = 0
        block[SendBlock.TAKEN] = taken
    return at
