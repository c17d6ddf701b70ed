"""Work that is done in steps, between which the caller may do something else; here for callers with nothing else."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any, TypeVar

FREED_A_STEP = 100
T = TypeVar("T")


def freed(held: list[Any]) -> Generator[int, None, None]:
    """Give up what nobody else holds, some a step: of very many entries that takes long, too."""
    while held:
        del held[-FREED_A_STEP:]
        yield FREED_A_STEP


def at_once(steps: Generator[int, None, T]) -> T:
    """Run the steps to their end, and return their value."""
    returned: list[T] = []

    def keep() -> Generator[int, None, None]:
        returned.append((yield from steps))

    deque(keep(), maxlen=0)
    return returned[0]
