"""The compiled check of an index file's entries against the records and against their own chains.

Implements: IndexFile.putKey, IndexService.buildIndex, read backwards (spec: store-formats, section 13)
Entries lie in the log's order, so records are walked beside them: an entry must be one of its record's keys, and a
record that is passed must have none. `check_entries` works inside one segment, and stops where an entry is of another.
"""

# mypy: disable-error-code="no-any-return,return-value"

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ipc.arrays import Bytes, Words
from ipc.compiled.kernels import bare_kernel, inlined
from ipc.compiled.memory import load_be32, load_be64
from ipc.compiled.texts import begins_with, find_byte
from store.index import index_file
from store.message import properties
from store.message.record import TRANSACTION_MASK, SysFlag
from store.verify import check_kernel as record
from store.verify.check_words import CheckStop, Part


class IndexWord(IntEnum):
    """Words of the state: the next entry; the log's place behind the last entry's record, -1 when that is not known;
    that record's offset, how many keys it has, and how many entries for it were seen.

    Then what is wrong, each with its count and where it is first: chains, entries without a record, without that key,
    with another time; records without an entry.
    """

    NUMBER, CURSOR, LAST_OFFSET, LAST_KEYS, LAST_SEEN = range(5)
    CHAIN, CHAIN_AT, NO_RECORD, NO_RECORD_AT, KEY, KEY_AT, TIME, TIME_AT, LEFT_OUT, LEFT_OUT_AT = range(5, 15)


class CheckedFile(NamedTuple):
    """An index file whose entries below `end` are checked."""

    file: Bytes
    slots: int
    end: int
    begin_ms: int  # the time of the first entry, as its header says
    heads: npt.NDArray[np.int32]  # by slot: the newest entry that was checked


class CheckedLog(NamedTuple):
    """The open segment, of whose bytes those below `limit` count, and the log offsets where records may lie."""

    array: Bytes
    base_offset: int
    limit: int
    min_offset: int
    end_offset: int


class Work(NamedTuple):
    """The parts of a record, the hashes of its keys, and what was found."""

    parts: Words
    hashes: Words
    state: Words  # IndexWord


class IndexStop(IntEnum):
    """Reasons why the check stopped."""

    ALL_DONE, ELSEWHERE, TEXT = 0, 1, 2


ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES = index_file.ENTRY_BYTES, index_file.HEADER_BYTES, index_file.SLOT_BYTES
INT_MAX = index_file.INT_MAX
positive_hash = inlined(index_file.positive_hash)
_fields = index_file.ENTRY_DTYPE.fields
assert _fields is not None
OFFSET_AT, SECONDS_AT, PREVIOUS_AT = (int(_fields[name][1]) for name in ("physical_offset", "time_diff_s", "previous"))
KEYS_NAME = np.frombuffer(properties.KEYS.encode() + b"\x01", np.uint8)
UNIQ_NAME = np.frombuffer(properties.UNIQ_KEY.encode() + b"\x01", np.uint8)
TAGS_NAME = np.frombuffer(properties.TAGS.encode() + b"\x01", np.uint8)
TAG_TYPE = np.frombuffer(properties.TAG_TYPE.encode() + b"#", np.uint8)
NO_TAG, TAG_IN_TEXT = -1, -2  # none, and one that is not ASCII
KEY_SEPARATOR, PAIR_SEPARATOR, HASH_SIGN = ord(" "), ord(properties.PAIR_SEPARATOR), ord("#")
ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)
KEYS_MAX = 32768  # more parts than properties can have


@bare_kernel
def key_hashes(array: Bytes, parts: Words, hashes: Words) -> int:
    """The hashes of the record's keys in the order that they are put; how many, -1 when not all is ASCII."""
    if parts[Part.SYS_FLAG] & TRANSACTION_MASK == ROLLBACK:
        return 0
    unique_at, unique_end, keys_at, keys_end = 0, 0, 0, 0
    at, end = parts[Part.PROPERTIES_AT], parts[Part.PROPERTIES_AT] + parts[Part.PROPERTIES_BYTES]
    while at < end:
        stop = find_byte(array, at, end, PAIR_SEPARATOR)
        if begins_with(array, at, stop - 1, UNIQ_NAME):
            unique_at, unique_end = at + len(UNIQ_NAME), stop
        elif begins_with(array, at, stop - 1, KEYS_NAME):
            keys_at, keys_end = at + len(KEYS_NAME), stop
        at = stop + 1
    if unique_end == 0 and keys_end == 0:
        return 0
    topic_at = parts[Part.TOPIC_AT]
    before, plain = record.ascii_hash(0, array, topic_at, topic_at + parts[Part.TOPIC_BYTES])
    before = np.int64(np.int32(np.uint32(before) * np.uint32(31) + np.uint32(HASH_SIGN)))
    count = 0
    if unique_end > unique_at:
        code, ascii_only = record.ascii_hash(before, array, unique_at, unique_end)
        hashes[0], count, plain = positive_hash(code), 1, plain and ascii_only
    while keys_at < keys_end:
        stop = find_byte(array, keys_at, keys_end, KEY_SEPARATOR)
        if stop > keys_at:
            code, ascii_only = record.ascii_hash(before, array, keys_at, stop)
            hashes[count], plain = positive_hash(code), plain and ascii_only
            count += 1
        keys_at = stop + 1
    return count if plain else -1


@bare_kernel
def tag_hash(array: Bytes, parts: Words) -> int:
    """The hash under which RocketMQ 5.4 and later also put the record's tag; NO_TAG, TAG_IN_TEXT."""
    at, end = parts[Part.PROPERTIES_AT], parts[Part.PROPERTIES_AT] + parts[Part.PROPERTIES_BYTES]
    tag_at, tag_end = at, at
    while at < end:
        stop = find_byte(array, at, end, PAIR_SEPARATOR)
        if begins_with(array, at, stop - 1, TAGS_NAME):
            tag_at, tag_end = at + len(TAGS_NAME), stop
        at = stop + 1
    if tag_end == tag_at:
        return NO_TAG
    topic_at = parts[Part.TOPIC_AT]
    code, _plain = record.ascii_hash(0, array, topic_at, topic_at + parts[Part.TOPIC_BYTES])
    code = np.int64(np.int32(np.uint32(code) * np.uint32(31) + np.uint32(HASH_SIGN)))
    code, _plain = record.ascii_hash(code, TAG_TYPE, 0, len(TAG_TYPE))
    code, is_ascii = record.ascii_hash(code, array, tag_at, tag_end)
    if not is_ascii:
        return TAG_IN_TEXT
    return positive_hash(code)


@bare_kernel
def note(state: Words, what: int, count: int, where: int) -> None:
    """Count something that is wrong, and where it was first."""
    if count <= 0:
        return
    if state[what] == 0:
        state[what + 1] = where
    state[what] += count


@bare_kernel
def end_of_record(state: Words) -> None:
    """The last entry's record is passed: had it all of its entries?"""
    if state[IndexWord.LAST_OFFSET] >= 0:
        unseen = state[IndexWord.LAST_KEYS] - state[IndexWord.LAST_SEEN]
        note(state, IndexWord.LEFT_OUT, unseen, state[IndexWord.LAST_OFFSET])
    state[IndexWord.LAST_OFFSET], state[IndexWord.LAST_KEYS], state[IndexWord.LAST_SEEN] = -1, 0, 0


@bare_kernel
def _pass_records(log: CheckedLog, position: int, work: Work) -> None:
    """Records between the last entry's and the one at `position`: none of them may have keys."""
    state, at = work.state, work.state[IndexWord.CURSOR] - log.base_offset
    if state[IndexWord.CURSOR] < 0 or at < 0:
        return
    while at < position and record.shape(log.array, at, log.limit, log.base_offset, work.parts) == CheckStop.SOUND:
        note(state, IndexWord.LEFT_OUT, key_hashes(log.array, work.parts, work.hashes), log.base_offset + at)
        at += work.parts[Part.SIZE]


@bare_kernel
def _chain(index: CheckedFile, at: int, number: int, state: Words) -> None:
    """An entry names the one before it of its slot."""
    key_hash = load_be32(index.file, at)
    if key_hash < 0:
        note(state, IndexWord.CHAIN, 1, number)
        return
    slot = key_hash % index.slots
    if load_be32(index.file, at + PREVIOUS_AT) != index.heads[slot]:
        note(state, IndexWord.CHAIN, 1, number)
    index.heads[slot] = number


@bare_kernel
def check_entries(index: CheckedFile, log: CheckedLog, work: Work) -> IndexStop:
    """Check the entries from state[NUMBER] on, as long as their records lie in this segment; why it stopped.

    Entries of records below `min_offset` are only checked for their chains: the records are gone.
    """
    file, begin_ms, array, base_offset, end_offset = (
        index.file,
        index.begin_ms,
        log.array,
        log.base_offset,
        log.end_offset,
    )
    parts, hashes, state = work.parts, work.hashes, work.state
    while state[IndexWord.NUMBER] < index.end:
        number = state[IndexWord.NUMBER]
        at = HEADER_BYTES + index.slots * SLOT_BYTES + number * ENTRY_BYTES
        offset = load_be64(file, at + OFFSET_AT)
        position = offset - base_offset
        if log.min_offset <= offset < end_offset and (position < 0 or position >= len(array)):
            return IndexStop.ELSEWHERE
        if offset != state[IndexWord.LAST_OFFSET]:
            end_of_record(state)
        _chain(index, at, number, state)
        state[IndexWord.NUMBER] = number + 1
        if offset < 0 or offset >= end_offset:
            note(state, IndexWord.NO_RECORD, 1, number)
            continue
        if offset < log.min_offset:
            continue
        if offset != state[IndexWord.LAST_OFFSET]:
            _pass_records(log, position, work)
        if record.shape(array, position, log.limit, base_offset, parts) != CheckStop.SOUND:
            note(state, IndexWord.NO_RECORD, 1, number)
            state[IndexWord.CURSOR] = -1
            continue
        keys = key_hashes(array, parts, hashes)
        if offset != state[IndexWord.LAST_OFFSET]:
            state[IndexWord.LAST_OFFSET], state[IndexWord.LAST_KEYS], state[IndexWord.LAST_SEEN] = offset, keys, 0
        state[IndexWord.CURSOR] = offset + parts[Part.SIZE]
        seconds = load_be32(file, at + SECONDS_AT)
        wanted = max(0, min((parts[Part.STORED] - begin_ms) // 1000, INT_MAX)) if begin_ms > 0 else 0
        if number > 1 and seconds != wanted:
            note(state, IndexWord.TIME, 1, number)
        if keys < 0:
            return IndexStop.TEXT
        is_known = False
        for i in range(keys):
            is_known |= hashes[i] == load_be32(file, at)
        tag = NO_TAG if is_known else tag_hash(array, parts)
        if tag == TAG_IN_TEXT:
            return IndexStop.TEXT
        is_tag = tag != NO_TAG and load_be32(file, at) == tag
        state[IndexWord.LAST_SEEN] += not is_tag
        note(state, IndexWord.KEY, 0 if is_known or is_tag else 1, number)
    return IndexStop.ALL_DONE


@bare_kernel
def wrong_slots(index: Bytes, slots: int, count: int, heads: npt.NDArray[np.int32], live: bool) -> tuple[int, int, int]:
    """(slots that do not name the newest entry of their chain, the first of them, slots in use).

    `live`: entries from `count` on are being put, and a slot may name one of them.
    """
    wrong, first, used = 0, -1, 0
    for slot in range(slots):
        named = load_be32(index, HEADER_BYTES + slot * SLOT_BYTES)
        used += heads[slot] != 0
        if named != heads[slot] and not (live and named >= count):
            if wrong == 0:
                first = slot
            wrong += 1
    return wrong, first, used
