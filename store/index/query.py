"""Questions to an index: which records may carry a key. Read only, without compiled code, with or without a broker.

Implements: IndexService.queryOffset (4.9.7 and 5.3.3)
Newest file first, in it along the chain of the key's hash. What comes back may be another key's record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from store.index.index_file import IndexFile, hash_of

MAX_MSGS_NUM_BATCH = 64  # RocketMQ's maxMsgsNumBatch: never more than these
LONG_TEXT = re.compile(r"[+-]?[0-9]{1,19}")
LONG_MAX = 2**63 - 1


def is_index_name(name: str) -> bool:
    """Whether RocketMQ takes the name for an index file's: anything that Long.parseLong reads."""
    return LONG_TEXT.fullmatch(name) is not None and -LONG_MAX - 1 <= int(name) <= LONG_MAX


def index_files(directory: Path) -> list[Path]:
    """The index files of a store, oldest first: in the order of their names, as RocketMQ sorts them."""
    try:
        paths = [path for path in directory.iterdir() if is_index_name(path.name) and path.is_file()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(paths, key=lambda path: path.name)


def query_offset(
    newest_first: Iterable[IndexFile], topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
) -> list[int]:
    """Return a key's record offsets in these files, like IndexService.queryOffset."""
    return select_offsets(newest_first, hash_of(topic, key), min(max_num, MAX_MSGS_NUM_BATCH), begin_ms, end_ms)


def select_offsets(
    newest_first: Iterable[IndexFile], key_hash: int, wanted: int, begin_ms: int, end_ms: int
) -> list[int]:
    """Return at most `wanted` offsets with that hash, of records stored between those times."""
    offsets: list[int] = []
    for file in newest_first:
        if file.is_time_matched(begin_ms, end_ms):
            file.select(key_hash, wanted, begin_ms, end_ms, offsets)
        if file.header.begin_timestamp_ms < begin_ms or len(offsets) >= wanted:
            break
    return offsets
