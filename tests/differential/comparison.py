"""Compares two stores byte for byte: commit log, consume queues with their extensions, batch queues, index files."""

from __future__ import annotations

import bisect
import re
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.differential import formats, masks
from tests.differential.formats import Record, fields_of, files_below, record_at
from tests.differential.masks import Masked
from tests.differential.settings import HASH_SLOTS

DELAY_TOPIC, OP_TOPIC = "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
MISMATCHES_MAX = 8
SHOWN_MAX = 300
LONG_MIN = -(2**63)


class Comparison:
    """One comparison; `mismatches` are its findings, each with its operation, field and both values."""

    def __init__(self, real: Path, ours: Path, operation_at: Mapping[int, str]) -> None:
        self._real, self._ours = real, ours
        self._operation_at = operation_at
        self._known = sorted(operation_at)
        self.masked = Masked()
        self.mismatches: list[str] = []
        self.records = 0
        self.blanks = 0
        self.entries = 0
        self._stored: list[dict[int, int]] = [{}, {}]  # by physical offset, in each store

    def run(self) -> Comparison:
        """Compare everything; a log that differs makes the rest meaningless."""
        self._logs()
        if not self.mismatches:
            self._trees("consumequeue", self._queue)
            self._trees("batchconsumequeue", self._batch_queue)
            self._trees("consumequeue_ext", self._extension)
            self._indexes()
        return self

    def _differs(self, where: str, field: str, real: Any, ours: Any) -> None:
        if len(self.mismatches) < MISMATCHES_MAX:
            shown = [_shown(value) for value in (real, ours)]
            self.mismatches.append(f"{where}: {field}\n  RocketMQ  {shown[0]}\n  ours      {shown[1]}")

    def operation_of(self, offset: int) -> str:
        """Which operation wrote a record: the one known to lie there, or those around it."""
        if offset in self._operation_at:
            return self._operation_at[offset]
        index = bisect.bisect(self._known, offset)
        before = self._operation_at[self._known[index - 1]] if index else "the beginning"
        after = self._operation_at[self._known[index]] if index < len(self._known) else "the end"
        return f"between {before} and {after}"

    # ---- the log

    def _logs(self) -> None:
        sides = [files_below(store / "commitlog") for store in (self._real, self._ours)]
        for name in sorted(sides[0].keys() | sides[1].keys()):
            data = [bytearray(side[name].read_bytes()) if name in side else bytearray() for side in sides]
            if not all(data) and not any(any(content) for content in data):
                continue  # made ahead by one of them, and still empty
            if len(data[0]) != len(data[1]):
                self._differs(f"commitlog/{name}", "size of the file", len(data[0]), len(data[1]))
                return
            self.masked.compared += len(data[0])
            if not self._segment(int(name), *data):
                return

    def _segment(self, base: int, real: bytearray, ours: bytearray) -> bool:
        """Compare one file record by record; False when what follows can no longer be compared."""
        position = 0
        while position < len(real):
            record, other = record_at(real, position, base), record_at(ours, position, base)
            if record is None or other is None or (record.size, record.magic) != (other.size, other.magic):
                if record == other:
                    break
                self._other_record(base + position, record, other, real[position:], ours[position:])
                return False
            if record.blank:
                self.blanks += 1
                break
            self._record(record, other, position, real, ours)
            position += record.size
        if real[position:] != ours[position:]:
            self._differs(
                f"log from {base + position}", "bytes behind the last record", real[position:], ours[position:]
            )
        return not self.mismatches

    def _other_record(self, offset: int, record: Record | None, other: Record | None, real: bytes, ours: bytes) -> None:
        where = f"log at {offset}, {self.operation_of(offset)}"
        if record is None or other is None or record.blank or other.blank:
            self._differs(where, "kind of record", record, other)
            return
        self._fields(where, bytes(real[: record.size]), bytes(ours[: other.size]))

    def _record(self, record: Record, other: Record, position: int, real: bytearray, ours: bytearray) -> None:
        self.records += 1
        whole = [bytes(data[position : position + record.size]) for data in (real, ours)]
        self._stored[0][record.offset] = record.store_timestamp
        self._stored[1][record.offset] = other.store_timestamp
        self.masked.hide(masks.STORE_TIMESTAMP, 8, position + record.store_timestamp_at, real, ours)
        if record.topic == OP_TOPIC:
            self.masked.hide(masks.OP_BORN_TIMESTAMP, 8, position + formats.BORN_TIMESTAMP_AT, real, ours)
        if formats.ends_with_property_crc(whole[0]) and formats.ends_with_property_crc(whole[1]):
            self.masked.hide(masks.PROPERTY_CRC, 10, position + record.size - 11, real, ours)
            self._property_crc(record, whole)
        end = position + record.size
        if real[position:end] != ours[position:end]:
            self._fields(f"log at {record.offset}, {self.operation_of(record.offset)}", *whole)

    def _property_crc(self, record: Record, whole: list[bytes]) -> None:
        for who, content in zip(("RocketMQ's", "our"), whole, strict=True):
            crc = zlib.crc32(content[: -formats.PROPERTY_CRC_BYTES]) & 0x7FFFFFFF
            digits = str(crc)[::-1].ljust(10, "0").encode()
            if content[-11:-1] != digits:
                where = f"log at {record.offset}, {self.operation_of(record.offset)}"
                self._differs(where, f"{who} __CRC32# against the record's bytes", content[-11:-1], digits)

    def _fields(self, where: str, real: bytes, ours: bytes) -> None:
        first, second = fields_of(real), fields_of(ours)
        for name, value in first.items():
            hidden = name in ("store_timestamp", "store_timestamp_at")
            hidden |= name == "born_timestamp" and first["topic"] == OP_TOPIC
            if value != second[name] and not hidden:
                self._differs(where, name, value, second[name])

    # ---- queues

    def _trees(self, folder: str, compare: Any) -> None:
        sides = [files_below(store / folder) for store in (self._real, self._ours)]
        if missing := sorted(sides[0].keys() ^ sides[1].keys()):
            self._differs(folder, "files that only one has", *([n for n in missing if n in side] for side in sides))
        for name in sorted(sides[0].keys() & sides[1].keys()):
            whole = [side[name].read_bytes() for side in sides]
            self.masked.compared += len(whole[0])
            copies = [bytearray(content) for content in whole]
            if len(whole[0]) != len(whole[1]):
                self._differs(f"{folder}/{name}", "size of the file", len(whole[0]), len(whole[1]))
                continue
            compare(f"{folder}/{name}", name, whole, copies)
            if copies[0] != copies[1]:
                self._bytes(f"{folder}/{name}", whole, copies)

    def _bytes(self, where: str, whole: list[bytes], copies: list[bytearray]) -> None:
        at = next(index for index in range(len(copies[0])) if copies[0][index] != copies[1][index])
        unit = 46 if where.startswith("batch") else 20
        start = at - at % unit
        self._differs(
            f"{where} at {start} (first difference at {at})", "bytes", *(c[start : start + unit] for c in whole)
        )

    def _stored_both(self, offset: int) -> list[int]:
        return [side.get(offset, 0) for side in self._stored]

    def _queue(self, where: str, name: str, whole: list[bytes], copies: list[bytearray]) -> None:
        delayed = name.startswith(DELAY_TOPIC + "/")
        for position in range(0, len(whole[0]), formats.QUEUE_ENTRY.size):
            offset, size, code = formats.QUEUE_ENTRY.unpack_from(whole[0], position)
            if size == 0:
                break
            self.entries += 1
            if not delayed or code < -(2**31):
                continue
            self.masked.hide(masks.DELIVER_TIME, 8, position + 12, *copies)
            codes = [formats.QUEUE_ENTRY.unpack_from(content, position)[2] for content in whole]
            delays = [code - stored for code, stored in zip(codes, self._stored_both(offset), strict=True)]
            if delays[0] != delays[1]:
                self._differs(
                    f"{where} at {position}, {self.operation_of(offset)}", "tagsCode - storeTimestamp", *delays
                )

    def _batch_queue(self, where: str, _name: str, whole: list[bytes], copies: list[bytearray]) -> None:
        for position in range(0, len(whole[0]) - formats.BATCH_ENTRY.size + 1, formats.BATCH_ENTRY.size):
            offset, size, *_rest = formats.BATCH_ENTRY.unpack_from(whole[0], position)
            if size == 0:
                break
            self.entries += 1
            self.masked.hide(masks.BATCH_STORE_TIME, 8, position + 20, *copies)
            times = [formats.BATCH_ENTRY.unpack_from(content, position)[3] for content in whole]
            if times != self._stored_both(offset):
                self._differs(
                    f"{where} at {position}, {self.operation_of(offset)}", "storeTime", times, self._stored_both(offset)
                )

    def _extension(self, where: str, name: str, whole: list[bytes], copies: list[bytearray]) -> None:
        units = [list(formats.ext_units(content)) for content in whole]
        queues = [store / "consumequeue" / Path(name).parent for store in (self._real, self._ours)]
        at_address = [_ext_addresses(queue) for queue in queues]
        base = int(Path(name).name)
        for pair in zip(*units, strict=False):
            for side, unit in enumerate(pair):
                offset = at_address[side].get(base + unit.at, -1)
                if unit.store_time != self._stored[side].get(offset):
                    self._differs(
                        f"{where} at {unit.at}",
                        f"msgStoreTime of record {offset}",
                        unit.store_time,
                        self._stored[side].get(offset),
                    )
            self.masked.hide(masks.EXT_STORE_TIME, 8, pair[0].at + 10, *copies)
            if name.startswith(DELAY_TOPIC + "/"):
                delays = [unit.tags_code - unit.store_time for unit in pair]
                if delays[0] != delays[1]:
                    self._differs(f"{where} at {pair[0].at}", "tagsCode - msgStoreTime", *delays)
                self.masked.hide(masks.EXT_DELIVER_TIME, 8, pair[0].at + 2, *copies)

    # ---- index

    def _indexes(self) -> None:
        sides = [sorted(files_below(store / "index").items()) for store in (self._real, self._ours)]
        if len(sides[0]) != len(sides[1]):
            self._differs("index", "number of files", *([name for name, _ in side] for side in sides))
        previous_end = [0, 0]  # until its first entry is in, a new file begins where the one before it ends
        for (name, path), (our_name, our_path) in zip(*sides, strict=False):
            self.masked.bytes_of[masks.INDEX_NAME] += len(name)
            if not re.fullmatch(r"[0-9]{17}", our_name):
                self._differs(f"index/{name}", "form of the name", name, our_name)
            whole = [path.read_bytes(), our_path.read_bytes()]
            self.masked.compared += len(whole[0])
            if len(whole[0]) != len(whole[1]):
                self._differs(f"index/{name}", "size of the file", len(whole[0]), len(whole[1]))
                continue
            previous_end = self._index(name, whole, previous_end)

    def _index(self, name: str, whole: list[bytes], previous_end: list[int]) -> list[int]:
        copies = [bytearray(content) for content in whole]
        headers = [
            dict(zip(formats.INDEX_HEADER_NAMES, formats.INDEX_HEADER.unpack_from(content), strict=True))
            for content in whole
        ]
        self.masked.hide(masks.INDEX_BEGIN, 8, 0, *copies)
        self.masked.hide(masks.INDEX_END, 8, 8, *copies)
        for side, header in enumerate(headers):
            for moment, offset in (("begin_timestamp", "begin_offset"), ("end_timestamp", "end_offset")):
                stored = self._stored[side].get(header[offset])
                if header[moment] != stored:
                    self._differs(
                        f"index/{name}",
                        f"{('RocketMQ', 'our')[side]} {moment}, storeTimestamp of its record",
                        header[moment],
                        stored,
                    )
        entries_at = len(whole[0]) - formats.INDEX_ENTRY.size * _index_capacity(len(whole[0]))
        for number in range(1, headers[0]["index_count"]):
            begins = (
                [header["begin_timestamp"] for header in headers] if number > 1 or not previous_end[0] else previous_end
            )
            self._index_entry(name, entries_at + number * formats.INDEX_ENTRY.size, begins, whole, copies)
        if copies[0] != copies[1]:
            at = next(index for index in range(len(copies[0])) if copies[0][index] != copies[1][index])
            what = "header" if at < 40 else "slot" if at < entries_at else f"entry {(at - entries_at) // 20}"
            self._differs(
                f"index/{name} at {at}, {what}", f"headers {headers}, bytes", *(bytes(c[at : at + 20]) for c in copies)
            )
        return [header["end_timestamp"] for header in headers]

    def _index_entry(
        self, name: str, position: int, begins: list[int], whole: list[bytes], copies: list[bytearray]
    ) -> None:
        self.entries += 1
        self.masked.hide(masks.INDEX_TIME_DIFF, 4, position + 12, *copies)
        for side, content in enumerate(whole):
            _hash, offset, seconds, _previous = formats.INDEX_ENTRY.unpack_from(content, position)
            expected = max(0, self._stored[side].get(offset, 0) - begins[side]) // 1000
            if seconds != expected:
                where = f"index/{name} at {position}, {self.operation_of(offset)}"
                self._differs(
                    where, f"{('RocketMQ', 'our')[side]} timeDiff, from the record's storeTimestamp", seconds, expected
                )


def _index_capacity(size: int) -> int:
    """How many entries the index files of these runs have room for: their slots are known."""
    return (size - formats.INDEX_HEADER.size - 4 * HASH_SLOTS) // formats.INDEX_ENTRY.size


def _ext_addresses(queue: Path) -> dict[int, int]:
    """The physical offset whose entry names a place of the extension, by that place."""
    found = {}
    for path in sorted(queue.glob("*")):
        for offset, size, code in struct.iter_unpack(">qiq", path.read_bytes()):
            if size and code < -(2**31):
                found[code - LONG_MIN] = offset
    return found


def _shown(value: Any) -> str:
    text = repr(bytes(value)) if isinstance(value, bytes | bytearray) else repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}... ({len(text)} characters)"
