"""Whether a half message's transaction is decided: as fronts say, or as a message of it in the log shows.

Implements: nothing of RocketMQ's, which asks the producer and writes the message again
The fronts' word comes at once, and is forgotten when the broker ends; the log is searched by the message's unique key,
once it is dispatched as far as it went when the broker started.
"""

from __future__ import annotations

from engine.protocol.sending.end_transaction import transaction_of
from engine.remoting.processors.store_view import StoreView
from engine.settings.config import BrokerConfig
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.decided_table import DecidedTable, State
from ipc.clock import wall_ms
from store.errors import StoreError
from store.message.properties import REAL_TOPIC, UNIQ_KEY
from store.message.record import TRANSACTION_MASK, Message, SysFlag, decode

RECORDS_MAX, BYTES_MAX = 64, 64 << 20  # that have this unique key
CLOCKS_MS = 3_600_000  # by which a producer's clock may be ahead


class CommitsInLog:
    """Commits by what the log has: what runs before this one decided, which no table tells."""

    def __init__(self, config: BrokerConfig, counters: BrokerCounters) -> None:
        self._store, self._counters = StoreView(config, counters), counters

    @property
    def is_known(self) -> bool:
        """Whether all of the runs before is in the index: behind a crash the dispatcher builds it."""
        return self._counters.reput_from_offset.read() >= self._counters.recovered_offset.read()

    def is_of_a_run_before(self, half: Message) -> bool:
        """Whether it was there when this broker started."""
        return half.physical_offset < self._counters.recovered_offset.read()

    def has(self, half: Message, key: bytes) -> bool:
        """Whether the transaction's message is there."""
        topic, unique_key = half.properties.get(REAL_TOPIC), half.properties.get(UNIQ_KEY)
        if not topic or not unique_key:
            return False
        since_ms = half.born_timestamp_ms - CLOCKS_MS
        try:
            answer = self._store.search.query(topic, unique_key, RECORDS_MAX, since_ms, wall_ms(), BYTES_MAX)
            return any(_is_of(decode(record, 0), key) for record in answer.records)
        except (StoreError, OSError):
            return False  # nobody knows: its producer does


class DecidedHalves:
    """Decided transactions of a running broker."""

    def __init__(self, config: BrokerConfig, counters: BrokerCounters) -> None:
        self._tables = [DecidedTable.attach(counters.directory, front) for front in range(config.front_processes)]
        self._log = CommitsInLog(config, counters)

    @property
    def is_known(self) -> bool:
        """Whether `is_decided` tells the truth: what a crash left is in the index."""
        return self._log.is_known

    def is_decided(self, half: Message) -> bool:
        """Whether nobody need be asked about it."""
        key = transaction_of(half)
        states = [table.state_of(key) for table in self._tables]
        if State.COMMITTED in states or State.ROLLED_BACK in states:
            return True
        return self._log.has(half, key)

    def close(self) -> None:
        """Unmap the fronts' tables of decided transactions."""
        for table in self._tables:
            table.close()


def _is_of(message: Message, key: bytes) -> bool:
    return message.sys_flag & TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT and transaction_of(message) == key
