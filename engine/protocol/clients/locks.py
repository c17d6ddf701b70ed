"""Who may consume a queue in order: one client a queue and group, for as long as it says so again.

Implements: RebalanceLockManager
Time is passed in, monotonic. `journal` hears of every change before it is answered: it outlives this process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from engine.protocol.clients.client_tables import A_STEP, Scan, TooMany
from engine.protocol.remoting.places import Place

LIFE_MS = 60_000  # rocketmq.broker.rebalance.lockMaxLiveTime
LOCKS_MAX = 1 << 18


class Lock(NamedTuple):
    """Whose it is, and when that was said last."""

    client_id: str
    updated_ms: int


class LockJournal(Protocol):
    """The place where locks are kept beyond this process."""

    def set_lock(self, group: str, queue: Place, lock: Lock) -> bool:
        """Note a client's lock of a queue; False where there is no room for it."""

    def clear_lock(self, group: str, queue: Place) -> None:
        """Forget the lock of a queue."""


class NoJournal:
    """A journal that keeps no locks."""

    def set_lock(self, group: str, queue: Place, lock: Lock) -> bool:
        """Do nothing; True: there is room."""
        return True

    def clear_lock(self, group: str, queue: Place) -> None:
        """Do nothing: no lock is kept."""


class RebalanceLockManager:
    """Locks of queues at one broker."""

    def __init__(self, journal: LockJournal | None = None) -> None:
        self.journal: LockJournal = journal or NoJournal()
        self.locks: dict[str, dict[Place, Lock]] = {}  # by group
        self._count = 0
        self.scan = Scan(self._scanned)

    def restore(self, locks: Iterable[tuple[str, Place, Lock]]) -> None:
        """Begin with what the process before knew."""
        for group, queue, lock in locks:
            self.locks.setdefault(group, {})[queue] = lock
        self._count = sum(len(of_group) for of_group in self.locks.values())

    def lock(self, group: str, queues: Iterable[Place], client_id: str, now_ms: int) -> list[Place]:
        """tryLockBatch: those of the queues that are this client's now. Raises TooMany before anything changed."""
        wanted = list(dict.fromkeys(queues))
        held = self.locks.get(group, {})
        if self._count + sum(queue not in held for queue in wanted) > LOCKS_MAX:
            raise TooMany("locks of queues", LOCKS_MAX)
        locked = []
        for queue in wanted:
            lock, new = held.get(queue), Lock(client_id, now_ms)
            is_free = lock is None or lock.client_id == client_id or _is_expired(lock, now_ms)
            if is_free and self.journal.set_lock(group, queue, new):
                self._count += lock is None
                held = self.locks.setdefault(group, {})
                held[queue] = new
                locked.append(queue)
        return locked

    def unlock(self, group: str, queues: Iterable[Place], client_id: str) -> None:
        """unlockBatch: give back those that are this client's."""
        held = self.locks.get(group, {})
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.client_id == client_id:
                self._forget(group, queue)

    def is_any_held(self, group: str, now_ms: int) -> bool:
        """Return whether a member of the group holds a queue: the opposite of isLockAllExpired."""
        return any(not _is_expired(lock, now_ms) for lock in self.locks.get(group, {}).values())

    def _forget(self, group: str, queue: Place) -> None:
        self.journal.clear_lock(group, queue)
        del self.locks[group][queue]
        self._count -= 1
        if not self.locks[group]:
            del self.locks[group]

    def _scanned(self, now_ms: int) -> Iterator[None]:
        """Forget locks that are nobody's any longer: RocketMQ keeps them for ever."""
        seen = 0
        for group in list(self.locks):
            for queue in [queue for queue, lock in self.locks.get(group, {}).items() if _is_expired(lock, now_ms)]:
                self._forget(group, queue)
            seen += 1 + len(self.locks.get(group, {}))
            if seen >= A_STEP:
                seen = 0
                yield


def _is_expired(lock: Lock, now_ms: int) -> bool:
    return now_ms - lock.updated_ms > LIFE_MS
