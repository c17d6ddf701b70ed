"""Keeps a broker's topics.json up to date: what the writer, and before and after it the supervisor, say about queues.

Implements: TopicConfigManager, as far as topics come from messages
A file that cannot be read or written stops nobody: it is told once, and tried again when the broker starts or stops.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from engine.config import BrokerConfig
from store.broker_tables import TOPICS
from store.directory import StoreDirectory
from store.errors import MalformedConfig
from store.served_topics import CLIENT_QUEUE_NUMS, ServedTopics

log = logging.getLogger("slipstream.topics")


class TopicKeeper:
    """The topics of one store."""

    def __init__(self, config: BrokerConfig) -> None:
        directory = StoreDirectory(config.store_path_root_dir, config.store_path_commit_log)
        queue_nums = min(CLIENT_QUEUE_NUMS, config.default_topic_queue_nums)
        self._topics = ServedTopics(directory.config / TOPICS, five=config.compat == "5", queue_nums=queue_nums)
        self._failed = False

    def note(self, queues: Iterable[tuple[str, int]], *, in_use: bool = False) -> None:
        """There are these (topic, queue id); `in_use`: messages come for them."""
        if not self._failed:
            try:
                self._topics.note(queues, in_use=in_use)
            except MalformedConfig as error:
                self._fail(error)

    def save_if_due(self, now_ms: int) -> None:
        """Write what is new, unless that was done a moment ago."""
        if self._topics.is_due:
            self.save(now_ms)

    def save(self, now_ms: int) -> None:
        """Write what is new."""
        if self._failed:
            return
        try:
            for topic in self._topics.save(now_ms):
                log.info("topic %s is new", topic)
        except (OSError, MalformedConfig) as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._failed = True
        log.error("topics.json is not kept, so a RocketMQ broker would not serve topics that are new here: %s", error)
