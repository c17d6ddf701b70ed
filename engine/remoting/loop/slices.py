"""Work in steps on an event loop, beside the loop's other work: some steps a turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import TypeVar

SLICE_SECONDS = 0.002
T = TypeVar("T")


async def in_slices(steps: Generator[int, None, T]) -> T:
    """Run the steps, with turns for others between them, and return their result."""
    begun = time.monotonic()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        if time.monotonic() - begun >= SLICE_SECONDS:
            await asyncio.sleep(0)
            begun = time.monotonic()
