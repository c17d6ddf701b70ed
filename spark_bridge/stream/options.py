"""The options of `spark.readStream.format("rocketmq")`: those of a batch read, and what only a stream has.

Names and meanings are Kafka's: maxOffsetsPerTrigger, minOffsetsPerTrigger, maxTriggerDelay, maxBytesPerTrigger.
A stream starts at `startingOffsets` when it has no checkpoint, and has no end. With Kafka's columns (`schema=kafka`) it
starts where Kafka's does by default: at the end of each queue.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from spark_bridge.options.queues import EARLIEST, LATEST, QueueOffset, parse_offsets
from spark_bridge.options.read import (
    KAFKA_SERVERS,
    START_OPTION_NAMES,
    STREAM_OPTION_NAMES,
    ReadOptions,
    parse_options,
)
from spark_bridge.options.rows import KAFKA
from spark_bridge.options.values import InvalidOption, count
from spark_bridge.options.views import SNAPSHOT, TLS_CONFIG_FILE, CommitOptions, parse_commits
from spark_bridge.stream.limits import Limits

NOT_IN_A_STREAM = (
    "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", SNAPSHOT, "where", "keys", "table",
    "splitBytes", "maxRecordsPerPartition", "maxBytesPerPartition", "leaseSeconds",
)  # fmt: skip
NAME_SERVERS = {"nameserver", KAFKA_SERVERS}
NEVER = EARLIEST - 1  # no offset is refused: a stream may well start at its end
STARTING = "startingOffsets"
DELAY_DEFAULT = "15m"
UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
DURATION = re.compile(r"\s*(\d+)\s*([a-z]*)\s*")


@dataclass(frozen=True)
class StreamOptions:
    """The options of one streaming query. `starting` names queues that do not start where the others do."""

    read: ReadOptions
    limits: Limits
    starts_latest: bool
    starting: tuple[QueueOffset, ...]
    commits: CommitOptions | None = None


def without_stream_only(options: Mapping[str, str]) -> dict[str, str]:
    """The options that a batch read knows, too: Spark asks for the schema before it says which of the two it is."""
    own = {name.lower() for name in STREAM_OPTION_NAMES}
    given = {name.lower() for name in options}
    if "commitgroup" in given and not given & NAME_SERVERS:
        own.add(TLS_CONFIG_FILE.lower())  # it is of the commits
    kept = {name: value for name, value in options.items() if name.lower() not in own}
    for name in [name for name in kept if name.lower() == STARTING.lower()]:
        kept[name] = _as_batch(kept[name])
    return kept


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Checked options. Raises InvalidOption naming the option, its value and what would do."""
    given = {name.lower(): value for name, value in options.items()}
    for name in NOT_IN_A_STREAM:
        if name.lower() in given:
            raise InvalidOption(f"option {name} is one of batch reads: a stream has no end and reads whole queues")
    read = parse_options(without_stream_only(options))
    limits = Limits(
        rows_max=count("maxOffsetsPerTrigger", given.get("maxoffsetspertrigger"), 1),
        rows_min=count("minOffsetsPerTrigger", given.get("minoffsetspertrigger"), 1),
        bytes_max=count("maxBytesPerTrigger", given.get("maxbytespertrigger"), 1),
        delay_max_ms=_milliseconds("maxTriggerDelay", given.get("maxtriggerdelay", DELAY_DEFAULT)),
    )
    if limits.rows_min is not None and limits.rows_max is not None and limits.rows_min > limits.rows_max:
        raise InvalidOption(f"minOffsetsPerTrigger={limits.rows_min} is above maxOffsetsPerTrigger={limits.rows_max}")
    commits = parse_commits(given)
    if read.flights is not None and commits is not None and not commits.brokers:
        what = f"commitGroup={commits.group}: Flight servers do not know the master's address for commits"
        raise InvalidOption(f"{what}; give commitBroker=HOST:PORT")
    text = given.get(STARTING.lower(), _default_start(read, given)).strip()
    return StreamOptions(
        read=read,
        limits=limits,
        starts_latest=text.lower() == "latest",
        starting=_starting(text),
        commits=commits,
    )


def _default_start(read: ReadOptions, given: Mapping[str, str]) -> str:
    """Return Kafka's default for Kafka's columns, unless a time is given: then queues without one are read whole."""
    has_time = any(name.lower() in given for name in START_OPTION_NAMES)
    return "latest" if read.rows.schema == KAFKA and not has_time else "earliest"


def _as_batch(text: str) -> str:
    """Starting offsets as a batch read takes them: there nothing starts at the end."""
    if text.strip().lower() == "latest":
        return "earliest"
    return re.sub(rf"(:\s*){LATEST}\b", rf"\g<1>{EARLIEST}", text)


def _starting(text: str) -> tuple[QueueOffset, ...]:
    """The offsets of the JSON forms, those of both ends among them."""
    return parse_offsets(STARTING, text, NEVER) if text.startswith("{") else ()


def _milliseconds(name: str, text: str) -> int:
    match = DURATION.fullmatch(text.lower())
    if match is None or (match[2] or "ms") not in UNITS_MS:
        raise InvalidOption(f"{name}={text!r}: a number with one of {', '.join(UNITS_MS)}, as 90s or 15m")
    return int(match[1]) * UNITS_MS[match[2] or "ms"]
