"""What a command's exit code says."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """All that any command ends with."""

    WELL = 0
    FOUND = 1  # a check failed, or something was found
    USAGE = 2  # wrong usage or configuration
    NO_BROKER = 3
    STORE = 4  # input, output or the store failed
    INTERRUPTED = 130
