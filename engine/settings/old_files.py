"""Files of other brokers and versions: paths that name other keys, and sizes in an old spelling beside existing files.

RocketMQ ignores the old spellings of the two file sizes. So where files are there already, their size is the right one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from engine.settings.keys import OLD_SPELLINGS
from engine.settings.properties_file import Entry
from store.names import CONSUME_QUEUES

REFERENCE = re.compile(r"\$\{([^{}]*)\}")
DEPTH_MAX = 8  # references in a value that a reference stands for
ROOT, HOME = "storePathRootDir", "user.home"


def expanded(text: str, given: Mapping[str, Entry]) -> str:
    """A path with `${key}` replaced by that key's value in the file. Raises ValueError for what is not in it."""
    known = {HOME: os.path.expanduser("~"), ROOT: "~/store"}
    known |= {name: entry.value.strip() for name, entry in given.items()}

    def value_of(match: re.Match[str]) -> str:
        if match[1] not in known:
            raise ValueError(f"{match[0]} refers to a key that is not in this file")
        return known[match[1]]

    for _ in range(DEPTH_MAX):
        if not REFERENCE.search(text):
            return text
        text = REFERENCE.sub(value_of, text)
    raise ValueError(f"its references are circular: {text[:200]}")


def keep_sizes(values: dict[str, Any], seen: Mapping[str, Entry]) -> list[str]:
    """Take the sizes of the files that are there for those in an old spelling; the warnings, each with its line."""
    warnings = []
    for old, name in OLD_SPELLINGS.items():
        if name not in seen or seen[name].key != old:
            continue
        field, there = _SIZES[name](values)
        if there and there != values[field]:
            says = f"using {there}, the size of the existing files, instead of {values[field]}"
            warnings.append(f"{seen[name].line}: {old}: {says}; RocketMQ ignores this key")
            values[field] = there
    return warnings


def _segment_bytes(values: Mapping[str, Any]) -> tuple[str, int]:
    from store.errors import StoreError  # seldom: reads the store's directories
    from store.files.segment_files import segment_bytes_of

    try:
        return "mapped_file_size_commit_log_bytes", segment_bytes_of(values["store_path_commit_log"])
    except (StoreError, OSError):  # the start looks at these files, and says what is wrong with them
        return "mapped_file_size_commit_log_bytes", 0


def _queue_bytes(values: Mapping[str, Any]) -> tuple[str, int]:
    from store.errors import StoreError  # seldom: reads the store's directories
    from store.queues.sync import queue_file_bytes

    try:
        return "mapped_file_size_consume_queue_bytes", queue_file_bytes(values["store_path_root_dir"] / CONSUME_QUEUES)
    except (StoreError, OSError):
        return "mapped_file_size_consume_queue_bytes", 0


_SIZES = {"mappedFileSizeCommitLog": _segment_bytes, "mappedFileSizeConsumeQueue": _queue_bytes}
