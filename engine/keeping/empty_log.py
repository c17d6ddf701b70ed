"""Where the empty log of a slave begins: with the segment that its master's bytes go into, whatever was made before."""

from __future__ import annotations

from engine.shared_memory.cursors import BrokerCounters
from store.files.segment_files import SegmentFiles


def unused_before(counters: BrokerCounters, files: SegmentFiles, request: int) -> list[int] | None:
    """Return the segments before that of `request` if an empty log is to begin with that one; None if it is not.

    The published end may lag behind what was received, so a file that holds anything decides: then the log goes on.
    """
    begin, wanted = counters.min_physical_offset.read(), files.base_of(max(request, 0))
    if wanted <= begin or counters.max_physical_offset.read() > begin:
        return None
    before = [base for base in files.base_offsets() if base < wanted]
    return before if all(files.is_unused(base) for base in before) else None
