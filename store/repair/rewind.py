"""Cuts a log back to where it and another one of its pair part, keeps what goes, and forgets the divergence.

In this order, each step durable before the next: the kept copy; a journal of the rewind; the cut (`repair.cut`, queues
and index with the log); the epochs behind the cut; the note of the divergence; the journal. Killed before the journal,
nothing has changed; after it, the next rewind or the next start of a broker finishes, if nobody wrote to the log in
between (`repair.journal`). Consumers' offsets stay.
The caller holds the store's lock.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from store.errors import StoreError
from store.files.directory import StoreDirectory
from store.files.segment_files import SegmentFiles
from store.names import REWIND_JOURNAL
from store.notes import divergence, epochs
from store.repair import kept
from store.repair.cut import Going, LogCut
from store.repair.journal import Bound, Journal

JOURNAL_MAGIC = b"SLIPREW2"


class NoBoundary(StoreError):
    """Raised for an offset within a record.

    Next: `slipstream replica check STORE --with OTHER` names a valid offset.
    """

    code = "OFFSET_OUT_OF_RANGE"

    def __init__(self, path: str, offset: int) -> None:
        super().__init__(
            f"{path}: no record begins or ends at offset {offset}; `slipstream replica check` and `slipstream log cat`"
            " name valid offsets"
        )


class Rewound(NamedTuple):
    """The result of a rewind; `file` holds what went, None when nothing was to be kept."""

    going: Going
    file: Path | None


class Rewind:
    """A rewind of one log."""

    def __init__(self, directory: StoreDirectory, files: SegmentFiles) -> None:
        self._directory, self._files = directory, files
        self._journal = Journal(directory.root / REWIND_JOURNAL, JOURNAL_MAGIC, files)

    def going(self, offset: int) -> Going:
        """Return what a rewind would cut off. Raises NoBoundary, OffsetOutOfRange."""
        going = LogCut(self._directory, self._files).going(offset)
        if going is None:
            raise NoBoundary(str(self._directory.commitlog), offset)
        return going

    def to(self, offset: int, *, discard: bool = False) -> Rewound:
        """Cut back to there. Raises NoBoundary, OffsetOutOfRange, NoRoomToKeep, OSError."""
        going = self.going(offset)
        file = None
        if not discard and going.end > offset:
            file = kept.keep(self._directory.root, self._files, offset, going.end)
        self._journal.run(offset, self._do)
        return Rewound(going, file)

    def finish(self) -> int | None:
        """Do again what an interrupted rewind began; at which offset. None when there was none, or it was set aside.

        Raises OSError.
        """
        bound = self._journal.finish(self._do)
        return None if bound is None else bound.offset

    def _do(self, bound: Bound) -> None:
        root, offset = self._directory.root, bound.offset
        if self._files.base_offsets():
            LogCut(self._directory, self._files).cut(offset)
        known = epochs.read(root)
        if (shorter := known.cut(offset)) != known:
            epochs.write(root, shorter)
        divergence.remove(root)
