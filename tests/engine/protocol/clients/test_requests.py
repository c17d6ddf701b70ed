"""Heartbeats and what they lead to, in virtual time: answers as captured brokers gave them, and RocketMQ's rules."""

from __future__ import annotations

import base64
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.clients.consumers import BACK_AFTER_MS, ConsumerManager
from engine.protocol.clients.locks import LIFE_MS, RebalanceLockManager
from engine.protocol.clients.producers import ProducerManager
from engine.protocol.clients.requests import ClientRequests
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand, decode, encode
from engine.protocol.tables.defaults import Identity
from engine.protocol.tables.metadata import Metadata
from store.compat import LINES
from store.tables import fastjson

GOLDEN = Path(__file__).parents[3] / "golden"
EXPIRY_MS = 120_000


class Broker:
    """One broker's clients; `now_ms` is what the clock says."""

    def __init__(self, compat: str, *, makes_groups: bool = True) -> None:
        self.now_ms = 1000
        line = LINES[compat]
        self.metadata = Metadata(Identity(line, "DefaultCluster", "broker-a"), {}, 0)
        self.consumers, self.producers = ConsumerManager(line.groups, EXPIRY_MS), ProducerManager(EXPIRY_MS)
        self.locks = RebalanceLockManager()
        self.requests = ClientRequests(
            compat,
            self.metadata,
            self.consumers,
            self.producers,
            self.locks,
            lambda: self.now_ms,
            makes_groups=makes_groups,
        )

    def ask(self, code: int, body: object = b"", channel: int = 1, **ext: str) -> RemotingCommand:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = self.requests.answer(RemotingCommand(code, ext_fields=ext, body=content), channel, self.now_ms)
        assert answer is not None
        return answer

    def heartbeat(self, channel: int, *consumers: dict[str, Any], client: str = "", **fields: Any) -> RemotingCommand:
        body = {"clientID": client or f"client-{channel}", "consumerDataSet": list(consumers), **fields}
        return self.ask(RequestCode.HEART_BEAT, body, channel)

    def members(self, group: str) -> list[str] | None:
        answer = self.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group)
        return json.loads(bytes(answer.body))["consumerIdList"] if answer.code == 0 else None


def consumer(group: str, *topics: str, version: int = 1, model: str = "CLUSTERING", **fields: Any) -> dict[str, Any]:
    return {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": model,
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": version} for topic in topics],
        **fields,
    }


@pytest.fixture(params=list(LINES))
def broker(request: pytest.FixtureRequest) -> Broker:
    return Broker(request.param)


@pytest.mark.parametrize(("compat", "version"), [("4.9", "4.9.7"), ("5", "5.3.3")])
def test_captured_clients_get_the_real_brokers_answers(compat: str, version: str) -> None:
    of, asked = Broker(compat), {}
    compared = dict.fromkeys((34, 35, 38), 0)
    channels: dict[int, int] = {}
    with lzma.open(GOLDEN / f"rocketmq-{version}" / "remoting.jsonl.xz", "rt") as lines:
        traffic = [line for line in map(json.loads, lines) if line["server"] == "master"]
    for line in traffic:
        channel = channels.setdefault(line["conn"], len(channels))
        command = decode(base64.b64decode(line["frame"])[4:])
        if line["kind"] != "response":
            if command.code in compared and line["dir"] == "c2s":
                asked[channel, command.opaque] = of.requests.answer(command, channel, 5)
            continue
        ours = asked.pop((channel, command.opaque), None)
        if ours is None:
            continue
        ours = decode(encode(ours)[4:])
        assert (ours.code, ours.remark, ours.ext_fields, ours.flag, ours.version) == (
            command.code, command.remark, command.ext_fields, command.flag, command.version
        ), line  # fmt: skip
        if command.body:
            theirs = fastjson.loads(command.body)["consumerIdList"]
            assert sorted(fastjson.loads(ours.body)["consumerIdList"]) == sorted(theirs)
        compared[line["to"]] += 1
    assert all(compared.values()), compared


def test_a_heartbeat_makes_a_group_and_its_retry_topic(broker: Broker) -> None:
    answer = broker.heartbeat(1, consumer("g", "t"))
    assert answer.code == 0 and broker.requests.wants_registration
    assert broker.metadata.groups["g"]["retryMaxTimes"] == 16
    retry = broker.metadata.topics["%RETRY%g"]
    assert (retry["perm"], retry["readQueueNums"], retry["writeQueueNums"]) == (6, 1, 1)
    assert broker.consumers.take_altered() == ["g"]
    assert broker.consumers.take_notices() == [("g", [1])]


def test_members_come_go_and_hear_of_each_other(broker: Broker) -> None:
    broker.heartbeat(1, consumer("g", "t"))
    broker.heartbeat(2, consumer("g", "t"))
    assert broker.consumers.take_notices() == [("g", [1]), ("g", [1, 2])]
    assert broker.members("g") == ["client-1", "client-2"]
    broker.heartbeat(1, consumer("g", "t"))
    assert not broker.consumers.take_notices(), "nothing has changed"
    broker.heartbeat(1, consumer("g", "t", "u", version=2))
    assert broker.consumers.take_notices() == [("g", [1, 2])], "a topic came"
    assert broker.ask(RequestCode.UNREGISTER_CLIENT, channel=1, clientID="client-1", consumerGroup="g").code == 0
    assert broker.consumers.take_notices() == [("g", [2])]
    broker.consumers.channel_left(2)
    assert not broker.consumers.take_notices() and broker.members("g") is None
    assert broker.consumers.groups == {} and broker.consumers.take_altered() == ["g"]


def test_members_of_a_front_that_died_are_members_until_they_come_back(broker: Broker) -> None:
    for channel in (1, 2, 3):
        broker.heartbeat(channel, consumer("g", "t"), consumer("h", "t"))
    broker.consumers.take_notices()
    for channel in (1, 2, 3, 4):
        broker.consumers.channel_lost(channel, broker.now_ms)
    everybody = ["client-1", "client-2", "client-3"]
    assert broker.members("g") == broker.members("h") == everybody
    broker.heartbeat(11, consumer("g", "t"), consumer("h", "t"), clientID="client-1")
    assert broker.members("g") == everybody[1:] + everybody[:1] and list(broker.consumers.groups["g"].members)[-1] == 11
    goodbye = {"clientID": "client-2", "consumerGroup": "g"}
    assert not broker.consumers.take_notices(), "nobody came"
    assert broker.ask(RequestCode.UNREGISTER_CLIENT, channel=12, **goodbye).code == 0
    assert broker.consumers.take_notices() == [("g", [3, 11])]
    broker.now_ms += BACK_AFTER_MS - 1
    broker.consumers.take_overdue(broker.now_ms)
    assert not broker.consumers.take_notices()
    broker.consumers.take_overdue(broker.now_ms + 1)
    assert broker.members("g") == broker.members("h") == ["client-1"]
    assert broker.consumers.take_notices()[-1] == ("h", [11])
    broker.consumers.channel_left(11)
    assert broker.consumers.groups == {}


def test_nobody_in_a_group_is_an_error_with_its_name(broker: Broker) -> None:
    answer = broker.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g")
    assert (answer.code, answer.remark) == (1, "no consumer for this group, g")
    assert answer.ext_fields == {}


def test_broadcasting_members_hear_of_no_change_in_5() -> None:
    for compat, heard in (("4.9", True), ("5", False)):
        broker = Broker(compat)
        broker.heartbeat(1, consumer("g", "t", model="BROADCASTING"))
        assert bool(broker.consumers.take_notices()) is heard
        broker.heartbeat(2, consumer("g", "t", model="BROADCASTING"))
        broker.consumers.take_notices()
        broker.consumers.channel_left(1)
        assert bool(broker.consumers.take_notices()) is heard


def test_a_group_may_hear_of_lost_connections_only(broker: Broker) -> None:
    broker.heartbeat(1, consumer("g", "t"))
    broker.metadata.groups["g"]["notifyConsumerIdsChangedEnable"] = False
    broker.consumers.take_notices()
    broker.heartbeat(2, consumer("g", "t"))
    broker.ask(RequestCode.UNREGISTER_CLIENT, channel=2, clientID="client-2", consumerGroup="g")
    assert not broker.consumers.take_notices()
    broker.heartbeat(2, consumer("g", "t"))
    broker.consumers.channel_left(2)
    assert broker.consumers.take_notices() == [("g", [1])], "RocketMQ does not ask the group then"


def test_subscriptions_follow_their_versions_and_the_last_list(broker: Broker) -> None:
    def sub_string() -> str | None:
        one = broker.consumers.subscription("g", "t")
        return one.sub_string if one is not None else None

    def say(text: str, version: int, channel: int = 1) -> None:
        data = consumer("g")
        data["subscriptionDataSet"] = [{"topic": "t", "subString": text, "subVersion": version, "codeSet": [65]}]
        broker.heartbeat(channel, data)

    say("a", 5)
    say("b", 4)
    assert sub_string() == "a", "older"
    say("b", 5)
    assert sub_string() == "a", "no newer"
    broker.consumers.take_altered()
    say("b", 6, channel=2)
    assert sub_string() == "b" and broker.consumers.take_altered() == ["g"]
    value = broker.consumers.groups["g"].value()
    assert value["topics"]["t"]["codeSet"] == [65] and value["consumers"] == 2
    broker.heartbeat(1, consumer("g", "u"))
    assert list(broker.consumers.groups["g"].subscriptions) == ["u"], "what one does not say is gone for all"


def test_clients_that_fall_silent_are_hung_up_on(broker: Broker) -> None:
    broker.heartbeat(1, consumer("g", "t"), producerDataSet=[{"groupName": "p"}])
    broker.now_ms += EXPIRY_MS
    broker.heartbeat(2, consumer("g", "t"), producerDataSet=[{"groupName": "p"}])
    broker.now_ms += 1
    for manager in (broker.consumers, broker.producers):
        manager.scan.begin(broker.now_ms)
        while manager.scan.step():
            pass
        assert manager.hang_ups == [1]
    assert broker.members("g") == ["client-2"] and list(broker.producers.groups["p"]) == [2]
    assert broker.producers.channel_of("client-1") is None and broker.producers.channel_of("client-2") == 2


def test_producers_take_turns(broker: Broker) -> None:
    assert broker.producers.available_channel("p") is None
    for channel in (1, 2):
        broker.heartbeat(channel, producerDataSet=[{"groupName": "p"}])
    assert {broker.producers.available_channel("p") for _ in range(2)} == {1, 2}
    broker.ask(RequestCode.UNREGISTER_CLIENT, channel=1, clientID="client-1", producerGroup="p")
    assert {broker.producers.available_channel("p") for _ in range(2)} == {2}
    broker.producers.channel_left(2)
    assert broker.producers.groups == {}


def test_fingerprints_say_whether_somebody_said_otherwise() -> None:
    broker = Broker("5")

    def changed(channel: int, fingerprint: int, *topics: str, without: bool = False) -> str | None:
        answer = broker.heartbeat(channel, consumer("g", *topics), heartbeatFingerprint=fingerprint, withoutSub=without)
        assert answer.ext_fields is not None and answer.ext_fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
        return answer.ext_fields["IS_SUB_CHANGE"]

    assert changed(1, 7, "t") == "false"
    assert changed(1, 7, without=True) == "false"
    assert list(broker.consumers.groups["g"].subscriptions) == ["t"], "nothing was said to be gone"
    assert changed(2, 8, "t", "u") == "true"
    assert changed(1, 7, without=True) == "true", "it must say all again"
    assert changed(1, 0, "t") == "true", "one of the older kind"
    broker.consumers.channel_left(1)
    broker.consumers.channel_left(2)
    assert changed(3, 7, without=True) == "true", "what it means is not known here"


def test_groups_are_made_only_where_that_is_allowed() -> None:
    for compat in LINES:
        broker = Broker(compat, makes_groups=False)
        broker.heartbeat(1, consumer("g", "t"), consumer("CID_RMQ_SYS_x", "t"))
        assert "g" not in broker.metadata.groups and "CID_RMQ_SYS_x" in broker.metadata.groups
        assert broker.members("g") == (["client-1"] if compat == "4.9" else None)
    five = Broker("5")
    five.heartbeat(1, consumer("no name", "t"))
    assert "no name" not in five.metadata.groups and five.members("no name") is None


def test_a_retry_topic_is_ordered_where_the_group_reads_an_ordered_topic() -> None:
    for compat in LINES:
        broker = Broker(compat)
        broker.metadata.topics["t"] = {**broker.metadata.topics["TBW102"], "topicName": "t", "order": True}
        broker.heartbeat(1, consumer("g", "t", unitMode=True))
        retry = broker.metadata.topics["%RETRY%g"]
        assert retry["order"] is (compat == "5") and retry["topicSysFlag"] == 2
        broker.metadata.topics["t"]["order"] = False
        broker.heartbeat(1, consumer("g", "t"))
        assert broker.metadata.topics["%RETRY%g"]["order"] is False


def test_expressions_are_refused_by_name(broker: Broker) -> None:
    def check(**subscription: str) -> RemotingCommand:
        return broker.ask(
            RequestCode.CHECK_CLIENT_CONFIG, {"clientId": "c", "group": "g", "subscriptionData": subscription}
        )

    assert check(topic="t", subString="a").code == 0
    assert check(topic="t", expressionType="TAG").code == 0
    refused = check(topic="t", expressionType="SQL92", subString="a > 1")
    remark = "The broker does not support consumer to filter message by SQL92"
    assert (refused.code, refused.remark) == (1, remark)
    assert broker.ask(RequestCode.CHECK_CLIENT_CONFIG).code == 0


def locks(client: str, *queues: int, group: str = "g") -> dict[str, Any]:
    queue_set = [{"brokerName": "broker-a", "queueId": queue, "topic": "t"} for queue in queues]
    return {"consumerGroup": group, "clientId": client, "mqSet": queue_set}


def test_a_queue_is_one_clients_for_a_minute(broker: Broker) -> None:
    def lock(client: str, *queues: int) -> list[int]:
        answer = broker.ask(RequestCode.LOCK_BATCH_MQ, locks(client, *queues))
        assert answer.code == 0
        return sorted(one["queueId"] for one in json.loads(bytes(answer.body))["lockOKMQSet"])

    assert lock("a", 0, 1) == [0, 1]
    assert lock("b", 0, 1, 2) == [2]
    broker.now_ms += LIFE_MS
    assert lock("a", 0) == [0], "said again"
    broker.now_ms += 1
    assert lock("b", 0, 1) == [1], "a did not renew 1"
    assert broker.ask(RequestCode.UNLOCK_BATCH_MQ, locks("b", 0)).code == 0
    assert lock("b", 0) == [], "it was not b's to give back"
    broker.ask(RequestCode.UNLOCK_BATCH_MQ, locks("a", 0))
    assert lock("b", 0) == [0]
    broker.now_ms += LIFE_MS + 1
    broker.locks.scan.begin(broker.now_ms)
    while broker.locks.scan.step():
        pass
    assert broker.locks.locks == {}


def test_a_heartbeat_of_apaches_cpp_client_registers_its_group(broker: Broker) -> None:
    """It writes enums as ordinals and the version as a text."""
    subscription = {
        "codeSet": [3079651], "subString": "tag", "subVersion": "1795668105303", "tagsSet": ["tag"], "topic": "t",
    }  # fmt: skip
    data = {
        "groupName": "g", "consumeType": 1, "messageModel": 0, "consumeFromWhere": 4,
        "subscriptionDataSet": [subscription],
    }  # fmt: skip
    body = {"clientID": "1.2.3.4@5", "consumerDataSet": [data], "producerDataSet": [{"groupName": "p"}]}
    assert broker.ask(RequestCode.HEART_BEAT, body).code == ResponseCode.SUCCESS
    group = broker.consumers.groups["g"]
    said = group.consume_type, group.message_model, group.consume_from_where
    assert said == ("CONSUME_PASSIVELY", "BROADCASTING", "CONSUME_FROM_FIRST_OFFSET")
    assert group.subscriptions["t"].sub_version == 1795668105303
    assert "p" in broker.producers.groups


@pytest.mark.parametrize(
    ("value", "meant"),
    [("consume_passively", "CONSUME_PASSIVELY"), (2, "CONSUME_POP"), ("x", None), ("", None), (None, None)],
)
def test_a_consume_type_is_a_name_in_any_case_or_an_ordinal(broker: Broker, value: Any, meant: str | None) -> None:
    data = consumer("g", "t") | {"consumeType": value}
    assert broker.heartbeat(1, data).code == ResponseCode.SUCCESS
    assert broker.consumers.groups["g"].consume_type == meant


def test_a_heartbeat_without_a_body_is_refused_by_what_it_lacks(broker: Broker) -> None:
    remark = broker.ask(RequestCode.HEART_BEAT).remark or ""
    assert "heartbeat: it has no body" in remark
    assert "record" not in remark


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"clientID":null}',
        b'{"clientID":"c","consumerDataSet":{}}',
        b'{"clientID":"' + b"c" * 256 + b'"}',
        b'{"clientID":"c","consumerDataSet":[1]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g\\u0007"}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"t","codeSet":[1e10]}]}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":9}]}',
        b'{"clientID":"c","producerDataSet":[' + b",".join([b'{"groupName":"p"}'] * 1025) + b"]}",
        b'{"clientID":"c","x":"' + b"x" * (1 << 20) + b'"}',
    ],
)
def test_nonsense_is_refused_and_nothing_of_it_kept(broker: Broker, body: bytes) -> None:
    assert broker.ask(RequestCode.HEART_BEAT, body).code == ResponseCode.SYSTEM_ERROR
    assert not broker.consumers.groups and not broker.producers.groups and "g" not in broker.metadata.groups
    assert broker.ask(RequestCode.LOCK_BATCH_MQ, body).code == ResponseCode.SYSTEM_ERROR
