"""Choices by chance: all of them come, and none beyond the limit."""

from __future__ import annotations

from ipc.chance import below


def test_every_number_below_the_limit_comes() -> None:
    assert {below(4) for _ in range(400)} == {0, 1, 2, 3}
    assert {below(limit) for limit in (1, 0, -1)} == {0}
