"""What there is to read, found once on the driver: the log's ends, and the consume queues below the reput limit.

On a store with a broker the ends are its cursors. Without one, recovery's reading finds the log's end, and the queues
tell themselves how far they reach, because messages enter them in log order. After a kill they are not trusted (a
queue's file may have come further than another's): then everything counts as not dispatched, and ranges are scanned.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ipc.errors import RegionMissing
from spark_bridge.options.queues import EARLIEST
from spark_bridge.options.read import ReadOptions
from spark_bridge.records.reader import open_window
from spark_bridge.records.walk import walked
from spark_bridge.replica.replica import Stamp, place_of, stamped_files
from spark_bridge.split.splits import GUIDE_QUEUES_MAX, LogExtent, Queue, Selection
from store.errors import BrokerOutOfReach, CorruptRecord, NoBroker, QueueFileMismatch
from store.files.directory import StoreDirectory, directories_in
from store.files.pointer import COMMIT_LOG_KEY
from store.files.segment_files import SegmentFiles, named_files, segment_bytes_of
from store.message.record import Kind, Message, inspect
from store.message.topics import is_system_topic
from store.names import BATCH_QUEUES, CONSUME_QUEUES
from store.queues.consume_queue import queue_places
from store.queues.seen_queue import SeenQueue
from store.reading import extent as store_extent
from store.reading.by_queues import is_listed

STORES_REMEMBERED_MAX = 16
GUIDES_CONSIDERED_MAX = 256
TOPICS_ASKED_MAX = 64  # one by one; of more topics the folder is listed
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
    """Return up to where enough replicas hold the log. Raises NoBroker."""
    broker = store_extent.require_running(root)
    role = str(broker.settings.get("brokerRole", ""))
    offset = cursor_of(root, "confirm_offset") if role.endswith(MASTER_ROLE) else None
    if offset is None:
        raise NoBroker(root, f"onlyConfirmed: only a running master knows what is confirmed, this broker is {role!r}")
    return offset


def _extent_at_rest(directory: StoreDirectory, beyond_rot: bool) -> LogExtent:
    """The ends of a store that was left in order: found once for as long as nobody writes there again."""
    stamp, named = stamped_files(directory.commitlog)
    key = str(directory.root), beyond_rot
    known = _at_rest.get(key)
    if known is None or known[0] != stamp:
        # There is no torn record for a CRC to find; verifyCrc is for those who want bodies checked.
        limits = store_extent.readable_range(directory.root, check_crc=False, beyond_rot=beyond_rot, named=named)
        extent = _extent(directory, limits, _queued_end(directory, limits), stamp)
        while len(_at_rest) >= STORES_REMEMBERED_MAX:
            _at_rest.pop(next(iter(_at_rest)))
        known = _at_rest[key] = (stamp, extent)
    return known[1]


def _extent(directory: StoreDirectory, limits: store_extent.Range, reput: int, stamp: Stamp | None = None) -> LogExtent:
    first, end = limits.min_physical_offset, limits.max_physical_offset
    if end <= max(first, 0):
        return LogExtent(str(directory.commitlog), 1, first, first, end)
    files = _files(directory, limits)
    reput = _behind_blank(files, min(max(reput, first), end), end)
    is_written = limits.source == store_extent.BROKER or directory.was_aborted()
    planned = place_of(directory.commitlog, is_written=is_written, stamp=stamp)
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
        for records in walked(window, start - base, start - base, end - base):
            start = base + int(records.starts[-1]) + int(records.sizes[-1])
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


def _files(directory: StoreDirectory, limits: store_extent.Range) -> SegmentFiles:
    """The log's files; who found its end knows how long they are."""
    return SegmentFiles(directory.commitlog, limits.segment_bytes or segment_bytes_of(directory.commitlog))


def _queued_end(directory: StoreDirectory, limits: store_extent.Range) -> int:
    """The end of the last record that any queue of a store at rest points to.

    Messages enter queues in the order of the log: where the last one of the log is in its queue, that is the one.
    """
    if limits.max_physical_offset <= max(limits.min_physical_offset, 0):
        return 0
    last = _last_message(directory, limits)
    if last is not None and is_listed(directory, last):
        return last.physical_offset + last.total_size
    end = 0
    for _, _, place in queue_places(directory.consumequeue):
        with SeenQueue(place) as queue:
            end = max(end, queue.last_record_end())
    return end


def _last_message(directory: StoreDirectory, limits: store_extent.Range) -> Message | None:
    """The message that ends where the log does; None where another thing does."""
    from store.reading.boundary import boundary_before  # loads numba, which to find the end at rest has loaded
    from store.recovery.log_end import first_record_to_walk

    files, end = _files(directory, limits), limits.max_physical_offset
    start = max(limits.min_physical_offset, first_record_to_walk(files, files.base_of(end - 1), end))
    boundary = boundary_before(files, start, end)
    return boundary.last if boundary.offset == end else None


def _behind_blank(files: SegmentFiles, offset: int, end: int) -> int:
    """`offset`, or where the next segment begins if only a blank record lies between."""
    base = files.base_of(offset)
    if offset in (end, base):
        return offset
    with files.open(base) as segment:
        inspection = inspect(segment.view, offset - base, offset, check_body_crc=False)
    return min(end, base + files.segment_bytes) if inspection.kind is Kind.BLANK else offset


def selection_of(options: ReadOptions, broker_name: str = "") -> Selection:
    """Return what options want of one broker's store; offsets given are bounds, moments not yet."""
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


def find_queues(
    root: str, log: LogExtent, selection: Selection, look: Callable[[Queue], None] | None = None
) -> tuple[list[Queue], frozenset[str]]:
    """The queues that a plan needs, and the selected topics that have no queues of the plain kind to go by.

    `look` is called with each queue selected, while its files are at hand.
    """
    top = Path(root) / CONSUME_QUEUES
    if selection.topics is None:
        places = itertools.islice(queue_places(top), GUIDES_CONSIDERED_MAX)
        return list(_guides(heapq.nlargest(GUIDE_QUEUES_MAX, places, key=_queue_bytes), log)), frozenset()
    by_queue = topics_in(root, CONSUME_QUEUES, selection.topics) - topics_in(root, BATCH_QUEUES, selection.topics)
    queues = [
        _open(topic, queue_id, place, log, look)
        for topic, queue_id, place in queue_places(top, by_queue)
        if (selection.queue_ids is None or queue_id in selection.queue_ids)
        and (selection.queues is None or (topic, queue_id) in selection.queues)
    ]
    return queues, selection.topics - by_queue


def _guides(places: Iterable[tuple[str, int, str]], log: LogExtent) -> Iterator[Queue]:
    """Yield the queues that can show where records begin; an invalid one is skipped, and reported when it is read."""
    for place in places:
        with suppress(QueueFileMismatch):
            yield _open(*place, log)


def topics_of(root: str, selection: Selection) -> frozenset[str]:
    """The topics with queues that are selected; multi-dispatch queues only by their names."""
    names = {name for kind in QUEUE_DIRECTORIES for name in directories(Path(root) / kind)}
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


def topics_in(root: str, kind: str, topics: Iterable[str]) -> frozenset[str]:
    """Return the topics that have queues of a kind, which is its folder's name."""
    top, names = Path(root) / kind, frozenset(topics)
    if len(names) > TOPICS_ASKED_MAX:
        return names.intersection(directories(top))
    return frozenset(name for name in names if "/" not in name and name.strip(".") and (top / name).is_dir())


def directories(path: Path | str) -> list[str]:
    """The names of the directories in a directory; none when there is no such one."""
    try:
        return directories_in(path)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _queue_bytes(queue: tuple[str, int, str]) -> int:
    return sum(size for _, size in named_files(queue[2]))


def _open(topic: str, queue_id: int, place: str, log: LogExtent, look: Callable[[Queue], None] | None = None) -> Queue:
    with SeenQueue(place) as entries:
        queue = Queue.below(place, topic, queue_id, entries, log)
        if look is not None:
            look(queue)
    return queue
