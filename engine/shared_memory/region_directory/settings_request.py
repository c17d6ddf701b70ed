"""Settings that a broker's file says anew, from its supervisor to the clients role: a file beside the regions.

The clients role is the only writer of their words. It renames the file before it reads it, so that one that is written
meanwhile is another one; what it took and did not come to, it finds when it is started again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from store.notes import summed_json
from store.notes.summed_json import Damaged

NAME, TAKEN = "settings-request", "settings-request.taken"


def write(directory: Path, wanted: Mapping[str, int]) -> None:
    """Ask for these words, by the settings' names. Raises OSError."""
    summed_json.write(directory / NAME, {"settings": dict(wanted)})


def take(directory: Path) -> dict[str, int]:
    """The words that are asked for; none when nothing is, which costs little to find. `done` is to follow."""
    if not any(os.access(f"{directory}/{name}", os.F_OK) for name in (NAME, TAKEN)):
        return {}
    with suppress(FileNotFoundError):
        os.rename(directory / NAME, directory / TAKEN)
    try:
        fields = summed_json.read(directory / TAKEN)
    except (Damaged, OSError):
        return {}
    settings = (fields or {}).get("settings")
    return {str(name): int(word) for name, word in settings.items()} if isinstance(settings, dict) else {}


def done(directory: Path) -> None:
    """Note that the settings that were taken are published."""
    (directory / TAKEN).unlink(missing_ok=True)


def is_pending(directory: Path) -> bool:
    """Whether the last one that was written is not published yet."""
    return (directory / NAME).exists() or (directory / TAKEN).exists()
