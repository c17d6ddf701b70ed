"""Records that only the writer can finish: the reference log's bytes, whole or not at all, wherever it is killed."""

from __future__ import annotations

import errno
import random
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.producer.columns import as_bytes
from engine.rings import encode_kernel
from engine.rings.payload import COMPOSED, HEAD_WORDS, payload_of
from engine.writer import compose_kernel, drain_kernel
from engine.writer.drain_kernel import CommitCounter, DrainStop, JournalWord
from ipc import ring
from store.message.host import Host
from store.message.record import Kind, SysFlag, inspect
from store.put.batch import Item, batch_to_log, received_batch
from store.put.draft import Draft, draft_of, draft_of_batch
from store.put.policy import POLICIES, Facts
from store.put.request import SendRequest, received, to_log
from tests.engine.writer.test_drain_kernel import HERE, NOW_MS, SEGMENT_BYTES, Bench
from tests.harness.batches import batch_body
from tests.harness.reference_log import ReferenceLog

FACTS = {
    compat: Facts(
        policy=policy, store_host=HERE, enable_lmq=True, enable_multi_dispatch=True, batch_topics=frozenset({"bcq"})
    )
    for compat, policy in POLICIES.items()
}
CRC = replace(FACTS["5"], enabled_append_prop_crc=True)
V6 = Host("2001:db8::1", 10911)


class Log(Bench):
    """A bench that goes on into further segments, and puts drafts of every kind."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.segments = [self.segment]

    def slot(self, queue: tuple[str, int]) -> int:
        slot = self.queues.slot_of(queue[0].encode(), queue[1])
        assert slot is not None
        return slot

    def put_draft(self, draft: Draft) -> int:
        slot = self.slot((draft.topic, draft.queue_id))
        if draft.is_plain:
            return int(encode_kernel.put_payload(*self.outlet, as_bytes(encode_kernel.hidden(draft.pieces[0])), slot))
        return self.put_payload(payload_of(draft, self.slot), slot)

    def put_payload(self, payload: bytes, slot: int) -> int:
        return int(encode_kernel.put_payload(*self.outlet, as_bytes(payload), slot | COMPOSED))

    def target(self) -> drain_kernel.Target:
        base = (len(self.segments) - 1) * SEGMENT_BYTES
        return drain_kernel.Target(self.segments[-1], base, self.scratch, SEGMENT_BYTES)

    def write(self, now_ms: int = NOW_MS) -> None:
        """Empty the ring, whatever it holds."""
        while self.claimed.control[ring.ControlWord.TAIL] != self.claimed.control[ring.ControlWord.HEAD]:
            slots, target = len(self.queues), self.target()
            outcome = drain_kernel.drain(self.source(), target, self.shared, slots, now_ms, 1 << 20)
            if outcome == DrainStop.NEEDS_COMPOSING:
                outcome = compose_kernel.append_composed(self.source(), target, self.shared, slots, now_ms)
            if outcome == DrainStop.NEEDS_ROLL:
                drain_kernel.roll(target.segment, target.base, self.shared)
                self.segments.append(np.zeros(SEGMENT_BYTES, np.uint8))

    def data(self) -> bytes:
        return b"".join(segment.tobytes() for segment in self.segments)[: self.counters.max_physical_offset.read()]

    def place(self, number: int) -> tuple[int, int]:
        descriptor = self.descriptors()[number % self.claimed.ring.descriptors]
        return int(descriptor[ring.Descriptor.PHYSICAL_OFFSET]), int(descriptor[ring.Descriptor.QUEUE_OFFSET])


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def single(facts: Facts, topic: str, body: bytes, properties: str = "", **changes: object) -> Draft:
    request = SendRequest(topic=topic, body=body, properties=properties, born_host=HERE, **changes)  # type: ignore[arg-type]
    return draft_of(to_log(received(request, facts, "K" * 32), facts), facts)


def batch(facts: Facts, topic: str, bodies: list[bytes], properties: str = "WAIT\x01true") -> Draft:
    items = [Item(0, body, b"TAGS\x01t") for body in bodies]
    request = SendRequest(topic=topic, body=batch_body(items), properties=properties, batch=True, born_host=HERE)
    received_one = received_batch(request, facts)
    if received_one.sys_flag & SysFlag.INNER_BATCH:
        return draft_of(to_log(received_one, facts), facts)
    return draft_of_batch(batch_to_log(received_one, facts), facts)


def multi(facts: Facts, names: str, body: bytes = b"m", topic: str = "lmq") -> Draft:
    return single(facts, topic, body, f"INNER_MULTI_DISPATCH\x01{names}\x02WAIT\x01true")


def any_draft(facts: Facts, chosen: random.Random) -> Draft:
    body = chosen.randbytes(chosen.choice((1, 30, 700, 5000)))
    kind = chosen.randrange(7)
    if kind == 0:
        return single(facts, "plain", body)
    if kind == 1:
        return batch(facts, "plain", [body] * chosen.randrange(1, 9))
    if kind == 2:
        return multi(facts, ",".join(chosen.choices(["%LMQ%a", "%LMQ%b", "%LMQ%c", "other"], k=3)), body)
    if kind == 3:
        return batch(facts, "bcq", [body] * chosen.randrange(1, 30), f"UNIQ_KEY\x01{'U' * 32}")
    if kind == 4:
        return single(facts, "plain", body, sys_flag=chosen.choice((4, 8, 12)))
    if kind == 5:
        return single(replace(facts, store_host=V6), "plain", body)
    return single(facts, "plain", body, "DELAY\x0130")


@pytest.mark.parametrize("name", ["4.9", "5", "5 with CRC"])
@pytest.mark.parametrize("seed", range(4))
def test_drafts_of_every_kind_give_the_reference_logs_bytes(log: Log, name: str, seed: int) -> None:
    facts = CRC if name == "5 with CRC" else FACTS[name]
    chosen, reference = random.Random(seed), ReferenceLog(SEGMENT_BYTES)
    for turn in range(60):
        for _ in range(chosen.randrange(1, 6)):
            draft = any_draft(facts, chosen)
            assert log.put_draft(draft) >= 0
            reference.append(draft, NOW_MS + turn)
        log.write(NOW_MS + turn)
        assert log.data() == reference.data
    assert len(log.segments) > 1
    for queue, offset in reference.next_offsets.items():
        assert log.queues.next_offsets[log.slot(queue)] == offset, queue


def test_a_descriptor_tells_the_first_place_of_its_records(log: Log) -> None:
    numbers = [
        log.put_draft(draft)
        for draft in (
            single(FACTS["5"], "plain", b"x"),
            batch(FACTS["5"], "plain", [b"1", b"2", b"3"]),
            single(FACTS["5"], "plain", b"rollback", sys_flag=12),
            single(FACTS["5"], "plain", b"y"),
        )
    ]
    log.write()
    assert [log.place(number)[1] for number in numbers] == [0, 1, 0, 4]


def test_the_length_of_a_record_follows_the_digits_of_its_offsets(log: Log) -> None:
    for _ in range(12):
        log.put_draft(multi(FACTS["4.9"], "%LMQ%a"))
    log.write()
    assert b"INNER_MULTI_QUEUE_OFFSET\x019" in log.data()
    assert b"INNER_MULTI_QUEUE_OFFSET\x0111" in log.data()


def test_a_queue_named_twice_counts_once_in_4_9_and_twice_in_5(log: Log) -> None:
    slot = log.slot(("%LMQ%a", 0))
    for compat, expected in (("4.9", 1), ("5", 3)):
        log.put_draft(multi(FACTS[compat], "%LMQ%a,%LMQ%a"))
        log.write()
        assert log.queues.next_offsets[slot] == expected


def test_a_batch_lies_in_one_segment(log: Log) -> None:
    log.put_draft(single(FACTS["4.9"], "plain", bytes(SEGMENT_BYTES - 3000)))
    log.put_draft(batch(FACTS["4.9"], "plain", [bytes(900)] * 4))
    log.write()
    assert log.place(1) == (SEGMENT_BYTES, 1)


def test_batches_behind_each_other_are_one_commit(log: Log) -> None:
    facts, reference = FACTS["5"], ReferenceLog(SEGMENT_BYTES)
    drafts = [batch(facts, topic, [b"x"] * count) for topic, count in (("a", 2), ("b", 3), ("a", 4), ("a", 5))]
    damaged = bytearray(payload_of(drafts[0], log.slot))
    struct.pack_into(">i", damaged, len(damaged) - len(drafts[0].pieces[0]), 17)  # the first record's length
    for draft in drafts[:3]:
        log.put_draft(draft)
    log.put_payload(bytes(damaged), log.slot(("a", 0)))
    log.put_draft(drafts[3])
    version = int(log.journal.words[JournalWord.VERSION])
    log.write()
    for draft in drafts:
        reference.append(draft, NOW_MS)
    assert log.data() == reference.data
    assert [log.place(number)[1] for number in (0, 1, 2, 4)] == [0, 0, 2, 6]
    assert log.place(3)[0] == -errno.EBADMSG
    assert log.queues.next_offsets[log.slot(("a", 0))] == 11
    assert int(log.journal.words[JournalWord.VERSION]) == version + 3, "those before the damaged one, it, the last"


def test_batches_that_do_not_fit_one_segment_go_on_in_the_next(log: Log) -> None:
    facts, reference = FACTS["4.9"], ReferenceLog(SEGMENT_BYTES)
    for size in (SEGMENT_BYTES // 4, SEGMENT_BYTES // 5, SEGMENT_BYTES // 8):
        draft = batch(facts, "plain", [bytes(size // 2)] * 2)
        for _ in range(4):
            log.put_draft(draft)
            reference.append(draft, NOW_MS)
        log.write()
    assert log.data() == reference.data
    assert len(log.segments) > 1


def test_what_fits_no_segment_is_refused_and_takes_no_offset(log: Log) -> None:
    log.put_draft(batch(FACTS["4.9"], "plain", [bytes(90_000)] * 3))
    log.put_draft(single(FACTS["4.9"], "plain", b"after"))
    log.write()
    assert log.place(0)[0] == -errno.EMSGSIZE
    assert log.place(1) == (0, 0)
    assert log.counters.put_refused.read() == 1


def test_properties_that_the_offsets_make_too_long_are_refused(log: Log) -> None:
    names = ",".join(["%LMQ%a"] * 2000)
    draft = multi(FACTS["4.9"], names)
    room = 32767 - len(draft.pieces[0]) - len(draft.pieces[1]) + draft.properties_at + 2
    log.queues.next_offsets[log.slot(("%LMQ%a", 0))] = 10 ** (room // 2000 + 1)
    log.put_draft(draft)
    log.write()
    assert log.place(0)[0] == -errno.EMSGSIZE
    assert log.data() == b""


def test_killed_before_the_commit_nothing_is_there_and_the_next_writer_puts_it_once(log: Log) -> None:
    log.put_draft(single(FACTS["5"], "plain", b"before"))
    log.write()
    end, version = log.counters.max_physical_offset.read(), int(log.journal.words[JournalWord.VERSION])
    shared = (log.journal.words, log.queues.next_offsets, log.controls.words, log.counters.region.words)
    kept = [words.copy() for words in shared]
    log.put_draft(batch(CRC, "plain", [b"1", b"22", b"333"]))
    tail = int(log.claimed.control[ring.ControlWord.TAIL])
    log.write()
    whole = log.data()
    for words, before in zip(shared, kept, strict=True):
        words[:] = before
    log.claimed.control[ring.ControlWord.TAIL] = tail
    assert (log.counters.max_physical_offset.read(), int(log.journal.words[JournalWord.VERSION])) == (end, version)
    log.scratch[:] = 0  # a new writer's own
    log.redo()
    log.write()
    assert log.data() == whole


def test_killed_after_the_commit_the_next_writer_finishes_what_it_says(log: Log) -> None:
    log.put_draft(multi(FACTS["5"], "%LMQ%a,%LMQ%b"))
    log.write()
    whole, offsets = log.data(), log.queues.next_offsets.copy()
    log.queues.next_offsets[:] = 0
    log.counters.region.words[log.shared.places[CommitCounter.MAX_PHYSICAL]] = 0
    log.claimed.control[ring.ControlWord.HEAD] = 0
    log.redo()
    assert log.data() == whole
    assert (log.queues.next_offsets == offsets).all()
    assert log.claimed.control[ring.ControlWord.HEAD] == 1


def test_without_its_first_magic_number_a_batch_is_no_record_to_anybody(log: Log) -> None:
    draft = batch(FACTS["4.9"], "plain", [b"1", b"2"])
    log.put_draft(draft)
    log.write()
    hidden = log.segments[0].copy()
    for at in (0, len(draft.pieces[0]) // 2):
        magic = struct.unpack_from(">I", hidden, at + 4)[0]
        struct.pack_into(">I", hidden.data, at + 4, magic ^ 0xFFFFFFFF)
    assert inspect(hidden.data, 0, 0, check_body_crc=True).kind is Kind.END_OF_LOG
    struct.pack_into(">I", hidden.data, len(draft.pieces[0]) // 2 + 4, 0xDAA320A7)
    assert inspect(hidden.data, 0, 0, check_body_crc=True).kind is Kind.END_OF_LOG


@pytest.mark.parametrize("seed", range(200))
def test_a_damaged_payload_is_refused_and_harms_nobody_else(log: Log, seed: int) -> None:
    chosen = random.Random(seed)
    draft = chosen.choice((multi(FACTS["5"], "%LMQ%a,other"), batch(FACTS["5"], "plain", [b"1", b"2"])))
    payload = bytearray(payload_of(draft, log.slot))
    words = HEAD_WORDS + len(draft.others) + len(draft.pieces) + len(draft.holes)
    at = chosen.randrange(words) * 8
    value = chosen.choice((-1, -3, 0, 1 << 15, 1 << 40, -(1 << 63), (1 << 63) - 1, len(payload)))
    struct.pack_into(">q", payload, at, value)
    number = log.put_payload(bytes(payload[: chosen.choice((len(payload), 8, 56))]), log.slot(("plain", 0)))
    log.put_draft(single(FACTS["5"], "plain", b"after"))
    log.write()
    place, _offset = log.place(number)
    assert place in (0, -errno.EBADMSG, -errno.EMSGSIZE)
    assert log.place(1)[0] >= 0
    at = 0
    while at < len(log.data()):
        found = inspect(log.segments[0].data, at, at, check_body_crc=False)
        assert found.kind is Kind.MESSAGE, found
        at += found.size
