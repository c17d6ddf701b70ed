"""The growing end of one store, for the driver of a streaming query: which queues there are and how far each reaches.

Asked up to a hundred times a second, so what did not change is not looked at again: the broker's cursors are words in
shared memory, and a queue's end is searched from where it was. A queue reaches to the entries below `reput_from_offset`
and below the published end of the log: what lies there is whole, and never changes.

`judged` says whether what is missing is certainly lost. On a slave nothing is (it follows its master); after a start
everything is once the dispatcher has passed what was in the log then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ipc.counters import Counters
from ipc.errors import RegionMissing
from spark_bridge.plan import inventory
from spark_bridge.split.splits import LogExtent, Selection
from store.errors import NoBroker
from store.files.directory import StoreDirectory
from store.files.segment_files import named_files
from store.names import CONSUME_QUEUES
from store.queues.batch_consume_queue import has_batch_queues
from store.queues.consume_queue import ConsumeQueue, queue_directories
from store.reading import extent as store_extent

log = logging.getLogger("slipstream.spark")

DEFAULT_SELECTION = Selection(system_topics=False)
FILES_MAPPED_MAX = 3  # of one queue: the last one, and those that a limit's search needs
SAMPLE_ENTRIES = 100
UNSETTLED_NS = 100_000_000  # a directory changed so lately may change again within one tick of its clock


class QueueTail:
    """One consume queue that grows."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.queue = ConsumeQueue.open(directory)
        self._per_file = self.queue.file_bytes // self.queue.dtype.itemsize
        self._mapped: dict[int, tuple[Any, Any]] = {}
        self.first = self.end = 0

    def find(self, min_physical_offset: int, limit: int) -> None:
        """Look for both ends, from nothing."""
        self._mapped.clear()
        self.end = self.queue.end_below(limit)
        self.find_first(min_physical_offset)

    def find_first(self, min_physical_offset: int) -> None:
        """Look for the first entry whose record is in the log."""
        first = max(self.queue.min_offset, self.queue.end_below(min_physical_offset))
        self.first, self.end = first, max(first, self.end)

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
        columns = self._file(queue_offset // self._per_file)
        if columns is None:
            return False
        at = queue_offset % self._per_file
        return bool(columns[1][at] > 0) and int(columns[0][at]) < limit

    def _file(self, number: int) -> tuple[Any, Any] | None:
        """Physical offsets and sizes in one file; None when there is no such file."""
        columns = self._mapped.get(number)
        if columns is None:
            try:
                entries = self.queue.map_file(number * self.queue.file_bytes)
            except FileNotFoundError:
                return None
            while len(self._mapped) >= FILES_MAPPED_MAX:
                self._mapped.pop(next(iter(self._mapped)))
            columns = self._mapped[number] = entries["physical_offset"], entries["size"]
        return columns

    def physical_offset(self, queue_offset: int) -> int:
        """Where the record of one entry lies; -1, before everything, when its file was deleted."""
        columns = self._file(queue_offset // self._per_file)
        return -1 if columns is None else int(columns[0][queue_offset % self._per_file])

    def mean_bytes(self, start: int, end: int) -> int:
        """About how long the records of [start, end) are: the mean of some of the last ones."""
        columns = self._file((end - 1) // self._per_file)
        if columns is None or start >= end:
            return 0
        until = (end - 1) % self._per_file + 1
        sample = columns[1][max(0, until - min(SAMPLE_ENTRIES, end - start)) : until]
        return int(sample.mean())

    def block(self, start: int, end: int) -> Any:
        """A copy of the entries [start, end) that are still there."""
        return self.queue.entries(start, end)


@dataclass(frozen=True)
class StoreView:
    """A store as it was at one look. `queues` are live: their ends are those of the last look."""

    extent: LogExtent
    queues: Mapping[tuple[str, int], QueueTail]
    judged: bool


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
        self, root: str, selection: Selection = DEFAULT_SELECTION, broker_name: str = "", *,
        confirmed_only: bool = False, beyond_rot: bool = False,
    ) -> None:  # fmt: skip
        self.root, self.broker_name, self.selection = root, broker_name, selection
        self._confirmed_only = confirmed_only
        self._find_extent = partial(inventory.find_extent, root, broker_name, beyond_rot=beyond_rot)
        self._broker: _Broker | None = None
        self._extent: LogExtent | None = None
        self._seen: tuple[int, int] | None = None  # the limit and the log's beginning of the last look
        self._queues: dict[tuple[str, int], QueueTail] = {}
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
            self._warn_once("it was not stopped in order and no broker runs: waits for one that recovers it")
            return None
        if self._confirmed_only:
            self._warn_once("onlyConfirmed: waits for a master, nobody else knows what is confirmed")
            return None
        extent = self._find_extent()
        self._update(extent.reput_from_offset, extent.min_physical_offset)
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
        self._update(limit, first)
        extent = replace(
            self._extent, min_physical_offset=first, reput_from_offset=limit, max_physical_offset=max(end, limit)
        )
        return StoreView(extent, self._queues, broker.judged)

    def _warn_once(self, what: str) -> None:
        """Say it once."""
        if what != self._last_warning:
            self._last_warning = what
            log.warning("%s: %s", self.root, what)

    def _update(self, limit: int, first: int) -> None:
        """Bring the queues to a new limit and a new beginning of the log."""
        seen, self._seen = self._seen, (limit, first)
        if seen == self._seen:
            return
        fresh = seen is None or limit < seen[0] or first < seen[1]
        fresh = self._list(fresh) or fresh
        for tail in self._queues.values():
            if fresh:
                tail.find(first, limit)
                continue
            tail.follow(limit)
            if seen is not None and first != seen[1]:
                tail.find_first(first)

    def _list(self, fresh: bool) -> bool:
        """Find the queues again if any came or went, all of them: one may be another one under the same name."""
        top = Path(self.root) / CONSUME_QUEUES
        stamps = sorted(_stamps(top))
        newest = max((stamp[1] for stamp in stamps), default=0)
        if not fresh and self._listed == stamps:
            return False
        settled = time.time_ns() - newest > UNSETTLED_NS
        self._queues = {}
        for topic, queue_id, directory in queue_directories(top):
            if not self._wants(topic, queue_id):
                continue
            if named_files(directory):
                self._queues[topic, queue_id] = QueueTail(directory)
            else:  # its first file is on its way
                settled = False
        self._listed = stamps if settled else None
        return True

    def _wants(self, topic: str, queue_id: int) -> bool:
        queues = self.selection.queues
        if not (self.selection.may_be_queue(topic) and self.selection.admits(topic)):
            return False
        if queues is not None and (topic, queue_id) not in queues:
            return False
        if has_batch_queues(self.root, topic):
            self._warn_once(f"topic {topic} has batch queues, whose entries are no messages: a stream leaves it out")
            return False
        return True


def _stamps(top: Path) -> Iterator[tuple[str, int, int]]:
    """Name, time of change and inode of every topic's directory."""
    try:
        status = top.stat()
        yield "", status.st_mtime_ns, status.st_ino
        for path in top.iterdir():
            status = path.stat()
            yield path.name, status.st_mtime_ns, status.st_ino
    except FileNotFoundError:
        return
