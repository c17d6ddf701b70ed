"""A consumer that reads a replica's store: its group is at the master, also while both change their roles."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from engine.clients.cluster import Place
from engine.clients.consuming.consumer import Consumer
from engine.clients.consuming.local_reads import LocalReads
from engine.clients.names import ClientError
from engine.clients.sending.producer import RemoteProducer
from engine.errors import EngineError
from engine.monitoring.ha_status import ha_status
from engine.producer import Producer
from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from tests.harness.command_line import run
from tests.harness.conditions import SECONDS, await_that
from tests.harness.served_names import Serving
from tools.common.local_broker import LocalBroker

SIZES: dict[str, Any] = {
    "mappedFileSizeCommitLog": 64 * 1024, "mappedFileSizeConsumeQueue": 2000, "ringSizeInBytes": 1 << 20,
    "maxMessageSize": 16 * 1024, "brokerName": "b", "brokerFastFailureEnable": "false",
    "osPageCacheBusyTimeOutMills": 600_000, "haReconnectInterval": 100,
}  # fmt: skip
FIRST: dict[str, Any] = {"consume_from": "first", "timeout": 60.0}


class Pair(NamedTuple):
    """A master and its slave, with the name server of both."""

    names: str
    master: LocalBroker
    slave: LocalBroker

    def send(self, topic: str, bodies: list[str], queue_id: int = 0) -> None:
        """Messages at the master, which the slave has in its queues afterwards."""
        with Producer(self.master.store, timeout=120.0) as producer:
            for body in bodies:
                producer.send(topic, body, queue_id=queue_id)
        ends = [BrokerCounters.attach(extent.require_running(one.store).region_directory) for one in self[1:]]
        end = ends[0].max_physical_offset.read()
        await_that(lambda: all(one.reput_from_offset.read() == end for one in ends), "both have it in their queues")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    names = Serving()
    with ExitStack() as stack:
        stack.callback(names.stop)
        keys = {**SIZES, "namesrvAddr": f"127.0.0.1:{names.port}"}
        master = stack.enter_context(LocalBroker(tmp_path / "a", brokerRole="SYNC_MASTER", **keys))
        keys |= {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master.ha_address}
        slave = stack.enter_context(LocalBroker(tmp_path / "b", **keys))
        await_that(lambda: ha_status(master.store).in_sync_slaves, "a slave is in sync")
        yield Pair(keys["namesrvAddr"], master, slave)


def near_of(consumer: Consumer) -> LocalReads:
    near = consumer._member.shelf.near
    assert isinstance(near, LocalReads)
    return near


def place_in(consumer: Consumer, topic: str) -> Place:
    [place] = [one for one in consumer.assignment() if (one.topic, one.queue_id) == (topic, 0)]
    return place


def test_messages_come_from_the_replicas_files_and_offsets_go_to_the_master(pair: Pair) -> None:
    pair.send("t", ["one", "two"])
    with Consumer(pair.slave.store, "g", "t", **FIRST) as consumer:
        assert [message.text for message in consumer.poll(timeout=SECONDS)] == ["one", "two"]
        assert not consumer._member._pulls, "nothing is pulled"
        assert consumer.poll(1, 0.0) == []
        consumer.commit()
        place = place_in(consumer, "t")
    with Consumer(None, "g", "t", broker=f"127.0.0.1:{pair.master.port}", **FIRST) as other:
        assert other.committed(place) == 2
        pair.send("t", ["three"])
        assert [message.text for message in other.poll(timeout=SECONDS)] == ["three"]


def test_a_replica_that_is_behind_is_waited_for_and_one_that_was_cut_read_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pair.send("t", ["one", "two", "three"])
    with Consumer(pair.slave.store, "g", "t", **FIRST) as consumer:
        here, place = near_of(consumer)._here, place_in(consumer, "t")
        assert here is not None
        consumer.seek(place, 3)
        with monkeypatch.context() as behind:
            behind.setattr(here, "end_of", lambda _queue: 1)
            assert consumer.poll(1, 0.1) == []
            assert consumer.position(place) == 3
        pair.send("t", ["four"])
        assert [message.text for message in consumer.poll(timeout=SECONDS)] == ["four"]
        assert consumer.poll(1, 0.0) == []
        monkeypatch.setattr(here, "end_of", lambda _queue: 2)
        assert consumer.poll(1, 0.1) == []
        assert consumer.position(place) == 2 and "the queue ends at 2" in caplog.text
        monkeypatch.undo()
        assert [message.text for message in consumer.poll(timeout=SECONDS)] == ["three", "four"]


def test_what_the_replica_lacks_is_pulled_from_the_master(pair: Pair) -> None:
    bodies = [f"{number}".ljust(1500, "x") for number in range(100)]
    pair.send("t", bodies)
    os.unlink(pair.slave.store / "commitlog" / "0".zfill(20))
    got: list[str] = []
    with Consumer(pair.slave.store, "g", "t", **FIRST) as consumer:
        while len(got) < len(bodies):
            some = consumer.poll(timeout=SECONDS)
            assert some, f"{len(got)} messages came"
            got += [message.text for message in some]
    assert got == bodies


def test_a_slave_without_name_servers_needs_its_masters_address(tmp_path: Path) -> None:
    keys = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": "127.0.0.1:1"}
    with (
        LocalBroker(tmp_path / "b", **{**SIZES, **keys}) as slave,
        pytest.raises(ClientError, match=r"store of a slave.*give broker=HOST:PORT"),
    ):
        Consumer(slave.store, "g", "t")


@pytest.mark.parametrize("ordered", [False, True])
def test_members_go_on_when_the_roles_change(pair: Pair, ordered: bool) -> None:
    for queue_id in range(3):
        pair.send("t", [f"{queue_id}-first"], queue_id)
    seen: Counter[str] = Counter()
    acknowledged: list[str] = []
    ended = threading.Event()

    def produce() -> None:
        with RemoteProducer(pair.names, group="p") as producer:
            number = 0
            while not ended.wait(0.005):
                body = f"{number % 3}-{number}"
                try:
                    producer.send("t", body, queue_id=number % 3)
                    acknowledged.append(body)
                except EngineError:
                    continue
                finally:
                    number += 1

    wheres = (pair.names, pair.master.store, pair.slave.store)
    consumers = [Consumer(where, "g", "t", ordered=ordered, **FIRST) for where in wheres]
    threads = [
        threading.Thread(target=one.run, args=(lambda message: seen.update([message.text]),)) for one in consumers
    ]
    producing = threading.Thread(target=produce)
    try:
        for thread in (*threads, producing):
            thread.start()
        await_that(lambda: all(any(p.topic == "t" for p in one.assignment()) for one in consumers), "each has a queue")
        await_that(lambda: len(acknowledged) > 100 and all(seen[body] for body in acknowledged[:100]), "they read")
        ran = run("promote", pair.slave.store, "--switch")
        assert ran.exit_code == 0, ran.output
        before = len(acknowledged)
        await_that(lambda: len(acknowledged) > before + 300, "the new master takes messages")
        ended.set()
        producing.join(SECONDS)
        await_that(lambda: all(seen[body] for body in acknowledged), "all is seen")
        assert all(one._member.shelf.queues for one in consumers)
    finally:
        ended.set()
        for consumer in consumers:
            consumer.close()
        for thread in threads:
            thread.join(SECONDS)
    assert seen.total() < 2 * len(seen), "nobody began again"
