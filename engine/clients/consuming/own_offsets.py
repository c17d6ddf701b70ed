"""Offsets of a broadcasting consumer, which keeps them in a file of its own.

Implements: LocalFileOffsetStore, OffsetSerializeWrapper
Every member of a broadcasting group consumes all queues, so no broker keeps its offsets. The file is RocketMQ's:
`DIRECTORY/CLIENT/GROUP/offsets.json`, with the content before as `offsets.json.bak`. A Java consumer with the same
client id continues at these offsets, and the other way round.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from engine.clients.cluster import Place
from engine.clients.names import MALFORMED, ClientError, check_group
from engine.protocol.remoting.places import places_in
from store.errors import MalformedConfig, MalformedData
from store.files import file_io
from store.tables import fastjson
from store.tables.fastjson import whole_number
from store.tables.json_files import BACKUP_SUFFIX, content_of, exclusive

DIRECTORY_NAME, FILE_NAME = ".rocketmq_offsets", "offsets.json"
CLIENT_ID = re.compile(r"[^/\0]{1,255}").fullmatch


class OwnOffsets:
    """The next offset of each queue that this client consumes. `directory`: that of all clients.

    Raises ClientError if no file can have the name of the client or of the group, or if neither the file nor its
    backup can be read.
    """

    def __init__(self, directory: Path, client_id: str, group: str) -> None:
        check_group(group)
        if not CLIENT_ID(client_id) or client_id in {".", ".."}:
            raise ClientError(f"client id {client_id[:255]!r} cannot be the name of a folder")
        self.path = directory / client_id / group / FILE_NAME
        self._offsets = self._read()

    def offset_of(self, place: Place) -> int | None:
        """Return the offset of the next message to consume; None for a queue that was never consumed."""
        return self._offsets.get(place)

    def update(self, place: Place, offset: int) -> None:
        """Remember the offset of a queue's next message. `write` brings it to the file."""
        self._offsets[place] = offset

    def write(self, places: Iterable[Place]) -> None:
        """Write the offsets of these queues; the file keeps those of others. Raises ClientError, OSError."""
        with exclusive(self.path.parent):
            offsets = self._read()
            offsets |= {place: self._offsets[place] for place in places if place in self._offsets}
            self._back_up()
            file_io.replace_file(self.path, encoded(offsets))

    @property
    def _backup(self) -> Path:
        return self.path.with_name(FILE_NAME + BACKUP_SUFFIX)

    def _read(self) -> dict[Place, int]:
        """The offsets of the file; of its backup if the file is missing, empty or damaged."""
        failure = ""
        for path in (self.path, self._backup):
            try:
                content = content_of(path)
                if content:
                    return decoded(content)
            except (MalformedConfig, MalformedData) as malformed:
                failure = failure or f"{path}: {malformed.reason}"
        if failure:
            raise ClientError(f"{failure}; remove it and its {BACKUP_SUFFIX} file to begin without offsets")
        return {}

    def _back_up(self) -> None:
        """Keep what the file says, unless it is damaged: then the backup is the better one."""
        try:
            before = content_of(self.path)
            decoded(before)
        except (MalformedConfig, MalformedData):
            return
        file_io.replace_file(self._backup, before)


def default_directory() -> Path:
    """Return the directory in which Java's consumers of this user keep their offsets."""
    return Path.home() / DIRECTORY_NAME


def encoded(offsets: Mapping[Place, int]) -> bytes:
    """Return the file's content, in the form of fastjson, where a map's key may be an object."""
    entries = ",".join(
        f"{fastjson.dumps_pretty(place.value(), 2)}:{offset}" for place, offset in sorted(offsets.items())
    )
    return f'{{\n\t"offsetTable":{{{entries}\n\t}}\n}}'.encode("utf-8", "replace")


def decoded(content: bytes) -> dict[Place, int]:
    """Return the offsets of a file's content. Raises MalformedData."""
    try:
        return {place: whole_number(offset, 0) for place, offset in places_in(content, "offsetTable").items()}
    except MALFORMED as reason:
        raise MalformedData(FILE_NAME, f"no table of offsets: {reason}") from None
