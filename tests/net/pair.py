"""A master and a slave with short intervals, and what every test of a bad network asks of them in the end."""

from __future__ import annotations

import random
from pathlib import Path

from engine.producer import Producer
from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from tests.harness.audit import assert_queue_offsets_dense, messages_of
from tests.harness.conditions import await_that
from tests.interop.matrix import digests_of

SEGMENT = 256 * 1024
SOON = {"haSendHeartbeatInterval": 300, "haHousekeepingInterval": 6000}
PATIENT = {"haHousekeepingInterval": 120_000}  # where nobody falls silent: a busy machine does not count
SIZES = {"mappedFileSizeCommitLog": SEGMENT, **SOON}
OURS = {
    **SIZES,
    "mappedFileSizeConsumeQueue": 20_000,
    "ringSizeInBytes": 1 << 20,
    "maxMessageSize": 65536,
    "haReconnectInterval": 200,
}
SYNC = {"brokerRole": "SYNC_MASTER", "slaveTimeout": 1500, **OURS}
SLAVE = {"brokerRole": "SLAVE", "brokerId": 1}
TOPIC = "Net"
# A put that no slave can confirm; the second where a machine stood still, and haHousekeepingInterval was over first.
UNHELD = ("FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE")


def counters_of(store: Path) -> BrokerCounters:
    """The counters of a running broker."""
    return BrokerCounters.attach(extent.require_running(store).region_directory, writable=True)


class Puts:
    """A producer's messages, counted."""

    def __init__(self, producer: Producer) -> None:
        self._producer, self.count = producer, 0

    def one(self, body: bytes = b"one") -> str:
        """The status of one message that is waited for."""
        self.count += 1
        return str(self._producer.send(TOPIC, body).status.value)

    def until_held(self) -> None:
        """Messages that are waited for, until a slave acknowledges one in time: a busy machine's is late at times."""
        await_that(lambda: self.one() == "PUT_OK", "a slave acknowledges in time")

    def many(self, count: int, bytes_max: int = 4000, seed: int = 7) -> None:
        """Messages that nobody waits for, of up to that size."""
        rng = random.Random(seed)
        for _ in range(count):
            self._producer.send(TOPIC, rng.randbytes(rng.randrange(bytes_max)), wait=False)
        self.count += count


def await_acknowledged(counters: BrokerCounters) -> int:
    """Wait until one slave has all of the master's log; where that ends."""
    end = counters.max_physical_offset.read()

    def has_all() -> bool:  # a slave that comes back may get another slot
        return max(words.slave_ack_offset.read() for words in counters.ha) >= end

    await_that(has_all, f"a slave has the log up to {end}")
    return end


def assert_equal(master: Path, slave: Path, end: int, count: int) -> None:
    """Both logs are the same bytes up to `end`, and hold that many messages."""
    logs = [digests_of(store / "commitlog", end) for store in (master, slave)]
    assert logs[0] == logs[1]
    messages = messages_of(slave, end)
    assert_queue_offsets_dense(messages)
    assert len(messages) == count
