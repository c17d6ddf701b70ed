"""Topics that a front asks for because a message goes there: made once, known to the name servers before the answer.

Implements: TopicConfigManager.createTopicInSendMessageMethod, createTopicInSendMessageBackMethod
Publishes:  unserved_topics
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from engine.net.log_lines import Seldom
from engine.protocol.broker.requests import TOPICS_MAX
from engine.protocol.remoting.answers import Json
from engine.protocol.sending import topics
from engine.protocol.tables.topic_attributes import without_effect
from engine.remoting.files.saves import NotSaved
from engine.remoting.processors.parts import Part, PartContext
from ipc import waiting
from ipc.clock import wall_ms
from store.names import TOPICS
from store.tables.tables import DataVersion

log = logging.getLogger("slipstream.remoting")

SAVED_SECONDS, NAMED_MAX = 1.0, 20
REGISTERED_SECONDS = 1.0  # a slower name server is registered at all the same, but no client waits for it


class TopicMaking(Part):
    """The questions ensure_topic and ensure_back_topic: the topic's configuration, or nothing where none is to be."""

    def __init__(self, context: PartContext) -> None:
        super().__init__(context)
        self.questions = {"ensure_topic": self._ensure_topic, "ensure_back_topic": self._ensure_back_topic}
        self._seldom = Seldom(log)
        self._looked_at: DataVersion | None = None

    def turn(self, now_ms: int) -> None:
        """Where topics changed: say which ask for what this broker lacks; their files or their master had them so."""
        version = self.context.metadata.versions[TOPICS]
        if version == self._looked_at:
            return
        self._looked_at, word = version, self.context.counters.unserved_topics
        known = self.context.metadata.topics
        wrong = {name: asked for name, config in known.items() if (asked := without_effect(config))}
        if len(wrong) > word.read():
            some = ", ".join(f"{name} ({' '.join(wrong[name])})" for name in sorted(wrong)[:NAMED_MAX])
            what = "topics whose attributes have no effect here: %d; fileReservedTime alone decides: %s"
            log.warning(what, len(wrong), some)
        waiting.note(word, len(wrong))

    async def _ensure_topic(self, fields: Json) -> Json:
        topic, metadata = fields["topic"], self.context.metadata
        if (known := metadata.topics.get(topic)) is not None:
            return {"config": known}
        made = topics.of_first_message(
            topic,
            fields["defaultTopic"],
            fields["queueNums"],
            fields["sysFlag"],
            metadata.topics,
            self.line,
            auto_create=self.context.config.auto_create_topic_enable,
        )
        if made is None:
            what = "topic %s, to which %s sent a message, was not created: %s is not a template"
            self._seldom.tell(what, topic, fields["remote"], fields["defaultTopic"], level=logging.WARNING)
        return await self._made(made)

    async def _ensure_back_topic(self, fields: Json) -> Json:
        topic = fields["topic"]
        if (known := self.context.metadata.topics.get(topic)) is not None:
            return {"config": known}
        return await self._made(topics.given_back(topic, fields["queueNums"], fields["sysFlag"], self.line))

    async def _made(self, config: Json | None) -> Json:
        if config is None:
            return {}
        if len(self.context.metadata.topics) >= TOPICS_MAX:
            self._seldom.tell("topic %s was not created: %d topics exist, the limit", config["topicName"], TOPICS_MAX)
            return {}
        log.info("topic %s created by a message", config["topicName"])
        self.context.metadata.set_topic(config, wall_ms())
        await self._saved()
        await self.context.registrar.registered(REGISTERED_SECONDS)
        return {"config": config}

    async def _saved(self) -> None:
        """Have it in the file before the writer hears of it, who would make it as it thinks fit."""
        with suppress(TimeoutError, NotSaved):
            await asyncio.wait_for(self.context.saved((TOPICS,)), SAVED_SECONDS)
