"""A broker's config files as its remoting role has them: read at the start, watched, saved; what nobody can read stays.

Implements: ConfigManager.load and persist for the tables of engine.protocol.tables.metadata
Follows:    topics.json, which the writer adds new topics to; the topic table, for messages of deleted topics
A file that cannot be read is told once, its table begins empty and is not saved; it is looked at again until it can.
A file that cannot be written is told when the reason changes, at most once a minute, and tried again.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any

from engine.board.topic_table import TopicTable
from engine.protocol.tables.metadata import FILES, Identity, Metadata
from engine.protocol.tables.timer_state import FILE_BYTES, TimerCheckpoint
from engine.settings.config import BrokerConfig, BrokerRole
from ipc.errors import IpcError
from store.compat import line_of
from store.errors import MalformedConfig, StoreError
from store.files import file_io
from store.files.directory import StoreDirectory
from store.names import DELAY_OFFSETS, DELETED_TOPICS, TIMER_CHECKPOINT, TOPICS
from store.tables import json_files
from store.tables.served_topics import CLIENT_QUEUE_NUMS, ServedTopics

log = logging.getLogger("slipstream.remoting")

TELL_AGAIN_MS, RETRY_MS = 60_000, 1000
REST = 5  # times as long as a round of writing took, before the next one


class BrokerFiles:
    """The files below config/, and the tables they say."""

    def __init__(self, config: BrokerConfig, now_ms: int, region_directory: Path) -> None:
        directory = StoreDirectory(config.store_path_root_dir, config.store_path_commit_log)
        self.directory, self._queues = directory.config, directory.consumequeue
        self._is_slave, self._region_directory = config.broker_role is BrokerRole.SLAVE, region_directory
        self._identity = Identity(
            line_of(config.compat), config.broker_cluster_name, config.broker_name, config.default_topic_queue_nums,
            config.auto_create_topic_enable, config.timer_wheel_enable,
        )  # fmt: skip
        self._queue_nums = min(CLIENT_QUEUE_NUMS, config.default_topic_queue_nums)
        self._unreadable: dict[str, str] = {}  # name: what is wrong with it
        self._write_errors: dict[str, tuple[str, int]] = {}  # name: why it cannot be written, and when that was said
        self._save_at_ms = 0
        self._seen: dict[str, tuple[int, int]] = {}
        self._counts: dict[str, int] = {}  # of deleted topics: their messages when they went
        self.metadata = self._load(now_ms)

    def _load(self, now_ms: int) -> Metadata:
        """All tables; without those of files that nobody can read."""
        values: dict[str, dict[str, Any]] = {}
        for name in FILES:
            try:
                value = json_files.read(self.directory / name)
                Metadata(self._identity, {name: value}, now_ms)
                values[name] = value
            except MalformedConfig as error:
                self._unreadable[name] = error.reason
                log.error("%s; until then this table begins empty here, and is not saved", error)
        metadata = Metadata(self._identity, values, now_ms)
        try:
            with (self.directory / TIMER_CHECKPOINT).open("rb") as file:
                metadata.timer_checkpoint = TimerCheckpoint.decode(file.read(FILE_BYTES))
        except FileNotFoundError:
            pass
        except OSError as error:
            log.error("%s: cannot be read: %s", self.directory / TIMER_CHECKPOINT, error.strerror)
        return metadata

    def look(self, now_ms: int, dispatched: bool) -> bool:
        """Take what others wrote; whether topics are to be registered again. `dispatched`: every message is counted.

        `now_ms` is wall time, which versions have.
        """
        grown = self._read_again(now_ms)
        if not self._is_slave and self.metadata.gone_topics and dispatched:
            self._make_again(now_ms)
        path = self.directory / TOPICS
        state = _state_of(path)
        if TOPICS in self._unreadable or state is None or state == self._seen.get(TOPICS):
            return grown
        self._seen[TOPICS] = state
        try:
            return self.metadata.take_served_topics(json_files.read(path)) or grown
        except MalformedConfig as error:
            log.error("%s; the topics stay as they are known here", error)
            return grown

    def _read_again(self, now_ms: int) -> bool:
        """Whether a file that could not be read can be by now: then its table is what it says."""
        mended = False
        for name in list(self._unreadable):
            path = self.directory / name
            state = _state_of(path)
            if state == self._seen.get(name):
                continue
            if state is not None:
                self._seen[name] = state
            try:
                self.metadata.reload(name, json_files.read(path), now_ms)
                del self._unreadable[name]
                log.info("%s: can be read again", path)
                mended = True
            except MalformedConfig as error:
                self._unreadable[name] = error.reason
        return mended

    def _make_again(self, now_ms: int) -> None:
        """A topic that was deleted and got messages since is a topic again, as in RocketMQ."""
        try:
            table = TopicTable.attach(self._region_directory)
        except IpcError:
            return  # the broker is starting or stopping
        counts = {count.topic: count.messages for count in table.read()}
        table.close()
        for topic in sorted(self.metadata.gone_topics):
            before = self._counts.setdefault(topic, counts.get(topic, 0))
            if counts.get(topic, 0) > before:
                served = ServedTopics(self.directory / TOPICS, line=self._identity.line, queue_nums=self._queue_nums)
                numbers = [int(name) for name in _names(self._queues / topic) if name.isdecimal()]
                served.note([(topic, max(numbers, default=0))], in_use=True)
                served.save(now_ms)
                log.info("topic %s was deleted and is made again: messages came for it", topic)
        for topic in [topic for topic in self._counts if topic not in self.metadata.gone_topics]:
            del self._counts[topic]

    def save(self, now_ms: int, *, is_last: bool = False) -> None:
        """Write what changed; a file that cannot be written is tried again later. `now_ms` is monotonic."""
        if now_ms < self._save_at_ms and not is_last:
            return
        begun = time.monotonic()
        for name in sorted(self.metadata.changed - self._unreadable.keys()):
            try:
                self._write(name)
                self.metadata.saved(name)
                self._write_errors.pop(name, None)
            except (OSError, StoreError) as error:
                self._save_at_ms = now_ms + RETRY_MS
                reason, told_ms = self._write_errors.get(name, ("", 0))
                if str(error) != reason or now_ms - told_ms >= TELL_AGAIN_MS:
                    self._write_errors[name] = str(error), now_ms
                    log.error("%s: cannot be written: %s; it is tried again", self.directory / name, error)
        took_ms = int((time.monotonic() - begun) * 1000)
        self._save_at_ms = max(self._save_at_ms, now_ms + REST * took_ms)  # others have their turns meanwhile

    def state_of_topics(self) -> tuple[int, int] | None:
        """Tells one content of topics.json from another."""
        return _state_of(self.directory / TOPICS)

    def _write(self, name: str) -> None:
        path = self.directory / name
        with json_files.exclusive(self.directory):
            if name == TIMER_CHECKPOINT:
                file_io.replace_file(path, self.metadata.timer_checkpoint.file())
                return
            if name == TOPICS and not self._is_slave and _state_of(path) != self._seen.get(TOPICS):
                self.metadata.take_served_topics(json_files.read(path))
            if name == TOPICS:
                # first, so that nobody makes them again from their queues
                json_files.write(self.directory / DELETED_TOPICS, self.metadata.value(DELETED_TOPICS))
            if name == DELAY_OFFSETS and self.metadata.delay_offsets_text is not None:
                json_files.write_text(path, self.metadata.delay_offsets_text)
                return
            json_files.write(path, self.metadata.value(name))
            if name == TOPICS:
                self._seen[TOPICS] = _state_of(path) or (0, 0)  # ours: what an administrator made smaller stays so


def _state_of(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []
