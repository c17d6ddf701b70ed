"""`slipstream log cat`, `stat`, `diff` and `manifest`, at work: what a store holds, as lines and tables."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from store.compat import line_of
from store.manifest.manifest import lines
from store.message.record import Message
from store.reading.comparison import compare, what_lies_at
from store.reading.extent import Running, require_running, running
from store.reading.log_reader import LogReader, open_log
from store.reading.summary import TopicSummary, by_topic, messages
from store.repair import kept
from tools.common.exit_codes import ExitCode
from tools.common.moments import time_text
from tools.log.text import as_json, as_line

FOLLOW_SECONDS = 0.1
PIPE_COLUMNS = 160  # a table's width where there is no terminal to ask


def cat(
    store: Path, as_objects: bool, topic: str | None, start: int | None, limit: int | None, follow: bool
) -> int:
    """Print the messages of STORE in log order."""
    if store.is_file():
        _print(kept.messages(store), as_objects, topic, start, limit)
        return 0
    broker = require_running(store) if follow else None
    reader = open_log(store)
    offset = reader.min_offset if start is None else reader.boundary_at(start)
    records = _following(store, reader, offset, broker) if broker else messages(reader, offset)
    _print(records, as_objects, topic, offset, limit)
    return 0


def _print(
    records: Iterator[Message], as_objects: bool, topic: str | None, start: int | None, limit: int | None
) -> None:
    show = as_json if as_objects else as_line
    chosen = (each for each in records if each.physical_offset >= (start or 0) and topic in (None, each.topic))
    for message in islice(chosen, limit):
        sys.stdout.write(show(message) + "\n")


def _following(store: Path, reader: LogReader, offset: int, broker: Running) -> Iterator[Message]:
    """The messages from `offset` on, as long as that broker runs, then what it left."""
    while True:
        for message in messages(reader, offset):
            yield message
            offset = message.physical_offset + message.size
        sys.stdout.flush()
        stopped = (now := running(store)) is None or now.pid != broker.pid
        reader = open_log(store)
        if stopped and offset >= reader.max_offset:
            click.echo("the broker has stopped", err=True)
            return
        if offset >= reader.max_offset:
            time.sleep(FOLLOW_SECONDS)


def stat(store: Path, as_object: bool) -> int:
    """Show what STORE holds: segments, bytes, messages, topics, times."""
    reader = open_log(store)
    topics = by_topic(reader)
    segments = len(reader.files.base_offsets()) if reader.files else 0
    sums = {
        "minOffset": reader.min_offset, "maxOffset": reader.max_offset,
        "logBytes": reader.max_offset - reader.min_offset, "segments": segments,
        "segmentBytes": reader.files.segment_bytes if reader.files else 0,
        "messages": sum(topic.messages for topic in topics.values()), "live": reader.live,
        "firstStoreTimestamp": min((topic.first_store_ms for topic in topics.values()), default=None),
        "lastStoreTimestamp": max((topic.last_store_ms for topic in topics.values()), default=None),
    }  # fmt: skip
    if as_object:
        click.echo(json.dumps({**sums, "topics": {name: _topic_object(topic) for name, topic in topics.items()}}))
        return 0
    click.echo(
        f"{sums['messages']:,} messages in {sums['logBytes']:,} bytes of log,"
        f" offsets {reader.min_offset:,} to {reader.max_offset:,}"
        f" ({'a broker runs' if reader.live else 'no broker runs'})\n"
        f"{segments} segments of {sums['segmentBytes']:,} bytes"
    )
    if topics:
        Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS).print(_topic_table(topics))
    return 0


def _topic_object(topic: TopicSummary) -> dict[str, int]:
    return {
        "messages": topic.messages, "queues": len(topic.queues), "recordBytes": topic.record_bytes,
        "bodyBytes": topic.body_bytes, "firstStoreTimestamp": topic.first_store_ms,
        "lastStoreTimestamp": topic.last_store_ms,
    }  # fmt: skip


def _topic_table(topics: dict[str, TopicSummary]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("topic", overflow="fold")
    for heading in ("messages", "queues", "bytes"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("last stored", no_wrap=True)
    for name, topic in topics.items():
        figures = (topic.messages, len(topic.queues), topic.record_bytes)
        table.add_row(Text(name), *(f"{figure:,}" for figure in figures), time_text(topic.last_store_ms))
    return table


def diff(store_a: Path, store_b: Path) -> int:
    """Compare the commit logs of STORE_A and STORE_B byte for byte, where both have bytes."""
    left, right = open_log(store_a), open_log(store_b)
    comparison = compare(left, right)
    if comparison.differs_at is not None:
        a, b = comparison.bytes_there
        click.echo(f"differ at offset {comparison.differs_at}: {a:#04x} in {store_a}, {b:#04x} in {store_b}")
        click.echo(f"  {store_a}: {what_lies_at(left, comparison.differs_at)}")
        click.echo(f"  {store_b}: {what_lies_at(right, comparison.differs_at)}")
        return ExitCode.FOUND
    ranges = f"{store_a} holds {left.min_offset} to {left.max_offset}"
    ranges += f", {store_b} {right.min_offset} to {right.max_offset}"
    if not comparison.common_bytes:
        both_empty = left.min_offset == left.max_offset and right.min_offset == right.max_offset
        click.echo(f"nothing to compare: {ranges}")
        return 0 if both_empty else ExitCode.FOUND
    click.echo(f"equal in {comparison.common_bytes} bytes, offsets {comparison.start} to {comparison.end}; {ranges}")
    return 0


def manifest(store: Path, version: str | None) -> int:
    """Print what RocketMQ's own classes read from STORE: a JSON line for each message, blank record and queue."""
    reader = open_log(store)
    limit = reader.max_offset if reader.live else None
    line_asked = None if version is None else line_of(version)
    for line in lines(store, line=line_asked, limit=limit):
        sys.stdout.write(line + "\n")
    return 0
