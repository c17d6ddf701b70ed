"""Whether the topics and queues that a read names are known to any of its stores: a name that none has is an error.

Known is what has a consume queue of any kind, what topics.json lists (no message has come yet), and what the end of the
log holds (not dispatched yet, or its queues were deleted). Patterns and the option `where` ask, they do not name.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spark_bridge.options.queues import QueueName
from spark_bridge.options.read import ReadOptions
from spark_bridge.options.values import InvalidOption, nearest
from spark_bridge.plan import inventory
from spark_bridge.plan.stores import StoreAt
from spark_bridge.records.reader import open_window
from spark_bridge.records.selection import in_multi_dispatch
from spark_bridge.records.walk import walked
from spark_bridge.split.splits import LogExtent
from store.errors import CorruptRecord, MalformedConfig, SegmentRemoved
from store.message.record import QUEUE_ID_AT
from store.message.topics import is_lmq, is_system_topic
from store.names import CONFIG, TOPICS
from store.queues.batch_consume_queue import has_batch_queues
from store.tables import json_files
from store.tables.tables import topics

LOOKED_AT_BYTES = 64 << 20  # of the log's end, and what is before them in their segment
ALLOWED = "allowMissingTopics=true reads what there is of the others, and looks for it in the whole log"
QUEUES_TOLD_MAX = 32


class UnknownTopic(InvalidOption):
    """Raised for a topic or queue in the options that no store has.

    Next: `slipstream log stat STORE` lists the topics; or `allowMissingTopics=true`.
    """

    code = "UNKNOWN_TOPIC"


class _Missing(NamedTuple):
    """A topic, or one queue of it, that is looked for."""

    topic: str
    queue_id: int | None
    broker: str | None


class _Store:
    """The names in one store, looked up when they are asked for."""

    def __init__(self, at: StoreAt) -> None:
        self.root, self.broker_name = at
        self._queue_ids: dict[str, set[int]] = {}

    @cached_property
    def directories(self) -> dict[str, list[str]]:
        """Topics with queues, and where these are."""
        by_topic: dict[str, list[str]] = {}
        for kind in inventory.QUEUE_DIRECTORIES:
            for name in inventory.directories(Path(self.root) / kind):
                by_topic.setdefault(name, []).append(f"{self.root}/{kind}/{name}")
        return by_topic

    @cached_property
    def configured(self) -> dict[str, int]:
        """Return how many queues topics.json gives each topic."""
        try:
            table = topics(json_files.read(Path(self.root) / CONFIG / TOPICS))
        except MalformedConfig:  # it can tell nothing
            return {}
        return {
            name: max(_number(fields.get(key)) for key in ("readQueueNums", "writeQueueNums"))
            for name, fields in table.items()
        }

    def knows(self, what: _Missing) -> bool:
        """Whether queues or topics.json have it."""
        if what.queue_id is None:
            return what.topic in self.directories or what.topic in self.configured
        return what.queue_id in self.queue_ids(what.topic) or what.queue_id < self.configured.get(what.topic, 0)

    def queue_ids(self, topic: str) -> set[int]:
        """The queues that have a directory."""
        known = self._queue_ids.get(topic)
        if known is None:
            names = [name for top in self.directories.get(topic, ()) for name in inventory.directories(top)]
            known = {int(name) for name in names if name.isascii() and name.isdecimal()}
            self._queue_ids[topic] = known
        return known


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def refuse_missing(options: ReadOptions, stores: Sequence[StoreAt], but: Iterable[str] = ()) -> None:
    """Raise UnknownTopic for the first name that no store has; those of `but` were known once."""
    if options.allow_missing_topics or not stores:
        return
    read = set(but)
    named = [what for what in _named(options) if what.topic not in read]
    known = [_Store(at) for at in stores]
    missing = [what for what in named if not _anyone(known, what, lambda store, what: store.knows(what))]
    for store in known:
        if missing:
            seen = _in_log(store.root, {what.topic for what in missing})
            if seen is None:
                return
            missing = [what for what in missing if not (_is_of(what, store) and _is_among(what, seen))]
    if missing:
        raise _refused(missing[0], [store for store in known if _is_of(missing[0], store)])


def refuse_unstreamable(options: ReadOptions, stores: Iterable[StoreAt]) -> None:
    """Raise InvalidOption for a named topic that no stream can read: it would wait for ever."""
    for topic in options.topics or ():
        for store in stores:
            if not options.allow_missing_topics and has_batch_queues(store.root, topic):
                what = f"{store.root}: topic {topic!r} has batch queues, whose entries are not messages"
                raise InvalidOption(f"{what}: a stream cannot read it; read it as a batch, or name other topics")


def _named(options: ReadOptions) -> Iterator[_Missing]:
    for topic in options.topics or ():
        yield _Missing(topic, None, None)
    queues: list[QueueName] = [*options.assigned]
    queues += [item.queue for item in (*options.starting_offsets, *options.ending_offsets)]
    queues += [item.queue for item in (*options.starting_moments, *options.ending_moments) if item.queue is not None]
    for queue in queues:
        if is_lmq(queue.topic):
            why = f"{queue.topic!r} is a multi-dispatch queue, which is read whole: name it as topic, without offsets"
            raise InvalidOption(why)
        yield _Missing(*queue)


def _anyone(stores: Iterable[_Store], what: _Missing, asked: Callable[[_Store, _Missing], bool]) -> bool:
    return any(_is_of(what, store) and asked(store, what) for store in stores)


def _is_of(what: _Missing, store: _Store) -> bool:
    return what.broker in (None, store.broker_name)


def _is_among(what: _Missing, seen: set[tuple[str, int]]) -> bool:
    return any(topic == what.topic and what.queue_id in (None, queue_id) for topic, queue_id in seen)


def _in_log(root: str, wanted: set[str]) -> set[tuple[str, int]] | None:
    """The queues of these topics that records at the log's end name; None where damage hides some: reading tells."""
    log = inventory.find_extent(root, beyond_rot=True)
    queues: set[tuple[str, int]] = set()
    if log.max_physical_offset <= log.min_physical_offset:
        return queues
    start = max(log.min_physical_offset, min(log.max_physical_offset - LOOKED_AT_BYTES, log.max_physical_offset - 1))
    position = max(log.min_physical_offset, start - start % log.segment_bytes)
    while position < log.max_physical_offset:
        base = position - position % log.segment_bytes
        try:
            queues.update(_in_segment(log, base, position - base, wanted))
        except CorruptRecord:
            return None
        except SegmentRemoved:  # retention was at work
            pass
        position = base + log.segment_bytes
    return queues


def _in_segment(log: LogExtent, base: int, start: int, wanted: set[str]) -> Iterator[tuple[str, int]]:
    window = open_window(log, base)
    for records in walked(window, start, start, window.length):
        encoded = records.topic.dictionary_encode()
        codes, queue_ids = encoded.indices.to_numpy(), records.int32_at(QUEUE_ID_AT)
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            if topic in wanted:
                yield from ((topic, int(queue_id)) for queue_id in np.unique(queue_ids[codes == code]))
        for name in filter(is_lmq, wanted):
            if in_multi_dispatch(records, name).any():
                yield name, 0


def _refused(what: _Missing, stores: Sequence[_Store]) -> UnknownTopic:
    """The error, with the nearest name."""
    where = stores[0].root if len(stores) == 1 else "all stores of this read"
    known = {name for store in stores for name in (*store.directories, *store.configured)}
    if what.topic in known:
        ids = {number for store in stores for number in store.queue_ids(what.topic)}
        ids.update(number for store in stores for number in range(store.configured.get(what.topic, 0)))
        listed = ", ".join(map(str, heapq.nsmallest(QUEUES_TOLD_MAX, ids))) or "none"
        return UnknownTopic(f"{where}: no queue {what.queue_id} of topic {what.topic!r}; it has {listed}; {ALLOWED}")
    alike = sorted(name for name in known if is_lmq(name) == is_lmq(what.topic) and not is_system_topic(name))
    kind = "multi-dispatch queue" if is_lmq(what.topic) else "topic"
    return UnknownTopic(f"{where}: no {kind} {what.topic!r}; {nearest(what.topic, alike)}; {ALLOWED}")
