"""Keeps the side files of a store that grows up to date, in steps so small that a heartbeat can beat between them.

The caller says where the log begins and ends. A full disk, or another process at work in the folder, is waited for. A
malformed file of the store is a refused segment; it never ends the work.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from spark_bridge.columnar.rounds import TO_BUILD, Built, SealedSegments, build_these, tidy
from spark_bridge.columnar.side_file import State
from store.errors import SegmentRemoved
from store.files.file_io import NO_ROOM
from store.files.segment_files import SegmentFiles, named_files
from store.upkeep import side_files
from store.upkeep.side_files import SideFilesBusy

log = logging.getLogger("slipstream.sidecar")

LOOK_MS = 10_000  # at what others removed; a new segment is seen at once
WAIT_MS = 10_000  # for room, or for another builder
RECHECK_MS = 3_600_000  # of all that is there: what was valid may have been damaged since
CHECKS_A_STEP = 64


class Keeper:
    """The side files of one store.

    `done_offset`: all sealed segments below it have theirs, or a reason for none. `waits_for` is the error number of
    what is waited for, 0 when nothing is.
    """

    def __init__(self, root: Path, files: SegmentFiles) -> None:
        self._root, self._files = root, files
        self._settled: set[int] = set()
        self._work: Generator[int, None, None] | None = None
        self._look_at_ms = self._wait_until_ms = self._recheck_at_ms = 0
        self._seen_end = -1
        self.done_offset = self.built = self.refused = self.waits_for = 0

    def step(self, low: int, end: int, now_ms: int) -> int:
        """Do one small step for the log in [low, end); return 0 when no step is due.

        Raises OSError for a disk that fails, ForeignFile, and what is wrong with the store's files.
        """
        if self._work is None:
            if now_ms < self._wait_until_ms or not self._is_due(end, now_ms):
                return 0
            self._work = self._round(low, end, now_ms)
        try:
            moved = next(self._work, None)
        except (OSError, SideFilesBusy) as error:
            self.close()
            self._wait(error, now_ms)
            return 0
        if moved is None:
            self._work, self.waits_for = None, 0
            return 0
        return moved

    def close(self) -> None:
        """Leave what is half done; nothing of it stays."""
        if self._work is not None:
            self._work.close()
            self._work, self._seen_end = None, -1

    def _is_due(self, end: int, now_ms: int) -> bool:
        sealed_end = self._files.base_of(end)
        if sealed_end == self._seen_end and now_ms < self._look_at_ms:
            return False
        self._seen_end, self._look_at_ms = sealed_end, now_ms + LOOK_MS
        return True

    def _wait(self, error: OSError | SideFilesBusy, now_ms: int) -> None:
        number = errno.EBUSY if isinstance(error, SideFilesBusy) else error.errno or errno.EIO
        if number not in (errno.EBUSY, *NO_ROOM):
            raise error
        if self.waits_for != number:
            log.warning("side files wait: %s; will retry every %d s", error, WAIT_MS // 1000)
        self.waits_for, self._wait_until_ms = number, now_ms + WAIT_MS

    def _round(self, low: int, end: int, now_ms: int) -> Generator[int, None, None]:
        """Yield all that is to do for the log as it is now."""
        length = self._files.segment_bytes
        there = {base for base, size in named_files(self._files.directory) if size == length}
        bases = tuple(sorted(base for base in there if low <= base and base + length <= end))
        store = SealedSegments(self._root, self._files, bases, is_live=True)
        if now_ms >= self._recheck_at_ms:
            self._recheck_at_ms = now_ms + RECHECK_MS
            self._settled.clear()
        listed = side_files.listed(self._root)
        self._settled &= listed.keys()
        if listed.keys() - there:
            with _holding(self._root):
                tidy(store)
            yield 1
        for number, base in enumerate(bases):
            if base not in self._settled:
                yield from self._settle(store, base)
            elif not number % CHECKS_A_STEP:
                yield 1
            self.done_offset = base + length

    def _settle(self, store: SealedSegments, base: int) -> Iterator[int]:
        """See that the segment has its side file, or a reason for none."""
        try:
            before = store.check(base)
        except SegmentRemoved:
            return
        if before.state not in TO_BUILD:
            self._settled.add(base)
            yield 1
            return
        side_files.make_folder(self._root)
        with _holding(self._root):
            side_files.remove_leftovers(self._root)
            with closing(build_these(store, [(base, before)])) as building:
                for one in building:
                    if isinstance(one, Built):
                        self._count(one)
                    yield 1

    def _count(self, one: Built) -> None:
        self._settled.add(one.base_offset)
        self.built += one.after.state is State.VALID
        self.refused += one.after.state is State.REFUSED
        if one.after.state is not State.VALID:
            log.warning("segment %d has no side file: %s", one.base_offset, one.after.reason)
        else:
            was = one.before.state.value
            log.debug("segment %d: its side file was %s, built in %.3f s", one.base_offset, was, one.seconds)


@contextmanager
def _holding(root: Path) -> Iterator[None]:
    """Alone in the folder. Raises SideFilesBusy."""
    fd = side_files.hold(root)
    try:
        yield
    finally:
        os.close(fd)
