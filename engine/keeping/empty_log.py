"""Where the empty log of a slave begins: with the segment that its master's bytes go into, whatever was made before."""

from __future__ import annotations

from engine.board.cursors import Board
from store.files.segment_files import SegmentFiles


def unused_before(board: Board, files: SegmentFiles, request: int) -> list[int] | None:
    """Return the segments before that of `request` if an empty log is to begin with that one; None if it is not.

    The published end may lag behind what was received, so a file that holds anything decides: then the log goes on.
    """
    begin, wanted = board.min_physical_offset.read(), files.base_of(max(request, 0))
    if wanted <= begin or board.max_physical_offset.read() > begin:
        return None
    before = [base for base in files.base_offsets() if base < wanted]
    return before if all(files.is_unused(base) for base in before) else None
