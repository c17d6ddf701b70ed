"""The audit: a JSON line for every file of the store that came, was sealed, or went, with the reason.

`slipstream.audit.jsonl` in the store's root; at `AUDIT_BYTES_MAX` it becomes `slipstream.audit.jsonl.1`, and that one
goes. One process writes it, the housekeeper. A deletion has its line before it is done, so none is without one.
Fields: at (local time), at_ms, event (start, create, seal, delete, vanish, stop), kind (segment, queue, index), path
(below the root where it can be), reason, and what else is known.
"""

from __future__ import annotations

import json
import logging
import os
from datetime import datetime
from pathlib import Path

from store.files import file_io
from store.files.directory import AUDIT_NAME

log = logging.getLogger("slipstream.audit")

AUDIT_BYTES_MAX = 4 << 20
LINES_LOGGED = 20  # of those that were to be written at once


class Audit:
    """The audit of one store."""

    def __init__(self, root: Path, bytes_max: int = AUDIT_BYTES_MAX) -> None:
        self._root, self.path, self._bytes_max = root, root / AUDIT_NAME, bytes_max

    def write(self, now_ms: int, event: str, kind: str, path: Path | None, reason: str, **facts: object) -> None:
        """Add a line. A disk that does not take it gets it in the broker's log instead."""
        self.write_all(now_ms, [(event, kind, path, reason)], **facts)

    def write_all(self, now_ms: int, told: list[tuple[str, str, Path | None, str]], **facts: object) -> None:
        """A line for each (event, kind, path, reason), with one write: there may be thousands."""
        at = datetime.fromtimestamp(now_ms / 1000).astimezone().isoformat(timespec="milliseconds")
        lines = []
        for event, kind, path, reason in told:
            fields = {"at": at, "at_ms": now_ms, "event": event, "kind": kind, "path": self._name(path)}
            lines.append(json.dumps({**fields, "reason": reason, **facts}))
        if not lines:
            return
        text = "\n".join(lines)
        try:
            self._rotate(len(text))
            file_io.append_to(self.path, text.encode("ascii") + b"\n")
        except OSError as error:
            for line in lines[:LINES_LOGGED]:
                log.warning("%s: %s; the line is: %s", self.path, error.strerror, line)
            if len(lines) > LINES_LOGGED:
                log.warning("%s: and %d more lines", self.path, len(lines) - LINES_LOGGED)

    def _name(self, path: Path | None) -> str | None:
        if path is None:
            return None
        return str(path.relative_to(self._root)) if path.is_relative_to(self._root) else str(path)

    def _rotate(self, more: int) -> None:
        try:
            size = os.stat(self.path).st_size
        except FileNotFoundError:
            return
        if size and size + more > self._bytes_max:
            file_io.rename(self.path, self.path.with_name(self.path.name + ".1"))
