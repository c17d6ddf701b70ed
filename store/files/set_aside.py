"""Files that are kept under another name because they must not be used: NAME.aside, then NAME.aside-2 and so on."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from store.files import file_io

SUFFIX = ".aside"
SHOWN_MAX, KEPT_MAX = 100, 16


def set_aside(path: Path) -> Path:
    """Give the file a name under which nobody uses it, durably; the new path. Raises OSError."""
    aside = _free_name(path)
    file_io.rename(path, aside)
    file_io.sync_directory(path.parent)
    return aside


def keep_aside(path: Path) -> Path | None:
    """Give the file a second such name, durably; the path. The caller replaces the file itself.

    The earlier name where an equal file was kept before; None where KEPT_MAX others were. Raises OSError.
    """
    kept = files_of(path)
    for aside in kept:
        if _are_equal(path, aside):
            return aside
    if len(kept) >= KEPT_MAX:
        return None
    aside = _free_name(path)
    try:
        os.link(path, aside)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        return set_aside(path)  # a file system without links
    file_io.sync_directory(path.parent)
    return aside


def _free_name(path: Path) -> Path:
    number, aside = 1, path.with_name(path.name + SUFFIX)
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}{SUFFIX}-{number}")
    return aside


def _are_equal(one: Path, other: Path) -> bool:
    try:
        return one.stat().st_size == other.stat().st_size and one.read_bytes() == other.read_bytes()
    except PermissionError:  # nobody can tell
        return one.samefile(other)


def files_of(path: Path) -> list[Path]:
    """The files that were set aside from that name, sorted. Raises OSError."""
    return sorted(path.parent.glob(f"{path.name}{SUFFIX}*"))[:SHOWN_MAX]


def all_in(directory: Path) -> list[Path]:
    """The files of a directory that were set aside, sorted; none where there is no such directory."""
    return sorted(directory.glob(f"*{SUFFIX}*"))[:SHOWN_MAX]


def name_of(aside: Path) -> str:
    """Return the name that a file had before it was set aside."""
    return aside.name.partition(SUFFIX)[0]
