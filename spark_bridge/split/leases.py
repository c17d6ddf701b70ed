"""Leases of reads: what a plan needs stays in the log while its query runs, however long that takes.

The driver holds the log from the lowest offset planned on, for as long as its program runs and `leaseSeconds` at most.
Executors hold it while they read, each worker process for itself, and go on for that long after their last read: tasks
of one query follow each other. A lease of a dead process holds nothing. Only a Slipstream broker respects leases,
so none is taken where no such broker runs; nor where the store's directory cannot be written, which is logged once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from spark_bridge.split.splits import LeaseTerms, LogExtent, RangeSplit, RecordSplit, Split
from store.files import pointer
from store.names import LEASES
from store.queues.seen_queue import physical_offset_at
from store.reading import extent
from store.upkeep import leases

LEASES_HELD_MAX = 16
JAVA = "java"
ANCESTORS_MAX = 16

_held: dict[tuple[int, LeaseTerms], leases.Lease] = {}
_lock = threading.Lock()  # scans and Flight servers read by threads


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # the thread that holds it is not in the child


os.register_at_fork(after_in_child=_after_fork)


def hold_log(root: str, log: LogExtent, ttl_ms: int) -> leases.Lease | None:
    """The driver's lease on all of the log, for the time of planning; None where nobody would respect it."""
    if extent.running(root) is None:
        return None
    try:
        return leases.acquire(root, log.min_physical_offset, ttl_ms, owner_pid=_driver_pid())
    except OSError as error:
        _warn_once(root, error)
        return None


def hold_plan(lease: leases.Lease | None, splits: list[Split]) -> list[Split]:
    """The splits of one store, to be read under a lease from the lowest of them on."""
    if lease is None:
        return splits
    low = min(_low_offsets(splits), default=None)
    if low is None:
        lease.release()
        return splits
    lease.renew(low)
    terms = LeaseTerms(str(lease.path.parent.parent), low, lease.ttl_ms)
    return [replace(split, log=replace(split.log, lease=terms)) for split in splits]


def keep(terms: LeaseTerms) -> None:
    """Hold what the plan needs for this process; call it again and again while it reads."""
    with _lock:
        _keep(terms)


def _keep(terms: LeaseTerms) -> None:
    key = os.getpid(), terms
    try:
        lease = _held.pop(key, None)
        if lease is None:
            _drop_oldest()
            lease = leases.acquire(terms.root, terms.low_offset, terms.ttl_ms)
        _held[key] = lease  # behind all others: the one that was used longest ago is the first to go
        lease.keep()
    except OSError as error:
        _warn_once(terms.root, error)


def renewed(lease: leases.Lease) -> None:
    """A lease that is renewed if it is time; who cannot reads on, and says so once."""
    try:
        lease.keep()
    except OSError as error:
        pointer.say_once(without_lease(str(lease.path.parent.parent), error))


def _warn_once(root: str, error: OSError) -> None:
    """Warn once: a reader without the right to write a lease is served all the same."""
    pointer.say_once(without_lease(root, error))


def without_lease(root: str, error: OSError) -> str:
    """Return what a user should know who reads without a lease, and do; the same text for each lease of the store."""
    reason = f"{error.strerror or error}: {Path(root) / LEASES}"
    return (
        f"{root}: read without a lease ({reason}): retention may delete what is read; let this user write to"
        " the folder of leases (storeGroup in the broker's file does that for a group)"
    )


def _drop_oldest() -> None:
    """Leases of queries that are over go by themselves; here they are forgotten."""
    while len(_held) >= LEASES_HELD_MAX:
        oldest = next(iter(_held))
        lease = _held.pop(oldest)
        if oldest[0] == os.getpid():
            lease.release()


def low_offset(split: Split) -> int:
    """The lowest offset of the log that a split reads."""
    return min(_low_offsets([split]), default=split.log.min_physical_offset)


def _low_offsets(splits: Iterable[Split]) -> Iterator[int]:
    """The lowest offset of the log that each split reads; of each queue its first piece's."""
    looked_at: set[str] = set()
    for split in splits:
        if isinstance(split, RangeSplit):
            yield split.chain_from
        elif isinstance(split, RecordSplit):
            yield split.offsets[0]
        else:
            lowest = split.log.min_physical_offset
            for piece in split.pieces:
                if piece.directory not in looked_at:
                    looked_at.add(piece.directory)
                    yield max(lowest, physical_offset_at(piece.directory, piece.start))


def _driver_pid() -> int:
    """The process that a Spark driver's life hangs on: the JVM that started this one, else this one itself."""
    pid = os.getpid()
    for _ in range(ANCESTORS_MAX):
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() == JAVA:
                return pid
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            break
        pid = int(status.split("PPid:", 1)[1].split(None, 1)[0])
        if pid <= 1:
            break
    return os.getpid()
