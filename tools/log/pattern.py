"""Whether a regular expression matches in a message, in bounded time: some expressions take for ever at some texts.

A timer that counts this process's CPU time looks every second whether the search is at the same message as at the last
look; Python's matcher lets such a signal in, and the search ends with an error.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from store.errors import StoreError
from store.message.record import Message
from tools.common.message_text import body_shown, inner_messages

LOOK_SECONDS = 1.0  # of CPU time: a search ends after one to two of them


class PatternTooSlow(StoreError):
    """Raised when a regular expression takes too long at one message.

    Next: write the expression without a repetition inside a repetition.
    """

    code = "PATTERN_TOO_SLOW"

    def __init__(self, pattern: str, offset: int) -> None:
        super().__init__(
            f"the expression {pattern!r} takes more than {LOOK_SECONDS:.0f} to {2 * LOOK_SECONDS:.0f} s of CPU time at"
            f" the message at offset {offset}; write it without a repetition inside a repetition"
        )


class Grep:
    """One expression, asked of message after message inside of `bounded`."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self._searching: int | None = None  # at the message of that offset
        self._seen: int | None = None  # at the timer's last look

    def matches(self, message: Message) -> bool:
        """Whether it matches in the body as shown, or in a property as NAME=value. Raises PatternTooSlow."""
        self._searching = message.physical_offset
        try:
            return any(self._pattern.search(text) for text in _texts(message))
        finally:
            self._searching = None

    @contextmanager
    def bounded(self) -> Iterator[None]:
        """End searches that take too long, while the block runs."""
        before = signal.signal(signal.SIGVTALRM, self._look)
        signal.setitimer(signal.ITIMER_VIRTUAL, LOOK_SECONDS, LOOK_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
            signal.signal(signal.SIGVTALRM, before)

    def _look(self, _number: int, _frame: Any) -> None:
        seen, self._seen = self._seen, self._searching
        if seen is not None and seen == self._searching:
            raise PatternTooSlow(self._pattern.pattern, seen)


def _texts(message: Message) -> Iterator[str]:
    for each in inner_messages(message) or [message]:
        yield body_shown(each)[0].decode(errors="replace")
        for name, value in each.properties.items():
            yield f"{name}={value}"
