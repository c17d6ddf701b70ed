"""Files that are kept under another name because they must not be used: NAME.aside, then NAME.aside-2 and so on."""

from __future__ import annotations

from pathlib import Path

from store.files import file_io

SUFFIX = ".aside"
SHOWN_MAX = 100


def set_aside(path: Path) -> Path:
    """Give the file a name under which nobody uses it, durably; the new path. Raises OSError."""
    number, aside = 1, path.with_name(path.name + SUFFIX)
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}{SUFFIX}-{number}")
    file_io.rename(path, aside)
    file_io.sync_directory(path.parent)
    return aside


def files_of(path: Path) -> list[Path]:
    """The files that were set aside from that name, sorted. Raises OSError."""
    return sorted(path.parent.glob(f"{path.name}{SUFFIX}*"))[:SHOWN_MAX]
