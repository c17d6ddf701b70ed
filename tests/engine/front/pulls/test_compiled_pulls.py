"""Fast pulls, compiled and in Python: the same bytes whatever a client may say, and whatever changes under them."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from engine.front.connections.front_counts import FrontCounts
from engine.front.connections.peer import Peer
from engine.front.connections.relay import Relay
from engine.front.connections.service import FrontContext, frame_of
from engine.front.connections.tables import Tables
from engine.front.pulls.pulls import Pulls
from engine.keeping import dispatcher
from engine.protocol.pulling.header import PullFlag
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import MalformedFrame, RemotingCommand, Serialize, decode, encode
from engine.settings.config import BrokerConfig, from_mapping
from engine.shared_memory import live_settings
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.queue_ends import QueueEnds
from engine.shared_memory.topic_table import TopicTable
from ipc import waiting
from store.compat import LINES
from tests.engine.front.sends.test_compiled_sends import java_json
from tests.harness.logs import SmallLog
from tests.harness.played_peer import PlayedPeer, PlayedRelay

SEGMENT_BYTES, QUEUE_FILE_BYTES = 1 << 18, 2000
BUFFER_BYTES = 1 << 18
TOPIC, QUEUES, CASES, MUTATIONS = "t", 4, 3000, 4000
TABLES: dict[str, dict[str, dict[str, Any]]] = {
    "topics": {
        TOPIC: {"topicName": TOPIC, "perm": 6, "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "topicSysFlag": 2},
        "shut": {"topicName": "shut", "perm": 2, "readQueueNums": QUEUES, "writeQueueNums": QUEUES},
    },
    "groups": {
        "g": {"groupName": "g", "consumeEnable": True, "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1},
        "other": {"groupName": "other", "consumeEnable": True, "brokerId": 0, "groupSysFlag": 5,
                  "whichBrokerWhenConsumeSlowly": 1},
        "off": {"groupName": "off", "consumeEnable": False, "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1},
    },
    "subscriptions": {
        "g": {"messageModel": "CLUSTERING", "topics": {
            TOPIC: {"subString": "*", "expressionType": "TAG", "subVersion": 5, "codeSet": []}}},
    },
}  # fmt: skip


class Front:
    """The pulls of a front, without one."""

    def __init__(self, config: BrokerConfig, counters: BrokerCounters, number: int) -> None:
        self.relay, self.tables, self.peer = PlayedRelay(), Tables(), PlayedPeer()
        self.loop, self.buffer = asyncio.new_event_loop(), np.zeros(BUFFER_BYTES, np.uint8)
        context = FrontContext(
            config,
            counters,
            counters.fronts[number],
            self.loop,
            self.tables,
            cast(Relay, self.relay),
            {1: cast(Peer, self.peer)},
            number,
            FrontCounts(cast(Relay, self.relay)),
            self.buffer,
        )
        self.pulls = Pulls(context)
        for table, entries in TABLES.items():
            self.tables.take({"table": table, "entries": entries, "whole": True, "begins": True, "ends": True})

    def compiled(self, content: bytes) -> int:
        """What the compiled way takes of it."""
        self.buffer[: len(content)] = np.frombuffer(content, np.uint8)
        return self.pulls.compiled.take(cast(Peer, self.peer), 0, len(content))

    def interpreted(self, frame: bytes) -> bytes:
        """What Python's way answers."""
        request = decode(frame[4:])
        answer = self.pulls.begin(request, cast(Peer, self.peer), 0)
        return self.peer.take() if answer is None else frame_of(request, answer)

    def wake(self) -> None:
        """Held pulls are looked at."""
        self.pulls._held.wake_moved()
        while self.pulls._held.notified._notified:
            self.pulls._held.notified.go_on()

    def turn(self, now_ms: int) -> None:
        """The sweep, and all that wakes by it: where that takes long, what is left has the turns that come then."""
        self.pulls.turn(now_ms)
        while self.pulls._held.notified._notified:
            self.pulls._held.notified.go_on()

    @property
    def held(self) -> int:
        return self.pulls._held.count

    def close(self) -> None:
        self.pulls.close()
        self.peer.close()
        self.loop.close()


class Bed:
    """A store with messages in several queues; two fronts, one of which never uses the compiled way."""

    def __init__(self, directory: Path, compat: str, **settings: object) -> None:
        self.config = from_mapping(
            {
                "storePathRootDir": directory / "store",
                "brokerIP1": "127.0.0.1",
                "compat": compat,
                "frontProcesses": 2,
                "mappedFileSizeCommitLog": SEGMENT_BYTES,
                "mappedFileSizeConsumeQueue": QUEUE_FILE_BYTES,
                **settings,
            }
        )
        self.log, self.counters = (
            SmallLog(directory / "store", SEGMENT_BYTES),
            BrokerCounters.create(directory / "counters"),
        )
        live_settings.publish(self.counters, self.config)
        QueueEnds.create(directory, {})
        TopicTable.create(directory)
        self.dispatcher = dispatcher.open_role(self.config, self.counters, directory)
        seed = random.Random(1)
        for number in range(1200):
            queue_id = number % 3 if number < 600 else (number // 40) % 3
            self.log.append(
                TOPIC,
                seed.randbytes(seed.choice((1, 100, 1024))),
                queue_id=queue_id,
                properties={"TAGS": f"tag{number % 3}"} if number % 7 else {},
            )
        self.dispatch()
        self.compiled, self.plain = (Front(self.config, self.counters, number) for number in range(2))

    def dispatch(self) -> None:
        """What was put comes into the queues."""
        waiting.publish(self.counters.max_physical_offset, self.log.end)
        while self.dispatcher.do_work(0):
            pass

    def both(self, frame: bytes) -> tuple[bytes | None, bytes]:
        """What the compiled way answers, None where it does not, and Python's way."""
        end, by_python = self.compiled.compiled(frame), self.plain.interpreted(frame)
        if end:
            assert end == len(frame)
            return self.compiled.peer.take(), by_python
        assert self.compiled.interpreted(frame) == by_python
        return None, by_python

    def close(self) -> None:
        self.compiled.close()
        self.plain.close()
        self.dispatcher.close()


@pytest.fixture(params=list(LINES))
def bed(request: pytest.FixtureRequest, region_dir: Path) -> Iterator[Bed]:
    one = Bed(region_dir, request.param)
    yield one
    one.close()


def fields_of(seed: random.Random) -> dict[str, str]:
    """What a pull says: most as clients do."""
    by_heartbeat = seed.random() < 0.3
    flags = seed.choice((0, int(PullFlag.SUSPEND), int(PullFlag.COMMIT_OFFSET)))
    fields = {
        "consumerGroup": "g" if by_heartbeat else seed.choice(("g", "other")),
        "topic": TOPIC,
        "queueId": str(seed.randrange(3)),
        "queueOffset": str(seed.choice((0, 3, 64, 95, 99, 100, 399, 400, 401))),
        "maxMsgNums": str(seed.choice((1, 2, 32, 32, 1000))),
        "commitOffset": str(seed.randrange(10)),
        "sysFlag": str(flags | (0 if by_heartbeat else PullFlag.SUBSCRIPTION)),
        "suspendTimeoutMillis": "15000",
        "subVersion": "5",
    }
    if not by_heartbeat or seed.random() < 0.2:
        fields |= {"subscription": seed.choice(("*", "tag1", "tag0||tag2", "none")), "expressionType": "TAG"}
    if seed.random() < 0.2:
        fields |= {"bname": "broker-a", "maxMsgBytes": "1000"}
    if seed.random() < 0.1:
        odd = {
            "consumerGroup": "off", "topic": "shut", "queueId": "4", "queueOffset": "-1", "maxMsgNums": "0",
            "sysFlag": "64", "subVersion": "9", "commitOffset": "x", "suspendTimeoutMillis": "+5", "subscription": "",
            "expressionType": "SQL92",
        }  # fmt: skip
        name = seed.choice(sorted(odd))
        fields[name] = odd[name]
    if seed.random() < 0.05:
        fields.pop(seed.choice(sorted(fields)))
    return fields


def frame_for(seed: random.Random, fields: dict[str, str], *, code: int = RequestCode.PULL_MESSAGE) -> bytes:
    """A whole frame in one form or the other."""
    items = list(fields.items())
    if seed.random() < 0.3:
        seed.shuffle(items)
    opaque = seed.choice((0, 7, -3, 2**31 - 1))
    if seed.random() < 0.5:
        return encode(RemotingCommand(code, opaque, 0, None, dict(items), b"", "JAVA", 407, Serialize.ROCKETMQ))
    top = {"code": code, "extFields": dict(items), "flag": 0, "language": "JAVA", "opaque": opaque}
    header = java_json(top | {"serializeTypeCurrentRPC": "JSON", "version": 407}, seed).encode()
    return (4 + len(header)).to_bytes(4) + len(header).to_bytes(4) + header


def test_compiled_and_python_pulls_answer_the_same(bed: Bed) -> None:
    """Whatever the compiled way answers is what Python's way answers; and it answers most of what has messages."""
    seed, taken, with_messages, held = random.Random(7), 0, 0, 0
    for number in range(CASES):
        code = RequestCode.LITE_PULL_MESSAGE if number % 50 == 0 else RequestCode.PULL_MESSAGE
        frame = frame_for(seed, fields_of(seed), code=code)
        bed.compiled.peer.is_gathering = number % 3 == 0
        compiled, by_python = bed.both(frame)
        if compiled is not None:
            assert compiled == by_python, frame
        taken += bool(compiled)
        held += compiled == b""
        with_messages += len(by_python) > 600
    assert taken > 0.6 * with_messages > 0.15 * CASES
    assert held and bed.compiled.held == bed.plain.held
    for front in (bed.compiled, bed.plain):
        front.pulls.turn(1 << 40)
    assert said(bed.compiled) == said(bed.plain)


def said(front: Front) -> tuple[dict[str, list[int]], dict[tuple[object, ...], int]]:
    """What groups took, and the offsets that they committed last."""
    taken: dict[str, list[int]] = {}
    committed: dict[tuple[object, ...], int] = {}
    for what, fields in front.relay.said:
        if what == "commit_offset":
            committed[fields["group"], fields["topic"], fields["queueId"]] = fields["offset"]
        elif what == "pulled":
            for key, counts in fields["pulled"].items():
                taken[key] = [sum(both) for both in zip(taken.get(key, [0, 0, 0]), counts, strict=True)]
    return taken, committed


def test_mutated_frames_leave_the_fast_path_or_are_the_same(bed: Bed) -> None:
    """Bytes that are changed, cut, or lie about their lengths."""
    seed, taken = random.Random(11), 0
    for _ in range(MUTATIONS):
        frame = bytearray(frame_for(seed, fields_of(seed)))
        for _ in range(seed.choice((0, 1, 1, 2, 8))):
            frame[seed.randrange(4, len(frame))] = seed.choice((0, 1, 0x7F, 0x80, 0xFF, seed.randrange(256)))
        if seed.random() < 0.2:
            frame = frame[: seed.randrange(8, len(frame))]
            frame[:4] = (len(frame) - 4).to_bytes(4)
        try:
            request = decode(bytes(frame[4:]))
        except MalformedFrame:
            assert not bed.compiled.compiled(bytes(frame))
            continue
        if request.code not in Pulls.codes or request.is_oneway or request.is_response:
            assert not bed.compiled.compiled(bytes(frame))
            continue
        compiled, by_python = bed.both(bytes(frame))
        if compiled is not None:
            taken += 1
            assert compiled == by_python, frame
    assert taken > MUTATIONS // 40


def common_fields(**fields: object) -> dict[str, str]:
    said = {
        "consumerGroup": "g",
        "topic": TOPIC,
        "queueId": 0,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": int(PullFlag.SUBSCRIPTION | PullFlag.SUSPEND),
        "commitOffset": 0,
        "suspendTimeoutMillis": 15_000,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
        **fields,
    }
    return {name: str(value) for name, value in said.items()}


def asked(opaque: int = 1, **fields: object) -> bytes:
    return encode(RemotingCommand(RequestCode.PULL_MESSAGE, opaque, ext_fields=common_fields(**fields)))


def test_several_pulls_of_one_turn_are_answered_in_their_order(bed: Bed) -> None:
    assert bed.both(asked())[0] is None
    frames = [asked(number, queueOffset=number) for number in range(50)]
    assert bed.compiled.compiled(b"".join(frames)) == sum(map(len, frames))
    assert bed.compiled.peer.take() == b"".join(map(bed.plain.interpreted, frames))


def test_a_slow_reader_gets_the_rest_from_its_transport(bed: Bed) -> None:
    """What the socket does not take is handed over once, whole; then no more is taken in this turn."""
    assert bed.both(asked())[0] is None
    bed.compiled.peer.near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    frames = [asked(number, maxMsgNums=100) for number in range(30)]
    end = bed.compiled.compiled(b"".join(frames))
    count = end // len(frames[0])
    assert count and bed.compiled.peer.rests == 1
    assert bed.compiled.peer.take() == b"".join(map(bed.plain.interpreted, frames[:count]))


@pytest.mark.parametrize(("table", "name", "value"), [
    ("topics", TOPIC, TABLES["topics"][TOPIC] | {"perm": 2}), ("groups", "g", TABLES["groups"]["off"]),
    ("topics", TOPIC, None), ("groups", "g", None),
])  # fmt: skip
def test_what_changes_is_checked_anew(bed: Bed, table: str, name: str, value: object) -> None:
    assert bed.both(asked())[0] is None
    assert bed.both(asked())[0]
    for front in (bed.compiled, bed.plain):
        front.tables.take({"table": table, "entries": {name: value}})
    assert bed.compiled.compiled(asked()) == 0
    assert bed.compiled.interpreted(asked()) == bed.plain.interpreted(asked())
    assert bed.compiled.compiled(asked()) == 0


def test_files_of_queues_that_may_be_deleted_are_let_go(bed: Bed) -> None:
    """Where the log begins elsewhere, or a topic is gone; who looks again has them again."""
    served = bed.compiled.pulls.compiled.served

    def mapped() -> int:
        return sum(1 for pull in served._pulls.values() if len(pull.where.units))

    for queue_id in range(3):
        bed.both(asked(queueId=queue_id, queueOffset=90))
    assert mapped() == 3
    waiting.publish(bed.counters.min_physical_offset, bed.log.records[30].offset)
    for front in (bed.compiled, bed.plain):
        front.pulls.turn(0)
    assert mapped() == 0
    assert bed.both(asked(queueOffset=90))[0] is None
    assert bed.both(asked(queueOffset=90))[0]
    assert mapped() == 1
    bed.compiled.tables.take({"table": "topics", "entries": {TOPIC: None}})
    assert mapped() == 0


def test_an_offset_that_was_set_is_heard(bed: Bed) -> None:
    """By the next pull, though its queue's pulls take the fast path; then they do again."""
    for _ in range(2):
        bed.both(asked())
    for front in (bed.compiled, bed.plain):
        front.tables.take({"table": "resets", "entries": {f"{TOPIC}@g": {"0": 7}}})
    compiled, heard = bed.both(asked())
    assert compiled is None and b'"nextBeginOffset":"7"' in heard
    bed.both(asked())
    assert bed.both(asked())[0]


def test_nothing_is_taken_while_the_broker_serves_no_pulls(bed: Bed) -> None:
    bed.both(asked())
    waiting.publish(bed.counters.broker_permission, 2)
    assert bed.compiled.compiled(asked()) == 0
    assert bed.compiled.pulls.compiled.block is not None and not bed.compiled.pulls.compiled.is_to_learn
