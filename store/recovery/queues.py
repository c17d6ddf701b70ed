"""Brings the consume queues of all kinds to the log's end before a broker's processes start: cut, checked, built again.

Implements: ConsumeQueue.recover, ConsumeQueueStore.recover, the dispatch of recovery (spec: store-formats, section 17)
Queues are a function of the log, below the checkpoint's offset they are on disk. Above it whatever processes wrote is
there after a kill; after a power cut any of it may be missing, so what is above is taken out, units of extensions with
it, and dispatched again. That is so before all queues are built again, too: a unit lost in the midst would leave its
record without one, and a part of a unit can look like a whole one.
The log's files expire: of a queue that rests nothing but its own entries tells which number comes next, and consumers'
offsets go by that. So entries of expired records are compared with nothing, and stay where all is built again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from store.errors import QueueFileMismatch, QueueGap
from store.files import file_io
from store.files.checkpoint import Checkpoint
from store.files.segment import Segment, file_name
from store.files.segment_files import SegmentFiles, named_files
from store.message import rows_kernel as kernel
from store.message.properties import java_text
from store.message.rows_kernel import Row
from store.message.topics import is_lmq
from store.names import BATCH_QUEUES, QUEUE_EXTENSIONS
from store.queues.batch_consume_queue import BatchConsumeQueue
from store.queues.consume_queue import ConsumeQueue, is_file_name, queue_directories
from store.queues.extension import QueueExt, require_length
from store.queues.queue_set import QueueKinds
from store.queues.sync import totals
from store.recovery import log_end
from store.recovery.dispatch import Dispatcher

REFIT_SUFFIX = ".refitted"


class QueueRecovery:
    """The consume queues of all kinds during recovery."""

    def __init__(self, root: Path, file_bytes: int, kinds: QueueKinds, *, power_cut: bool = False) -> None:
        self.root, self._file_bytes, self._kinds, self._power_cut = root, file_bytes, kinds, power_cut
        self._rebuild: str | None = None  # why all queues are to be built again
        self.findings: list[str] = []

    def _every(self) -> Iterator[tuple[str, int, ConsumeQueue]]:
        """(topic, queue id, queue) of the plain queues and of the batch queues."""
        for topic, queue_id, path in queue_directories(self.root):
            yield topic, queue_id, ConsumeQueue(path, self._file_bytes)
        for topic, queue_id, path in queue_directories(self.root.parent / BATCH_QUEUES):
            yield topic, queue_id, BatchConsumeQueue(path, self._kinds.batch_file_bytes)

    def require_extensions(self) -> None:
        """Raise QueueFileMismatch when files of extensions have another length than the settings say.

        One that a power cut left without any is taken away: nothing was in it.
        """
        if self._kinds.ext_file_bytes:
            for _topic, _queue_id, path in queue_directories(self.root.parent / QUEUE_EXTENSIONS):
                for base, size in named_files(path):
                    if self._power_cut and not size:
                        file_io.unlink(path / file_name(base))
                require_length(path, self._kinds.ext_file_bytes)

    def cut(self, files: SegmentFiles, min_offset: int, max_offset: int, checkpoint: Checkpoint) -> None:
        """Cut every queue to its sound entries below the log's end; after a power cut, to those of the checkpoint.

        Without a Slipstream checkpoint, nothing that the log still shows is known to be on disk.
        """
        file_io.remove_tree(_beside(self.root))  # a killed recovery's
        known = checkpoint.flushed_offset
        on_disk = min_offset if known is None else min(known, max_offset)
        for topic, queue_id, queue in self._every():
            try:
                if self._power_cut and (known is not None or self._builds(topic)):
                    _drop_lost_files(queue)
                    queue.truncate(queue.end_below(on_disk))
                    continue
                end = queue.sound_end(max_offset)
                held = queue.end_below(max_offset)
                queue.truncate(end if end == held else max(end, queue.end_below(min_offset)))
            except QueueFileMismatch as error:
                self._rebuild = str(error)
                continue
            if end < held:
                self._rebuild = f"{queue.directory}: entry {end} is damaged"
            elif not self._is_further(topic) and not _names_its_record(queue, end, topic, queue_id, files, min_offset):
                self._rebuild = f"{queue.directory}: entry {end - 1} belongs to another queue"
        if self._power_cut and self._kinds.ext_file_bytes:
            self._cut_extensions(on_disk)

    def _cut_extensions(self, on_disk: int) -> None:
        """Take out the units of records from that offset on, and all of those whose queue tells nothing of them."""
        for topic, queue_id, path in queue_directories(self.root.parent / QUEUE_EXTENSIONS):
            queue = ConsumeQueue(self.root / topic / str(queue_id), self._file_bytes)
            try:
                end = queue.end_below(on_disk)
            except QueueFileMismatch:  # noted by `cut`
                end = 0
            if not QueueExt(path, self._kinds.ext_file_bytes).cut(queue, end):
                self._rebuild = f"{path}: the unit of the last entry before {end} is missing"

    def _builds(self, name: str) -> bool:
        """Whether queues of that name are built from the log: those of multi-dispatch only with it."""
        return self._kinds.multi_dispatch or not is_lmq(name)

    def _is_further(self, name: str) -> bool:
        """Whether other topics' records may be in a queue of that name, by multi-dispatch."""
        return is_lmq(name) or self._kinds.multi_dispatch

    def build(self, files: SegmentFiles, min_offset: int, max_offset: int, checkpoint: Checkpoint) -> None:
        """Dispatch what the queues lack."""
        start = checkpoint.flushed_offset
        if start is None or not min_offset <= start <= max_offset:
            start = min_offset  # how far the queues are complete is unknown: look at all of the log, once
        elif self._rebuild is None:
            held = totals(self.root, self._file_bytes, start)
            if (held.queues, held.entries) != (checkpoint.queues, checkpoint.entries):
                self._rebuild = f"{self.root}: the number of entries differs from the checkpoint"
        if self._rebuild is None:
            try:
                self._dispatch(files, start, max_offset, refuse_gaps=self._power_cut or start > min_offset)
                return
            except QueueGap as gap:
                self._rebuild = str(gap)
        self.remove_all(self._rebuild, min_offset)
        self._dispatch(files, min_offset, max_offset, refuse_gaps=False, is_anew=True)

    def _dispatch(self, files: SegmentFiles, start: int, end: int, *, refuse_gaps: bool, is_anew: bool = False) -> None:
        dispatcher = Dispatcher(files, self.root, self._file_bytes, refuse_gaps=refuse_gaps, kinds=self._kinds)
        if is_anew:
            dispatcher.skip_to(start)  # where kept entries and the log's numbers do not fit together, the log counts
        try:
            dispatcher.dispatch(start, end)
        finally:
            dispatcher.close()
        self.findings += dispatcher.findings

    def remove_all(self, because: str, min_offset: int = 0) -> None:
        """Remove what the log from `min_offset` on tells of the queues, to have it built again; of multi-dispatch only
        if we build it. Extensions stay. In place: a kill meanwhile must not take a number that the log has no more."""
        removed = 0
        for topic, _queue_id, queue in list(self._every()):
            if self._builds(topic):
                if not _keep_expired(queue, min_offset):
                    file_io.remove_tree(queue.directory)
                removed += 1
        if removed:
            self.findings.append(f"{removed} consume queues are rebuilt from the log: {because}")

    def ends(self, max_physical_offset: int) -> dict[tuple[str, int], int]:
        """The next queue offset of every queue."""
        by_queue = {}
        for topic, queue_id, queue in self._every():
            end = queue.end_below(max_physical_offset)
            by_queue[topic, queue_id] = queue.messages_end(end)
        return by_queue


def _drop_lost_files(queue: ConsumeQueue) -> None:
    """Remove from the first file on that a power cut left without its length, or without the file before it.

    Files that were on disk lie before it; should one be missing, the checkpoint knows of more entries.
    """
    files = named_files(queue.directory)
    if files and files[0][1] not in (0, queue.file_bytes):
        return  # of another length by the settings of before
    for number, (base, size) in enumerate(files):
        if not size or base != files[0][0] + number * queue.file_bytes:
            for lost, _size in files[number:]:
                file_io.unlink(queue.directory / file_name(lost))
            return


def _keep_expired(queue: ConsumeQueue, min_offset: int) -> bool:
    """Drop the entries of records from that offset on; False when none is before them, or nobody can tell."""
    try:
        bases, end = queue.bases(), queue.end_below(min_offset)
    except QueueFileMismatch:
        return not isinstance(queue, BatchConsumeQueue) and _refit(queue, min_offset)  # of units none points nowhere
    if not bases or end * queue.dtype.itemsize <= bases[0]:
        return False
    queue.truncate(end)
    if queue.sound_end(min_offset) < end:
        queue.point_nowhere(bases[0] // queue.dtype.itemsize, end)  # else each start would come here again
    return True


def _refit(queue: ConsumeQueue, min_offset: int) -> bool:
    """Replace files of another length by one of this length that ends where records have not expired.

    That follows a change of mappedFileSizeConsumeQueue. False when the end is unknown.
    """
    try:
        end = ConsumeQueue.open(queue.directory).end_below(min_offset)
    except QueueFileMismatch:
        return False
    if not end:
        return False
    beside = _beside(queue.directory.parents[1]) / "queue"  # not among the topics, which RocketMQ reads
    file_io.remove_tree(beside)
    per_file = queue.file_bytes // queue.dtype.itemsize
    ConsumeQueue(beside, queue.file_bytes).point_nowhere((end - 1) // per_file * per_file, end)
    file_io.sync_tree(beside.parent)
    try:
        file_io.exchange(beside, queue.directory)
    except OSError:  # a file system that cannot
        file_io.remove_tree(queue.directory)
        file_io.rename(beside, queue.directory)
    for directory in (queue.directory.parent, beside.parent):
        file_io.sync_directory(directory)
    file_io.remove_tree(beside.parent)
    return True


def _beside(root: Path) -> Path:
    """Return where a queue is made that is to take another's place."""
    return root.with_name(root.name + REFIT_SUFFIX)


def _names_its_record(
    queue: ConsumeQueue, end: int, topic: str, queue_id: int, files: SegmentFiles, min_offset: int
) -> bool:
    """Whether the last entry points at a record of this queue with that size. True when it points nowhere, or below
    the log: the queue has rested since."""
    entry = queue.last_entry(end) if end else None
    if entry is None:
        return True
    offset = int(entry["physical_offset"])
    if offset < min_offset:
        return True
    path = files.path_of(files.base_of(offset))
    if not path.exists():
        return False
    with files.open(files.base_of(offset)) as segment:
        return _is_record_of(segment, offset - segment.base_offset, int(entry["size"]), topic, queue_id)


def _is_record_of(segment: Segment, position: int, size: int, topic: str, queue_id: int) -> bool:
    rows = log_end.new_rows(1)
    limit = min(position + size, segment.size_bytes)
    _, count, _ = kernel.scan(segment.array, position, limit, segment.base_offset, rows)
    if not count:
        return False
    row = rows[0]
    start = int(row[Row.TOPIC_AT])
    stored_topic = segment.array[start : start + int(row[Row.TOPIC_BYTES])].tobytes()
    return int(row[Row.SIZE]) == size and int(row[Row.QUEUE_ID]) == queue_id and java_text(stored_topic) == topic


def queue_end_below(root: Path, file_bytes: int | None, topic: str, queue_id: int, physical_offset: int) -> int:
    """Return how many entries that consume queue has of records below an offset; 0 when it is not there or unsound."""
    if not is_file_name(topic):
        return 0
    try:
        return ConsumeQueue.open(root / topic / str(queue_id), file_bytes).end_below(physical_offset)
    except QueueFileMismatch:
        return 0
