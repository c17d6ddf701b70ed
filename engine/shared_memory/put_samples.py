"""Samples of what was put, one a second, in shared memory: what rates over time are made of.

Implements: the sampling of StoreStatsService; the supervisor takes the samples, so no restart of a role loses any
Once a minute the latencies of all producers are kept as well, twice in turn: the difference is the last whole minute's.

Region "samples": word 0 start of the broker by the wall clock in ms, 1 samples taken, 2 minutes taken, 3 the start by
the monotonic clock | from word 8: samples of 4 words (monotonic time in ms, messages, bytes, -), the newest over the
oldest | two blocks as in "latencies", of the last two minutes.
"""

from __future__ import annotations

from contextlib import closing
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine.protocol.store.put_rates import MINUTE_MS, SAMPLE_MS, SAMPLES, Sample, is_due
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.ha_samples import HaSampler
from engine.shared_memory.latencies import BLOCK_WORDS, Latencies, latencies_of, sum_of_rings
from engine.shared_memory.topic_table import TopicTable
from ipc.arrays import Words
from ipc.compiled.atomics import publish
from ipc.region import Region

REGION_KIND, LAYOUT, SAMPLES_FILE = "samples", 1, "samples"


class PutSamplesWord(IntEnum):
    """The words of the region; SAMPLES: the first sample's."""

    BOOT_MS = 0
    TAKEN = 1
    MINUTES = 2
    BEGAN_MS = 3
    SAMPLES = 8


SAMPLE_WORDS = 4
SAMPLE_WORDS_USED = len(Sample._fields)
ROOM = SAMPLES + 1  # the one that may be written just now does not count
MINUTES_AT = PutSamplesWord.SAMPLES + ROOM * SAMPLE_WORDS


class Sampled(NamedTuple):
    """The samples that a reader finds: all there are, oldest first, and the last whole minute.

    The broker's start is `boot_ms` by the wall clock, `began_ms` by the one of the samples.
    """

    boot_ms: int
    began_ms: int
    samples: list[Sample]
    minute: Latencies


def totals_of(counters: BrokerCounters, topics: TopicTable, *, is_slave: bool) -> tuple[int, int]:
    """(messages, bytes) put since the start: a master's writer counts them, a slave's are those dispatched."""
    if is_slave:
        return topics.totals()
    return counters.put_messages.read(), counters.put_bytes.read()


class Sampler:
    """The one who takes the samples."""

    def __init__(self, directory: Path, counters: BrokerCounters, now_ms: int, boot_ms: int, *, is_slave: bool) -> None:
        self._directory, self._counters, self._is_slave = directory, counters, is_slave
        size = (MINUTES_AT + 2 * BLOCK_WORDS) * 8
        self._region = Region.create(directory / SAMPLES_FILE, size, kind=REGION_KIND, layout=LAYOUT)
        self._words: Words = self._region.words
        self._words[PutSamplesWord.BOOT_MS], self._words[PutSamplesWord.BEGAN_MS] = boot_ms, now_ms
        self._topics, self._ha = TopicTable.attach(directory), HaSampler(directory, counters)
        self._last: list[Sample] = []
        self.rests = False  # the last sample was like the one before it: nothing was put, received or acknowledged
        self._minute_at_ms = now_ms

    def take(self, now_ms: int) -> None:
        """A sample when it is due; those that were missed lie evenly between the last one and this one."""
        if not is_due(self._last, now_ms):
            return
        sample = Sample(now_ms, *totals_of(self._counters, self._topics, is_slave=self._is_slave))
        last = self._last[0] if self._last else sample
        missed = min((now_ms - last.time_ms) // SAMPLE_MS, SAMPLES)
        for number in range(1, missed):
            self._put(Sample(*(then + (now - then) * number // missed for then, now in zip(last, sample, strict=True))))
        self._put(sample)
        self._last = [sample]
        self.rests = not self._ha.take(now_ms) and sample[1:] == last[1:]
        if now_ms - self._minute_at_ms >= MINUTE_MS:
            self._minute_at_ms = now_ms
            self._take_minute()

    def _put(self, sample: Sample) -> None:
        taken = int(self._words[PutSamplesWord.TAKEN])
        at = PutSamplesWord.SAMPLES + taken % ROOM * SAMPLE_WORDS
        self._words[at : at + SAMPLE_WORDS_USED] = sample
        publish(self._words, int(PutSamplesWord.TAKEN), taken + 1)

    def _take_minute(self) -> None:
        minutes = int(self._words[PutSamplesWord.MINUTES])
        at = MINUTES_AT + (minutes & 1) * BLOCK_WORDS
        self._words[at : at + BLOCK_WORDS] = sum_of_rings(self._directory)
        publish(self._words, int(PutSamplesWord.MINUTES), minutes + 1)

    def close(self) -> None:
        """Unmap the sampler's regions; no sample can be taken afterwards."""
        self._words = np.empty(0, np.int64)
        self._topics.close()
        self._ha.close()
        self._region.close()


def read_samples(directory: Path) -> Sampled:
    """Return the samples so far. Raises RegionMissing, RegionMismatch."""
    with closing(Region.attach(directory / SAMPLES_FILE, kind=REGION_KIND, layout=LAYOUT)) as region:
        words = region.words
        taken, minutes = int(words[PutSamplesWord.TAKEN]), int(words[PutSamplesWord.MINUTES])
        ring = words[PutSamplesWord.SAMPLES : MINUTES_AT].reshape(ROOM, SAMPLE_WORDS)
        newest = [ring[number % ROOM, :SAMPLE_WORDS_USED].tolist() for number in range(max(0, taken - SAMPLES), taken)]
        blocks = words[MINUTES_AT : MINUTES_AT + 2 * BLOCK_WORDS].reshape(2, BLOCK_WORDS)
        last, before = blocks[(minutes - 1) & 1], blocks[minutes & 1]
        minute = last - before if minutes else np.zeros(BLOCK_WORDS, np.int64)
        boot_ms, began_ms = int(words[PutSamplesWord.BOOT_MS]), int(words[PutSamplesWord.BEGAN_MS])
        return Sampled(boot_ms, began_ms, [Sample(*sample) for sample in newest], latencies_of(minute))
