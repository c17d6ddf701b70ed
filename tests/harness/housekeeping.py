"""A housekeeper on a small store, stepped by hand: its clock, hour and disk are the test's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from engine.keeping.housekeeper import Clock, Housekeeper, policy_of
from engine.protocol.store.retention import HOUR_MS, Usage
from engine.settings.config import from_mapping
from engine.shared_memory import live_settings
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.files import checkpoint as checkpoint_file
from store.files.checkpoint import Checkpoint
from store.index.service import IndexService
from store.recovery.dispatch import Dispatcher
from tests.harness.logs import QUEUE_FILE_BYTES, SEGMENT_BYTES, SmallLog

NOW = 1_790_000_000_000
FOUR = 4
SETTINGS = {
    "brokerIP1": "127.0.0.1",
    "mappedFileSizeCommitLog": SEGMENT_BYTES,
    "mappedFileSizeConsumeQueue": QUEUE_FILE_BYTES,
}


class Bench:
    """A store with its queues and index, its cursors, and the housekeeper's clock, hour and disk."""

    def __init__(self, root: Path, messages: int = 0, **settings: Any) -> None:
        self.log = SmallLog(root / "store")
        self.config = from_mapping({**SETTINGS, "storePathRootDir": self.log.root, **settings})
        self.counters = BrokerCounters.create(root / "counters")
        live_settings.publish(self.counters, self.config)
        self.now_ms, self.hour, self.usage = NOW, 12, Usage(20, 20)
        self.wall_ahead_ms = 0  # by how much the wall clock is set forward
        self.index = IndexService(self.log.directory.index, 7, 30)
        self.put(messages)
        self.role = self.open()

    def put(self, messages: int) -> None:
        for number in range(messages):
            properties = {"KEYS": f"k{number}"}
            self.log.append("topic", b"x" * 100, queue_id=number % 2, properties=properties)
        builder = Dispatcher(self.log.files, self.log.directory.consumequeue, QUEUE_FILE_BYTES, index=self.index)
        builder.dispatch(self.counters.reput_from_offset.read(), self.log.end)
        builder.close()
        for cursor in (
            self.counters.max_physical_offset,
            self.counters.flushed_offset,
            self.counters.reput_from_offset,
        ):
            waiting.publish(cursor, self.log.end)
        self.note_queues(self.log.end)
        bases = self.log.files.base_offsets()
        waiting.publish(self.counters.allocated_offset, bases[-1] + SEGMENT_BYTES if bases else 0)
        waiting.publish(self.counters.segment_request_offset, self.log.end)

    def note_queues(self, end: int) -> None:
        """As the flusher: what the queues have of the log below `end` is on disk."""
        checkpoint_file.write(self.log.directory.checkpoint, Checkpoint(flushed_offset=end))

    def open(self) -> Housekeeper:
        return Housekeeper(
            self.counters,
            self.log.files,
            self.log.directory,
            policy_of(self.config),
            self.now_ms,
            queue_interval_ms=self.config.delete_consume_queue_files_interval_ms,
            usage=lambda: self.usage,
            clock=Clock(lambda now_ms: now_ms + self.wall_ahead_ms, lambda _wall_ms: self.hour),
        )

    def age(self, hours: float, *segments: int) -> None:
        """Let these segments have been written last so long ago."""
        at = (NOW - hours * HOUR_MS) / 1000
        for number in segments:
            os.utime(self.log.files.path_of(number * SEGMENT_BYTES), (at, at))

    def run(self, milliseconds: int) -> None:
        until_ms = self.now_ms + milliseconds
        while self.now_ms <= until_ms:
            self.role.do_work(self.now_ms)
            self.now_ms += 50

    def segments(self) -> list[int]:
        return [base // SEGMENT_BYTES for base in self.log.files.base_offsets()]

    def audit(self, *events: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in (self.log.root / "slipstream.audit.jsonl").read_text().splitlines()]
        return [line for line in lines if not events or line["event"] in events]
