"""From a word in shared memory to an event loop: a thread that sleeps on the word and rings an eventfd when it moves.

The thread runs compiled code alone and never takes the interpreter's lock: it costs the loop nothing but its wake-up.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from enum import IntEnum

import numpy as np

from ipc.arrays import Words
from ipc.compiled.atomics import await_change, load_acquire, publish, wake
from ipc.compiled.kernels import kernel
from ipc.compiled.system_calls import ring_eventfd

LOOK_NS = 10_000_000_000  # longest sleep; `close` ends it sooner
STOP_SECONDS, JOIN_SECONDS = 5.0, 0.02


class BridgeWord(IntEnum):
    """Words between loop and thread: the BridgeState, on which a resting thread sleeps, and its waiters."""

    STATE = 0
    WAITERS = 1


class BridgeState(IntEnum):
    """The state of a bridge's thread."""

    FOLLOWS = 0
    RESTS = 1  # the process that moves the word need not wake anybody
    ENDS = 2


@kernel
def follow(words: Words, index: int, seen: int, fd: int, own: Words, look_ns: int) -> int:
    """Ring `fd` each time the word has moved from what was `seen`, and when it is followed again, until the end; the
    word's value then."""
    state = load_acquire(own, BridgeWord.STATE)
    while state != BridgeState.ENDS:
        if state == BridgeState.RESTS:
            state = await_change(own, BridgeWord.STATE, BridgeState.RESTS, look_ns)
            if state == BridgeState.FOLLOWS:
                seen = load_acquire(words, index)
                ring_eventfd(fd)
            continue
        now = await_change(words, index, seen, look_ns)
        if now != seen:
            seen = now
            ring_eventfd(fd)
        state = load_acquire(own, BridgeWord.STATE)
    return seen


class Bridge:
    """One followed word. `fd` is readable once it has moved since `heard`; the word must stay mapped until `close`."""

    def __init__(self, words: Words, index: int, *, rests: bool = False) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._words, self._index = words, int(index)
        self._own = np.zeros(len(BridgeWord), np.int64)
        self._own[BridgeWord.STATE] = BridgeState.RESTS if rests else BridgeState.FOLLOWS
        seen = int(words[index])  # now: it may have moved when the thread gets to run
        arguments = (words, self._index, seen, self.fd, self._own, LOOK_NS)
        self._thread = threading.Thread(target=follow, args=arguments, name="bridge", daemon=True)
        self._thread.start()

    def heard(self) -> None:
        """Reset the eventfd: the caller has seen all that moved until now."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.fd)

    @property
    def rests(self) -> bool:
        """Whether the word is not followed now."""
        return bool(self._own[BridgeWord.STATE] == BridgeState.RESTS)

    def rest(self) -> None:
        """Nobody wants to know; until `go_on` nothing rings."""
        publish(self._own, int(BridgeWord.STATE), int(BridgeState.RESTS))

    def go_on(self) -> None:
        """Follow again. It rings once for what moved meanwhile, or did not."""
        publish(self._own, int(BridgeWord.STATE), int(BridgeState.FOLLOWS))

    def close(self) -> None:
        """End the thread, wait for it a limited time, and close the eventfd."""
        publish(self._own, int(BridgeWord.STATE), int(BridgeState.ENDS))
        until = time.monotonic() + STOP_SECONDS
        while self._thread.is_alive() and time.monotonic() < until:
            wake(self._words, self._index)  # where it follows; again, as it may be about to sleep
            self._thread.join(JOIN_SECONDS)
        os.close(self.fd)
