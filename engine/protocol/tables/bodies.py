"""A broker's tables as its files and its answers to slaves say them; of large ones only what changed is written anew.

Implements: ConfigManager.encode of its tables, AdminBrokerProcessor's answers with whole tables
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from engine.protocol.tables.consumer_offsets import ConsumerOffsets
from engine.protocol.tables.defaults import PERM_READ_WRITE, Identity
from store.names import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    DELETED_TOPICS,
    GIVEN_OFFSETS,
    GROUPS,
    REQUEST_MODES,
    TIMER_METRICS,
    TOPICS,
)
from store.tables import fastjson
from store.tables import tables as broker_tables
from store.tables.config_texts import ConfigTexts
from store.tables.entry_texts import STEP
from store.tables.offset_texts import Written
from store.tables.steps import at_once
from store.tables.tables import DataVersion

TIMING_COUNT, MODES = "timingCount", "messageRequestModeMap"
MASKED = "masked"  # topics, but for what the broker's own permission forbids
MAPPINGS = ("topicQueueMappingDetailMap", "topicQueueMappingInfoMap")
Value = dict[str, Any]


class TopicsNow:
    """The topics of one moment, very many of them, with the broker's own permission."""

    def __init__(self, order: list[str], topics: dict[str, Value], perm_mask: int) -> None:
        self._order, self._topics = order, topics
        self._mask = perm_mask if perm_mask & PERM_READ_WRITE != PERM_READ_WRITE else None

    def names(self) -> Generator[int, None, list[str]]:
        """Return the names in Java's order; yields after each step of STEP names."""
        names: list[str] = []
        for start in range(0, len(self._order), STEP):
            names += [name for name in self._order[start : start + STEP] if name in self._topics]
            yield STEP
        return names

    def config(self, name: str) -> Value:
        """Return one topic's config, its permission masked if a mask is set."""
        config = self._topics[name]
        return config if self._mask is None else {**config, "perm": config["perm"] & self._mask}


class Bodies:
    """The tables, as they are read. `texts` hear of what changes; `served_changes`: what no version tells."""

    identity: Identity
    topics: dict[str, Value]
    groups: dict[str, Value]
    forbidden: dict[str, dict[str, int]]
    gone_topics: set[str]
    consumer_offsets: ConsumerOffsets
    delay_offsets: dict[int, int]
    timing_count: Value
    request_modes: Value
    versions: dict[str, DataVersion]
    texts: dict[str, ConfigTexts]
    served_changes = 0
    json_of: dict[str, tuple[object, bytes]]  # of topics and groups: of which state, and the text

    def new_texts(self) -> dict[str, ConfigTexts]:
        """Return empty texts for the tables that have many entries."""
        tables = broker_tables
        return {
            TOPICS: ConfigTexts(tables.TOPIC_TABLE, lambda: self.topics, tables.TOPIC_CAPACITY),
            GROUPS: ConfigTexts(tables.GROUP_TABLE, lambda: self.groups, tables.GROUP_CAPACITY),
        }

    @property
    def offsets(self) -> dict[tuple[str, str], dict[int, int]]:
        """Return how far consumers are: by (topic, group) and queue id."""
        return self.consumer_offsets.table

    def value(self, name: str) -> Value:
        """Return the value that a file's JSON has."""
        version = self.versions[name]
        written_version = version if self.identity.line.tables.state_versions else None
        if name == TOPICS:
            return broker_tables.topics_value(self.topics, version)
        if name == GROUPS:
            return broker_tables.groups_value(self.groups, version, self.forbidden)
        if name == DELAY_OFFSETS:
            return broker_tables.delay_offsets_value(self.delay_offsets, written_version)
        if name == TIMER_METRICS:
            return {broker_tables.VERSION: version.value(), TIMING_COUNT: self.timing_count}
        if name == GIVEN_OFFSETS:
            return broker_tables.consumer_offsets_value(self.consumer_offsets.given_here)
        if name == DELETED_TOPICS:
            return broker_tables.deleted_topics_value(self.gone_topics)
        if name == REQUEST_MODES:
            return {MODES: self.request_modes}
        return self.consumer_offsets.value(written_version, with_topics=self.identity.line.tables.topics_of_groups)

    def file_text(self, name: str) -> bytes:
        """The bytes of a file, of which only what changed is written anew."""
        if name in self.texts:
            return self.written(name)()
        return fastjson.dumps_pretty(self.value(name)).encode("utf-8", "replace")

    def written(self, name: str) -> Callable[[], bytes]:
        """Return what the file of topics or of groups says now: its bytes can be put together on a thread."""
        version = self.versions[name]
        if name == TOPICS:
            return self.texts[name].written({broker_tables.VERSION: version.value()})
        return self.texts[name].written(broker_tables.groups_head(version, self.forbidden))

    @property
    def many_unwritten(self) -> list[str]:
        """Files of topics and groups with so many entries to be written anew that it is done in steps first."""
        return [name for name, texts in self.texts.items() if texts.is_much]

    def is_large(self, name: str) -> bool:
        """Whether topics or groups are so many that what is said of all is made in steps."""
        return bool(self.many_unwritten) or len(self.topics if name == TOPICS else self.groups) > STEP

    def offsets_in_steps(self) -> Generator[int, None, Written]:
        """Yield what consumerOffset.json says, in steps of so much work each, with every commit before the first."""
        with_topics, texts = self.identity.line.tables.topics_of_groups, self.consumer_offsets.texts
        yield from texts.steps(with_topics=with_topics)
        version = self.versions[CONSUMER_OFFSETS] if self.identity.line.tables.state_versions else None
        return texts.written(version, with_topics=with_topics, has_light=self.identity.has_light_queues)

    def topics_json(self, perm_mask: int = 7) -> bytes:
        """GET_ALL_TOPIC_CONFIG's answer and the registration's part, made once for each state of the topics.

        `perm_mask` is the broker's own permission.
        """
        return at_once(self.topics_json_in_steps(perm_mask))

    def topics_json_in_steps(self, perm_mask: int) -> Generator[int, None, bytes]:
        """The same in steps: with very many topics it takes a second."""
        if perm_mask & PERM_READ_WRITE == PERM_READ_WRITE:
            yield from self.prepare_json(TOPICS)
            return self.json_of[TOPICS][1]
        state = self._state_of(TOPICS), perm_mask
        if (made := self.json_of.get(MASKED)) is None or made[0] != state:
            text = yield from self._masked_json(perm_mask)
            made = self.json_of[MASKED] = state, text
        return made[1]

    def _masked_json(self, perm_mask: int) -> Generator[int, None, bytes]:
        mappings: Value = {name: {} for name in MAPPINGS} if self.identity.line.tables.static_topics else {}
        around = fastjson.dumps({**self._topics_head(), broker_tables.TOPIC_TABLE: {}, **mappings})
        before, named, behind = around.partition(f'"{broker_tables.TOPIC_TABLE}":{{')
        topics, parts = self.topics_now(perm_mask), list[bytes]()
        names = yield from topics.names()
        for start in range(0, len(names), STEP):
            some = ((name, dict(sorted(topics.config(name).items()))) for name in names[start : start + STEP])
            text = ",".join(f"{fastjson.dumps(name)}:{fastjson.dumps(config)}" for name, config in some)
            parts.append(("," * bool(start) + text).encode("utf-8", "replace"))
            yield STEP
        return b"".join((f"{before}{named}".encode(), *parts, behind.encode()))

    def topics_now(self, perm_mask: int) -> TopicsNow:
        """Return a snapshot of what `topics_json` lists."""
        return TopicsNow(self.texts[TOPICS].order(), self.topics.copy(), perm_mask)

    def groups_json(self) -> bytes:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG's answer, made once for each state of the groups."""
        at_once(self.prepare_json(GROUPS))
        return self.json_of[GROUPS][1]

    def prepare_json(self, name: str) -> Generator[int, None, None]:
        """Make what those two say, in steps; only what changed is written anew."""
        state = self._state_of(name)
        if self.json_of.get(name, (None,))[0] == state:
            return
        if name == TOPICS:
            empty = MAPPINGS if self.identity.line.tables.static_topics else ()
            making = self.texts[TOPICS].compact_in_steps(self._topics_head(), empty)
        else:
            head = broker_tables.groups_head(self.versions[GROUPS], self.forbidden)
            making = self.texts[GROUPS].compact_in_steps(head)
        text = yield from making
        self.json_of[name] = state, text

    def _state_of(self, name: str) -> object:
        return self.versions[name], self.served_changes

    def _topics_head(self) -> Value:
        version = self.versions[TOPICS]
        head: Value = {broker_tables.VERSION: version.value()}
        if self.identity.line.tables.static_topics:
            head["mappingDataVersion"] = DataVersion(0, version.timestamp_ms, 0).value()
        return head

    def topics_version_json(self) -> bytes:
        """Return the JSON of the topics' DataVersion."""
        return fastjson.dumps(self.versions[TOPICS].value()).encode()
