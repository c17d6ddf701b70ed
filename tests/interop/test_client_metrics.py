"""What a real 5.3.3 broker exports of its clients, and what ours does, after the same requests: the same samples."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from store.message.properties import java_hash
from tests.harness.conditions import await_that
from tests.interop.needs import need
from tests.interop.remoting import Client
from tests.interop.rocketmq import PATIENCE, RocketMQBroker
from tools.common.local_broker import LocalBroker, free_port

UPDATE_TOPIC, UPDATE_GROUP, HEART_BEAT, PULL, COMMIT, MAX_OFFSET = 17, 200, 34, 11, 15, 30
SEND_BACK, END_TRANSACTION, UPDATE_TOPICS, UPDATE_GROUPS = 36, 37, 18, 225
VERSION, SECONDS = "5.3.3", 180
RPC = "rocketmq_rpc_latency_milliseconds_count"
COUNTED = (
    "rocketmq_messages_in_total", "rocketmq_throughput_in_total", "rocketmq_message_size_bucket",
    "rocketmq_message_size_count", "rocketmq_message_size_sum", "rocketmq_send_to_dlq_messages_total",
    "rocketmq_half_messages", "rocketmq_commit_messages_total", "rocketmq_rollback_messages_total",
    "rocketmq_finish_message_latency_milliseconds_bucket", "rocketmq_finish_message_latency_milliseconds_count",
    "rocketmq_topic_create_execution_time_milliseconds_count",
    "rocketmq_consumer_group_create_execution_time_milliseconds_count",
)  # fmt: skip
NAMES = (
    *COUNTED,
    RPC,
    "rocketmq_producer_connections",
    "rocketmq_consumer_connections",
    "rocketmq_messages_out_total",
    "rocketmq_throughput_out_total",
    "rocketmq_consumer_lag_messages",
    "rocketmq_consumer_inflight_messages",
    "rocketmq_consumer_ready_messages",
    "rocketmq_consumer_lag_latency_milliseconds",
    "rocketmq_consumer_queueing_latency_milliseconds",
)
CHECKS = "CID_RMQ_SYS_TRANS"  # reads of RocketMQ's check service, which comes when its interval is over
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Listener(Client):
    """It passes over what a broker says unasked."""

    def _answer(self) -> tuple[dict[str, Any], bytes]:
        while True:
            header, body = super()._answer()
            if header["flag"] & 1:
                return header, body


def subscription(topic: str, *tags: str) -> dict[str, object]:
    text = "||".join(tags) or "*"
    return {
        "topic": topic,
        "subString": text,
        "tagsSet": list(tags),
        "codeSet": [java_hash(tag) for tag in tags],
        "subVersion": 1,
        "expressionType": "TAG",
        "classFilterMode": False,
    }


def consumer(group: str, *subscriptions: dict[str, object], kind: str = "CONSUME_PASSIVELY") -> dict[str, object]:
    return {
        "groupName": group, "consumeType": kind, "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": list(subscriptions), "unitMode": False,
    }  # fmt: skip


def pull(client: Client, group: str, topic: str, queue_id: int, offset: int, most: int) -> None:
    fields = {
        "consumerGroup": group, "topic": topic, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": most,
        "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 15_000, "subscription": "*", "subVersion": 0,
        "expressionType": "TAG",
    }  # fmt: skip
    assert client.request(PULL, fields)["code"] == 0


def await_in_queue(client: Client, topic: str, queue_id: int, count: int) -> None:
    """A broker's queues are built behind its answers."""

    def is_there() -> bool:
        answer = client.request(MAX_OFFSET, {"topic": topic, "queueId": queue_id})
        return bool(int(answer["extFields"]["offset"]) == count)

    await_that(is_there, f"queue {queue_id} of {topic} is built", SECONDS, pause=0.05)


def play(client: Client) -> None:
    """Two topics, a producer, three groups: one reads a part, one wants a tag, one has never said how far it is."""
    topic = {"defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6,
             "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}  # fmt: skip
    for name in ("seen", "other"):
        assert client.request(UPDATE_TOPIC, {**topic, "topic": name})["code"] == 0
    for name in ("no name", "rmq_sys_own"):
        assert client.request(UPDATE_TOPIC, {**topic, "topic": name})["code"] != 0
    many = {"topicConfigList": [{"topicName": name, "attributes": {}} for name in ("one", "two")]}
    assert client.exchange(UPDATE_TOPICS, body=json.dumps(many).encode())[0]["code"] == 0
    many = {"groupConfigList": [{"groupName": name, "attributes": {}} for name in ("one", "two")]}
    assert client.exchange(UPDATE_GROUPS, body=json.dumps(many).encode())[0]["code"] == 0
    for group in ("reads", "tagged", "new"):
        assert client.exchange(UPDATE_GROUP, body=json.dumps({"groupName": group}).encode())[0]["code"] == 0
    for number in range(30):
        key = f"UNIQ_KEY\1{number:032X}\2"  # a broker's own has its address in it, of either length
        client.send("seen", number % 2, b"x" * 50, f"{key}TAGS\1{'abc'[number % 3]}\2")
        client.send("other", 0, b"y", key)
    for queue_id in (0, 1):
        for group in ("reads", "tagged"):
            said = {"consumerGroup": group, "topic": "seen", "queueId": queue_id, "commitOffset": 2 + queue_id}
            assert client.request(COMMIT, said)["code"] == 0
    heartbeat = {
        "clientID": "here@1",
        "producerDataSet": [{"groupName": "makes"}, {"groupName": "makes too"}],
        "consumerDataSet": [
            consumer("reads", subscription("seen"), subscription("%RETRY%reads"), subscription("nowhere")),
            consumer("tagged", subscription("seen", "a", "c")),
            consumer("new", subscription("seen"), subscription("other"), kind="CONSUME_ACTIVELY"),
        ],
    }
    assert client.request(HEART_BEAT, body=json.dumps(heartbeat).encode())["code"] == 0
    for built in (("seen", 0, 15), ("seen", 1, 15), ("other", 0, 30)):
        await_in_queue(client, *built)
    pull(client, "reads", "seen", 0, 2, 5)
    pull(client, "reads", "seen", 1, 3, 7)
    pull(client, "tagged", "seen", 0, 2, 6)
    pull(client, "new", "other", 0, 0, 4)
    play_unusual(client)


def play_unusual(client: Client) -> None:
    """Transactions, a message of later, large ones, a dead letter."""
    key = f"UNIQ_KEY\1{99:032X}\2"
    for size in (1100, 5000, 40_000):
        client.send("sized", 0, b"z" * size, key)
    client.send("sized", 0, b"later", f"{key}DELAY\x0118\2")
    prepared = "TRAN_MSG\1true\2PGROUP\1makes\2"
    halves = [client.put("paid", 0, b"half", f"UNIQ_KEY\1{number:032X}\2{prepared}") for number in range(3)]
    for half, decision in zip(halves, (8, 12), strict=False):
        fields = half["extFields"]
        end = {
            "producerGroup": "makes",
            "tranStateTableOffset": fields["queueOffset"],
            "commitOrRollback": decision,
            "commitLogOffset": int(fields["msgId"][16:], 16),
            "fromTransactionCheck": False,
            "msgId": fields["msgId"],
            "transactionId": fields.get("transactionId", ""),
        }
        assert client.request(END_TRANSACTION, end)["code"] == 0
    bad = int(client.put("seen", 0, b"bad", key)["extFields"]["msgId"][16:], 16)
    back = {
        "offset": bad, "group": "reads", "delayLevel": -1, "originTopic": "seen", "originMsgId": "", "unitMode": False,
    }  # fmt: skip
    assert client.request(SEND_BACK, back)["code"] == 0


def scraped(port: int) -> Samples:
    """The metrics by name and labels; of times, whether there is any."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in NAMES and sample.labels.get("consumer_group") != CHECKS:
                sample.labels.pop("otel_scope_name", None)  # of the library
                is_time = sample.name.endswith("milliseconds") or sample.name == RPC
                value = float(sample.value > 0) if is_time else sample.value
                samples[sample.name, frozenset(sample.labels.items())] = value
    return samples


def settled(port: int, is_there: Callable[[Samples], bool]) -> Samples:
    """What is scraped once it is as it will be; a broker that is busy may be late, or hang up."""
    kept: Samples = {}

    def look() -> bool:
        kept.clear()
        try:
            kept.update(scraped(port))
            return is_there(kept)
        except OSError:
            return False

    await_that(look, "the metrics are there", SECONDS, pause=0.2)
    return kept


def unlike(theirs: Samples, ours: Samples) -> str:
    """What one side says and the other does not."""
    sides = (("RocketMQ", theirs, ours), ("ours", ours, theirs))
    return "\n".join(
        f"{whose}: {name} {sorted(labels)} {of[name, labels]}"
        for whose, of, other in sides
        for name, labels in sorted(of, key=repr)
        if other.get((name, labels)) != of[name, labels]
    )


@pytest.mark.interop
def test_a_real_broker_exports_the_same_samples_of_clients(tmp_path: Path) -> None:
    need([VERSION])
    ports = free_port(), free_port()
    settings = {"metricsExporterType": "PROM", "metricsPromExporterHost": "127.0.0.1", "brokerName": "broker-a",
                "transactionCheckInterval": 10**9}  # fmt: skip
    with ExitStack() as stack:
        real = stack.enter_context(
            RocketMQBroker(tmp_path / "real", VERSION, **settings, metricsPromExporterPort=ports[0])
        )
        sizes = {"mappedFileSizeCommitLog": 1 << 20, "ringSizeInBytes": 1 << 20, "maxMessageSize": 65536}
        keys = {"compat": "5", "metricsPromExporterPort": ports[1], **settings, **sizes, **PATIENCE}
        ours = stack.enter_context(LocalBroker(tmp_path / "ours", **keys))
        for port in (real.port, ours.port):
            client = stack.enter_context(Listener(port))
            play(client)
        settled(ports[0], lambda samples: len(samples) >= 20)
        told = [""]

        def are_the_same(samples: Samples) -> bool:
            told[0] = unlike(scraped(ports[0]), samples)  # a real broker, too, counts some of it behind its answers
            return not told[0]

        with suppress(AssertionError):
            settled(ports[1], are_the_same)
    assert not told[0], told[0]
