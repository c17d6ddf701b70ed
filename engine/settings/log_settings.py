"""Where the log of a broker or a name server goes, and what of it: the keys, and the settings as fields."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.settings.key import Key

MIB = 1 << 20
INFO = 20
LEVELS = {"debug": 10, "info": INFO, "warning": 30, "error": 40}  # as the module logging, which not all commands load
FORMS = ("text", "json")
LOG_KEYS = (
    Key("logLevel", "log_level", "log_level", "info", says="lowest level that is logged. Also a name-server setting"),
    Key(
        "logForm",
        "log_form",
        "log_form",
        "text",
        says="`text`, or `json` for one object per line. Also a name-server setting",
    ),
    Key(
        "logFile",
        "log_file",
        "path",
        None,  # none given: standard error, or the journal behind it
        says="file that all processes of the broker append to. Default: standard error. Also a name-server setting",
    ),
    Key(
        "logFileMaxBytes",
        "log_file_max_bytes",
        "int",
        64 * MIB,
        64 * 1024,
        1 << 40,
        "bytes",
        says="rotate the log file to `logFile.1` when it reaches this size. Also a name-server setting",
    ),
    Key(
        "logFilesKept",
        "log_files_kept",
        "int",
        10,
        0,
        1000,
        "files",
        says="number of rotated log files to keep. Also a name-server setting",
    ),
)


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """A part of `BrokerConfig`; all that a name server's log needs."""

    log_level: int = INFO
    log_form: str = "text"
    log_file: Path | None = None
    log_file_max_bytes: int = 64 * MIB
    log_files_kept: int = 10


def value_of(kind: str, text: str) -> int | str:
    """Return what a level or a form says. Raises ValueError."""
    if kind == "log_level" and text.lower() in LEVELS:
        return LEVELS[text.lower()]
    if kind == "log_form" and text.lower() in FORMS:
        return text.lower()
    raise ValueError(text)


def level_text(level: int) -> str:
    """A level as a file says it."""
    return next((name for name, number in LEVELS.items() if number == level), str(level))
