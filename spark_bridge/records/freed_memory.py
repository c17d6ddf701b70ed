"""What reading frees stays with the process, for the next batch: pages that are given back have to be made anew."""

from __future__ import annotations

from functools import cache

import numpy as np

KEPT_BYTES = 16 << 20


@cache  # a process reads many splits
def keep_freed_memory() -> None:
    """Have the C library keep freed memory, up to twice `KEPT_BYTES` above what is in use.

    glibc maps what is larger than a threshold, and gives back what is free at its heap's end and above twice that. It
    begins with 128 KiB, and raises both to what was mapped and freed. A batch's arrays have about a megabyte: without
    this nearly each of them consisted of new pages, which took as long as all that was done with them.
    """
    np.empty(KEPT_BYTES, np.uint8)
