"""Log lines that strangers cause: one line each, without control characters, of bounded length, and few of them.

`configure` is called once in a process that serves; its formatter keeps every message on one line, whatever text it
contains. `Seldom` logs the first of a kind at once, the others as a count with the next one.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine.errors import StartRefused
from engine.net.log_file import LogFile
from engine.net.printable import one_line
from engine.settings.log_settings import LogSettings
from ipc import process

AGAIN_SECONDS = 10.0
FORMAT = "%(asctime)s %(process)d %(levelname)s %(message)s"
JOURNAL_FORMAT = "%(process)d %(levelname)s %(message)s"  # it has the time
PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
TRACE_LINES_MAX = 100


class OneLine(logging.Formatter):
    """The message on one line; a traceback below it, bounded, its lines without control characters, too."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = one_line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        lines = super().formatException(ei).splitlines()
        left_out = len(lines) - TRACE_LINES_MAX
        if left_out > 0:
            half = TRACE_LINES_MAX // 2
            lines = [*lines[:half], f"  ... {left_out} lines ...", *lines[-half:]]
        return "\n".join(one_line(line) for line in lines)


class JsonLine(OneLine):
    """A JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "process": record.process,
            "role": process.own_role(),
            "logger": record.name,
            "message": one_line(record.getMessage()),
        }
        if record.exc_info and record.exc_info[0] is not None:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


class ForJournal(logging.Formatter):
    """Another formatter's lines, each with the priority that the journal takes off it."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        priority = next((number for level, number in PRIORITIES if record.levelno >= level), 7)
        return "\n".join(f"<{priority}>{line}" for line in self._inner.format(record).splitlines())


class Threshold:
    """From which level on lines are written: one word for all processes of a broker, once there is one."""

    def __init__(self) -> None:
        self._level = logging.INFO
        self._read: Callable[[], int] | None = None

    def set(self, level: int, read: Callable[[], int] | None = None) -> None:
        """Set the level, or a function that returns it whenever a line is to be written."""
        self._level, self._read = level, read

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is to be written."""
        return record.levelno >= (self._level if self._read is None else self._read())


THRESHOLD = Threshold()


def configure(settings: LogSettings | None = None, environment: Mapping[str, str] = os.environ) -> None:
    """Set up logging as the settings say: to their file, else to standard error, in the journal's form if it is one.

    Raises StartRefused for a file that cannot be opened.
    """
    config = settings or LogSettings()
    formatter: logging.Formatter = JsonLine() if config.log_form == "json" else OneLine(FORMAT)
    handler: logging.Handler
    if config.log_file is not None:
        handler = _opened(config.log_file, config)
    else:
        handler = logging.StreamHandler()
        if _is_journal(environment):
            formatter = ForJournal(formatter if config.log_form == "json" else OneLine(JOURNAL_FORMAT))
    handler.setFormatter(formatter)
    handler.addFilter(THRESHOLD)
    THRESHOLD.set(config.log_level)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("slipstream").setLevel(logging.DEBUG)  # THRESHOLD decides, also while it serves


def _opened(path: Path, config: LogSettings) -> LogFile:
    try:
        return LogFile(Path(os.path.abspath(path)), config.log_file_max_bytes, config.log_files_kept)
    except OSError as error:
        why, what = error.strerror or str(error), "give a file that the server's user may write"
        raise StartRefused(f"logFile={path}", why, what) from None


def _is_journal(environment: Mapping[str, str]) -> bool:
    """Whether standard error is the journal's, as systemd says by device and inode."""
    try:
        state = os.fstat(2)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{state.st_dev}:{state.st_ino}"


class Seldom:
    """Warnings of which strangers may cause thousands."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._messages: dict[str, tuple[float, int]] = {}  # message: when it was logged, how many were left out since

    def tell(self, message: str, *values: object, level: int = logging.WARNING, error: bool = False) -> None:
        """Log a message, or count it if its like was logged within AGAIN_SECONDS. `message` is one of a few formats."""
        now = time.monotonic()
        told_at, untold = self._messages.get(message, (-AGAIN_SECONDS, 0))
        if now - told_at < AGAIN_SECONDS:
            self._messages[message] = told_at, untold + 1
            return
        self._messages[message] = now, 0
        more = f" (and {untold} more since the last such line)" if untold else ""
        self._log.log(level, message + more, *values, exc_info=error)
