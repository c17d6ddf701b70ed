"""The segment map: what of a file is used, flushed, in the page cache, needed; and which one retention takes next."""

from __future__ import annotations

from contextlib import closing

from engine.protocol.store.retention import HOUR_MS
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.live_settings import retention
from ipc.clock import wall_ms
from store.files.directory import store_directory
from store.files.segment_files import stated_files
from store.reading import extent
from tools.log.map import map_of
from tools.web.state.asked import Asked, Watched
from tools.web.state.console import Console, Json

SEGMENTS_A_PAGE = 64


def view(_console: Console, asked: Asked) -> Json:
    """Return one page of segments, the newest first, and the next one to be deleted."""
    store, page = asked.store, asked.whole("page", 0, 1_000_000) or 0
    every: list[int] = []

    def chosen(bases: list[int]) -> list[int]:
        every.extend(bases)
        newest_first = bases[::-1]
        return newest_first[page * SEGMENTS_A_PAGE : (page + 1) * SEGMENTS_A_PAGE]

    picture = map_of(store.path, chosen)
    first = every[0] if every else None
    return {
        **picture,
        "now": wall_ms(),
        "count": len(every),
        "page": page,
        "perPage": SEGMENTS_A_PAGE,
        "directory": str(store.label),
        "victim": _victim(store, picture, first, len(every)),
    }


def _victim(store: Watched, picture: Json, first: int | None, count: int) -> Json | None:
    """The oldest file is the next to go: when, by what, and what keeps it."""
    if first is None:
        return None
    running = extent.running(store.path)
    commit_log = store_directory(store.path).commitlog
    stat = next((stat for base, stat in stated_files(commit_log) if base == first), None)
    if stat is None:
        return None
    modified_ms = stat.st_mtime_ns // 1_000_000
    victim: Json = {"baseOffset": first, "bytes": stat.st_size, "modifiedMs": modified_ms, "keptBy": []}
    end, cursors = first + stat.st_size, picture["cursors"]
    if count == 1 or cursors["max_physical_offset"] <= end:
        victim["keptBy"].append("the log is being written there")
    if cursors.get("flushed_offset", 0) < end:
        victim["keptBy"].append("a part of it is not on disk yet")
    if picture["leasedFrom"] is not None and picture["leasedFrom"] < end:
        victim["keptBy"].append(f"a reader holds a lease from offset {picture['leasedFrom']} on")
    if running is None:
        victim["keptBy"].append("no broker runs: nothing is deleted")
        return victim
    return {**victim, **_rules(running, modified_ms)}


def _rules(running: extent.Running, modified_ms: int) -> Json:
    """Return the retention rules of a running broker."""
    with closing(BrokerCounters.attach(running.region_directory)) as counters:
        wanted = retention(counters)
        return {
            "reservedHours": wanted.reserved_hours, "oldEnoughMs": modified_ms + wanted.reserved_hours * HOUR_MS,
            "deleteWhenHours": sorted(wanted.delete_when_hours), "diskUsedPercent": counters.disk_used_percent.read(),
            "diskMaxUsedPercent": wanted.max_used_percent, "deletedSegments": counters.deleted_segments.read(),
        }  # fmt: skip
