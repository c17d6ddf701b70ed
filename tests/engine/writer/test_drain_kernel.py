"""Rings into the log: every record whole, once, in order, wherever the writer is killed."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from engine.producer.columns import as_bytes, column_of_parts
from engine.rings import encode_kernel
from engine.shared_memory import queue_table
from engine.shared_memory.cursors import BrokerCounters
from engine.writer import drain_kernel as drain
from engine.writer.drain_kernel import DrainStop, ScratchColumn
from engine.writer.journal import attach_journal, create_journal
from engine.writer.writer import places_of
from ipc import ring
from ipc.arrays import Words
from ipc.compiled.atomics import await_change
from store.files.pointer import COUNTERS_FILE
from store.message.host import Host
from store.message.record import BLANK_MAGIC, Kind, decode, inspect
from tests.harness.conditions import await_that, is_in_futex_wait

RING_BYTES, SEGMENT_BYTES, RINGS = 1 << 20, 1 << 18, 4
HERE = Host("127.0.0.1", 10911)
NOW_MS = 1_700_000_000_000
MINUTE_NS = 60_000_000_000


@dataclass
class Bench:
    """A writer's regions, one producer's ring and a segment in plain memory, worked by hand."""

    directory: Path

    def __post_init__(self) -> None:
        self.counters = BrokerCounters.create(self.directory / COUNTERS_FILE)
        self.queues = queue_table.QueueTable.create(self.directory, {})
        self.controls = ring.create_rings(self.directory, RINGS)
        create_journal(self.directory, RINGS, 0)
        self.journal = attach_journal(self.directory)
        self.claimed = ring.ClaimedRing(self.directory, self.controls, RING_BYTES)
        self.segment = np.zeros(SEGMENT_BYTES, np.uint8)
        self.outlet = self.claimed.outlet(self.counters.region.words, self.counters.writer_bell.index)
        self.scratch = np.zeros((self.queues.capacity, len(ScratchColumn)), np.int64)
        words, places = self.counters.region.words, places_of(self.counters)
        self.shared = drain.Shared(self.journal.words, self.queues.next_offsets, self.controls.words, words, places)

    def template(self, topic: str, queue_id: int = 0) -> encode_kernel.Template:
        slot = self.queues.slot_of(topic.encode(), queue_id)
        assert slot is not None
        return encode_kernel.template_of(topic, queue_id, slot, HERE, HERE)

    def put(self, template: encode_kernel.Template, bodies: list[bytes], properties: bytes = b"") -> int:
        batch = encode_kernel.Batch(column_of_parts(bodies), column_of_parts([properties]), True, -1, 0)
        return int(encode_kernel.put_many(self.outlet, template, batch, 0, len(bodies), NOW_MS - 5))

    def source(self) -> drain.Source:
        return drain.Source(self.claimed.ring.data, self.claimed.ring.words, self.claimed.number)

    def drain(self, bytes_max: int = 1 << 20, now_ms: int = NOW_MS) -> int:
        target = drain.Target(self.segment, 0, self.scratch, len(self.segment))
        return int(drain.drain(self.source(), target, self.shared, len(self.queues), now_ms, bytes_max))

    def descriptors(self) -> Words:
        return self.claimed.ring.words.reshape(-1, ring.DESCRIPTOR_WORDS)

    def redo(self) -> None:
        drain.redo(self.shared)

    def messages(self) -> list[tuple[str, int, bytes]]:
        """(topic, queue offset, body) of every record below the end; each must name its own place."""
        found, at, end = [], 0, self.counters.max_physical_offset.read()
        while at < end:
            message = decode(self.segment.data, at)
            assert message.physical_offset == at
            found.append((message.topic, message.queue_offset, bytes(message.body)))
            at += message.size
        assert at == end
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.claimed.close()


def test_records_arrive_whole_in_order_and_with_their_offsets(bench: Bench) -> None:
    orders, bills = bench.template("orders", 3), bench.template("bills")
    bench.put(orders, [b"a", b"", b"c" * 1000], b"TAGS\x01x")
    bench.put(bills, [b"d"])
    bench.put(orders, [b"e"])
    assert bench.drain() == DrainStop.DRAINED
    assert bench.messages() == [
        ("orders", 0, b"a"), ("orders", 1, b""), ("orders", 2, b"c" * 1000), ("bills", 0, b"d"), ("orders", 3, b"e"),
    ]  # fmt: skip
    first = decode(bench.segment.data, 0)
    assert (first.queue_id, first.born_host, first.store_host, first.tags) == (3, HERE, HERE, "x")
    assert (first.born_timestamp_ms, first.store_timestamp_ms) == (NOW_MS - 5, NOW_MS)
    assert bench.counters.put_messages.read() == 5
    assert bench.claimed.control[ring.ControlWord.HEAD] == 5


def test_a_batch_stops_at_its_bytes_and_goes_on_from_there(bench: Bench) -> None:
    bench.put(bench.template("t"), [bytes([k]) * 100 for k in range(50)])
    turns = 0
    while bench.claimed.control[ring.ControlWord.HEAD] != bench.claimed.control[ring.ControlWord.TAIL]:
        assert bench.drain(bytes_max=1000) == DrainStop.DRAINED
        turns += 1
    assert turns == 9
    assert [(offset, body[:1]) for _, offset, body in bench.messages()] == [(k, bytes([k])) for k in range(50)]


def test_store_timestamps_never_fall(bench: Bench) -> None:
    template = bench.template("t")
    for now_ms in (NOW_MS, NOW_MS - 1000, NOW_MS + 1):
        bench.put(template, [b"x"])
        bench.drain(now_ms=now_ms)
    stamps, at = [], 0
    while at < bench.counters.max_physical_offset.read():
        message = decode(bench.segment.data, at)
        stamps.append(message.store_timestamp_ms)
        at += message.size
    assert stamps == [NOW_MS, NOW_MS, NOW_MS + 1]


def test_a_record_that_does_not_fit_asks_for_a_roll_and_a_blank_record_fills_the_rest(bench: Bench) -> None:
    template = bench.template("t")
    body = b"x" * 100_000
    bench.put(template, [body, body, body])
    assert bench.drain() == DrainStop.NEEDS_ROLL
    end = bench.counters.max_physical_offset.read()
    assert [offset for _, offset, _ in bench.messages()] == [0, 1]
    drain.roll(bench.segment, 0, bench.shared)
    assert struct.unpack_from(">iI", bench.segment.data, end) == (SEGMENT_BYTES - end, BLANK_MAGIC)
    assert bench.counters.max_physical_offset.read() == SEGMENT_BYTES


@pytest.mark.parametrize(("spare", "outcome"), [(8, DrainStop.DRAINED), (7, DrainStop.NEEDS_ROLL)])
def test_a_record_goes_in_only_if_a_blank_record_still_fits_behind_it(bench: Bench, spare: int, outcome: int) -> None:
    template = bench.template("t")
    bench.put(template, [b"x" * (SEGMENT_BYTES - len(template.record) - spare)])
    assert bench.drain() == outcome


def test_a_producer_without_puts_sleeps_on_when_others_puts_are_committed(bench: Bench) -> None:
    words, place = bench.controls.words, bench.claimed.number * ring.WORDS_PER_RING + int(ring.ControlWord.HEAD)
    of_another = (bench.claimed.number + 1) % RINGS * ring.WORDS_PER_RING + int(ring.ControlWord.HEAD)
    mine, other = (
        threading.Thread(target=await_change, args=(words, at, int(words[at]), MINUTE_NS)) for at in (place, of_another)
    )
    for thread in (mine, other):
        thread.start()
        await_that(lambda: is_in_futex_wait(thread), "it sleeps")  # noqa: B023
    bench.put(bench.template("t"), [b"x"])
    bench.drain()
    assert is_in_futex_wait(other), "nobody woke it"
    mine.join()
    bench.redo()
    other.join()


def test_killed_before_the_commit_the_batch_is_drained_again_and_nothing_is_there_twice(bench: Bench) -> None:
    template = bench.template("t")
    bench.put(template, [b"first"])
    bench.drain()
    bench.put(template, [b"second", b"third"])
    before = [words.copy() for words in bench.shared[:4]]
    bench.drain()
    whole = bench.messages()
    for words, old in zip(bench.shared[:4], before, strict=True):
        words[:] = old  # as if the process had died just before it stored the version
    assert len(bench.messages()) == 1
    bench.scratch[:] = 0
    bench.redo()
    bench.drain()
    assert bench.messages() == whole == [("t", 0, b"first"), ("t", 1, b"second"), ("t", 2, b"third")]


def test_what_a_killed_writer_has_copied_but_not_filled_in_is_a_record_to_nobody(bench: Bench) -> None:
    bench.put(bench.template("t"), [b"b" * 100] * 3)
    copied = bytes(bench.claimed.ring.data[:1000])  # the log's end, had the writer died before it filled anything in
    assert inspect(copied, 0, None, check_body_crc=True).kind is Kind.END_OF_LOG
    bench.drain()
    assert inspect(bench.segment.data, 0, 0, check_body_crc=True).kind is Kind.MESSAGE


def test_killed_after_the_commit_the_next_writer_finishes_what_it_says(bench: Bench) -> None:
    template = bench.template("t")
    bench.put(template, [b"first", b"second"])
    _journal, next_offsets, controls, counters, _places = bench.shared
    before = [words.copy() for words in (controls, next_offsets, counters)]
    bench.drain()
    after = [words.copy() for words in (controls, next_offsets, counters)]
    for words, old in zip((controls, next_offsets, counters), before, strict=True):
        words[:] = old  # as if the process had died just after it stored the version
    bench.redo()
    for words, new in zip((controls, next_offsets, counters), after, strict=True):
        assert (words == new).all()
    bench.redo()
    for words, new in zip((controls, next_offsets, counters), after, strict=True):
        assert (words == new).all()
    bench.put(template, [b"third"])
    bench.drain()
    assert [offset for _, offset, _ in bench.messages()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("why", "value"),
    [
        ("a length beyond the ring", (1 << 30) << 32),
        ("a length that the record does not say", 100 << 32),
        ("a queue that is not there", 7),
        ("too short for a record", 10 << 32),
    ],
)
def test_a_damaged_descriptor_harms_only_its_own_record(bench: Bench, why: str, value: int) -> None:
    template = bench.template("t")
    bench.put(template, [b"good", b"bad", b"good again"])
    descriptor = bench.descriptors()[1]
    length = int(descriptor[ring.Descriptor.LENGTH_AND_SLOT]) >> ring.SLOT_BITS
    descriptor[ring.Descriptor.LENGTH_AND_SLOT] = value if value >> 32 else (length << ring.SLOT_BITS) | value
    bench.drain()
    assert bench.messages() == [("t", 0, b"good"), ("t", 1, b"good again")]
    assert descriptor[ring.Descriptor.PHYSICAL_OFFSET] == -drain.EBADMSG
    assert bench.claimed.control[ring.ControlWord.REFUSALS] == bench.counters.put_refused.read() == 1
    assert bench.counters.put_messages.read() == 2


def test_a_refusal_takes_everything_out_of_the_ring_and_nothing_into_the_log(bench: Bench) -> None:
    bench.put(bench.template("t"), [b"a", b"b"])
    drain.refuse(bench.source(), 28, bench.shared)
    assert bench.messages() == []
    assert bench.claimed.control[ring.ControlWord.HEAD] == 2
    assert bench.descriptors()[:2, ring.Descriptor.PHYSICAL_OFFSET].tolist() == [-28, -28]
    assert bench.claimed.control[ring.ControlWord.REFUSALS] == 2


def test_a_full_ring_takes_nothing_more_until_it_is_drained(bench: Bench) -> None:
    template = bench.template("t")
    bodies = [b"x" * 10_000] * 200
    first = bench.put(template, bodies)
    assert 0 < first < 200
    assert bench.put(template, [b"x" * 10_000]) == 0
    bench.segment = np.zeros(8 << 20, np.uint8)
    while bench.claimed.control[ring.ControlWord.HEAD] != bench.claimed.control[ring.ControlWord.TAIL]:
        bench.drain()
    assert bench.put(template, [b"x" * 10_000]) == 1


def test_the_ring_goes_round_many_times_with_records_of_every_size(bench: Bench) -> None:
    random = np.random.default_rng(7)
    template = bench.template("t")
    bench.segment = np.zeros(16 << 20, np.uint8)
    sent: list[bytes] = []
    while sum(map(len, sent)) < 8 * RING_BYTES:
        bodies = [random.bytes(int(size)) for size in random.integers(0, 20_000, 20)]
        sent += bodies[: bench.put(template, bodies)]
        bench.drain(bytes_max=int(random.integers(1, 400_000)))
    while bench.claimed.control[ring.ControlWord.HEAD] != bench.claimed.control[ring.ControlWord.TAIL]:
        bench.drain()
    assert [body for _, _, body in bench.messages()] == sent


def test_records_before_and_behind_the_rings_exact_end_are_two_runs(bench: Bench) -> None:
    template, length = bench.template("t"), 4096
    bench.segment = np.zeros(4 << 20, np.uint8)
    bodies = [bytes([n % 256]) * (length - len(template.record)) for n in range(RING_BYTES // length + 6)]
    assert bench.put(template, bodies[:250]) == 250
    while bench.claimed.control[ring.ControlWord.HEAD] != bench.claimed.control[ring.ControlWord.TAIL]:
        bench.drain()
    assert bench.put(template, bodies[250:]) == len(bodies) - 250
    bench.drain()
    assert [body for _, _, body in bench.messages()] == bodies


def test_a_message_put_alone_is_the_same_record_as_one_of_a_batch(bench: Bench) -> None:
    template = bench.template("t")
    bench.put(template, [b"body"], b"KEYS\x01k")
    number = encode_kernel.put_one(
        bench.outlet, template, 0x7EADBEEF, as_bytes(b"body"), as_bytes(b"KEYS\x01k"), NOW_MS - 5
    )
    assert number == 1
    bench.drain()
    first = decode(bench.segment.data, 0)
    second = decode(bench.segment.data, first.size)
    assert (second.body, second.keys, second.flag, second.size) == (first.body, "k", 0x7EADBEEF, first.size)


def test_a_ring_of_a_dead_producer_is_taken_over_where_it_ended(bench: Bench) -> None:
    template = bench.template("t")
    bench.put(template, [b"of the first"] * 3)
    number = bench.claimed.number
    bench.claimed.close()
    bench.claimed = ring.ClaimedRing(bench.directory, bench.controls, RING_BYTES)
    assert bench.claimed.number == number
    bench.outlet = bench.claimed.outlet(bench.counters.region.words, bench.counters.writer_bell.index)
    bench.put(template, [b"of the second"])
    bench.drain()
    assert [body for _, _, body in bench.messages()] == [b"of the first"] * 3 + [b"of the second"]


def test_two_producers_never_share_a_ring(bench: Bench) -> None:
    other = ring.ClaimedRing(bench.directory, bench.controls, RING_BYTES)
    assert other.number != bench.claimed.number
    others = [ring.ClaimedRing(bench.directory, bench.controls, RING_BYTES) for _ in range(RINGS - 2)]
    with pytest.raises(ring.NoFreeRing, match="all 4 rings"):
        ring.ClaimedRing(bench.directory, bench.controls, RING_BYTES)
    for claimed in (other, *others):
        claimed.close()
