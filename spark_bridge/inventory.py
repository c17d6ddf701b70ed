"""What there is to read, found once on the driver: the log's ends, and the consume queues below the reput limit.

On a store with a broker the ends are its cursors. Without one, recovery's reading finds the log's end, and the queues
tell themselves how far they reach, because messages enter them in log order. After a kill they are not trusted (a
queue's file may have come further than another's): then everything counts as not dispatched, and ranges are scanned.
"""

from __future__ import annotations

import heapq
import itertools
from pathlib import Path

from ipc.errors import RegionMissing
from spark_bridge.options import ReadOptions
from spark_bridge.splits import GUIDE_QUEUES_MAX, LogExtent, Queue, Selection
from store import published
from store.consume_queue import ConsumeQueue, queue_directories
from store.directory import StoreDirectory
from store.record import Kind, inspect
from store.segment import file_name
from store.segment_files import SegmentFiles, named_files, segment_bytes_of
from store.topics import is_lmq

STORES_REMEMBERED_MAX = 16
GUIDES_CONSIDERED_MAX = 256
BATCH_QUEUES_DIRECTORY = "batchconsumequeue"

_at_rest: dict[str, tuple[tuple[tuple[str, int, int], ...], LogExtent]] = {}


def find_extent(root: str) -> LogExtent:
    """The log's ends now. Raises NotAStore, and whatever recovery finds wrong with a store without a broker."""
    pointer = StoreDirectory(root).read_pointer() or {}
    directory = StoreDirectory(root, pointer.get("settings", {}).get("storePathCommitLog"))
    directory.require()
    # Before max_physical_offset, so that the records below it are in the queues whatever happens meanwhile.
    reput = _dispatched_end(root)
    if reput is None and not directory.was_aborted():
        return _extent_at_rest(directory)
    limits = published.readable_range(root)
    return _extent(directory, limits, limits.min_physical_offset if reput is None else reput)


def _extent_at_rest(directory: StoreDirectory) -> LogExtent:
    """The ends of a store that was left in order: found once for as long as nobody writes there again."""
    files = [directory.commitlog / file_name(base) for base, _ in named_files(directory.commitlog)]
    stamp = tuple((path.name, path.stat().st_ino, path.stat().st_mtime_ns) for path in files)
    known = _at_rest.get(str(directory.root))
    if known is None or known[0] != stamp:
        # There is no torn record for a CRC to find; verifyCrc is for those who want bodies checked.
        limits = published.readable_range(directory.root, check_crc=False)
        extent = _extent(directory, limits, _queued_end(directory))
        while len(_at_rest) >= STORES_REMEMBERED_MAX:
            _at_rest.pop(next(iter(_at_rest)))
        known = _at_rest[str(directory.root)] = (stamp, extent)
    return known[1]


def _extent(directory: StoreDirectory, limits: published.Range, reput: int) -> LogExtent:
    first, end = limits.min_physical_offset, limits.max_physical_offset
    if end <= max(first, 0):
        return LogExtent(str(directory.commitlog), 1, first, first, end)
    files = SegmentFiles(directory.commitlog, segment_bytes_of(directory.commitlog))
    reput = _behind_blank(files, min(max(reput, first), end), end)
    return LogExtent(str(directory.commitlog), files.segment_bytes, first, reput, end, str(directory.root))


def _dispatched_end(root: str) -> int | None:
    """How far the running broker's dispatcher is; None without a broker."""
    broker = published.running(root)
    if broker is None:
        return None
    try:
        counters = broker.counters()
    except RegionMissing:  # it has stopped since
        return None
    try:
        return counters.cursor("reput_from_offset").read()
    finally:
        counters.close()


def _queued_end(directory: StoreDirectory) -> int:
    """The end of the last record that any queue of a store at rest points to."""
    end = 0
    for _, _, path in queue_directories(directory.consumequeue):
        queue = ConsumeQueue.open(path)
        entry = queue.last_entry(queue.max_offset)
        if entry is not None:
            end = max(end, int(entry["physical_offset"]) + int(entry["size"]))
    return end


def _behind_blank(files: SegmentFiles, offset: int, end: int) -> int:
    """`offset`, or where the next segment begins if only a blank record lies between."""
    base = files.base_of(offset)
    if offset in (end, base):
        return offset
    with files.open(base) as segment:
        found = inspect(segment.view, offset - base, offset, check_body_crc=False)
    return min(end, base + files.segment_bytes) if found.kind is Kind.BLANK else offset


def selection_of(options: ReadOptions, topics: frozenset[str] | None, queue_ids: frozenset[int] | None) -> Selection:
    """What options and pushed filters want together."""
    if options.topics is not None:
        topics = frozenset(options.topics) if topics is None else topics & frozenset(options.topics)
    first = {(topic, queue): offset for topic, queue, offset in options.starting_offsets}
    ends = {(topic, queue): offset for topic, queue, offset in options.ending_offsets}
    bounds = tuple((*key, first.get(key, 0), ends.get(key)) for key in sorted(first.keys() | ends.keys()))
    return Selection(topics, queue_ids, bounds)


def find_queues(root: str, log: LogExtent, selection: Selection) -> tuple[list[Queue], frozenset[str]]:
    """The queues that a plan needs, and the selected topics that have no queues of the plain kind to go by."""
    found = queue_directories(Path(root) / "consumequeue")
    if selection.topics is None:
        guides = heapq.nlargest(GUIDE_QUEUES_MAX, itertools.islice(found, GUIDES_CONSIDERED_MAX), key=_queue_bytes)
        return [_open(topic, queue_id, path, log) for topic, queue_id, path in guides], frozenset()
    by_queue = frozenset(
        topic
        for topic in selection.topics
        if (Path(root) / "consumequeue" / topic).is_dir()
        and not (Path(root) / BATCH_QUEUES_DIRECTORY / topic).exists()
        and not is_lmq(topic)
    )
    queues = [
        _open(topic, queue_id, path, log)
        for topic, queue_id, path in found
        if topic in by_queue and (selection.queue_ids is None or queue_id in selection.queue_ids)
    ]
    return queues, selection.topics - by_queue


def _queue_bytes(queue: tuple[str, int, Path]) -> int:
    return sum(size for _, size in named_files(queue[2]))


def _open(topic: str, queue_id: int, path: Path, log: LogExtent) -> Queue:
    return Queue.below(str(path), topic, queue_id, ConsumeQueue.open(path), log)
