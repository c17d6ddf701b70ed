"""Finds messages in a store's log: by key or unique id through the index, by offset, by the id that names a place.

Implements: DefaultMessageStore.queryMessage, lookMessageByOffset; MessageDecoder.decodeMessageId
What the index names is read and asked for its own keys, because the index holds hashes only. Where there is no index,
or where it ends before the log does, the newest part of the log is looked through, up to a bound, and that is said.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ipc.errors import RegionMissing
from store.errors import BrokerOutOfReach, IndexFileDamaged, InvalidMessage
from store.files.checkpoint import read as read_checkpoint
from store.index.geometry import geometry_of
from store.index.index_file import DEFAULT_GEOMETRY, Geometry, IndexFile, hash_of
from store.index.query import LONG_MAX, index_files, select_offsets
from store.message.host import parse_message_id
from store.message.properties import keys_of
from store.message.record import Kind, Message, decode, inspect
from store.queues.consume_queue import queue_directories
from store.reading.extent import running, tell_unreached
from store.reading.log_reader import LogReader
from store.reading.summary import messages

SCAN_BYTES_MAX = 1 << 30
REPLACEMENT = "\ufffd"
OFFSETS_ASKED_MAX = 100_000  # of one topic: how many records with the key's hash are read


@dataclass
class SearchResult:
    """The messages in log order, and what is to be said about how they were found."""

    messages: list[Message] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Finder:
    """Asks one store. `dispatched_to` is how far a running broker has brought the index."""

    def __init__(
        self,
        reader: LogReader,
        dispatched_to: int | None = None,
        hint: Geometry | None = None,
        scan_bytes_max: int = SCAN_BYTES_MAX,
    ) -> None:
        self._reader, self._dispatched_to, self._scan_bytes_max = reader, dispatched_to, scan_bytes_max
        paths = index_files(reader.directory.index)
        hints = [hint] if hint is not None else []
        self._paths = paths
        self._geometry = geometry_of(reversed(paths), *hints) or (hints or [DEFAULT_GEOMETRY])[0]

    def at(self, physical_offset: int) -> Message | None:
        """The message whose record begins there, None when none does."""
        reader = self._reader
        if reader.files is None or not reader.min_offset <= physical_offset < reader.max_offset:
            return None
        base = reader.files.base_of(physical_offset)
        with reader.files.open(base) as segment:
            position, limit = physical_offset - base, min(reader.max_offset - base, segment.size_bytes)
            inspection = inspect(segment.view, position, physical_offset, check_body_crc=False, limit=limit)
            if inspection.kind is not Kind.MESSAGE:
                return None
            return decode(bytes(segment.view[position : position + inspection.size]), check_body_crc=False)

    def by_key(self, key: str, topic: str | None, limit: int) -> SearchResult:
        """The newest `limit` messages that carry the key (KEYS or the unique one), of one topic or of all."""
        result = SearchResult()
        offsets: set[int] = set()
        for name in [topic] if topic is not None else self._topics():
            offsets.update(self._offsets_of(name, key, result.notes))
        matching = []
        for offset in sorted(offsets, reverse=True):
            message = self.at(offset)
            if message is not None and _carries(message, key, topic):
                matching.append(message)
                if len(matching) >= limit:
                    break
        scanned = self._scan(key, topic, limit, result.notes)
        behind = [message for message in scanned if message.physical_offset not in offsets]
        result.messages = sorted([*matching, *behind], key=lambda message: message.physical_offset)[-limit:]
        return result

    def by_id(self, message_id: str, topic: str | None) -> SearchResult:
        """The message of that offsetMsgId, else those with that unique key."""
        try:
            host, offset = parse_message_id(message_id)
        except InvalidMessage:
            return self.by_key(message_id, topic, OFFSETS_ASKED_MAX)
        message = self.at(offset)
        if message is not None and message.message_id == message_id.upper():
            return SearchResult([message])
        result = self.by_key(message_id, topic, OFFSETS_ASKED_MAX)
        if message is not None and not result.messages:
            stored = f"{message.store_host.ip}:{message.store_host.port}"
            asked = f"{host.ip}:{host.port}"
            result.notes.append(f"a record begins at offset {offset}, but {stored} stored it, not {asked}")
        return result

    def _topics(self) -> list[str]:
        return list(dict.fromkeys(topic for topic, _, _ in queue_directories(self._reader.directory.consumequeue)))

    def _offsets_of(self, topic: str, key: str, notes: list[str]) -> list[int]:
        return select_offsets(self._files(notes), hash_of(topic, key), OFFSETS_ASKED_MAX, 0, LONG_MAX)

    def _files(self, notes: list[str]) -> Iterator[IndexFile]:
        for path in reversed(self._paths):
            try:
                yield IndexFile.open(path, self._geometry)
            except FileNotFoundError:
                continue  # retention has just deleted it, with the records that it names
            except IndexFileDamaged as damage:
                if str(damage) not in notes:
                    notes.append(str(damage))

    def _scan(self, key: str, topic: str | None, limit: int, notes: list[str]) -> list[Message]:
        """Return the messages with the key in the part of the log that the index does not cover, up to the bound."""
        reader, indexed_to = self._reader, self._indexed_to()
        if reader.files is None or indexed_to >= reader.max_offset:
            return []
        start = max(indexed_to, reader.max_offset - self._scan_bytes_max, reader.min_offset)
        why = "the store has no index" if not self._paths else f"the index ends at offset {indexed_to}"
        notes.append(f"{why}: searched the log from offset {start} to {reader.max_offset}")
        wanted = re.compile(b"" if REPLACEMENT in key else re.escape(key.encode()))  # what it replaced is not known
        newest: deque[Message] = deque(maxlen=limit)
        offset = reader.boundary_at(start)
        while offset < reader.max_offset:
            base = reader.files.base_of(offset)
            with reader.files.open(base) as segment:
                end = min(base + segment.size_bytes, reader.max_offset)
                if wanted.search(segment.view, offset - base, end - base):
                    part = messages(reader, offset, end)
                    newest.extend(message for message in part if _carries(message, key, topic))
            offset = base + reader.files.segment_bytes
        return list(newest)

    def _indexed_to(self) -> int:
        """Below this offset every key is in the index."""
        if not self._paths:
            return self._reader.min_offset
        if self._dispatched_to is not None:
            return self._dispatched_to
        noted = read_checkpoint(self._reader.directory.checkpoint).index_offset
        ends = [noted or 0]
        for file in self._files([]):
            message = self.at(file.header.end_physical_offset)
            ends.append(message.physical_offset + message.size if message is not None else 0)
        return max(ends)


def _carries(message: Message, key: str, topic: str | None) -> bool:
    unique, parts = keys_of(message.properties)
    return (topic is None or message.topic == topic) and key in (*unique, *parts)


def finder_on(store: Path, reader: LogReader, scan_bytes_max: int = SCAN_BYTES_MAX) -> Finder:
    """Return a finder; a running broker says how far the index goes and how its files are laid out."""
    broker = running(store)
    if broker is None:
        return Finder(reader, scan_bytes_max=scan_bytes_max)
    settings = broker.settings
    slots, entries_max = settings.get("maxHashSlotNum"), settings.get("maxIndexNum")
    known = Geometry(slots, entries_max) if isinstance(slots, int) and isinstance(entries_max, int) else None
    try:
        counters = broker.counters()
    except (RegionMissing, BrokerOutOfReach) as error:
        tell_unreached(error)  # or it has stopped since
        return Finder(reader, scan_bytes_max=scan_bytes_max)
    try:
        return Finder(reader, counters.cursor("reput_from_offset").read(), known, scan_bytes_max)
    finally:
        counters.close()
