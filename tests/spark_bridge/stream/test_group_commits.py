"""A stream's offsets in a consumer group: said to the master, held back where they would do harm, never waited for."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_bridge
from engine.producer import Producer
from engine.protocol.remoting.codes import RequestCode
from engine.remoting.sockets.client import RemotingClient
from engine.shared_memory.cursors import BrokerCounters
from spark_bridge.options.values import InvalidOption
from spark_bridge.options.views import CommitOptions
from spark_bridge.plan.stores import StoreAt
from spark_bridge.records.spark_schema import schema_of
from spark_bridge.replica import name_servers
from spark_bridge.stream import group_commits
from spark_bridge.stream.group_commits import GroupCommits
from spark_bridge.stream.offsets import Offsets, QueueKey, from_json
from spark_bridge.stream.options import parse_stream_options
from spark_bridge.stream.reader import RocketMQStreamReader
from store.reading import extent
from tests.harness.conditions import await_that
from tests.spark_bridge.stream_kills import IN_COMMAND, SOURCE
from tests.spark_bridge.streams import TIMEOUT_S, Batches, await_rows, drain, rows_of, start
from tests.tools.run.test_namesrv import running
from tools.common.local_broker import LocalBroker, free_port
from tools.show.clients import overview

QUEUES, MESSAGES = 4, 40  # a queue's
SECONDS = 120.0
SIZES = {"mappedFileSizeCommitLog": 1 << 18, "maxMessageSize": 1 << 16, "slaveTimeout": 60_000}
Places = dict[tuple[str, int], int]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commits, "EVERY_S", 0.05)
    monkeypatch.setattr(group_commits, "RETRY_S", 0.1)
    monkeypatch.setattr(group_commits, "CHECKED_S", 0.2)
    monkeypatch.setattr(group_commits, "ROUND_S", SECONDS)  # a busy machine is no broker that is away
    monkeypatch.setattr(group_commits, "SETTLED_S", SECONDS)
    monkeypatch.setattr(group_commits, "TOLD_S", 3600.0)
    monkeypatch.setattr(name_servers, "TIMEOUT_S", SECONDS)


@pytest.fixture(scope="module", params=["4.9", "5"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    directory = tmp_path_factory.mktemp("commits") / "north"
    with LocalBroker(directory, brokerRole="ASYNC_MASTER", compat=request.param, **SIZES) as one:
        put(one, "t", MESSAGES)
        yield one


def put(broker: LocalBroker, topic: str, each: int) -> None:
    with Producer(broker.store, timeout=60.0) as producer:
        for number in range(each * QUEUES):
            answer = producer.send(topic, b"%d" % number, queue_id=number % QUEUES)
            assert answer.status.name == "PUT_OK"
    await_dispatched(broker)
    await_that(lambda: topic in topics_of(broker), "the topic is in the broker's table")


def await_dispatched(broker: LocalBroker) -> None:
    counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory)
    await_that(lambda: counters.reput_from_offset.read() == counters.max_physical_offset.read(), "all is in the queues")
    counters.region.close()


def topics_of(broker: LocalBroker) -> set[str]:
    return set(json.loads(bytes(asked(broker, RequestCode.GET_ALL_TOPIC_CONFIG).body))["topicConfigTable"])


def committed(broker: LocalBroker, group: str) -> Places:
    """How far the group is, as `slipstream groups` shows it."""
    for one in overview(str(broker.store), group)["groups"]:
        return {(queue["topic"], queue["queueId"]): queue["offset"] for queue in one["queues"]}
    return {}


def all_at(offset: int, topic: str = "t") -> Places:
    return {(topic, queue_id): offset for queue_id in range(QUEUES)}


def done(offsets: Places, store: str = "") -> Offsets:
    return {QueueKey(store, topic, queue_id): offset for (topic, queue_id), offset in offsets.items()}


def commit(commits: GroupCommits, broker: LocalBroker, offsets: Places) -> None:
    commits.done(done(offsets), {"": StoreAt(str(broker.store), "north")})


def asked(broker: LocalBroker, code: int, body: bytes = b"", **fields: str) -> Any:
    with RemotingClient(f"127.0.0.1:{broker.port}", SECONDS) as client:
        return client.ask(code, fields, body)


def test_the_newest_word_is_said_and_lag_is_shown_as_of_any_consumer(broker: LocalBroker) -> None:
    commits = GroupCommits(CommitOptions("lags"), ())
    commit(commits, broker, all_at(10))
    commits.settle(SECONDS)
    assert committed(broker, "lags") == all_at(10)
    for offset in (11, 12, 30):
        commit(commits, broker, all_at(offset))
    commits.close()
    assert committed(broker, "lags") == all_at(30)
    assert commits.figures == {"queues": QUEUES, "failures": 0, "heldBack": 0}
    stats = bytes(asked(broker, RequestCode.GET_CONSUME_STATS, consumerGroup="lags").body).decode()
    offsets = [re.findall(rf'"{name}":([0-9]+)', stats) for name in ("brokerOffset", "consumerOffset")]
    assert offsets == [[str(MESSAGES)] * QUEUES, ["30"] * QUEUES], "as mqadmin consumerProgress has it"

    assert "%RETRY%lags" in topics_of(broker), "mqadmin consumerProgress asks name servers for it"
    assert not overview(str(broker.store), "lags")["groups"][0]["members"], "a stream is no member"


def test_a_group_ahead_of_the_stream_is_set_back_only_with_commit_rewind(
    broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    commits = GroupCommits(CommitOptions("ahead"), ())
    commit(commits, broker, all_at(25))
    commits.close()
    again = GroupCommits(CommitOptions("ahead"), ())
    commit(again, broker, all_at(5) | {("t", 1): 26})
    again.settle(SECONDS)
    assert committed(broker, "ahead") == all_at(25) | {("t", 1): 26}
    assert again.figures == {"queues": 1, "failures": 0, "heldBack": 3}
    assert "the group is at 25, the stream at 5; commitRewind=true moves it back (and 2 more); the query continues" in (
        caplog.text
    )
    commit(again, broker, all_at(28))
    again.close()
    assert (committed(broker, "ahead"), again.figures["heldBack"]) == (all_at(28), 0)
    rewound = GroupCommits(CommitOptions("ahead", may_rewind=True), ())
    commit(rewound, broker, all_at(3))
    rewound.close()
    assert committed(broker, "ahead") == all_at(3)


def test_two_queries_of_one_group_do_not_set_it_back_in_turn(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group_commits, "CHECKED_S", 0.0)  # it is looked where the group is before each word
    one, other = (GroupCommits(CommitOptions("shared"), ()) for _query in range(2))
    for query, offset in ((one, 10), (other, 20), (one, 11), (other, 21)):
        commit(query, broker, all_at(offset))
        query.settle(SECONDS)
    assert committed(broker, "shared") == all_at(21)
    assert (one.figures["heldBack"], other.figures["heldBack"]) == (QUEUES, 0)
    assert "the group is at 20, the stream at 11" in caplog.text
    commit(one, broker, all_at(22))
    one.close()
    other.close()
    assert (committed(broker, "shared"), one.figures["heldBack"]) == (all_at(22), 0)


def test_a_stream_that_is_set_back_itself_takes_the_group_along(broker: LocalBroker) -> None:
    commits = GroupCommits(CommitOptions("follows"), ())
    commit(commits, broker, all_at(20))
    commits.settle(SECONDS)
    commit(commits, broker, all_at(15))  # failOnDataLoss=false, and a replica that was behind took over
    commits.close()
    assert committed(broker, "follows") == all_at(15)


def test_what_the_broker_does_not_have_is_not_committed(broker: LocalBroker) -> None:
    commits = GroupCommits(CommitOptions("beyond"), ())
    commit(commits, broker, {("t", 0): MESSAGES + 1, ("t", 1): MESSAGES, ("nowhere", 0): 1, ("%LMQ%x", 0): 5})
    commits.settle(SECONDS)
    assert committed(broker, "beyond") == {("t", 1): MESSAGES}
    assert commits.figures["heldBack"] == 2
    commits.close()


def test_consumers_keep_a_group_to_themselves_while_they_are_there(
    broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    hello = {"clientID": "somebody", "producerDataSet": [], "consumerDataSet": [{
        "groupName": "theirs", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [], "unitMode": False,
    }]}  # fmt: skip
    with RemotingClient(f"127.0.0.1:{broker.port}", SECONDS) as consumer:
        consumer.ask(RequestCode.HEART_BEAT, body=json.dumps(hello).encode())
        commits = GroupCommits(CommitOptions("theirs"), ())
        commit(commits, broker, all_at(7))
        await_that(lambda: commits.figures["failures"] >= 2, "it is tried again")
        assert committed(broker, "theirs") == {}
        assert caplog.text.count("consumers are in group 'theirs' (somebody)") == 1, "told once"
    await_that(lambda: committed(broker, "theirs") == all_at(7), "the consumer has gone")
    commits.close()


@pytest.mark.parametrize(
    ("brokers", "told"),
    [
        ({"": "127.0.0.1:1"}, "Connection refused"),
        ({"north": "127.0.0.1:1"}, "Connection refused"),
        ({"south": "127.0.0.1:1"}, None),
    ],
)
def test_a_broker_that_is_away_is_counted_and_tried_again(
    broker: LocalBroker, brokers: dict[str, str], told: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    commits = GroupCommits(CommitOptions("away", brokers), ())
    commit(commits, broker, all_at(1))
    if told is None:  # that is another broker's address: this one's is known
        commits.settle(SECONDS)
        assert commits.figures["failures"] == 0
    else:
        await_that(lambda: commits.figures["failures"] >= 2, "it is tried again")
        assert caplog.text.count(told) == 1 and "commitGroup away: not committed: " in caplog.text
    commits.close()


def test_each_stores_broker_gets_its_own_offsets_whatever_becomes_of_the_others(broker: LocalBroker) -> None:
    commits = GroupCommits(CommitOptions("several", {"south": "127.0.0.1:1"}), ())
    places = {"south": StoreAt("/nowhere", "south"), "north": StoreAt(str(broker.store), "north")}
    commits.done({**done(all_at(4), "north"), **done(all_at(5), "south")}, places)
    await_that(lambda: commits.figures["failures"] >= 1 and committed(broker, "several") == all_at(4), "north is told")
    commits.close()
    assert commits.figures["queues"] == QUEUES


def test_another_broker_and_a_silent_one_are_reported(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = GroupCommits(CommitOptions("wrong", {"": f"127.0.0.1:{broker.port}"}), ())
    commits.done(done(all_at(1)), {"": StoreAt(str(broker.store), "south")})
    await_that(lambda: commits.figures["failures"] >= 1, "it is another broker")
    commits.close()
    assert committed(broker, "wrong") == {}
    monkeypatch.setattr(group_commits, "ROUND_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        commits = GroupCommits(CommitOptions("wrong", {"": f"127.0.0.1:{silent.getsockname()[1]}"}), ())
        commit(commits, broker, all_at(1))
        await_that(lambda: commits.figures["failures"] >= 1, "nobody answers")
        commits.close()


def test_a_copy_commits_only_to_a_broker_that_is_named(broker: LocalBroker, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(broker.store, copy, ignore=shutil.ignore_patterns("lock", "*.lock", "*.creating"))
    assert (copy / "slipstream.run").exists()
    commits = GroupCommits(CommitOptions("copied"), ())
    commits.done(done(all_at(7)), {"": StoreAt(str(copy), "north")})
    await_that(lambda: commits.figures["failures"] >= 1, "no broker runs on it")
    commits.close()
    assert committed(broker, "copied") == {}
    told = GroupCommits(CommitOptions("copied", {"north": f"127.0.0.1:{broker.port}"}), ())
    told.done(done(all_at(7)), {"": StoreAt(str(copy), "north")})
    told.close()
    assert committed(broker, "copied") == all_at(7)


def test_a_slaves_stream_commits_to_the_master_that_name_servers_know(tmp_path: Path) -> None:
    with running(tmp_path / "ns") as port:
        keys = {"namesrvAddr": f"127.0.0.1:{port}", **SIZES}
        with (
            LocalBroker(tmp_path / "north", brokerRole="ASYNC_MASTER", brokerId=0, **keys) as master,
            LocalBroker(
                tmp_path / "slave",
                brokerName="north",
                brokerRole="SLAVE",
                brokerId=1,
                haMasterAddress=master.ha_address,
                **keys,
            ) as slave,
        ):
            put(master, "t", 5)
            commits = GroupCommits(CommitOptions("g"), ())
            commit(commits, slave, all_at(3))
            await_that(lambda: committed(master, "g") == all_at(3), "both are registered")
            commits.close()
            named = GroupCommits(CommitOptions("g"), (f"127.0.0.1:{port}",))
            commit(named, slave, all_at(4))
            named.close()
            assert committed(master, "g") == all_at(4)
            at_slave = GroupCommits(CommitOptions("g", {"": f"127.0.0.1:{slave.port}"}), ())
            commit(at_slave, slave, all_at(5))
            await_that(lambda: at_slave.figures["failures"] >= 1, "a slave is not the place")
            at_slave.close()
            assert committed(master, "g") == all_at(4)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"commitGroup": ""}, "not a consumer group's name"),
        ({"commitGroup": "a b"}, "not a consumer group's name"),
        ({"commitGroup": "a/../b"}, "not a consumer group's name"),
        ({"commitGroup": "g" * 121}, "not a consumer group's name"),
        ({"commitGroup": "TOOLS_CONSUMER"}, "RocketMQ reserves that name"),
        ({"commitGroup": "CID_RMQ_SYS_x"}, "RocketMQ reserves that name"),
        ({"commitBroker": "h:1"}, "commitBroker belongs to commitGroup"),
        ({"commitRewind": "true"}, "commitRewind belongs to commitGroup"),
        ({"commitGroup": "g", "commitBroker": "h"}, "HOST:PORT of the master"),
        ({"commitGroup": "g", "commitBroker": "h:0"}, "HOST:PORT of the master"),
        ({"commitGroup": "g", "commitBroker": "a=h:1,a=h:2"}, "each broker once"),
        ({"commitGroup": "g", "commitBroker": "http://h:1"}, "HOST:PORT of the master"),
        ({"commitGroup": "g", "commitRewind": "yes"}, "one of true, false"),
    ],
)
def test_what_no_group_or_address_is_is_refused_at_once(options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidOption, match=told):
        parse_stream_options({"path": "/s", **options})


def test_groups_and_addresses_as_they_may_be_given() -> None:
    given = {"path": "/s", "commitGroup": "a-b_c%1|2", "commitBroker": "a=h-1.x:1, b=[::1]:65535"}
    commits = parse_stream_options(given).commits
    assert commits == CommitOptions("a-b_c%1|2", {"a": "h-1.x:1", "b": "[::1]:65535"})
    assert parse_stream_options({"path": "/s"}).commits is None


def test_nothing_is_said_before_spark_has_finished_anything(broker: LocalBroker) -> None:
    options = {"path": str(broker.store), "topic": "t", "commitGroup": "begun"}
    reader = RocketMQStreamReader(schema_of(["topic"]), options)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    assert reader._commits is None, "the query has read nothing yet"
    assert reader.reportLatestOffset() == end
    reader.commit(end)
    reader.stop()
    assert committed(broker, "begun") == all_at(MESSAGES)
    assert reader.reportLatestOffset() == {**end, "commitGroup:begun": {"queues": 4, "failures": 0, "heldBack": 0}}


# with a real Spark

CHECKPOINT_KINDS = ("offsets", "commits")


def finished(checkpoint: Path) -> Places:
    """Where the last batch ends that the checkpoint says is done."""
    numbers = [int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdecimal()]
    if not numbers:
        return {}
    lines = (checkpoint / "offsets" / str(max(numbers))).read_text().splitlines()
    return {(key.topic, key.queue_id): offset for key, offset in from_json(json.loads(lines[2]), False).items()}


def assert_not_ahead(broker: LocalBroker, group: str, checkpoint: Path) -> None:
    """The group first: the checkpoint only grows."""
    said = committed(broker, group)
    done_by_then = finished(checkpoint)
    assert all(offset <= done_by_then.get(queue, 0) for queue, offset in said.items()), (said, done_by_then)


def sources() -> list[int]:
    """The processes of streams' sources that this one's Spark has started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            if IN_COMMAND[SOURCE] in " ".join(process.cmdline()):
                found.append(process.pid)
    return found


@pytest.mark.spark
def test_a_query_shows_its_lag_and_goes_on_from_its_checkpoint_after_a_kill(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path
) -> None:
    batches: Batches = {}
    topic = f"live-{broker.port}"
    put(broker, topic, 10)
    options = {"topic": topic, "commitGroup": "spark", "maxOffsetsPerTrigger": "20"}
    await_that(
        lambda: (
            drain(spark, broker.store, tmp_path / "checkpoint", batches, **options)
            and committed(broker, "spark") == all_at(10, topic)
        ),
        "a query that ends has waited for its last word, for three seconds",
        TIMEOUT_S,
    )

    def live() -> StreamingQuery:
        return start(spark, broker.store, tmp_path / "checkpoint", batches, continuous=True, **options)

    query = live()
    put(broker, topic, 10)
    await_rows(query, lambda: committed(broker, "spark") == all_at(20, topic))  # also of a query that waits for more
    before = len(rows_of(batches))
    for pid in sources():
        os.kill(pid, signal.SIGKILL)
    put(broker, topic, 5)
    await_that(lambda: not query.isActive, "its source was killed", TIMEOUT_S)
    assert_not_ahead(broker, "spark", tmp_path / "checkpoint")
    query = live()
    for _ in range(5):
        put(broker, topic, 1)
        assert_not_ahead(broker, "spark", tmp_path / "checkpoint")
    await_rows(query, lambda: committed(broker, "spark") == all_at(30, topic))
    each = 30
    while spark_bridge.lag(query.lastProgress).commit_failures:  # of a machine that stood still for ten seconds
        query.stop()
        query, each = live(), each + 1
        assert each < 40
        put(broker, topic, 1)
        goal = all_at(each, topic)
        await_rows(query, lambda goal=goal: committed(broker, "spark") == goal)
    query.stop()
    assert len(rows_of(batches)) == each * QUEUES > before


@pytest.mark.spark
def test_a_query_goes_on_where_nobody_takes_its_commits(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path
) -> None:
    batches: Batches = {}
    options = {"topic": "t", "commitGroup": "nobody", "commitBroker": f"127.0.0.1:{free_port()}"}
    query = start(
        spark, broker.store, tmp_path / "checkpoint", batches, continuous=True, maxOffsetsPerTrigger="40", **options
    )
    await_rows(query, lambda: len(rows_of(batches)) == MESSAGES * QUEUES)
    await_rows(query, lambda: spark_bridge.lag(query.lastProgress).commit_failures > 0)
    query.stop()
    assert committed(broker, "nobody") == {}
