"""How the last broker on a store ended, as far as recovery has to know: within this boot, or by a power cut.

Within one boot the page cache keeps what processes wrote, all of it and in its order, however they were killed. A power
cut keeps any of the pages written since the last fdatasync, in no order. A copy of a store counts as after a power cut:
it may have been made while a broker wrote, file by file: then what mark and checkpoint say is of another moment than
the log, and is no lower bound. So does a run whose disk failed: the kernel calls pages clean that the disk
never took. Of a RocketMQ broker nothing is known.
"""

from __future__ import annotations

from typing import NamedTuple

from ipc.counters import Counters
from ipc.errors import IpcError
from store.files import pointer
from store.files.directory import StoreDirectory
from store.files.pointer import COUNTERS_FILE, Pointer
from store.notes import flushed_mark


class LastRun(NamedTuple):
    """The facts known of the last run; by default nothing."""

    same_boot: bool = False  # only its processes ended
    power_cut: bool = False  # the machine did, or the store was copied, or the disk failed
    flushed_offset: int = 0  # the log was on disk up to there at least: a record boundary
    written_to: int | None = None  # where the log ended, in the regions that its processes left
    disk_failed: bool = False  # the kernel may not have reported yet which pages it lost
    is_copy: bool = False  # the store was copied; unless its broker had stopped, `flushed_offset` is of another moment

    def as_failed(self) -> LastRun:
        """The same, now that the disk is known to have failed it."""
        return self._replace(same_boot=False, power_cut=True, disk_failed=True, written_to=None)


def read(directory: StoreDirectory) -> LastRun:
    """Return what mark, pointer and regions show. Raises NotAStore for an invalid pointer file."""
    note, broker = flushed_mark.read(directory), pointer.read(directory.root)
    if note is None:
        if broker is None:
            return LastRun()
        same_boot, flushed = broker.is_of_this_boot, 0
    else:
        if not flushed_mark.counts(note, directory):
            return LastRun()  # a RocketMQ broker ran on the store since
        if note.is_copied_to(directory.root):
            return LastRun(power_cut=True, flushed_offset=note.flushed_offset, is_copy=True)
        same_boot = note.boot == flushed_mark.this_boot() and note.is_of(directory.root)
        same_boot = same_boot and (broker is None or broker.is_of_this_boot)
        flushed = note.flushed_offset
        if note.has_failed:
            return LastRun(flushed_offset=flushed).as_failed()
    return LastRun(same_boot, not same_boot, flushed, _written_to(broker) if same_boot and broker is not None else None)


def _written_to(broker: Pointer) -> int | None:
    """The log's end in the counters that a killed broker left; None when they are gone."""
    try:
        directory = broker.regions()
        counters = Counters.attach(directory / COUNTERS_FILE) if directory is not None else None
    except (IpcError, OSError):
        return None
    if counters is None:
        return None
    try:
        return counters.cursor("max_physical_offset").read()
    except IpcError:
        return None
    finally:
        counters.close()
