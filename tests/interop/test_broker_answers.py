"""Our master and slave beside RocketMQ's, 4.9.7 and 5.3.3: the same requests at both ports, the same answers.

All four begin with the same config files, so the bodies that a slave asks for must be the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.remoting.frame import Serialize
from store.tables import fastjson, json_files
from tests.harness.conditions import await_that
from tests.interop import rocketmq
from tests.interop.needs import need
from tests.interop.questions import Peer, Question, differences
from tests.interop.rocketmq import NameServer, RocketMQBroker
from tests.interop.sides import OurNameServer
from tools.common.local_broker import LocalBroker

OURS = {"mappedFileSizeCommitLog": 256 * 1024, "mappedFileSizeConsumeQueue": 20_000, "ringSizeInBytes": 1 << 20,
        "maxMessageSize": 65536, "brokerName": "broker-a"}  # fmt: skip
FIRST = {"counter": 3, "timestamp": 1_700_000_000_000}
FAST = 2
RUNTIME_INFO, HA_STATUS = 28, 907
TOPIC = {"topic": "made", "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "2", "perm": "6",
         "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}  # fmt: skip
UNSERVED = (0, 5, 99, 500, 903, 999, 2000, 12345)  # that RocketMQ does not know either


def write_config(store: Path, five: bool) -> None:
    """What the broker finds: topics, groups, offsets."""
    version = {**FIRST, **({"stateVersion": 0} if five else {})}
    config = {
        "order": False,
        "perm": 6,
        "readQueueNums": 4,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "kept",
        "topicSysFlag": 0,
        "writeQueueNums": 4,
        **({"attributes": {}} if five else {}),
    }
    write = json_files.write
    write(store / "config" / "topics.json", {"dataVersion": version, "topicConfigTable": {"kept": config}})
    offsets = {f"kept@g{n}": {queue: 7 * n + queue for queue in range(4)} for n in range(30)}
    table = {"dataVersion": version, "offsetTable": offsets} if five else {"offsetTable": offsets}
    write(store / "config" / "consumerOffset.json", table)
    delayed = {"offsetTable": {1: 0, 17: 0}}  # where there are no such messages, RocketMQ puts them back to 0
    write(store / "config" / "delayOffset.json", {**delayed, "dataVersion": version} if five else delayed)
    groups: dict[str, Any] = {"subscriptionGroupTable": {"kept-group": {"groupName": "kept-group", "retryMaxTimes": 3}}}
    # 4.9 forgets the version of this file at every start
    write(store / "config" / "subscriptionGroup.json", {**groups, "dataVersion": version} if five else groups)


def tables() -> Iterator[Question]:
    for port in (0, FAST):
        for code in (21, 43, 45, 201):
            yield Question(code, port=port, settles=True)
            yield Question(code, {}, port=port, serialize=Serialize.ROCKETMQ, settles=True)
        for code in (61, 402):
            yield Question(code, port=port)


def refusals() -> Iterator[Question]:
    for code in UNSERVED:
        for serialize in Serialize:
            for port in (0, FAST):
                yield Question(code, serialize=serialize, port=port)
    for code in (17, 215):
        for topic in ("", " ", "a b", "x" * 128, "x" * 127, "TBW102", "broker-a", "DefaultCluster", "rmq_sys_x",
                      "SCHEDULE_TOPIC_XXXX", "é"):  # fmt: skip
            if (code, topic) != (17, "x" * 127):
                yield Question(code, {**TOPIC, "topic": topic})
        yield Question(code)
        yield Question(code, {})
    for name in ("readQueueNums", "writeQueueNums", "perm", "topicFilterType"):
        yield Question(17, {key: value for key, value in TOPIC.items() if key != name})
        yield Question(17, {**TOPIC, name: "bad"})
    yield Question(25, body=b"")
    yield Question(25)
    yield Question(200, body=b"{}")
    yield Question(200, body=b"[]")
    yield Question(207)
    yield Question(207, {"groupName": "never", "removeOffset": "true"})
    yield Question(300)
    yield Question(300, {"topic": "never"})


def changes(five: bool) -> Iterator[Question]:
    yield Question(17, TOPIC)
    yield Question(17, {**TOPIC, "perm": "4", "order": "true"})
    yield Question(17, {**TOPIC, "topic": "second", "topicSysFlag": "3"}, port=FAST, serialize=Serialize.ROCKETMQ)
    if five:
        for change in ("+message.type=FIFO", "-message.type", "+message.type=NORMAL,+queue.type=SimpleCQ", "+unknown=1",
                       "message.type=FIFO", "+message.type", "+message.type=NOTHING"):  # fmt: skip
            yield Question(17, {**TOPIC, "topic": "with-attributes", "attributes": change})
            yield Question(21, settles=True)
    yield Question(215, {"topic": "second"})
    yield Question(215, {"topic": "second"})
    yield Question(215, {"topic": "never"})
    yield Question(200, body=json.dumps({"groupName": "made-group", "retryMaxTimes": 5}).encode())
    yield Question(200, body=json.dumps({"groupName": "made-group", "consumeEnable": False, "other": 1}).encode())
    yield Question(207, {"groupName": "kept-group", "removeOffset": "true", "cleanOffset": "true"})
    yield Question(207, {"groupName": "g7", "removeOffset": "true", "cleanOffset": "true"})
    yield Question(300, {"topic": "kept"})
    yield Question(25, body=b"brokerPermission=4\n")
    yield from tables()
    yield Question(25, body=b"brokerPermission=6\nregisterNameServerPeriod=20000\n")
    yield from tables()


@pytest.mark.interop
@pytest.mark.parametrize("version", rocketmq.VERSIONS)
def test_master_and_slave_answer_as_rocketmqs_do(version: str, tmp_path: Path) -> None:
    need([version])
    five = rocketmq.is_five(version)
    for name in ("rm", "rs", "om", "os"):
        write_config(tmp_path / name / "store", five)
    found = []
    with ExitStack() as stack:
        names = stack.enter_context(NameServer(tmp_path / "names", version))
        our_names = OurNameServer(tmp_path / "our-names", version)
        stack.callback(our_names.stop)
        sizes = {"mappedFileSizeCommitLog": OURS["mappedFileSizeCommitLog"], "timerWheelEnable": "true"}
        slave_settings = {"brokerRole": "SLAVE", "brokerId": 1}
        real = stack.enter_context(RocketMQBroker(tmp_path / "rm", version, namesrvAddr=names.address, **sizes))
        real_slave = stack.enter_context(
            RocketMQBroker(tmp_path / "rs", version, namesrvAddr=names.address, **sizes, **slave_settings)
        )
        settings = {"namesrvAddr": our_names.address, "compat": "5" if five else "4.9", **OURS, **rocketmq.PATIENCE}
        ours = stack.enter_context(LocalBroker(tmp_path / "om", **settings))
        our_slave = stack.enter_context(LocalBroker(tmp_path / "os", **settings, **slave_settings))
        peers = [Peer(one.port, TIMES) for one in (real, ours)]
        peers += [Peer(one.port, {**TIMES, GROUPS_COUNTER: ZERO}) for one in (real_slave, our_slave)]
        for peer in peers:
            stack.callback(peer.close)
        # slaves first: what is changed at their masters, 5.x's know a minute later
        found += differences(peers[2], peers[3], [*tables(), *refusals(), Question(17, TOPIC)])
        found += differences(peers[0], peers[1], [*tables(), *refusals(), *changes(five)])
        found += check_figures(peers[0], peers[1], five) + check_settings(peers[0], peers[1])
    assert not found, f"{len(found)} answers differ:\n" + "\n".join(found)


# How often the real one's topics changed depends on when it was announced to its name server.
COUNTER = r'counter\\":\d+(?=[^{}]*}(,\\"mappingDataVersion\\"[^}]*})?,\\"topicConfigTable)'
ZERO = r'counter\\":0'
TIMES = {r'timestamp\\":\d+': r'timestamp\\":0', COUNTER: ZERO}
# A slave counts its own system groups until it has its master's.
GROUPS_COUNTER = r'counter\\":\d+(?=[^{}]*}(,\\"forbiddenTable\\":{})?,\\"subscriptionGroupTable)'
OF_THE_DISK = ("scheduleMessage", "commitLogDiskRatio_")
# Of this test's own choosing, or safer in ours (DECISIONS.md).
SET = {
    "brokerName", "brokerId", "brokerIP1", "brokerIP2", "bindAddress", "listenPort", "haListenPort", "namesrvAddr",
    "storePathRootDir", "storePathCommitLog", "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue",
    "maxHashSlotNum", "maxIndexNum", "maxMessageSize", "diskMaxUsedSpaceRatio", "diskSpaceWarningLevelRatio",
    "diskSpaceCleanForciblyRatio",
    "haMasterAddress", "registerNameServerPeriod", "metricsExporterType", "metricsPromExporterHost",
    "metricsPromExporterPort", "timerWheelEnable",  # ours has no wheel, and says so
}  # fmt: skip


def check_figures(real: Peer, ours: Peer, five: bool) -> list[str]:
    """Names of runtime figures and of what haStatus says: all of RocketMQ's are there."""
    found = []
    for code in (RUNTIME_INFO, HA_STATUS) if five else (RUNTIME_INFO,):
        theirs, mine = (names_in(figures_of(peer, code)) for peer in (real, ours))
        missing = sorted(name for name in theirs - mine if not name.startswith(OF_THE_DISK))
        found += [f"{code}: {name} is not there" for name in missing]
    return found


def figures_of(peer: Peer, code: int) -> dict[str, Any]:
    """What is said; of 907, what is once a slave follows: it may be about to come again."""

    def said() -> dict[str, Any]:
        figures: dict[str, Any] = fastjson.loads(peer.ask(Question(code)).body)
        return figures if code != HA_STATUS or figures["haConnectionInfo"] else {}

    return await_that(said, "a slave follows", pause=0.5)


def names_in(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(names_in, value.values()))
    return set().union(*map(names_in, value)) if isinstance(value, list) else set()


def settings_of(peer: Peer) -> dict[str, str]:
    lines = bytes(peer.ask(Question(26)).body).decode().splitlines()
    return {name: value for name, _is, value in (line.partition("=") for line in lines)}


def check_settings(real: Peer, ours: Peer) -> list[str]:
    """What both call by one name, and nobody set, has the same value."""
    theirs, mine = settings_of(real), settings_of(ours)
    return [
        f"26: {name}: RocketMQ {theirs[name]}, ours {mine[name]}"
        for name in sorted((theirs.keys() & mine.keys()) - SET)
        if theirs[name] != mine[name]
    ]
