"""Client message ids: the property UNIQ_KEY as a Java client, or a broker of 5.x, makes it.

Implements: MessageClientIDSetter (spec: store-formats, section 7)
Upper-case hexadecimal: address (4 or 16 bytes), process id (2), a number for this process (4, Java's class loader
hash), milliseconds since the month began in local time (4), a counter (2). Time and counter are one number here, which
only grows: a batch of more than 65,536 messages runs into the next millisecond instead of into its own first ids.
"""

from __future__ import annotations

import ipaddress
import os
import threading
import time
from functools import lru_cache

from ipc.clock import wall_ms

PID_MASK, VARYING_DIGITS = 0xFFFF, 12
VARYING_MASK = (1 << 4 * VARYING_DIGITS) - 1
COUNTER_BITS, NEW_MONTH_MS = 16, 24 * 3600 * 1000


@lru_cache(maxsize=24)
def month_began_ms(year: int, month: int) -> int:
    """Return when a month begins in local time, in ms."""
    return int(time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))) * 1000


def milliseconds_into_month(now_ms: int) -> int:
    """Return the milliseconds since the month began, in local time."""
    local = time.localtime(now_ms // 1000)
    return max(0, now_ms - month_began_ms(local.tm_year, local.tm_mon))


class UniqueKeys:
    """The keys of one producer. `prefix` is what all of them begin with."""

    def __init__(self, address: str) -> None:
        raw = ipaddress.ip_address(address).packed
        loader = int.from_bytes(os.urandom(4), "big")
        self.prefix = f"{raw.hex()}{os.getpid() & PID_MASK:04x}{loader:08x}".upper()
        self._next = 0
        self._lock = threading.Lock()

    def reserve(self, count: int) -> int:
        """The first of `count` numbers that nobody else gets."""
        begin = milliseconds_into_month(wall_ms()) << COUNTER_BITS
        with self._lock:
            if self._next - begin > NEW_MONTH_MS << COUNTER_BITS:
                self._next = 0
            first = max(self._next, begin)
            self._next = first + count
        return first

    def text(self, number: int) -> str:
        """The key of a number."""
        return f"{self.prefix}{number & VARYING_MASK:012X}"

    def new(self) -> str:
        """A key that no other message has."""
        return self.text(self.reserve(1))
