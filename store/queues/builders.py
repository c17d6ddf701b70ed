"""One queue while it is built: where it ends, and what of a range of records belongs behind that.

Implements: ConsumeQueue.putMessagePositionInfo, BatchConsumeQueue.putBatchMessagePositionInfo (store-formats, 10 to 12)
The records' own queue offsets say where an entry belongs, never a counter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ipc.arrays import Words
from store.errors import QueueGap
from store.queues.batch_consume_queue import BATCH_DTYPE, NOT_COMPACTED, BatchConsumeQueue
from store.queues.consume_queue import ConsumeQueue, Entries
from store.queues.extension import QueueExt
from store.queues.group_kernel import Lane
from store.queues.lanes import Lanes


@dataclass(slots=True)
class Share:
    """The records of a range that belong to one queue, in the log's order. Columns are made when they are asked for."""

    entries: Entries  # as of a plain queue, with the tags codes of the records
    first_queue_offset: int
    dense: bool  # every queue offset is the one before it plus one
    queue_offsets: Callable[[], Words]
    store_timestamps_ms: Callable[[], Words]
    counts: Callable[[], Words] | None = None  # of messages in each record: a batch queue's
    with_unit: bool = True  # in the queue's extension, if it has one


@dataclass(slots=True)
class Expired:
    """Records `below` were not dispatched: a queue of such only begins anew behind them."""

    below: int = 0


class _Builder:
    """The common part of both kinds of queues: their files, and the next queue offset."""

    files: ConsumeQueue

    def __init__(self, lanes: Lanes, name: tuple[bytes, int], end: int, max_physical_offset: int) -> None:
        """Begin at the queue's end; `name` is its topic and queue id."""
        self._lanes, self.lane = lanes, lanes.add(*name)
        self.end, self.max_physical_offset = end, max_physical_offset

    @property
    def end(self) -> int:
        """Return the next queue offset of this queue."""
        return int(self._lanes.words[self.lane, Lane.END])

    @end.setter
    def end(self, queue_offset: int) -> None:
        self._lanes.words[self.lane, Lane.END] = queue_offset

    @property
    def max_physical_offset(self) -> int:
        """The end of the last record in it."""
        return int(self._lanes.words[self.lane, Lane.REACHED])

    @max_physical_offset.setter
    def max_physical_offset(self, physical_offset: int) -> None:
        self._lanes.words[self.lane, Lane.REACHED] = physical_offset

    @property
    def slot(self) -> int:
        """Return the queue's slot in a table of ends, or NO_SLOT."""
        return int(self._lanes.words[self.lane, Lane.SLOT])

    @slot.setter
    def slot(self, slot: int) -> None:
        self._lanes.words[self.lane, Lane.SLOT] = slot

    def refuse_gap(self, share: Share) -> None:
        """Raise QueueGap when entries before these are missing."""
        if share.first_queue_offset > self.end:
            raise QueueGap(str(self.files.directory), self.end, share.first_queue_offset)


class PlainBuilder(_Builder):
    """A consume queue, with its extension if it has one."""

    def __init__(
        self,
        files: ConsumeQueue,
        from_offset: int,
        lanes: Lanes,
        name: tuple[bytes, int],
        expired: Expired,
        ext: QueueExt | None = None,
    ) -> None:
        """The queue is as the records below `from_offset` left it; entries behind that are written again."""
        self.files, self._ext, self._expired = files, ext, expired
        end = files.end_below(from_offset)
        if ext is not None:
            ext.seek(files, end)
        super().__init__(lanes, name, end, from_offset)

    def put(self, share: Share) -> list[str]:
        """Write what is not there yet; what was odd about it."""
        entries = share.entries
        ext = self._ext if share.with_unit else None
        follows = int(entries[0]["physical_offset"]) >= self.max_physical_offset
        if share.dense and share.first_queue_offset == self.end and follows:
            if ext is not None:
                entries["tags_code"] = ext.put(entries["tags_code"].astype(np.int64), share.store_timestamps_ms())
            self._append(entries)
            self.end += len(entries)
            self.max_physical_offset = int(entries[-1]["physical_offset"]) + int(entries[-1]["size"])
            return self._ext_findings()
        findings: list[str] = []
        for number, queue_offset in enumerate(share.queue_offsets().tolist()):
            entry = entries[number : number + 1]
            end = int(entry[0]["physical_offset"]) + int(entry[0]["size"])
            if end <= self.max_physical_offset or (queue_offset < self.end and not self._is_expired()):
                continue  # built before
            if ext is not None:
                stored_ms = share.store_timestamps_ms()[number : number + 1]
                entry["tags_code"] = ext.put(entry["tags_code"].astype(np.int64), stored_ms)
            findings += self._put_one(entry, queue_offset, end)
        return findings + self._ext_findings()

    def _put_one(self, entry: Entries, queue_offset: int, end: int) -> list[str]:
        """The general rules, for the rare queue that is not simply continued."""
        if queue_offset != self.end > 0 and self._is_expired():
            self.files.truncate(0)
            self.end = 0
        if self.end == 0 and queue_offset > 0:
            if queue_offset > self.files.queue_offset_max:
                return [f"{self.files.directory}: message {queue_offset} has no place in a queue: no file is so far"]
            self.files.prefill(queue_offset)
            self.end = queue_offset
        findings = []
        if queue_offset != self.end:
            findings = [f"{self.files.directory}: message {queue_offset} follows message {self.end - 1}"]
        self._append(entry)
        self.end += 1
        self.max_physical_offset = end
        return findings

    def _append(self, entries: Entries) -> None:
        """Append the entries. Later ones may take the place of these (`put_groups`), but for addresses of units."""
        if self._lanes.open_max > 0 and self._ext is None:
            self.files.append(self.end, entries.tobytes(), self._keep_open)
        else:
            self.files.append(self.end, entries.tobytes())

    def _keep_open(self, fd: int, first: int) -> None:
        self._lanes.hold(self.lane, fd, first, first + self.files.file_bytes // self.files.dtype.itemsize)

    def _is_expired(self) -> bool:
        if not self._expired.below:
            return False
        last = self.files.last_entry(self.end)
        return last is None or int(last["physical_offset"]) < self._expired.below

    def _ext_findings(self) -> list[str]:
        if self._ext is None or not self._ext.findings:
            return []
        findings, self._ext.findings = self._ext.findings, []
        return findings


class BatchBuilder(_Builder):
    """Builder of one batch consume queue."""

    def __init__(self, files: BatchConsumeQueue, from_offset: int, lanes: Lanes, name: tuple[bytes, int]) -> None:
        self.files = files
        self._units = files.end_below(from_offset)
        super().__init__(lanes, name, files.messages_end(self._units), from_offset)

    def put(self, share: Share) -> list[str]:
        """Write what is not there yet; what was odd about it."""
        offsets = share.entries["physical_offset"].astype(np.int64)
        bases = share.queue_offsets()
        counts = share.counts() if share.counts is not None else np.ones(len(bases), np.int64)
        new = offsets >= self.max_physical_offset
        good = new & (bases >= 0) & (counts > 0)
        findings = [
            f"{self.files.directory}: the record at {offsets[number]} says {counts[number]} messages from number"
            f" {bases[number]} on; it gets no unit"
            for number in np.flatnonzero(new & ~good)
        ]
        if not good.any():
            return findings
        units = np.zeros(int(good.sum()), BATCH_DTYPE)
        for name in ("physical_offset", "size", "tags_code"):
            units[name] = share.entries[name][good]
        units["store_timestamp_ms"], units["base_offset"] = share.store_timestamps_ms()[good], bases[good]
        units["count"], units["compact_offset"] = counts[good], NOT_COMPACTED
        self.files.append(self._units, units.tobytes())
        self._units += len(units)
        self.end = int(bases[good][-1] + counts[good][-1])
        self.max_physical_offset = int(offsets[good][-1]) + int(share.entries["size"][good][-1])
        return findings


Builder = PlainBuilder | BatchBuilder
