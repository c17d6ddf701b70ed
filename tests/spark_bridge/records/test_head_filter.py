"""What selections ask of heads: generated selections over generated logs, against a filter in plain Python."""

from __future__ import annotations

import random
import re
from typing import NamedTuple

import numpy as np
import pytest

from spark_bridge.options.ranges import NUMBER_MAX, UNLIMITED, Range, Ranges
from spark_bridge.records import head_filter
from spark_bridge.records.head_filter import ANY, filter_of
from spark_bridge.records.selection import select
from spark_bridge.records.walk import collected, walked
from spark_bridge.split.splits import Selection
from store.columns.window import LogWindow
from store.message.host import Host
from store.message.properties import parse
from store.message.record import MAGIC_V1, MAGIC_V2, SysFlag, encode
from store.message.topics import is_system_topic

TOPICS = (
    "orders", "order", "orders2", "%RETRY%group", "TBW102", "TBW103", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer",
    "rmq_s", "RMQ_SYS_TRANS_HALF_TOPIC", "BenchmarkTest", "a", "abc", "t" * 127, "grün",
)  # fmt: skip
FLAGS = (0, 0, 0, 0, int(SysFlag.TRANSACTION_PREPARED), int(SysFlag.TRANSACTION_ROLLBACK), int(SysFlag.COMPRESSED),
         int(SysFlag.INNER_BATCH), int(SysFlag.TRANSACTION_COMMIT))  # fmt: skip
HOSTS = (Host("127.0.0.1", 10911), Host("2001:db8:0:0:0:0:0:1", 10912))
PROPERTIES = (
    b"", b"TAGS\x01red", b"TAGS\x01red\x02KEYS\x01k\x02", b"KEYS\x01TAGS\x02TAGS\x01blue",
    b"XTAGS\x01red\x02TAGS\x01\x02",
    b"TAGS\x01red\x02TAGS\x01blue\x02", "TAGS\x01grün".encode(), b"TAGS\x01\xff",
    b"A\x01" + b"b" * 90 + b"\x02TAGS\x01red",
)  # fmt: skip
TAGS = ("red", "blue", "grün", "\ufffd", "re", "", "other")
RECORDS, SELECTIONS = 400, 600


class Put(NamedTuple):
    """A record of the log."""

    offset: int
    topic: str
    queue_id: int
    queue_offset: int
    stored_ms: int
    born_ms: int
    sys_flag: int
    body_bytes: int
    properties: bytes


def log_of(chance: random.Random) -> tuple[LogWindow, list[Put]]:
    base, data, puts = chance.choice((0, 1 << 30)), b"", []
    for _ in range(RECORDS):
        put = Put(base + len(data), chance.choice(TOPICS), chance.randrange(5), chance.randrange(40),
                  1000 + chance.randrange(60), 900 + chance.randrange(60), chance.choice(FLAGS), chance.randrange(40),
                  chance.choice(PROPERTIES))  # fmt: skip
        data += encode(
            topic=put.topic, body=bytes(put.body_bytes), queue_id=put.queue_id, queue_offset=put.queue_offset,
            store_timestamp_ms=put.stored_ms, born_timestamp_ms=put.born_ms, sys_flag=put.sys_flag,
            physical_offset=put.offset, born_host=chance.choice(HOSTS), store_host=chance.choice(HOSTS),
            magic=chance.choice((MAGIC_V1, MAGIC_V2)), properties=put.properties,
        )  # fmt: skip
        puts.append(put)
    array = np.frombuffer(data, np.uint8)
    return LogWindow("a segment", base, array, base + len(array)), puts


def range_of(chance: random.Random, values: list[int]) -> Range:
    def limit() -> int | None:
        return chance.choice((None, chance.choice(values), chance.choice((0, -1, -NUMBER_MAX - 1, NUMBER_MAX + 1))))

    return Range(limit(), limit())


def selection_of(chance: random.Random, puts: list[Put]) -> Selection:
    def some(values: tuple[object, ...]) -> frozenset[object] | None:
        return chance.choice((None, None, frozenset(chance.sample(values, chance.randrange(len(values))))))

    fields = ("queue_offset", "offset", "stored_ms", "born_ms")
    ranges = Ranges(*(range_of(chance, [getattr(put, name) for put in puts]) for name in fields))
    pairs = tuple((put.topic, put.queue_id) for put in puts[:20])
    return Selection(
        topics=some(TOPICS),  # type: ignore[arg-type]
        queue_ids=some((0, 1, 2, 3, 4, 7, -1)),  # type: ignore[arg-type]
        system_topics=chance.choice((True, False)),
        topic_pattern=chance.choice((None, None, None, "order.*", ".*[0-9]")),
        queues=chance.choice((None, None, frozenset(chance.sample(pairs, 5)))),
        ranges=chance.choice((UNLIMITED, ranges)),
        tags=some(TAGS),  # type: ignore[arg-type]
    )


def is_wanted(put: Put, asked: Selection, lengths: Range = ANY) -> bool:
    if put.sys_flag & SysFlag.TRANSACTION_PREPARED:  # also the bit of those that were rolled back
        return False
    if asked.queue_ids is not None and put.queue_id not in asked.queue_ids:
        return False
    if asked.topics is not None and put.topic not in asked.topics:
        return False
    if asked.topic_pattern is not None and not re.fullmatch(asked.topic_pattern, put.topic):
        return False
    if asked.topics is None and not asked.system_topics and is_system_topic(put.topic):
        return False
    if asked.queues is not None and (put.topic, put.queue_id) not in asked.queues:
        return False
    if put.sys_flag & SysFlag.INNER_BATCH:
        return True
    are_bytes = asked.tags is not None and "\ufffd" not in asked.tags  # else it is asked later
    if are_bytes and parse(put.properties).get("TAGS") not in (asked.tags or ()):
        return False
    values = (put.queue_offset, put.offset, put.stored_ms, put.born_ms, put.body_bytes)
    return all(
        (limits.first is None or value >= limits.first) and (limits.end is None or value < limits.end)
        for value, limits in zip(values, (*asked.ranges, lengths), strict=True)
    )


@pytest.mark.parametrize("topics_max", [head_filter.TOPICS_MAX, 3])
def test_a_walk_admits_what_a_plain_filter_admits(topics_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_filter, "TOPICS_MAX", topics_max)
    chance, admitted = random.Random(topics_max), 0
    window, puts = log_of(chance)
    for number in range(SELECTIONS):
        if number % 100 == 99:
            window, puts = log_of(chance)
        asked = selection_of(chance, puts)
        lengths = chance.choice((ANY, ANY, range_of(chance, list(range(40)))))
        wanted = [put.offset for put in puts if is_wanted(put, asked, lengths)]
        chunks = [select(found, asked) for found in walked(window, 0, 0, window.length, filter_of(asked, lengths))]
        assert [int(at) for found in chunks for at in window.offsets(found.starts)] == wanted, asked
        starts = np.array([put.offset for put in puts]) - window.base_offset
        assert (
            window.offsets(select(collected(window, starts, filter_of(asked, lengths)), asked).starts).tolist()
            == wanted
        )
        admitted += bool(wanted)
    assert SELECTIONS // 5 < admitted < SELECTIONS


def test_each_topic_is_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    window, puts = log_of(random.Random(1))
    judged: list[str] = []

    def admits(_selection: Selection, topic: str) -> bool:
        judged.append(topic)
        return True

    monkeypatch.setattr(Selection, "admits", admits)
    admitted = filter_of(Selection(topic_pattern=".*"))
    for _ in range(2):
        assert sum(map(len, walked(window, 0, 0, window.length, admitted))) > RECORDS // 2
    assert sorted(judged) == sorted({put.topic for put in puts})


def test_names_of_many_bytes_are_forgotten_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_filter, "NAMES_BYTES_MAX", 200)
    window, puts = log_of(random.Random(2))
    asked = Selection(topics=frozenset({"t" * 127, "a"}))
    wanted = [put.offset for put in puts if is_wanted(put, asked)]
    admitted = filter_of(asked)
    found = [int(at) for records in walked(window, 0, 0, window.length, admitted) for at in records.starts]
    assert [at + window.base_offset for at in found] == wanted
    assert len(admitted.wanted.topics.names) <= 2 * head_filter.NAMES_BYTES
