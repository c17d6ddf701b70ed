"""Splits for a read by keys: the records that the index names, and the parts of the log that it does not cover.

An index file covers the log from its first record up to its last one. What lies before, between and behind (messages
without keys, a file that went or is damaged, what is not dispatched yet) is looked through, so that nothing is missed
whatever the state of the index. A running broker's index reaches as far as its dispatcher. Inner batches are not for
this: the index has a batch's own keys, and not those of the messages in it.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from spark_bridge.records.reader import open_window
from spark_bridge.records.walk import collected
from spark_bridge.split.splits import LogExtent, RecordSplit, Selection, Split, range_splits
from store.errors import IndexFileDamaged
from store.files.directory import StoreDirectory
from store.files.segment_files import OFFSET_MAX
from store.index.geometry import geometry_of
from store.index.index_file import IndexFile, hash_of
from store.index.query import LONG_MAX, index_files
from store.reading import extent

OFFSETS_MAX = 100_000  # of one key and topic; more are found by looking through the log


def plan_by_keys(
    root: str, log: LogExtent, topics: Iterable[str], selection: Selection, split_bytes: int
) -> list[Split]:
    """The splits that hold every record with one of the selection's keys, once."""
    files = list(_files(root))
    parts = _covered(root, log, files)
    offsets: set[int] = set()
    hashes = {hash_of(topic, key) for topic in topics for key in selection.keys or ()} if files else ()
    for key_hash in hashes:
        for file in files:
            hits: list[int] = []
            file.select(key_hash, OFFSETS_MAX, 0, LONG_MAX, hits)
            if len(hits) >= OFFSETS_MAX:
                parts, offsets = [], set()
                return _splits(log, parts, offsets, selection, split_bytes)
            offsets.update(hits)
    return _splits(log, parts, offsets, selection, split_bytes)


def _splits(
    log: LogExtent, parts: list[tuple[int, int]], offsets: set[int], selection: Selection, split_bytes: int
) -> list[Split]:
    inside = sorted(offset for offset in offsets if _is_inside(parts, offset))
    splits: list[Split] = [RecordSplit(log, tuple(inside), selection)] if inside else []
    position = log.min_physical_offset
    for start, end in [*parts, (log.max_physical_offset, log.max_physical_offset)]:
        if position < start:
            splits += range_splits(log, position, start, selection, (), split_bytes)
        position = max(position, end)
    return splits


def _is_inside(parts: list[tuple[int, int]], offset: int) -> bool:
    """Whether one of the parts, which are ascending and apart, has the offset."""
    at = bisect.bisect_right(parts, (offset, OFFSET_MAX)) - 1
    return at >= 0 and offset < parts[at][1]


def _files(root: str) -> Iterator[IndexFile]:
    """The index files that can be read, newest first."""
    paths = index_files(StoreDirectory(root).index)
    geometry = geometry_of(reversed(paths))
    for path in reversed(paths):
        try:
            if geometry is not None:
                file = IndexFile.open(Path(path), geometry)
                file.require_sound_header()
                yield file
        except (FileNotFoundError, IndexFileDamaged):
            continue  # what it covered is looked through


def _covered(root: str, log: LogExtent, files: list[IndexFile]) -> list[tuple[int, int]]:
    """Parts of the log, ascending and apart, of which the index holds every key: from record start to record start."""
    broker = extent.running(root)
    parts: list[tuple[int, int]] = []
    for number, file in enumerate(reversed(files), start=1):
        header = file.header
        start, end = header.begin_physical_offset, header.end_physical_offset
        if header.index_count <= 1:
            continue
        if number == len(files) and broker is not None and broker.settings.get("messageIndexEnable", False):
            end = max(end, log.reput_from_offset)
        start, end = max(start, log.min_physical_offset), min(end, log.reput_from_offset)
        if parts:
            start = max(start, parts[-1][1])
        if start < end and _is_start(log, start) and (end == log.reput_from_offset or _is_start(log, end)):
            parts.append((start, end))
    return parts


def _is_start(log: LogExtent, offset: int) -> bool:
    """Whether a record begins there."""
    base = offset - offset % log.segment_bytes
    return bool(len(collected(open_window(log, base), np.array([offset - base], np.int64))))
