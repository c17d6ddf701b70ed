"""What a reader may read of a store, whoever serves it: the cursors of a running broker, else the log's own end.

Spark and the log tools ask here, on the machine of the store. A broker runs exactly if the pointer file names a process
that is alive with the start time it says. Without one the end is found by read-only recovery (only then is the
compiled kernel loaded); nothing is ever written to the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipc.counters import Counters
from ipc.errors import RegionMissing
from ipc.process import start_time
from store.directory import StoreDirectory
from store.errors import NoBroker, NotAStore

COUNTERS_FILE = "counters"
BROKER, RECOVERY = "broker", "recovery"


@dataclass(frozen=True, slots=True)
class Running:
    """The broker that runs on a store."""

    region_directory: Path
    settings: dict[str, Any]
    pid: int
    start_time: int

    def counters(self) -> Counters:
        """Its counters, read-only. Raises RegionMissing when it has stopped by now."""
        return Counters.attach(self.region_directory / COUNTERS_FILE)


@dataclass(frozen=True, slots=True)
class Range:
    """The part of the log that may be read; `source` is "broker" or "recovery"."""

    min_physical_offset: int
    max_physical_offset: int
    source: str
    findings: tuple[str, ...] = ()


def running(store_root: Path | str) -> Running | None:
    """The broker on this store, None when there is none. Raises NotAStore when the pointer file is not one."""
    directory = StoreDirectory(store_root)
    fields = directory.read_pointer()
    if fields is None:
        return None
    try:
        pid, started = int(fields["pid"]), int(fields["start_time"])
        found = Running(Path(fields["region_directory"]), dict(fields["settings"]), pid, started)
    except (KeyError, TypeError, ValueError) as error:
        raise NotAStore(str(directory.pointer), f"not a pointer file of Slipstream ({error!r}); remove it") from error
    return found if start_time(pid) == started else None


def require_running(store_root: Path | str) -> Running:
    """The broker on this store. Raises NoBroker when there is none, NotAStore."""
    found = running(store_root)
    if found is None:
        raise NoBroker(str(store_root))
    return found


def readable_range(
    store_root: Path | str, *, check_crc: bool = True, accept_rot: bool = False, beyond_rot: bool = False
) -> Range:
    """The range to read now; it only grows while a broker runs.

    Raises NotAStore, SegmentSizeMismatch, MissingSegment; and BitRot for a log without a broker that is damaged before
    its end, unless `accept_rot`: then the range ends before the damage, and `findings` says so; or `beyond_rot`: then
    it goes on to the end, and the damage lies in it.
    """
    broker = running(store_root)
    if broker is not None:
        try:
            return _of_broker(broker)
        except RegionMissing:
            broker = None  # it has stopped since: read what it left
    from store.recovery import recover_read_only  # loads numba, which reading from a running broker does not need

    directory = StoreDirectory(store_root, _commit_log_path(store_root))
    found = recover_read_only(directory, check_crc=check_crc, beyond_rot=beyond_rot)
    if found.rot is not None and not accept_rot and not beyond_rot:
        raise found.rot
    return Range(found.min_physical_offset, found.max_physical_offset, RECOVERY, tuple(found.findings))


def _of_broker(broker: Running) -> Range:
    counters = broker.counters()
    try:
        max_offset = counters.cursor("max_physical_offset").read()
        return Range(counters.cursor("min_physical_offset").read(), max_offset, BROKER)
    finally:
        counters.close()


def _commit_log_path(store_root: Path | str) -> Path | None:
    """Where the commit log lies if not below the root: only a broker's pointer file can tell."""
    fields = StoreDirectory(store_root).read_pointer() or {}
    path = fields.get("settings", {}).get("storePathCommitLog")
    return Path(path) if path else None
