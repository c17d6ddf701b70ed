"""A store at one moment, for its snapshots: taken from a broker that runs or a store at rest, and compared with later.

The moment is an offset of the log at a record's boundary: below it nothing ever changes, and every record is in its
queue. So the log's end is all of a snapshot, and the ends of queues follow from it; they are written down to tell
whether a queue is still the same one, and for streams that begin there.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from ipc.clock import wall_ms
from ipc.errors import RegionMissing
from ipc.process import boot_id
from store.errors import NoBroker, StoreError
from store.files.directory import StoreDirectory, store_directory
from store.files.place import Place
from store.files.segment_files import SegmentFiles, named_files, segment_bytes_of
from store.notes import epochs
from store.queues.batch_consume_queue import has_batch_queues
from store.queues.consume_queue import ConsumeQueue, queue_directories
from store.reading import extent
from store.upkeep import snapshots
from store.upkeep.snapshots import (
    SNAPSHOTS_MAX,
    Offsets,
    Snapshot,
    SnapshotForeign,
    SnapshotGone,
    SnapshotRefused,
)

SETTLE_S, POLL_S = 10.0, 0.01  # for the dispatcher to come to the log's end
TAIL_BYTES = 4096
HALF_RECORD_BYTES_MAX = 16 << 20  # what a slave may have of a record whose rest is on its way


def take(root: Path | str, name: str, keep_ms: int, settle_s: float = SETTLE_S) -> Snapshot:
    """The snapshot of now, kept for so long: all that was acknowledged before the call is in it.

    Raises SnapshotRefused, NotAStore, NoBroker for a store that was killed and nobody has recovered, and OSError.
    """
    snapshots.refuse_unkept(root, name, keep_ms)
    directory = store_directory(root)
    _make_room(directory.root, name)
    first, end = _ends(directory, settle_s)
    now_ms = wall_ms()
    taken = Snapshot(
        name,
        first,
        end,
        _offsets(directory, end),
        _epoch(directory.root, end),
        _tail(directory.commitlog, first, end),
        now_ms,
        now_ms + keep_ms,
        Place.of(root),
        boot_id(),
    )
    snapshots.write(root, taken)
    begin = _begin(directory, first)
    if begin > first:  # retention was at work before it could know
        taken = replace(taken, min_offset=min(begin, end))
        snapshots.write(root, taken)
    return taken


def require(root: Path | str, one: Snapshot, now_ms: int | None = None) -> None:
    """Raise SnapshotForeign in a copy, and SnapshotGone for one that has expired."""
    path = str(snapshots.path_of(root, one.name))
    if not one.is_here(Place.of(root)):
        raise SnapshotForeign(path, f"it was made for {one.place.path}, and this is another directory (a copy?)")
    if one.expires_ms <= (wall_ms() if now_ms is None else now_ms):
        raise SnapshotGone(path, "it has expired (its --keep is over)")


def require_log(root: Path | str, one: Snapshot, commitlog: Path, first: int, end: int) -> None:
    """Compare the log as it is, from `first` to `end`, with that of the snapshot.

    Raises SnapshotGone when it ends earlier, SnapshotForeign when it has other bytes there.
    """
    path = str(snapshots.path_of(root, one.name))
    if end < one.end_offset:
        raise SnapshotGone(path, f"the log ends at {end}, it was cut below the snapshot's end, {one.end_offset}")
    if _epoch(Path(root), one.end_offset) != one.epoch:
        raise SnapshotForeign(path, "the log below its end now has another history, from another master")
    is_there = one.end_offset > one.min_offset and first <= _tail_start(commitlog, one.min_offset, one.end_offset)
    if is_there and _tail(commitlog, one.min_offset, one.end_offset) != one.tail:
        what = f"the log has other bytes below offset {one.end_offset} than it had: another history"
        raise SnapshotForeign(path, what)


def _make_room(root: Path, name: str) -> None:
    """Remove what has expired. Raises SnapshotRefused when the name is in use, or too many are."""
    here, now_ms, kept = Place.of(root), wall_ms(), 0
    for known in list(itertools.islice(snapshots.names(root), 2 * SNAPSHOTS_MAX)):
        try:
            one = snapshots.read(root, known)
        except StoreError:
            kept += 1
            continue
        if one.is_here(here) and now_ms >= one.expires_ms:
            snapshots.drop(root, known)
            continue
        kept += 1
    path = snapshots.path_of(root, name)
    if path.exists() or path.is_symlink():
        what = "there is a snapshot of that name"
        raise SnapshotRefused(f"{path}: {what}; `slipstream snapshot --drop {name} STORE` first, or take another name")
    if kept >= SNAPSHOTS_MAX:
        raise SnapshotRefused(f"{path.parent}: {kept} snapshots, and a store has {SNAPSHOTS_MAX} at most; drop some")


def _ends(directory: StoreDirectory, settle_s: float) -> tuple[int, int]:
    """The log's ends now, with all below the second one in the queues."""
    broker = extent.running(directory.root)
    if broker is not None:
        try:
            return _ends_of(broker, settle_s)
        except RegionMissing:  # it has stopped since
            pass
    if directory.was_aborted():
        reason = "it was not left in order and no broker of Slipstream runs here: its queues cannot be trusted"
        raise NoBroker(str(directory.root), reason)
    readable = extent.readable_range(directory.root, check_crc=False)
    return readable.min_physical_offset, readable.max_physical_offset


def _ends_of(broker: extent.Running, settle_s: float) -> tuple[int, int]:
    with closing(broker.counters()) as counters:
        first, reput, end = (
            counters.cursor(name) for name in ("min_physical_offset", "reput_from_offset", "max_physical_offset")
        )
        wanted, deadline = end.read(), time.monotonic() + settle_s
        while (dispatched := reput.read()) < wanted and time.monotonic() < deadline:
            time.sleep(POLL_S)  # a slave's log may end inside a record, which nobody dispatches
        lacking, follows = wanted - dispatched, broker.settings.get("brokerRole") == "SLAVE"
        if lacking > (HALF_RECORD_BYTES_MAX if follows else 0):
            what = f"{lacking} bytes of the log are not in the queues after {settle_s:g} s (has it just begun?)"
            raise SnapshotRefused(f"{broker.store_root}: {what}; take it again later")
        begin = first.read()
        return begin, max(begin, min(dispatched, end.read()))


def _begin(directory: StoreDirectory, first: int) -> int:
    """Return where the log begins by now."""
    files = [base for base, size in named_files(directory.commitlog) if size]
    begin = files[0] if files else first
    broker = extent.running(directory.root)
    if broker is None:
        return begin
    try:
        counters = broker.counters()
    except RegionMissing:
        return begin
    try:
        return max(begin, counters.cursor("min_physical_offset").read())
    finally:
        counters.close()


def _offsets(directory: StoreDirectory, end: int) -> Offsets:
    """Return where every queue of the plain kind ends below that offset of the log."""
    ends: dict[str, dict[int, int]] = {}
    for topic, queue_id, path in queue_directories(directory.consumequeue):
        if not has_batch_queues(directory.root, topic):
            ends.setdefault(topic, {})[queue_id] = ConsumeQueue.open(path).end_below(end)
    return ends


def _epoch(root: Path, end: int) -> tuple[int, int]:
    """The last reign that began below that offset."""
    began = [(one.epoch, one.start_offset) for one in epochs.read(root).entries if one.start_offset < end]
    return began[-1] if began else (0, 0)


def _tail_start(commitlog: Path, first: int, end: int) -> int:
    """Return where the bytes begin of which the sum is: the last ones of one segment."""
    files = SegmentFiles(commitlog, segment_bytes_of(commitlog))
    return max(first, end - TAIL_BYTES, files.base_of(end - 1))


def _tail(commitlog: Path, first: int, end: int) -> str:
    """The SHA-256 of the log's last bytes below `end`. Raises SegmentRemoved, SegmentSizeMismatch."""
    if end <= first:
        return hashlib.sha256().hexdigest()
    files = SegmentFiles(commitlog, segment_bytes_of(commitlog))
    base, start = files.base_of(end - 1), _tail_start(commitlog, first, end)
    with files.open(base) as segment:
        return hashlib.sha256(segment.view[start - base : end - base]).hexdigest()
