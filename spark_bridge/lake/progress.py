"""How far a table is: for each queue the first offset that is not in it. Pure, from and to the texts in its metadata.

    {"version": 1, "stores": {"broker-a": {"sum": 81985529216486895, "queues": {"orders": {"0": [42, 99887]}}}}}

Of each queue stand there the offset, and where in the log the last message before it lies. The one of them that lies
furthest in the log is the store's mark, and `sum` is made of that message: a log that has it is the log that was read,
up to there. A sum of 0 says that nothing is known of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from spark_bridge.lake.errors import OffsetsDamaged
from spark_bridge.stream.offsets import Offsets, QueueKey
from store.epochs import INT64_MAX

VERSION = 1
UNKNOWN = -1  # where a message lay whose queue has nothing before the offset any more
Queue = tuple[str, int]  # topic and queue id


class QueueAt(NamedTuple):
    """The first queue offset that is not in the table, and the physical offset of the message before it."""

    offset: int
    physical_offset: int = UNKNOWN


@dataclass(frozen=True)
class StoreAt:
    """One store's part. `sum` is that of the message at its mark."""

    queues: Mapping[Queue, QueueAt] = field(default_factory=dict)
    sum: int = 0

    @property
    def mark(self) -> tuple[Queue, QueueAt] | None:
        """The queue whose last message lies furthest in the log; None before there is any."""
        known = [item for item in self.queues.items() if item[1].physical_offset >= 0]
        return max(known, key=lambda item: item[1].physical_offset, default=None)


@dataclass(frozen=True)
class Progress:
    """All of it, by the name of the broker."""

    stores: Mapping[str, StoreAt] = field(default_factory=dict)

    @property
    def offsets(self) -> Offsets:
        """Return the offsets in the form of streams, by broker and queue."""
        return {
            QueueKey(broker, *queue): at.offset
            for broker, store in self.stores.items()
            for queue, at in store.queues.items()
        }

    def at(self, key: QueueKey) -> QueueAt | None:
        """Return how far one queue is."""
        return self.stores.get(key.store, StoreAt()).queues.get((key.topic, key.queue_id))

    def advanced(self, queues: Mapping[QueueKey, QueueAt]) -> Progress:
        """Return the progress with these queues advanced; the sums of their stores become unknown."""
        stores = dict(self.stores)
        for key, at in queues.items():
            store = stores.get(key.store, StoreAt())
            stores[key.store] = StoreAt({**store.queues, (key.topic, key.queue_id): at})
        return Progress(stores)

    def summed(self, sums: Mapping[str, int]) -> Progress:
        """Return the progress with these sums of their stores' marks."""
        return Progress(
            {
                broker: replace(store, sum=sums[broker]) if broker in sums else store
                for broker, store in self.stores.items()
            }
        )


NOTHING = Progress()


def as_text(progress: Progress) -> str:
    """Return the progress as text for a table's metadata: equal progress is equal text."""
    stores: dict[str, Any] = {}
    for broker in sorted(progress.stores):
        queues: dict[str, dict[str, list[int]]] = {}
        for (topic, queue_id), at in sorted(progress.stores[broker].queues.items()):
            queues.setdefault(topic, {})[str(queue_id)] = list(at)
        stores[broker] = {"sum": progress.stores[broker].sum, "queues": queues}
    return json.dumps({"version": VERSION, "stores": stores}, separators=(",", ":"))


def from_text(table: str, text: str) -> Progress:
    """Return what the metadata of that table says. Raises OffsetsDamaged."""
    try:
        said = json.loads(text)
        if said["version"] != VERSION:
            raise ValueError(f"version {said['version']!r}, and this program reads {VERSION}")
        return Progress({broker: _store(one) for broker, one in said["stores"].items()})
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        what = f"{table}: its offsets, {text[:120]!r}, are invalid ({type(error).__name__}: {error})"
        do = "restore the property from an earlier metadata file of the table, or load a new table"
        raise OffsetsDamaged(f"{what}; {do}") from None


def _store(said: Any) -> StoreAt:
    queues = {
        (topic, _number(int(queue_id))): QueueAt(_number(at[0]), _number(at[1], UNKNOWN))
        for topic, ids in said["queues"].items()
        for queue_id, at in ids.items()
    }
    return StoreAt(queues, _number(said["sum"]))


def _number(value: object, low: int = 0) -> int:
    if type(value) is not int or not low <= value <= INT64_MAX:
        raise ValueError(f"{value!r} is not an allowed number")
    return value


def refuse_other_brokers(table: str, progress: Progress, brokers: Iterable[str]) -> str | None:
    """Return why a table with this progress is not loaded from these brokers' stores; None where it may be."""
    here = sorted(brokers)
    missing = sorted(set(progress.stores) - set(here))
    if not missing:
        return None
    what = f"{table} has offsets of the log of {', '.join(missing)}, and this is {', '.join(here) or 'no log'}"
    return f"{what}; give the store, or all of the stores, that it was loaded from, or name another table"
