"""What a broker's `config/*.json` files say: topics, consumer groups, offsets, delay offsets and their versions.

Implements: TopicConfigManager, ConsumerOffsetManager, SubscriptionGroupManager, DelayOffsetSerializeWrapper,
    DataVersion, the order of ConcurrentHashMap and HashMap (spec: store-formats, section 16)
Each table reads what any version wrote, integer keys quoted or not, and makes the value that `broker_json.write` turns
into the bytes that version writes: fields by name, entries in the order of a Java ConcurrentHashMap.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from store.compat import Line
from store.errors import MalformedConfig
from store.message.hash_map import folded, outgrows, spread
from store.message.topics import is_lmq
from store.names import TOPICS
from store.tables import json_files
from store.tables.fastjson import INT64_MAX, INT64_MIN, whole_number
from store.tables.steps import at_once

TOPIC_TABLE, OFFSET_TABLE, GROUP_TABLE, VERSION = (
    "topicConfigTable", "offsetTable", "subscriptionGroupTable", "dataVersion",
)  # fmt: skip
LIGHT_TABLE = "lmqOffsetTable"  # topic@group: offset, of groups that begin with %LMQ%
KEY_VALUES = "configTable"  # of a name server's file, whatever that is called
WIPED = "wipedWritePermissions"  # of the same file: brokers' names, with the version of their topics at that time
QUEUE_TYPE, BATCH_QUEUE_TYPE = "queue.type", "BatchCQ"
GROUP_SEPARATOR = "@"
TOPIC_CAPACITY, OFFSET_CAPACITY, GROUP_CAPACITY, DELAY_CAPACITY = 1024, 512, 1024, 32  # of RocketMQ's maps
FORBIDDEN_TABLE, FORBIDDEN_CAPACITY, FORBIDDEN_TOPICS_CAPACITY = "forbiddenTable", 4, 8
GROUP_TOPIC_CAPACITY = 64  # a HashMap of 128 buckets
GROWS_AT = 0.75
QUEUES_A_STEP, ENTRIES_A_STEP = 1000, 500
NAMES_REMEMBERED = 1 << 17
UNSPREAD = 1 << 16  # smaller hash codes are their own spread
Key = TypeVar("Key", str, int)


class DataVersion(NamedTuple):
    """The version of a table: how often it changed, and when last. `state_version` only 5.x has: None is a 4.9 file."""

    counter: int = 0
    timestamp_ms: int = 0
    state_version: int | None = None

    @classmethod
    def of(cls, value: Mapping[Any, Any], path: str = "") -> DataVersion | None:
        """The version that a file's value holds; None without one."""
        version = value.get(VERSION)
        if version is None:
            return None
        fields = _mapping(version, VERSION, path)
        state = fields.get("stateVersion")
        counter, timestamp = (_number(fields.get(name, 0), name, path) for name in ("counter", "timestamp"))
        return cls(counter, timestamp, None if state is None else _number(state, "stateVersion", path))

    def is_behind(self, other: DataVersion) -> bool:
        """Whether this is an older state of the same table. Fewer changes alone are not: a table made anew has few."""
        ours, theirs = self.state_version or 0, other.state_version or 0
        if ours != theirs:
            return ours < theirs
        return self.counter < other.counter and self.timestamp_ms < other.timestamp_ms

    def next(self, now_ms: int) -> DataVersion:
        """The version after one more change."""
        return self._replace(counter=self.counter + 1, timestamp_ms=now_ms)

    def value(self) -> dict[str, int]:
        """Return the version as a file holds it."""
        state = {} if self.state_version is None else {"stateVersion": self.state_version}
        return {"counter": self.counter, **state, "timestamp": self.timestamp_ms}


def java_order(keys: Iterable[Key], capacity: int) -> list[Key]:
    """The keys as Java's ConcurrentHashMap made with that capacity lists them; of one bucket, as they came.

    A map that grew while it held several keys of one bucket may list these the other way round.
    """
    all_keys = list(keys)
    return _by_bucket(all_keys, buckets_of(len(all_keys), capacity))


def buckets_of(count: int, capacity: int) -> int:
    """Return how many buckets a ConcurrentHashMap made with that capacity has, once it has so many keys."""
    buckets = 1 << (capacity + (capacity >> 1)).bit_length()
    while count >= GROWS_AT * buckets:
        buckets *= 2
    return buckets


def bucket_of(name: str, buckets: int) -> int:
    """Return the bucket of a key among so many."""
    return _spread(name) & (buckets - 1)


def numbers_in_order(numbers: Iterable[int], capacity: int) -> list[int]:
    """`java_order` of numbers, which is their own where they are few and small."""
    every = list(numbers)
    if every and min(every) >= 0 and max(every) < min(buckets_of(len(every), capacity), UNSPREAD):
        return sorted(every)
    return java_order(every, capacity)


def hash_map_order(keys: Iterable[Key], buckets: int = 16) -> list[Key]:
    """The keys as Java's HashMap or HashSet of so many buckets lists them; of one bucket, as they came."""
    all_keys = list(keys)
    while outgrows(len(all_keys), buckets):
        buckets *= 2
    return _by_bucket(all_keys, buckets)


def _by_bucket(keys: list[Key], buckets: int) -> list[Key]:
    return sorted(keys, key=lambda key: (_spread(key) if isinstance(key, str) else folded(key)) & (buckets - 1))


@lru_cache(NAMES_REMEMBERED)
def _spread(name: str) -> int:
    """The tables are listed over and over, with the same names."""
    return spread(name)


def _or_empty(value: Any) -> Any:
    return {} if value is None else value


def _mapping(value: Any, what: str, path: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise MalformedConfig(path, f"{what} is not an object")
    return value


def _number(value: Any, what: str, path: str) -> int:
    """A whole number of Java's long, quoted or not."""
    if type(value) is int and INT64_MIN <= value <= INT64_MAX:
        return value  # as there may be very many
    try:
        return whole_number(value)
    except ValueError as reason:
        raise MalformedConfig(path, f"{what}: {reason}") from None


def _table(value: Mapping[Any, Any], name: str, path: str) -> Generator[int, None, dict[str, dict[Any, Any]]]:
    """A table of objects by name; empty without one. In steps of so many."""
    entries, table = iter(_mapping(_or_empty(value.get(name)), name, path).items()), dict[str, dict[Any, Any]]()
    while some := list(islice(entries, ENTRIES_A_STEP)):
        for key, entry in some:
            table[str(key)] = entry if type(entry) is dict else _mapping(entry, f"{name}: {key}", path)
        yield len(some)
    return table


def _offsets(value: Any, what: str, path: str) -> dict[int, int]:
    entries = _mapping(value, what, path).items()
    return {_number(key, what, path): _number(offset, what, path) for key, offset in entries}


# topics.json


def topics(value: Mapping[Any, Any], path: str = "") -> dict[str, dict[Any, Any]]:
    """The configuration of every topic, fields by their names in the file."""
    return at_once(topics_in_steps(value, path))


def topics_in_steps(value: Mapping[Any, Any], path: str = "") -> Generator[int, None, dict[str, dict[Any, Any]]]:
    """The same, in steps of so many."""
    return _table(value, TOPIC_TABLE, path)


def topic_config(topic: str, read: int, write: int, perm: int, *, line: Line, **fields: Any) -> dict[str, Any]:
    """Return an entry of topicConfigTable, with RocketMQ's defaults except `fields`."""
    attributes: dict[str, Any] = {"attributes": {}} if line.tables.topic_attributes else {}
    config = {
        "order": False, "perm": perm, "readQueueNums": read, "topicFilterType": "SINGLE_TAG", "topicName": topic,
        "topicSysFlag": 0, "writeQueueNums": write,
    }  # fmt: skip
    return {**attributes, **config, **fields}


def topic_attributes(value: Mapping[Any, Any], path: str = "") -> dict[str, dict[str, str]]:
    """The attributes of every topic (5.x)."""
    by_topic = {}
    for topic, fields in topics(value, path).items():
        attributes = _mapping(_or_empty(fields.get("attributes")), f"attributes of {topic}", path)
        by_topic[topic] = {str(name): str(text) for name, text in attributes.items()}
    return by_topic


def deleted_topics(value: Mapping[Any, Any], path: str = "") -> set[str]:
    """The topics that were deleted and got no message since."""
    names = value.get("deletedTopics") or []
    if not isinstance(names, list):
        raise MalformedConfig(path, "deletedTopics is not a list")
    return {str(topic) for topic in names}


def deleted_topics_value(names: Iterable[str]) -> dict[str, Any]:
    """Return the JSON value of deletedTopics.json."""
    return {"deletedTopics": sorted(names)}


def batch_topics(value: Mapping[Any, Any], path: str = "") -> frozenset[str]:
    """The topics whose queues are batch consume queues."""
    every = topic_attributes(value, path).items()
    return frozenset(topic for topic, attributes in every if attributes.get(QUEUE_TYPE) == BATCH_QUEUE_TYPE)


def read_batch_topics(config: Path) -> frozenset[str]:
    """The same from a store's `config` directory. Raises MalformedConfig."""
    path = config / TOPICS
    return batch_topics(json_files.read(path), str(path))


def topics_value(
    table: Mapping[str, Mapping[str, Any]], version: DataVersion, capacity: int = TOPIC_CAPACITY
) -> dict[str, Any]:
    """Return the JSON value of topics.json with these topics."""
    return {VERSION: version.value(), TOPIC_TABLE: _ordered(table, capacity)}


# consumerOffset.json, delayOffset.json


def consumer_offsets(value: Mapping[Any, Any], path: str = "") -> dict[tuple[str, str], dict[int, int]]:
    """(topic, group): queue id: the next offset to consume."""
    return at_once(consumer_offsets_in_steps(value, path))


def consumer_offsets_in_steps(
    value: Mapping[Any, Any], path: str = ""
) -> Generator[int, None, dict[tuple[str, str], dict[int, int]]]:
    """The same, in steps of so many queues."""
    by_group = {}
    for key, offsets in _mapping(_or_empty(value.get(OFFSET_TABLE)), OFFSET_TABLE, path).items():
        topic, separator, group = str(key).partition(GROUP_SEPARATOR)
        if not separator:
            raise MalformedConfig(path, f"{key!r} in {OFFSET_TABLE} is not topic{GROUP_SEPARATOR}group")
        if _are_plain_numbers(offsets):
            by_group[topic, group] = dict(offsets)
            yield len(offsets)
            continue
        what, of_key = f"{OFFSET_TABLE}: {key}", dict[int, int]()
        entries = iter(_mapping(offsets, what, path).items())
        while some := list(islice(entries, QUEUES_A_STEP)):
            of_key.update((_number(queue, what, path), _number(offset, what, path)) for queue, offset in some)
            yield len(some)
        by_group[topic, group] = of_key
    for key, offset in _mapping(_or_empty(value.get(LIGHT_TABLE)), LIGHT_TABLE, path).items():
        topic, _separator, group = str(key).partition(GROUP_SEPARATOR)
        by_group[topic, group] = {0: _number(offset, f"{LIGHT_TABLE}: {key}", path)}
        yield 1
    return by_group


def _are_plain_numbers(offsets: Any) -> bool:
    """Whether they are a step's queues at most, all of them 64-bit numbers."""
    if type(offsets) is not dict or not 0 < len(offsets) <= QUEUES_A_STEP or {*map(type, offsets)} != {int}:
        return False
    values = offsets.values()
    return (
        {*map(type, values)} == {int}
        and min(offsets) >= INT64_MIN
        and max(offsets) <= INT64_MAX
        and min(values) >= INT64_MIN
        and max(values) <= INT64_MAX
    )


def consumer_offsets_value(
    table: Mapping[tuple[str, str], Mapping[int, int]],
    version: DataVersion | None = None,
    group_topics: Mapping[str, Iterable[str]] | None = None,
    capacity: int = OFFSET_CAPACITY,
    *,
    light: bool = False,
) -> dict[str, Any]:
    """What consumerOffset.json says; 5.x has a version, and the topics that every group asked for (`group_topics`).

    `light`: as lmqConsumerOffset.json has it, light groups in a table of their own.
    """
    named = {GROUP_SEPARATOR.join(key): _by_number(offsets) for key, offsets in table.items()}
    value: dict[str, Any] = {} if version is None else {VERSION: version.value()}
    if group_topics is not None:
        lists = {group: list(names) for group, names in group_topics.items()}
        value["groupTopicMap"] = {group: lists[group] for group in java_order(lists, GROUP_TOPIC_CAPACITY)}
    plain = {key: of for key, of in named.items() if not light or not is_of_light_group(key)}
    if light:
        offsets = {key: next(iter(of.values()), 0) for key, of in named.items() if key not in plain}
        value[LIGHT_TABLE] = {key: offsets[key] for key in java_order(offsets, capacity)}
    return {**value, OFFSET_TABLE: {key: plain[key] for key in java_order(plain, capacity)}}


def is_of_light_group(key: str) -> bool:
    """Whether `topic@group` names a light group, whose one offset RocketMQ keeps without a queue id."""
    return is_lmq(key.partition(GROUP_SEPARATOR)[2])


def delay_offsets(value: Mapping[Any, Any], path: str = "") -> dict[int, int]:
    """Delay level: the next offset to deliver."""
    return _offsets(_or_empty(value.get(OFFSET_TABLE)), OFFSET_TABLE, path)


def delay_offsets_value(offsets: Mapping[int, int], version: DataVersion | None = None) -> dict[str, Any]:
    """Return what delayOffset.json says; 5.x has a version."""
    head: dict[str, Any] = {} if version is None else {VERSION: version.value()}
    return {**head, OFFSET_TABLE: _by_number(offsets)}


def _by_number(offsets: Mapping[int, int]) -> dict[int, int]:
    return {key: offsets[key] for key in java_order(offsets, DELAY_CAPACITY)}


# subscriptionGroup.json


def groups(value: Mapping[Any, Any], path: str = "") -> dict[str, dict[Any, Any]]:
    """The configuration of every consumer group, fields by their names in the file."""
    return at_once(groups_in_steps(value, path))


def groups_in_steps(value: Mapping[Any, Any], path: str = "") -> Generator[int, None, dict[str, dict[Any, Any]]]:
    """The same, in steps of so many."""
    return _table(value, GROUP_TABLE, path)


def groups_value(
    table: Mapping[str, Mapping[str, Any]],
    version: DataVersion,
    forbidden: Mapping[str, Mapping[str, int]],
    capacity: int = GROUP_CAPACITY,
) -> dict[str, Any]:
    """Return the JSON value of subscriptionGroup.json with these groups."""
    return {**groups_head(version, forbidden), GROUP_TABLE: _ordered(table, capacity)}


def groups_head(version: DataVersion, forbidden: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Return what the file says before the groups; of what is forbidden only 5.x."""
    if version.state_version is None:
        return {VERSION: version.value()}
    groups_in_order = java_order(forbidden, FORBIDDEN_CAPACITY)
    topics_of = {group: java_order(forbidden[group], FORBIDDEN_TOPICS_CAPACITY) for group in groups_in_order}
    table = {group: {topic: forbidden[group][topic] for topic in topics_of[group]} for group in groups_in_order}
    return {VERSION: version.value(), FORBIDDEN_TABLE: table}


def forbidden_topics(value: Mapping[Any, Any], path: str = "") -> dict[str, dict[str, int]]:
    """Return by group the topics that it may not use, each with bits of what is forbidden."""
    table = _mapping(_or_empty(value.get(FORBIDDEN_TABLE)), FORBIDDEN_TABLE, path)
    return {
        str(group): {str(topic): _number(bits, f"{FORBIDDEN_TABLE}: {group}", path) for topic, bits in of.items()}
        for group, of in ((group, _mapping(of, f"{FORBIDDEN_TABLE}: {group}", path)) for group, of in table.items())
    }


def _ordered(table: Mapping[str, Mapping[str, Any]], capacity: int) -> dict[str, Any]:
    """Entries in Java's order, the fields of each by name."""
    return {key: dict(sorted(table[key].items())) for key in java_order(table, capacity)}
