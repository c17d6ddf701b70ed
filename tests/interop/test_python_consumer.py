"""Our consumer for Python at real brokers of both lines and at ours, alone and in groups with Java's push consumers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from engine.clients.admin import AdminClient, TopicSettings
from engine.clients.cluster import Place
from engine.clients.consuming.consumer import Consumer
from engine.clients.consuming.received import ReceivedMessage
from engine.clients.consuming.requests import Subscription
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.sockets.client import PeerRefused, RemotingClient
from store.message.topics import DEAD_PREFIX
from tests.harness.conditions import await_that
from tests.interop.needs import need
from tests.interop.rocketmq import NameServer
from tests.interop.sides import OurSide, RealSide, Side, registered
from tests.interop.test_groups import Consumers

KINDS = {"real 4.9.7": (RealSide, "4.9.7"), "real 5.3.3": (RealSide, "5.3.3"), "ours": (OurSide, "5.3.3")}
QUEUES, SECONDS = 4, 300
TOPIC, BROKER = "t", "broker-a"
DELAYS = "1s " * 17 + "1s"


class Bed(NamedTuple):
    """A broker of one kind, its name server, and RocketMQ's own clients."""

    side: Side
    names: str
    java: Consumers

    def send(self, first: int, count: int, queue: int) -> None:
        """Messages `body N`, sent by Java."""
        lines = self.java.ask("send", name="p", topic=TOPIC, queue=queue, first=first, count=count)
        assert {line["status"] for line in lines} == {"SEND_OK"}

    def consumer(self, group: str = "g", **options: object) -> Consumer:
        """One more member, which begins at the first offsets."""
        return Consumer(self.names, group, TOPIC, consume_from="first", timeout=60.0, **options)


@pytest.fixture(scope="module", params=KINDS)
def bed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with running(tmp_path_factory.mktemp("consumer"), request.param) as bed:
        yield bed


@contextmanager
def running(home: Path, kind: str) -> Iterator[Bed]:
    """All that runs for the tests of one kind of broker. The topic has a queue for each of them."""
    make, version = KINDS[kind]
    need([version])
    with NameServer(home / "names", version) as names, Consumers(home / "java", names) as java:
        side: Side = make(home / "m", version, namesrvAddr=names.address, messageDelayLevel=DELAYS, brokerName=BROKER)
        side.start()
        try:
            await_that(lambda: registered(names.address), "it is registered", SECONDS)
            topic = {"topic": TOPIC, "defaultTopic": "TBW102", "perm": "6", "order": "false", "topicSysFlag": "0"}
            topic |= {"readQueueNums": str(QUEUES), "writeQueueNums": str(QUEUES), "topicFilterType": "SINGLE_TAG"}
            asked(side, RequestCode.UPDATE_AND_CREATE_TOPIC, topic)
            java.ask("produce", name="p", group="producers")
            yield Bed(side, names.address, java)
        finally:
            side.stop()


def asked(side: Side, code: int, fields: dict[str, str]) -> RemotingCommand:
    """What the broker answers, which is no refusal."""
    with RemotingClient(f"127.0.0.1:{side.port}", 60.0) as asking:
        answer = asking.ask(code, fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


def queues_of(consumer: Consumer) -> list[int]:
    return [place.queue_id for place in consumer.assignment() if place.topic == TOPIC]


def test_a_group_of_python_and_java_consumes_each_message_once(bed: Bed) -> None:
    bed.java.join("one", first=True)
    await_that(lambda: len(bed.java.queues("one")) == QUEUES, "it has all queues", SECONDS)
    with bed.consumer() as consumer:
        await_that(lambda: len(queues_of(consumer)) == QUEUES // 2, "each has a half", SECONDS)
        await_that(lambda: len(bed.java.queues("one")) == QUEUES // 2, "as Java sees it", SECONDS)
        assert not {f"t:{number}" for number in queues_of(consumer)} & set(bed.java.queues("one"))
        for queue in range(QUEUES):
            bed.send(queue * 10, 10, queue)
        ours: Counter[str] = Counter()
        while ours.total() < QUEUES // 2 * 10:
            ours.update(message.text for message in consumer.poll())
        await_that(lambda: bed.java.state("one")["received"] >= QUEUES // 2 * 10, "and Java its half", SECONDS)
        [theirs] = bed.java.ask("bodies", name="one")
        assert Counter(theirs) + ours == Counter({f"body {number}": 1 for number in range(QUEUES * 10)})
        consumer.poll(1, 0.0)
        bed.java.ask("leave", name="one")
        await_that(lambda: queues_of(consumer) == [*range(QUEUES)], "ours has all of them", SECONDS)
    bed.java.join("two", first=True)
    await_that(lambda: len(bed.java.queues("two")) == QUEUES, "it has all queues", SECONDS)
    bed.send(1000, 1, 0)
    await_that(lambda: bed.java.state("two")["received"] == 1, "only the new one is left", SECONDS)
    bed.java.ask("leave", name="two")


def test_in_order_a_queue_goes_from_java_to_python_with_its_lock(bed: Bed) -> None:
    bed.java.ask("join", name="ordered", group="in-order", topic=TOPIC, orderly=True, first=True)
    await_that(lambda: len(bed.java.state("ordered")["locked"]) >= QUEUES, "it has all locks", SECONDS)
    with bed.consumer("in-order", ordered=True) as consumer:
        await_that(lambda: len(queues_of(consumer)) == QUEUES // 2, "it locked its half", SECONDS)
        held = queues_of(consumer)
        for number in range(20):
            bed.send(2000 + number, 1, held[0])
        seen: list[int] = []
        failed = False
        for message in consumer:
            number = int(message.text.removeprefix("body "))
            if number < 2000 or message.queue_id != held[0]:
                continue
            if number == 2007 and not failed:
                failed = True
                message.retry()
                continue
            seen.append(number)
            if len(seen) == 20:
                break
        assert seen == [*range(2000, 2020)]
    bed.java.ask("leave", name="ordered")


def test_what_is_given_back_comes_again_and_goes_to_the_dead_letters(bed: Bed) -> None:
    with Consumer(bed.names, "failing", TOPIC, timeout=60.0, max_times=1) as consumer:
        await_that(lambda: len(queues_of(consumer)) == QUEUES, "it begins at the end of each queue", SECONDS)
        bed.send(3000, 1, 1)
        times = []
        for message in consumer:
            assert (message.topic, message.text, message.tags) == (TOPIC, "body 3000", "tag")
            times.append(message.reconsume_times)
            message.retry(1)
            if len(times) == 2:
                break
        assert times == [0, 1]
        await_that(lambda: all(lag == 0 for lag in consumer.lag().values()), "all is done")
    with Consumer(bed.names, "mourning", DEAD_PREFIX + "failing", consume_from="first", timeout=60.0) as consumer:
        [dead] = consumer.poll(timeout=SECONDS)
        assert dead.text == "body 3000"


def test_batches_have_the_fields_of_messages(bed: Bed) -> None:
    with (
        Consumer(bed.names, "polled", TOPIC, timeout=60.0) as polled,
        Consumer(bed.names, "columns", TOPIC, timeout=60.0) as columns,
    ):
        for one in (polled, columns):
            await_that(lambda one=one: len(queues_of(one)) == QUEUES, "it begins at the end of each queue", SECONDS)
        bed.send(7000, 5, 3)
        messages: list[ReceivedMessage] = []
        while len(messages) < 5:
            messages += polled.poll(timeout=SECONDS)
        rows: list[dict[str, Any]] = []
        for batch in columns.batches():
            rows += batch.to_pylist()
            if len(rows) == 5:
                columns.retry_rows(batch, [batch.num_rows - 1])
            if len(rows) == 6:
                break
    for message, row in zip(messages, rows[:5], strict=True):
        assert (row["topic"], row["queueId"], row["queueOffset"]) == (TOPIC, 3, message.queue_offset)
        assert (row["body"], row["tags"], row["keys"]) == (message.body, message.tags, message.handed.message.keys)
        assert (row["bornTimestamp"], row["storeTimestamp"]) == (message.born, message.stored)
        assert (row["msgId"], row["brokerName"]) == (message.offset_message_id, message.broker)
        assert dict(row["properties"]) == message.properties
    assert (rows[5]["topic"], rows[5]["body"], rows[5]["reconsumeTimes"]) == (TOPIC, rows[4]["body"], 1)


def test_an_administrator_resets_the_offsets_of_a_running_consumer(bed: Bed) -> None:
    bed.send(4000, 3, 2)
    with bed.consumer("reset") as consumer:
        place = Place(TOPIC, BROKER, 2)
        await_that(lambda: consumer.is_at_end or consumer.poll(500, 0.1), "it reads", SECONDS)
        while not consumer.is_at_end or consumer.poll(500, 0.0):
            consumer.poll(500, 0.1)
        end = consumer.position(place)
        consumer.commit()
        wanted = {"topic": TOPIC, "group": "reset", "timestamp": "0", "isForce": "true"}
        asked(bed.side, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, wanted)
        bodies: list[str] = []
        while not {"body 4000", "body 4001", "body 4002"} <= set(bodies):
            bodies += [message.text for message in consumer.poll(timeout=SECONDS)]
        await_that(
            lambda: not consumer.poll(500, 0.1) and consumer.position(place) == end, "and all behind it", SECONDS
        )


KILLED = """
import sys
from engine.clients.consuming.consumer import Consumer

consumer = Consumer(sys.argv[1], "killed", "t", consume_from="first", timeout=60.0)
for message in consumer:
    print(message.text, flush=True)
"""


def test_what_a_killed_member_did_not_commit_comes_to_the_other_one(bed: Bed) -> None:
    bed.send(5000, 50, 3)
    with subprocess.Popen([sys.executable, "-c", KILLED, bed.names], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline().startswith("body ")
        os.kill(program.pid, signal.SIGKILL)
        done = {"body"} | set(program.stdout.read().splitlines())
    with bed.consumer("killed") as consumer:
        await_that(lambda: len(queues_of(consumer)) == QUEUES, "the broker noticed its end", SECONDS)
        wanted = {f"body {number}" for number in range(5000, 5050)}
        seen: set[str] = set()
        while not wanted <= seen | done:
            seen |= {message.text for message in consumer.poll(timeout=SECONDS)}


def test_a_condition_on_properties_is_filtered_or_refused(bed: Bed) -> None:
    """RocketMQ filters by SQL92 only where an administrator switched it on; ours refuses it."""
    wanted = {TOPIC: Subscription("x > 1", "SQL92")}
    with (
        Consumer(bed.names, "choosing", wanted, timeout=60.0) as consumer,
        pytest.raises(PeerRefused, match="SQL92"),
    ):
        consumer.poll(timeout=SECONDS)


def test_topics_groups_and_lag_are_administered_from_python(bed: Bed) -> None:
    with AdminClient(bed.names, 60.0) as admin:
        assert TOPIC in admin.topics()
        [master] = admin.masters("DefaultCluster")
        admin.create_topic(master.address, TopicSettings("made", 3, 3))
        assert [(place.queue_id, ends) for place, ends in admin.queues("made").items()] == [
            (queue, (0, 0)) for queue in range(3)
        ]
        ends = admin.queues(TOPIC)
        assert {one.consumed for one in admin.offsets("counted", TOPIC).values()} == {0}
        with bed.consumer("counted") as consumer:
            assert admin.group_members("counted") == [consumer.client_id]
            await_that(lambda: not consumer.poll(500, 0.1) and consumer.is_at_end, "it reads all", SECONDS)
            consumer.poll(1, 0.0)
            consumer.commit()
            bed.send(6000, 2, 0)
            place = Place(TOPIC, BROKER, 0)
            await_that(lambda: admin.queues(TOPIC)[place][1] == ends[place][1] + 2, "the messages are in their queue")
        assert "counted" in admin.groups() and admin.group_members("counted") == []
        offsets = admin.offsets("counted", TOPIC)
        assert offsets[place].end == ends[place][1] + 2
        assert {one.lag for at, one in offsets.items() if at != place} <= {0}


def test_an_administrator_sees_where_a_consumer_is(bed: Bed) -> None:
    with bed.consumer("shown") as consumer:
        fields = {"consumerGroup": "shown", "clientId": consumer.client_id, "jstackEnable": "false"}
        info = asked(bed.side, RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        assert b'"topic":"t"' in bytes(info.body)
        fields = {"topic": TOPIC, "group": "shown", "clientAddr": consumer.client_id}
        status = asked(bed.side, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, fields)
        assert consumer.client_id.encode() in bytes(status.body)
