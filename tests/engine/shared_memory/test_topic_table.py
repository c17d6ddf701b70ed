"""Messages and bytes of each topic: exact, whatever the dispatcher goes through again after a kill."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from engine.shared_memory.topic_table import HEADER_WORDS, SLOT_WORDS, TopicTable, TopicWord
from ipc.errors import RegionMissing
from store.recovery.dispatch import Dispatcher
from tests.harness.logs import QUEUE_FILE_BYTES, SmallLog


def filled(root: Path, count: int = 120, topics: int = 5) -> SmallLog:
    log = SmallLog(root / "store")
    log.fill(count, topics)
    return log


def expected(log: SmallLog) -> tuple[Counter[str], Counter[str]]:
    messages: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for record in log.records:
        messages[record.topic] += 1
        size[record.topic] += record.size
    return messages, size


def counts(table: TopicTable) -> tuple[Counter[str], Counter[str]]:
    found = table.read()
    return Counter({one.topic: one.messages for one in found}), Counter({one.topic: one.bytes for one in found})


def dispatch(log: SmallLog, table: TopicTable, begin: int, end: int) -> None:
    builder = Dispatcher(log.files, log.directory.consumequeue, QUEUE_FILE_BYTES, on_rows=table.put)
    assert builder.dispatch(begin, end) == end
    builder.close()


def test_every_message_counts_once(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.append("ünlike any other", b"x")
    TopicTable.create(tmp_path)
    table = TopicTable.attach(tmp_path, writable=True)
    dispatch(log, table, 0, log.end)
    reader = TopicTable.attach(tmp_path)
    assert counts(reader) == counts(table) == expected(log)
    assert reader.totals() == (len(log.records), sum(record.size for record in log.records))
    for one in (table, reader):
        one.close()


@pytest.mark.parametrize("seed", range(12))
def test_a_killed_dispatcher_counts_nothing_twice(tmp_path: Path, seed: int) -> None:
    dice, log = random.Random(seed), filled(tmp_path, 60, 7)
    ends = [record.end for record in log.records]
    TopicTable.create(tmp_path)
    published = counted = 0
    for _life in range(6):
        table = TopicTable.attach(tmp_path, writable=True)  # a new process, which begins at the published cursor
        reached = dice.choice([end for end in ends if end > published])
        dispatch(log, table, published, reached)
        counted = max(counted, reached)
        assert table.totals()[0] == sum(end <= counted for end in ends)
        table.close()
        published = dice.choice([published, reached if reached < log.end else published])


def test_a_killed_dispatcher_may_die_between_two_topics(tmp_path: Path) -> None:
    log = filled(tmp_path)
    TopicTable.create(tmp_path)
    table = TopicTable.attach(tmp_path, writable=True)

    dispatch(log, table, 0, log.end)
    for slot in range(3, len(table.read()) + 1):  # the word by which a topic's new counts hold is the last one written
        table._words[HEADER_WORDS + slot * SLOT_WORDS + TopicWord.VERSION] -= 1
    assert 0 < table.totals()[0] < len(log.records)
    table.close()
    again = TopicTable.attach(tmp_path, writable=True)
    dispatch(log, again, 0, log.end)
    assert counts(again) == expected(log)
    again.close()


def test_topics_without_a_slot_are_counted_together(tmp_path: Path) -> None:
    log = filled(tmp_path, 90, 9)
    TopicTable.create(tmp_path, slots=4)
    table = TopicTable.attach(tmp_path, writable=True)
    dispatch(log, table, 0, log.end)
    messages, _bytes = counts(table)
    assert messages == Counter({"topic0": 10, "topic1": 10, "topic2": 10, "(other topics)": 60})
    table.close()
    again = TopicTable.attach(tmp_path, writable=True)
    dispatch(log, again, 0, log.end)
    assert again.totals()[0] == 90
    again.close()


def test_no_table_without_a_broker(tmp_path: Path) -> None:
    with pytest.raises(RegionMissing):
        TopicTable.attach(tmp_path)
