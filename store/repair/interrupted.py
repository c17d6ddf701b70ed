"""Finishes what was begun on a log and interrupted, before anything else is done there: a rewind, a cut, a repair."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from store.files.directory import StoreDirectory
from store.files.segment_files import SegmentFiles
from store.names import CUT_JOURNAL, REPAIR_JOURNAL, REWIND_JOURNAL

if TYPE_CHECKING:  # hardly any start has something to finish
    from store.repair.repair import Damaged


class Finished(NamedTuple):
    """A change that was finished: a rewind to an offset, a cut at one, the repair of a range."""

    rewound_to: int | None = None
    cut_at: int | None = None
    repaired: Damaged | None = None

    def texts(self) -> list[str]:
        """Return what was finished, each in a few words."""
        mended = self.repaired
        said = (
            None if self.rewound_to is None else f"finished an interrupted rewind to offset {self.rewound_to}",
            None if self.cut_at is None else f"finished an interrupted cut at offset {self.cut_at}",
            mended and f"finished an interrupted repair: offsets {mended.start} to {mended.end}",
        )
        return [text for text in said if text]


def finish(directory: StoreDirectory, files: SegmentFiles) -> Finished:
    """Finish it; a change whose log is another one by now is set aside. The caller holds the store's lock.

    Raises OSError, SegmentSizeMismatch, MissingSegment.
    """
    if not any(os.path.lexists(directory.root / name) for name in (REWIND_JOURNAL, CUT_JOURNAL, REPAIR_JOURNAL)):
        return Finished()
    from store.repair import repair
    from store.repair.cut import LogCut
    from store.repair.rewind import Rewind

    return Finished(
        Rewind(directory, files).finish(), LogCut(directory, files).finish(), repair.finish(directory, files)
    )
