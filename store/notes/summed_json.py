"""Slipstream's small files beside a store, as JSON with a sum: written whole and synced; any other byte is damage."""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from store.files import file_io, small_files

VERSION = 1
BYTES_MAX = 1 << 20


class Damaged(ValueError):
    """Raised for bytes that are not what `encode` makes; the text says why."""


def encode(fields: Mapping[str, Any]) -> bytes:
    """Return the file's content, with its sum."""
    said = {"version": VERSION, **fields}
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    return json.dumps({**said, "sum": digest}, indent=1).encode() + b"\n"


def decode(content: bytes, bytes_max: int = BYTES_MAX) -> dict[str, Any]:
    """The fields that were encoded. Raises Damaged."""
    if len(content) > bytes_max:
        raise Damaged(f"it is longer than {bytes_max} bytes")
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"it is not JSON ({error})") from None
    if not isinstance(fields, dict):
        raise Damaged("it is not a JSON object")
    if fields.pop("version", None) != VERSION:
        raise Damaged(f"it does not have version {VERSION}")
    fields.pop("sum", None)
    if encode(fields) != content:
        raise Damaged("its checksum is wrong")
    return fields


def read(path: Path, bytes_max: int = BYTES_MAX) -> dict[str, Any] | None:
    """The fields of that file; None without one. Raises Damaged, OSError."""
    try:
        content = small_files.read_small(path, bytes_max + 1)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise file_io.denied(path) from None
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ELOOP):
            raise Damaged("it is not a regular file") from None
        raise
    return decode(content, bytes_max)


def write(path: Path, fields: Mapping[str, Any], bytes_max: int = BYTES_MAX) -> None:
    """Replace the file: all or nothing, and on disk when this returns. Raises OSError; ValueError for too much."""
    content = encode(fields)
    if len(content) > bytes_max:
        raise ValueError(f"{path}: more than {bytes_max} bytes")
    file_io.replace_file(path, content)


def remove(path: Path) -> bool:
    """Remove the file, durably; whether there was one. Raises OSError."""
    was_there = path.is_symlink() or path.exists()
    file_io.unlink(path)
    file_io.sync_directory(path.parent)
    return was_there
