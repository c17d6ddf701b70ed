"""Futures of messages that are on their way: one thread that waits for their answers, in the order of sending.

Answers come in that order (offsets only grow), so a future behind another loses nothing by waiting for it; its own
deadline still counts, because it is checked against the clock the moment its turn comes.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from engine.errors import EngineError
from engine.role import wall_clock_ms

PENDING_MAX = 4096  # far fewer than a ring has descriptors: a place is read before its descriptor is used again
CLOSE_SECONDS = 10.0


class Answers:
    """The pending futures of one producer."""

    def __init__(self) -> None:
        self._pending: queue.Queue[tuple[Future[Any], Callable[[], Any]] | None] = queue.Queue()
        self._room = threading.BoundedSemaphore(PENDING_MAX)
        self._reserved = False
        self._thread = threading.Thread(target=self._run, name="answers", daemon=True)
        self._thread.start()

    def await_room(self, deadline_ms: int) -> None:
        """Have room for one more. Raises EngineError when there is none in time."""
        if self._reserved:
            return  # the send that reserved it failed before it had a future
        if not self._room.acquire(timeout=max(0.0, (deadline_ms - wall_clock_ms()) / 1000)):
            raise EngineError(f"{PENDING_MAX} futures are pending and none was answered in time; nothing was sent")
        self._reserved = True

    def add(self, answer: Callable[[], Any]) -> Future[Any]:
        """A future of what `answer`, which waits, will return or raise."""
        self._reserved = False
        future: Future[Any] = Future()
        self._pending.put((future, answer))
        return future

    def close(self) -> None:
        """Answer what is pending, then end the thread."""
        self._pending.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while (entry := self._pending.get()) is not None:
            future, answer = entry
            try:
                if future.set_running_or_notify_cancel():
                    future.set_result(answer())
            except Exception as error:
                future.set_exception(error)
            finally:
                self._room.release()
