"""What a delay level means: the deliver time that the delay topic's queue entries carry instead of a tags hash.

Implements: ScheduleMessageService.parseDelayLevel, computeDeliverTimestamp (spec: store-formats, section 8)
"""

from __future__ import annotations

import re

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
JAVA_INTEGER = re.compile(r"[+-]?[0-9]{1,9}").fullmatch
UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LEVEL = re.compile(r"([0-9]{1,9})([smhd])").fullmatch


def levels_ms(levels: str) -> tuple[int, ...]:
    """The delays of a list of levels as messageDelayLevel is written. Raises ValueError."""
    matches = [LEVEL(level) for level in levels.split()]
    if not matches or None in matches:
        raise ValueError(f"{levels!r} is not a list of delay levels")
    return tuple(int(match[1]) * UNIT_MS[match[2]] for match in matches if match is not None)


DELAYS_MS = levels_ms(DEFAULT_LEVELS)


def queue_tags_code(topic: str, delay: str | None, store_timestamp_ms: int, tags_code: int) -> int:
    """Return what the queue entry of a message says: the hash of its tags, in the delay topic its deliver time in ms.

    Levels below 1 have none, levels above the last are the last. Raises ValueError for a level that is no number, as
    Java's parseInt.
    """
    if delay is None or topic != SCHEDULE_TOPIC:
        return tags_code
    if not JAVA_INTEGER(delay):
        raise ValueError(f"delay level {delay!r} is not a number")
    level = min(int(delay), len(DELAYS_MS))
    return tags_code if level < 1 else store_timestamp_ms + DELAYS_MS[level - 1]
