"""A ring for somebody who never waits, against a writer that the test plays: order, slots, bounds, every status."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.producer.pipeline import Busy, Outcome, Pipeline
from engine.protocol.ha.put_status import PutMessageStatus, Reached, put_status, status_of_errno
from engine.protocol.store.retention import DiskState
from engine.settings.config import from_mapping
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.latencies import create_latencies
from ipc import ring, waiting
from store.message.record import encode
from store.put.draft import Draft
from tests.harness.played_writer import PlayedWriter

RING_BYTES, SLOTS_MAX = 64 * 1024, 40
MS = 1_000_000
PATIENCE_MS = 600_000  # of who waits for a disk or a slave: a machine may stand still for long
OK = PutMessageStatus.PUT_OK


@contextmanager
def opened(directory: Path, *, puts_max: int = 1000, patience_ms: int | None = None, **settings: Any) -> Iterator[Any]:
    config = from_mapping(
        {
            "storePathRootDir": directory / "store",
            "ringSizeInBytes": RING_BYTES,
            "mappedFileSizeCommitLog": 1 << 20,
            "syncFlushTimeout": PATIENCE_MS,
            "slaveTimeout": PATIENCE_MS,
            **settings,
        }
    )
    counters = BrokerCounters.create(directory / "counters")
    ring.create_rings(directory, config.rings).close()
    create_latencies(directory, config.rings)
    pipeline = Pipeline(config, counters, puts_max=puts_max, bytes_max=1 << 20, patience_ms=patience_ms)
    try:
        yield pipeline, PlayedWriter(pipeline, counters, RING_BYTES, SLOTS_MAX), counters
    finally:
        pipeline.close()


def draft_of(queue_id: int, body: bytes = b"body") -> Draft:
    record = encode(topic="topic", body=body, queue_id=queue_id)
    return Draft(topic="topic", queue_id=queue_id, pieces=(record,), record_bytes_max=1 << 16)


def test_a_put_is_answered_once_its_queue_has_a_slot_and_the_log_has_it(region_dir: Path) -> None:
    with opened(region_dir) as (pipeline, writer, _counters):
        pipeline.put(draft_of(3), waits=True, token="a")
        pipeline.put(draft_of(3), waits=True, token="b")
        assert pipeline.collect() == [] and pipeline.parked_puts == 2
        assert writer.answer()
        assert pipeline.collect() == [] and pipeline.parked_puts == 0
        assert not writer.answer(), "one question for one queue"
        writer.take(2)
        length = len(draft_of(3).pieces[0])
        assert pipeline.collect() == [Outcome("a", OK, 0, 0, 0), Outcome("b", OK, length, 1, 1)]
        assert (pipeline.puts, pipeline.bytes) == (0, 0)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMSGSIZE, errno.EIO])
def test_a_refused_record_fails_at_once_though_others_wait_before_it(region_dir: Path, number: int) -> None:
    with opened(region_dir, flushDiskType="SYNC_FLUSH") as (pipeline, writer, counters):
        pipeline.put(draft_of(0), waits=True, token="waits")
        writer.answer()
        pipeline.collect()
        pipeline.put(draft_of(0), waits=True, token="refused")
        pipeline.put(draft_of(0), waits=False, token="waits for nobody")
        writer.take(1)
        writer.take(1, refusing=number)
        writer.take(1)
        first, second = pipeline.collect()
        assert (first.token, first.status) == ("refused", status_of_errno(number))
        assert (second.token, second.status, second.queue_offset) == ("waits for nobody", OK, 1)
        waiting.publish(counters.flushed_offset, counters.max_physical_offset.read())
        assert [outcome.token for outcome in pipeline.collect()] == ["waits"]


def test_a_queue_without_a_slot_is_refused_and_asked_for_again(region_dir: Path) -> None:
    with opened(region_dir) as (pipeline, writer, _counters):
        for queue_id in range(SLOTS_MAX + 1):
            pipeline.put(draft_of(queue_id), waits=True, token=queue_id)
        outcomes = []
        while writer.answer():
            writer.take(100)
            outcomes += pipeline.collect()
        writer.take(100)
        outcomes += pipeline.collect()
        refused = [outcome for outcome in outcomes if outcome.status is not OK]
        assert [(one.token, one.status) for one in refused] == [(SLOTS_MAX, PutMessageStatus.CREATE_MAPPED_FILE_FAILED)]
        assert len(outcomes) == SLOTS_MAX + 1
        pipeline.put(draft_of(SLOTS_MAX), waits=True, token="again")
        assert writer.answer(), "it is asked for again"


def test_too_much_is_refused_before_it_is_parked(region_dir: Path) -> None:
    with opened(region_dir, puts_max=3) as (pipeline, _writer, _counters):
        for number in range(3):
            pipeline.put(draft_of(number), waits=True, token=number)
        with pytest.raises(Busy):
            pipeline.put(draft_of(9), waits=True, token=9)
        assert pipeline.puts == 3


def test_what_no_ring_holds_and_what_a_full_disk_takes_not_is_answered(region_dir: Path) -> None:
    with opened(region_dir) as (pipeline, writer, counters):
        pipeline.put(draft_of(0), waits=True, token="first")
        writer.answer()
        pipeline.collect()
        pipeline.put(draft_of(0, bytes(RING_BYTES)), waits=True, token="large")
        counters.disk_state.words[counters.disk_state.index] = int(DiskState.READ_ONLY)
        pipeline.put(draft_of(0), waits=True, token="full")
        assert [(one.token, one.status) for one in pipeline.collect()] == [
            ("large", PutMessageStatus.MESSAGE_ILLEGAL),
            ("full", PutMessageStatus.SERVICE_NOT_AVAILABLE),
        ]


def test_a_writer_that_says_nothing_is_not_waited_for_for_ever(region_dir: Path) -> None:
    with opened(region_dir, patience_ms=1000) as (pipeline, writer, _counters):
        pipeline.put(draft_of(0), waits=True, token="a")
        writer.answer()
        pipeline.collect()
        began_ns = pipeline.oldest_began_ns()
        assert pipeline.collect(began_ns + 1000 * MS) == []
        assert pipeline.writer_waits_ms(began_ns + 1001 * MS) >= 0
        (given_up,) = pipeline.collect(began_ns + 1001 * MS)
        assert (given_up.token, given_up.status) == ("a", PutMessageStatus.UNKNOWN_ERROR)
        assert pipeline.collect(began_ns + 2000 * MS) == []
        writer.take(1)
        pipeline.put(draft_of(0), waits=True, token="b")
        writer.take(1)
        assert [one.token for one in pipeline.collect(began_ns + 2000 * MS)] == ["b"], "the late one is nobody's"
        assert (pipeline.puts, pipeline.bytes) == (0, 0)


def test_a_ring_of_somebody_who_died_is_taken_over_with_what_lies_in_it(region_dir: Path) -> None:
    with opened(region_dir) as (pipeline, writer, counters):
        pipeline.put(draft_of(0), waits=True, token="dead")
        writer.answer()
        pipeline.collect()
        pipeline.put(draft_of(1), waits=True, token="dead")  # its question is asked, and not answered
        config = from_mapping({"storePathRootDir": region_dir / "store", "ringSizeInBytes": RING_BYTES})
        pipeline.close()
        heir = Pipeline(config, counters, puts_max=10, bytes_max=1 << 20)
        heir.put(draft_of(5), waits=True, token="heir")
        assert heir.collect() == []
        assert writer.answer(), "the dead one's question"
        assert heir.collect() == [] and writer.answer(), "then its own"
        assert heir.collect() == []
        writer.take(9)
        assert [(one.token, one.number) for one in heir.collect()] == [("heir", 1)]
        heir.close()


class History:
    """What was put and what was answered, in a run with a seed."""

    def __init__(
        self, pipeline: Pipeline, writer: PlayedWriter, counters: BrokerCounters, chance: random.Random
    ) -> None:
        self.pipeline, self.writer, self.counters, self.chance = pipeline, writer, counters, chance
        self.put: dict[int, tuple[int, bool]] = {}
        self.answered: list[int] = []
        self.by_queue: dict[tuple[int, bool], list[tuple[int, int]]] = {}

    def try_to_put(self, token: int) -> None:
        queue_id, waits = self.chance.randrange(60), self.chance.random() < 0.8
        with suppress(Busy):
            self.pipeline.put(draft_of(queue_id, str(token).encode()), waits=waits, token=token)
            self.put[token] = queue_id, waits

    def something_happens(self) -> None:
        writer, chance = self.writer, self.chance
        match chance.randrange(6):
            case 0 | 1:
                writer.answer()
            case 2:
                writer.take(chance.randrange(40))
            case 3:
                writer.take(chance.randrange(3), refusing=errno.ENOSPC)
            case 4:
                waiting.publish(self.counters.flushed_offset, self.counters.max_physical_offset.read())
            case 5:
                waiting.publish(self.counters.confirm_offset, self.counters.max_physical_offset.read())

    def all_goes_well(self) -> None:
        self.writer.answer()
        self.writer.take(1000)
        for cursor in (self.counters.flushed_offset, self.counters.confirm_offset):
            waiting.publish(cursor, self.counters.max_physical_offset.read())
        self.collect()

    def collect(self) -> None:
        for outcome in self.pipeline.collect():
            queue_id, waits = self.put[outcome.token]
            self.answered.append(outcome.token)
            if outcome.status is not OK:
                assert outcome.status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED
                continue
            end = outcome.physical_offset + len(draft_of(queue_id, str(outcome.token).encode()).pieces[0])
            reached = Reached(self.counters.flushed_offset.read(), self.counters.confirm_offset.read())
            status = put_status(end, 0, 1, 1, reached, 1, self.pipeline.policy)
            assert status is OK or not waits
            self.by_queue.setdefault((queue_id, waits), []).append((outcome.token, outcome.queue_offset))


@pytest.mark.parametrize("seed", range(30))
def test_every_put_has_one_answer_and_the_right_one(region_dir: Path, seed: int) -> None:
    """Puts, questions, records taken and refused, flushes and acknowledgements in any order; small ring, many wraps."""
    chance = random.Random(seed)
    settings: dict[str, Any] = chance.choice([
        {}, {"flushDiskType": "SYNC_FLUSH"}, {"brokerRole": "SYNC_MASTER"},
        {"brokerRole": "SYNC_MASTER", "flushDiskType": "SYNC_FLUSH", "compat": "5", "inSyncReplicas": 2},
    ])  # fmt: skip
    with opened(region_dir, puts_max=300, **settings) as (pipeline, writer, counters):
        waiting.publish(counters.in_sync_slaves, 1)
        history = History(pipeline, writer, counters, chance)
        for token in range(600):
            history.try_to_put(token)
            for _ in range(chance.randrange(4)):
                history.something_happens()
                if chance.random() < 0.3:
                    history.collect()
        for _ in range(2000):
            history.all_goes_well()
            if not pipeline.puts and not pipeline.has_outcomes:
                break
        assert sorted(history.answered) == sorted(history.put), "each once"
        assert (pipeline.puts, pipeline.bytes) == (0, 0)
        for answered in history.by_queue.values():
            assert answered == sorted(answered), "in the order in which they were put"
            assert np.all(np.diff([offset for _token, offset in answered]) > 0)
