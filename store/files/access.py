"""Who may read a store beside the user that its broker runs as: one group, which the key `storeGroup` names.

Files are made 0640 and directories 0750. With a group they are given to it, and directories hand it on (setgid) to what
is made in them; the folder of leases can be written by it (sticky: each its own files only). Without one it is the
group of the broker's user.
"""

from __future__ import annotations

import grp
import os
import stat
from collections.abc import Iterable
from pathlib import Path

GROUP_DIRECTORY_MODE = 0o2750
LEASES_MODE = 0o3770
GROUP_UMASK = 0o027
GROUP_ID_MAX = 2**32 - 2


def group_id(name: str) -> int:
    """The group of that name or number. Raises KeyError."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        if name.isdecimal() and int(name) <= GROUP_ID_MAX:
            return int(name)
        raise


def give(directories: Iterable[Path], gid: int) -> None:
    """Give directories, with all that is in them, to the group; those that are its own already are not looked through.

    Raises OSError.
    """
    for directory in directories:
        if directory.is_dir() and not _is_given(directory, gid):
            _give_tree(directory.resolve(), gid)


def give_leases(folder: Path, gid: int) -> None:
    """Readers of the group may put leases there. Raises OSError."""
    folder.mkdir(exist_ok=True)
    if not folder.is_symlink():
        _give(folder, gid, LEASES_MODE)


def _is_given(directory: Path, gid: int) -> bool:
    status = directory.stat()
    return status.st_gid == gid and stat.S_IMODE(status.st_mode) & GROUP_DIRECTORY_MODE == GROUP_DIRECTORY_MODE


def _give_tree(root: Path, gid: int) -> None:
    """Give a tree to a group, from the leaves to the root: the root shows that all below it is done."""
    for path, names, files in os.walk(root, topdown=False):
        for name in files:
            file = Path(path) / name
            if stat.S_ISREG(file.lstat().st_mode):
                _give(file, gid, stat.S_IMODE(file.lstat().st_mode) & ~0o007 | stat.S_IRGRP)
        for name in names:
            if not (Path(path) / name).is_symlink():
                _give(Path(path) / name, gid, GROUP_DIRECTORY_MODE)
    _give(root, gid, GROUP_DIRECTORY_MODE)


def _give(path: Path, gid: int, mode: int) -> None:
    os.chown(path, -1, gid, follow_symlinks=False)
    path.chmod(mode)
