"""A number of things, in words for people: `1 topic`, `1,234 queues`."""

from __future__ import annotations


def how_many(count: int, one: str, many: str = "") -> str:
    """The number with what is counted; `many` is more than one, where that is not `one` with an s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
