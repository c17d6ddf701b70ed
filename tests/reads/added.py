"""Counts of some cases, to which those of other cases are added."""

from __future__ import annotations

from typing import Self


class Added:
    """A base of data classes whose fields are numbers and lists."""

    def add(self, other: Self) -> None:
        """Add each field of the other one to its own."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
