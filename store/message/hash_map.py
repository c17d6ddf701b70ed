"""Where Java's maps put their keys, stated once: the bucket of a hash, and when a HashMap's table grows.

Implements: java.util.HashMap.hash, its thresholds; ConcurrentHashMap.spread (spec: store-formats, 3 and 16)
Functions of numbers are pieces of kernels, too: `inlined` in the kernel's module compiles the same text.
"""

from __future__ import annotations

from functools import lru_cache

from store.message.properties import HASHES_CACHED, java_hash

BUCKET_ENTRIES_MAX, TREE_CAPACITY_MIN = 8, 64  # one entry more doubles a smaller table; in a larger one it makes a tree


def folded(code: int) -> int:
    """Fold the upper half of a hash code of 32 bits into its lower half."""
    low = code & 0xFFFFFFFF
    return low ^ (low >> 16)


def outgrows(entries: int, buckets: int) -> bool:
    """Return whether a HashMap with that many entries has more buckets than that."""
    return entries * 4 > buckets * 3


@lru_cache(HASHES_CACHED)
def spread(name: str) -> int:
    """Return the folded hash code of a name."""
    return folded(java_hash(name))
