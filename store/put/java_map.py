"""A map that lists its entries in the order of Java's HashMap<String, String>: what decides the order of properties.

Implements: java.util.HashMap: hash, put, remove, resize, iteration (spec: store-formats, section 3)
A table of 2^n buckets, listed from the first to the last, each in order of insertion. It doubles when it is three
quarters full, or, below 64 buckets, when a ninth entry comes into one bucket; it never shrinks.
From 64 buckets on a ninth entry turns its bucket into a tree, which lists them otherwise: `store.put.java_tree`.
"""

from __future__ import annotations

from collections.abc import Iterable

from store.message.hash_map import BUCKET_ENTRIES_MAX, TREE_CAPACITY_MIN, outgrows, spread
from store.put import java_tree


class JavaMap(dict[str, str]):
    """Entries in order of insertion, as a dict has them; `ordered` gives Java's order. Change it with `put`, `pop`."""

    def __init__(self, capacity: int, entries: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__()
        self.capacity = self._first_capacity = capacity
        for name, value in entries:
            self.put(name, value)

    def copy(self) -> JavaMap:
        """Return another map with the same entries in the same places."""
        other = JavaMap(self._first_capacity)
        other.capacity = self.capacity
        other.update(self)
        return other

    def put(self, name: str, value: str) -> None:
        """Add or replace; a replaced entry keeps its place."""
        is_new = name not in self
        self[name] = value
        if is_new:
            self._grow(name)

    def _grow(self, name: str) -> None:
        if self.capacity < TREE_CAPACITY_MIN and len(self) > BUCKET_ENTRIES_MAX:
            bucket = spread(name) & (self.capacity - 1)
            if sum(spread(other) & (self.capacity - 1) == bucket for other in self) > BUCKET_ENTRIES_MAX:
                self.capacity *= 2
        if outgrows(len(self), self.capacity):
            self.capacity *= 2

    def ordered(self) -> list[tuple[str, str]]:
        """The entries as Java iterates over them."""
        mask = self.capacity - 1
        if len(self) >= BUCKET_ENTRIES_MAX and self._may_have_trees():
            names = java_tree.ordered([(name, spread(name)) for name in self], self._first_capacity, self.capacity)
            return [(name, self[name]) for name in names]
        return sorted(self.items(), key=lambda entry: spread(entry[0]) & mask)

    def _may_have_trees(self) -> bool:
        """Whether nine entries can have met in a bucket of a table that was large enough for trees."""
        mask = max(self._first_capacity, TREE_CAPACITY_MIN) - 1
        shared = len(self) - len({spread(name) & mask for name in self})
        return shared >= BUCKET_ENTRIES_MAX - 1
