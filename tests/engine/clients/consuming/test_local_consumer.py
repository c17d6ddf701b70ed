"""A consumer that reads its broker's store on this host: what it hands out, and what becomes of it when files go."""

from __future__ import annotations

import gc
import json
import os
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from engine.clients.admin import AdminClient, TopicSettings
from engine.clients.blocks import chosen
from engine.clients.cluster import READ, WRITE, Place
from engine.clients.consuming import member
from engine.clients.consuming.consumer import Consumer
from engine.clients.consuming.received import ReceivedMessage
from engine.clients.consuming.strategies import share_of
from engine.clients.local.local_queues import QUEUE_FILES_MAX, SEGMENTS_MAX, Catch, LocalQueues
from engine.clients.sending.messages import send_fields
from engine.producer import Producer
from engine.protocol.remoting.codes import RequestCode
from engine.remoting.sockets.client import PeerRefused, PeerUnreachable, RemotingClient
from engine.shared_memory.cursors import BrokerCounters
from store.files.segment_files import named_files
from store.message.record import SysFlag
from store.reading import extent
from tests.harness.conditions import SECONDS, await_that, is_in_futex_wait
from tests.harness.consumers import make_batch_topic
from tools.common.local_broker import LocalBroker

SEGMENT = 64 * 1024
SIZES: dict[str, Any] = {
    "mappedFileSizeCommitLog": SEGMENT, "mappedFileSizeConsumeQueue": 2000, "ringSizeInBytes": 1 << 20,
    "maxMessageSize": 16 * 1024, "brokerName": "b", "brokerFastFailureEnable": "false",
    "osPageCacheBusyTimeOutMills": 600_000, "flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": 20,
    "flushCommitLogThoroughInterval": 20, "deleteWhen": ";".join(str(hour) for hour in range(24)),
    "fileReservedTime": 1, "diskMaxUsedSpaceRatio": 95, "cleanResourceInterval": 50, "deleteCommitLogFilesInterval": 5,
    "deleteConsumeQueueFilesInterval": 5, "flushIntervalConsumeQueue": 20, "flushConsumeQueueThoroughInterval": 20,
}  # fmt: skip
FIRST: dict[str, Any] = {"consume_from": "first", "timeout": 120.0}
QUEUES = 4


@pytest.fixture(scope="module", params=["4.9", "5"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("local") / "b", compat=request.param, **SIZES) as broker:
        yield broker


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic and a group of the test's own."""
    return "".join(one if one.isalnum() else "_" for one in request.node.name)[:100]


def send(broker: LocalBroker, topic: str, bodies: list[str], queue_id: int = 0, **fields: Any) -> None:
    with Producer(broker.store, timeout=120.0) as producer:
        for body in bodies:
            producer.send(topic, body, queue_id=queue_id, **fields)
    await_dispatched(broker)


def await_dispatched(broker: LocalBroker) -> BrokerCounters:
    counters = broker.counters()
    await_that(lambda: counters.reput_from_offset.read() == counters.max_physical_offset.read(), "all is in its queue")
    return counters


def local(broker: LocalBroker, group: str, topics: Any, **options: Any) -> Consumer:
    consumer = Consumer(broker.store, group, topics, **{**FIRST, **options})
    assert consumer._member.shelf.near is not None
    return consumer


def taken(consumer: Consumer, count: int, most: int = 500) -> list[ReceivedMessage]:
    """The next messages, polled `most` at a time."""
    messages: list[ReceivedMessage] = []
    while len(messages) < count:
        some = consumer.poll(most, SECONDS)
        assert some, f"{len(messages)} of {count}"
        messages += some
    return messages


def queues_of(consumer: Consumer, topic: str) -> list[Place]:
    return [place for place in consumer.assignment() if place.topic == topic]


WRITER = """
import sys
from engine.producer import Producer

store, topic, queue_id, count = sys.argv[1:]
with Producer(store, timeout=120.0) as producer:
    for number in range(int(count)):
        producer.send(topic, f"{queue_id}-{number}-".ljust(1500, "x"), queue_id=int(queue_id))
"""


def writers(broker: LocalBroker, topic: str, count: int) -> ExitStack:
    """Start a process for each queue that sends `count` messages to it."""
    stack = ExitStack()
    for queue_id in range(QUEUES):
        command = [sys.executable, "-c", WRITER, str(broker.store), topic, str(queue_id), str(count)]
        stack.enter_context(subprocess.Popen(command))
    return stack


def number_of(text: str) -> tuple[int, int]:
    queue_id, number, _ = text.split("-")
    return int(queue_id), int(number)


def test_each_message_comes_once_and_in_order_while_processes_append(broker: LocalBroker, topic: str) -> None:
    for queue_id in range(QUEUES):
        send(broker, topic, [f"{queue_id}-0-"], queue_id)
    seen: dict[int, list[int]] = {queue_id: [] for queue_id in range(QUEUES)}
    on_wire: dict[int, list[int]] = {queue_id: [] for queue_id in range(QUEUES)}
    address = f"127.0.0.1:{broker.port}"
    with (
        local(broker, topic, topic) as consumer,
        Consumer(None, f"{topic}-wire", topic, broker=address, **FIRST) as other,
        writers(broker, topic, 200),
    ):
        for one, table in ((consumer, seen), (other, on_wire)):
            for message in taken(one, QUEUES * 201):
                queue_id, number = number_of(message.text)
                assert queue_id == message.queue_id
                table[queue_id].append(number)
    assert all(numbers == [0, *range(200)] for numbers in seen.values())
    assert on_wire == seen
    assert len(named_files(broker.store / "commitlog")) > 10, "it went through many segments"


MEMBER = """
import sys
from engine.clients.consuming.consumer import Consumer

with Consumer(sys.argv[1], sys.argv[2], sys.argv[2], consume_from="first", timeout=120.0) as consumer:
    for message in consumer:
        print(message.queue_id, message.text, flush=True)
"""


def are_settled(broker: LocalBroker, topic: str, both: list[Consumer]) -> bool:
    """Whether these two of three members have what the strategy gives them, in the order of all client ids."""
    with RemotingClient(f"127.0.0.1:{broker.port}", timeout=120.0) as asking:
        answer = asking.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": topic})
    members = json.loads(bytes(answer.body))["consumerIdList"]
    places = [Place(topic, str(SIZES["brokerName"]), queue_id) for queue_id in range(QUEUES)]
    shares = [share_of(places, members, one.client_id) for one in both]
    return len(members) == 3 and shares == [queues_of(one, topic) for one in both]


def test_members_here_on_the_wire_and_in_another_process_share_the_queues(broker: LocalBroker, topic: str) -> None:
    for queue_id in range(QUEUES):
        send(broker, topic, ["first"], queue_id)
    command = [sys.executable, "-c", MEMBER, str(broker.store), topic]
    with (
        local(broker, topic, topic) as here,
        Consumer(None, topic, topic, broker=f"127.0.0.1:{broker.port}", **FIRST) as there,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
    ):
        both = [here, there]
        await_that(lambda: are_settled(broker, topic, both), "each of three members has its share")
        for queue_id in range(QUEUES):
            send(broker, topic, [f"new {queue_id}"], queue_id)
        theirs = set(range(QUEUES))
        for one in both:
            mine = {place.queue_id for place in queues_of(one, topic)}
            theirs -= mine
            while mine:
                polled = one.poll(timeout=SECONDS)
                mine -= {message.queue_id for message in polled if message.text.startswith("new")}
        assert process.stdout is not None
        for line in process.stdout:
            queue_id, text = line.rstrip("\n").split(" ", 1)
            theirs -= {int(queue_id)} if text.startswith("new") else set()
            if not theirs:
                break
        process.terminate()
    assert not theirs


def test_tags_with_the_same_hash_are_told_apart(broker: LocalBroker, topic: str) -> None:
    for number, tag in enumerate(["Aa", "BB", "C", "Aa", None]):
        send(broker, topic, [str(number)], tags=tag)
    with local(broker, topic, {topic: "Aa"}) as consumer:
        assert [message.text for message in taken(consumer, 2)] == ["0", "3"]
        consumer.poll(1, 0.0)
        assert consumer.is_at_end and set(consumer.lag().values()) == {0}


def test_compressed_bodies_come_inflated_and_others_as_views(broker: LocalBroker, topic: str) -> None:
    send(broker, topic, ["plain"])
    with RemotingClient(f"127.0.0.1:{broker.port}", timeout=120.0) as client:
        fields = {**send_fields("p", topic, 0, "", 1), "f": str(int(SysFlag.COMPRESSED))}
        client.ask(RequestCode.SEND_MESSAGE_V2, fields, zlib.compress(b"squeezed"))
    with local(broker, topic, topic) as consumer:
        plain, squeezed = taken(consumer, 2)
        assert (plain.body, plain.view) == (b"plain", b"plain") and plain.view.readonly
        assert (squeezed.view, squeezed.body, squeezed.view) == (b"squeezed",) * 3
        assert type(plain.body) is bytes and plain.properties and plain.topic == topic and plain.tags is None
        assert not hasattr(plain.handed.message, "colour")
    with Consumer(None, f"{topic}-w", topic, broker=f"127.0.0.1:{broker.port}", **FIRST) as consumer:
        theirs, _ = taken(consumer, 2)
        assert theirs.view == b"plain"
        for name in (
            "message_id",
            "offset_message_id",
            "born",
            "stored",
            "queue_offset",
            "properties",
            "reconsume_times",
        ):
            assert getattr(theirs, name) == getattr(plain, name), name


def test_a_topic_that_may_not_be_read_is_refused_in_its_brokers_words(
    broker: LocalBroker, topic: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "COMMIT_SECONDS", 0.05)
    send(broker, topic, ["one", "two"])

    def permit(perm: int) -> None:
        with AdminClient("", timeout=120.0) as client:
            client.create_topic(f"127.0.0.1:{broker.port}", TopicSettings(topic, QUEUES, QUEUES, perm))

    permit(WRITE)
    with local(broker, topic, topic) as consumer:
        [queue] = [one for place, one in consumer._member.shelf.queues.items() if place == Place(topic, "b", 0)]
        assert queue.refused_until and f"the topic[{topic}] pulling message is forbidden" in caplog.text
        assert consumer.poll(1, 0.0) == []
        permit(READ | WRITE)
        assert [message.text for message in taken(consumer, 2)] == ["one", "two"]
        permit(WRITE)
        await_that(lambda: queue.refused_until, "the member hears of it")
        send(broker, topic, ["three"])
        assert consumer.poll(1, 0.0) == []
        permit(READ | WRITE)
        assert taken(consumer, 1)[0].text == "three"


def item(body: bytes) -> bytes:
    """A message of a client's batch."""
    return struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + struct.pack(">h", 0)


def test_the_messages_of_an_inner_batch_come_one_by_one(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", compat="5", **SIZES) as broker:
        with RemotingClient(f"127.0.0.1:{broker.port}", timeout=120.0) as client:
            make_batch_topic(client)
            for first in (0, 3):
                body = b"".join(item(str(number).encode()) for number in range(first, first + 3))
                client.ask(RequestCode.SEND_BATCH_MESSAGE, {**send_fields("p", "t", 0, "", 1), "m": "true"}, body)
        await_dispatched(broker)
        with local(broker, "g", "t") as consumer:
            messages = taken(consumer, 6)
            assert [message.text for message in messages] == list("012345")
            assert [message.queue_offset for message in messages] == list(range(6))
            consumer.seek(queues_of(consumer, "t")[0], 4)
            assert [message.text for message in taken(consumer, 2)] == ["4", "5"], "not those before it in its batch"


def expire(broker: LocalBroker, segments: int) -> None:
    """Have the first segments deleted, and wait until they are gone."""
    old = [broker.store / "commitlog" / f"{base:020d}" for base, _ in named_files(broker.store / "commitlog")]
    counters = broker.counters()
    await_that(lambda: counters.flushed_offset.read() == counters.max_physical_offset.read(), "all is on disk")
    at = time.time() - 2 * 3600

    def are_gone() -> bool:
        for path in old[:segments]:
            with suppress(FileNotFoundError):
                os.utime(path, (at, at))  # again: pages that are written back later would make a file new
        return not any(path.exists() for path in old[:segments])

    await_that(are_gone, "retention deletes them")


def test_retention_that_overtakes_a_reader_is_reported_with_what_was_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalBroker(tmp_path / "b", compat="5", **SIZES) as broker:
        send(broker, "t", [f"{number}-".ljust(1500, "x") for number in range(400)])
        with local(broker, "g", "t") as consumer:
            [first] = taken(consumer, 1, most=1)
            view = first.view
            expire(broker, 6)
            numbers = [0]
            while numbers[-1] != 399:
                numbers += [int(message.text.split("-")[0]) for message in consumer.poll(10, SECONDS)]
            consumer.poll(1, 0.0)
            [place] = [place for place in queues_of(consumer, "t") if place.queue_id == 0]
            lost = consumer._member.shelf.queues[place].lost
            assert consumer.position(place) == 400
            assert bytes(view) == first.body, "a view keeps its segment, which is deleted"
        before = next(number for number in numbers if number + 1 not in numbers)
        assert numbers == [*range(before + 1), *range(before + 1 + lost, 400)] and lost > 0
    assert f"{lost} offsets from {before + 1} on were deleted before group g read them" in caplog.text


def test_a_segment_that_somebody_else_removes_is_lost_messages_and_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalBroker(tmp_path / "b", compat="4.9", **SIZES) as broker:
        send(broker, "t", [f"{number}-".ljust(1500, "x") for number in range(200)])
        (broker.store / "commitlog" / f"{SEGMENT:020d}").rename(tmp_path / "away")
        with local(broker, "g", "t") as consumer:
            numbers: list[int] = []
            while not numbers or numbers[-1] != 199:
                numbers += [int(message.text.split("-")[0]) for message in consumer.poll(10, SECONDS)]
        lost = sorted(set(range(200)) - set(numbers))
        assert lost == [*range(lost[0], lost[-1] + 1)] and numbers == [n for n in range(200) if n not in lost]
        assert f"{len(lost)} offsets from {lost[0]} on were deleted" in caplog.text
        (tmp_path / "away").rename(broker.store / "commitlog" / f"{SEGMENT:020d}")


def test_a_damaged_record_is_reported_and_its_queue_rests(
    broker: LocalBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    begin = broker.counters().max_physical_offset.read()
    send(broker, topic, ["sound", "harmed"])
    send(broker, topic, ["other"], 1)
    counters = broker.counters()
    await_that(lambda: counters.flushed_offset.read() == counters.max_physical_offset.read(), "all is on disk")
    base = begin - begin % SEGMENT
    path = broker.store / "commitlog" / f"{base:020d}"
    if (at := path.read_bytes().find(b"harmed", begin - base)) < 0:
        path = broker.store / "commitlog" / f"{base + SEGMENT:020d}"
        at = path.read_bytes().find(b"harmed")
    with local(broker, topic, topic) as consumer:
        write(path, at, b"HARMED")
        assert {message.text for message in taken(consumer, 2, most=1)} == {"sound", "other"}
        assert consumer.poll(1, 0.0) == [] and not consumer.is_at_end
        assert "its body has CRC" in caplog.text
        write(path, at, b"harmed")
        assert [message.text for message in taken(consumer, 1)] == ["harmed"]


def write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_a_consumer_goes_on_with_the_broker_that_is_started_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalBroker(tmp_path / "b", compat="5", **SIZES) as first:
        ports = {"listenPort": first.port, "haListenPort": first.port + 1}
        send(first, "t", ["one", "two"])
        with local(first, "g", "t") as consumer:
            assert [message.text for message in taken(consumer, 2)] == ["one", "two"]
            first.process.kill()
            first.process.wait()
            assert consumer.poll(1, 0.0) == []
            await_that(lambda: consumer.poll(1, 0.05) or "the broker has ended" in caplog.text, "it is reported")
            with LocalBroker(tmp_path / "b", compat="5", **{**SIZES, **ports}) as second:
                send(second, "t", ["three"])
                assert [message.text for message in taken(consumer, 1)] == ["three"]
                [place] = [place for place in queues_of(consumer, "t") if place.queue_id == 0]
                consumer.poll(1, 0.0)
                await_that(lambda: committed(consumer, place) == 3, "the offsets go to the next broker")


def committed(consumer: Consumer, place: Place) -> int | None:
    """The group's offset; None while a broker that was started again does not know the group."""
    with suppress(PeerRefused, PeerUnreachable):
        consumer.commit()
        return consumer.committed(place)
    return None


def test_nothing_is_read_behind_the_published_end(broker: LocalBroker, topic: str) -> None:
    send(broker, topic, ["one", "two", "three"])
    here = LocalQueues(extent.require_running(broker.store))
    slot, ends = here.slot_of((topic, 0)), here.ends.next_offsets.copy()
    here.ends.next_offsets = ends
    for end in range(4):
        ends[slot] = end
        catch = here.read((topic, 0), 0, chosen(None), 32)
        assert (sum(map(len, catch.blocks)), catch.next_offset, catch.end) == (end, end, end)
    assert here.read((topic, 0), 7, chosen(None), 32) == Catch([], 3, 3, is_moved=True)
    assert here.read(("nowhere", 0), 0, chosen(None), 32) == Catch([], 0, 0)
    here.close()


def test_stop_and_a_new_queue_wake_who_sleeps(broker: LocalBroker, topic: str) -> None:
    send(broker, topic, ["one"])
    got: list[list[ReceivedMessage]] = []
    with local(broker, topic, topic) as consumer:
        assert len(taken(consumer, 1)) == 1
        send(broker, topic, ["new"], 2)  # a queue that had no slot among the ends
        assert [message.text for message in taken(consumer, 1)] == ["new"]
        threads = [threading.Thread(target=lambda: got.append(consumer.poll())) for _ in range(3)]
        for thread in threads:
            thread.start()
        await_that(lambda: any(map(is_in_futex_wait, threads)), "one sleeps on the dispatcher's word")
        consumer.stop()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive()
    assert got == [[], [], []]


def test_threads_that_poll_are_all_served(broker: LocalBroker, topic: str) -> None:
    send(broker, topic, ["first"])
    count, seen = 30, dict.fromkeys(range(3), 0)
    with local(broker, topic, topic) as consumer:
        all_served = threading.Event()

        def poll(number: int) -> None:
            while not all_served.is_set():
                seen[number] += len(consumer.poll(1, 0.05))

        threads = [threading.Thread(target=poll, args=(number,)) for number in seen]
        for thread in threads:
            thread.start()
        sent = 1
        with Producer(broker.store, timeout=120.0) as producer:
            while min(seen.values()) < count:
                producer.send(topic, "more", queue_id=0)
                sent += 1
        await_that(lambda: sum(seen.values()) == sent, "each message came once")
        all_served.set()
        for thread in threads:
            thread.join(SECONDS)


def test_file_descriptors_are_bounded_and_given_back(broker: LocalBroker, topic: str) -> None:
    send(broker, topic, [f"{number}-".ljust(1500, "x") for number in range(900)])
    with local(broker, topic, topic) as consumer:
        for _ in range(90):
            assert taken(consumer, 1, most=10)
            held = open_below(broker.store, "commitlog")
            assert len(held) <= SEGMENTS_MAX + 4, "the last batch and the next may lie in two each"
        assert len(open_below(broker.store, "consumequeue")) <= QUEUE_FILES_MAX
    del consumer  # which remembers what its last poll returned
    gc.collect()
    await_that(
        lambda: not open_below(broker.store, "commitlog") + open_below(broker.store, "consumequeue"), "all is unmapped"
    )


def open_below(store: Path, name: str) -> list[str]:
    """Files of a store that this process has open."""
    links = []
    for number in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # that of the list itself
            continue
    return [link for link in links if link.startswith(f"{store}/{name}/")]
