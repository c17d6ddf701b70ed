"""Futures of messages that are on their way: one thread that waits for their answers, in the order of sending.

Answers come in that order (offsets only grow), so a future behind another loses nothing by waiting for it; its own
deadline still counts, because it is checked against the clock the moment its turn comes.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple

from engine.errors import EngineError, ForeignProducer
from ipc.clock import monotonic_ms

PENDING_MAX = 4096
LOOK_MS = 100  # between two looks whether there is room
CLOSE_SECONDS = 10.0


class Pending(NamedTuple):
    """`answer` waits; `forget` is called instead where the future was cancelled before."""

    future: Future[Any]
    answer: Callable[[], Any]
    forget: Callable[[], None]


class SendFuture(Future[Any]):
    """A future whose answer comes in the process that sent, and in no child of it: to wait there is an error."""

    def __init__(self, store: str, owner: int) -> None:
        super().__init__()
        self._store, self._owner = store, owner

    def result(self, timeout: float | None = None) -> Any:
        """Return the result like Future.result. Raises ForeignProducer in a process that did not send."""
        self._require_owned()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception like Future.exception. Raises ForeignProducer in a process that did not send."""
        self._require_owned()
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Add a callback like Future.add_done_callback. Raises ForeignProducer in a process that did not send."""
        self._require_owned()
        super().add_done_callback(fn)

    def _require_owned(self) -> None:
        if os.getpid() != self._owner:
            raise ForeignProducer(self._store, self._owner)


class Answers:
    """The pending futures of one producer, which it does not keep alive once all are answered."""

    def __init__(self, store: str) -> None:
        self._store, self._owner = store, os.getpid()
        self._pending: queue.SimpleQueue[Pending | None] = queue.SimpleQueue()
        self._answered: queue.SimpleQueue[None] = queue.SimpleQueue()  # filled while a call waits for room
        self._is_awaited = False
        self._thread = threading.Thread(target=self._run, name="answers", daemon=True)
        self._thread.start()

    def await_room(self, deadline_ms: int) -> None:
        """Have room for one more; one thread at a time. Raises EngineError when there is none in time.

        Nothing is held here: a signal's handler may raise at any moment, and threading's semaphores and conditions
        stay locked for ever where it does so in their midst.
        """
        while self._pending.qsize() >= PENDING_MAX - 1:  # one more is being answered
            left_ms = deadline_ms - monotonic_ms()
            if left_ms <= 0:
                raise EngineError(f"{PENDING_MAX} futures are pending and none was answered in time; nothing was sent")
            self._is_awaited = True
            with suppress(queue.Empty):
                self._answered.get(timeout=min(left_ms, LOOK_MS) / 1000)

    def add(self, answer: Callable[[], Any], forget: Callable[[], None]) -> Future[Any]:
        """A future of what `answer`, which waits, will return or raise."""
        future = SendFuture(self._store, self._owner)
        self._pending.put(Pending(future, answer, forget))
        return future

    def end(self) -> None:
        """Let the thread end when it has answered what is pending."""
        self._pending.put(None)

    def close(self) -> None:
        """Answer what is pending, then end the thread."""
        self.end()
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while (entry := self._pending.get()) is not None:
            future, answer, forget = entry
            try:
                if future.set_running_or_notify_cancel():
                    future.set_result(answer())
                else:
                    forget()
            except Exception as error:
                future.set_exception(error)
            finally:
                if self._is_awaited:
                    self._is_awaited = False
                    self._answered.put(None)
                del entry, future, answer, forget  # they keep their producer alive
