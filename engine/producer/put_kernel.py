"""One put, compiled: a call into the ring, a call from the sleep to the place in the log.

Implements: the usual case of DefaultMQProducer.send (a local process's) and of GroupCommitRequest.future
Every put that waits is a switch to other processes, and what runs in the interpreter after one has cold caches: it
costs several times what it costs in a loop. So the usual case is two kernels of five arguments; `block` holds the
addresses of all they look at. What is not usual they leave to `engine.producer` and `engine.producer.connection`.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import mmap
from typing import NamedTuple

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from engine.board.cursors import RUNNING, Board
from engine.board.latencies import record
from engine.protocol.store.retention import DiskState
from engine.rings.encode_kernel import Template, put_one
from ipc.arrays import Bytes, Words
from ipc.compiled.atomics import await_change, load_acquire, monotonic_ns, wall_clock_ms
from ipc.compiled.compiler import kernel
from ipc.compiled.memory import address_of_bytes, bytes_at, words_at
from ipc.compiled.placement import PLACE_WORDS, hold_to, let_go
from ipc.ring import DESCRIPTOR_WORDS, HEAD, LOCAL_WORDS, REFUSALS, TAIL, TAIL_LOCAL, WORDS_PER_RING, Outlet

CONTROL_AT, DESCRIPTORS_AT, DESCRIPTORS, COUNTERS_AT, COUNTERS = 0, 1, 2, 3, 4
FOLLOWED, FAILED, LATENCIES_AT, LATENCIES = 5, 6, 7, 8
DATA_AT, DATA_BYTES, LOCAL_AT, BELL, STATE, DISK, REFUSALS_SEEN, SYNC_CPU = 9, 10, 11, 12, 13, 14, 15, 16
KEEP_UNTIL = 17  # the number from which on a record's descriptor may still be asked for
TOPICS, TOPICS_SEEN = 18, 19
BLOCK_WORDS = 20
APPENDED = -1  # as `followed`: the ring's own head is followed, to be in the log is enough
WAKES_MAX = 64  # in one call, each for somebody else's record
NO_ROOM, LOOK = -1, -2  # of `put`: the ring is full; there is something to look at before
MADV_WIPEONFORK = 18  # of a mapping: zeros in a forked child
READ_ONLY = int(DiskState.READ_ONLY)


class Form(NamedTuple):
    """A queue's template as `put` takes it; `record` keeps mapped what `words` has the address of."""

    words: Words  # address of the empty record, its length, where the body goes, the queue's slot
    length: int
    record: Bytes


def form_of(template: Template) -> Form:
    """The template's form."""
    record, length = template.record, len(template.record)
    return Form(np.array([record.ctypes.data, length, template.body_at, template.slot]), length, record)


def block_of(outlet: Outlet, board: Board, followed: int, latencies: Words, sync_cpu: int = -1) -> Words:
    """What the kernels look at: the producer's ring; the broker's counters, of which `followed` is the index of the one
    that a put waits for; the ring's latencies. All must stay mapped. `sync_cpu`: where those run who answer a put.

    In a forked child the block is zeros, however it was forked: `put` sees that it is not its own.
    """
    own = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    own.madvise(MADV_WIPEONFORK)
    block, counters = np.frombuffer(own, np.int64, BLOCK_WORDS), board.counters.words
    block[CONTROL_AT] = outlet.control.ctypes.data
    block[DESCRIPTORS_AT], block[DESCRIPTORS] = outlet.words.ctypes.data, len(outlet.words) // DESCRIPTOR_WORDS
    block[COUNTERS_AT], block[COUNTERS] = counters.ctypes.data, len(counters)
    block[FOLLOWED], block[FAILED] = followed, board.flush_errno.index
    block[LATENCIES_AT], block[LATENCIES] = latencies.ctypes.data, len(latencies)
    block[DATA_AT], block[DATA_BYTES] = outlet.data.ctypes.data, len(outlet.data)
    block[LOCAL_AT], block[BELL] = outlet.local.ctypes.data, outlet.bell_index
    block[STATE], block[DISK] = board.broker_state.index, board.disk_state.index
    block[REFUSALS_SEEN], block[SYNC_CPU] = outlet.control[REFUSALS], sync_cpu
    block[TOPICS], block[TOPICS_SEEN] = board.topics_changes.index, board.topics_changes.read()
    return block


@kernel
def put(block: Words, form: Words, body: bytes, properties: bytes, flag: int) -> int:
    """Publish one message; its number in the ring, NO_ROOM, or LOOK: not ours, not running, disk full, some refused,
    a place to be kept first."""
    if block[CONTROL_AT] == 0:
        return LOOK
    counters = carray(words_at(block[COUNTERS_AT]), (block[COUNTERS],))
    control = carray(words_at(block[CONTROL_AT]), (WORDS_PER_RING,))
    if counters[block[STATE]] != RUNNING or counters[block[DISK]] >= READ_ONLY:
        return LOOK
    if counters[block[TOPICS]] != block[TOPICS_SEEN]:
        return LOOK
    local = carray(words_at(block[LOCAL_AT]), (LOCAL_WORDS,))
    if control[REFUSALS] != block[REFUSALS_SEEN] or local[TAIL_LOCAL] >= block[KEEP_UNTIL]:
        return LOOK
    return put_one(
        carray(bytes_at(block[DATA_AT]), (block[DATA_BYTES],)),
        carray(words_at(block[DESCRIPTORS_AT]), (block[DESCRIPTORS] * DESCRIPTOR_WORDS,)), control,
        local, counters, block[BELL],
        carray(bytes_at(form[0]), (form[1],)), form[2], form[3], flag,
        carray(bytes_at(address_of_bytes(body)), (len(body),)),
        carray(bytes_at(address_of_bytes(properties)), (len(properties),)), wall_clock_ms(),
    )  # fmt: skip


@kernel
def _follow(block: Words, number: int, length: int, timeout_ns: int, began_ns: int) -> tuple[bool, int, int]:
    """As `follow`, wherever the thread may run."""
    control = carray(words_at(block[CONTROL_AT]), (WORDS_PER_RING,))
    words = carray(words_at(block[DESCRIPTORS_AT]), (block[DESCRIPTORS] * DESCRIPTOR_WORDS,))
    counters = carray(words_at(block[COUNTERS_AT]), (block[COUNTERS],))
    at, followed = (number % block[DESCRIPTORS]) * DESCRIPTOR_WORDS, block[FOLLOWED]
    for _ in range(WAKES_MAX):
        seen = load_acquire(control, HEAD) if followed == APPENDED else load_acquire(counters, followed)
        if load_acquire(control, HEAD) > number:
            offset, queue_offset = words[at + 2], words[at + 3]
            if offset < 0 or control[TAIL] - number > block[DESCRIPTORS]:
                return False, 0, 0
            if followed == APPENDED or seen >= offset + length:
                if load_acquire(counters, block[FAILED]) != 0:
                    return False, 0, 0
                latencies = carray(words_at(block[LATENCIES_AT]), (block[LATENCIES],))
                record(latencies, 0, (monotonic_ns() - began_ns) // 1000)
                return True, offset, queue_offset
        if followed == APPENDED:
            now = await_change(control, HEAD, seen, timeout_ns)
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
    counters = carray(words_at(block[COUNTERS_AT]), (block[COUNTERS],))
    if block[SYNC_CPU] < 0 or block[FOLLOWED] == APPENDED or load_acquire(counters, block[FOLLOWED] + 1) != 0:
        return _follow(block, number, length, timeout_ns, began_ns)
    place = np.empty(PLACE_WORDS, np.int64)
    is_held = hold_to(block[SYNC_CPU], place)
    answer = _follow(block, number, length, timeout_ns, began_ns)
    if is_held:
        let_go(place)
    return answer
