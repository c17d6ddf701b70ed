"""What pushed filters admit: values of columns, None is any.

Spark hands a source the equalities of a query; a plan leaves out what none of them admits.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pushed:
    """The values that filters admit."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    brokers: frozenset[str] | None = None


NOTHING_PUSHED = Pushed()
