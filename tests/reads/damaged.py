"""Pieces of RocketMQ's own logs with changed bits, and cut at every byte: both readers find the same rows and faults.

A piece is some records one behind the other, which say where they lie: a segment as any other, only shorter. What both
say of each is compared: starts, heads, faults, parts, the error. Of some cases, chosen by their number, also all
columns with `store.message.record.decode`, a read of one topic, and what a permissive read says.
"""

from __future__ import annotations

import random
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ipc.arrays import Bytes
from spark_bridge.records import damage
from spark_bridge.records.columns import Asked
from spark_bridge.records.damage import Damage, sound_records
from spark_bridge.records.head_filter import EVERY_RECORD, HeadFilter, filter_of
from spark_bridge.records.walk import walked
from spark_bridge.split.splits import LogExtent, Selection
from store.columns.columns import COLUMNS, arrow_schema
from store.columns.records import Records, faults
from store.columns.window import LogWindow, Positions
from store.errors import CorruptRecord
from store.message.host import Host, offset_message_id
from store.message.properties import java_text
from store.message.record import (
    BORN_V6,
    FIXED_BYTES,
    MAGIC_AT,
    NOT_FOR_QUEUES,
    PHYSICAL_OFFSET_AT,
    STORE_V6,
    SYS_FLAG_AT,
    decode,
)
from tests.reads.added import Added
from tests.reads.numpy_rows import rows_at
from tests.spark_bridge.records.numpy_scan import record_starts
from tests.spark_bridge.stores import GOLDEN

RECORDS_MAX, PIECE_BYTES_MAX = 12, 8192
TAIL_BYTES = 4096
PLAIN_EVERY, PERMISSIVE_EVERY, ASKED_EVERY = 20, 10, 5  # one case of each such number is compared in these ways, too
# Where a changed bit says most: size and magic, the own offset and what follows it, lengths.
TELLING = (*range(MAGIC_AT + 4), *range(PHYSICAL_OFFSET_AT, SYS_FLAG_AT + 4), *range(84, 90))
WRAP = 1 << 64


class Piece(NamedTuple):
    """Some records of a golden store as a segment of their own; `starts` are those of the sound ones."""

    name: str
    base_offset: int
    data: bytes
    starts: tuple[int, ...]


@dataclass
class Share(Added):
    """What some cases came to: `errors` ended with one; the others are numbers of cases that were compared so, too."""

    cases: int = 0
    rows: int = 0
    errors: int = 0
    plain: int = 0
    permissive: int = 0
    asked: int = 0
    differences: list[str] = field(default_factory=list)


def unpacked_segments(directory: Path) -> list[Path]:
    """All segments of all golden stores, below the directory; those of one store follow each other."""
    for archive in sorted(GOLDEN.glob("*/*-store.tar.xz")):
        with tarfile.open(archive) as packed:
            packed.extractall(directory / archive.parent.name / archive.name.partition(".")[0], filter="data")
    return sorted(directory.glob("*/*/store/commitlog/*"))


def pieces_of(segments: Sequence[Path]) -> list[Piece]:
    """The segments cut into pieces; what lies behind a segment's last record is in the last one, up to some bytes."""
    return [piece for path in segments for piece in _pieces(path)]


def _pieces(path: Path) -> Iterator[Piece]:
    data, base = np.fromfile(path, np.uint8), int(path.name)
    name = "/".join((*path.parts[-5:-3], path.name))
    starts = _starts(LogWindow(name, base, data, base + len(data)))
    ends = [*starts[1:], _end_of(data, starts[-1])] if starts else []  # the next segment is made before it is needed
    first = 0
    for number, end in enumerate(ends):
        is_last = number + 1 == len(ends)
        if is_last or number + 1 - first == RECORDS_MAX or ends[number + 1] - starts[first] > PIECE_BYTES_MAX:
            at, behind = starts[first], min(len(data), end + 64) if is_last else end
            inside = tuple(start - at for start in starts[first : number + 1])
            yield Piece(name, base + at, data[at:behind].tobytes(), inside)
            first = number + 1


def _starts(window: LogWindow) -> list[int]:
    """The records up to the log's end, where zeros are no record."""
    found: list[int] = []
    try:
        for chunk in record_starts(window, 0, 0, window.length):
            found += chunk.tolist()
    except CorruptRecord as error:
        assert "found magic code 0x00000000" in str(error), error
    return found


def _end_of(data: Bytes, start: int) -> int:
    return start + int.from_bytes(data[start : start + 4].tobytes(), "big")


class Said(NamedTuple):
    """What a reader says of a window: its rows, row by row, and its error."""

    rows: list[tuple[int, ...]]
    faults: dict[int, str]
    spans: list[tuple[int, ...]]
    error: str


def compiled(window: LogWindow, start: int, end: int, at_a_time: int | None) -> Said:
    """What the compiled walk says; an error of any kind is said, not raised."""
    found, error = _taken(walked(window, 0, start, end, at_a_time=at_a_time, cached=bool(at_a_time)))
    if not found:
        return Said([], {}, [], error)
    records = Records.joined(found)
    bad = faults(records)
    good = np.delete(np.arange(len(records)), list(bad))
    spans = records.parts[:4, good]
    return Said(list(zip(*records.heads.tolist(), strict=True)), bad, list(zip(*spans.tolist(), strict=True)), error)


def searched(window: LogWindow, start: int, end: int) -> Said:
    """What the search with numpy says."""
    found, error = _taken(record_starts(window, 0, start, end))
    if not found:
        return Said([], {}, [], error)
    rows = rows_at(window, np.concatenate(found))
    spans = list(zip(*rows.spans.tolist(), strict=True))
    return Said(list(zip(*rows.heads.tolist(), strict=True)), rows.faults, spans, error)


def _taken(items: Iterator[Any]) -> tuple[list[Any], str]:
    """All of them, up to an error, and the error."""
    taken: list[Any] = []
    try:
        for item in items:
            taken.append(item)
    except Exception as error:
        return taken, f"{type(error).__name__}: {error}"
    return taken, ""


def compare(window: LogWindow, case: str, number: int, start: int = 0, at_a_time: int | None = None) -> Share:
    """Read a window in both ways."""
    ours, theirs = compiled(window, start, window.length, at_a_time), searched(window, start, window.length)
    share = Share(1, len(ours.rows), bool(ours.error))
    if ours != theirs:
        share.differences.append(f"{case}: {_differing(ours, theirs)}")
        return share
    if number % ASKED_EVERY == 0 and ours.rows:
        share.asked = 1
        share.differences += [f"{case}: {text}" for text in asked_differences(window, start, theirs)]
    if number % PLAIN_EVERY == 0 and ours.rows:
        share.plain = 1
        sound = np.array([row[0] for at, row in enumerate(ours.rows) if at not in ours.faults], np.int64)
        share.differences += [f"{case}: {text}" for text in plain_differences(window, sound)]
    if number % PERMISSIVE_EVERY == 0:
        share.permissive = 1
        if (mine := permissive(window, start)) != (other := permissive(window, start, by_numpy)):
            share.differences.append(f"{case}: permissive: {mine} but numpy: {other}")
    return share


def _differing(ours: Said, theirs: Said) -> str:
    parts = zip(Said._fields, ours, theirs, strict=True)
    return "; ".join(f"{name}: {mine} but numpy: {other}" for name, mine, other in parts if mine != other)


def asked_differences(window: LogWindow, start: int, sound: Said) -> Iterator[str]:
    """A walk that asks for one of the topics there, with what plain Python takes of the rows that numpy finds."""
    names = {bytes(window.bytes[at : at + length]) for at, length, _, _ in sound.spans}
    for name in sorted(names)[:1]:
        asked = filter_of(Selection(topics=frozenset({java_text(name)})))
        found, error = _taken(walked(window, 0, start, window.length, asked))
        mine = [at for records in found for at in records.starts.tolist()], error
        if mine != (other := _of_topic(window, sound, name)):
            yield f"topic {name!r}: {mine} but plainly: {other}"


def _of_topic(window: LogWindow, sound: Said, topic: bytes) -> tuple[list[int], str]:
    """A prepared message is never wanted, and a record whose topic cannot be read is an error."""
    spans, wanted = iter(sound.spans), []
    for row, (at, _, flags, *_) in enumerate(sound.rows):
        span = None if row in sound.faults else next(spans)
        if flags & NOT_FOR_QUEUES:
            continue
        if span is None:
            return wanted, f"CorruptRecord: {window.corrupt(at, sound.faults[row])}"
        if bytes(window.bytes[span[0] : span[0] + span[1]]) == topic:
            wanted.append(at)
    return wanted, sound.error


def plain_differences(window: LogWindow, starts: Positions) -> list[str]:
    """All columns of some sound records, with what plain Python decodes."""
    records = Records(window, starts)
    batch = Asked(COLUMNS, arrow_schema(COLUMNS)).batch_of(records)
    columns = {name: _values(batch.column(name)) for name in batch.schema.names}
    found = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    expected = [plain_row(window, at) for at in starts.tolist()]
    rows = zip(found, expected, strict=True)
    return [f"columns: {mine} but plainly: {other}" for mine, other in rows if mine != other]


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type):  # a changed one may be none that Python has
        return column.cast(pa.int64()).to_pylist()
    return [dict(value) for value in column.to_pylist()] if pa.types.is_map(column.type) else column.to_pylist()


def plain_row(window: LogWindow, at: int) -> dict[str, Any]:
    """The columns of the record there, field by field."""
    message = decode(window.bytes.data, at, check_body_crc=False)
    is_v6 = bool(message.sys_flag & STORE_V6)
    return {
        "topic": message.topic, "queueId": message.queue_id, "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "msgId": offset_message_id(message.store_host, message.physical_offset, is_v6),
        "tags": message.properties.get("TAGS"), "keys": message.properties.get("KEYS"),
        "properties": message.properties, "body": bytes(message.body), "flag": message.flag,
        "sysFlag": message.sys_flag, "bornTimestamp": _microseconds(message.born_timestamp_ms),
        "bornHost": _host(message.born_host, bool(message.sys_flag & BORN_V6)),
        "storeTimestamp": _microseconds(message.store_timestamp_ms), "storeHost": _host(message.store_host, is_v6),
        "reconsumeTimes": message.reconsume_times, "bodyLength": len(message.body), "brokerName": None,
    }  # fmt: skip


def _microseconds(milliseconds: int) -> int:
    """The same in microseconds, as a signed number of 64 bits that overflows as in Java."""
    return (milliseconds * 1000 + WRAP // 2) % WRAP - WRAP // 2


def _host(host: Host, is_v6: bool) -> str:
    return f"[{host.ip}]:{host.port}" if is_v6 and ":" in host.ip else f"{host.ip}:{host.port}"


def by_numpy(
    window: LogWindow, chain_from: int, start: int, end: int, head_filter: HeadFilter = EVERY_RECORD
) -> Iterator[Records]:
    """The search with numpy in the place of `walked`."""
    assert head_filter is EVERY_RECORD
    for starts in record_starts(window, chain_from, start, end):
        yield Records(window, starts)


def permissive(window: LogWindow, start: int, walk: Callable[..., Iterator[Records]] = walked) -> tuple[list[Any], str]:
    """What a permissive read says: starts of rows, and damage."""
    extent = LogExtent("", window.segment_bytes, window.base_offset, 0, window.base_offset + window.length)
    setattr(damage, "walked", walk)  # noqa: B010 - a name that it does not export
    try:
        parts, error = _taken(sound_records(window, extent, 0, start, window.length))
    finally:
        setattr(damage, "walked", walked)  # noqa: B010
    said: list[Any] = []
    for part in parts:
        said += [part.text] if isinstance(part, Damage) else part.starts.tolist()
    return said, error


def flipped(piece: Piece, chance: random.Random) -> Bytes:
    """A copy with one to four bits changed, mostly in heads."""
    array = np.frombuffer(piece.data, np.uint8).copy()
    for _ in range(chance.choice((1, 1, 1, 2, 3, 4))):
        kind, start = chance.randrange(8), chance.choice(piece.starts)
        at = start + chance.choice(TELLING) if kind < 4 else start + chance.randrange(FIXED_BYTES)
        at = chance.randrange(len(array)) if kind == 7 or at >= len(array) else at
        array[at] ^= 1 << chance.randrange(8)
    return array


def flip_case(pieces: Sequence[Piece], number: int) -> Share:
    """The case with that number."""
    chance = random.Random(number)
    piece = chance.choice(pieces)
    array = flipped(piece, chance)
    limit = chance.choice((len(array), len(array), len(array), chance.randrange(len(array) + 1)))
    start = chance.choice((0, 0, 0, chance.randrange(len(array))))
    window = LogWindow(piece.name, piece.base_offset, array, piece.base_offset + limit)
    return compare(window, f"case {number}, {piece.name}", number, start, chance.choice((None, None, 1, 2)))


def flip_cases(pieces: Sequence[Piece], first: int, count: int) -> Share:
    """The cases from that number on."""
    share = Share()
    for number in range(first, first + count):
        share.add(flip_case(pieces, number))
    return share


def cut_cases(path: Path, tail_bytes: int = TAIL_BYTES, every: int = 1) -> Share:
    """A segment's tail with a limit at every byte, and with its file cut there, as well."""
    share, data, base = Share(), np.fromfile(path, np.uint8), int(path.name)
    name = "/".join((*path.parts[-5:-3], path.name))
    starts = _starts(LogWindow(name, base, data, base + len(data)))
    if not starts:
        return share
    end = min(len(data), _end_of(data, starts[-1]) + 64)
    first = next(at for at in starts if at >= end - tail_bytes or at == starts[-1])
    tail = data[first:end]
    for number, length in enumerate(range(0, len(tail) + 1, every)):
        whole = LogWindow(name, base + first, tail, base + first + length)
        share.add(compare(whole, f"{name}, limit at {base + first + length}", number))
        file = LogWindow(name, base + first, tail[:length], base + first + length)
        share.add(compare(file, f"{name}, cut at {base + first + length}", number))
    return share
