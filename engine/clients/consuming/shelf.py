"""Where pulled messages wait for the threads and event loops of a program: the queues of a member behind one lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeVar

from engine.clients.blocks import Block, MappedMessage
from engine.clients.cluster import Place
from engine.clients.consuming.assigned_queue import AssignedQueue
from ipc.clock import wall_ms

T = TypeVar("T")
REST_SECONDS = 0.2  # between looks at a queue that rests, or for a broker that is gone
IDLE_SECONDS = 1.0  # between looks whether the broker lives
BATCH_BYTES_MAX = 32 << 20  # of bodies, but for the last block's


class Handed(NamedTuple):
    """A message that was handed out, and where it came from."""

    message: MappedMessage
    queue: AssignedQueue
    turn: int

    @property
    def first(self) -> int:
        """Its queue offset, by which the queue knows it."""
        return self.message.queue_offset

    def block(self) -> Block:
        """Return the block that is handed out again."""
        return self.message.block()


class HandedBlock(NamedTuple):
    """Messages that were handed out together, and where they came from."""

    records: Block
    queue: AssignedQueue
    turn: int

    @property
    def first(self) -> int:
        """The queue offset of the first one, by which the queue knows them."""
        return self.records.first

    def block(self) -> Block:
        """Return the block that is handed out again."""
        return self.records


class Near(Protocol):
    """Reads a local broker's queues in the threads that ask for messages. All is called with the shelf's lock held."""

    def read(self, queues: Iterable[AssignedQueue], most: int) -> bool:
        """Give messages to queues of which none waits; whether one of them has come further."""

    def look(self, queues: Iterable[AssignedQueue]) -> None:
        """Note where queues end now."""

    def serves(self, place: Place) -> bool:
        """Whether a queue's messages are read here."""

    @property
    def sleep(self) -> Callable[[float], None] | None:
        """What sleeps without the lock until a queue has more; None where the shelf's own changes are waited for."""

    def wake(self) -> None:
        """End a sleep that is under way."""

    def close(self) -> None:
        """Unmap all, and read nothing any more."""


class Shelf:
    """All queues of a member. `when_taken` is called, in any thread, when there is room again."""

    def __init__(self, when_taken: Callable[[], None]) -> None:
        self._lock = threading.RLock()
        self.changed = threading.Condition(self._lock)
        self.queues: dict[Place, AssignedQueue] = {}
        self.is_ended = False
        self.failure: Exception | None = None  # an error that does not pass: calls for messages raise it
        self.when_taken = when_taken
        self.near: Near | None = None
        self._sleepers = 0  # threads that sleep without the lock: one at most
        self._first = 0
        self._wakers: set[Callable[[], None]] = set()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock, and wake who waits for messages."""
        with self.changed:
            yield
            self.changed.notify_all()
            if self._sleepers and self.near is not None:
                self.near.wake()
            for wake in self._wakers:
                wake()

    @contextmanager
    def woken_by(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake`, with the lock held, whenever something changes."""
        with self.changed:
            self._wakers.add(wake)
        try:
            yield
        finally:
            with self.changed:
                self._wakers.discard(wake)

    def take(self, most: int) -> list[Handed]:
        """Hand out messages of the queues in turn; none where none waits. Raises `failure`."""
        with self.changed:
            handed = self._take(most)
            return self._take(most) if not handed and self._read(most) else handed

    def _read(self, most: int) -> bool:
        """Whether a local broker's queues had more, or may have: they are read a part at a time."""
        return self.near is not None and not self.is_ended and self.near.read(self.queues.values(), most)

    def _take(self, most: int) -> list[Handed]:
        handed: list[Handed] = []
        for number, queue in self._in_turn():
            at_most = 1 if queue.in_order else most - len(handed)
            handed += [Handed(message, queue, queue.turn) for message in queue.take(at_most)]
            queue.taken_ms = wall_ms()
            if len(handed) >= most:
                self._first = number + 1
                break
        return handed

    def _in_turn(self) -> list[tuple[int, AssignedQueue]]:
        """The queues that hand out now, and their numbers; the one whose turn it is comes first. Raises `failure`."""
        if self.failure is not None:
            raise self.failure
        if self.is_ended:
            return []
        queues, now = [*self.queues.values()], time.monotonic()
        numbers = ((self._first + number) % len(queues) for number in range(len(queues)))
        return [(number, queues[number]) for number in numbers if queues[number].may_hand_out(now)]

    def take_blocks(self, most: int) -> list[HandedBlock]:
        """The same as `take`, as blocks that one batch can have: of one segment, or of one broker's answers."""
        with self.changed:
            handed = self._take_blocks(most)
            return self._take_blocks(most) if not handed and self._read(most) else handed

    def _take_blocks(self, most: int) -> list[HandedBlock]:
        handed: list[HandedBlock] = []
        origin, room = None, BATCH_BYTES_MAX
        for number, queue in self._in_turn():
            blocks = queue.take_blocks(most, origin) if most > 0 and room > 0 else []
            if not blocks:
                self._first = number
                break
            handed += [HandedBlock(block, queue, queue.turn) for block in blocks]
            queue.taken_ms = wall_ms()
            most, origin = most - sum(map(len, blocks)), blocks[-1].origin
            room -= sum(block.body_bytes for block in blocks)
        return handed

    def await_some(self, most: int, timeout: float | None) -> list[Handed]:
        """The same, waiting for one message; none once the time is over or the member has ended. Raises `failure`."""
        return self._await(self._take, most, timeout)

    def await_blocks(self, most: int, timeout: float | None) -> list[HandedBlock]:
        """The same as `await_some`, as blocks that one batch can have."""
        return self._await(self._take_blocks, most, timeout)

    def _await(self, take: Callable[[int], list[T]], most: int, timeout: float | None) -> list[T]:
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.changed:
            while not (handed := take(most)) and not self.is_ended:
                is_further = self._read(most)
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    handed = take(most)
                    break
                if is_further:
                    self._give_way()
                else:
                    self._rest(IDLE_SECONDS if left is None else min(left, IDLE_SECONDS))
            if self.near is not None and not self._sleepers:
                self.changed.notify()  # another thread sleeps now in this one's place
            return handed

    def await_more(self, seconds: float) -> None:
        """Wait until there may be something to take, or the time is over; a rest's end wakes nobody."""
        with self.changed:
            if not self.is_ended and not self._read(1):
                self._rest(min(seconds, REST_SECONDS))

    def _rest(self, seconds: float) -> None:
        """Wait for a change here; one thread waits for the local broker's in place of all."""
        now, sleep = time.monotonic(), self.near.sleep if self.near is not None and not self._sleepers else None
        is_gone = self.near is not None and sleep is None and not self._sleepers
        if is_gone or any(queue.rests_until > now for queue in self.queues.values()):
            seconds = min(seconds, REST_SECONDS)
        if sleep is None:
            self.changed.wait(seconds)
            return
        self._sleepers += 1
        self.changed.release()
        try:
            sleep(seconds)
        finally:
            self.changed.acquire()
            self._sleepers -= 1

    def _give_way(self) -> None:
        """Let others have the lock between two reads that may both have brought nothing that is wanted."""
        if not any(queue.waiting for queue in self.queues.values()):
            self.changed.release()
            try:
                time.sleep(0)
            finally:
                self.changed.acquire()

    def done(self, handed: Handed) -> None:
        """A message needs no more work."""
        message, queue, turn = handed
        if queue.in_order:
            self.all_done([handed])
            return
        with self._lock:  # a condition's `with` takes three times as long
            queue.done(message.queue_offset, turn)
        self.when_taken()

    def all_done(self, handed: Sequence[Handed | HandedBlock]) -> None:
        """What was handed out needs no more work."""
        with self.changing():
            for one in handed:
                one.queue.done(one.first, one.turn)
        self.when_taken()

    def again(self, handed: Sequence[Handed | HandedBlock], after: float) -> None:
        """Hand something out once more, `after` seconds."""
        if handed:
            with self.changing():
                for one in handed:
                    one.queue.again(one.block(), one.turn, time.monotonic() + after)

    def fail(self, failure: Exception) -> None:
        """Raise this error from all further calls for messages."""
        with self.changing():
            self.failure = failure

    def end(self) -> None:
        """Hand nothing out any more, and let go who waits."""
        with self.changing():
            self.is_ended = True

    def close(self) -> None:
        """Unmap a local broker's files."""
        with self.changing():
            if self.near is not None:
                self.near.close()

    def lags(self) -> dict[Place, int]:
        """How many offsets of each queue are not done."""
        with self.changed:
            if self.near is not None:
                self.near.look(self.queues.values())
            return {place: queue.lag for place, queue in self.queues.items()}

    @property
    def is_at_end(self) -> bool:
        """Whether each queue was read to its end, and nothing waits."""
        with self.changed:
            self._read(1)
            return all(queue.is_at_end and not queue.waiting for queue in self.queues.values())
