"""Topics: how fast messages come, how many there are, in which queues, and how many bytes they take."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from engine.shared_memory.topic_table import TopicTable
from store import names
from store.compat import QueueRules, line_of
from store.errors import StoreError
from store.files.segment_files import SegmentFiles, segment_bytes_of
from store.message.topics import is_system_topic
from store.queues.consume_queue import ConsumeQueue, queue_directories
from store.reading import extent
from store.reading.log_reader import LogReader, open_log
from store.reading.origin import line_of_store
from store.reading.queue_view import LogLimits, Queues, QueueView
from store.tables import fastjson
from tools.web.state.asked import Asked, Watched
from tools.web.state.console import Console, Json
from tools.web.state.errors import Unknown

QUEUES_LOOKED_AT_MAX, TOPICS_SHOWN_MAX, QUEUES_SHOWN_MAX = 20_000, 500, 128
ENTRIES_SUMMED_MAX = 2_000_000
TABLE_BYTES_MAX = 8 << 20


def view(console: Console, asked: Asked) -> Json:
    """Return all topics, those with the most messages first."""
    store, reader = asked.store, open_log(asked.store.path)
    every = list(itertools.islice(queue_directories(reader.directory.consumequeue), QUEUES_LOOKED_AT_MAX + 1))
    queues: dict[str, int] = {}
    for topic, _queue_id, _directory in every[:QUEUES_LOOKED_AT_MAX]:
        queues[topic] = queues.get(topic, 0) + 1
    counts, settings = _counts(store), _settings(reader)
    rates = console.rates.of(store.number, counts)
    rows = [
        {
            "topic": topic,
            "queues": queues.get(topic, 0),
            "system": is_system_topic(topic),
            **settings.get(topic, {}),
            "messages": counts[topic][0] if topic in counts else None,
            "bytes": counts[topic][1] if topic in counts else None,
            "messagesPerSecond": rates[topic][0] if topic in rates else None,
            "bytesPerSecond": rates[topic][1] if topic in rates else None,
        }
        for topic in {*queues, *counts}
    ]
    rows.sort(key=lambda row: (row["system"], -(row["messagesPerSecond"] or 0), -(row["messages"] or 0), row["topic"]))
    return {
        "live": reader.live,
        "topics": rows[:TOPICS_SHOWN_MAX],
        "more": max(0, len(rows) - TOPICS_SHOWN_MAX),
        "queuesCut": len(every) > QUEUES_LOOKED_AT_MAX,
    }


def _counts(store: Watched) -> dict[str, tuple[int, int]]:
    """(messages, bytes) since the broker's start; nothing without one."""
    running = extent.running(store.path)
    if running is None:
        return {}
    with closing(TopicTable.attach(running.region_directory)) as table:
        return {one.topic: (one.messages, one.bytes) for one in table.read()}


def _settings(reader: LogReader) -> Mapping[str, Json]:
    """Return what topics.json says; nothing where it cannot be read."""
    path = reader.directory.config / names.TOPICS
    try:
        with path.open("rb") as file:
            table = fastjson.loads(file.read(TABLE_BYTES_MAX), path.name)["topicConfigTable"]
        return {topic: _setting(one) for topic, one in table.items() if isinstance(one, dict)}
    except (OSError, StoreError, KeyError, TypeError, AttributeError):
        return {}


def _setting(one: Mapping[str, Any]) -> Json:
    wanted = ("readQueueNums", "writeQueueNums", "perm")
    return {name: one[name] for name in wanted if isinstance(one.get(name), int)}


def queues_of(store: Watched, reader: LogReader, rules: QueueRules | None = None) -> Queues:
    """The store's queues, as far as they may be read; by the rules of what wrote it, unless others are given."""
    files = reader.files or SegmentFiles(reader.directory.commitlog, segment_bytes_of(reader.directory.commitlog))
    running = extent.running(store.path)
    line = line_of(running.settings["compat"]) if running is not None else line_of_store(store.path)
    limits = LogLimits(reader.min_offset, reader.max_offset)
    return Queues(store.path, files, lambda: limits, rules or line.queues)


def one_topic(_console: Console, asked: Asked) -> Json:
    """Return a topic's queues: their ends, sizes, and times of messages. Raises Unknown."""
    store, topic = asked.store, asked.text("topic")
    reader = open_log(store.path)
    every = [
        (queue_id, directory)
        for name, queue_id, directory in itertools.islice(
            queue_directories(reader.directory.consumequeue), QUEUES_LOOKED_AT_MAX
        )
        if name == topic
    ]
    if not every or reader.files is None:
        raise Unknown(f"no queue of topic {topic!r} in {store.label}")
    queues, left = queues_of(store, reader), ENTRIES_SUMMED_MAX
    rows = []
    for queue_id, directory in every[:QUEUES_SHOWN_MAX]:
        seen = queues.view(topic, queue_id)
        size = _bytes_of(seen, directory, left)
        left -= seen.max_offset - seen.min_offset if size is not None else 0
        rows.append(
            {
                "queueId": queue_id,
                "minOffset": seen.min_offset,
                "maxOffset": seen.max_offset,
                "messages": seen.max_offset - seen.min_offset,
                "bytes": size,
                "firstMs": _time(seen.earliest_ms),
                "lastMs": _time(seen.stored_ms(seen.max_offset - 1)),
            }
        )
    more = max(0, len(every) - QUEUES_SHOWN_MAX)
    return {"topic": topic, "queues": rows, "more": more, **_settings(reader).get(topic, {})}


def _bytes_of(seen: QueueView, directory: Path, entries_max: int) -> int | None:
    """Return the bytes that the queue's messages take in the log; None where they are too many to add up."""
    if seen.max_offset - seen.min_offset > entries_max:
        return None
    try:
        entries = ConsumeQueue.open(directory).entries(seen.min_offset, seen.max_offset)
        return int(entries["size"].clip(0).sum())
    except (StoreError, OSError):
        return None


def _time(milliseconds: int) -> int | None:
    return milliseconds if milliseconds >= 0 else None
