"""A read's log as a snapshot names it: from `startingSnapshot`, or the snapshot's own beginning, to `snapshot`'s end.

Everything that a snapshot says is compared with the store as it is before anything is planned by it, so that a read
has the rows of that moment or ends with what has become of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from spark_bridge.options.read import ReadOptions
from spark_bridge.options.values import InvalidOption
from spark_bridge.split.splits import LogExtent, Queue, Selection
from store.names import CONSUME_QUEUES
from store.upkeep import snapshot_state, snapshots
from store.upkeep.snapshots import Snapshot, SnapshotGone

log = logging.getLogger("slipstream.spark")


def snapshot_of(root: str, name: str, extent: LogExtent) -> Snapshot:
    """The snapshot of that name, if it is of this store and of this log.

    Raises SnapshotUnknown, SnapshotForeign, SnapshotGone, OwnFileDamaged, AccessDenied.
    """
    one = snapshots.read(root, name)
    snapshot_state.require(root, one)
    commitlog = Path(extent.commitlog)
    snapshot_state.require_log(root, one, commitlog, extent.min_physical_offset, extent.max_physical_offset)
    return one


def bounded_log(root: str, extent: LogExtent, options: ReadOptions) -> LogExtent:
    """The part of the log that a batch read's snapshots name; all of it without any.

    Raises as `snapshot_of`, and InvalidOption for a read that would end before it begins.
    """
    started = None if options.starting_snapshot is None else snapshot_of(root, options.starting_snapshot, extent)
    ended = None if options.snapshot is None else snapshot_of(root, options.snapshot, extent)
    end = extent.max_physical_offset if ended is None else ended.end_offset
    if started is not None and started.end_offset > end:
        what = f"startingSnapshot={started.name!r} is later than snapshot={options.snapshot!r}"
        raise InvalidOption(f"{root}: {what}: the read would end before it begins")
    named = ended if started is None else started
    if named is None:
        return extent
    first = named.min_offset if started is None else started.end_offset
    if extent.min_physical_offset > first:
        _tell_lost(root, named, first, min(extent.min_physical_offset, end), options)
    first = min(max(first, extent.min_physical_offset), end)
    reput = min(max(extent.reput_from_offset, first), end)
    return replace(extent, min_physical_offset=first, reput_from_offset=reput, max_physical_offset=end)


def _tell_lost(root: str, named: Snapshot, first: int, until: int, options: ReadOptions) -> None:
    what = f"retention has deleted its log from offset {first} to {until}"
    if options.rows.fail_on_data_loss:
        path = str(snapshots.path_of(root, named.name))
        raise SnapshotGone(path, f"{what} (failOnDataLoss=false reads what is left)")
    log.warning("%s: snapshot %s: %s; left out, as failOnDataLoss=false says", root, named.name, what)


def refuse_other_queues(
    root: str, extent: LogExtent, options: ReadOptions, queues: Iterable[Queue], selection: Selection
) -> None:
    """Raise SnapshotGone where a queue that is to be read is not the one that the snapshot names.

    A topic that was deleted and made again has queues that know nothing of what it had. One without any queues is
    looked for in the log itself; queues that a broker is still building are not checked.
    """
    if options.snapshot is None or not _are_built(extent):
        return
    one = snapshots.read(root, options.snapshot)
    ends = {(queue.topic, queue.queue_id): queue.end for queue in queues}
    for topic in sorted(selection.topics or ()):
        if Path(root, CONSUME_QUEUES, topic).is_dir():
            _compare(root, one, topic, ends, selection)


def _compare(root: str, one: Snapshot, topic: str, ends: Mapping[tuple[str, int], int], selection: Selection) -> None:
    for queue_id, end in one.offsets.get(topic, {}).items():
        if selection.queue_ids is not None and queue_id not in selection.queue_ids:
            continue
        if selection.queues is not None and (topic, queue_id) not in selection.queues:
            continue
        there = ends.get((topic, queue_id))
        if there != end:
            now = "is gone" if there is None else f"has {there} messages there now"
            what = f"queue {queue_id} of topic {topic!r} ended at {end} and {now}: the topic was created anew"
            raise SnapshotGone(str(snapshots.path_of(root, one.name)), what)


def _are_built(extent: LogExtent) -> bool:
    """Whether all below the log's end is in the queues: by the broker's word, or because it was left in order."""
    is_at_rest = extent.planned is not None and extent.planned.modified_ns > 0
    return is_at_rest or extent.reput_from_offset >= extent.max_physical_offset


def topics_then(root: str, options: ReadOptions, selection: Selection) -> frozenset[str]:
    """The topics selected that had queues at the snapshot: one that was deleted since is among its rows still."""
    if options.snapshot is None:
        return frozenset()
    then = snapshots.read(root, options.snapshot).offsets
    return frozenset(topic for topic in then if selection.admits(topic) and selection.may_be_queue(topic))
