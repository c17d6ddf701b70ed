"""Keeps a broker's topics.json up to date: what the writer, and before and after it the supervisor, say about queues.

Implements: TopicConfigManager, as far as topics come from messages
A file that cannot be read or written holds nothing up: it is logged once, and tried again each AGAIN_SECONDS.
A file of very many topics takes seconds to write, and to read once an administrator changed it: then a thread does it,
and messages go on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable

from engine.settings.config import BrokerConfig
from ipc.clock import wall_ms
from store.compat import line_of
from store.errors import MalformedConfig
from store.files.directory import StoreDirectory
from store.names import TOPICS
from store.tables.served_topics import CLIENT_QUEUE_NUMS, ServedTopics

log = logging.getLogger("slipstream.topics")

AGAIN_SECONDS = 5.0
QUICK_SECONDS = 0.1  # what messages may wait for
NAMES_TOLD = 20


class TopicKeeper:
    """The topics of one store."""

    def __init__(self, config: BrokerConfig) -> None:
        directory = StoreDirectory(config.store_path_root_dir, config.store_path_commit_log)
        queue_nums = min(CLIENT_QUEUE_NUMS, config.default_topic_queue_nums)
        self._topics = ServedTopics(directory.config / TOPICS, line=line_of(config.compat), queue_nums=queue_nums)
        self._error, self._again_at = "", 0.0  # of the last try; and when the next one is due
        self._thread: threading.Thread | None = None
        self._unread: deque[tuple[list[tuple[str, int]], bool]] = deque()  # to be noted once the file is read
        self._is_reading = False  # the thread notes what is unread: nobody else may

    def note(self, queues: Iterable[tuple[str, int]], *, in_use: bool = False) -> None:
        """Note that these (topic, queue id) exist; `in_use`: messages arrive for them."""
        noted = list(queues), in_use
        is_later = self._unread or self._is_reading or self._rests
        if is_later or (self._is_slow and self._topics.has_changed):
            self._unread.append(noted)
            return
        try:
            self._topics.note(noted[0], in_use=in_use)
        except MalformedConfig as error:
            self._unread.append(noted)
            self._fail(error)

    def save_if_due(self) -> None:
        """Write what is new, unless that was done a moment ago."""
        if self._rests or self._is_writing() or not (self._topics.is_due or (self._unread and self._topics.has_time)):
            return
        if self._is_slow or self._unread:
            self._save_beside(wall_ms())
        else:
            self.save(wall_ms())

    @property
    def has_more(self) -> bool:
        """Whether the file lacks something: `save_if_due` is to be called again."""
        return self._topics.has_more or bool(self._unread) or self._is_writing()

    @property
    def _rests(self) -> bool:
        """Whether the last try failed, a moment ago."""
        return time.monotonic() < self._again_at

    @property
    def _is_slow(self) -> bool:
        return self._topics.took_seconds >= QUICK_SECONDS

    def save(self, now_ms: int) -> None:
        """Write new topics, and log their names."""
        try:
            added = self._topics.save(now_ms)
        except (OSError, MalformedConfig) as error:
            self._fail(error)
            return
        if self._error and not self._unread:
            self._error = ""
            log.info("%s is written again", TOPICS)
        for topic in added[:NAMES_TOLD]:
            log.info("new topic %s", topic)
        if len(added) > NAMES_TOLD:
            log.info("and %d more new topics", len(added) - NAMES_TOLD)

    def finish(self, now_ms: int, seconds: float) -> bool:
        """Write what is new, for the last time: True once it is written, False while that takes more than `seconds`."""
        if self._thread is None:
            self._save_beside(now_ms)
        assert self._thread is not None
        self._thread.join(seconds)
        if self._is_writing():
            return False
        self._thread = None
        return bool(self._error) or not (self._topics.has_more or self._unread)

    def _save_beside(self, now_ms: int) -> None:
        self._is_reading = bool(self._unread)
        self._thread = threading.Thread(target=self._read_and_save, args=(now_ms,), name=TOPICS, daemon=True)
        self._thread.start()

    def _read_and_save(self, now_ms: int) -> None:
        try:
            while self._is_reading and self._unread:
                queues, in_use = self._unread[0]
                self._topics.note(queues, in_use=in_use)
                self._unread.popleft()
        except MalformedConfig as error:
            self._fail(error)
        finally:
            self._is_reading = False
        self.save(now_ms)

    def _is_writing(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _fail(self, error: Exception) -> None:
        self._again_at = time.monotonic() + AGAIN_SECONDS
        if str(error) != self._error:
            self._error = str(error)
            log.error(
                "%s cannot be written, so a RocketMQ broker would not know new topics: %s; will retry",
                TOPICS,
                error,
            )
