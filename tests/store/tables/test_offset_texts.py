"""Offsets written in steps: the bytes that the whole table makes, little work at a time, and only what changed."""

from __future__ import annotations

import random

import pytest

from engine.protocol.tables.consumer_offsets import ConsumerOffsets
from store.tables import fastjson
from store.tables.entry_texts import PARTS, STEP
from store.tables.tables import DataVersion

VERSION = DataVersion(3, 1_700_000_000_000, 0)


def written(offsets: ConsumerOffsets, version: DataVersion | None) -> tuple[bytes, bytes, list[int]]:
    """Compact, pretty, and the work of each step."""
    with_topics = version is not None
    work = list(offsets.texts.steps(with_topics=with_topics))
    of = offsets.texts.written(version, with_topics=with_topics)
    return of.compact(), of.pretty(), work


def whole(offsets: ConsumerOffsets, version: DataVersion | None) -> tuple[bytes, bytes]:
    value = offsets.value(version, with_topics=version is not None)
    return fastjson.dumps(value).encode(), fastjson.dumps_pretty(value).encode()


@pytest.mark.parametrize("version", [None, VERSION], ids=["4.9", "5"])
@pytest.mark.parametrize("seed", range(5))
def test_the_bytes_are_those_of_the_whole_table(version: DataVersion | None, seed: int) -> None:
    generator = random.Random(seed)
    offsets = ConsumerOffsets({"offsetTable": {"of file@g": {0: 1}}} if seed % 2 else {})
    assert written(offsets, version)[:2] == whole(offsets, version)
    for _ in range(30):
        for _change in range(generator.randrange(40)):
            topic, group = f'top"ic-{generator.randrange(20)}', f"größe-{generator.randrange(9)}"
            match generator.randrange(8):
                case 0:
                    offsets.remove([(topic, group)])
                case 1:
                    taken = {queue: generator.randrange(99) for queue in range(generator.randrange(3))}
                    offsets.take({(topic, group): taken}, never_back=bool(generator.randrange(2)))
                case 2:
                    offsets.restore(dict(offsets.table))
                case _:
                    queue_id = generator.choice((0, 1, 7, 63, 64, 300, 70_000, -1))
                    offsets.commit(group, topic, queue_id, generator.randrange(1 << 40))
        assert written(offsets, version)[:2] == whole(offsets, version)


def many(groups: int, queues: int) -> ConsumerOffsets:
    table = {f"topic-{number}@group-{number}": dict.fromkeys(range(queues), number) for number in range(groups)}
    return ConsumerOffsets({"offsetTable": table})


def test_no_step_does_more_than_a_bounded_part_of_the_work() -> None:
    """Sorting is done in parts of the table, whose names are spread over them as their hashes are."""
    offsets = many(10_000, 10)
    work = written(offsets, VERSION)[2]
    assert max(work) <= STEP + 3
    assert len(work) > 10_000 / STEP


def test_one_group_of_very_many_queues_is_written_in_steps_too() -> None:
    offsets = many(1, 50_000)
    work = written(offsets, None)[2]
    assert max(work) <= STEP + 3 and len(work) > PARTS + 5


def test_only_what_changed_is_written_again() -> None:
    offsets = many(10_000, 10)
    written(offsets, VERSION)
    offsets.commit("group-7", "topic-7", 3, 5)
    compact, _pretty, work = written(offsets, VERSION)
    assert sum(work) < 10
    assert b'"topic-7@group-7":{0:7,1:7,2:7,3:5,4:7' in compact


def test_what_changes_between_two_steps_is_written_the_next_time() -> None:
    offsets = many(300, 1)
    steps = offsets.texts.steps(with_topics=True)
    next(steps)
    offsets.commit("new", "topic", 0, 1)
    offsets.remove([("topic-7", "group-7")])
    list(steps)
    assert b'group-7"' not in offsets.texts.written(VERSION, with_topics=True).compact().partition(b"offsetTable")[2]
    assert written(offsets, VERSION)[:2] == whole(offsets, VERSION)
