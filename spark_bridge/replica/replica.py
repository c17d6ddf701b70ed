"""The replica on an executor's host: it is waited for until it holds what was planned; else the error has both offsets.

A plan is made on one host and read on others. A replica there may be behind the one that was planned (its bytes beyond
its own end are zeros, or half a record), or its log may begin later. Its own end is asked before anything is read: the
cursors of the broker that runs there, else what read-only recovery finds. The very files that were planned, and did not
change, need not be asked.
"""

from __future__ import annotations

import functools
import hashlib
import os
import socket
import time
from pathlib import Path
from typing import NamedTuple

from ipc import process
from ipc.errors import RegionMissing
from spark_bridge.split.splits import LogExtent, PlannedPlace, QueueSplit, RangeSplit, Split
from store.errors import (
    BrokerOutOfReach,
    ForeignFile,
    MissingSegment,
    NotAStore,
    QueueEntriesRemoved,
    SegmentRemoved,
    SegmentSizeMismatch,
    StoreError,
)
from store.files import file_times
from store.files.directory import StoreDirectory
from store.files.segment import file_name
from store.files.segment_files import changed_files, named_files
from store.queues.consume_queue import ConsumeQueue
from store.reading import extent

POLL_S = 0.05
STORES_REMEMBERED_MAX = 16
MANY_FILES = 1000  # a log of more is not looked at for each split of a read
LOOK_SHARE = 20  # but again after so many times as long as the look took


class Stamp(NamedTuple):
    """A mark that differs when any file of a log at rest was changed, and the time when the newest one was written."""

    digest: bytes
    modified_ns: int


_at_rest: dict[tuple[str, int, int], tuple[Stamp, int]] = {}
_boot_id = functools.cache(process.boot_id)
_looks: dict[tuple[int, int, int], tuple[float, int]] = {}  # until when the result of a look at many files is used


class ReplicaBehind(StoreError):
    """Raised when the replica on this host does not have the planned messages yet.

    Next: `slipstream ha status STORE` on the executor's host; or a longer `replicaWaitSeconds`.
    """

    code = "REPLICA_BEHIND"

    def __init__(self, path: str, what: str, end: int, planned: int, seconds: float) -> None:
        super().__init__(
            f"{path}: the replica on {socket.gethostname()}, where this task of Spark runs, holds {what} up to offset"
            f" {end}, the plan wants it up to {planned}, and {seconds:.0f} s did not change that; look at"
            " `slipstream ha status` there, wait longer with replicaWaitSeconds, or plan on the replica that is behind"
        )
        self.path, self.end, self.planned = path, end, planned


class ReplicaBeginsLater(SegmentRemoved):
    """Raised when the log of the replica on this host begins after the planned offset.

    Next: plan on that replica, keep messages equally long on all (`fileReservedTime`), or `failOnDataLoss=false`.
    """

    code = "REPLICA_BEGINS_LATER"

    def __init__(self, path: str, begin: int, planned: int) -> None:
        StoreError.__init__(
            self,
            f"{path}: the log of the replica on {socket.gethostname()}, where this task of Spark runs, begins at offset"
            f" {begin}, the plan begins at {planned}; keep messages equally long on all replicas (fileReservedTime),"
            " plan on this one, or leave out what it does not have with failOnDataLoss=false",
        )
        self.path, self.begin, self.planned = path, begin, planned


class Reach(NamedTuple):
    """The reach of a replica: its log's end, and the offset below which every record is in its queue.

    `is_dispatched`: whether that is known. A broker that was killed, or that cannot be seen from here (it starts, and
    receives already), may have log that is in no queue yet.
    """

    end: int
    queued: int
    is_dispatched: bool = True


def place_of(commitlog: Path, *, is_written: bool, stamp: Stamp | None = None) -> PlannedPlace | None:
    """The log of that directory as it is now, or was at its stamp; None when there is no such directory."""
    try:
        status = os.stat(commitlog)
    except FileNotFoundError:
        return None
    modified_ns = 0
    if not is_written:
        modified_ns = _newest_ns(commitlog, status) if stamp is None else stamp.modified_ns
    return PlannedPlace(_boot_id(), status.st_dev, status.st_ino, modified_ns)


def _newest_ns(commitlog: Path, status: os.stat_result) -> int:
    """Return when the newest file was written. Every split asks, and there may be as many as files."""
    key, began = (status.st_dev, status.st_ino, status.st_mtime_ns), time.monotonic()
    known = _looks.get(key)
    if known is not None and began < known[0]:
        return known[1]
    files = changed_files(commitlog)
    newest_ns = max((file[-1] for file in files), default=0)
    _looks.clear()
    if len(files) > MANY_FILES:
        ended = time.monotonic()
        _looks[key] = ended + LOOK_SHARE * (ended - began), newest_ns
    return newest_ns


def stamp_of(commitlog: Path) -> Stamp:
    """The stamp now: another one each time, while a file may change unseen by its time."""
    return stamped_files(commitlog)[0]


def stamped_files(commitlog: Path) -> tuple[Stamp, list[tuple[int, int]]]:
    """The stamp, and the files that it is of: (base offset, bytes), as `named_files` tells them."""
    looked_ns = file_times.look_ns()
    files = changed_files(commitlog)
    digest = hashlib.blake2b(b"".join(b"%d %d %d %d %d\n" % file for file in files), digest_size=16)
    newest_ns = max((file[-1] for file in files), default=0)
    if files and not file_times.is_settled(newest_ns, looked_ns):
        digest.update(b"%d" % looked_ns)
    return Stamp(digest.digest(), newest_ns), [file[:2] for file in files]


def is_planned(log: LogExtent) -> bool:
    """Whether the log here is the one that was planned."""
    known = log.planned
    return known is not None and known == place_of(Path(log.commitlog), is_written=not known.modified_ns)


def await_planned(split: Split, seconds: float, *, queues_too: bool) -> None:
    """Wait until the replica here holds what the split reads. Raises ReplicaBehind, NoReplicaHere.

    `queues_too`: also of a range the queues, which are asked about damage. Splits of which no store is known (of an
    empty log) are read as they are.
    """
    log = split.log
    if not log.root:
        return
    deadline = time.monotonic() + seconds
    while (missing := _missing(split, queues_too)) is not None:
        if time.monotonic() >= deadline:
            raise ReplicaBehind(log.root, *missing, seconds)
        time.sleep(POLL_S)


def _missing(split: Split, queues_too: bool) -> tuple[str, int, int] | None:
    """Return what is not here yet, how far it is here, and how far it was planned."""
    log = split.log
    wanted = end_of(split)
    reach = _reach(log, wanted)
    if reach is None:
        return None
    if isinstance(split, QueueSplit):
        is_there = reach.is_dispatched and reach.queued >= wanted
        return None if is_there else _missing_entries(split, reach.queued)
    if reach.end < wanted:
        return "the log", reach.end, wanted
    wanted = min(wanted, log.reput_from_offset)
    return ("consume queues", reach.queued, wanted) if queues_too and reach.queued < wanted else None


def end_of(split: Split) -> int:
    """Return the end of what the log has to hold, at most.

    A record that begins in a split may end behind it, not behind its segment.
    """
    log = split.log
    if isinstance(split, QueueSplit):
        return log.reput_from_offset
    last = (split.end if isinstance(split, RangeSplit) else split.offsets[-1] + 1) - 1
    return min(log.max_physical_offset, last - last % log.segment_bytes + log.segment_bytes)


def _missing_entries(split: QueueSplit, queued: int) -> tuple[str, int, int] | None:
    """The first piece whose queue does not go so far here, with records below `queued`."""
    for piece in split.pieces:
        try:
            end = ConsumeQueue.open(piece.directory).end_below(queued)
        except FileNotFoundError:  # a file that retention deleted at this moment
            end = 0
        if end < piece.end:
            return f"queue {piece.queue_id} of topic {piece.topic!r}", end, piece.end
    return None


def _reach(log: LogExtent, wanted: int) -> Reach | None:
    """Return how far the replica here goes; None when its files are those that were planned. Raises NoReplicaHere."""
    running = extent.running(log.root)
    if running is not None:
        try:
            return _reach_of(running)
        except (RegionMissing, BrokerOutOfReach) as error:  # it has stopped since, or cannot be seen from here
            extent.tell_unreached(error)
    if is_planned(log):
        return None
    if not Path(log.root).is_dir():
        reason = f"{log.root} is not a directory on {socket.gethostname()}, where this task of Spark runs"
        from spark_bridge.replica.name_servers import NoReplicaHere  # loads how remoting is spoken

        raise NoReplicaHere([reason])
    return _reach_at_rest(log, wanted)


def _reach_of(running: extent.Running) -> Reach:
    counters = running.counters()
    try:
        queued = counters.cursor("reput_from_offset").read()  # before the end: what is below it is below both
        end = counters.cursor("max_physical_offset").read()
        return Reach(end, min(queued, end))
    finally:
        counters.close()


def _reach_at_rest(log: LogExtent, wanted: int) -> Reach | None:
    """Return the end that recovery finds; queues have their own ends.

    It is looked for again when a file has changed; but a log that an unseen process may be writing to only grows. None
    for files that do not fit together: that is not lag, and the read reports it.
    """
    try:
        place = os.stat(log.commitlog)
    except FileNotFoundError:  # a replica that has not begun
        return Reach(0, 0)
    directory = StoreDirectory(log.root)
    aborted = directory.was_aborted()
    key, stamp = (log.commitlog, place.st_dev, place.st_ino), stamp_of(Path(log.commitlog))
    known = _at_rest.get(key)
    if known is None or not (known[0] == stamp or (aborted and known[1] >= wanted)):
        try:
            end = extent.readable_range(log.root, check_crc=aborted, beyond_rot=True).max_physical_offset
        except NotAStore:  # it has no segment yet
            end = 0
        except (SegmentSizeMismatch, MissingSegment, ForeignFile):
            return None
        while len(_at_rest) >= STORES_REMEMBERED_MAX:
            _at_rest.pop(next(iter(_at_rest)))
        known = _at_rest[key] = stamp, end
    # Asked behind the look: a broker that started meanwhile may receive, one that stopped has dispatched it all.
    return Reach(known[1], known[1], is_dispatched=not directory.was_aborted())


def explained(error: StoreError, log: LogExtent) -> StoreError:
    """The error for what was removed; or, on another replica than the planned one, why that never had it."""
    if not isinstance(error, SegmentRemoved | QueueEntriesRemoved) or not log.root or is_planned(log):
        return error
    files = [(base, size) for base, size in named_files(Path(log.commitlog)) if size]
    if not files:
        return error
    base, size = files[0]
    if size != log.segment_bytes:
        return SegmentSizeMismatch(f"{log.commitlog}/{file_name(base)}", size, log.segment_bytes)
    return error if base <= log.min_physical_offset else ReplicaBeginsLater(log.root, base, log.min_physical_offset)
