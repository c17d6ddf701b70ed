"""What is counted by name and labels, told as differences, kept over a death, and shown: no count goes back."""

from __future__ import annotations

import random
from pathlib import Path

from engine.monitoring.counted import COMMITTED, HALF, KEPT, RPC, SENT, Counts
from engine.monitoring.sent_messages import DELAY, NORMAL, NOT_SENT, TRANSACTION, SentMessages
from engine.monitoring.series import Histogram, Series
from engine.remoting.files.kept_counts import EACH_MS, STEP, KeptCounts
from engine.shared_memory.topic_table import TopicCount
from store.message.delay import SCHEDULE_TOPIC
from store.message.topics import HALF_TOPIC

BOUNDS = KEPT[RPC].bounds
LABELS = ("remoting", "pull_message", "success", "false", "success")


def test_a_histogram_counts_what_is_not_above_its_bounds() -> None:
    counts, draw = Counts(), random.Random(5)
    values = [draw.choice((0, *BOUNDS, *(bound + 1 for bound in BOUNDS))) for _ in range(500)]
    for value in values:
        counts.observe(RPC, value, *LABELS)
    [series] = counts.series([RPC])
    assert isinstance(series, Histogram)
    [(labels, buckets, total)] = series.samples
    assert labels == LABELS and total == sum(values) and sum(buckets) == len(values)
    for number, bound in enumerate(BOUNDS):
        assert sum(buckets[: number + 1]) == sum(value <= bound for value in values)


def test_differences_add_up_to_what_was_counted(tmp_path: Path) -> None:
    front, kept = Counts(), KeptCounts(tmp_path)
    for number in range(10):
        front.count(COMMITTED, f"t{number % 3}", by=number)
        front.count(HALF, "t", by=-1 if number % 2 else 2)
        front.observe(RPC, number, *LABELS)
        for key, row in front.take():
            kept.add(key, row)
        assert not front.rows
    kept.add(("nobody knows this", "t"), [1])
    kept.add((COMMITTED, "t0"), [1, 2, 3])
    kept.save()
    again = KeptCounts(tmp_path)
    assert again.rows == kept.rows
    assert dict(again.of(COMMITTED)) == {("t0",): [18], ("t1",): [12], ("t2",): [15]}
    assert dict(again.of(HALF)) == {("t",): [5]}


def test_many_rows_are_written_down_in_several_turns(tmp_path: Path) -> None:
    kept = KeptCounts(tmp_path)
    for number in range(2 * STEP + 1):
        kept.count(COMMITTED, f"t{number}", by=number)
    for turn in range(3):
        assert not KeptCounts(tmp_path).rows
        kept.turn(turn)
    assert KeptCounts(tmp_path).rows == kept.rows
    kept.count(COMMITTED, "t7")
    kept.turn(5)
    assert KeptCounts(tmp_path).rows != kept.rows, "once a second"
    for turn in range(3):
        kept.turn(EACH_MS + turn)
    assert KeptCounts(tmp_path).rows == kept.rows


def samples(series: Series) -> dict[tuple[str, ...], float]:
    return dict(series.samples)


def test_messages_that_fronts_reported_are_not_normal_and_no_count_goes_back() -> None:
    told = Counts()
    sent = SentMessages(told)
    topics = [TopicCount("t", 5, 500), TopicCount(HALF_TOPIC, 2, 200), TopicCount("%RETRY%g", 9, 900)]
    messages, sizes = sent.series(topics)
    assert samples(messages) == {("t", NORMAL, "false"): 5} and samples(sizes) == {("t", NORMAL, "false"): 500}
    for _ in range(2):
        told.observe(SENT, 100, HALF_TOPIC, TRANSACTION)
    told.observe(SENT, 100, "t", NOT_SENT)
    told.observe(SENT, 50, SCHEDULE_TOPIC, DELAY)
    messages, sizes = sent.series(topics)
    others = {(HALF_TOPIC, TRANSACTION, "true"): 2, (SCHEDULE_TOPIC, DELAY, "true"): 1}
    assert samples(messages) == {("t", NORMAL, "false"): 5, **others}, "it is told a moment later"
    messages, sizes = sent.series([TopicCount("t", 8, 900)])
    assert samples(messages) == {("t", NORMAL, "false"): 7, **others}
    assert samples(sizes)["t", NORMAL, "false"] == 800
    told.observe(SENT, 50, SCHEDULE_TOPIC, DELAY, by=-1)
    assert samples(next(sent.series([]))) == others, "nothing came of one that was shown"


def test_sizes_of_a_topic_are_those_that_nobody_else_put() -> None:
    told = Counts()
    told.observe(SENT, 2000, "t", NOT_SENT)
    histogram = SentMessages(told).sizes({"t": [3, 1, 0, 0, 0, 0, 0, 2600]})
    [(labels, buckets, total)] = histogram.samples
    assert labels == ("t", NORMAL, "false") and list(buckets) == [3, 0, 0, 0, 0, 0, 0] and total == 600
