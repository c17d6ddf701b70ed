"""What the clients role has counted, in a file of the broker's shared memory: the next one goes on with it.

Implements: nothing of RocketMQ's, whose figures end with their process
Of very many rows a part is written down in each turn: each is as it was then.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from engine.monitoring.counted import Counts, Key
from engine.shared_memory.region_directory.regions import COUNTS_NAME
from store.files.file_io import CREATING_SUFFIX

EACH_MS, STEP = 1000, 500


class KeptCounts(Counts):
    """The counts; only one process at a time may write them."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._path, self._save_at_ms = directory / COUNTS_NAME, 0
        self._left: list[Key] = []  # to be written down
        self._texts: list[str] = []
        try:
            rows = json.loads(self._path.read_bytes())
        except (OSError, ValueError):  # a new broker's
            return
        for key, row in rows:
            self.add(key, row)

    def turn(self, now_ms: int) -> None:
        """Write them while they change, once a second, a part in each turn."""
        if not self._left:
            if now_ms < self._save_at_ms or not self.has_news:
                return
            self.has_news = False
            self._save_at_ms, self._left, self._texts = now_ms + EACH_MS, list(self.rows), []
        self._step()

    def save(self) -> None:
        """Write all counts as they are now."""
        self._left, self._texts = list(self.rows), []
        while self._left:
            self._step()

    def _step(self) -> None:
        part, self._left = self._left[:STEP], self._left[STEP:]
        self._texts += [json.dumps([key, self.rows[key]], separators=(",", ":")) for key in part]
        if not self._left:
            self._write(f"[{','.join(self._texts)}]".encode())

    def _write(self, text: bytes) -> None:
        beside = self._path.with_name(COUNTS_NAME + CREATING_SUFFIX)
        try:
            beside.write_bytes(text)
            os.replace(beside, self._path)
        except OSError:  # no room just now: they are counted on
            self.has_news = True
