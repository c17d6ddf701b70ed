"""The options of `spark.read.format("rocketmq")`, checked: text from the user to values, or an error that helps.

Names are Kafka's where Kafka's source has the option, RocketMQ's otherwise; Spark ignores their case.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from spark_bridge.option_values import InvalidOption, count, nearest
from spark_bridge.row_options import DEFAULT_ROWS, ROW_OPTION_NAMES, RowOptions, parse_row_options

OPTION_NAMES = (
    "path",
    "topic",
    "subscribe",
    "startingOffsets",
    "endingOffsets",
    "splitBytes",
    "minPartitions",
    *ROW_OPTION_NAMES,
)
EARLIEST, LATEST = -2, -1  # Kafka's numbers inside the JSON form
SPLIT_BYTES_MIN = 4096

QueueOffsets = dict[str, dict[int, int]]


@dataclass(frozen=True)
class ReadOptions:
    """What one read asked for. `topics` None is every topic; offsets not named are the queue's own ends."""

    path: str
    topics: tuple[str, ...] | None = None
    starting_offsets: tuple[tuple[str, int, int], ...] = ()
    ending_offsets: tuple[tuple[str, int, int], ...] = ()
    split_bytes: int | None = None
    partitions_min: int | None = None
    rows: RowOptions = DEFAULT_ROWS


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Checked options. Raises InvalidOption naming the option, its value and what would do."""
    given = {name.lower(): value for name, value in options.items()}
    known = {name.lower(): name for name in OPTION_NAMES}
    for name in given:
        if name not in known:
            raise InvalidOption(f"unknown option {name!r} of format rocketmq; {nearest(name, OPTION_NAMES)}")
    path = given.get("path", "")
    if not path:
        raise InvalidOption('option path is missing: the root directory of a store, .option("path", STORE)')
    starting = _offsets("startingOffsets", given.get("startingoffsets", "earliest"))
    ending = _offsets("endingOffsets", given.get("endingoffsets", "latest"))
    return ReadOptions(
        path=path,
        topics=_topics(given, starting, ending),
        starting_offsets=_flat(starting),
        ending_offsets=_flat(ending),
        split_bytes=count("splitBytes", given.get("splitbytes"), SPLIT_BYTES_MIN),
        partitions_min=count("minPartitions", given.get("minpartitions"), 1),
        rows=parse_row_options(given),
    )


def _topics(given: Mapping[str, str], starting: QueueOffsets, ending: QueueOffsets) -> tuple[str, ...] | None:
    """The topics selected: by option, else those that the offsets name."""
    if "topic" in given and "subscribe" in given:
        raise InvalidOption("topic and subscribe are two names of one option: give one of them")
    text = given.get("topic", given.get("subscribe"))
    named = {*starting, *ending}
    if text is None:
        return tuple(sorted(named)) or None
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise InvalidOption(f"topic={text!r}: a topic, or several with commas between them")
    for topic in sorted(named - set(topics)):
        raise InvalidOption(f"offsets are given for topic {topic!r}, which is not among topic={text!r}")
    return topics


def _offsets(option: str, text: str) -> QueueOffsets:
    """{} when every queue starts (ends) at its own end; else {topic: {queueId: offset}} without the -1 and -2."""
    own_end, other_end = ("earliest", "latest") if option == "startingOffsets" else ("latest", "earliest")
    word = text.strip().lower()
    if word == own_end:
        return {}
    if word == other_end:
        raise InvalidOption(f"{option}={text}: a batch read of that would always be empty; give {own_end}, or JSON")
    try:
        parsed = json.loads(text)
        offsets = {
            str(topic): {int(queue): _offset(offset) for queue, offset in queues.items()}
            for topic, queues in parsed.items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        example = '{"topic":{"0":42}}'
        raise InvalidOption(f"{option}={text!r} ({error}): give {own_end}, or JSON as {example}") from error
    empty_mark = LATEST if option == "startingOffsets" else EARLIEST
    for topic, queues in offsets.items():
        for queue, offset in queues.items():
            if offset == empty_mark:
                raise InvalidOption(f"{option}: {offset} for queue {queue} of {topic!r} would always be empty")
    return offsets


def _offset(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < EARLIEST:
        raise ValueError(f"{value!r} is not an offset")
    return value


def _flat(offsets: QueueOffsets) -> tuple[tuple[str, int, int], ...]:
    """(topic, queueId, offset) of the real offsets: -1 and -2 are what a queue has anyway."""
    return tuple(
        (topic, queue, offset) for topic, queues in offsets.items() for queue, offset in queues.items() if offset >= 0
    )
