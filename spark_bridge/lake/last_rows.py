"""Tells whether the rows of the last messages that were loaded are among a table's rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from spark_bridge.lake.progress import Progress

PLACE = ("topic", "queueId", "queueOffset")
BROKER = "brokerName"


class Place(NamedTuple):
    """Place of a message; the broker's name is empty where a table lacks it."""

    topic: str
    queue_id: int
    queue_offset: int
    broker: str = ""


class Wanted(NamedTuple):
    """The columns of a table that tell messages apart, and the places to look for in them."""

    columns: Sequence[str]
    places: set[Place]

    @property
    def offsets(self) -> set[int]:
        return {place.queue_offset for place in self.places}


def wanted(names: Iterable[str], progress: Progress, *, of_all_queues: bool) -> Wanted | None:
    """The last message of each queue, or of each store, in a table with these columns.

    None where the columns do not tell messages apart, or the progress does not say where it is.
    """
    there = set(names)
    if not there.issuperset(PLACE):
        return None
    has_broker, places = BROKER in there, set()
    for broker, store in progress.stores.items():
        mark = store.mark
        queues = store.queues.items() if of_all_queues else [] if mark is None else [mark]
        places |= {
            Place(*queue, at.offset - 1, broker if has_broker else "")
            for queue, at in queues
            if at.physical_offset >= 0
        }
    return Wanted((*PLACE, BROKER) if has_broker else PLACE, places) if places else None


def holds(batches: Iterable[pa.RecordBatch], places: set[Place]) -> bool:
    """Whether all of these places are among the rows of the batches, which have the columns of Wanted."""
    missing = set(places)
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in batch.schema.names]
        missing.difference_update(Place(*row) for row in zip(*columns, strict=True))
        if not missing:
            break
    return bool(places) and not missing
