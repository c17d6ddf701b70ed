"""The folder of a segment's side files: its names, who may write there, and what goes when the segment goes.

A side file is made from a sealed segment and can be made again at any time; losing one costs nothing but that. It lies
below the store's root under a name that RocketMQ does not know. What it says is `spark_bridge/columnar`'s.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from store.errors import ForeignFile, StoreError
from store.files import file_io
from store.files.segment import NAME_DIGITS, file_name
from store.files.segment_files import is_offset
from store.names import COLUMNS

DATA_SUFFIX, MANIFEST_SUFFIX = ".parquet", ".json"
SUFFIXES = (MANIFEST_SUFFIX, DATA_SUFFIX)  # in the order in which they are removed: no manifest, no side file


class SideFilesBusy(StoreError):
    """Raised when another process makes or removes side files of this store.

    Next: wait for it; it belongs to the broker (`columnarSidecar=true`) or is another `slipstream log sidecar`.
    """

    code = "SIDE_FILES_BUSY"

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{folder}: another process makes or removes side files here; wait for it, then repeat this")


def folder_of(root: Path | str) -> Path:
    """Return where the side files of the store at `root` lie; it need not be there."""
    return Path(root) / COLUMNS


def data_path(root: Path | str, base_offset: int) -> Path:
    """The Parquet file of the segment at that offset."""
    return folder_of(root) / f"{file_name(base_offset)}{DATA_SUFFIX}"


def manifest_path(root: Path | str, base_offset: int) -> Path:
    """Return the path of the manifest: whether the Parquet file is valid, or why there is no such file."""
    return folder_of(root) / f"{file_name(base_offset)}{MANIFEST_SUFFIX}"


def listed(root: Path | str) -> dict[int, set[str]]:
    """The segments that have files there, and which by their suffixes. Raises ForeignFile, AccessDenied, OSError."""
    by_base: dict[int, set[str]] = {}
    for name in _names(root):
        base, suffix = name[:NAME_DIGITS], name[NAME_DIGITS:]
        if is_offset(base) and suffix in SUFFIXES:
            by_base.setdefault(int(base), set()).add(suffix)
    return dict(sorted(by_base.items()))


def remove(root: Path | str, base_offset: int) -> bool:
    """Remove the side files of one segment, whatever they say; whether there were any. Raises ForeignFile, OSError."""
    refuse_foreign(folder_of(root))
    paths = manifest_path(root, base_offset), data_path(root, base_offset)
    were_there = [path for path in paths if os.path.lexists(path)]
    for path in were_there:
        file_io.unlink(path)
    return bool(were_there)


def remove_leftovers(root: Path | str) -> int:
    """Remove what killed builders did not finish; only for who holds the folder. Raises ForeignFile, OSError."""
    names = [name for name in _names(root) if name.endswith(file_io.CREATING_SUFFIX)]
    for name in names:
        file_io.unlink(folder_of(root) / name)
    return len(names)


def make_folder(root: Path | str) -> Path:
    """Make the folder, readable for all who may read the store, and return it. Raises ForeignFile, OSError."""
    folder = folder_of(root)
    try:
        folder.mkdir(mode=file_io.DIRECTORY_MODE)
    except FileExistsError:
        refuse_foreign(folder)
        return folder
    folder.chmod(stat.S_IMODE(folder.stat().st_mode) | file_io.DIRECTORY_MODE)  # with what a group's folder hands on
    give_to_owner(root, folder)
    file_io.sync_directory(Path(root))
    return folder


def give_to_owner(root: Path | str, path: Path) -> None:
    """Give what root makes for a broker of another user to that user, who has to remove it one day."""
    owner = os.stat(root)
    if os.geteuid() == 0 and owner.st_uid != 0:
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def hold(root: Path | str) -> int:
    """A descriptor that keeps other builders out of the folder until it is closed. Raises SideFilesBusy, OSError."""
    folder = folder_of(root)
    refuse_foreign(folder)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise SideFilesBusy(folder) from None
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENOLCK, errno.EBADF):
            os.close(fd)
            raise
    return fd


def refuse_foreign(folder: Path) -> None:
    """Raise ForeignFile for what is not a folder of this store: what lies behind a link is another store's."""
    try:
        mode = folder.lstat().st_mode
    except FileNotFoundError:
        return
    except PermissionError:
        raise file_io.denied(folder) from None
    if not stat.S_ISDIR(mode):
        raise ForeignFile(str(folder), "no folder (a link, a file) in the place of the folder of side files")


def _names(root: Path | str) -> Iterator[str]:
    folder = folder_of(root)
    refuse_foreign(folder)
    try:
        with os.scandir(folder) as entries:
            yield from [entry.name for entry in entries]
    except FileNotFoundError:
        return
    except PermissionError:
        raise file_io.denied(folder) from None
