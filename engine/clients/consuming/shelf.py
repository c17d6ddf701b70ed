"""Where pulled messages wait for the threads and event loops of a program: the queues of a member behind one lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from engine.clients.cluster import Place
from engine.clients.consuming.assigned_queue import AssignedQueue
from store.message.record import Message

REST_SECONDS = 0.2  # between looks at a queue that rests


class Handed(NamedTuple):
    """A message that was handed out, and where it came from."""

    message: Message
    queue: AssignedQueue
    turn: int


class Shelf:
    """All queues of a member. `when_taken` is called, in any thread, when there is room again."""

    def __init__(self, when_taken: Callable[[], None]) -> None:
        self.changed = threading.Condition()
        self.queues: dict[Place, AssignedQueue] = {}
        self.is_ended = False
        self.failure: Exception | None = None  # that no wait mends: whoever asks for messages gets it
        self.when_taken = when_taken
        self._first = 0
        self._wakers: set[Callable[[], None]] = set()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock, and wake who waits for messages."""
        with self.changed:
            yield
            self.changed.notify_all()
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
            return self._take(most)

    def _take(self, most: int) -> list[Handed]:
        handed: list[Handed] = []
        if self.failure is not None:
            raise self.failure
        if self.is_ended:
            return handed
        queues, now = [*self.queues.values()], time.monotonic()
        for number in range(len(queues)):
            queue = queues[(self._first + number) % len(queues)]
            if queue.may_hand_out(now):
                at_most = 1 if queue.in_order else most - len(handed)
                handed += (Handed(message, queue, queue.turn) for message in queue.take(at_most))
                queue.taken_ms = time.time_ns() // 1_000_000
                if len(handed) >= most:
                    self._first = (self._first + number + 1) % len(queues)
                    break
        return handed

    def await_some(self, most: int, timeout: float | None) -> list[Handed]:
        """The same, waiting for one message; none once the time is over or the member has ended. Raises `failure`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.changed:
            while not (handed := self._take(most)) and not self.is_ended:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return []
                self.changed.wait(
                    REST_SECONDS if left is None else min(left, REST_SECONDS)
                )  # a rest's end wakes nobody
            return handed

    def done(self, handed: Handed) -> None:
        """A message needs no more work."""
        message, queue, turn = handed
        with self.changing() if queue.in_order else self.changed:
            queue.done(message.queue_offset, turn)
        self.when_taken()

    def again(self, handed: Sequence[Handed], after: float) -> None:
        """Hand messages out once more, `after` seconds."""
        if handed:
            with self.changing():
                for message, queue, turn in reversed(handed):
                    queue.again(message, turn, time.monotonic() + after)

    def fail(self, failure: Exception) -> None:
        """Give this error to whoever asks for messages from now on."""
        with self.changing():
            self.failure = failure

    def end(self) -> None:
        """Hand nothing out any more, and let go who waits."""
        with self.changing():
            self.is_ended = True

    @property
    def is_at_end(self) -> bool:
        """Whether each queue was read to its end, and nothing waits."""
        with self.changed:
            return all(queue.is_at_end and not queue.waiting for queue in self.queues.values())
