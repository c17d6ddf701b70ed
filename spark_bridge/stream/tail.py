"""The growing end of one store, for the driver of a streaming query: which queues there are and how far each reaches.

Asked up to a hundred times a second, so what did not change is not looked at again: the broker's cursors are words in
shared memory, and a queue's end is searched from where it was. A queue reaches to the entries below `reput_from_offset`
and below the published end of the log: what lies there is whole, and never changes.

`judged` says whether what is missing is certainly lost. On a slave nothing is (it follows its master); after a start
everything is once the dispatcher has passed what was in the log then.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from ipc.counters import Counters
from ipc.errors import RegionMissing
from spark_bridge.plan import inventory
from spark_bridge.split.splits import LogExtent, Queue, Selection
from store.errors import NoBroker
from store.files import file_io
from store.files.directory import StoreDirectory
from store.files.segment import file_name
from store.names import BATCH_QUEUES, CONSUME_QUEUES
from store.queues.consume_queue import CQ_DTYPE, ENTRY_BYTES, ConsumeQueue, Entries, queue_places
from store.queues.seen_queue import SeenQueue
from store.reading import extent as store_extent

log = logging.getLogger("slipstream.spark")

DEFAULT_SELECTION = Selection(system_topics=False)
FILES_MAPPED_MAX = 3  # of one queue: the last one, and those that a limit's search needs
MAPPED_MAX = 512  # of all queues of a store
NO_ENTRIES: Entries = np.empty(0, CQ_DTYPE)
SAMPLE_ENTRIES = 100
MANY_SEGMENTS = 1000  # a log at rest of more is not listed for each of the questions of one batch
REST_S = 2.0
UNSETTLED_NS = 100_000_000  # a directory changed so lately may change again within one tick of its clock

Begin = Callable[[Queue], int]  # from which entry on a queue will be read, asked while its file is open
AtFirst = Callable[[LogExtent], AbstractContextManager[Begin]]  # what is asked at the first look at a log


class MapRoom:
    """The files that a store's tails may map yet: a process has so many maps and descriptors, and no more."""

    def __init__(self, left: int = MAPPED_MAX) -> None:
        self.left = left


class QueueTail:
    """One consume queue that grows. Its last files are mapped while there is room, else entries are read one by one."""

    __slots__ = ("_mapped", "_per_file", "_room", "_sampled", "_seen", "directory", "end", "file_bytes", "first")

    def __init__(self, directory: Path | str, room: MapRoom | None = None, seen: SeenQueue | None = None) -> None:
        self.directory = str(directory)
        self._seen: SeenQueue | None = SeenQueue(self.directory) if seen is None else seen  # for the first look
        self.file_bytes = self._seen.file_bytes
        self._per_file = self.file_bytes // ENTRY_BYTES
        self._room = MapRoom() if room is None else room
        self._mapped: dict[int, Entries] = {}
        self.first = self.end = 0
        self._sampled = 0, 0, 0  # the entries last looked at for their records' length, and the mean of that

    def find(self, min_physical_offset: int, limit: int, begin: Callable[[SeenQueue], int] | None = None) -> None:
        """Look for both ends, from nothing; `begin` looks at the same files then, from which entry on they are read."""
        self._unmap()
        with self.seen() as queue:
            self.end = queue.end_below(limit)
            self._begin(queue, min_physical_offset)
            unread = self.first if begin is None else begin(queue)
            if unread < self.end:  # a first batch is planned by it, and the entries are at hand
                start = self._sample_start(unread, self.end)
                self._sampled = start, self.end, queue.mean_size(start, self.end)

    def find_first(self, min_physical_offset: int) -> None:
        """Look for the first entry whose record is in the log."""
        with self.seen() as queue:
            self._begin(queue, min_physical_offset)

    def _begin(self, queue: SeenQueue, min_physical_offset: int) -> None:
        first = queue.min_offset
        if min_physical_offset:
            first = max(first, queue.end_below(min_physical_offset))
        self.first, self.end = first, max(first, self.end)

    def seen(self) -> SeenQueue:
        """The queue as its files are now."""
        seen, self._seen = self._seen, None
        return SeenQueue(self.directory) if seen is None else seen

    def follow(self, limit: int) -> None:
        """Move the end to the first entry that is not there or lies at or above `limit` in the log."""
        while self._is_below(self.end, limit):
            step = 1
            while self._is_below(self.end + step, limit):
                step *= 2
            low, high = self.end + step // 2 + 1, self.end + step
            while low < high:
                middle = (low + high) // 2
                if self._is_below(middle, limit):
                    low = middle + 1
                else:
                    high = middle
            self.end = low

    def _is_below(self, queue_offset: int, limit: int) -> bool:
        entries = self._entries(queue_offset, queue_offset + 1)
        return len(entries) > 0 and bool(entries["size"][0] > 0) and int(entries["physical_offset"][0]) < limit

    def _entries(self, start: int, end: int) -> Entries:
        """The entries [start, end) of one file, those that are there."""
        number = start // self._per_file
        mapped = self._mapped.get(number)
        try:
            if mapped is None:
                mapped = self._map(number)
            if mapped is None:
                return self._read(start, end)
        except FileNotFoundError:
            return NO_ENTRIES
        first = number * self._per_file
        return mapped[start - first : end - first]

    def _map(self, number: int) -> Entries | None:
        """Map one file; return None without room. Raises FileNotFoundError."""
        while len(self._mapped) >= FILES_MAPPED_MAX:
            self._mapped.pop(next(iter(self._mapped)))
            self._room.left += 1
        if self._room.left <= 0:
            return None
        queue = ConsumeQueue(Path(self.directory), self.file_bytes)
        mapped = self._mapped[number] = queue.map_file(number * self.file_bytes)
        self._room.left -= 1
        return mapped

    def _unmap(self) -> None:
        self._room.left += len(self._mapped)
        self._mapped.clear()

    def _read(self, start: int, end: int) -> Entries:
        base = start // self._per_file * self.file_bytes
        fd = file_io.open_file(f"{self.directory}/{file_name(base)}", writable=False)
        try:
            data = os.pread(fd, (end - start) * ENTRY_BYTES, start * ENTRY_BYTES - base)
        finally:
            os.close(fd)
        return np.frombuffer(data, CQ_DTYPE, len(data) // ENTRY_BYTES)

    def physical_offset(self, queue_offset: int) -> int:
        """Return where the record of one entry lies; -1, before everything, when its file was deleted."""
        entries = self._entries(queue_offset, queue_offset + 1)
        return int(entries["physical_offset"][0]) if len(entries) else -1

    def mean_bytes(self, start: int, end: int) -> int:
        """About how long the records of [start, end) are: the mean of some of the last ones."""
        if start >= end:
            return 0
        start = self._sample_start(start, end)
        if self._sampled[:2] == (start, end):
            return self._sampled[2]
        entries = self._entries(start, end)
        return int(entries["size"].mean()) if len(entries) else 0

    def _sample_start(self, start: int, end: int) -> int:
        """Return the first of the last entries in [start, end) that lie in one file."""
        return max(start, (end - 1) // self._per_file * self._per_file, end - SAMPLE_ENTRIES)

    def block(self, start: int, end: int) -> Entries:
        """A copy of the entries [start, end) that are still there."""
        return SeenQueue(self.directory).entries(start, end)


@dataclass(frozen=True)
class StoreView:
    """A store as it was at one look. `queues` are live: their ends are those of the last look."""

    extent: LogExtent
    queues: Mapping[tuple[str, int], QueueTail]
    judged: bool


class Tail(Protocol):
    """One store as it grows: a StoreTail, or a store on another host."""

    root: str
    broker_name: str

    @property
    def is_served(self) -> bool: ...
    def look(self) -> StoreView | None: ...
    def close(self) -> None: ...


@dataclass
class _Broker:
    """A broker that is being followed."""

    identity: tuple[int, int]
    counters: Counters
    follows_master: bool
    judged_from: int
    judged: bool = False


class StoreTail:
    """The queues of one store that a query selects; with `beyond_rot` damage in its log is left for readers to tell."""

    def __init__(
        self,
        root: str,
        selection: Selection = DEFAULT_SELECTION,
        broker_name: str = "",
        *,
        confirmed_only: bool = False,
        beyond_rot: bool = False,
        at_first: AtFirst | None = None,
    ) -> None:
        self.root, self.broker_name, self.selection = root, broker_name, selection
        self._at_first = at_first
        self._confirmed_only = confirmed_only
        self._find_extent = partial(inventory.find_extent, root, broker_name, beyond_rot=beyond_rot)
        self._broker: _Broker | None = None
        self._extent: LogExtent | None = None
        self._seen: tuple[int, int] | None = None  # the limit and the log's beginning of the last look
        self._queues: dict[tuple[str, int], QueueTail] = {}
        self._rested: tuple[float, LogExtent | None] = 0.0, None  # until when what was found at rest holds
        self._listed: object = None
        self._last_warning = ""

    def look(self) -> StoreView | None:
        """The queues now; None while nobody can say: the store was killed and no broker has recovered it yet.

        Raises NotAStore, QueueFileMismatch, ForeignFile; NoBroker when a slave is asked for what is confirmed.
        """
        running = store_extent.running(self.root)
        if running is None:
            self._leave()
            return self._look_at_rest()
        if self._broker is None or self._broker.identity != (running.pid, running.start_time):
            self._leave()
            if not self._join(running):
                return None
        return self._look_at_broker()

    @property
    def is_served(self) -> bool:
        """Whether a broker was there at the last look: only then does anybody delete segments."""
        return self._broker is not None

    def close(self) -> None:
        """Let go of the broker's counters."""
        self._leave()

    def _leave(self) -> None:
        if self._broker is not None:
            self._broker.counters.close()
            self._broker = self._seen = self._extent = None
            self._rested = 0.0, None

    def _join(self, running: store_extent.Running) -> bool:
        try:
            counters = running.counters()
        except RegionMissing:  # it has stopped since
            return False
        follows = running.settings.get("brokerRole") == "SLAVE"
        end = counters.cursor("max_physical_offset").read()
        self._broker = _Broker((running.pid, running.start_time), counters, follows, end)
        return True

    def _look_at_rest(self) -> StoreView | None:
        directory = StoreDirectory(self.root)
        if directory.was_aborted():
            self._warn_once("it was not stopped in order and no broker runs: waiting for a broker to recover it")
            return None
        if self._confirmed_only:
            self._warn_once("onlyConfirmed: waiting for a master; only a master knows what is confirmed")
            return None
        until, extent = self._rested
        began = time.monotonic()
        if extent is None or began >= until:
            extent = self._find_extent()
        self._update(extent)
        if extent is not self._rested[1]:
            segments = (extent.max_physical_offset - extent.min_physical_offset) // extent.segment_bytes
            now = time.monotonic()
            self._rested = now + max(REST_S, now - began), extent if segments > MANY_SEGMENTS else None
        return StoreView(extent, self._queues, judged=True)

    def _look_at_broker(self) -> StoreView | None:
        broker = self._broker
        assert broker is not None
        reput = broker.counters.cursor("reput_from_offset").read()  # before the log's end: what is below both is there
        end = broker.counters.cursor("max_physical_offset").read()
        limit = min(reput, end)
        if self._confirmed_only:
            if broker.follows_master:
                raise NoBroker(self.root, "onlyConfirmed: only a running master knows what is confirmed")
            limit = min(limit, broker.counters.cursor("confirm_offset").read())
        first = broker.counters.cursor("min_physical_offset").read()
        if self._extent is None or self._extent.segment_bytes == 1:  # an empty log has no segment to tell by
            self._extent = self._find_extent()
        if not broker.judged and not broker.follows_master:
            broker.judged = max(reput, self._extent.reput_from_offset) >= broker.judged_from
        extent = replace(
            self._extent, min_physical_offset=first, reput_from_offset=limit, max_physical_offset=max(end, limit)
        )
        self._update(extent)
        return StoreView(extent, self._queues, broker.judged)

    def _warn_once(self, what: str) -> None:
        """Log a warning unless it was the last one."""
        if what != self._last_warning:
            self._last_warning = what
            log.warning("%s: %s", self.root, what)

    def _update(self, extent: LogExtent) -> None:
        """Bring the queues to a new limit and a new beginning of the log."""
        limit, first = extent.reput_from_offset, extent.min_physical_offset
        seen, self._seen = self._seen, (limit, first)
        if seen == self._seen:
            return
        fresh = seen is None or limit < seen[0] or first < seen[1]
        if self._list(fresh) or fresh:
            self._find_all(extent)
            return
        for tail in self._queues.values():
            tail.follow(limit)
            if seen is not None and first != seen[1]:
                tail.find_first(first)

    def _find_all(self, extent: LogExtent) -> None:
        """Look for the ends of all queues, from nothing; the first time also for where they will be begun."""
        at_first, self._at_first = self._at_first, None
        with nullcontext() if at_first is None else at_first(extent) as begin:
            for key, tail in self._queues.items():
                asked = None if begin is None else partial(_begin_of, begin, key, tail)
                tail.find(extent.min_physical_offset, extent.reput_from_offset, asked)

    def _list(self, fresh: bool) -> bool:
        """Find the queues again if any came or went, all of them: one may be another one under the same name."""
        top = Path(self.root) / CONSUME_QUEUES
        stamps = sorted(_stamps(top))
        newest = max((stamp[1] for stamp in stamps), default=0)
        if not fresh and self._listed == stamps:
            return False
        settled = time.time_ns() - newest > UNSETTLED_NS
        self._queues, room = {}, MapRoom()
        batches = frozenset(inventory.directories(Path(self.root) / BATCH_QUEUES))
        for topic, queue_id, place in queue_places(top):
            if not self._wants(topic, queue_id, batches):
                continue
            seen = SeenQueue(place)
            if seen.bases:
                self._queues[topic, queue_id] = QueueTail(place, room, seen)
            else:  # its first file is on its way
                settled = False
        self._listed = stamps if settled else None
        return True

    def _wants(self, topic: str, queue_id: int, batches: Container[str]) -> bool:
        queues = self.selection.queues
        if not (self.selection.may_be_queue(topic) and self.selection.admits(topic)):
            return False
        if queues is not None and (topic, queue_id) not in queues:
            return False
        if topic in batches:
            self._warn_once(f"topic {topic} has batch queues, whose entries are not messages: a stream leaves it out")
            return False
        return True


def _begin_of(begin: Begin, key: tuple[str, int], tail: QueueTail, entries: SeenQueue) -> int:
    return begin(Queue(tail.directory, *key, entries, tail.first, tail.end))


def _stamps(top: Path) -> Iterator[tuple[str, int, int]]:
    """Name, time of change and inode of every topic's directory."""
    try:
        status = top.stat()
        yield "", status.st_mtime_ns, status.st_ino
        with os.scandir(top) as entries:
            for entry in entries:
                status = entry.stat()
                yield entry.name, status.st_mtime_ns, status.st_ino
    except FileNotFoundError:
        return
