"""What there is to read, found once on the driver: the log's ends, and the consume queues below the reput limit.

On a store with a broker the ends are its cursors. Without one, recovery's reading finds the log's end, and the queues
tell themselves how far they reach, because messages enter them in log order. After a kill they are not trusted (a
queue's file may have come further than another's): then everything counts as not dispatched, and ranges are scanned.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import replace
from pathlib import Path

from ipc.errors import RegionMissing
from spark_bridge.options.queues import EARLIEST
from spark_bridge.options.read import ReadOptions
from spark_bridge.records.reader import open_window
from spark_bridge.records.scan import record_starts
from spark_bridge.replica.replica import Stamp, place_of, stamp_of
from spark_bridge.split.splits import GUIDE_QUEUES_MAX, LogExtent, Queue, Selection
from store.errors import BrokerOutOfReach, CorruptRecord, NoBroker
from store.files.directory import StoreDirectory
from store.files.pointer import COMMIT_LOG_KEY
from store.files.segment_files import SegmentFiles, named_files, segment_bytes_of
from store.message.record import Kind, inspect
from store.message.topics import is_system_topic
from store.names import BATCH_QUEUES, CONSUME_QUEUES
from store.queues.batch_consume_queue import has_batch_queues
from store.queues.consume_queue import ConsumeQueue, queue_directories
from store.reading import extent as store_extent

STORES_REMEMBERED_MAX = 16
GUIDES_CONSIDERED_MAX = 256
LOOKED_THROUGH_BYTES_MAX = 64 << 20
QUEUE_DIRECTORIES = (CONSUME_QUEUES, BATCH_QUEUES)
MASTER_ROLE = "_MASTER"

_at_rest: dict[tuple[str, bool], tuple[Stamp, LogExtent]] = {}


def find_extent(
    root: str, broker_name: str = "", *, only_confirmed: bool = False, beyond_rot: bool = False
) -> LogExtent:
    """The log's ends now. Raises NotAStore, and whatever recovery finds wrong with a store without a broker.

    With `beyond_rot` that is no damage in the log: a reader that comes by tells it.
    `only_confirmed` ends it where enough replicas hold it; NoBroker, unless a master runs and knows that.
    """
    directory = _directory_of(root)
    directory.require()
    # Before max_physical_offset, so that the records below it are in the queues whatever happens meanwhile.
    reput = cursor_of(root, "reput_from_offset")
    confirmed = _confirmed(root) if only_confirmed else None
    if reput is None and not directory.was_aborted():
        extent = _extent_at_rest(directory, beyond_rot)
        return extent if extent.broker_name == broker_name else replace(extent, broker_name=broker_name)
    limits = store_extent.readable_range(root, beyond_rot=beyond_rot)
    extent = _extent(directory, limits, limits.min_physical_offset if reput is None else reput)
    end = extent.max_physical_offset if confirmed is None else min(confirmed, extent.max_physical_offset)
    log = replace(
        extent,
        broker_name=broker_name,
        max_physical_offset=end,
        reput_from_offset=min(extent.reput_from_offset, end),
        min_physical_offset=min(extent.min_physical_offset, end),
    )
    return _whole(log, extent.reput_from_offset) if limits.source == store_extent.BROKER else log


def _directory_of(root: str) -> StoreDirectory:
    """The store's paths below the root as the reader names it: executors find their own replica by it.

    A broker names its commit log by a path of its own, which counts where the log is set apart from the root.
    """
    plain = StoreDirectory(root)
    settings = (plain.read_pointer() or {}).get("settings", {})
    named = Path(settings.get(COMMIT_LOG_KEY) or plain.commitlog)
    if plain.commitlog.is_dir() and (not named.is_dir() or named.samefile(plain.commitlog)):
        return plain
    return StoreDirectory(root, named)


def _confirmed(root: str) -> int:
    """Up to where enough replicas hold the log. Raises NoBroker."""
    broker = store_extent.require_running(root)
    role = str(broker.settings.get("brokerRole", ""))
    offset = cursor_of(root, "confirm_offset") if role.endswith(MASTER_ROLE) else None
    if offset is None:
        raise NoBroker(root, f"onlyConfirmed: only a running master knows what is confirmed, this broker is {role!r}")
    return offset


def _extent_at_rest(directory: StoreDirectory, beyond_rot: bool) -> LogExtent:
    """The ends of a store that was left in order: found once for as long as nobody writes there again."""
    stamp = stamp_of(directory.commitlog)
    key = str(directory.root), beyond_rot
    known = _at_rest.get(key)
    if known is None or known[0] != stamp:
        # There is no torn record for a CRC to find; verifyCrc is for those who want bodies checked.
        limits = store_extent.readable_range(directory.root, check_crc=False, beyond_rot=beyond_rot)
        extent = _extent(directory, limits, _queued_end(directory))
        while len(_at_rest) >= STORES_REMEMBERED_MAX:
            _at_rest.pop(next(iter(_at_rest)))
        known = _at_rest[key] = (stamp, extent)
    return known[1]


def _extent(directory: StoreDirectory, limits: store_extent.Range, reput: int) -> LogExtent:
    first, end = limits.min_physical_offset, limits.max_physical_offset
    if end <= max(first, 0):
        return LogExtent(str(directory.commitlog), 1, first, first, end)
    files = SegmentFiles(directory.commitlog, segment_bytes_of(directory.commitlog))
    reput = _behind_blank(files, min(max(reput, first), end), end)
    is_written = limits.source == store_extent.BROKER or directory.was_aborted()
    planned = place_of(directory.commitlog, is_written=is_written)
    commitlog, root = str(directory.commitlog), str(directory.root)
    return LogExtent(commitlog, files.segment_bytes, first, reput, end, root, planned=planned)


def _whole(log: LogExtent, reput: int) -> LogExtent:
    """The log up to its last whole record: a slave's may end inside of one, each slave's at another place of it."""
    end = log.max_physical_offset
    base = end - end % log.segment_bytes
    start = max(base, reput) if reput <= end else base
    if start == end or end - start > LOOKED_THROUGH_BYTES_MAX:
        return log
    window = open_window(log, base)
    try:
        for positions in record_starts(window, start - base, start - base, end - base):
            last = positions[-1:]
            start = base + int(last[0]) + int(window.int32(last)[0])
    except CorruptRecord:  # who reads it tells
        return log
    return replace(log, max_physical_offset=start)


def cursor_of(root: str, label: str) -> int | None:
    """A cursor of the running broker, such as how far its dispatcher is; None without a broker."""
    broker = store_extent.running(root)
    if broker is None:
        return None
    try:
        counters = broker.counters()
    except (RegionMissing, BrokerOutOfReach) as error:  # it has stopped since, or cannot be reached
        store_extent.tell_unreached(error)
        return None
    try:
        return counters.cursor(label).read()
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
        inspection = inspect(segment.view, offset - base, offset, check_body_crc=False)
    return min(end, base + files.segment_bytes) if inspection.kind is Kind.BLANK else offset


def selection_of(options: ReadOptions, broker_name: str = "") -> Selection:
    """What options want of one broker's store; offsets given are bounds, moments not yet."""
    topics, tags = options.where.topics, options.where.tags
    named = None if options.topics is None else frozenset(options.topics)
    hides = named is None and not options.include_system_topics
    if topics is not None:
        asked = Selection(named, topic_pattern=options.topic_pattern, system_topics=not hides)
        topics = frozenset(filter(asked.admits, topics))
    assigned = frozenset(queue[:2] for queue in options.assigned if queue.is_of(broker_name))
    first = {item.queue[:2]: item.offset for item in options.starting_offsets if item.queue.is_of(broker_name)}
    ends = {item.queue[:2]: item.offset for item in options.ending_offsets if item.queue.is_of(broker_name)}
    bounds = []
    for topic, queue_id in sorted(first.keys() | ends.keys()):
        start, end = first.get((topic, queue_id), EARLIEST), ends.get((topic, queue_id), -1)
        if start >= 0 or end >= 0:
            bounds.append((topic, queue_id, max(0, start), end if end >= 0 else None))
    return Selection(
        named if topics is None else topics,
        options.where.queue_ids,
        tuple(bounds),
        topic_pattern=options.topic_pattern if topics is None else None,
        system_topics=not hides,
        queues=assigned if options.assigned else None,
        tags=options.tags if tags is None else tags & (options.tags or tags),
        keys=frozenset(options.keys) or None,
    )


def find_queues(root: str, log: LogExtent, selection: Selection) -> tuple[list[Queue], frozenset[str]]:
    """The queues that a plan needs, and the selected topics that have no queues of the plain kind to go by."""
    places = queue_directories(Path(root) / CONSUME_QUEUES)
    if selection.topics is None:
        guides = heapq.nlargest(GUIDE_QUEUES_MAX, itertools.islice(places, GUIDES_CONSIDERED_MAX), key=_queue_bytes)
        return [_open(topic, queue_id, path, log) for topic, queue_id, path in guides], frozenset()
    by_queue = frozenset(topic for topic in selection.topics if _has_plain_queues(root, topic))
    queues = [
        _open(topic, queue_id, path, log)
        for topic, queue_id, path in places
        if topic in by_queue
        and (selection.queue_ids is None or queue_id in selection.queue_ids)
        and (selection.queues is None or (topic, queue_id) in selection.queues)
    ]
    return queues, selection.topics - by_queue


def topics_of(root: str, selection: Selection) -> frozenset[str]:
    """The topics with queues that are selected; multi-dispatch queues only by their names."""
    names = {path.name for kind in QUEUE_DIRECTORIES for path in directories(Path(root) / kind)}
    return frozenset(name for name in names if selection.admits(name) and selection.may_be_queue(name))


def has_system_queues(root: str) -> bool:
    """Whether any topic of the broker's own has a queue."""
    return any(is_system_topic(topic) for topic in topics_of(root, Selection()))


def queue_ends(root: str, selection: Selection) -> dict[tuple[str, int], tuple[int, int]]:
    """(topic, queue id): first queue offset and end, below what is dispatched and published, of the queues selected.

    Batch queues, whose entries are not messages, are not among them.
    """
    log = find_extent(root)
    topics = topics_of(root, selection)
    queues, _ = find_queues(root, log, replace(selection, topics=topics, topic_pattern=None))
    return {(queue.topic, queue.queue_id): (queue.first, queue.end) for queue in queues}


def _has_plain_queues(root: str, topic: str) -> bool:
    if has_batch_queues(root, topic):
        return False
    return Path(root, CONSUME_QUEUES, topic).is_dir()


def directories(path: Path) -> list[Path]:
    """The directories in a directory; none when there is no such one."""
    try:
        return [entry for entry in path.iterdir() if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _queue_bytes(queue: tuple[str, int, Path]) -> int:
    return sum(size for _, size in named_files(queue[2]))


def _open(topic: str, queue_id: int, path: Path, log: LogExtent) -> Queue:
    return Queue.below(str(path), topic, queue_id, ConsumeQueue.open(path), log)
