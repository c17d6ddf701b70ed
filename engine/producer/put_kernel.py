"""One local put, compiled: `put` writes the message into the ring, `follow` sleeps until it is safe and returns where.

Implements: the usual case of DefaultMQProducer.send (a local process's) and of GroupCommitRequest.future
Every put that waits is a switch to other processes, and what runs in the interpreter after one has cold caches: it
costs several times what it costs in a loop. So the usual case is two kernels of five arguments; `block` holds the
addresses of all they look at. What is not usual they leave to `engine.producer` and `engine.producer.connection`.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import mmap
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from engine.protocol.store.retention import DiskState
from engine.rings.encode_kernel import Template, put_one
from engine.shared_memory.cursors import BrokerCounters, BrokerState
from engine.shared_memory.latencies import record
from ipc.arrays import Bytes, Words
from ipc.compiled.atomics import Followed, await_change, load_acquire, monotonic_ns, wall_clock_ms
from ipc.compiled.kernels import kernel
from ipc.compiled.memory import address_of_bytes, bytes_at, carray, words_at
from ipc.compiled.placement import PLACE_WORDS, hold_to, let_go
from ipc.ring import DESCRIPTOR_WORDS, WORDS_PER_RING, ControlWord, Descriptor, LocalWord, Outlet, descriptor_at

APPENDED = -1  # as `followed`: the ring's own head is followed, to be in the log is enough
WAKES_MAX = 64  # in one call, each for somebody else's record
MADV_WIPEONFORK = 18  # of a mapping: zeros in a forked child


class PutBlock(IntEnum):
    """The words of a block: addresses with lengths in words or bytes, indices of counters, and what was seen."""

    CONTROL_AT = 0
    DESCRIPTORS_AT = 1
    DESCRIPTORS = 2
    COUNTERS_AT = 3
    COUNTERS = 4
    FOLLOWED = 5
    FAILED = 6
    LATENCIES_AT = 7
    LATENCIES = 8
    DATA_AT = 9
    DATA_BYTES = 10
    LOCAL_AT = 11
    BELL = 12
    STATE = 13
    DISK = 14
    REFUSALS_SEEN = 15
    SYNC_CPU = 16
    KEEP_UNTIL = 17  # the number from which on a record's descriptor may still be asked for
    TOPICS = 18
    TOPICS_SEEN = 19


class FormWord(IntEnum):
    """The words of a form: the empty record's address and length, where the body goes, the queue's slot."""

    RECORD_AT = 0
    RECORD_BYTES = 1
    BODY_AT = 2
    SLOT = 3


class NotPut(IntEnum):
    """The reasons for which `put` returns no number."""

    NO_ROOM = -1  # the ring is full
    LOOK = -2  # there is something to look at before


LOCAL_WORDS = len(LocalWord)


class Form(NamedTuple):
    """A queue's template as `put` takes it; `record` keeps mapped what `words` has the address of."""

    words: Words
    length: int
    record: Bytes


def form_of(template: Template) -> Form:
    """Return the form by which the kernel fills the template."""
    record, words = template.record, np.zeros(len(FormWord), np.int64)
    words[FormWord.RECORD_AT], words[FormWord.RECORD_BYTES] = record.ctypes.data, len(record)
    words[FormWord.BODY_AT], words[FormWord.SLOT] = template.body_at, template.slot
    return Form(words, len(record), record)


def block_of(outlet: Outlet, counters: BrokerCounters, followed: int, latencies: Words, sync_cpu: int = -1) -> Words:
    """Return the block of words that the kernels look at, for one producer.

    It has the places of the producer's ring, of the broker's counters (`followed` is the index of the one that a put
    waits for) and of the ring's latencies, which must all stay mapped. `sync_cpu`: where those run who answer a put.

    In a forked child the block is zeros, however it was forked: `put` sees that it is not its own.
    """
    own = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    own.madvise(MADV_WIPEONFORK)
    block, words = np.frombuffer(own, np.int64, len(PutBlock)), counters.region.words
    block[PutBlock.CONTROL_AT] = outlet.control.ctypes.data
    block[PutBlock.DESCRIPTORS_AT] = outlet.words.ctypes.data
    block[PutBlock.DESCRIPTORS] = len(outlet.words) // DESCRIPTOR_WORDS
    block[PutBlock.COUNTERS_AT], block[PutBlock.COUNTERS] = words.ctypes.data, len(words)
    block[PutBlock.FOLLOWED], block[PutBlock.FAILED] = followed, counters.flush_errno.index
    block[PutBlock.LATENCIES_AT], block[PutBlock.LATENCIES] = latencies.ctypes.data, len(latencies)
    block[PutBlock.DATA_AT], block[PutBlock.DATA_BYTES] = outlet.data.ctypes.data, len(outlet.data)
    block[PutBlock.LOCAL_AT], block[PutBlock.BELL] = outlet.local.ctypes.data, outlet.bell_index
    block[PutBlock.STATE], block[PutBlock.DISK] = counters.broker_state.index, counters.disk_state.index
    block[PutBlock.REFUSALS_SEEN], block[PutBlock.SYNC_CPU] = outlet.control[ControlWord.REFUSALS], sync_cpu
    block[PutBlock.TOPICS], block[PutBlock.TOPICS_SEEN] = (
        counters.topics_changes.index,
        counters.topics_changes.read(),
    )
    return block


@kernel
def put(block: Words, form: Words, body: bytes, properties: bytes, flag: int) -> int:
    """Publish one message; its number in the ring, NO_ROOM, or LOOK: not ours, not running, disk full, some refused,
    a place to be kept first."""
    if block[PutBlock.CONTROL_AT] == 0:
        return NotPut.LOOK
    counters = carray(words_at(block[PutBlock.COUNTERS_AT]), (block[PutBlock.COUNTERS],))
    control = carray(words_at(block[PutBlock.CONTROL_AT]), (WORDS_PER_RING,))
    if counters[block[PutBlock.STATE]] != BrokerState.RUNNING:
        return NotPut.LOOK
    if counters[block[PutBlock.DISK]] >= DiskState.READ_ONLY:
        return NotPut.LOOK
    if counters[block[PutBlock.TOPICS]] != block[PutBlock.TOPICS_SEEN]:
        return NotPut.LOOK
    local = carray(words_at(block[PutBlock.LOCAL_AT]), (LOCAL_WORDS,))
    if control[ControlWord.REFUSALS] != block[PutBlock.REFUSALS_SEEN]:
        return NotPut.LOOK
    if local[LocalWord.TAIL] >= block[PutBlock.KEEP_UNTIL]:
        return NotPut.LOOK
    data = carray(bytes_at(block[PutBlock.DATA_AT]), (block[PutBlock.DATA_BYTES],))
    words = carray(words_at(block[PutBlock.DESCRIPTORS_AT]), (block[PutBlock.DESCRIPTORS] * DESCRIPTOR_WORDS,))
    empty = carray(bytes_at(form[FormWord.RECORD_AT]), (form[FormWord.RECORD_BYTES],))
    return put_one(
        Outlet(data, words, control, local, counters, block[PutBlock.BELL]),
        Template(empty, form[FormWord.BODY_AT], form[FormWord.SLOT]),
        flag,
        carray(bytes_at(address_of_bytes(body)), (len(body),)),
        carray(bytes_at(address_of_bytes(properties)), (len(properties),)),
        wall_clock_ms(),
    )


@kernel
def _follow(block: Words, number: int, length: int, timeout_ns: int, began_ns: int) -> tuple[bool, int, int]:
    """Follow a put like `follow`, but without regard to the CPU on which the thread runs."""
    control = carray(words_at(block[PutBlock.CONTROL_AT]), (WORDS_PER_RING,))
    words = carray(words_at(block[PutBlock.DESCRIPTORS_AT]), (block[PutBlock.DESCRIPTORS] * DESCRIPTOR_WORDS,))
    counters = carray(words_at(block[PutBlock.COUNTERS_AT]), (block[PutBlock.COUNTERS],))
    at, followed = descriptor_at(number, block[PutBlock.DESCRIPTORS]), block[PutBlock.FOLLOWED]
    for _ in range(WAKES_MAX):
        # The followed word before all else: if it moves after this look, the sleep below ends at once.
        seen = load_acquire(control, ControlWord.HEAD) if followed == APPENDED else load_acquire(counters, followed)
        if load_acquire(control, ControlWord.HEAD) > number:
            offset, queue_offset = words[at + Descriptor.PHYSICAL_OFFSET], words[at + Descriptor.QUEUE_OFFSET]
            if offset < 0 or control[ControlWord.TAIL] - number > block[PutBlock.DESCRIPTORS]:
                return False, 0, 0
            if followed == APPENDED or seen >= offset + length:
                if load_acquire(counters, block[PutBlock.FAILED]) != 0:
                    return False, 0, 0
                latencies = carray(words_at(block[PutBlock.LATENCIES_AT]), (block[PutBlock.LATENCIES],))
                record(latencies, 0, (monotonic_ns() - began_ns) // 1000)
                return True, offset, queue_offset
        if followed == APPENDED:
            now = await_change(control, ControlWord.HEAD, seen, timeout_ns)
        else:
            now = await_change(counters, followed, seen, timeout_ns)
        if now == seen:
            return False, 0, 0
    return False, 0, 0


@kernel
def follow(block: Words, number: int, length: int, timeout_ns: int, began_ns: int) -> tuple[bool, int, int]:
    """(whether record `number` is in the log and followed, its physical offset, its queue offset).

    Not within the time, refused, its descriptor used again, or a signal came: False, and the caller looks which. Sleeps
    on the followed word alone: in a chain of stages only the last one's says that this record is done. Who is alone
    there sleeps on the CPU of those who will wake it: a wake-up on another one costs more than all the rest of a put.
    """
    counters = carray(words_at(block[PutBlock.COUNTERS_AT]), (block[PutBlock.COUNTERS],))
    cpu, followed = block[PutBlock.SYNC_CPU], block[PutBlock.FOLLOWED]
    if cpu < 0 or followed == APPENDED or load_acquire(counters, followed + Followed.WAITERS) != 0:
        return _follow(block, number, length, timeout_ns, began_ns)
    place = np.empty(PLACE_WORDS, np.int64)
    is_held = hold_to(cpu, place)
    answer = _follow(block, number, length, timeout_ns, began_ns)
    if is_held:
        let_go(place)
    return answer
