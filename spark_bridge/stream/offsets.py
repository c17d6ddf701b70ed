"""How far a streaming query is: one offset a queue, as Spark's JSON and as a mapping, and what is lost between two.

    {"topic": {"queueId": offset}}                   one store
    {"brokerName": {"topic": {"queueId": offset}}}   several

An offset is the first queue offset not read yet. Equal offsets are equal texts (names and numbers sorted): Spark
compares texts to see whether there is anything new. Nothing here touches a file.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, NamedTuple

ONLY_STORE = ""
GONE = "the queue was deleted; it was read to offset {}, and later messages were not"
SET_BACK = (
    "it was read to offset {} but ends at {}: this store never had those messages (did a replica that was"
    " behind take over?); new messages are read from there"
)


class QueueKey(NamedTuple):
    """One queue of one store; the store's name is empty where there can only be one."""

    store: str
    topic: str
    queue_id: int

    def __str__(self) -> str:
        return f"topic {self.topic} queue {self.queue_id}" + (f" of broker {self.store}" if self.store else "")


Offsets = dict[QueueKey, int]
Bounds = Mapping[QueueKey, tuple[int, int]]  # what there is of each queue: its first offset, and its end


class DataLost(RuntimeError):
    """Raised when messages that a query must read are not in the store.

    Next: start with a new checkpoint, or continue without them: `failOnDataLoss=false`.
    """

    code = "DATA_LOST"


class OffsetsMismatch(ValueError):
    """Raised for offsets in a checkpoint that do not belong to this source.

    Next: give the query the checkpoint that it wrote, or a new directory.
    """

    code = "OFFSETS_MISMATCH"


class Loss(NamedTuple):
    """The loss in one queue, said once, in words."""

    key: QueueKey
    what: str

    def __str__(self) -> str:
        return f"{self.key}: {self.what}"


class Step(NamedTuple):
    """The reach of a query now, and what it cannot have."""

    end: Offsets
    losses: list[Loss]


def to_json(offsets: Offsets, by_store: bool) -> dict[str, Any]:
    """The offsets as Spark keeps them."""
    stores: dict[str, dict[str, dict[str, int]]] = {}
    for key in sorted(offsets):
        stores.setdefault(key.store, {}).setdefault(key.topic, {})[str(key.queue_id)] = offsets[key]
    return dict(stores) if by_store else dict(stores.get(ONLY_STORE, {}))


def from_json(value: Mapping[str, Any], by_store: bool) -> Offsets:
    """The offsets that Spark kept. Raises OffsetsMismatch when they have another shape."""
    stores = value if by_store else {ONLY_STORE: value}
    try:
        return {
            QueueKey(store, topic, int(queue_id)): _offset(offset)
            for store, topics in stores.items()
            for topic, queues in topics.items()
            for queue_id, offset in queues.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        shape = '{"brokerName":{"topic":{"queueId":offset}}}' if by_store else '{"topic":{"queueId":offset}}'
        raise OffsetsMismatch(
            f"offsets {str(value)[:200]} of the checkpoint are not {shape} ({error}): it was written for one store and"
            " this query reads several, or vice versa; start with a new checkpointLocation and startingOffsets"
        ) from error


def _offset(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not an offset")
    return value


def first_unread(key: QueueKey, done: Offsets, there: Bounds) -> int:
    """The first entry of a queue that is to be read and is there."""
    return max(done.get(key, 0), there[key][0] if key in there else 0)


def advance(start: Offsets, there: Bounds, judged: Container[str]) -> Step:
    """Return how far the queues reach that a query has read up to `start`; new ones are read from their beginning.

    Only of the stores `judged` is it certain that what is not there will not come (again): a slave may be behind its
    master, a broker may still be dispatching after its start. Of the others nothing is ever given back.
    """
    end: Offsets = {}
    losses: list[Loss] = []
    for key, offset in start.items():
        bounds = there.get(key)
        if bounds is not None and bounds[1] >= offset:
            end[key] = bounds[1]
        elif key.store not in judged:
            end[key] = offset
        elif bounds is None:
            losses.append(Loss(key, GONE.format(offset)))
        else:
            end[key] = bounds[1]
            losses.append(Loss(key, SET_BACK.format(offset, bounds[1])))
    for key, bounds in there.items():
        end.setdefault(key, bounds[1])
    return Step(end, [*losses, *deleted(start, end, there)])


def deleted(start: Offsets, end: Offsets, there: Bounds) -> list[Loss]:
    """The messages in [start, end) that their queues do not hold any more."""
    losses = []
    for key, until in end.items():
        first = there[key][0] if key in there else 0
        missing, behind = start.get(key, 0), min(first, until)
        if missing < behind:
            what = f"messages {missing} to {behind - 1} were deleted before they were read; the queue begins at {first}"
            losses.append(Loss(key, what))
    return losses


def given_up(start: Offsets, end: Offsets) -> list[Loss]:
    """The queues that a batch drops or sets back, as `advance` decided when it was planned."""
    losses = []
    for key, offset in start.items():
        if key not in end:
            losses.append(Loss(key, GONE.format(offset)))
        elif end[key] < offset:
            losses.append(Loss(key, SET_BACK.format(offset, end[key])))
    return losses


def share(limit: int, backlogs: Mapping[str, int]) -> dict[str, int]:
    """Divide a limit among stores by what they have waiting; nobody who has something waits for ever."""
    waiting = {name: backlog for name, backlog in backlogs.items() if backlog > 0}
    total, left = sum(waiting.values()), limit
    shares = dict.fromkeys(backlogs, 0)
    for name, backlog in sorted(waiting.items(), key=lambda item: item[1]):
        shares[name] = min(left, max(1, limit * backlog // total))
        left -= shares[name]
    if waiting:
        shares[max(waiting, key=lambda name: waiting[name])] += left
    return shares


def not_beyond(end: Offsets, target: Offsets, done: Offsets) -> Offsets:
    """Limit each queue to the target, but not below what is done; new queues wait for the next query."""
    return {
        key: max(done.get(key, 0), min(offset, target.get(key, 0)))
        for key, offset in end.items()
        if key in target or key in done
    }
