"""Cuts a log back to where it and another one of its pair part, keeps what goes, and forgets the divergence.

In this order, each step durable before the next: the kept copy; a journal of the rewind; the cut (`repair.cut`, queues
and index with the log); the epochs behind the cut; the note of the divergence; the journal. Killed before the journal,
nothing has changed; after it, the next rewind or the next start of a broker finishes. Consumers' offsets stay.
The caller holds the store's lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from store.errors import OwnFileDamaged, StoreError
from store.files import divergence, epochs, summed_json
from store.files.directory import StoreDirectory
from store.files.segment_files import SegmentFiles
from store.files.summed_json import Damaged
from store.names import REWIND_JOURNAL
from store.repair import kept
from store.repair.cut import Going, LogCut

ADVICE = "remove it, then compare the log with its master's by `slipstream replica check STORE --with OTHER`"


class NoBoundary(StoreError):
    """The offset given lies within a record.

    Next: `slipstream replica check STORE --with OTHER` names an offset that is one.
    """

    code = "OFFSET_OUT_OF_RANGE"

    def __init__(self, path: str, offset: int) -> None:
        super().__init__(
            f"{path}: no record begins or ends at offset {offset}; `slipstream replica check` and `slipstream log cat`"
            " name offsets that do"
        )


@dataclass(frozen=True, slots=True)
class Rewound:
    """What a rewind did; `file` holds what went, None when nothing was to be kept."""

    going: Going
    file: Path | None


class Rewind:
    """A rewind of one log."""

    def __init__(self, directory: StoreDirectory, files: SegmentFiles) -> None:
        self._directory, self._files = directory, files
        self._journal = directory.root / REWIND_JOURNAL

    def going(self, offset: int) -> Going:
        """What a rewind would cut off. Raises NoBoundary, OffsetOutOfRange."""
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
        summed_json.write(self._journal, {"offset": offset})
        self._do(offset)
        return Rewound(going, file)

    def finish(self) -> int | None:
        """Do again what an interrupted rewind began; at which offset. None when there was none. Raises OSError."""
        try:
            noted = summed_json.read(self._journal)
            offset = None if noted is None else noted.get("offset")
            if noted is not None and (type(offset) is not int or offset < 0):
                raise Damaged("it names no offset")
        except Damaged as damaged:
            raise OwnFileDamaged(str(self._journal), f"not a rewind's journal: {damaged}", ADVICE) from None
        if offset is not None:
            self._do(offset)
        return offset

    def _do(self, offset: int) -> None:
        root = self._directory.root
        if self._files.base_offsets():
            LogCut(self._directory, self._files).cut(offset)
        known = epochs.read(root)
        if (shorter := known.cut(offset)) != known:
            epochs.write(root, shorter)
        divergence.remove(root)
        summed_json.remove(self._journal)


def finish(directory: StoreDirectory, segment_bytes: int) -> int | None:
    """For the start of a broker: finish what an interrupted rewind began; at which offset."""
    if not (directory.root / REWIND_JOURNAL).exists():
        return None
    return Rewind(directory, SegmentFiles(directory.commitlog, segment_bytes)).finish()
