"""Which texts are secrets, and how they are kept out of whatever is handed on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from engine.settings.properties_file import Entry, MalformedEscape, parse

MASK = "***"
SECRET_KEY = re.compile(r"passw|secret|accesskey|credential|token|private|key(path|file|store|password)", re.IGNORECASE)
SECRET_BYTES_MIN = 4  # a shorter one stands in every text by accident
FILE_BYTES_MAX = 64 * 1024


def entries_of(content: bytes) -> list[Entry]:
    """The lines of a properties file; none of one that is malformed."""
    try:
        return list(parse(content))
    except MalformedEscape:
        return []


def is_secret(entry: Entry) -> bool:
    """Whether its value is to be masked; that something is switched on or off is no secret."""
    return bool(SECRET_KEY.search(entry.key)) and entry.value.strip().lower() not in ("", "true", "false")


def masked(content: bytes) -> bytes:
    """A properties file as keys and values, without comments, in which anything may stand."""
    lines = [f"{one.key}={MASK if is_secret(one) else one.value}" for one in entries_of(content)]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")


def secrets_of(content: bytes) -> set[bytes]:
    """Return what may stand nowhere: secret values of a properties file, and what the files say that they name."""
    secrets: set[bytes] = set()
    for entry in filter(is_secret, entries_of(content)):
        value = entry.value.strip()
        secrets.add(value.encode("utf-8", "replace"))
        secrets |= _lines_of(Path(value).expanduser())
    return {secret for secret in secrets if len(secret) >= SECRET_BYTES_MIN}


def _lines_of(path: Path) -> set[bytes]:
    """The secret in a file, where that may be read."""
    try:
        if not path.is_file():
            return set()
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX)
    except (OSError, ValueError):
        return set()
    return {line.strip() for line in content.splitlines()}


def without(content: bytes, secrets: Iterable[bytes]) -> bytes:
    """The content with every secret masked."""
    for secret in sorted(secrets, key=len, reverse=True):
        content = content.replace(secret, MASK.encode())
    return content
