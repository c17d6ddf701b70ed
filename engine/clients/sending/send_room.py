"""Limits how many messages, and how many of their bytes, a producer holds until they are answered."""

from __future__ import annotations

import threading
import time

from engine.clients.loop_thread import ClientClosed
from engine.errors import EngineError


class SendRoom:
    """Room for `count_max` messages of `bytes_max` bytes in all. One message alone always has room."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max, self._bytes_max = count_max, bytes_max
        self._count = self._bytes = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def take(self, size: int, deadline: float) -> None:
        """Wait for room for a message of `size` bytes, until `deadline` of `time.monotonic`.

        Raises ClientClosed; EngineError if there is no room in time.
        """
        with self._changed:
            while not self.try_take(size):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise EngineError(
                        f"{self._count} messages of {self._bytes} bytes are not answered yet, and there was no room "
                        "for one more in time; nothing was sent; wait for answers, or raise pending_max"
                    )
                self._changed.wait(left)

    def try_take(self, size: int) -> bool:
        """Take room for a message if there is some now. Raises ClientClosed."""
        with self._changed:
            if self._is_closed:
                raise ClientClosed()
            has_room = self._has_room(size)
            if has_room:
                self._count, self._bytes = self._count + 1, self._bytes + size
            return has_room

    def _has_room(self, size: int) -> bool:
        return not self._count or (self._count < self._count_max and self._bytes + size <= self._bytes_max)

    def give(self, size: int) -> None:
        """Give back the room of a message."""
        with self._changed:
            self._count, self._bytes = self._count - 1, self._bytes - size
            self._changed.notify_all()

    def await_empty(self, deadline: float) -> int:
        """Wait until all messages are answered; return how many are not at the deadline."""
        with self._changed:
            while self._count and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            return self._count

    def close(self) -> None:
        """Let no further message in."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
