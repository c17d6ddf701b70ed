"""The role of a broker that builds side files of its sealed segments, with the CPU time and the disk that others leave.

Follows:    min_physical_offset, max_physical_offset, flushed_offset, segment_request_offset, disk_state
Publishes:  sidecar.*
It lies here because it is made of the engine's turns and of Spark's columns, which do not know each other. The
latter are loaded in its own process.
"""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from engine.protocol.store.retention import DiskState
from engine.role import stop_alarm
from engine.settings.config import BrokerConfig
from engine.shared_memory.cursors import BrokerCounters
from ipc import descriptors, waiting
from store.files.segment_files import SegmentFiles

if TYPE_CHECKING:
    from spark_bridge.columnar.keeper import Keeper

NICENESS = 19
OOM_SCORE = 500  # who can be spared goes first
# While the log grows faster than that the builder works a tenth of the time: even the least priority takes its turns.
BUSY_BYTES_A_SECOND = 16 << 20
RESTS_BUSY, LOOK_MS, IDLE_MS_MAX = 9, 100, 1000


class Growth:
    """The growth of the log, over a tenth of a second or what there was between two looks."""

    def __init__(self) -> None:
        self._end, self._at_ms, self._rate = -1, 0, 0.0

    def bytes_a_second(self, end: int, now_ms: int) -> float:
        """Return the growth since the last look that was long enough ago."""
        passed_ms = now_ms - self._at_ms
        if self._end < 0 or passed_ms >= LOOK_MS:
            self._rate = (end - self._end) * 1000 / passed_ms if self._end >= 0 else 0.0
            self._end, self._at_ms = end, now_ms
        return self._rate


class Sidecar:
    """The role: one small step of the keeper a turn."""

    name = "sidecar"

    def __init__(
        self, counters: BrokerCounters, keeper: Keeper, cpu_ns: Callable[[], int] = time.process_time_ns
    ) -> None:
        self._counters, self._keeper, self._cpu_ns = counters, keeper, cpu_ns
        self._request = 0
        self._growth = Growth()
        self._rest_until_ms = self._now_ms = 0.0

    def do_work(self, now_ms: int) -> int:
        """A step; 0 when all is done, while it rests or the disk is nearly full, and once the broker stops."""
        counters = self._counters
        self._request, self._now_ms = counters.segment_request_offset.read(), now_ms
        end = counters.max_physical_offset.read()
        is_busy = self._growth.bytes_a_second(end, now_ms) > BUSY_BYTES_A_SECOND
        if now_ms < self._rest_until_ms:
            return 0
        if descriptors.await_readable(stop_alarm(), timeout_ms=0):
            return 0
        if counters.disk_state.read() != DiskState.NORMAL:
            self._keeper.close()  # what was begun takes room, too
            waiting.note(counters.sidecar.waits_for, errno.ENOSPC)
            return 0
        end = min(end, counters.flushed_offset.read())  # a power cut takes no more than that
        began_ns = self._cpu_ns()
        moved = self._keeper.step(counters.min_physical_offset.read(), end, now_ms)
        if is_busy:
            self._rest_until_ms = now_ms + RESTS_BUSY * (self._cpu_ns() - began_ns) / 1e6
        self._publish()
        return moved

    def idle(self, timeout_ms: int) -> None:
        """Sleep until the log goes on in another segment, or the rest is over."""
        rest_ms = self._rest_until_ms - self._now_ms
        timeout_ms = min(timeout_ms, max(1, math.ceil(rest_ms)) if rest_ms > 0 else IDLE_MS_MAX)
        waiting.await_change(self._counters.segment_request_offset, self._request, timeout_ms)

    def close(self) -> None:
        """Close the keeper, which removes what is half done."""
        self._keeper.close()

    def _publish(self) -> None:
        words, keeper = self._counters.sidecar, self._keeper
        for word, value in (
            (words.done_offset, keeper.done_offset), (words.built, keeper.built), (words.refused, keeper.refused),
            (words.waits_for, keeper.waits_for),
        ):  # fmt: skip
            waiting.note(word, value)


def opened(config: BrokerConfig, counters: BrokerCounters) -> Sidecar:
    """The role, in its own process, which yields to all others from here on."""
    yield_to_others()
    import pyarrow as pa

    from spark_bridge.columnar.keeper import Keeper

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
    return Sidecar(counters, Keeper(config.store_path_root_dir, files))


def yield_to_others() -> None:
    """Give this process the least CPU time, the idle disk, and the first place when memory runs out."""
    import psutil

    os.nice(NICENESS)
    with suppress(OSError, psutil.Error):  # what a container's rules forbid is done without
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
