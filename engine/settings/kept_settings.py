"""Writes settings that an administrator changed into a server's properties file: the next start has them, too.

Implements: Configuration.persist (RocketMQ writes all settings anew, without the file's comments and order)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engine.settings.properties_file import MalformedEscape, with_values
from store.files import file_io


def keep(file: str, values: Mapping[str, str]) -> None:
    """Return once the file says these values on disk; all else in it stays, and so do its owner and its rights.

    A link stays a link to the file that is written. Raises OSError; then the file says what it said.
    """
    path = Path(file).resolve(strict=True)
    before = path.read_bytes()
    after = with_values(before, values)
    if after != before:
        file_io.replace_alike(path, after)


def why_not_kept(file: str, values: Mapping[str, str]) -> str:
    """Do that; why it is not done in words, empty once it is."""
    try:
        keep(file, values)
    except (OSError, MalformedEscape) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return f"{file} cannot be written: {reason}"
    return ""
