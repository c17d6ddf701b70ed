"""RemoteProducer at RocketMQ's brokers and at Slipstream's: RocketMQ's own consumer reads what it sent."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from engine.clients.sending.producer import RemoteProducer
from engine.protocol.ha.put_status import PutMessageStatus
from store.message.record import Message
from tests.harness.conditions import await_that
from tests.interop import needs
from tests.interop.clients import KINDS, REAL_OF, Served, make_topics, served
from tests.interop.rocketmq import MqAdmin, NameServer, RealClient
from tests.interop.sides import OurNameServer, OurSide, RealSide, Side

SECONDS = 120.0
GROUP = "remote-producers"
TOPICS = ("fields", "batches", "delays", "keys", "halves", "shown")


class Bench(NamedTuple):
    """A broker, and RocketMQ's client of its version."""

    broker: Served
    java: RealClient

    def consumed(self, name: str, **options: str) -> list[dict[str, Any]]:
        """What RocketMQ's consumer reads of a topic, in the order of its queues."""
        lines = self.java.ask("consume", topic=topic_of(name), **options)
        return [line for line in lines if "bodySha256" in line]

    def await_consumed(self, name: str, count: int, **options: str) -> list[dict[str, Any]]:
        """What it reads once there are so many messages."""
        return await_that(
            lambda: read if len(read := self.consumed(name, **options)) >= count else None,
            f"{count} messages of {name} can be consumed",
            pause=0.2,
        )


@pytest.fixture(scope="module", params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    kind: str = request.param
    needs.need([REAL_OF.get(kind, kind)])
    home = tmp_path_factory.mktemp("remote")
    with served(home, kind, TOPICS) as broker, RealClient(home / "java", broker) as java:
        yield Bench(broker, java)


@pytest.fixture
def producer(bench: Bench) -> Iterator[RemoteProducer]:
    with RemoteProducer(bench.broker.address, group=GROUP, timeout=SECONDS) as producer:
        yield producer


def topic_of(name: str) -> str:
    return f"Scene-{name}"


def sha256(body: str | bytes) -> str:
    return hashlib.sha256(body.encode() if isinstance(body, str) else body).hexdigest()


@pytest.mark.interop
def test_javas_consumer_reads_bodies_tags_keys_and_properties(bench: Bench, producer: RemoteProducer) -> None:
    topic, long = topic_of("fields"), "a long body, which is compressed. " * 1000
    results = {
        sha256("plain"): producer.send(topic, "plain"),
        sha256("é消"): producer.send(topic, "é消", tags="paid", keys=["17", "18"], properties={"named": "värde"}),
        sha256(long): producer.send(topic, long, tags="long"),
        sha256("later"): producer.send_async(topic, "later", tags="paid", keys="19", flag=7).result(SECONDS),
    }
    producer.send_one_way(topic, b"\x00one way\xff", tags="paid")
    read = {line["bodySha256"]: line for line in bench.await_consumed("fields", 5)}
    assert read.keys() == {*results, sha256(b"\x00one way\xff")}
    for body, result in results.items():
        line = read[body]
        assert result.status is PutMessageStatus.PUT_OK
        assert (line["msgId"], line["queueId"], line["queueOffset"], line["physicalOffset"]) == (
            result.message_id, result.queue_id, result.queue_offset, result.physical_offset,
        )  # fmt: skip
    named = read[sha256("é消")]
    assert (named["tags"], named["keys"], named["properties"]["named"]) == ("paid", "17 18", "värde")
    by_tag = {line["bodySha256"] for line in bench.consumed("fields", tags="paid")}
    assert by_tag == {sha256("é消"), sha256("later"), sha256(b"\x00one way\xff")}
    by_key = bench.java.ask("query", topic=topic, keys="18,19")
    assert {line["message"]["msgId"] for line in by_key} == {
        results[sha256("é消")].message_id, results[sha256("later")].message_id,
    }  # fmt: skip


@pytest.mark.interop
def test_javas_consumer_reads_the_messages_of_a_batch(bench: Bench, producer: RemoteProducer) -> None:
    bodies = [f"batch {number}" for number in range(20)]
    result = producer.send_batch(topic_of("batches"), bodies, tags="t", keys=[f"k{n}" for n in range(20)])
    read = bench.await_consumed("batches", 20)
    assert [(line["bodySha256"], line["keys"], line["queueOffset"], line["msgId"]) for line in read] == [
        (sha256(body), f"k{number}", result.queue_offsets[number], result.message_ids[number])
        for number, body in enumerate(bodies)
    ]
    assert {line["queueId"] for line in read} == {result.queue_id}
    assert len(result.offset_message_ids) == 20


@pytest.mark.interop
def test_a_delayed_message_is_delivered(bench: Bench, producer: RemoteProducer) -> None:
    sent = producer.send(topic_of("delays"), "delayed", delay_level=1, tags="t")
    (line,) = bench.await_consumed("delays", 1)
    assert (line["bodySha256"], line["msgId"], line["tags"]) == (sha256("delayed"), sent.message_id, "t")
    assert line["properties"]["REAL_TOPIC"] == topic_of("delays"), "it came through the delay service"


@pytest.mark.interop
def test_messages_of_a_key_are_in_one_queue_in_order(bench: Bench, producer: RemoteProducer) -> None:
    keys = [f"customer-{number}" for number in range(8)]
    for number in range(10):
        for key in keys:
            producer.send(topic_of("keys"), f"{key} {number}", keys=key, shard_by=key)
    by_key = defaultdict[str, list[dict[str, Any]]](list)
    for line in bench.await_consumed("keys", 80):
        by_key[line["keys"]].append(line)
    for key in keys:
        assert len({line["queueId"] for line in by_key[key]}) == 1
        in_order = sorted(by_key[key], key=lambda line: line["queueOffset"])
        assert [line["bodySha256"] for line in in_order] == [sha256(f"{key} {number}") for number in range(10)]
    assert len({lines[0]["queueId"] for lines in by_key.values()}) > 1


@pytest.mark.interop
def test_transactions_end_as_the_producer_decides_also_when_their_end_was_lost(bench: Bench) -> None:
    """5.x may ask about a transaction whose end it knows: it writes that down only every three seconds."""
    checked = defaultdict[str, int](int)

    def on_check(message: Message) -> bool | None:
        body = bytes(message.body).decode()
        checked[body] += 1
        if body == "later" and checked[body] == 1:
            return None
        return not body.endswith("rolled back")

    topic, seen = topic_of("halves"), {"committed", "lost and committed", "later"}
    with RemoteProducer(bench.broker.address, group=f"{GROUP}-halves", timeout=SECONDS, on_check=on_check) as producer:
        committed = producer.send_in_transaction(topic, "committed", lambda _half: True)
        assert producer.send_in_transaction(topic, "rolled back", lambda _half: False).is_ended
        for body in ("lost and committed", "lost and rolled back"):
            producer.send_half(topic, body)  # nobody hears of its end
        assert producer.send_in_transaction(topic, "later", lambda _half: None).decision is None

        def bodies() -> set[str]:
            return {line["bodySha256"] for line in bench.consumed("halves")}

        await_that(lambda: bodies() >= {sha256(body) for body in seen}, "the others can be consumed", pause=0.2)
        await_that(lambda: checked["lost and rolled back"], "it was asked for")
        assert checked["later"] >= 2 and checked["lost and committed"] >= 1
        last = producer.send(topic, "last").message_id
        await_that(lambda: last in {line["msgId"] for line in bench.consumed("halves")}, "the last", pause=0.2)
    assert bodies() == {sha256(body) for body in (*seen, "last")}
    assert committed.half.message_id in {line["msgId"] for line in bench.consumed("halves")}


@pytest.mark.interop
def test_mqadmin_lists_the_producer_until_it_is_closed(bench: Bench, tmp_path: Path) -> None:
    topic, group = topic_of("shown"), f"{GROUP}-shown"
    with MqAdmin(tmp_path / "admin", bench.broker) as admin:

        def listed() -> str:
            return admin.said("producerConnection", "-g", group, "-t", topic)

        with RemoteProducer(bench.broker.address, group=group, timeout=SECONDS) as producer:
            producer.send(topic, "x")
            shown = await_that(lambda: said if "PYTHON" in (said := listed()) else "", "it is listed", pause=0.2)
        assert "127.0.0.1" in shown
        await_that(lambda: "PYTHON" not in listed(), "it has left", pause=0.2)


@pytest.mark.interop
@pytest.mark.parametrize("kind", KINDS)
def test_messages_go_to_another_master_when_one_is_killed(kind: str, tmp_path: Path) -> None:
    version = REAL_OF.get(kind, kind)
    needs.need([version])
    with ExitStack() as stack:
        is_ours, where = kind in REAL_OF, tmp_path / "names"
        names: OurNameServer | NameServer
        names = stack.enter_context(OurNameServer(where, version) if is_ours else NameServer(where, version))
        sides: dict[str, Side] = {}
        for name in ("broker-a", "broker-b"):
            settings = {"brokerName": name, "namesrvAddr": names.address, "mappedFileSizeCommitLog": 1 << 20}
            side = sides[name] = (OurSide if is_ours else RealSide)(tmp_path / name, version, **settings)
            stack.callback(side.stop if is_ours else side.kill)
            side.start()
            make_topics(side.port, names.address, ["two"])
        producer = stack.enter_context(RemoteProducer(names.address, group=GROUP, timeout=SECONDS))
        assert len(producer.queues("two")) == 8
        before = {producer.send("two", f"before {number}").broker for number in range(16)}
        assert before == {"broker-a", "broker-b"}
        sides["broker-a"].kill()
        after = [producer.send("two", f"after {number}") for number in range(16)]
        assert {(result.broker, result.status) for result in after} == {("broker-b", PutMessageStatus.PUT_OK)}
