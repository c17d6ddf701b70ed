"""Compares two whole logs by digests of ever smaller ranges: where they part, and what that makes of the first one."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, Protocol

from store.errors import StoreError
from store.message.record import Message
from store.reading import log_ranges
from store.reading.boundary import boundary_before
from store.reading.log_reader import LogReader

Progress = Callable[[int, int], None]


class State(StrEnum):
    """Relation of one log to another."""

    IDENTICAL = "IDENTICAL"
    BEHIND = "BEHIND"  # the beginning of the other one
    AHEAD = "AHEAD"  # the other one is its beginning
    DIVERGED = "DIVERGED"  # a common beginning, then two histories
    OTHER_SEGMENT_SIZE = "OTHER_SEGMENT_SIZE"
    NO_COMMON_HISTORY = "NO_COMMON_HISTORY"  # no record in common, or nothing that both still have


class ContradictsItself(StoreError):
    """Raised when the digests of the other side contradict each other.

    Next: `slipstream log verify STORE` on the other side.
    """

    code = "PEER_CONTRADICTS"

    def __init__(self, name: str, start: int, end: int) -> None:
        super().__init__(
            f"{name}: its digest of offsets {start} to {end} differs from ours, and those of its parts do not;"
            " its log is changing or its answers are wrong: verify it there with `slipstream log verify`"
        )


class LogView(Protocol):
    """One of two logs, wherever it lies."""

    name: str
    segment_bytes: int  # 0 while it is empty
    min_offset: int
    max_offset: int

    def digests(self, start: int, end: int, parts: int) -> list[str]:
        """Return digests like `log_ranges.digests`, of at most BYTES_MAX bytes and PARTS_MAX parts."""


class LocalLog:
    """A log on this host."""

    def __init__(self, reader: LogReader) -> None:
        self.reader, self.name = reader, str(reader.directory.root)
        self.segment_bytes = reader.files.segment_bytes if reader.files else 0
        self.min_offset, self.max_offset = reader.min_offset, reader.max_offset

    def digests(self, start: int, end: int, parts: int) -> list[str]:
        """Return digests of a range's parts. Raises SegmentRemoved."""
        assert self.reader.files is not None
        return log_ranges.digests(self.reader.files, start, end, parts)


class Relation(NamedTuple):
    """Result of a comparison. `common_end` is where the last common record ends, `last` that record."""

    state: State
    differs_at: int | None = None
    common_end: int | None = None
    last: Message | None = None


def relation(own: LocalLog, other: LogView, on_progress: Progress) -> Relation:
    """Return what the own log is to the other one. Raises ContradictsItself, and what either log raises."""
    if own.min_offset == own.max_offset or other.min_offset == other.max_offset:  # one of them has nothing yet
        if own.max_offset != other.max_offset or own.min_offset != other.min_offset:
            return Relation(State.BEHIND if own.min_offset == own.max_offset else State.AHEAD)
        return Relation(State.IDENTICAL)
    if own.segment_bytes != other.segment_bytes:
        return Relation(State.OTHER_SEGMENT_SIZE)
    start, end = max(own.min_offset, other.min_offset), min(own.max_offset, other.max_offset)
    if start >= end:
        return Relation(State.NO_COMMON_HISTORY)
    differs_at = _first_difference(own, other, start, end, on_progress)
    assert own.reader.files is not None
    common = boundary_before(own.reader.files, start, end if differs_at is None else differs_at)
    if differs_at is not None:
        state = State.DIVERGED if common.last else State.NO_COMMON_HISTORY
        return Relation(state, differs_at, common.offset if common.last else None, common.last)
    size = own.max_offset - other.max_offset
    state = State.IDENTICAL if size == 0 else State.AHEAD if size > 0 else State.BEHIND
    return Relation(state, None, common.offset, common.last)


def _first_difference(own: LogView, other: LogView, start: int, end: int, on_progress: Progress) -> int | None:
    for at in range(start, end, log_ranges.BYTES_MAX):
        on_progress(at - start, end - start)
        stop = min(at + log_ranges.BYTES_MAX, end)
        if own.digests(at, stop, 1) != other.digests(at, stop, 1):
            return _narrowed(own, other, at, stop)
    on_progress(end - start, end - start)
    return None


def _narrowed(own: LogView, other: LogView, start: int, end: int) -> int:
    """The first byte that differs in a range that does."""
    while end - start > 1:
        parts = log_ranges.bounds(start, end, log_ranges.PARTS_MAX)
        mine, theirs = (log.digests(start, end, log_ranges.PARTS_MAX) for log in (own, other))
        index = next((index for index, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), None)
        if index is None:
            raise ContradictsItself(other.name, start, end)
        start, end = parts[index], parts[index + 1]
    return start
