"""Slots of queues, asked of the writer without waiting: one question at a time, the others in line.

Implements: the producer's side of the questions of `ipc.ring`
"""

from __future__ import annotations

import errno
from collections import deque

import numpy as np

from engine.protocol.ha.put_status import PutMessageStatus
from ipc import waiting
from ipc.arrays import Words
from ipc.compiled import atomics
from ipc.counters import Cursor
from ipc.ring import ControlWord, Ring

Queue = tuple[str, int]
NO_SLOT = -1  # of a queue for which the writer has none, or none yet


class QueueSlots:
    """Slots known to one ring. Bounded by the writer's table: a queue without a slot is asked for again."""

    def __init__(self, ring: Ring, control: Words, bell: Cursor) -> None:
        self._ring, self._control, self._bell = ring, control, bell
        self._slots: dict[Queue, int] = {}
        self._too_many: set[Queue] = set()  # light queues without a slot, because of maxLmqConsumeQueueNum
        self._line: deque[Queue] = deque()
        self._in_line: set[Queue] = set()
        self._asked: Queue | None = None

    @property
    def is_asking(self) -> bool:
        """Whether an answer is due: `look`."""
        return bool(self._line)

    def missing(self, *queues: Queue) -> Queue | None:
        """The first queue of which nothing is known."""
        return next((queue for queue in queues if queue not in self._slots), None)

    def slot_of(self, queue: Queue) -> int:
        """The slot of a known queue; NO_SLOT where the writer had none."""
        return self._slots[queue]

    def refusal(self, *queues: Queue) -> PutMessageStatus:
        """Return the status where some queues have no slot; they are asked for again next time."""
        is_full = not self._too_many.isdisjoint(queues)
        self.forget(*queues)
        full = PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
        return full if is_full else PutMessageStatus.CREATE_MAPPED_FILE_FAILED

    def forget(self, *queues: Queue) -> None:
        """Forget queues without a slot, so that they are asked for again."""
        self._too_many.difference_update(queues)
        for queue in queues:
            if self._slots.get(queue) == NO_SLOT:
                del self._slots[queue]

    def ask(self, queue: Queue) -> None:
        """Ring the writer, so that it answers the question."""
        if queue not in self._in_line:
            self._in_line.add(queue)
            self._line.append(queue)
            if len(self._line) == 1:
                self._ask_next()

    def look(self) -> Queue | None:
        """The queue of which the writer has said something since; the next question is put."""
        queue, asked = self._asked, int(self._control[ControlWord.ASKED])
        if queue is None or int(self._control[ControlWord.ANSWERED]) != asked:
            self._ask_next()  # a predecessor's question may have been under way
            return None
        answer = int(self._control[ControlWord.ANSWER])
        self._slots[queue] = max(NO_SLOT, answer)
        if answer == -errno.EDQUOT:
            self._too_many.add(queue)
        self._in_line.discard(self._line.popleft())
        self._asked = None
        self._ask_next()
        return queue

    def _ask_next(self) -> None:
        asked = int(self._control[ControlWord.ASKED])
        if self._line and self._asked is None and int(self._control[ControlWord.ANSWERED]) == asked:
            self._put_question(self._line[0], asked)

    def _put_question(self, queue: Queue, asked: int) -> None:
        topic, queue_id = queue
        name = topic.encode()
        question = queue_id.to_bytes(8, "little") + len(name).to_bytes(8, "little") + name
        self._ring.question[: len(question)] = np.frombuffer(question, np.uint8)
        self._asked = queue
        atomics.publish(self._control, int(ControlWord.ASKED), asked + 1)
        waiting.ring(self._bell)
