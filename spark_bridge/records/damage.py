"""Where reading goes on behind a damaged record, and what tells of it: nothing is left out in silence.

A record is damaged when it breaks the chain of sizes, names another place, or its lengths do not add up. Behind it the
next record that can be proved is found: the one that the damaged record's size leads to, or its lengths; where both
are lost, the first sound one (its own place, its lengths, its body's CRC) that its consume queue does not deny. Bytes
in a body that look like a record are none while anything proves a better one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spark_bridge.records.entries import QueueEntries, entry_error, judged
from spark_bridge.records.walk import walked
from spark_bridge.split.splits import LogExtent
from store.columns.records import Records, faults
from store.columns.window import LogWindow, Positions
from store.errors import CorruptRecord, StoreError
from store.message.measure import BODY_LENGTH_BYTES, measure
from store.message.record import (
    BLANK_MAGIC,
    FIXED_BYTES,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    SYS_FLAG_AT,
    Kind,
    body_length_at,
    decode,
    inspect,
)
from store.message.rows_kernel import Row, find_record
from store.message.topics import TOPIC_PATTERN
from store.message.walk_kernel import HEAD_BYTES
from store.names import CONSUME_QUEUES
from store.queues.batch_consume_queue import has_batch_queues
from store.queues.consume_queue import ConsumeQueue


class Damage(NamedTuple):
    """A place of the log that gives no row, and what is known of it."""

    error: StoreError
    offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    goes_on: str = ""

    @property
    def text(self) -> str:
        """What, where, why, and where reading goes on."""
        return error_text(self.error) + (f"; {self.goes_on}" if self.goes_on else "")


def error_text(error: StoreError) -> str:
    """An error as a row tells it."""
    return f"{error.code}: {error}"


def sound_records(
    window: LogWindow, log: LogExtent, chain_from: int, start: int, end: int
) -> Iterator[Records | Damage]:
    """Yield records like `walked`, but check every record's lengths; a damaged one does not end the reading."""
    at = chain_from
    while at < end:
        try:
            for records in walked(window, at, at, end):
                bad = faults(records)
                wanted = slice(int(np.searchsorted(records.starts, start)), min(bad, default=len(records)))
                if wanted.start < wanted.stop:
                    yield records.chosen(wanted)
                if bad:
                    raise window.corrupt(int(records.starts[min(bad)]), bad[min(bad)])
            return
        except CorruptRecord as error:
            damaged = error.offset - window.base_offset
            at = next_provable(window, log, damaged)
            if start <= damaged < end:
                yield Damage(error, error.offset, goes_on=_goes_on(window, at))


def _goes_on(window: LogWindow, at: int) -> str:
    where = at + window.base_offset
    return f"reading continues at offset {where}" if at < window.length else f"no record follows below offset {where}"


def sound_entries(window: LogWindow, entries: QueueEntries) -> Iterator[Positions | Damage]:
    """Yield the records that a queue's entries name, and damage for entries that name no record or another queue's."""
    _, wrong = judged(window, entries)
    for row in wrong.tolist():
        yield _entry_damage(entry_error(window, entries, row), entries, row)
    rows = np.delete(np.arange(len(entries.positions)), wrong)
    bad = faults(Records(window, entries.positions[rows])) if len(rows) else {}
    for row, reason in zip(rows[list(bad)].tolist(), bad.values(), strict=True):
        yield _entry_damage(window.corrupt(int(entries.positions[row]), reason), entries, row)
    rows = np.delete(rows, list(bad))
    if len(rows):
        yield entries.positions[rows]


def _entry_damage(error: CorruptRecord, entries: QueueEntries, row: int) -> Damage:
    return Damage(error, error.offset, entries.topic, entries.queue_id, int(entries.numbers[row]))


def next_provable(window: LogWindow, log: LogExtent, damaged: int) -> int:
    """Return where the next record behind the damaged one begins; the window's end without one."""
    ends = {_end_by_size(window, damaged), _end_by_lengths(window, damaged)}
    for end in sorted(end for end in ends if end is not None):
        if _begins_here(window, end) and _has_its_entry(window, log, end):
            return end
    at, rows = damaged, np.empty((1, len(Row)), np.int64)
    while (at := find_record(window.bytes, at + 1, window.length, window.base_offset, rows)) >= 0:
        inspection = inspect(window.bytes.data, at, window.base_offset + at, check_body_crc=True)
        if inspection.kind is Kind.MESSAGE and _has_its_entry(window, log, at):
            return int(at)
    return window.length


def _end_by_size(window: LogWindow, at: int) -> int | None:
    if window.length - at < MAGIC_AT:
        return None
    size = int(window.view(">i4")[at])
    return at + size if FIXED_BYTES <= size <= window.length - at else None


def _end_by_lengths(window: LogWindow, at: int) -> int | None:
    """The end of the record by the lengths of body, topic and properties."""
    if window.length - at < FIXED_BYTES:
        return None
    body_at = at + body_length_at(int(window.view(">i4")[at + SYS_FLAG_AT])) + BODY_LENGTH_BYTES
    is_v2 = int(window.view(">u4")[at + MAGIC_AT]) == MAGIC_V2
    spans = measure(window.bytes.data, at, window.length, body_at, is_v2, exact=False)
    return None if isinstance(spans, str) else spans.end


def _begins_here(window: LogWindow, at: int) -> bool:
    """Whether a record begins here, or the log or its segment ends."""
    if window.length - at < HEAD_BYTES:
        return at == window.length or window.length < window.segment_bytes
    magic = int(window.view(">u4")[at + MAGIC_AT])
    if magic == BLANK_MAGIC:
        return True
    named = int(window.view(">i8")[at + PHYSICAL_OFFSET_AT])
    return magic in (MAGIC_V1, MAGIC_V2) and named == window.base_offset + at


def _has_its_entry(window: LogWindow, log: LogExtent, at: int) -> bool:
    """Whether the record's consume queue points to it, as far as queues can tell."""
    offset = window.base_offset + at
    if not log.root or offset >= log.reput_from_offset:
        return True
    try:
        message = decode(window.bytes.data, at, check_body_crc=False)
    except CorruptRecord:  # no record, or a damaged one, which is reported next
        return True
    if not TOPIC_PATTERN.fullmatch(message.topic):
        return False
    directory = Path(log.root, CONSUME_QUEUES, message.topic, str(message.queue_id))
    if not directory.is_dir():
        return has_batch_queues(log.root, message.topic)
    try:
        entries = ConsumeQueue.open(directory).entries(message.queue_offset, message.queue_offset + 1)
    except StoreError:
        return True
    return len(entries) == 1 and int(entries[0]["physical_offset"]) == offset
