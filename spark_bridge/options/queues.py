"""Queues, offsets and moments from the JSON and the words of options: Kafka's shape and rocketmq-spark's.

    {"topic": {"0": 42}}                  Kafka's: the queue of that number, of every store
    {"topic": {"broker-a": {"0": 42}}}    rocketmq-spark's: the queue of one broker
    {"topic": [0, 1]}, {"topic": {"broker-a": [0, 1]}}    the same two for `assign`

A moment is milliseconds since 1970, ISO 8601 (UTC unless it says otherwise), or relative to now: -10m.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from ipc.clock import ms_of
from spark_bridge.options.values import InvalidOption, json_value

EARLIEST, LATEST = -2, -1  # Kafka's numbers inside the JSON form
UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
RELATIVE = re.compile(r"-([0-9]{1,12})(ms|s|m|h|d)").fullmatch
MILLISECONDS = re.compile(r"[0-9]{1,15}").fullmatch
QUEUE_ID = re.compile(r"[0-9]{1,9}").fullmatch
OFFSET_MAX = 2**63 - 1
Value = TypeVar("Value")


class QueueName(NamedTuple):
    """A queue that options name; `broker` None is that queue of every store."""

    topic: str
    queue_id: int
    broker: str | None = None

    def is_of(self, broker_name: str) -> bool:
        """Whether it is a queue of that broker."""
        return self.broker in (None, broker_name)


class QueueOffset(NamedTuple):
    """An offset that options give for a queue: EARLIEST and LATEST are the queue's own ends."""

    queue: QueueName
    offset: int


class Moment(NamedTuple):
    """A time: since 1970, or before the moment at which a read is planned."""

    ms: int
    is_relative: bool = False

    def at(self, now_ms: int) -> int:
        """Return the moment in milliseconds since 1970."""
        return now_ms - self.ms if self.is_relative else self.ms


class QueueMoment(NamedTuple):
    """A moment that options give for a queue; `queue` None is every queue."""

    queue: QueueName | None
    moment: Moment


def parse_moment(option: str, value: object) -> Moment:
    """Parse a time in milliseconds, ISO 8601 or relative to now. Raises InvalidOption."""
    text = str(value).strip()
    if isinstance(value, int | str) and not isinstance(value, bool):
        if MILLISECONDS(text):
            return Moment(int(text))
        if (relative := RELATIVE(text)) is not None:
            return Moment(int(relative[1]) * UNIT_MS[relative[2]], is_relative=True)
        try:
            parsed = datetime.fromisoformat(text)
            parsed = parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
            return Moment(max(0, ms_of(parsed)))
        except (ValueError, OverflowError):
            pass
    shapes = "milliseconds since 1970, ISO 8601 (2026-11-21T12:00:00Z), or a time before now (-10m, -2h, -7d)"
    raise InvalidOption(f"{option}={value!r}: {shapes}")


def parse_offsets(option: str, text: str, empty_mark: int) -> tuple[QueueOffset, ...]:
    """Offsets by queue; `empty_mark` is the end at which every read would be empty."""

    def offset_of(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not EARLIEST <= value <= OFFSET_MAX:
            raise InvalidOption(f"{option}: {value!r} is not an offset; give a number, {EARLIEST} or {LATEST}")
        if value == empty_mark:
            raise InvalidOption(f"{option}: {value} in {text!r} would always be empty in a batch read")
        return value

    items = _by_queue(option, text, offset_of, '{"topic":{"0":42}} or {"topic":{"broker-a":{"0":42}}}')
    return tuple(QueueOffset(*item) for item in items)


def parse_moments(option: str, text: str) -> tuple[QueueMoment, ...]:
    """Parse moments by queue from JSON. Raises InvalidOption."""
    example = '{"topic":{"0":1795234875352}} or {"topic":{"broker-a":{"0":"-10m"}}}'
    return tuple(QueueMoment(*item) for item in _by_queue(option, text, lambda v: parse_moment(option, v), example))


def parse_assign(text: str) -> tuple[QueueName, ...]:
    """The queues that `assign` names."""
    example = '{"topic":[0,1]} or {"topic":{"broker-a":[0,1]}}'
    queues: list[QueueName] = []
    for topic, below in _json_object("assign", text, example).items():
        for broker, numbers in below.items() if isinstance(below, dict) else [(None, below)]:
            if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
                raise InvalidOption(f"assign={text!r}: {numbers!r} is not a list of queue ids; give JSON as {example}")
            queues.extend(QueueName(topic, number, broker) for number in numbers)
    if not queues:
        raise InvalidOption(f"assign={text!r} names no queue; give JSON as {example}")
    return tuple(dict.fromkeys(queues))


def _by_queue(
    option: str, text: str, value_of: Callable[[object], Value], example: str
) -> Iterator[tuple[QueueName, Value]]:
    """Yield every queue named in either shape, with its value."""
    for topic, below in _json_object(option, text, example).items():
        if not isinstance(below, dict) or not below:
            raise InvalidOption(f"{option}={text!r}: {below!r} names no queue of {topic!r}; give JSON as {example}")
        for name, value in below.items():
            if isinstance(value, dict):
                for queue_id, inner in value.items():
                    yield QueueName(topic, _queue_id(option, queue_id, example), name), value_of(inner)
            else:
                yield QueueName(topic, _queue_id(option, name, example)), value_of(value)


def _json_object(option: str, text: str, example: str) -> dict[str, Any]:
    parsed = json_value(option, text, f"give JSON as {example}")
    if not isinstance(parsed, dict):
        raise InvalidOption(f"{option}={text!r}: give JSON as {example}")
    return parsed


def _queue_id(option: str, text: str, example: str) -> int:
    if not QUEUE_ID(text):
        raise InvalidOption(f"{option}: {text!r} is not a queue id; give JSON as {example}")
    return int(text)
