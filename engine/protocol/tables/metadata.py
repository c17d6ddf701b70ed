"""What a broker knows beside its messages: topics, consumer groups and offsets, delay offsets, each with its version.

Implements: TopicConfigManager, SubscriptionGroupManager, ConsumerOffsetManager, as tables; SlaveSynchronize's merging
spec: store-formats, 16 config/*.json; remoting, 6 metadata request bodies
Bodies on the wire are the files' contents, compact. `changed` names the files that are to be written.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

from engine.protocol.tables.bodies import MODES, TIMING_COUNT, Bodies
from engine.protocol.tables.consumer_offsets import ConsumerOffsets
from engine.protocol.tables.defaults import SYSTEM_GROUPS, TRANSACTION_GROUP, Identity, default_topics, group_config
from engine.protocol.tables.offset_journal import Key
from engine.protocol.tables.sound_topics import QUEUE_NUMS, sound_topics
from engine.protocol.tables.timer_state import TimerCheckpoint
from store.errors import MalformedConfig
from store.names import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    DELETED_TOPICS,
    GIVEN_OFFSETS,
    GROUPS,
    REQUEST_MODES,
    TIMER_CHECKPOINT,
    TIMER_METRICS,
    TOPICS,
)
from store.tables import tables as broker_tables
from store.tables.steps import at_once, freed
from store.tables.tables import ENTRIES_A_STEP, DataVersion

# Replaces a slave's table by its master's, which has very many entries, mostly the same ones.
#
# Implements: SlaveSynchronize's way of taking tables
Table = dict[str, dict[str, Any]]


def entries_of(table: dict[Any, Any]) -> list[Any]:
    """Return all entries of the table, and empty it."""
    entries = list(table.values())
    table.clear()
    return entries


def keep_equal(ours: Table, theirs: Table) -> Generator[int, None, None]:
    """Entries that say the same stay the own ones: nothing new for fronts, nor for the garbage collector. In steps."""
    names = list(theirs)
    for start in range(0, len(names), ENTRIES_A_STEP):
        for name in names[start : start + ENTRIES_A_STEP]:
            own = ours.get(name)
            if own == theirs[name]:
                theirs[name] = own
        yield ENTRIES_A_STEP


def note_others(before: Table, now: Table, noted: dict[str, None]) -> Generator[int, None, None]:
    """Note the names of entries that are not the very same in both. In steps."""
    for names in (list(before), list(now)):
        for start in range(0, len(names), ENTRIES_A_STEP):
            some = names[start : start + ENTRIES_A_STEP]
            noted.update(dict.fromkeys(name for name in some if before.get(name) is not now.get(name)))
            yield ENTRIES_A_STEP


FILES = (TOPICS, GROUPS, CONSUMER_OFFSETS, DELAY_OFFSETS, TIMER_METRICS, REQUEST_MODES, DELETED_TOPICS, GIVEN_OFFSETS)
Value = dict[str, Any]
Steps = Generator[int, None, bool]  # how much each did; then whether anything changed


def _attribute_of(name: str) -> str:
    """Return where `Metadata` has what that file says, and what fronts call it: topics or groups."""
    return "topics" if name == TOPICS else "groups"


def _object(value: Value, name: str, path: str) -> Value:
    """A part of a file that is an object, or nothing. Raises MalformedConfig."""
    fields = value.get(name)
    if not isinstance(fields, dict | None):
        raise MalformedConfig(path, f"{name} is not an object")
    return dict(fields or {})


class Unsaved(NamedTuple):
    """The topics that topics.json has to forget and to say anew, while it is written."""

    deleted_topics: set[str]
    set_topics: set[str]


class Served(NamedTuple):
    """Content of topics.json, each topic complete."""

    topics: dict[str, Value]
    version: DataVersion | None


class Metadata(Bodies):
    """Tables of one broker, beside its messages."""

    def __init__(self, identity: Identity, files: Mapping[str, Value], now_ms: int) -> None:
        """Take the contents of the files, by their names. Raises MalformedConfig."""
        self.identity, self.changed = identity, set[str]()
        self.deleted_topics: set[str] = set()  # since topics.json was last saved
        self.set_topics: set[str] = set()  # the same: what the file says of them is older
        self.timer_checkpoint = TimerCheckpoint()
        self.delay_offsets_text: bytes | None = None  # as a master said it: a slave's file says it verbatim
        unset = DataVersion(0, now_ms, 0 if identity.line.tables.state_versions else None)
        values = {name: files.get(name) or {} for name in FILES}
        self.topics = at_once(sound_topics(values[TOPICS], identity.line))
        self.gone_topics = broker_tables.deleted_topics(values[DELETED_TOPICS], DELETED_TOPICS)
        self.groups = broker_tables.groups(values[GROUPS], GROUPS)
        keeps_forbidden = identity.line.tables.group_policies
        self.forbidden = broker_tables.forbidden_topics(values[GROUPS], GROUPS) if keeps_forbidden else {}
        self.consumer_offsets = ConsumerOffsets(values[CONSUMER_OFFSETS], has_light=identity.has_light_queues)
        self.consumer_offsets.given_here = broker_tables.consumer_offsets(values[GIVEN_OFFSETS], GIVEN_OFFSETS)
        self.delay_offsets = broker_tables.delay_offsets(values[DELAY_OFFSETS], DELAY_OFFSETS)
        self.versions = {name: DataVersion.of(values[name], name) or unset for name in FILES}
        self.timing_count: Value = _object(values[TIMER_METRICS], TIMING_COUNT, TIMER_METRICS)
        self.request_modes: Value = _object(values[REQUEST_MODES], MODES, REQUEST_MODES)
        self._altered: dict[str, dict[str, None]] = {"topics": {}, "groups": {}, "forbidden": {}}  # as they came
        self._add_defaults()
        self.texts, self.json_of = self.new_texts(), {}

    def _add_defaults(self) -> None:
        line = self.identity.line
        for topic, queues, perm in default_topics(self.identity):
            if topic not in self.topics:
                self.topics[topic] = broker_tables.topic_config(topic, queues, queues, perm, line=line)
        self.groups = {group: {**group_config(group, line), **config} for group, config in self.groups.items()}
        for group in (*SYSTEM_GROUPS, *([TRANSACTION_GROUP] if line.tables.transaction_topics else [])):
            self.groups.setdefault(group, group_config(group, line))

    # changes on a master

    def set_topic(self, config: Value, now_ms: int) -> None:
        """Create a topic, or replace its configuration."""
        self.topics[config["topicName"]] = config
        self._alter(TOPICS, config["topicName"])
        self.deleted_topics.discard(config["topicName"])
        self.set_topics.add(config["topicName"])
        self._is_there(config["topicName"])
        self._next(TOPICS, now_ms)

    def delete_topic(self, topic: str, now_ms: int) -> None:
        """Forget a topic's configuration, if there is one."""
        if self.topics.pop(topic, None) is not None:
            self.deleted_topics.add(topic)
            self.gone_topics.add(topic)
            self._alter(TOPICS, topic)
            self._next(TOPICS, now_ms)
        forgets = self.identity.line.groups.forgets_offsets_of_topics
        if forgets and self.consumer_offsets.remove(self.consumer_offsets.of_topic(topic)):
            self.changed.add(CONSUMER_OFFSETS)

    def set_order_topics(self, ordered: Mapping[str, str], now_ms: int) -> bool:
        """Take over which topics a name server calls ordered; return whether that changed any."""
        news, taken_back = False, self.identity.line.tables.order_is_taken_back
        for topic, config in self.topics.items():
            is_ordered = topic in ordered
            if bool(config.get("order")) != is_ordered and (is_ordered or taken_back):
                config["order"], news = is_ordered, True
                self._alter(TOPICS, topic)
        if news:
            self._next(TOPICS, now_ms)
        return news

    def groups_of(self, topic: str) -> list[str]:
        """The groups that consumed a topic, in Java's order."""
        return self.consumer_offsets.groups_of(topic)

    def set_group(self, config: Value, now_ms: int) -> None:
        """Create a consumer group, or replace its configuration."""
        self.groups[config["groupName"]] = config
        self._alter(GROUPS, config["groupName"])
        self._next(GROUPS, now_ms)

    def forbid(self, group: str, topic: str, bit: int, *, is_forbidden: bool, now_ms: int) -> None:
        """updateForbidden: what a group may not do with a topic, or may. Once it may all, so with its other topics."""
        bits = max(0, self.forbidden.get(group, {}).get(topic, 0))
        bits = bits | bit if is_forbidden else bits & ~bit
        self._altered["forbidden"][group] = None
        if bits:
            self.forbidden.setdefault(group, {})[topic] = bits
            self._next(GROUPS, now_ms)
        elif self.forbidden.pop(group, None) is not None:
            self.changed.add(GROUPS)  # RocketMQ says it with the next change only, and there is no new version
            self.served_changes += 1

    def delete_group(self, group: str, forget_offsets: bool, now_ms: int) -> None:
        """Forget a group's configuration, and if asked how far it consumed."""
        if self.forbidden.pop(group, None) is not None:
            self._altered["forbidden"][group] = None
            self.changed.add(GROUPS)
            self.served_changes += 1
        if self.groups.pop(group, None) is not None:
            self._alter(GROUPS, group)
            self._next(GROUPS, now_ms)
        if forget_offsets and self.consumer_offsets.remove(self.consumer_offsets.of_group(group)):
            self.changed.add(CONSUMER_OFFSETS)

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int, now_ms: int) -> int | None:
        """Note how far a group is; return where it was before, None where nobody had said.

        The file follows each interval.
        """
        before = self.consumer_offsets.commit(group, topic, queue_id, offset)
        step = self.identity.line.groups.offset_version_step
        if step and self.consumer_offsets.commits % step == 0:
            self.versions[CONSUMER_OFFSETS] = self.versions[CONSUMER_OFFSETS].next(now_ms)
        return before

    def give_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note an offset that a consumer committed to this slave, which must still send it to its master."""
        self.consumer_offsets.given_here.setdefault((topic, group), {})[queue_id] = offset

    def given(self, key: Key, queue_id: int, offset: int) -> None:
        """The master knows of that one, unless the consumer committed another since."""
        of_key = self.consumer_offsets.given_here.get(key, {})
        if of_key.get(queue_id) == offset:
            del of_key[queue_id]
            self.changed.add(GIVEN_OFFSETS)
        if not of_key:
            self.consumer_offsets.given_here.pop(key, None)

    def forget_given(self) -> None:
        """Forget offsets that a master would still need: this broker is a master now."""
        if self.consumer_offsets.given_here:
            self.consumer_offsets.given_here = {}
            self.changed.add(GIVEN_OFFSETS)

    def reset_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """An administrator sets how far a group is. Raises NoRoom."""
        self.changed.add(CONSUMER_OFFSETS)
        self.consumer_offsets.reset(group, topic, offsets)

    def served_topics(self, value: Value) -> Served:
        """Return what topics.json says, without changing anything here: for a thread. Raises MalformedConfig."""
        return Served(at_once(sound_topics(value, self.identity.line)), DataVersion.of(value, TOPICS))

    def take_served_topics(self, served: Served) -> bool:
        """Topics, and queues of them, that the writer added to the file; whether there are any."""
        grown = False
        for topic, config in served.topics.items():
            if topic not in self.topics and topic not in self.deleted_topics:
                self.topics[topic], grown = config, True
                self._alter(TOPICS, topic)
                self._is_there(topic)
            ours = config if topic in self.set_topics else self.topics.get(topic, config)
            for name in QUEUE_NUMS:
                if config[name] > ours[name]:
                    ours[name], grown = config[name], True
                    self._alter(TOPICS, topic)
        self.served_changes += grown
        theirs, ours_now = served.version, self.versions[TOPICS]
        if theirs and (theirs.timestamp_ms, theirs.counter) > (ours_now.timestamp_ms, ours_now.counter):
            self.versions[TOPICS] = ours_now._replace(counter=theirs.counter, timestamp_ms=theirs.timestamp_ms)
        elif grown:  # name servers and slaves that know this version do not look at the table again
            self._next(TOPICS, ours_now.timestamp_ms)
        return grown

    def _is_there(self, topic: str) -> None:
        """Note that a deleted topic exists again."""
        if topic in self.gone_topics:
            self.gone_topics.discard(topic)
            self.changed.add(DELETED_TOPICS)

    def _alter(self, name: str, entry: str) -> None:
        """An entry of topics or groups has come, changed or gone: fronts are to hear of it, files to say it."""
        self._altered[_attribute_of(name)][entry] = None
        self.texts[name].alter(entry)

    def take_altered(self) -> list[tuple[str, list[str]]]:
        """The names of topics and groups that are other than when this was asked last, or gone."""
        altered = [(table, list(names)) for table, names in self._altered.items() if names]
        for names in self._altered.values():
            names.clear()
        return altered

    def begin_saving(self, name: str) -> Unsaved:
        """Note that a file is being written with the current tables; `not_saved` takes the result if that fails."""
        self.changed.discard(name)
        if name != TOPICS:
            return Unsaved(set(), set())
        unsaved = Unsaved(self.deleted_topics, self.set_topics)
        self.deleted_topics, self.set_topics = set(), set()
        return unsaved

    def not_saved(self, name: str, unsaved: Unsaved) -> None:
        """The file is as it was."""
        self.changed.add(name)
        self.deleted_topics |= {topic for topic in unsaved.deleted_topics if topic not in self.topics}
        self.set_topics |= unsaved.set_topics

    def next_version(self, now_ms: int) -> None:
        """Say that the topics are to be registered again, although none changed."""
        self._next(TOPICS, now_ms)

    def _next(self, name: str, now_ms: int) -> None:
        self.versions[name] = self.versions[name].next(now_ms)
        self.changed.add(name)

    # what a slave takes from its master: data first, then the version, then the disk; large ones in steps, the first
    # of which refuse what is malformed

    def take_topics(self, value: Value) -> Steps:
        """Take the master's topics when their version differs; return whether it did. Raises MalformedConfig."""
        version = self._version_of(value, TOPICS)
        table = yield from sound_topics(value, self.identity.line)
        if version == self.versions[TOPICS]:
            yield from freed(entries_of(table))
            return False
        yield from keep_equal(self.topics, table)
        return (yield from self._take_table(TOPICS, table, version))

    def take_groups(self, value: Value) -> Steps:
        """Take the master's groups when their version differs; return whether it did. Raises MalformedConfig.

        What they may not consume a slave does not take, and forgets of those that it knew: as 5.x does it.
        """
        version = self._version_of(value, GROUPS)
        table = yield from broker_tables.groups_in_steps(value, GROUPS)
        if version == self.versions[GROUPS]:
            return False
        yield from keep_equal(self.groups, table)
        self._altered["forbidden"] |= dict.fromkeys(self.forbidden)
        self.forbidden = {group: of for group, of in self.forbidden.items() if group not in self.groups}
        return (yield from self._take_table(GROUPS, table, version))

    def take_consumer_offsets(self, value: Value) -> Steps:
        """Take the master's offsets, but keep groups that it has none of. Raises MalformedConfig.

        They go back when the master's do: an administrator resets them there. What consumers committed here does not,
        as long as the master has not heard of it. From a master whose own table is behind
        what we took already (its version tells, where it has one), none goes back.
        """
        version = DataVersion.of(value, CONSUMER_OFFSETS)
        taken = yield from broker_tables.consumer_offsets_in_steps(value, CONSUMER_OFFSETS)
        for key, given in self.consumer_offsets.given_here.items():
            if key in taken:
                taken[key] |= {queue: max(offset, taken[key].get(queue, offset)) for queue, offset in given.items()}
        ours = self.versions[CONSUMER_OFFSETS]
        is_stale = version is not None and version.is_behind(ours)
        changed = yield from self.consumer_offsets.take(taken, never_back=is_stale)
        yield from freed(entries_of(taken))
        if version is None or is_stale:
            version = ours
        if not changed and version == ours:
            return False
        self._took(CONSUMER_OFFSETS, version)
        return True

    def raise_offsets(self, theirs: Mapping[Key, Mapping[int, int]]) -> Steps:
        """Raise each queue's offset to the larger of this broker's and another's."""
        changed = yield from self.consumer_offsets.take(theirs, never_back=True)
        if changed:
            self._took(CONSUMER_OFFSETS, self.versions[CONSUMER_OFFSETS])
        return changed

    def take_delay_offsets(self, value: Value, text: bytes) -> bool:
        """The master's progress through the delay levels; its own words become the file. Raises MalformedConfig."""
        offsets = broker_tables.delay_offsets(value, DELAY_OFFSETS)
        version = DataVersion.of(value, DELAY_OFFSETS) or self.versions[DELAY_OFFSETS]
        if text == self.delay_offsets_text:
            return False
        self.delay_offsets, self.delay_offsets_text = offsets, text
        self._took(DELAY_OFFSETS, version)
        return True

    def take_timer_metrics(self, value: Value) -> bool:
        """Take over how many messages of each topic wait in the master's timer wheel; False: the table is no news."""
        table, version = _object(value, TIMING_COUNT, TIMER_METRICS), self._version_of(value, TIMER_METRICS)
        if version == self.versions[TIMER_METRICS]:
            return False
        self.timing_count = table
        self._took(TIMER_METRICS, version)
        return True

    def take_request_modes(self, value: Value) -> bool:
        """The master's modes of consuming, pull or pop."""
        modes = _object(value, MODES, REQUEST_MODES)
        if modes == self.request_modes:
            return False
        self.request_modes = modes
        self.changed.add(REQUEST_MODES)
        return True

    def take_timer_checkpoint(self, body: bytes) -> bool:
        """Take over how far the master's timer wheel is; False: that is no news."""
        checkpoint = self.timer_checkpoint.following(TimerCheckpoint.decode(body))
        if checkpoint == self.timer_checkpoint:
            return False
        self.timer_checkpoint = checkpoint
        self.changed.add(TIMER_CHECKPOINT)
        return True

    def _take_table(self, name: str, table: dict[str, Value], version: DataVersion) -> Steps:
        """Replace a table of topics or groups, and free the old one in steps; fronts hear of changed entries."""
        attribute = _attribute_of(name)
        before: dict[str, Value] = vars(self)[attribute]
        vars(self)[attribute] = table
        self.texts[name].alter_all()
        self.served_changes += 1
        self._took(name, version)
        yield len(table)
        yield from note_others(before, table, self._altered[attribute])
        held = list(before.values())
        del before
        yield from freed(held)
        return True

    def _took(self, name: str, version: DataVersion) -> None:
        state = (version.state_version or 0) if self.identity.line.tables.state_versions else None
        self.versions[name] = version._replace(state_version=state)
        self.changed.add(name)

    def _version_of(self, value: Value, name: str) -> DataVersion:
        """Return the version as this broker notes it: no state version if its line has none, else 0 if missing."""
        version = DataVersion.of(value, name) or DataVersion()
        state = (version.state_version or 0) if self.identity.line.tables.state_versions else None
        return version._replace(state_version=state)
