"""Digests of sealed segments, in a file beside the store: what tells of a change in the bytes that no CRC covers.

A segment is sealed when the log goes on behind it; its bytes never change again. RocketMQ neither
reads nor removes the file. A digest is made once, and never again silently for other bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from store.errors import NotAStore
from store.files import file_io
from store.files.segment import Segment, file_name
from store.names import DIGESTS
from store.verify.finding import COMPARE, Finding

VERSION = 1
STEP_BYTES = 16 << 20
BYTES_MAX = 64 << 20  # of the file: a longer one is not Slipstream's


def path_of(root: Path) -> Path:
    """The file of that store."""
    return root / DIGESTS


def digest_of(segment: Segment, on_progress: Callable[[int], None]) -> str:
    """Return the SHA-256 of the whole file; `on_progress` gets the bytes done so far, and may raise to end it."""
    digest = hashlib.sha256()
    for start in range(0, segment.size_bytes, STEP_BYTES):
        digest.update(segment.view[start : start + STEP_BYTES])
        on_progress(min(start + STEP_BYTES, segment.size_bytes))
    return digest.hexdigest()


def read(root: Path) -> dict[int, str]:
    """The digests by base offset, none without the file. Raises NotAStore when it is damaged."""
    path = path_of(root)
    try:
        with path.open("rb") as file:
            content = file.read(BYTES_MAX)
    except FileNotFoundError:
        return {}
    try:
        value = json.loads(content)
        segments = {int(name): str(digest) for name, digest in value["segments"].items()}
        if content != _encode(segments):
            raise ValueError("its own sum is wrong, or it is of another version")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"not a file of digests ({error}); remove it and make it again with `slipstream log digest`"
        raise NotAStore(str(path), reason) from error
    return segments


def write(root: Path, segments: dict[int, str]) -> None:
    """Replace the file of digests, and sync it."""
    file_io.replace_file(path_of(root), _encode(segments))


def _encode(segments: dict[int, str]) -> bytes:
    value: dict[str, Any] = {
        "version": VERSION,
        "algorithm": "sha256",
        "sum": _sum(segments),
        "segments": {file_name(base): digest for base, digest in sorted(segments.items())},
    }
    return json.dumps(value, indent=1).encode()


def _sum(segments: dict[int, str]) -> str:
    lines = (f"{file_name(base)} {digest}\n" for base, digest in sorted(segments.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def compare(segment: Segment, wanted: str, on_progress: Callable[[int], None]) -> Iterator[Finding]:
    """A finding when the segment's bytes are others than those that the digest was made of."""
    digest = digest_of(segment, on_progress)
    if digest != wanted:
        what = f"its SHA-256 is {digest[:16]}…, but was {wanted[:16]}… when `log digest` read it"
        yield Finding("DIGEST", str(segment.path), what, COMPARE)
