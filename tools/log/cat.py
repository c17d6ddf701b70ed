"""`slipstream log cat`, at work: the messages that are asked for, once or as long as the broker runs.

Following, the published end is read from the broker's mapped counters ten times a second and files only once it has
moved; nobody is asked, nothing is registered, so that no put is slower by who looks on.
"""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import click

from ipc.clock import wall_ms
from store.errors import OffsetOutOfRange, SegmentRemoved, StoreError
from store.message.record import Message, SysFlag, decode, identity_at, store_timestamp_of
from store.reading import summary
from store.reading.by_queues import listed, records_listed
from store.reading.by_time import CLOCK_STEP_MS, first_since
from store.reading.extent import Running, require_running
from store.reading.log_reader import LogReader, open_log
from store.repair import kept
from tools.common.message_text import as_json, as_line, body_shown, inner_messages
from tools.log.literals import in_records, literals_of

_COMPRESSED = int(SysFlag.COMPRESSED)

# Whether a regular expression matches in a message, in bounded time: some expressions take for ever at some texts.
#
# A timer that counts this process's CPU time looks every second whether the search is at the same message as at the
# last look; Python's matcher lets such a signal in, and the search ends with an error.
LOOK_SECONDS = 1.0  # of CPU time: a search ends after one to two of them


class PatternTooSlow(StoreError):
    """Raised when a regular expression takes too long at one message.

    Next: write the expression without a repetition inside a repetition.
    """

    code = "PATTERN_TOO_SLOW"

    def __init__(self, pattern: str, offset: int) -> None:
        super().__init__(
            f"the expression {pattern!r} takes more than {LOOK_SECONDS:.0f} to {2 * LOOK_SECONDS:.0f} s of CPU time at"
            f" the message at offset {offset}; write it without a repetition inside a repetition"
        )


class Grep:
    """One expression, asked of message after message inside of `bounded`."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        literals = literals_of(pattern.pattern) if pattern.flags == re.UNICODE else []
        self._needed = in_records(literals) if literals else None
        self._searching: int | None = None  # at the message of that offset
        self._seen: int | None = None  # at the timer's last look

    def may_match(self, record: memoryview | bytes) -> bool:
        """False for a record whose bytes lack what a match has. A compressed body may have it, once it is inflated."""
        if self._needed is None or self._needed.search(record):
            return True
        return bool(identity_at(record, 0)[1] & _COMPRESSED)

    def matches(self, message: Message) -> bool:
        """Whether it matches in the body as shown, or in a property as NAME=value. Raises PatternTooSlow."""
        self._searching = message.physical_offset
        try:
            return any(self._pattern.search(text) for text in _texts(message))
        finally:
            self._searching = None

    @contextmanager
    def bounded(self) -> Iterator[None]:
        """End searches that take too long, while the block runs."""
        before = signal.signal(signal.SIGVTALRM, self._look)
        signal.setitimer(signal.ITIMER_VIRTUAL, LOOK_SECONDS, LOOK_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
            signal.signal(signal.SIGVTALRM, before)

    def _look(self, _number: int, _frame: Any) -> None:
        seen, self._seen = self._seen, self._searching
        if seen is not None and seen == self._searching:
            raise PatternTooSlow(self._pattern.pattern, seen)


def _texts(message: Message) -> Iterator[str]:
    for each in inner_messages(message) or [message]:
        yield body_shown(each)[0].decode(errors="replace")
        for name, value in each.properties.items():
            yield f"{name}={value}"


FOLLOW_SECONDS = 0.1
UNTIL_GRACE_MS = 1000  # what was stored before --until is published by then


class Wanted(NamedTuple):
    """Filter of the messages to print."""

    topics: tuple[str, ...]
    start: int | None
    since_ms: int | None
    until_ms: int | None
    grep: Grep | None

    def of(self, records: Iterable[memoryview | bytes]) -> Iterator[Message]:
        """Yield the messages that pass, in log order; end after the time that is asked for."""
        is_timed = self.since_ms is not None or self.until_ms is not None
        for record in records:
            stored_ms = (store_timestamp_of(record, 0) or 0) if is_timed else 0
            if self.until_ms is not None and stored_ms >= self.until_ms:
                if stored_ms >= self.until_ms + CLOCK_STEP_MS:
                    return
                continue
            if self.since_ms is not None and stored_ms < self.since_ms:
                continue
            if self.start and identity_at(record, 0)[0] < self.start:
                continue
            if self.grep is not None and not self.grep.may_match(record):
                continue
            message = decode(record, check_body_crc=False)
            if self.topics and message.topic not in self.topics:
                continue
            if self.grep is None or self.grep.matches(message):
                yield message


def cat(
    store: Path,
    as_objects: bool,
    topics: tuple[str, ...],
    start: int | None,
    since: int | None,
    until: int | None,
    grep: re.Pattern[str] | None,
    limit: int | None,
    scan: bool,
    follow: bool,
) -> int:
    """Print the messages of STORE in log order."""
    wanted = Wanted(topics, start, since, until, Grep(grep) if grep is not None else None)
    records = kept.records(store) if store.is_file() else _of_store(store, wanted, scan, follow)
    show = as_json if as_objects else as_line
    with wanted.grep.bounded() if wanted.grep else nullcontext():
        has_any = False
        for message in islice(wanted.of(records), limit):
            has_any = True
            sys.stdout.write(show(message) + "\n")
    if topics and not has_any and not follow:
        click.echo(f"no such message of {', '.join(topics)}; `slipstream log stat {store}` lists the topics", err=True)
    return 0


def _of_store(store: Path, wanted: Wanted, scan: bool, follow: bool) -> Iterator[memoryview | bytes]:
    """Return what to choose from: nothing before the offset and time asked for.

    And of other topics as little as may be.
    """
    broker = require_running(store) if follow else None
    reader = open_log(store)
    offset = reader.min_offset if wanted.start is None else reader.boundary_at(wanted.start)
    if wanted.since_ms is not None:
        offset = max(offset, first_since(reader, wanted.since_ms))
    return _records(store, reader, offset, wanted, scan, broker)


def _records(
    store: Path, reader: LogReader, offset: int, wanted: Wanted, scan: bool, broker: Running | None
) -> Iterator[memoryview | bytes]:
    queues = listed(store, reader, wanted.topics) if wanted.topics and not scan else None
    if queues is not None and queues.end > offset:
        yield from records_listed(reader, queues, offset)
        offset = queues.end
    if broker is None:
        yield from summary.records(reader, offset)
    else:
        yield from _following(store, reader, offset, broker, wanted.until_ms)


def _following(
    store: Path, reader: LogReader, offset: int, broker: Running, until_ms: int | None
) -> Iterator[memoryview]:
    """The records from `offset` on, as long as that broker runs or until that time, then what it left."""
    counters, seen = broker.counters(), -1
    begin, end = counters.cursor("min_physical_offset"), counters.cursor("max_physical_offset")
    try:
        while True:
            is_over = until_ms is not None and wall_ms() > until_ms + UNTIL_GRACE_MS
            has_ended = not broker.is_alive()  # asked first: its mapped end is then the last that it published
            if begin.read() > offset:
                click.echo(f"offsets {offset} to {begin.read()} expired before they were printed", err=True)
                offset = begin.read()
            if (now := end.read()) != seen:
                reader = reader if reader.files is not None else open_log(store)
                for record in _unexpired(reader, offset, now):
                    yield record
                    offset = identity_at(record, 0)[0] + len(record)
                seen = now if begin.read() <= offset else -1
                sys.stdout.flush()
            elif is_over or has_ended:
                if has_ended:
                    click.echo("the broker has stopped", err=True)
                return
            else:
                time.sleep(FOLLOW_SECONDS)
    finally:
        counters.close()


def _unexpired(reader: LogReader, offset: int, end: int) -> Iterator[memoryview]:
    """The records of that range, up to one that goes meanwhile: the log's beginning says so at the next look."""
    try:
        yield from summary.records(reader, offset, end)
    except (OffsetOutOfRange, SegmentRemoved):
        click.echo("the log expired during the read; continuing at its present beginning", err=True)
