"""What a killed broker's shared memory says that its files do not yet: how far consumers and delayed messages were.

Implements: nothing of RocketMQ's, whose files are some seconds old when its broker dies
Believed within one boot only, of the region that the store's own pointer names, whose `owner` names store and broker
(`store.files.pointer`): a copied store, or another broker's region, says nothing. What is not as its writer leaves it
is not taken, nor where somebody else wrote the store's files since: then they count, as after a power cut. Times of
locks are monotonic, so they go on to live as long as they should. Pointer and region stay until the new run serves: a
start that fails, or is killed, leaves the next one what it found itself.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from engine.protocol.clients.locks import Lock
from engine.protocol.remoting.places import Place
from engine.protocol.tables.offset_journal import Key
from engine.shared_memory.clients import client_table
from engine.shared_memory.clients.client_table import ClientJournal, ClientTable
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.delay_table import DELAY_FILE, DelayTable
from ipc.errors import IpcError
from store.files import pointer
from store.files.directory import StoreDirectory
from store.files.file_state import state_of
from store.files.pointer import COUNTERS_FILE, OWNER_NAME
from store.names import CONSUMER_OFFSETS, DELAY_OFFSETS

log = logging.getLogger("slipstream")

READ = frozenset({OWNER_NAME, COUNTERS_FILE, client_table.FILE, DELAY_FILE})  # of its regions


class Clients(NamedTuple):
    """Consumers' offsets, and locks of queues."""

    offsets: dict[Key, dict[int, int]]
    locks: list[tuple[str, Place, Lock]]


class DeadRun(NamedTuple):
    """The beliefs about a run that ended, and its place; `log_end`: all that says so was about a log of this length."""

    log_end: int
    clients: Clients | None
    delays: dict[int, int]
    regions: Path


def read(directory: StoreDirectory) -> DeadRun | None:
    """Read what the broker killed on this store left in its regions, which stay. None without one in this boot."""
    broker = pointer.read(directory.root)
    if broker is None or broker.is_alive or not broker.is_of_this_boot:
        return None
    regions = broker.regions()
    if regions is None:
        return None
    try:
        counters = BrokerCounters.attach(regions)
    except (IpcError, OSError):
        return None
    log_end = counters.max_physical_offset.read()
    try:
        table = ClientTable.attach(regions)
    except (IpcError, OSError):
        return None
    try:
        clients = _clients(table) if _is_its_own(table, directory.config / CONSUMER_OFFSETS) else None
        delays = _delays(regions) if _is_its_own(table, directory.config / DELAY_OFFSETS) else None
    finally:
        table.close()
    return DeadRun(log_end, clients, delays or {}, regions)


def _is_its_own(table: ClientTable, path: Path) -> bool:
    """Whether the file is the one that the broker read or wrote last: nobody else wrote it since."""
    return table.file_state(path.name) == state_of(path)


def _clients(table: ClientTable) -> Clients | None:
    if not table.is_filled or table.is_overfull or not table.is_whole():
        return None
    return Clients(table.offsets(), list(table.locks()))


def _delays(regions: Path) -> dict[int, int] | None:
    try:
        table = DelayTable.attach(regions)
    except (IpcError, OSError):
        return None  # it was a slave's
    try:
        return table.current() if table.is_whole() and table.is_begun else None
    finally:
        table.close()


def hand_on(run: DeadRun, log_end: int, regions: Path) -> bool:
    """Let a new run begin with it; return False, and do nothing, where the log was cut since."""
    if log_end < run.log_end:
        log.warning("the log was longer before; using the offsets in the store's files")
        return False
    if run.clients is not None:
        journal = ClientJournal.attach(regions)
        journal.fill(run.clients.offsets)
        for group, queue, lock in run.clients.locks:
            journal.set_lock(group, queue, lock)
        journal.close()
    if run.delays and (regions / DELAY_FILE).exists():  # else it is a slave now
        table = DelayTable.attach(regions, writable=True)
        table.take(run.delays)
        table.close()
    return True
