"""Samples of replication, one a second, in shared memory: what rates and times to catch up are made of.

Region "ha_samples": word 0 samples taken | from word 8: samples of 32 words (time in ms, log end, received bytes, then
for each slot: connected at, acknowledged up to, bytes sent), the newest over the oldest.
"""

from __future__ import annotations

from contextlib import closing
from enum import IntEnum
from pathlib import Path

import numpy as np

from engine.protocol.ha.rates import HaSample, SlotSample
from engine.shared_memory.cursors import HA_CONNECTIONS_MAX, BrokerCounters
from ipc.arrays import Words
from ipc.compiled.atomics import publish
from ipc.region import Region

REGION_KIND, LAYOUT, SAMPLES_FILE = "ha_samples", 1, "ha_samples"
SAMPLES = 60
ROOM = SAMPLES + 1  # the one that may be written just now does not count


class HaSamplesWord(IntEnum):
    """The words of the region; SAMPLES: the first sample's."""

    TAKEN = 0
    SAMPLES = 8


class HaSampleWord(IntEnum):
    """The words of a sample; SLOTS: the first slot's."""

    TIME_MS = 0
    MAX_PHYSICAL_OFFSET = 1
    RECEIVED_BYTES = 2
    SLOTS = 3


SAMPLE_WORDS = 32
SLOT_WORDS = len(SlotSample._fields)
SAMPLE_WORDS_USED = HaSampleWord.SLOTS + SLOT_WORDS * HA_CONNECTIONS_MAX
assert SAMPLE_WORDS_USED <= SAMPLE_WORDS


def _places(counters: BrokerCounters) -> Words:
    """Return the counters' indexes of a sample's words, without the time."""
    slots = ((of.connected_at_ms, of.slave_ack_offset, of.transferred_bytes) for of in counters.ha)
    cursors = [counters.max_physical_offset, counters.ha_client.transferred_bytes, *(one for of in slots for one in of)]
    return np.array([cursor.index for cursor in cursors])


def _sample(words: list[int]) -> HaSample:
    starts = range(HaSampleWord.SLOTS, SAMPLE_WORDS_USED, SLOT_WORDS)
    slots = tuple(SlotSample(*words[at : at + SLOT_WORDS]) for at in starts)
    time_ms, max_physical_offset, received_bytes = words[: HaSampleWord.SLOTS]
    return HaSample(time_ms, max_physical_offset, received_bytes, slots)


def sample_now(counters: BrokerCounters, now_ms: int) -> HaSample:
    """The sample of this moment."""
    return _sample([now_ms, *counters.region.words[_places(counters)].tolist()])


class HaSampler:
    """The one who takes the samples."""

    def __init__(self, directory: Path, counters: BrokerCounters) -> None:
        self._counters, self._places = counters, _places(counters)
        size = (HaSamplesWord.SAMPLES + ROOM * SAMPLE_WORDS) * 8
        self._region = Region.create(directory / SAMPLES_FILE, size, kind=REGION_KIND, layout=LAYOUT)
        self._words: Words = self._region.words
        self._last = b""

    def take(self, now_ms: int) -> bool:
        """Take one sample; return whether it differs from the last one. The caller decides when it is due."""
        taken = int(self._words[HaSamplesWord.TAKEN])
        at = HaSamplesWord.SAMPLES + taken % ROOM * SAMPLE_WORDS
        sample = self._words[at : at + SAMPLE_WORDS_USED]
        sample[HaSampleWord.TIME_MS] = now_ms
        sample[HaSampleWord.MAX_PHYSICAL_OFFSET :] = self._counters.region.words[self._places]
        publish(self._words, int(HaSamplesWord.TAKEN), taken + 1)
        last, self._last = self._last, sample[HaSampleWord.MAX_PHYSICAL_OFFSET :].tobytes()
        return last != self._last

    def close(self) -> None:
        """Unmap the region; no sample can be taken afterwards."""
        self._words = np.empty(0, np.int64)
        self._region.close()


def read_ha_samples(directory: Path) -> list[HaSample]:
    """Return the samples so far, oldest first. Raises RegionMissing, RegionMismatch."""
    with closing(Region.attach(directory / SAMPLES_FILE, kind=REGION_KIND, layout=LAYOUT)) as region:
        taken = int(region.words[HaSamplesWord.TAKEN])
        ring = region.words[HaSamplesWord.SAMPLES :].reshape(ROOM, SAMPLE_WORDS)
        return [_sample(ring[number % ROOM].tolist()) for number in range(max(0, taken - SAMPLES), taken)]
