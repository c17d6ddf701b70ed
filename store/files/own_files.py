"""Files that a store shares with another one, by hard or symbolic links, become its own before they are written.

A copy made of links (`cp -al`, `rsync --link-dest`, `cp -as`) has the original's very files: what is written in place
would change the original. A process that is about to write calls this, under the store's lock and before any of its
other processes has the file open. A file that is deleted or replaced whole needs nothing: a name is each store's own.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from ipc.descriptors import closing_fd
from store.files import file_io
from store.files.directory import StoreDirectory
from store.files.segment_files import stated_files

log = logging.getLogger("slipstream")

CHUNK_BYTES = 8 << 20


def make_own(path: Path) -> bool:
    """Give the file's name to a copy of it if other names lead to it, too; whether that was so. Raises OSError."""
    status = path.lstat()
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        return False
    if not path.is_file():
        return False
    log.warning("%s: shared with another store by links; copied to a file of its own", path)
    _copy(path)
    return True


def make_tail_own(directory: StoreDirectory, end_offset: int) -> None:
    """The segments of the log that may be written from now on, as the log ends there."""
    for base, status in stated_files(directory.commitlog):
        if base + status.st_size > end_offset:
            make_own(directory.commitlog / f"{base:020d}")


def make_rest_own(directory: StoreDirectory) -> None:
    """Make own files of all that is written in place beside the log: queues of every kind, the index, the root's."""
    for root in (*directory.queue_directories(), directory.index):
        make_tree_own(root)
    _make_own(path for path in directory.root.iterdir() if path not in (directory.lock_path, directory.pointer))


def make_tree_own(root: Path) -> None:
    """Make all files below a directory the store's own. Raises OSError."""
    for path, _names, files in os.walk(root):
        _make_own(Path(path) / name for name in files)


def _make_own(paths: Iterable[Path]) -> None:
    for path in list(paths):
        make_own(path)


def _copy(path: Path) -> None:
    creating = path.with_name(path.name + file_io.CREATING_SUFFIX)
    file_io.unlink(creating)
    with closing_fd(file_io.open_file(path, writable=False)) as source:
        status = os.fstat(source)
        target = os.open(creating, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, stat.S_IMODE(status.st_mode))
        try:
            _fill(source, target, status)
            file_io.rename(creating, path)
        finally:
            os.close(target)
            file_io.unlink(creating)
    file_io.sync_directory(path.parent)


def _fill(source: int, target: int, status: os.stat_result) -> None:
    """The same bytes, blocks, owner and times: retention goes by when a file was written last."""
    file_io.truncate(target, status.st_size)
    if status.st_blocks * 512 >= status.st_size > 0:
        file_io.reserve(target, 0, status.st_size)
    for start, end in file_io.data_ranges(source, 0, status.st_size):
        for at in range(start, end, CHUNK_BYTES):
            file_io.write_at(target, os.pread(source, min(CHUNK_BYTES, end - at), at), at)
    if os.geteuid() == 0:
        os.fchown(target, status.st_uid, status.st_gid)
    os.fchmod(target, stat.S_IMODE(status.st_mode))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    file_io.sync_file(target)
