"""Log lines that strangers cause: one line each, without control characters, of bounded length, and few of them.

`configure` is called once in a process that serves; its formatter keeps every message on one line, whoever sent the
text in it. `Seldom` tells the first of a kind at once, the others as a count with the next one.
"""

from __future__ import annotations

import logging
import time

from engine.net.printable import one_line

AGAIN_SECONDS = 10.0
FORMAT = "%(asctime)s %(process)d %(levelname)s %(message)s"


class OneLine(logging.Formatter):
    """The message on one line; a traceback, which nobody else writes, below it as it is."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = one_line(record.message)
        return super().formatMessage(record)


def configure() -> None:
    """To standard error, from INFO on."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine(FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class Seldom:
    """Warnings of which strangers may cause thousands."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._messages: dict[str, tuple[float, int]] = {}  # message: when it was told, how many were not since

    def tell(self, message: str, *values: object, level: int = logging.WARNING, error: bool = False) -> None:
        """Log it, unless its like was told within AGAIN_SECONDS: then it is counted. `message` is one of a few."""
        now = time.monotonic()
        told_at, untold = self._messages.get(message, (-AGAIN_SECONDS, 0))
        if now - told_at < AGAIN_SECONDS:
            self._messages[message] = told_at, untold + 1
            return
        self._messages[message] = now, 0
        more = f" (and {untold} more since the last such line)" if untold else ""
        self._log.log(level, message + more, *values, exc_info=error)
