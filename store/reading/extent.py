"""What a reader may read of a store: up to the cursors of a running broker, else to the log's own end.

Spark and the log tools ask here, on the machine of the store. A broker runs exactly if the store's own pointer file is
held (see store.files.pointer). Without one the end is found by read-only recovery (only then is the compiled kernel
loaded); nothing is ever written to the store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ipc.errors import OtherVersion, RegionMissing
from ipc.module_names import version_here
from store.errors import BrokerOutOfReach, NoBroker, NotAStore, StoreLocked
from store.files import pointer
from store.files.directory import StoreDirectory, commit_log_apart
from store.files.pointer import COUNTERS_FILE
from store.notes import starting

if TYPE_CHECKING:
    from ipc.counters import Counters

BROKER, RECOVERY = "broker", "recovery"


class Said(dict[str, Any]):
    """The settings of a running broker. Raises OtherVersion for one that a broker of another version does not say."""

    def __init__(self, root: Path, version: str, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._root, self._version = root, version

    def __missing__(self, name: str) -> Any:
        raise OtherVersion(self._root, self._version, version_here(), f"it does not state its setting {name}")


class Running(NamedTuple):
    """The broker that runs on a store."""

    store_root: Path
    settings: dict[str, Any]
    pid: int
    start_time: int
    token: str
    reached: Path | None  # its region directory as it is reached from here
    said: str  # ... and as the broker named it

    @property
    def region_directory(self) -> Path:
        """Return where its shared memory lies.

        Raises BrokerOutOfReach when it is not to be seen here, RegionMissing when the broker has stopped by now.
        """
        if self.reached is not None:
            return self.reached
        if not self.is_alive():
            raise RegionMissing(Path(self.said))
        raise BrokerOutOfReach(str(self.store_root), self.said)

    def counters(self) -> Counters:
        """Return the broker's counters, read-only. Raises RegionMissing when it has stopped, BrokerOutOfReach."""
        from ipc.counters import Counters  # loads numpy, which to find no broker does not need

        return Counters.attach(self.region_directory / COUNTERS_FILE)

    def is_alive(self) -> bool:
        """Whether this very broker still runs; its pid tells that in its own PID namespace only."""
        broker = pointer.read(self.store_root)
        return broker is not None and broker.token == self.token and broker.is_alive


@dataclass(frozen=True, slots=True)
class Range:
    """The part of the log that may be read; `source` is "broker" or "recovery"."""

    min_physical_offset: int
    max_physical_offset: int
    source: str
    findings: tuple[str, ...] = ()
    segment_bytes: int = field(default=0, compare=False)  # 0: nobody looked


def running(store_root: Path | str) -> Running | None:
    """Return the broker on this store; None without one. Raises NotAStore for an invalid pointer file."""
    broker = pointer.read(Path(store_root))
    if broker is None or not broker.is_alive:
        return None
    said = str(broker.fields["region_directory"])
    settings = Said(broker.root, str(broker.fields.get("version", "")), broker.fields["settings"])
    return Running(Path(store_root), settings, broker.pid, broker.start_time, broker.token, broker.regions(), said)


def require_running(store_root: Path | str) -> Running:
    """The broker on this store. Raises NoBroker, BrokerStarts while it starts, NotAStore, also without a directory."""
    broker = running(store_root)
    if broker is None and not Path(store_root).is_dir():
        raise NotAStore(str(store_root), "no such directory")
    if broker is None:
        note = starting.read(Path(store_root))
        if note is not None:
            raise starting.BrokerStarts(str(store_root), note.pid, note.what)
        raise NoBroker(str(store_root))
    return broker


def require_idle(directory: StoreDirectory) -> None:
    """Raise StoreLocked when a broker runs on the store."""
    broker = running(directory.root)
    if broker is not None:
        raise StoreLocked(str(directory.lock_path), broker.pid)


def tell_unreached(error: Exception) -> None:
    """Warn once why a reader does without a running broker; a broker that has just stopped is not worth a warning."""
    if isinstance(error, BrokerOutOfReach):
        pointer.say_once(f"{error}; until then the log is read without it: slower, up to its last record")


def readable_range(
    store_root: Path | str,
    *,
    check_crc: bool = True,
    accept_rot: bool = False,
    beyond_rot: bool = False,
    named: list[tuple[int, int]] | None = None,
) -> Range:
    """The range to read now; it only grows while a broker runs. `named`: the log's files, where they are known.

    Raises NotAStore, SegmentSizeMismatch, MissingSegment; and BitRot for a log without a broker that is damaged before
    its end, unless `accept_rot`: then the range ends before the damage, and `findings` says so; or `beyond_rot`: then
    it goes on to the end, and the damage lies in it.
    """
    broker = running(store_root)
    if broker is not None:
        try:
            return _of_broker(broker)
        except (RegionMissing, BrokerOutOfReach) as error:
            tell_unreached(error)  # or it has stopped since: read what is there
    from store.recovery.recovery import (
        recover_read_only,  # loads numba, which reading from a running broker does not need
    )

    directory = StoreDirectory(store_root, commit_log_apart(store_root))
    outcome = recover_read_only(directory, check_crc=check_crc, beyond_rot=beyond_rot, named=named)
    if outcome.rot is not None and not accept_rot and not beyond_rot:
        raise outcome.rot
    first, end = outcome.min_physical_offset, outcome.max_physical_offset
    return Range(first, end, RECOVERY, tuple(outcome.findings), outcome.segment_bytes)


def _of_broker(broker: Running) -> Range:
    counters = broker.counters()
    try:
        max_offset = counters.cursor("max_physical_offset").read()
        return Range(counters.cursor("min_physical_offset").read(), max_offset, BROKER)
    finally:
        counters.close()
