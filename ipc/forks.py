"""Objects that a forked child must not go on with: their `forked` runs in the child before anything else does.

A child has its parent's memory, but not its threads, and shares its descriptors: a lock may be held for ever by a
thread that does not exist, and a file lock outlives its owner.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Inherited(Protocol):
    """Something that belongs to one process."""

    def forked(self) -> None:
        """Let go, in a child, of what belongs to the parent; take no lock."""


_inherited: weakref.WeakSet[Inherited] = weakref.WeakSet()


def tell(thing: Inherited) -> None:
    """Have `forked` called in every child that inherits it, as long as it lives."""
    _inherited.add(thing)


def _in_child() -> None:
    for thing in list(_inherited):
        thing.forked()
    _inherited.clear()


os.register_at_fork(after_in_child=_in_child)
