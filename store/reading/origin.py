"""What made a store: the newest release line whose broker ran on it, and which of its queues are batch queues."""

from __future__ import annotations

from pathlib import Path

from store.compat import LINES, OLDEST, Line
from store.errors import MalformedConfig
from store.files.checkpoint import read as read_checkpoint
from store.names import BATCH_QUEUES, CHECKPOINT, CONFIG, TOPICS
from store.tables.tables import read_batch_topics

DEFAULT_QUEUE_FILE_BYTES = 6_000_000  # of queues that have no file
TOPICS_BYTES_MAX = 64 << 20


def line_of_store(root: Path) -> Line:
    """The newest line whose broker ran on the store, by what only it leaves there."""
    topics = root / CONFIG / TOPICS
    said = b""
    if topics.is_file():
        with topics.open("rb") as file:
            said = file.read(TOPICS_BYTES_MAX)
    checkpoint = read_checkpoint(root / CHECKPOINT)
    has_offsets = bool(checkpoint.master_flushed_offset or checkpoint.confirm_offset)
    for line in reversed(LINES.values()):
        marks = line.marks
        has_names = any((root / name).exists() for name in marks.names)
        is_told = marks.table_text in said if marks.table_text else False
        if has_names or is_told or (marks.checkpoint_offsets and has_offsets):
            return line
    return LINES[OLDEST]


def batch_topics_of(root: Path) -> frozenset[str]:
    """Topics whose queues are batch consume queues (5.x), by the topics' configuration and by what is on disk."""
    topics = frozenset(path.name for path in (root / BATCH_QUEUES).glob("*") if path.is_dir())
    try:
        return topics | read_batch_topics(root / CONFIG)
    except MalformedConfig:
        return topics  # without a readable table RocketMQ takes every queue for a plain one
