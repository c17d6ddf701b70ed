"""Fast sends, compiled and in Python: the same bytes for whatever a client may say, and hostile lengths."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest

from engine.front.frames.answer_forms import forms_of
from engine.front.frames.send_words import AskedWord, Hole, SendBlock, SendFallback
from engine.front.sends.compiled_sends import SendKernels, SendLimits, UnderWay
from engine.producer.pipeline_kernel import DONE_WORDS, SENT_WORDS, StateWord
from engine.protocol.ha.policy import PutPolicy
from engine.protocol.remoting.answers import Answerer, Refused
from engine.protocol.remoting.frame import MalformedFrame, RemotingCommand, Serialize, decode, encode
from engine.protocol.sending.headers import send_header
from engine.rings.encode_kernel import hidden
from engine.rings.payload import payload_of
from engine.shared_memory.cursors import BrokerCounters, BrokerState
from engine.shared_memory.latencies import BLOCK_WORDS
from ipc import waiting
from ipc.compiled.atomics import Followed
from ipc.ring import DESCRIPTOR_WORDS, WORDS_PER_RING, ControlWord, Descriptor, LocalWord, Outlet, length_of, slot_of
from store.compat import LINES
from store.errors import StoreError
from store.message.host import Host, offset_message_id
from store.message.properties import RESERVED_NAMES
from store.put.batch import Item, batch_to_log, received_batch
from store.put.draft import draft_of, draft_of_batch
from store.put.policy import POLICIES, Facts
from store.put.request import SendRequest, received, to_log
from tests.harness.batches import batch_body

TOPIC, QUEUES, SLOT = "TopicTest", 8, 40
PEER, STORE = Host("10.1.2.3", 54321), Host("192.168.0.7", 10911)
BUFFER_BYTES, RING_BYTES, ROWS = 1 << 18, 1 << 20, 64
CASES, MUTATIONS = 4000, 8000
LETTERS = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums", "e": "queueId",
    "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties", "j": "reconsumeTimes", "k": "unitMode",
    "l": "maxReconsumeTimes", "m": "batch", "n": "brokerName",
}  # fmt: skip
UNIQUE = "7F0000010C3A18B4AAC27A3B9F0D0000"
PLAIN = {
    "a": "g",
    "b": TOPIC,
    "c": "TBW102",
    "d": "4",
    "e": "7",
    "f": "0",
    "g": "1",
    "h": "0",
    "i": f"UNIQ_KEY\x01{UNIQUE}",
}
NAMES = ("KEYS", "TAGS", "WAIT", "UNIQ_KEY", "a", "b", "user", "traceId", "x-long-name-of-a-property", "INSTANCE_ID")
ODD_ENDS = ("\x02\x02", "\x01", "\x02novalue\x01", "\x02a\x01b\x01c", "\x02\x01v", "\x02UNIQ_KEY\x01z")
BATCH_PROPERTIES = ("WAIT\x01true", "WAIT\x01false\x02", "", "x\x01y\x02WAIT\x01true")
TRUTHS = ("true", "false")
VALUES = ("v", "true", "false", "7", "a b", 'with "quotes" and \\', "ümläut", "日本", "/slash", "tab\there", "A || B")


class Bed:
    """A ring without a writer, and the compiled sends above it."""

    def __init__(self, directory: Path, compat: str, *, limits: SendLimits | None = None) -> None:
        self.facts = Facts(policy=POLICIES[compat], store_host=STORE, cluster_name="C1", region_id="R1")
        self.counters = BrokerCounters.create(directory / "counters")
        waiting.publish(self.counters.broker_state, BrokerState.RUNNING)
        self.control = np.zeros(WORDS_PER_RING, np.int64)
        self.words = np.zeros(RING_BYTES // 256 * DESCRIPTOR_WORDS, np.int64)
        self.data, local = np.zeros(RING_BYTES, np.uint8), np.zeros(len(LocalWord), np.int64)
        words = self.counters.region.words
        self.outlet = Outlet(self.data, self.words, self.control, local, words, self.counters.writer_bell.index)
        self.state = np.zeros(len(StateWord), np.int64)
        under_way = UnderWay(
            np.zeros(ROWS * SENT_WORDS, np.int64),
            self.state,
            np.zeros(ROWS * DONE_WORDS, np.int64),
            np.zeros(BLOCK_WORDS, np.int64),
        )
        self.buffer = np.zeros(BUFFER_BYTES, np.uint8)
        self.forms = forms_of(answer_maker(compat), {0: 0})
        self.sends = SendKernels(
            self.facts,
            PutPolicy(1, False, False),
            self.counters,
            self.outlet,
            under_way,
            limits or SendLimits(ROWS, 1 << 20, ROWS, 1 << 20, 1 << 19),
            self.buffer,
            self.forms,
        )
        for queue_id in range(QUEUES):
            self.sends.topics.learn(TOPIC, QUEUES, queue_id, SLOT + queue_id)
        self.slot = self.sends.add_connection(1, PEER)

    def drain(self) -> None:
        """As if all had been answered."""
        tail = self.outlet.local[LocalWord.TAIL]
        self.state[StateWord.KEPT] = self.state[StateWord.ANSWERED] = tail
        self.state[StateWord.BYTES] = self.state[StateWord.DONE] = 0
        self.control[8] = tail
        self.sends.remove_connection(self.slot)
        self.slot = self.sends.add_connection(1, PEER)

    def take(self, content: bytes) -> int:
        """The frames' bytes into the buffer, and taken; up to where."""
        self.buffer[: len(content)] = np.frombuffer(content, np.uint8)
        return self.sends.take(0, len(content), self.slot)

    def last_record(self) -> bytes:
        """What was published last."""
        at = (int(self.outlet.local[LocalWord.TAIL]) - 1) % (len(self.words) // DESCRIPTOR_WORDS) * DESCRIPTOR_WORDS
        position, length = int(self.words[at]) % RING_BYTES, length_of(int(self.words[at + 1]))
        return bytes(self.data[position : position + length])

    def asked(self, word: AskedWord) -> int:
        """What is remembered of it."""
        number = int(self.outlet.local[LocalWord.TAIL]) - 1
        return int(self.sends.asked[number % ROWS * len(AskedWord) + word])


def answer_maker(compat: str):
    """How an answer to a send looks: what `forms_of` wants."""
    answerer = Answerer(compat)

    def make(request, code, values):
        fields = {"MSG_REGION": "R1", "TRACE_ON": "true", "msgId": values[Hole.MESSAGE_ID]}
        fields |= {"queueId": values[Hole.QUEUE_ID], "queueOffset": values[Hole.QUEUE_OFFSET]}
        if answerer.line.put.adds_unique_key and Hole.TRANSACTION_ID in values:
            fields["transactionId"] = values[Hole.TRANSACTION_ID]
        return answerer.answered(request, code, None, fields)

    return make


@pytest.fixture(params=list(LINES))
def bed(request: pytest.FixtureRequest, tmp_path: Path) -> Bed:
    return Bed(tmp_path, request.param)


def expected(frame: bytes, facts: Facts) -> bytes | None:
    """What Python's way makes of a frame: a plain record as it goes into the ring; None for anything else."""
    try:
        request = decode(frame[4:])
        header = send_header(request)
        if (request.code == 320) != header.batch or header.lacks or header.topic != TOPIC:
            return None
        message = SendRequest(
            topic=header.topic,
            body=bytes(request.body),
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            flag=header.flag,
            born_timestamp_ms=header.born_timestamp_ms,
            born_host=PEER,
            properties=header.properties,
            reconsume_times=header.reconsume_times,
            batch=header.batch,
        )
        if header.batch:
            draft = draft_of_batch(batch_to_log(received_batch(message, facts), facts), facts)
            return payload_of(draft, lambda _queue: 0) if draft.records > 1 else None
        draft = draft_of(to_log(received(message, facts, "made here"), facts), facts)
    except (MalformedFrame, Refused, StoreError):
        return None
    return hidden(draft.pieces[0]) if draft.is_plain and draft.topic == TOPIC else None


def properties_of(seed: random.Random) -> str:
    """A property string: most as clients write them."""
    pairs = {"UNIQ_KEY": UNIQUE} if seed.random() < 0.9 else {}
    names = [*NAMES, *(f"p{seed.randrange(10**6)}" for _ in range(seed.choice((0, 1, 4, 12, 30))))]
    for name in seed.sample(names, seed.randrange(len(names) + 1)):
        is_common = name in ("WAIT", "UNIQ_KEY") and seed.random() < 0.95
        pairs[name] = seed.choice(VALUES) if not is_common else UNIQUE if name == "UNIQ_KEY" else seed.choice(TRUTHS)
    if seed.random() < 0.1:
        pairs[seed.choice(sorted(RESERVED_NAMES))] = seed.choice(VALUES)
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs.items())
    if seed.random() < 0.05:
        text += seed.choice(ODD_ENDS)
    return text + "\x02" * (seed.random() < 0.5)


def fields_of(seed: random.Random) -> dict[str, str]:
    """The fields of a request, with the letters of code 310."""
    fields = {
        "a": "group",
        "b": TOPIC,
        "c": "TBW102",
        "d": "4",
        "e": str(seed.randrange(QUEUES)),
        "f": seed.choice("01"),
        "g": str(seed.randrange(10**13)),
        "h": str(seed.choice((0, 0, 5, -7, 2**31 - 1))),
        "j": "0",
        "k": "false",
        "i": properties_of(seed),
        "m": "false",
    }
    if seed.random() < 0.3:
        fields |= {"n": "broker-a", "l": str(seed.randrange(20))}
    if seed.random() < 0.15:
        odd = {"b": "Other", "e": "8", "f": "4", "g": "-1", "h": "+1", "j": "2", "k": "true", "m": "true", "d": "x"}
        name = seed.choice(sorted(odd))
        fields[name] = odd[name]
    if seed.random() < 0.1:
        fields.pop(seed.choice(sorted(fields)))
    return fields


def batch_of(seed: random.Random) -> bytes:
    """A body of several messages; some do not add up."""
    items = []
    for _ in range(seed.choice((1, 2, 3, 32, 64, 65))):
        own = seed.choice(("", "a\x01b", "a\x01b\x02", "KEYS\x01k\x02TAGS\x01t")).encode()
        items.append(Item(seed.choice((0, -1, 7)), seed.randbytes(seed.choice((1, 10, 100))), own))
    body = batch_body(items)
    return body if seed.random() < 0.9 else body[: seed.randrange(1, len(body))]


def java_json(value: object, seed: random.Random) -> str:
    """As fastjson writes it, or Go's json."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":") if seed.random() < 0.9 else (", ", ": "))
    return text.replace("/", "\\/") if seed.random() < 0.1 else text


def frame_of(seed: random.Random, fields: dict[str, str], body: bytes) -> bytes:
    """A whole frame in one form or the other, its keys in any order."""
    items = list(fields.items())
    if seed.random() < 0.3:
        seed.shuffle(items)
    code = 320 if fields.get("m") == "true" and seed.random() < 0.95 else seed.choice((310, 310, 310, 10))
    ext = {LETTERS[name] if code == 10 else name: value for name, value in items}
    opaque, flag = seed.choice((0, 7, -3, 2**31 - 1)), seed.choice((0, 0, 0, 2))
    if seed.random() < 0.5:
        command = RemotingCommand(code, opaque, flag, None, ext, body, "JAVA", 407, Serialize.ROCKETMQ)
        return encode(command)
    top = {"code": code, "extFields": ext, "flag": flag, "language": "JAVA", "opaque": opaque}
    pairs = list((top | {"serializeTypeCurrentRPC": "JSON", "version": 407}).items())
    if seed.random() < 0.3:
        seed.shuffle(pairs)
    header = java_json(dict(pairs), seed).encode()
    return (4 + len(header) + len(body)).to_bytes(4) + len(header).to_bytes(4) + header + body


def test_compiled_and_python_sends_write_the_same(bed: Bed) -> None:
    """Whatever the compiled way takes is what Python makes of it; and it takes most of them."""
    seed, taken, possible = random.Random(7), 0, 0
    for _ in range(CASES):
        body = seed.randbytes(seed.choice((1, 3, 100, 1024))) if seed.random() < 0.98 else b""
        frame = frame_of(seed, fields_of(seed), body)
        made, end = expected(frame, bed.facts), bed.take(frame)
        if end:
            assert end == len(frame)
            assert bed.last_record() == made, frame
            request = decode(frame[4:])
            assert bed.asked(AskedWord.OPAQUE) == request.opaque
            assert bed.asked(AskedWord.QUEUE_ID) == int(send_header(request).queue_id)
            bed.drain()
        else:
            assert bed.sends.reason < 0
        taken, possible = taken + bool(end), possible + (made is not None)
    assert taken > 0.7 * possible > 0.4 * CASES


def test_compiled_and_python_sends_write_the_same_batches(bed: Bed) -> None:
    """A record for each message, in one piece."""
    seed, taken, possible = random.Random(17), 0, 0
    for _ in range(CASES // 4):
        fields = fields_of(seed) | {"m": "true"}
        fields["i"] = seed.choice((*BATCH_PROPERTIES, fields.get("i", "")))
        frame = frame_of(seed, fields, batch_of(seed))
        made, end = expected(frame, bed.facts), bed.take(frame)
        if end:
            assert bed.last_record() == made, frame
            bed.drain()
        taken, possible = taken + bool(end), possible + (made is not None)
    assert taken > 0.5 * possible > 0.05 * CASES


def test_mutated_frames_leave_the_fast_path_or_are_the_same(bed: Bed) -> None:
    """Bytes that are changed, cut, or lie about their lengths: refused, or what Python makes of them."""
    seed, taken = random.Random(11), 0
    for _ in range(MUTATIONS):
        is_batch = seed.random() < 0.3
        fields = fields_of(seed) | ({"m": "true", "i": ""} if is_batch else {})
        frame = bytearray(frame_of(seed, fields, batch_of(seed) if is_batch else seed.randbytes(40)))
        for _ in range(seed.choice((1, 1, 2, 8))):
            at = seed.randrange(4, len(frame))
            frame[at] = seed.choice((0, 1, 0x7F, 0x80, 0xFF, seed.randrange(256)))
        if seed.random() < 0.2:
            frame = frame[: seed.randrange(8, len(frame))]
            frame[:4] = (len(frame) - 4).to_bytes(4)
        if bed.take(bytes(frame)):
            taken += 1
            assert bed.last_record() == expected(bytes(frame), bed.facts), frame
            bed.drain()
    assert taken > MUTATIONS // 20


def test_answers_are_those_of_python(bed: Bed) -> None:
    """Of messages in any order of forms: the frames that encode makes, one connection's behind each other."""
    seed, make, sent = random.Random(3), answer_maker((bed.facts.policy is POLICIES["5"] and "5") or "4.9"), []
    for number in range(ROWS):
        frame = frame_of(seed, PLAIN | {"e": str(number % QUEUES)}, b"body")
        assert bed.take(frame) == len(frame)
        sent.append(decode(frame[4:]))
    expected_bytes = b""
    for number, request in enumerate(sent):
        at, queue_offset, place = number * DESCRIPTOR_WORDS, seed.randrange(10**12), seed.randrange(1 << 40)
        bed.words[at + Descriptor.PHYSICAL_OFFSET], bed.words[at + Descriptor.QUEUE_OFFSET] = place, queue_offset
        if not request.is_oneway:
            values = {
                Hole.MESSAGE_ID: offset_message_id(STORE, place), Hole.QUEUE_ID: str(number % QUEUES),
                Hole.QUEUE_OFFSET: str(queue_offset), Hole.TRANSACTION_ID: UNIQUE,
            }  # fmt: skip
            expected_bytes += encode(make(request, 0, values))
    bed.control[ControlWord.HEAD] = ROWS
    assert not bed.sends.note_done()
    assert list(bed.sends.answers()) == [(bed.slot, expected_bytes)]
    assert (
        bed.sends.rows_for_python,
        bed.sends.block[SendBlock.UNDER_WAY],
        bed.sends.block[SendBlock.STORED],
    ) == (0, 0, ROWS)


def test_refused_and_foreign_records_are_left_to_python(bed: Bed) -> None:
    """A refused record, and one that nobody of ours put; who has gone is not answered."""
    seed = random.Random(5)
    frame = frame_of(seed, PLAIN, b"body")
    assert bed.take(frame * 3) == len(frame) * 3
    bed.words[Descriptor.PHYSICAL_OFFSET] = -5
    bed.sends.asked[len(AskedWord) + AskedWord.NUMBER] = -1
    bed.sends.remove_connection(bed.slot)
    bed.control[ControlWord.HEAD] = 3
    bed.sends.note_done()
    assert list(bed.sends.answers()) == []
    assert (bed.sends.rows_for_python, bed.sends.block[SendBlock.STORED]) == (2, 1)


def test_more_than_may_be_under_way_is_left_to_python(tmp_path: Path) -> None:
    """By messages, by bytes, in all and of one connection; and all while the broker does not take messages just so."""
    seed = random.Random(9)
    frame = frame_of(seed, PLAIN, bytes(100))
    for number, limits in enumerate(
        (
            SendLimits(3, 1 << 20, ROWS, 1 << 20, 1 << 19),
            SendLimits(ROWS, 1000, ROWS, 1 << 20, 1 << 19),
            SendLimits(ROWS, 1 << 20, 3, 1 << 20, 1 << 19),
            SendLimits(ROWS, 1 << 20, ROWS, 1000, 1 << 19),
        )
    ):
        (tmp_path / str(number)).mkdir()
        bed = Bed(tmp_path / str(number), "5", limits=limits)
        assert bed.take(frame * 10) == 3 * len(frame)
        assert (bed.sends.reason, bed.sends.taken) == (SendFallback.ROOM, 3)
        bed.sends.block[SendBlock.IS_OPEN] = 0
        assert (bed.take(frame), bed.sends.reason) == (0, SendFallback.NOT_ACCEPTING)


def test_the_writer_is_rung_for_at_once_or_when_there_is_much(bed: Bed) -> None:
    """What is not rung for is counted: whoever ends the turn rings."""
    frame = frame_of(random.Random(17), PLAIN, bytes(100))
    bell, words, block = bed.counters.writer_bell, bed.counters.region.words, bed.sends.block
    words[bell.index + Followed.WAITERS] = 1
    bed.take(frame)
    assert (bell.read(), block[SendBlock.UNRUNG]) == (1, 0)
    length = len(bed.last_record())
    block[SendBlock.RINGS_FROM] = 3 * length
    bed.take(frame)
    assert (bell.read(), block[SendBlock.UNRUNG], bed.control[ControlWord.TAIL]) == (1, length, 2)
    bed.take(frame[:-1])
    assert (bell.read(), block[SendBlock.UNRUNG]) == (1, length)
    bed.take(frame * 2)
    assert (bell.read(), block[SendBlock.UNRUNG], bed.control[ControlWord.TAIL]) == (2, 0, 4)


def test_topics_are_those_that_were_learned(bed: Bed) -> None:
    """One that changed, or a queue without a slot, is Python's until it is learned again."""
    seed, topics = random.Random(13), bed.sends.topics
    frame = frame_of(seed, PLAIN, b"body")
    topics.forget(TOPIC)
    assert (bed.take(frame), bed.sends.reason) == (0, SendFallback.QUEUE)
    topics.learn(TOPIC, 9, 6, 1)
    assert (bed.take(frame), bed.sends.reason) == (0, SendFallback.QUEUE)
    for number in range(9000):
        topics.learn(f"other-{number}", 16, number % 16, number)
    topics.learn(TOPIC, 9, 7, 77)
    assert bed.take(frame) == len(frame)
    at = (int(bed.outlet.local[LocalWord.TAIL]) - 1) * DESCRIPTOR_WORDS
    assert slot_of(int(bed.words[at + Descriptor.LENGTH_AND_SLOT])) == 77
    topics.forget(None)
    assert (bed.take(frame), bed.sends.reason) == (0, SendFallback.TOPIC)


def test_an_answer_to_a_batch_names_all_its_messages(bed: Bed) -> None:
    """The offsets of its records, in either form; no transaction."""
    make = answer_maker((bed.facts.policy.adds_unique_key and "5") or "4.9")
    sizes = (1, 200, 3)
    body = batch_body([Item(0, b"x" * size, b"") for size in sizes])
    for form, key in itertools.product(Serialize, ({}, {Hole.TRANSACTION_ID: UNIQUE})):
        fields = PLAIN | {"m": "true"} | ({} if key else {"i": ""})
        frame = encode(RemotingCommand(320, 9, 0, None, fields, body, "JAVA", 407, form))
        bed.drain()
        number = int(bed.outlet.local[LocalWord.TAIL])
        assert bed.take(frame) == len(frame)
        place, fixed = 1 << 33, int.from_bytes(bed.last_record()[64:68]) - sizes[0]
        starts = [place, place + fixed + 1, place + 2 * fixed + 201]
        bed.words[number * DESCRIPTOR_WORDS + Descriptor.PHYSICAL_OFFSET] = place
        bed.words[number * DESCRIPTOR_WORDS + Descriptor.QUEUE_OFFSET] = 5
        bed.control[ControlWord.HEAD] = number + 1
        bed.sends.note_done()
        values = {
            Hole.MESSAGE_ID: ",".join(offset_message_id(STORE, start) for start in starts),
            Hole.QUEUE_ID: fields["e"],
            Hole.QUEUE_OFFSET: "5",
            **key,
        }
        assert list(bed.sends.answers()) == [(bed.slot, encode(make(decode(frame[4:]), 0, values)))]
