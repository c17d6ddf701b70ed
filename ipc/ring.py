"""One producer's records on their way to the writer: single producer, single consumer, no locks.

A producer that dies half-way harms only its own ring. Record bytes lie contiguously, their descriptors in an array of
their own, so that the consumer copies a whole batch at once. Positions only grow; a place is position % data_bytes.

The region "rings" (made by the supervisor) holds 4 cache lines for each ring:
line 0 (producer)  word 0 tail: descriptors published | word 2 asked: questions put | word 3 near
line 1 (writer)    word 0 head: descriptors consumed  | word 1 waiters
line 2 (writer)    word 0 answered: questions answered | word 1 waiters | word 2 the answer | word 4 records refused
line 3 (producer)  word 0 pid | word 1 start time
The file "ring-NNN" (made by the first producer that takes number NNN, claimed with flock, so that the kernel frees it
when its owner dies) holds descriptors of 4 words | the question, 512 bytes | the data.
descriptor (producer): word 0 position, word 1 length << 32 | queue slot; (writer): word 2 physical offset, or -errno
when refused, word 3 queue offset. Words 2 and 3 are valid once head has passed the descriptor.
question (producer): word 0 queue id, word 1 topic bytes, then the topic.
near is 1 while the producer waits for each record before it publishes the next, and does that at once.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import fcntl
import os
import weakref
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ipc.arrays import Bytes, Words
from ipc.compiled.atomics import await_change as await_word
from ipc.compiled.atomics import give_way, load_acquire, monotonic_ns, sign_off, sign_on
from ipc.compiled.kernels import inlined, kernel
from ipc.errors import IpcError
from ipc.process import start_time
from ipc.region import Region

LAYOUT = 1
RINGS_FILE, RINGS_KIND = "rings", "rings"
RING_KIND = "ring"
WORDS_PER_RING = 32
BYTES_PER_DESCRIPTOR = 256  # of data: an average record is not smaller by much
QUESTION_BYTES = 512
SLOT_BITS = 32
SLOT_MASK = (1 << SLOT_BITS) - 1


class ControlWord(IntEnum):
    """The words of a ring's control lines."""

    TAIL = 0
    ASKED = 2
    NEAR = 3
    HEAD = 8
    ANSWERED = 16
    ANSWER = 18
    REFUSALS = 20
    OWNER_PID = 24
    OWNER_START = 25


class Descriptor(IntEnum):
    """The words of a record's descriptor."""

    POSITION = 0
    LENGTH_AND_SLOT = 1
    PHYSICAL_OFFSET = 2  # or -errno
    QUEUE_OFFSET = 3


DESCRIPTOR_WORDS = len(Descriptor)


class LocalWord(IntEnum):
    """A producer's own words: records published, and where the data published ends."""

    TAIL = 0
    POSITION = 1


class NoFreeRing(IpcError):
    """Raised when every ring belongs to a living producer.

    Next: close a producer that is not needed, or raise `maxProducers` and restart the broker.
    """

    code = "NO_FREE_RING"

    def __init__(self, directory: Path, rings: int) -> None:
        super().__init__(
            f"{directory}: all {rings} rings belong to living producers; close one, or raise maxProducers and restart"
        )


class RingsUnknown(IpcError):
    """Raised when a ring is to be claimed that the control lines know nothing of: they were closed, or are too few.

    Next: make a new Producer; after a change of `maxProducers` restart all that put.
    """

    code = "RINGS_UNKNOWN"

    def __init__(self, directory: Path, number: int, rings: int) -> None:
        super().__init__(
            f"{directory}: ring {number} has no control lines, there are those of {rings}: they are closed, or of"
            " another maxProducers; attach them anew, and claim one of theirs"
        )


class Outlet(NamedTuple):
    """A producer's end of its ring, as kernels take it."""

    data: Bytes
    words: Words
    control: Words
    local: Words
    bell: Words
    bell_index: int


def create_rings(directory: Path, count: int) -> Region:
    """The control lines of `count` rings; only the supervisor makes them."""
    return Region.create(directory / RINGS_FILE, count * WORDS_PER_RING * 8, kind=RINGS_KIND, layout=LAYOUT)


def attach_rings(directory: Path, *, writable: bool = True) -> Region:
    """The control lines of all rings. Raises RegionMissing, RegionMismatch."""
    return Region.attach(directory / RINGS_FILE, kind=RINGS_KIND, layout=LAYOUT, writable=writable)


def ring_path(directory: Path, number: int) -> Path:
    """Return the path of ring `number`."""
    return directory / f"ring-{number:03d}"


class Ring:
    """One ring's file, mapped into memory."""

    def __init__(self, region: Region, data_bytes: int) -> None:
        self._region = region
        self.path = region.path
        self.descriptors = data_bytes // BYTES_PER_DESCRIPTOR
        question_at = self.descriptors * DESCRIPTOR_WORDS * 8
        self.words: Words = region.words[: self.descriptors * DESCRIPTOR_WORDS]
        self.question: Bytes = region.bytes[question_at : question_at + QUESTION_BYTES]
        self.data: Bytes = region.bytes[question_at + QUESTION_BYTES :]
        assert len(self.data) == data_bytes

    @staticmethod
    def payload_bytes(data_bytes: int) -> int:
        """Size of the file's payload for a ring of that many bytes of records."""
        return data_bytes // BYTES_PER_DESCRIPTOR * DESCRIPTOR_WORDS * 8 + QUESTION_BYTES + data_bytes

    @classmethod
    def attach(cls, directory: Path, number: int, data_bytes: int) -> Ring:
        """Map a ring that its producer made. Raises RegionMissing, RegionMismatch."""
        path = ring_path(directory, number)
        return cls(Region.attach(path, kind=RING_KIND, layout=LAYOUT, writable=True), data_bytes)

    def close(self) -> None:
        """Unmap the ring; its arrays are empty afterwards."""
        empty = np.empty(0, np.int64)
        self.words, self.question, self.data = empty, empty.view(np.uint8), empty.view(np.uint8)
        self._region.close()


class ClaimedRing:
    """A ring that this process owns until it closes it, drops it, or dies; a forked child never owns it."""

    def __init__(
        self, directory: Path, controls: Region, data_bytes: int, numbers: Sequence[int] | None = None
    ) -> None:
        """The first of these rings that is free; none named: of all. Raises NoFreeRing, RingsUnknown."""
        every = range(len(controls.words) // WORDS_PER_RING)
        for number in (0,) if numbers is None else numbers:  # before one is locked: its words have to be there
            if number not in every:
                raise RingsUnknown(directory, number, len(every))
        self.number, lock = _claim(directory, every if numbers is None else numbers, data_bytes)
        at, owner = self.number * WORDS_PER_RING, os.getpid()
        self.control: Words = controls.words[at : at + WORDS_PER_RING]
        self._lock = lock
        self.give_back = weakref.finalize(self, _give_back, self.control, lock, owner)  # it runs only once
        self.ring = Ring.attach(directory, self.number, data_bytes)
        self.control[ControlWord.NEAR] = 0
        # The pid last: a ring with a pid counts as owned, by the process that began at that time.
        self.control[ControlWord.OWNER_START] = start_time(owner) or 0
        self.control[ControlWord.OWNER_PID] = owner

    def outlet(self, bell: Words, bell_index: int) -> Outlet:
        """Return what kernels need to publish behind earlier records. The consumer sleeps on `bell`."""
        local = np.zeros(len(LocalWord), np.int64)
        local[LocalWord.TAIL] = self.control[ControlWord.TAIL]
        local[LocalWord.POSITION] = end_position(self.control, self.ring.words)
        return Outlet(self.ring.data, self.ring.words, self.control, local, bell, bell_index)

    def close(self) -> None:
        """Give the ring back, unmap it; what was published in it is still consumed. Harmless when done already."""
        self.give_back()
        self.control = np.empty(0, np.int64)
        self.ring.close()

    def forked(self) -> None:
        """Close a child's copy of the lock, which is its parent's, so that it does not outlive the parent."""
        if self.give_back.detach() is not None:
            os.close(self._lock)


def _give_back(control: Words, lock: int, owner: int) -> None:
    """The end of an ownership. A child that the hooks of fork did not reach has only a copy of the descriptor."""
    if os.getpid() == owner:
        control[ControlWord.OWNER_PID] = 0
        fcntl.flock(lock, fcntl.LOCK_UN)  # of all copies: a child may have one
    os.close(lock)


def _claim(directory: Path, numbers: Sequence[int], data_bytes: int) -> tuple[int, int]:
    """(number, descriptor that holds its lock) of the first ring without a living owner."""
    for number in numbers:
        path = ring_path(directory, number)
        if not path.exists():
            _make(path, data_bytes)
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        return number, lock
    raise NoFreeRing(directory, len(numbers))


def _make(path: Path, data_bytes: int) -> None:
    """Make the file whole under another name first: two producers may want it at once."""
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    Region.create(temporary, Ring.payload_bytes(data_bytes), kind=RING_KIND, layout=LAYOUT).close()
    try:
        if os.geteuid() == 0:  # root's file, in another user's directory: that one's writer has to open it
            owner = path.parent.stat()
            os.chown(temporary, owner.st_uid, owner.st_gid)
        os.link(temporary, path)
    except FileExistsError:
        pass  # the other one's file is as good
    finally:
        os.unlink(temporary)


@inlined
def descriptor_at(number: int, descriptors: int) -> int:
    """Return where the descriptor of record `number` lies.

    No array is handed over: numba would count a reference to it.
    """
    return number % descriptors * DESCRIPTOR_WORDS


@inlined
def length_of(length_and_slot: int) -> int:
    """Return how long a record is."""
    return length_and_slot >> SLOT_BITS


@inlined
def slot_of(length_and_slot: int) -> int:
    """The slot of a record's queue."""
    return length_and_slot & SLOT_MASK


@inlined
def oldest_position(words: Words, descriptors: int, head: int, tail: int, position: int) -> int:
    """Return where the data still in use begins; `position` (the next record's) when all is consumed."""
    if head == tail:
        return position
    return words[descriptor_at(head, descriptors) + Descriptor.POSITION]


@kernel
def end_position(control: Words, words: Words) -> int:
    """Return where a producer that takes a ring over goes on: behind the last record published."""
    tail = control[ControlWord.TAIL]
    if tail == 0:
        return 0
    last = descriptor_at(tail - 1, words.size // DESCRIPTOR_WORDS)
    return words[last + Descriptor.POSITION] + length_of(words[last + Descriptor.LENGTH_AND_SLOT])


@inlined
def room_at(control: Words, words: Words, data_bytes: int, tail: int, position: int, need: int) -> int:
    """The position for `need` contiguous bytes behind `position`, or -1 while there is no room."""
    descriptors = words.size // DESCRIPTOR_WORDS
    head = load_acquire(control, ControlWord.HEAD)
    if tail - head >= descriptors:
        return -1
    start = position
    if start % data_bytes + need > data_bytes:
        start += data_bytes - start % data_bytes
    if start + need - oldest_position(words, descriptors, head, tail, start) > data_bytes:
        return -1
    return start


@inlined
def describe(words: Words, number: int, position: int, length: int, slot: int) -> None:
    """Fill the descriptor of record `number`; it counts once the tail has passed it."""
    at = descriptor_at(number, words.size // DESCRIPTOR_WORDS)
    words[at + Descriptor.POSITION] = position
    words[at + Descriptor.LENGTH_AND_SLOT] = (length << SLOT_BITS) | slot


@kernel
def first_pending(controls: Words, start: int) -> int:
    """The first ring from `start` on, round the table, that holds a record or a question; -1: none."""
    rings = controls.size // WORDS_PER_RING
    for step in range(rings):
        number = (start + step) % rings
        at = number * WORDS_PER_RING
        if load_acquire(controls, at + ControlWord.TAIL) != controls[at + ControlWord.HEAD]:
            return number
        if load_acquire(controls, at + ControlWord.ASKED) != controls[at + ControlWord.ANSWERED]:
            return number
    return -1


@kernel
def await_bell(bell: Words, index: int, controls: Words, look_ns: int, timeout_ns: int) -> None:
    """Look for `look_ns`, then sleep until a producer rings, but not if one has published since: look again after
    announcing the sleep."""
    if look_ns > 0:
        until_ns = monotonic_ns() + look_ns
        while monotonic_ns() < until_ns:
            if first_pending(controls, 0) >= 0:
                return
            give_way()
    seen = load_acquire(bell, index)
    sign_on(bell, index)
    if first_pending(controls, 0) < 0:
        await_word(bell, index, seen, timeout_ns)
    sign_off(bell, index)
