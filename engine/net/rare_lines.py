"""Lines of the log that strangers can cause: a few of each kind a minute, then how many more there were.

A kind is a fixed word of the program, so that what is remembered is bounded, too.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

PERIOD_MS, LINES_A_PERIOD = 60_000, 10


@dataclass(slots=True)
class _Kind:
    since_ms: int
    lines: int = 0
    untold: int = 0


class RareLines:
    """The lines of one role."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._kinds: dict[str, _Kind] = {}

    def may_tell(self, kind: str, now_ms: int) -> bool:
        """Whether one more line of this kind may be written now; else it is counted for `flush`."""
        known = self._kinds.setdefault(kind, _Kind(now_ms))
        if known.lines == LINES_A_PERIOD:
            known.untold += 1
            return False
        known.lines += 1
        return True

    def tell(self, kind: str, now_ms: int, text: str, *args: object) -> None:
        """A warning of this kind, unless there were enough of them."""
        if self.may_tell(kind, now_ms):
            self._log.warning(text, *args)

    def flush(self, now_ms: int) -> None:
        """Log how many lines of the last period were left out."""
        for kind, known in list(self._kinds.items()):
            if now_ms - known.since_ms < PERIOD_MS:
                continue
            del self._kinds[kind]
            if known.untold:
                self._log.warning("%s: %d more of them in %d s", kind, known.untold, (now_ms - known.since_ms) // 1000)
