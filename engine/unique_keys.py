"""Client message ids: the property UNIQ_KEY as a Java client, or a broker of 5.x, makes it.

Implements: MessageClientIDSetter (spec: store-formats, section 7)
Upper-case hexadecimal: address (4 or 16 bytes), process id (2), a number for this process (4, Java's class loader
hash), milliseconds since the month began in local time (4), a counter (2).
"""

from __future__ import annotations

import itertools
import os
import time
from functools import cache

from engine.role import wall_clock_ms

COUNTER_MASK, PID_MASK, WORD_MASK = 0xFFFF, 0xFFFF, 0xFFFFFFFF
_counter = itertools.count()


@cache
def prefix(pid: int, address: bytes) -> str:
    """The part that stays: of a process, so that a forked one makes another."""
    return f"{address.hex()}{pid & PID_MASK:04x}{int.from_bytes(os.urandom(4), 'big'):08x}".upper()


@cache
def month_began_ms(year: int, month: int) -> int:
    """When a month begins, local time."""
    return int(time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))) * 1000


def milliseconds_into_month(now_ms: int) -> int:
    """How far the month has gone, local time."""
    local = time.localtime(now_ms // 1000)
    return max(0, now_ms - month_began_ms(local.tm_year, local.tm_mon))


def new_key(address: bytes = b"\x7f\x00\x00\x01") -> str:
    """A key that no other message has."""
    since = milliseconds_into_month(wall_clock_ms()) & WORD_MASK
    return f"{prefix(os.getpid(), address)}{since:08X}{next(_counter) & COUNTER_MASK:04X}"
