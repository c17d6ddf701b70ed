"""Choices that nobody can predict, and that no two processes share, forked ones neither; tests hand in their own."""

from __future__ import annotations

import random

_SOURCE = random.SystemRandom()


def below(limit: int) -> int:
    """A number from 0 to `limit` - 1; 0 where there is no other."""
    return _SOURCE.randrange(max(1, limit))
