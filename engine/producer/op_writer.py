"""Op messages on their way: collected until they are due, and written again where the broker did not take them.

Implements: TransactionalOpBatchService (spec: store-formats, section 8)
A half message whose end was decided is done with only once its op message is in the log. So what a read-only broker
refuses is kept and tried again, where its broker has ended at the one that is started then; only when the producer
closes is it given up, and said.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import NamedTuple, Protocol

from engine.errors import BrokerGone, EngineError, ForeignProducer, ProducerClosed
from ipc.clock import monotonic_ms
from ipc.errors import IpcError
from store.put.op_batches import OpBatches

AGAIN_MS, AGAIN_MS_MAX = 100, 2000  # until the next attempt, doubled from one to the next
KEPT_MAX = 65_536  # refused op messages that are kept
ENDS = (ProducerClosed, ForeignProducer)  # no later attempt can do better
FINAL = (BrokerGone, *ENDS)  # nor one within the time that a caller waits


class Op(NamedTuple):
    """An op message: the queue of its halves, their offsets as text."""

    queue_id: int
    offsets: str


class Puts(Protocol):
    """The place where a writer puts op messages; it keeps this alive only while some are pending."""

    def put_op(self, op: Op, deadline_ms: int) -> None:
        """Write one op message. Raises EngineError, IpcError."""

    def deadline(self, timeout: float | None) -> int:
        """Return when a put that begins now times out, in monotonic ms."""


class OpWriter:
    """The op messages of one producer."""

    def __init__(self, puts: Puts, *, bytes_max: int, interval_ms: int) -> None:
        self._puts = weakref.ref(puts)
        self._batches = OpBatches(bytes_max=bytes_max, interval_ms=interval_ms)
        self._refused: deque[Op] = deque()
        self._pause_ms, self._again_at_ms = AGAIN_MS, 0
        self._owner: Puts | None = None  # as long as something is pending
        self._lock = threading.Lock()  # taken by itself: a Condition stays locked where a signal's handler raises in it
        self._changed = threading.Condition(self._lock)
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def add(self, queue_id: int, offsets: str, deadline_ms: int) -> None:
        """Add a half message that is done with: written with others when due, at once when they are
        many. Raises what no later attempt can mend."""
        with self._lock:
            now_ms = monotonic_ms()
            self._batches.add(queue_id, offsets, now_ms)
            due = [Op(*op) for op in self._batches.due(now_ms)]
            self._start()
        for op in due:
            self.put(op, deadline_ms)

    def put(self, op: Op, deadline_ms: int) -> None:
        """Write an op message now, or later if the broker does not take it. Raises what no later attempt can mend."""
        puts = self._puts()
        assert puts is not None, "its producer calls"
        try:
            puts.put_op(op, deadline_ms)
        except FINAL:
            raise
        except (EngineError, IpcError):
            with self._lock:
                if len(self._refused) >= KEPT_MAX:
                    raise
                self._refused.append(op)
                self._try_later()
                self._start()

    def write(self, deadline_ms: int) -> None:
        """Write all that is pending now. Raises what the last attempt raised."""
        while (failure := self._write(deadline_ms, all_of_them=True)) is not None:
            with self._lock:
                if isinstance(failure, FINAL) or monotonic_ms() >= deadline_ms:
                    raise failure
                again_at_ms = min(self._again_at_ms, deadline_ms)
                while not self._is_closed and (left_ms := again_at_ms - monotonic_ms()) > 0:
                    self._changed.wait(left_ms / 1000)

    def end(self) -> None:
        """Let the thread end; what is pending is given up."""
        with self._lock:
            self._is_closed, self._owner = True, None
            self._changed.notify_all()

    def join(self) -> None:
        """Wait until the thread, which must have been closed, has ended."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _start(self) -> None:
        self._owner = self._puts()
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="ops", daemon=True)
            thread.start()
            self._thread = thread
        self._changed.notify_all()

    def _run(self) -> None:
        while self._await_due():
            if isinstance(self._write(None), ENDS):
                self.end()  # halves without an op message are asked about again

    def _await_due(self) -> bool:
        """Sleep until something is due; return False once the writer is closed."""
        with self._lock:
            while not self._is_closed:
                due_ms = self._batches.next_due_ms()
                if self._refused:
                    due_ms = self._again_at_ms if due_ms is None else min(due_ms, self._again_at_ms)
                if due_ms is not None and due_ms <= monotonic_ms():
                    return True
                self._changed.wait(None if due_ms is None else max(1, due_ms - monotonic_ms()) / 1000)
            return False

    def _write(self, deadline_ms: int | None, *, all_of_them: bool = False) -> Exception | None:
        """Write what is due; the first failure, after which the rest is kept."""
        with self._writing:
            with self._lock:
                ops = list(self._refused)
                ops.extend(Op(*op) for op in self._batches.due(monotonic_ms(), all_of_them=all_of_them))
                self._refused.clear()
                puts = self._puts()
            for number, op in enumerate(ops):
                try:
                    assert puts is not None, "alive as long as something is pending"
                    puts.put_op(op, puts.deadline(None) if deadline_ms is None else deadline_ms)
                except (EngineError, IpcError) as failure:
                    with self._lock:
                        self._refused.extendleft(reversed(ops[number:]))
                        self._try_later()
                    return failure
            with self._lock:
                self._pause_ms = AGAIN_MS
                if not self._refused and self._batches.next_due_ms() is None:
                    self._owner = None  # still ours here: it does not end before this call does
            return None

    def _try_later(self) -> None:
        """Set when refused messages are tried again, and wake the thread, which may have seen nothing pending."""
        self._again_at_ms = monotonic_ms() + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, AGAIN_MS_MAX)
        self._changed.notify_all()
