"""`slipstream log find`: messages by key, by id, by log offset, or a queue's message by time; never writes.

Exit codes as the other log commands'; 1 says that nothing was found.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from store.compat import line_of
from store.message.record import Message
from store.queues.consume_queue import ConsumeQueue
from store.queues.time_search import Log, files_of, first_in_log, offset_by_entries, offset_by_file_times
from store.reading.log_reader import LogReader, open_log
from store.reading.search import Finder, SearchResult, finder_on
from tools.common.exit_codes import ExitCode
from tools.common.message_text import as_json, as_line
from tools.common.moments import time_text
from tools.common.output_form import json_text


def find(
    store: Path,
    key: str | None,
    topic: str | None,
    message_id: str | None,
    offset: int | None,
    queue: tuple[str, int] | None,
    moment: int | None,
    version: str,
    limit: int,
    as_objects: bool,
) -> int:
    """Find messages of STORE by --key, --id, --offset, or by --queue and --time."""
    reader = open_log(store)
    if queue is not None and moment is not None:
        return _at_time(reader, *queue, moment, line_of(version).queues.finds_by_entries, as_objects)
    finder = finder_on(store, reader)
    if offset is not None:
        result = _at_offset(reader, finder, offset)
    elif message_id is not None:
        result = finder.by_id(message_id, topic)
    else:
        result = finder.by_key(key or "", topic, limit)
    for note in result.notes:
        click.echo(note, err=True)
    for message in result.messages:
        click.echo(as_json(message) if as_objects else as_line(message))
    if not result.messages:
        click.echo("nothing found", err=True)
    return 0 if result.messages else ExitCode.FOUND


def _at_offset(reader: LogReader, finder: Finder, offset: int) -> SearchResult:
    message = finder.at(offset)
    if message is not None:
        return SearchResult([message])
    following = reader.boundary_at(offset)
    next_one = f"the next one at {following}" if following < reader.max_offset else "and none after it"
    return SearchResult([], [f"no record begins at offset {offset}, {next_one}"])


def _at_time(reader: LogReader, topic: str, queue_id: int, moment: int, by_entries: bool, as_objects: bool) -> int:
    queue = ConsumeQueue.open(reader.directory.consumequeue / topic / str(queue_id))
    files = files_of(queue, queue.end_below(reader.max_offset))
    first = first_in_log(files, reader.min_offset)
    finder = Finder(reader)

    def stored_ms(offset: int, _size: int) -> int:
        message = finder.at(offset)
        return -1 if message is None else message.store_timestamp_ms

    log = Log(reader.min_offset, stored_ms)
    number = (offset_by_entries if by_entries else offset_by_file_times)(files, first, moment, log)
    message = _message_of(queue, number, finder)
    if as_objects:
        shown = {"topic": topic, "queueId": queue_id, "timestamp": moment, "queueOffset": number, "minOffset": first}
        shown |= {"maxOffset": queue.end_below(reader.max_offset)}
        shown |= {"message": None if message is None else json.loads(as_json(message))}
        click.echo(json_text("log.find.time", shown))
    else:
        click.echo(f"{topic}:{queue_id} at {time_text(moment)}: queue offset {number}")
        click.echo(as_line(message) if message is not None else "no message there: the queue ends before")
    return 0


def _message_of(queue: ConsumeQueue, number: int, finder: Finder) -> Message | None:
    entry = queue.last_entry(number + 1)
    return None if entry is None or int(entry["size"]) <= 0 else finder.at(int(entry["physical_offset"]))
