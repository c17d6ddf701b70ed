"""The only calls of fsync, fallocate, truncate, rename and unlink below `store`: where tests inject faults.

Nothing here knows a format. Callers write `file_io.sync_data(fd)`, never `os.fdatasync`, so that a test can put an
ENOSPC or an EIO in exactly one place. Those of mmap are in `mapped_files`.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from ipc.descriptors import closing_fd
from store.errors import AccessDenied

PAGE_BYTES = mmap.PAGESIZE
CREATING_SUFFIX = ".creating"
FILE_MODE, DIRECTORY_MODE = 0o640, 0o750  # the group may read
FLOCK = struct.Struct("@hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
NO_UNNAMED_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)  # file systems without O_TMPFILE


def open_file(path: Path | str, writable: bool) -> int:
    """A descriptor of an existing file."""
    try:
        return os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    except PermissionError:
        raise denied(Path(path)) from None


def denied(path: Path) -> AccessDenied:
    """Return the error for a path that this process's user may not open, with owner and mode."""
    for place in (path, *path.parents):
        try:
            status = place.stat()
            break
        except OSError:
            continue
    return AccessDenied(str(path), os.geteuid(), status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))


def make_directories(path: Path) -> None:
    """The directory, and those above it that are missing, which the group may read; those there stay as they are."""
    if not path.is_dir():
        if path.parent != path:
            make_directories(path.parent)
        path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)


def reserve(fd: int, start: int, length: int) -> None:
    """Blocks for all pages of the range (which may have several): no store through a mapping is a SIGBUS then."""
    low, end = start - start % PAGE_BYTES, start + length
    os.posix_fallocate(fd, low, max(end, min(end + -end % PAGE_BYTES, os.fstat(fd).st_size)) - low)


def reserve_path(path: Path, start: int, length: int) -> None:
    """Reserve blocks like `reserve`, in a file given by its path."""
    with closing_fd(open_file(path, writable=True)) as fd:
        reserve(fd, start, length)


def write_at(fd: int, data: bytes | memoryview, position: int) -> None:
    """Write all of `data` at `position`."""
    view = memoryview(data).cast("B")
    while len(view):
        written = os.pwrite(fd, view, position)
        view, position = view[written:], position + written


def truncate(fd: int, size_bytes: int) -> None:
    """Set a file's length, in bytes."""
    os.ftruncate(fd, size_bytes)


def sync_data(fd: int) -> None:
    """The file's bytes are on disk when this returns. An error means that they may be lost: never retry it."""
    os.fdatasync(fd)


def sync_data_of(path: Path) -> None:
    """Sync data like `sync_data`, of a file given by its path."""
    with closing_fd(open_file(path, writable=True)) as fd:
        sync_data(fd)


def start_writing(fd: int, start: int, length: int) -> None:
    """Begin to write the range out, and wait for nothing: it is on disk for sure after the next `sync_data` only.

    A file system that cannot begins it when it likes.
    """
    from store.files import libc

    libc.start_writing(fd, start, length)


def drop_cached(fd: int, start: int, length: int) -> None:
    """Forget what the page cache holds of the range and the disk has, too: the next read is one of the disk."""
    os.posix_fadvise(fd, start, length, os.POSIX_FADV_DONTNEED)


def sync_file(fd: int) -> None:
    """Sync a file's data, length and block map to the disk."""
    os.fsync(fd)


def sync_path(path: Path) -> None:
    """Sync like `sync_file`, a file given by its path: also what was stored through mappings of it."""
    with closing_fd(open_file(path, writable=True)) as fd:
        sync_file(fd)


def data_ranges(fd: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of [start, end) that may hold something else than zeros: reserved blocks never written are skipped."""
    while start < end:
        try:
            start = os.lseek(fd, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # nothing but a hole up to the file's end
            raise
        if start >= end:
            return
        hole = min(os.lseek(fd, start, os.SEEK_HOLE), end)
        yield start, hole
        start = hole


def sync_directory(path: Path) -> None:
    """Names created, renamed or removed in the directory are on disk when this returns."""
    with closing_fd(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as fd:
        os.fsync(fd)


def rename(source: Path, target: Path) -> None:
    """Atomic replacement; the caller syncs the directory."""
    os.rename(source, target)


def give_name(fd: int, path: Path) -> None:
    """A name for a file that has none yet. Raises FileExistsError."""
    os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd, follow_symlinks=True)  # linkat, because of the dir_fd


def exchange(one: Path, other: Path) -> None:
    """Let two files or directories take each other's names, at once; the caller syncs their directories.

    Raises OSError (EINVAL where the file system cannot).
    """
    from store.files import libc

    libc.exchange_names(one, other)


def remove_tree(path: Path) -> None:
    """Remove a directory with all that is in it; one that is already gone is fine."""
    import shutil

    if path.exists():
        shutil.rmtree(path)


def sync_tree(path: Path) -> None:
    """Bring all files below the directory, and their names, to disk."""
    for directory, _names, files in os.walk(path):
        for name in files:
            sync_path(Path(directory) / name)
        sync_directory(Path(directory))


def unlink(path: Path) -> None:
    """Remove a file; one that is already gone is fine."""
    path.unlink(missing_ok=True)


def create_sparse(path: Path, size_bytes: int) -> None:
    """A file of zeros without blocks, to be written with pwrite (a full disk is an error there); not yet on disk."""
    _create(path, lambda fd: truncate(fd, size_bytes))


def write_into_sparse(path: Path, data: bytes | memoryview, position: int, size_bytes: int) -> int:
    """Write `data` at `position` of a file, made with its directory where it is missing; its descriptor, to close."""
    try:
        fd = open_file(path, writable=True)
    except FileNotFoundError:
        make_directories(path.parent)
        create_sparse(path, size_bytes)
        fd = open_file(path, writable=True)
    try:
        write_at(fd, data, position)
    except BaseException:
        os.close(fd)
        raise
    return fd


def create_reserved(path: Path, size_bytes: int) -> None:
    """A file of zeros with all its blocks, under its name only when it is whole and on disk; an existing file stays.

    Raises OSError (ENOSPC when there is no room) and leaves nothing behind.
    """

    def fill(fd: int) -> None:
        reserve(fd, 0, size_bytes)
        sync_file(fd)

    _create(path, fill)
    sync_directory(path.parent)


def _create(path: Path, fill: Callable[[int], None]) -> None:
    """A file that gets its name when it is whole; an existing file stays.

    It has no name until then: RocketMQ refuses a directory with any file that is not as long as its files are, or whose
    name is no number, so one that a killed process left behind would be in its way.
    """
    unlink(path.with_name(path.name + CREATING_SUFFIX))
    try:
        fd = os.open(path.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        if error.errno not in NO_UNNAMED_FILES:
            raise
        _create_named(path, fill)
        return
    try:
        fill(fd)
        with suppress(FileExistsError):
            give_name(fd, path)
    finally:
        os.close(fd)


def _create_named(path: Path, fill: Callable[[int], None]) -> None:
    """The same on a file system that has no files without names."""
    creating = path.with_name(path.name + CREATING_SUFFIX)
    fd = os.open(creating, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        fill(fd)
        if not path.exists():
            rename(creating, path)
    finally:
        os.close(fd)
        unlink(creating)


def replace_file(path: Path, content: bytes, mode: int = FILE_MODE) -> None:
    """The file's new content, all or nothing, also after a power cut."""
    os.close(_replace(path, content, mode, held=False))


def replace_alike(path: Path, content: bytes) -> None:
    """Replace a file like `replace_file`, and keep its owner, group and rights. On OSError the old file is kept."""
    os.close(_replace(path, content, FILE_MODE, held=False, like=path.stat()))


def replace_held(path: Path, content: bytes, mode: int = FILE_MODE) -> int:
    """Replace like `replace_file`; return the descriptor that holds the new file: `is_held` is true until it is closed.

    A forked child holds it, too, until its end.
    """
    return _replace(path, content, mode, held=True)


def _replace(path: Path, content: bytes, mode: int, *, held: bool, like: os.stat_result | None = None) -> int:
    creating = path.with_name(path.name + CREATING_SUFFIX)
    fd = os.open(creating, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        if held:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        if like is not None:
            os.fchown(fd, like.st_uid, like.st_gid)
            os.fchmod(fd, stat.S_IMODE(like.st_mode))
        write_at(fd, content, 0)
        sync_file(fd)
        rename(creating, path)
        sync_directory(path.parent)
    except BaseException:
        os.close(fd)
        raise
    finally:
        unlink(creating)
    return fd


def append_to(path: Path, data: bytes) -> None:
    """Add `data` to the file's end, in one piece; made if it is not there. Not yet on disk."""
    with closing_fd(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)) as fd:
        os.write(fd, data)


def used_percent(path: Path) -> int:
    """Return how full the file system is, in percent, rounded up as UtilAll.getDiskPartitionSpaceUsedPercent does.

    What only root may still use counts neither as used nor as free. -1 when it cannot be told.
    """
    try:
        space = os.statvfs(path)
    except OSError:
        return -1
    used = space.f_blocks - space.f_bfree
    entire = used + space.f_bavail
    return -(-used * 100 // entire) if space.f_blocks > 0 and entire > 0 else -1
