"""The transactions role's ring: one put at a time, noted before it counts, so that a death puts nothing back twice."""

from __future__ import annotations

from typing import NamedTuple

from engine.producer.pipeline import Pipeline
from engine.settings.config import BrokerConfig
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from ipc.ring import DESCRIPTOR_WORDS, Descriptor

PUTS_MAX = 64
NOTHING = -1


class HalfPut(NamedTuple):
    """A put: which half message it stands for, NOTHING for what an administrator asked for."""

    half_offset: int
    number: int = NOTHING  # of an administrator's request


class HalfPuts(Pipeline):
    """A claimed ring whose tokens are HalfPuts."""

    def __init__(self, config: BrokerConfig, counters: BrokerCounters) -> None:
        self._words = counters.transactions
        self._was_ring = self._words.put_ring.read() - 1
        super().__init__(
            config,
            counters,
            puts_max=PUTS_MAX,
            bytes_max=config.ring_bytes // 2,
            wanted_ring=self._was_ring if self._was_ring >= 0 else None,
        )

    @property
    def is_drained(self) -> bool:
        """Whether the writer has passed all that was published before."""
        return self.head >= self.tail

    def settle(self) -> tuple[int, bool]:
        """(the half message that the last put of the process before stood for, whether it is in the log), NOTHING for
        the first where there was none, or nobody knows. Once it is drained."""
        words, number, half = self._words, self._words.put_number.read(), self._words.put_offset.read()
        same_ring, put_ring = self._was_ring == self._claimed.number, self._claimed.number + 1
        is_known = number >= 0 and same_ring and self.tail - self.ring.descriptors <= number < self.tail
        descriptors = self.ring.words.reshape(-1, DESCRIPTOR_WORDS)
        is_put = is_known and descriptors[number % self.ring.descriptors, Descriptor.PHYSICAL_OFFSET] >= 0
        waiting.publish(words.put_number, NOTHING)
        waiting.publish(words.put_ring, put_ring)
        return (half, bool(is_put)) if is_known else (NOTHING, False)

    def numbered(self, token: HalfPut, number: int) -> None:
        """Note under which number a half message is published."""
        waiting.publish(self._words.put_number, NOTHING)
        if token.half_offset != NOTHING:
            waiting.publish(self._words.put_offset, token.half_offset)
            waiting.publish(self._words.put_number, number)
