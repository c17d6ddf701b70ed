"""Keeps topics.json: every topic that has queues is in it, what a RocketMQ broker wrote there stays.

Implements: TopicConfigManager.createTopicInSendMessageMethod, createTopicInSendMessageBackMethod
A RocketMQ broker serves the topics of this file and no others: without it nobody would find what we stored. One process
at a time adds to it: the supervisor before there is a writer and after it, the writer in between. The remoting role
writes it, too, when an administrator changes a topic; `broker_json.exclusive` keeps them apart.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from pathlib import Path

from store.compat import Line
from store.errors import MalformedConfig
from store.files.file_state import FileState, state_in
from store.message.topics import group_of, is_lmq, is_system_topic
from store.names import BATCH_QUEUES, DELETED_TOPICS
from store.tables import json_files, mending
from store.tables import tables as broker_tables
from store.tables.tables import DataVersion

CLIENT_QUEUE_NUMS = 4  # what a RocketMQ client asks for
PERM = 6  # to be read and written
# However many topics are made, saving takes a tenth of the time, and no more than this at once: each of a few is in the
# file before its first message is answered, many together wait a moment.
SAVING_SHARE, SAVING_SECONDS_MAX = 0.1, 2.0


class ServedTopics:
    """The file `path`, in the form of `line` when nobody has given it one yet."""

    def __init__(self, path: Path, *, line: Line, queue_nums: int = CLIENT_QUEUE_NUMS) -> None:
        self._path, self._line, self._queue_nums = path, line, queue_nums
        self._known: dict[str, int] | None = None  # topic: its queues in the file
        self._seen: FileState | None = None  # which file that was
        self._wanted: dict[str, int] = {}
        self._saving: dict[str, int] = {}  # being written just now, by another thread perhaps
        self._budget, self._budget_at = SAVING_SECONDS_MAX, time.monotonic()
        self._lock = threading.Lock()  # between who notes and who begins to save
        self.took_seconds = 0.0  # the last reading or `save`

    def note(self, queues: Iterable[tuple[str, int]], *, in_use: bool = False) -> None:
        """Note that these (topic, queue id) exist; `save` writes what the file lacks. May be called while it writes.

        Topics that were deleted stay so, unless messages come for them, `in_use`.
        A damaged file is mended (`store.tables.mending`). Raises MalformedConfig where that is impossible.
        """
        known = self._load() if self._known is None or self.has_changed else self._known
        deleted = set() if in_use else self._deleted()
        for topic, queue_id in queues:
            if topic in deleted or (topic in known and not in_use):  # a topic's queues may be fewer than it once had
                continue
            if is_system_topic(topic) or is_lmq(topic):  # RocketMQ makes those, with numbers of queues of their own
                continue
            default = self._queue_nums if group_of(topic) is None else 1
            with self._lock:
                there = max(known.get(topic, 0), self._saving.get(topic, 0))
                needed = max(queue_id + 1, self._wanted.get(topic, there or default))
                if needed > there:
                    self._wanted[topic] = needed

    @property
    def has_changed(self) -> bool:
        """Whether the next `note` has to read the file again: somebody else wrote it."""
        return not self._saving and self._seen != self._state()

    @property
    def has_more(self) -> bool:
        """Return whether anything was noted that no `save` has written yet."""
        return bool(self._wanted)

    @property
    def is_due(self) -> bool:
        """Whether there is something to save, and time for it."""
        return bool(self._wanted) and self.has_time

    @property
    def has_time(self) -> bool:
        """Whether reading and saving have not taken too much of the time lately."""
        return self._allowed() > 0

    def _allowed(self) -> float:
        """Seconds of saving that may be spent now."""
        now = time.monotonic()
        self._budget = min(SAVING_SECONDS_MAX, self._budget + SAVING_SHARE * (now - self._budget_at))
        self._budget_at = now
        return self._budget

    def save(self, now_ms: int) -> list[str]:
        """Write what was noted; the topics that are new in the file. Raises OSError, MalformedConfig."""
        if not self._wanted:
            return []
        begun = time.monotonic()
        with self._lock:
            self._saving, self._wanted = self._wanted, {}
        try:
            with json_files.exclusive(self._path.parent):
                added = self._merge(self._saving, now_ms)
            self._known, self._seen = {**(self._known or {}), **self._saving}, self._state()
        except BaseException:
            with self._lock:
                self._wanted = {**self._saving, **self._wanted}
            raise
        finally:
            self._saving = {}
            self.took_seconds = time.monotonic() - begun
            self._budget -= self.took_seconds
        return added

    def _merge(self, wanted: dict[str, int], now_ms: int) -> list[str]:
        """Add what is wanted to what the file says by now; the topics that are new in it."""
        value = json_files.read(self._path)
        table = broker_tables.topics(value, str(self._path))
        added = []
        for topic, queue_nums in wanted.items():
            if topic not in table:
                added.append(topic)
                table[topic] = self._config_of(topic)
            for name in ("readQueueNums", "writeQueueNums"):
                table[topic][name] = max(queue_nums, _count(table[topic].get(name)))
        version = DataVersion.of(value, str(self._path)) or self._unset()
        json_files.write(self._path, {**value, **broker_tables.topics_value(table, version.next(now_ms))})
        return added

    def _unset(self) -> DataVersion:
        return DataVersion(state_version=0 if self._line.tables.state_versions else None)

    def _state(self) -> FileState | None:
        try:
            return state_in(self._path.stat())
        except FileNotFoundError:
            return None

    def _deleted(self) -> set[str]:
        path = self._path.with_name(DELETED_TOPICS)
        return broker_tables.deleted_topics(mending.checked(path).value, str(path))

    def _load(self) -> dict[str, int]:
        begun = time.monotonic()
        self._seen = self._state()
        mended = mending.read(self._path)
        try:
            table = broker_tables.topics(mended.value, str(self._path))
        except MalformedConfig:
            mended = mending.mend(self._path)
            table = broker_tables.topics(mended.value, str(self._path))
        if mended.is_mended:
            self._seen = self._state()
        self._known = {
            topic: min(_count(fields.get("readQueueNums")), _count(fields.get("writeQueueNums")))
            for topic, fields in table.items()
        }
        self.took_seconds = time.monotonic() - begun
        self._budget -= self.took_seconds
        return self._known

    def _config_of(self, topic: str) -> dict[str, object]:
        attributes: dict[str, object] = {}
        if (self._path.parent.parent / BATCH_QUEUES / topic).is_dir():  # RocketMQ refuses the store without this
            attributes = {"attributes": {broker_tables.QUEUE_TYPE: broker_tables.BATCH_QUEUE_TYPE}}
        return broker_tables.topic_config(topic, 0, 0, PERM, line=self._line, **attributes)


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
