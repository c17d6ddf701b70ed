"""Our name server beside RocketMQ's, 4.9.7 and 5.3.3: the same requests, the same answers, field by field."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.remoting.frame import Serialize
from tests.harness.conditions import await_that
from tests.interop import rocketmq
from tests.interop.needs import need
from tests.interop.questions import Peer, Question, both, differences
from tests.interop.rocketmq import NameServer
from tests.interop.sides import OurNameServer

HEADER = {"clusterName": "c", "brokerName": "a", "brokerId": "0", "brokerAddr": "10.0.0.1:10911",
          "haServerAddr": "10.0.0.1:10912"}  # fmt: skip


def version_of(counter: int, state: int = 0) -> dict[str, int]:
    return {"counter": counter, "stateVersion": state, "timestamp": 1000 + counter}


def topic(name: str, perm: int = 6, flag: int = 0, queues: int = 4) -> dict[str, Any]:
    return {"order": False, "perm": perm, "readQueueNums": queues, "topicFilterType": "SINGLE_TAG", "topicName": name,
            "topicSysFlag": flag, "writeQueueNums": queues}  # fmt: skip


def body(counter: int, *topics: dict[str, Any], state: int = 0, filters: tuple[str, ...] = ()) -> bytes:
    table = {config["topicName"]: config for config in topics}
    wrapper = {"dataVersion": version_of(counter, state), "topicConfigTable": table}
    return json.dumps({"filterServerList": list(filters), "topicConfigSerializeWrapper": wrapper}).encode()


VERSION = json.dumps(version_of(0)).encode()
TWO = (topic("t0"), topic("t1", flag=1))


def deflated_parts(five: bool) -> Iterator[bytes]:
    texts = [json.dumps(version_of(9)).encode()]
    topics = [f"d{n} 4 {n} 6 SINGLE_TAG{' {}' if five else ''}".encode() for n in range(20)]
    for part in (*texts, len(topics).to_bytes(4), *topics, b"[]", *([bytes(4)] if five else [])):
        is_count = len(part) == 4
        yield part if is_count else len(part).to_bytes(4) + part


def register(content: bytes = b"", connection: int = 1, version: int = 409, **ext: str) -> Question:
    crc = {"bodyCrc32": str(zlib.crc32(content) & 0x7FFFFFFF)} if content else {}
    return Question(103, {**HEADER, **crc, **ext}, content, version, connection=connection)


def looks() -> Iterator[Question]:
    """Everything that can be seen of a name server; each until both say the same: 5.x follows its own answers."""
    yield from (question._replace(settles=True) for question in _looks())


def _looks() -> Iterator[Question]:
    yield Question(106)
    for name in ("t0", "t1", "t2", "t3", "unknown", "rmq_sys_SYNC_BROKER_MEMBER_a", ""):
        for version in (395, 401, 479):
            yield Question(105, {"topic": name}, version=version)
    yield Question(105, {"topic": "t0", "acceptStandardJsonOnly": "true"}, version=395)
    for code in (206, 304, 311, 312, 313):
        yield Question(code)
        yield Question(code, {})
    for cluster in ("c", "d", ""):
        yield Question(224, {"cluster": cluster})
    for address, name in (("10.0.0.1:10911", "a"), ("10.0.0.2:10911", "a"), ("10.0.0.9:1", "z")):
        asked = {**HEADER, "brokerAddr": address, "brokerName": name}
        for number in (0, 1, 3, 7):
            yield Question(322, asked, json.dumps(version_of(number)).encode())
    yield Question(219, {"namespace": "ORDER_TOPIC_CONFIG"})


def bad_requests(five: bool) -> Iterator[Question]:
    codes = [100, 101, 102, 103, 104, 105, 205, 216, 219, 224, 322, 327, *((901, 904, 217) if five else ())]
    for code in codes:
        if code not in (322,):  # whose missing body is an exception of Java's that differs in its text only
            yield Question(code)
            yield Question(code, {}, serialize=Serialize.ROCKETMQ)
    for code in (103, 104, 322):
        for name in ("brokerId",) if code == 103 else HEADER:  # what else a registration lacks, ours refuses
            yield Question(code, {key: value for key, value in HEADER.items() if key != name}, VERSION)
        yield Question(code, {**HEADER, "brokerId": "many"}, VERSION)
    yield Question(103, {**HEADER, "bodyCrc32": "7"}, b"{}")
    yield Question(103, {**HEADER, "bodyCrc32": "7"})
    yield Question(103, HEADER, b"no json", connection=9)
    yield Question(103, {**HEADER, "compressed": "true"}, b"nothing deflated", connection=9)
    yield Question(105, {"topic": "x", "acceptStandardJsonOnly": "perhaps"})


def registrations(five: bool) -> Iterator[Question]:
    yield register(body(1, *TWO))
    yield from looks()
    yield register(body(1, *TWO, topic("t2", flag=2)))  # the version says that nothing changed
    yield from looks()
    yield register(body(3, topic("t0", perm=4, queues=2), topic("t2", flag=2), topic("t3", flag=3)))
    yield from looks()
    slave = {"brokerId": "1", "brokerAddr": "10.0.0.2:10911", "haServerAddr": "10.0.0.2:10912"}
    yield register(body(7, *TWO), connection=2, **slave)
    yield from looks()
    yield register(body(7, *TWO), connection=6, brokerId="2", brokerName="z", brokerAddr="10.0.0.3:1")  # no master
    other = {"clusterName": "d", "brokerName": "b", "brokerAddr": "10.0.0.5:1"}
    yield register(body(8, topic("only")), connection=3, **other)
    yield register(body(8, *TWO, filters=("f:1",)), connection=3, **other)
    yield from looks()
    yield register(connection=4, brokerName="e", brokerAddr="10.0.0.6:1")
    yield from looks()
    deflated = zlib.compress(b"".join(deflated_parts(five)))
    at = {"brokerName": "f", "brokerAddr": "10.0.0.7:1", "compressed": "true"}
    yield register(deflated, connection=5, version=479 if five else 407, **at)
    yield from looks()
    topics_alone = {"dataVersion": version_of(1), "topicConfigTable": {config["topicName"]: config for config in TWO}}
    old = {"brokerName": "old", "brokerAddr": "10.0.0.8:1"}
    yield register(json.dumps(topics_alone).encode(), connection=7, version=36, **old)
    yield from looks()
    yield from permissions(five)
    yield from key_values()
    yield from settings()


def permissions(five: bool) -> Iterator[Question]:
    for code in (205, 327):
        for name in ("a", "unknown"):
            yield Question(code, {"brokerName": name})
        yield from looks()
    yield Question(216, {"topic": "t3"})
    yield Question(216, {"topic": "t0", "clusterName": "d"})
    yield Question(216, {"topic": "t0", "clusterName": "unknown"})
    yield Question(216, {"topic": "never"})
    yield from looks()
    if five:
        queue = {"brokerName": "a", "perm": 6, "readQueueNums": 1, "topicSysFlag": 0, "writeQueueNums": 1}
        for queues in ([queue], [{**queue, "brokerName": "unknown"}], []):
            yield Question(217, {"topic": "by-hand"}, json.dumps({"queueDatas": queues}).encode())
            yield Question(105, {"topic": "by-hand"})
        for cluster, name in (("c", "a"), ("c", "unknown"), ("other", "a")):
            yield Question(901, {"clusterName": cluster, "brokerName": name})
        yield Question(904, HEADER)
        yield Question(904, {**HEADER, "brokerAddr": "unknown:1"})


def key_values() -> Iterator[Question]:
    yield Question(101, {"namespace": "n", "key": "k"})
    yield Question(219, {"namespace": "n"})
    yield Question(100, {"namespace": "n", "key": "k", "value": "v"})
    yield Question(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "t0", "value": "a:4"})
    for key in ("k", "other"):
        yield Question(101, {"namespace": "n", "key": key})
    yield Question(219, {"namespace": "n"})
    yield Question(219, {"namespace": "ORDER_TOPIC_CONFIG"})
    yield Question(105, {"topic": "t0"})
    yield register(body(9, *TWO))
    yield Question(102, {"namespace": "n", "key": "k"})
    yield Question(102, {"namespace": "n", "key": "k"})
    yield Question(102, {"namespace": "never", "key": "k"})
    yield Question(219, {"namespace": "n"})
    yield Question(102, {"namespace": "ORDER_TOPIC_CONFIG", "key": "t0"})
    yield register(body(9, *TWO))
    yield Question(100, {"namespace": "n", "key": "k", "value": ""}, serialize=Serialize.ROCKETMQ)


def settings() -> Iterator[Question]:
    """What may change, what must not, what nobody knows: and that a change is one."""
    yield Question(318)
    for name in ("kvConfigPath", "configStorePath"):
        yield Question(318, body=f"{name}=/elsewhere\norderMessageEnable=true\n".encode())
    yield Question(318, body=b"# a remark\n")
    yield Question(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "t0", "value": "a:4"})
    for value in (b"true", b"false"):
        yield Question(318, body=b"orderMessageEnable=" + value)
        yield Question(105, {"topic": "t0"})
    yield Question(102, {"namespace": "ORDER_TOPIC_CONFIG", "key": "t0"})


def shown_settings(peer: Peer) -> dict[str, str]:
    answer = peer.ask(Question(319))
    assert (answer.code, answer.remark) == (0, None)
    return dict(line.split("=", 1) for line in bytes(answer.body).decode().splitlines())


def unlike_settings(theirs: Peer, ours: Peer) -> list[str]:
    """Those that ours shows and RocketMQ's shows otherwise, where they are not of either side's own place."""
    real, mine = shown_settings(theirs), shown_settings(ours)
    assert {"listenPort", "kvConfigPath", "orderMessageEnable"} <= real.keys() & mine.keys()
    own = {"listenPort", "kvConfigPath", "bindAddress"}
    return [
        f"{name}: {real[name]} and {mine[name]}"
        for name in sorted((real.keys() & mine.keys()) - own)
        if real[name] != mine[name]
    ]


def departures() -> Iterator[Question]:
    unregister = {key: value for key, value in HEADER.items() if key != "haServerAddr"}
    yield Question(104, {**unregister, "brokerAddr": "unknown:1", "brokerName": "unknown"})
    yield Question(104, unregister)
    yield from looks()
    yield Question(104, {**unregister, "brokerId": "1", "brokerAddr": "10.0.0.2:10911"})
    yield from looks()


def is_forgotten(peer: Peer, address: bytes) -> bool:
    return address not in bytes(peer.ask(Question(106)).body)


@pytest.mark.interop
@pytest.mark.parametrize("version", rocketmq.VERSIONS)
def test_the_same_requests_get_the_same_answers(version: str, tmp_path: Path) -> None:
    need([version])
    five = rocketmq.is_five(version)
    with NameServer(tmp_path / "real", version) as real:
        server = OurNameServer(tmp_path / "ours", version)
        try:
            theirs, ours = (Peer(int(at.rpartition(":")[2])) for at in (real.address, server.address))
            with both(theirs, ours):
                found = differences(theirs, ours, [*bad_requests(five), *registrations(five)])
                found += unlike_settings(theirs, ours)
                for connection, address in ((2, b"10.0.0.2:10911"), (3, b"10.0.0.5:1")):
                    for peer in (theirs, ours):
                        peer.hang_up(connection)
                        await_that(partial(is_forgotten, peer, address), "it hears that the connection has ended")
                    found += differences(theirs, ours, looks())
                found += differences(theirs, ours, departures())
        finally:
            server.stop()
    assert not found, f"{len(found)} answers differ:\n" + "\n".join(found)
