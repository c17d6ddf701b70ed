"""Tells an empty commit log that is new from one whose files are missing, because a disk is not mounted for example.

A new log has nothing beside it. Where the checkpoint, the mark, the epochs, the queues or the index tell of a log, its
files were there: to begin another history would delete the queues and acknowledge messages at offsets that are taken.
That the oldest files are missing, and not deleted by a broker, says `store.notes.log_begin`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from store.errors import StoreError
from store.files import checkpoint as checkpoint_file
from store.files.checkpoint import Checkpoint
from store.files.directory import StoreDirectory
from store.files.segment import file_name
from store.files.segment_files import named_files
from store.index.query import index_files
from store.names import BATCH_QUEUES
from store.notes import epochs, flushed_mark, log_begin
from store.queues.consume_queue import queue_directories

ENTRY_BYTES_MAX = 64  # at least the first entry of a queue of any kind


class LogMissing(StoreError):
    """Raised when files of the commit log are missing, although other files of the store refer to them.

    Next: mount the disk of the commit log and start again; if its files are lost, `slipstream log repair
    --forget-missing STORE`, or begin a new store.
    """

    code = "LOG_MISSING"

    def __init__(self, path: str, why: str, root: str) -> None:
        super().__init__(
            f"{path}: files of the commit log are missing: {why}; nothing was changed. Is the disk mounted? Mount it,"
            f" or restore the files; to continue without them: `slipstream log repair --forget-missing {root}`"
        )
        self.path, self.why = path, why


def require(directory: StoreDirectory, bases: Sequence[int]) -> None:
    """Raise LogMissing where the log must have had files before, or at, those that begin at `bases`."""
    if why := missing(directory, bases):
        raise LogMissing(str(directory.commitlog), why, str(directory.root))


def missing(directory: StoreDirectory, bases: Sequence[int]) -> str:
    """Why it is known that files of the log are missing; empty where nothing says so. Raises OwnFileDamaged."""
    if not bases:
        said = _said(directory, *_known(directory))
        return f"it has no files, but {said}" if said else ""
    if why := missing_end(directory, bases):
        return why
    begin = log_begin.read(directory)
    if begin is not None and bases[0] > begin:
        return f"its first file begins at offset {bases[0]}, but it began at {begin}, and no broker deleted that"
    return ""


def missing_end(directory: StoreDirectory, bases: Sequence[int]) -> str:
    """Why it is known that no file is left of what was on disk, though others, which begin at `bases`, are there."""
    checkpoint, mark = _known(directory)
    if mark is not None and not flushed_mark.counts(mark, directory):
        return ""  # a RocketMQ broker ran there since, and may have deleted all that we knew
    flushed = _flushed(checkpoint, mark)
    if flushed and bases[0] > flushed and (mark is None or not mark.is_copied_to(directory.root)):
        return f"its first file begins at offset {bases[0]}, but it was on disk up to offset {flushed} before"
    return ""


def _known(directory: StoreDirectory) -> tuple[Checkpoint, flushed_mark.Note | None]:
    return checkpoint_file.read(directory.checkpoint), flushed_mark.read(directory)


def _flushed(checkpoint: Checkpoint, mark: flushed_mark.Note | None) -> int:
    return max(checkpoint.flushed_offset or 0, mark.flushed_offset if mark is not None else 0)


def _said(directory: StoreDirectory, checkpoint: Checkpoint, mark: flushed_mark.Note | None) -> str:
    """Return what tells of a log, the cheapest first."""
    if flushed := _flushed(checkpoint, mark):
        return f"checkpoint or mark say that the log was on disk up to offset {flushed}"
    if checkpoint.physic_msg_timestamp_ms > 0:
        return f"the checkpoint names a message stored at {checkpoint.physic_msg_timestamp_ms} ms"
    known = epochs.read(directory.root)
    if known.entries and known.entries[-1].start_offset > 0:
        return f"epoch {known.last_epoch} begins at offset {known.entries[-1].start_offset}"
    for root in (directory.consumequeue, directory.root / BATCH_QUEUES):
        for topic, queue_id, path in queue_directories(root):
            if _has_entries(path):
                return f"queue {queue_id} of topic {topic} has entries"
    if names := index_files(directory.index):
        return f"the index file {names[0].name} exists"
    return ""


def _has_entries(path: Path) -> bool:
    """Whether the first file there is begins with something."""
    for base, _size in named_files(path)[:1]:
        with (path / file_name(base)).open("rb") as file:
            return any(file.read(ENTRY_BYTES_MAX))
    return False
