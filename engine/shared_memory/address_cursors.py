"""Addresses that one process announces to all others, through three words of the shared counters.

Nobody reads half of an IPv4 address, because a word is moved whole. The word of an IPv6 address is taken away before
the other two change, and read again after them.
"""

from __future__ import annotations

from engine.shared_memory.addresses import IPV6, Packed, pack, text
from engine.shared_memory.declarations import AddressCursors
from ipc import waiting

READS_MAX = 100  # while the writer is in the middle of it: some stores, once in a connection's life


def publish(at: AddressCursors, host: str, port: int) -> None:
    """Announce an address. Raises ValueError as `addresses.pack`."""
    word, high, low = pack(host, port)
    if at.high.read() != high or at.low.read() != low:
        waiting.publish(at.word, 0)  # before the others change: a reader that finds two values of it reads again
        waiting.publish(at.high, high)
        waiting.publish(at.low, low)
    waiting.publish(at.word, word)


def read(at: AddressCursors) -> Packed:
    """The words as they belong together."""
    for _ in range(READS_MAX):
        word = at.word.read()
        address = Packed(word, at.high.read(), at.low.read()) if word & IPV6 else Packed(word)
        if at.word.read() == word:
            return address
    return Packed(0)


def text_of(at: AddressCursors) -> str:
    """Return the announced address as text, in the form of `addresses.text`."""
    return text(*read(at))
