"""`slipstream log stat`, `diff` and `manifest`, at work: what a store holds, as lines and tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from store.compat import line_of
from store.manifest.manifest import lines
from store.reading.comparison import Comparison, compare, what_lies_at
from store.reading.log_reader import LogReader, open_log
from store.reading.summary import TopicSummary, by_topic
from tools.common.exit_codes import ExitCode
from tools.common.how_many import how_many
from tools.common.moments import time_text
from tools.common.output_form import json_text
from tools.common.progress import progress
from tools.common.watch import plain_console


def stat(store: Path, as_object: bool, shown: bool | None) -> int:
    """Show what STORE holds: segments, bytes, messages, topics, times."""
    reader = open_log(store)
    with progress("stat", shown) as update:
        topics = by_topic(reader, update)
    segments = len(reader.files.base_offsets()) if reader.files else 0
    count = sum(topic.messages for topic in topics.values())
    sums = {
        "minOffset": reader.min_offset,
        "maxOffset": reader.max_offset,
        "logBytes": reader.max_offset - reader.min_offset,
        "segments": segments,
        "segmentBytes": reader.files.segment_bytes if reader.files else 0,
        "messages": count,
        "live": reader.live,
        "firstStoreTimestamp": min((topic.first_store_ms for topic in topics.values()), default=None),
        "lastStoreTimestamp": max((topic.last_store_ms for topic in topics.values()), default=None),
    }
    if as_object:
        by_name = {name: _topic_object(topic) for name, topic in topics.items()}
        click.echo(json_text("log.stat", {**sums, "topics": by_name}))
        return 0
    click.echo(
        f"{how_many(count, 'message')} in {sums['logBytes']:,} bytes of log,"
        f" offsets {reader.min_offset:,} to {reader.max_offset:,}"
        f" ({'a broker runs' if reader.live else 'no broker runs'})\n"
        f"{how_many(segments, 'segment')} of {sums['segmentBytes']:,} bytes"
    )
    if topics:
        plain_console(is_table=True).print(_topic_table(topics))
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


def diff(store_a: Path, store_b: Path, as_json: bool, shown: bool | None) -> int:
    """Compare the commit logs of STORE_A and STORE_B byte for byte, where both have bytes."""
    left, right = open_log(store_a), open_log(store_b)
    with progress("diff", shown) as update:
        comparison = compare(left, right, update)
    both_empty = left.min_offset == left.max_offset and right.min_offset == right.max_offset
    if as_json:
        click.echo(json_text("log.diff", _difference(comparison, left, right)))
        is_equal = comparison.differs_at is None and (comparison.common_bytes or both_empty)
        return ExitCode.WELL if is_equal else ExitCode.FOUND
    if comparison.differs_at is not None:
        a, b = comparison.bytes_there
        click.echo(f"differ at offset {comparison.differs_at}: {a:#04x} in {store_a}, {b:#04x} in {store_b}")
        click.echo(f"  {store_a}: {what_lies_at(left, comparison.differs_at)}")
        click.echo(f"  {store_b}: {what_lies_at(right, comparison.differs_at)}")
        return ExitCode.FOUND
    ranges = f"{store_a} holds {left.min_offset} to {left.max_offset}"
    ranges += f", {store_b} {right.min_offset} to {right.max_offset}"
    if not comparison.common_bytes:
        click.echo(f"nothing to compare: {ranges}")
        return 0 if both_empty else ExitCode.FOUND
    click.echo(f"equal in {comparison.common_bytes} bytes, offsets {comparison.start} to {comparison.end}; {ranges}")
    return 0


def _difference(comparison: Comparison, left: LogReader, right: LogReader) -> dict[str, Any]:
    at = comparison.differs_at
    return {
        "start": comparison.start,
        "end": comparison.end,
        "commonBytes": comparison.common_bytes,
        "differsAt": at,
        "stores": [
            {
                "minOffset": reader.min_offset,
                "maxOffset": reader.max_offset,
                "byte": None if at is None else byte,
                "record": None if at is None else what_lies_at(reader, at),
            }
            for reader, byte in ((left, comparison.bytes_there[0]), (right, comparison.bytes_there[1]))
        ],
    }


def manifest(store: Path, version: str | None) -> int:
    """Print what RocketMQ's own classes read from STORE: a JSON line for each message, blank record and queue."""
    reader = open_log(store)
    limit = reader.max_offset if reader.live else None
    line_asked = None if version is None else line_of(version)
    for line in lines(store, line=line_asked, limit=limit):
        sys.stdout.write(line + "\n")
    return 0
