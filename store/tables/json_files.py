"""A broker's `config/*.json` files: read with their backups, replaced whole.

Implements: ConfigManager.load and persist, MixAll.string2File (spec: store-formats, section 16)
What is read `as_written` is written back to the same bytes: integer keys are int (bare in the file), all others str.
Unlike RocketMQ's broker we say so when neither a file nor its backup can be read, and a damaged file never takes the
place of a good backup. Files up to MAX_FILE_BYTES are read.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ipc.descriptors import closing_fd
from store.errors import MalformedConfig, MalformedData
from store.files import file_io
from store.tables import fastjson
from store.tables.json_steps import loads_in_steps
from store.tables.steps import at_once

MAX_FILE_BYTES = 64 * 1024 * 1024
BACKUP_SUFFIX = ".bak"
WRITTEN_MAX = 100

_written: dict[Path, bytes] = {}  # what this process wrote last, as SHA-256: no need to look whether that is sound


class Loaded(NamedTuple):
    """The content of a file; `problem` tells why it is its backup's instead."""

    value: dict[Any, Any]
    source: Path | None  # None: neither file is there
    problem: str = ""


def load(path: Path, *, beside: bool = False) -> Loaded:
    """The file's object; that of its backup when the file is missing, empty or malformed; empty without both.

    `beside`: on a thread beside others, which do not wait until all is read. Raises MalformedConfig when what is there
    cannot be read, or is empty.
    """
    error: MalformedConfig | None = None
    for source in (path, path.with_name(path.name + BACKUP_SUFFIX)):
        try:
            content = content_of(source)
            if content:
                value = parse_beside(content, str(source)) if beside else parse(content, str(source))
                return Loaded(value, source, str(error or ""))
            if source.exists():
                raise MalformedConfig(str(source), "it is empty")
        except MalformedConfig as malformed:
            error = error or malformed
    if error is not None:
        raise error
    return Loaded({}, None)


def read(path: Path, *, beside: bool = False) -> dict[Any, Any]:
    """Return only the value that `load` reads."""
    return load(path, beside=beside).value


def parse(content: bytes, path: str = "") -> dict[Any, Any]:
    """The object that those bytes say. Raises MalformedConfig."""
    return _object(path, lambda: fastjson.loads(content, path, MAX_FILE_BYTES, as_written=True))


def parse_beside(content: bytes, path: str = "") -> dict[Any, Any]:
    """The same in small parts: no other thread of this process runs while the library reads one."""
    return _object(path, lambda: at_once(loads_in_steps(content, path, MAX_FILE_BYTES)))


def _object(path: str, loading: Callable[[], Any]) -> dict[Any, Any]:
    try:
        value = loading()
    except MalformedData as error:
        raise MalformedConfig(path, error.reason) from error
    if not isinstance(value, dict):
        raise MalformedConfig(path, "it is not a JSON object")
    return value


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory in the block, so that no other Slipstream process replaces files there."""
    _make(directory)
    with closing_fd(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield


def write(path: Path, value: dict[Any, Any], *, pretty: bool = True) -> None:
    """Replace the file, all or nothing; what it said becomes the backup, unless that was no sound content."""
    write_text(path, encode(value, pretty=pretty))


def write_text(path: Path, text: bytes) -> None:
    """Write like `write`, with these bytes as the text."""
    _make(path.parent)
    try:
        before = content_of(path)
        if before:
            if hashlib.sha256(before).digest() != _written.get(path):
                parse_beside(before, str(path))
            file_io.replace_file(path.with_name(path.name + BACKUP_SUFFIX), before)
    except MalformedConfig:
        before = b""  # the backup is the better one, it stays
    file_io.replace_file(path, text)
    if len(_written) >= WRITTEN_MAX:
        _written.clear()
    _written[path] = hashlib.sha256(text).digest()


def _make(directory: Path) -> None:
    """The directory, whose own name outlives a power cut, too."""
    if not directory.is_dir():
        file_io.make_directories(directory)
        file_io.sync_directory(directory.parent)


def encode(value: dict[Any, Any], *, pretty: bool = True) -> bytes:
    """The bytes that RocketMQ writes for this value."""
    text = fastjson.dumps_pretty(value) if pretty else fastjson.dumps(value)
    return text.encode("utf-8", "replace")


def content_of(path: Path) -> bytes:
    """The file's bytes, none when it is not there. Raises MalformedConfig."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise MalformedConfig(str(path), f"it cannot be read: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise MalformedConfig(str(path), f"it is longer than {MAX_FILE_BYTES} bytes")
    return content
