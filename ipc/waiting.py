"""Publish and follow a counter from Python: the compiled atomics, for `Cursor` objects."""

from __future__ import annotations

from ipc.compiled import atomics
from ipc.counters import Cursor

NS_PER_MS = 1_000_000


def publish(cursor: Cursor, value: int) -> None:
    """Announce `value`; wake who waits. Everything it promises must already be in shared memory."""
    atomics.publish(cursor.words, cursor.index, int(value))  # numba takes 0.1 ms for a member of an IntEnum


def raise_to(cursor: Cursor, value: int) -> None:
    """Announce that a cursor with several writers has come to `value`; it never falls."""
    atomics.raise_to(cursor.words, cursor.index, int(value))


def note(cursor: Cursor, value: int) -> None:
    """Store a word that is only ever looked at (a heartbeat, a statistic): nobody sleeps on it, so nobody is woken."""
    cursor.words[cursor.index] = value


def add(cursor: Cursor, amount: int) -> None:
    """Count up a tally of our own; nobody waits for tallies."""
    cursor.words[cursor.index] += amount


def await_change(cursor: Cursor, seen: int, timeout_ms: float) -> int:
    """The value once it is no longer `seen`, or `seen` when `timeout_ms` is over (or a signal came)."""
    return int(atomics.await_change(cursor.words, cursor.index, seen, int(timeout_ms * NS_PER_MS)))


def is_awaited(cursor: Cursor) -> bool:
    """Whether somebody sleeps on it."""
    return bool(cursor.words[cursor.index + atomics.Followed.WAITERS])


def ring(cursor: Cursor) -> None:
    """Wake the one who sleeps on this doorbell; costs a fence when it is awake."""
    atomics.ring(cursor.words, cursor.index)
