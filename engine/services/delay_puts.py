"""The delay role's ring: what is published is noted under its number before it counts, so a death loses nothing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.producer.pipeline import UNPUBLISHED, Pipeline
from engine.producer.pipeline_kernel import REFUSED, DoneWord, StateWord
from engine.protocol.ha.put_status import TOO_LARGE, PutMessageStatus
from engine.services import deliver_kernel
from engine.settings.config import BrokerConfig
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.delay_table import DelayTable
from ipc.arrays import Bytes, Words
from ipc.ring import DESCRIPTOR_WORDS, Descriptor

ILLEGAL = np.array([-number for number in TOO_LARGE], np.int64)
PUTS_MAX, BYTES_SHARE = 8192, 2  # under way; at most half of the ring's bytes in drafts that wait


class Answers(NamedTuple):
    """Entries by what became of their puts: in the log, refused for now, refused for ever."""

    in_log: Words
    refused: Words
    illegal: Words


class DelayPuts(Pipeline):
    """One claimed ring; tokens are entries of the table."""

    def __init__(self, config: BrokerConfig, counters: BrokerCounters, table: DelayTable) -> None:
        self._table_of_levels = table
        self._was_ring = table.ring
        super().__init__(
            config, counters, puts_max=PUTS_MAX, bytes_max=config.ring_bytes // BYTES_SHARE, wanted_ring=self._was_ring
        )

    # after a death

    @property
    def is_drained(self) -> bool:
        """Whether the writer has passed all that was published before."""
        return self.head >= self.tail

    def settle(self) -> tuple[Words, int]:
        """(entries that are in the log, how many nobody knows of) of the process before. Once it is drained."""
        table, number = self._table_of_levels, self._claimed.number
        if self._was_ring != number:
            lost = 0 if self._was_ring is None else table.unanswered()
            entries = table.settled(None)
            table.claim(number, self.tail)
            return entries, lost
        numbers = np.arange(table.first_unanswered(), self.tail)
        descriptors = self.ring.words.reshape(-1, DESCRIPTOR_WORDS)
        places = descriptors[numbers % self.ring.descriptors, Descriptor.PHYSICAL_OFFSET]
        entries = table.settled(numbers[places >= 0])
        table.answered(self.tail, numbers[places < 0])
        return entries, 0

    # publishing

    def numbered(self, token: int, number: int) -> None:
        """Note under which number an entry is published."""
        if number != UNPUBLISHED:
            self._table_of_levels.note(number, token)

    def deliver(self, data: Bytes, rows: Words, first: int, until: int, level: int, now_ns: int) -> int:
        """Publish fast rows `first` to `until`, while there is room; the first one left."""
        until = min(until, first + min(self.rows_free, self.puts_max - self.puts))
        if until <= first:
            return first
        noted = deliver_kernel.Noted(self.table, self.state, self._table_of_levels.rows)
        return int(deliver_kernel.deliver(self.outlet, data, rows.reshape(-1), first, until, level, noted, now_ns))

    @property
    def has_room(self) -> bool:
        """Whether one more may be published."""
        return self.puts < self.puts_max and self.rows_free > 0 and not self.parked_puts

    # answers

    def answers(self, now_ns: int) -> Answers:
        """Return what became of entries since the last call."""
        done = self.harvest(now_ns)
        numbers, places = done[:, DoneWord.NUMBER].copy(), done[:, DoneWord.PHYSICAL_OFFSET].copy()
        entries, is_refused = self._table_of_levels.entries_of(numbers), done[:, DoneWord.STATUS] == REFUSED
        is_illegal = is_refused & (places[:, None] == ILLEGAL).any(axis=1)
        refused, illegal = entries[is_refused & ~is_illegal], entries[is_illegal]
        self.state[StateWord.DONE] = 0
        if len(numbers):
            self._table_of_levels.answered(int(self.state[StateWord.KEPT]), numbers[is_refused & ~is_illegal])
        if self._tokens:
            for number in numbers.tolist():
                self._tokens.pop(number, None)
        self.go_on()
        if self._at_once:
            statuses = np.array([outcome.status is PutMessageStatus.MESSAGE_ILLEGAL for outcome in self._at_once])
            tokens = np.array([outcome.token for outcome in self._at_once], np.int64)
            refused, illegal = np.append(refused, tokens[~statuses]), np.append(illegal, tokens[statuses])
            self._at_once = []
        return Answers(entries[~is_refused], refused, illegal)
