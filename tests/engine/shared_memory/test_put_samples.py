"""Samples a second and minutes, by a clock that the test turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.protocol.store.put_rates import SAMPLES, rate
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.latencies import Clock, create_latencies, latencies_of, sum_of_rings
from engine.shared_memory.put_samples import Sampler, read_samples
from engine.shared_memory.topic_table import TopicTable
from ipc import waiting

START, BOOT = 60_000, 1_700_000_000_000


@pytest.fixture
def counters(tmp_path: Path) -> BrokerCounters:
    TopicTable.create(tmp_path)
    create_latencies(tmp_path, rings=2)
    return BrokerCounters.create(tmp_path / "counters")


def test_a_sample_a_second_for_ten_minutes(tmp_path: Path, counters: BrokerCounters) -> None:
    sampler = Sampler(tmp_path, counters, START, BOOT, is_slave=False)
    for tick in range(2 * (SAMPLES + 50)):
        waiting.note(counters.put_messages, tick // 2 * 30)
        sampler.take(START + tick * 500)
    found = read_samples(tmp_path)
    assert (found.boot_ms, found.began_ms, len(found.samples)) == (BOOT, START, SAMPLES)
    assert [sample.time_ms for sample in found.samples] == [START + 1000 * k for k in range(50, 50 + SAMPLES)]
    assert rate(found.samples[:-1], found.samples[-1], 60) == (30.0, 0.0, 60.0)
    sampler.close()


def test_samples_that_were_missed_lie_between(tmp_path: Path, counters: BrokerCounters) -> None:
    sampler = Sampler(tmp_path, counters, START, BOOT, is_slave=False)
    sampler.take(START)
    waiting.note(counters.put_messages, 30)
    sampler.take(START + 3500)
    found = read_samples(tmp_path).samples
    assert [sample.messages for sample in found] == [0, 10, 20, 30]
    assert [sample.time_ms - START for sample in found] == [0, 1166, 2333, 3500]
    sampler.take(START + 10_000_000)
    assert len(read_samples(tmp_path).samples) == SAMPLES, "and not one more after a long sleep"
    sampler.close()


def test_it_rests_while_nothing_is_put_received_or_acknowledged(tmp_path: Path, counters: BrokerCounters) -> None:
    sampler = Sampler(tmp_path, counters, START, BOOT, is_slave=False)
    moved = (counters.put_messages, counters.ha_client.transferred_bytes, counters.ha[1].slave_ack_offset)
    for second, word in enumerate((None, None, *moved)):
        if word is not None:
            waiting.add(word, 8)
        sampler.take(START + 2000 * second)
        assert sampler.rests == (second == 1)
        sampler.take(START + 2000 * second + 999)
        assert sampler.rests == (second == 1), "nothing was due"
    sampler.close()


def test_the_last_whole_minute(tmp_path: Path, counters: BrokerCounters) -> None:
    sampler, clock = Sampler(tmp_path, counters, START, BOOT, is_slave=False), Clock(tmp_path, 1)
    for minute, puts in enumerate((5, 0, 3)):
        for _ in range(puts):
            clock.stop(0)
        sampler.take(START + minute * 60_000 + 59_999)
        sampler.take(START + (minute + 1) * 60_000 + 1000)
        assert read_samples(tmp_path).minute.puts == puts
    assert latencies_of(sum_of_rings(tmp_path)).puts == 8
    clock.close()
    sampler.close()


def test_there_is_no_minute_before_the_first_one_is_over(tmp_path: Path, counters: BrokerCounters) -> None:
    sampler = Sampler(tmp_path, counters, START, BOOT, is_slave=True)
    sampler.take(START)
    found = read_samples(tmp_path)
    assert (len(found.samples), found.minute.puts) == (1, 0)
    sampler.close()
