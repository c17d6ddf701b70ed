"""What a read through Flight would touch: what is told in place of the same read, and no more than that."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight
from pyspark.sql import SparkSession

import spark_bridge
from spark_bridge import explain_read
from spark_bridge.flight import client, tickets
from spark_bridge.flight import served as served_module
from spark_bridge.flight.client import RemoteStore
from spark_bridge.flight.errors import (
    FlightError,
    NotLetIn,
    NotOffered,
    RemoteFault,
    ServerUnreachable,
    TooManyStreams,
    TopicNotServed,
)
from spark_bridge.flight.explaining import explain_options
from spark_bridge.flight.request import EXPLAIN_ACTION, ScanRequest
from spark_bridge.flight.streams import Limits
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan.explanation import ReadPlan
from spark_bridge.plan.names import UnknownTopic
from tests.harness.command_line import run
from tests.spark_bridge.flights import TOKEN, FlightProcess, served
from tests.spark_bridge.stores import GOLDEN_STORES, SmallStore, unpack_golden
from tools.common.exit_codes import ExitCode

STORE = {
    "brokerName": "broker-a", "isRunning": False, "beginOffset": 0, "dispatchedOffset": 9, "endOffset": 9, "splits": 1,
    "bytes": 9, "queues": {"orders/0": 1}, "ranges": [[0, 9]], "records": 0,
}  # fmt: skip


@pytest.fixture
def small(tmp_path: Path) -> SmallStore:
    made = SmallStore(tmp_path / "one" / "broker-a" / "store", 4096)
    for number in range(120):
        made.put(("orders", "bills")[number % 2], b"x" * 50, number // 2 % 2, properties=b"KEYS\x01k%d\x02" % number)
    made.dispatch()
    return made


def moved(plan: ReadPlan, place: str) -> ReadPlan:
    """The same plan of a store that lies elsewhere."""
    return ReadPlan([replace(store, path=place) for store in plan.stores])


def far(location: str, **options: str) -> ReadPlan:
    return explain_options({"path": location, "flightToken": TOKEN, **options})


@pytest.mark.parametrize(("version", "name"), GOLDEN_STORES)
def test_a_remote_plan_is_the_plan_in_place(tmp_path: Path, version: str, name: str) -> None:
    root = unpack_golden(version, name, tmp_path)
    whole = explain_options({"path": root})
    some = explain_options({"path": root, "subscribePattern": "[a-z].*"}).stores[0].queues
    topic = min(some).rpartition("/")[0]
    with served(root) as running:
        for options in (
            {}, {"includeSystemTopics": "true", "minPartitions": "7"}, {"topic": topic},
            {"subscribePattern": "[a-z].*"}, {"topic": topic, "where": '{"queueOffset":{"<":2}}'},
            {"startingTimestamp": "-1h", "topic": topic}, {"keys": "nobody's"}, {"maxRecordsPerPartition": "3"},
            {"topic": topic, "decode": "json"}, {"where": '{"brokerName":"another"}'}, {"table": "queues"},
        ):  # fmt: skip
            local = explain_options({"path": root, **options})
            assert far(running.location, **options) == moved(local, running.location), options
            assert str(far(running.location, **options)) == str(moved(local, running.location))
    assert whole.bytes > 0


def test_records_by_key_and_several_stores(small: SmallStore, tmp_path: Path) -> None:
    other = SmallStore(tmp_path / "two" / "broker-b" / "store", 4096)
    other.put("orders", b"one")
    other.dispatch()
    with served(small.root) as one, served(other.root) as two:
        both = far(json.dumps([one.location, two.location]), topic="orders")
        assert [store.path for store in both.stores] == [one.location, two.location]
        assert [store.queues for store in both.stores] == [{"orders/0": 30, "orders/1": 30}, {"orders/0": 1}]
        with pytest.raises(InvalidOption, match="one path, with commas"):
            far(json.dumps([one.location, one.location]))


def test_a_split_is_a_ticket(small: SmallStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets, "PIECES_MAX", 1)
    with served(small.root) as running, RemoteStore(running.location, TOKEN) as store:
        read = far(running.location, topic="orders", minPartitions="1")
        assert read.splits == len(store.plan(ScanRequest(("orders",), options={"minPartitions": "1"})).tickets) == 2
        assert explain_options({"path": str(small.root), "topic": "orders", "minPartitions": "1"}).splits == 1
        monkeypatch.setattr(served_module, "ENDPOINTS_MAX", 1)
        with pytest.raises(InvalidOption, match="2 tickets, 1 at most"):
            far(running.location, topic="orders", minPartitions="1")
        monkeypatch.setattr(served_module, "ENDPOINTS_MAX", 10)
        monkeypatch.setattr(served_module, "QUEUES_EXPLAINED_MAX", 1)
        with pytest.raises(InvalidOption, match="2 parts of queues, 1 at most"):
            far(running.location, topic="orders")


def test_hidden_topics_and_places_are_not_shown(small: SmallStore) -> None:
    with served(small.root, ["orders"]) as running, RemoteStore(running.location, TOKEN) as store:
        assert far(running.location).stores[0].queues == {"orders/0": 30, "orders/1": 30}
        assert far(running.location, subscribePattern="b.*").stores[0].queues == {}
        with pytest.raises(TopicNotServed):
            far(running.location, topic="bills")
        for request in (ScanRequest(), ScanRequest(options={"includeSystemTopics": "true", "minPartitions": "9"})):
            said = json.dumps(store.explained(request))
            assert "bills" not in said and str(small.root) not in said


def test_malformed_questions_and_those_without_a_token_fail(small: SmallStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(small.root, limits=Limits(plans=1, plans_waiting=0)) as running:
        with pytest.raises(NotLetIn):
            explain_options({"path": running.location})
        with RemoteStore(running.location, TOKEN) as store:
            for body in (
                b"", b"{}", b"[]", b"\xff", b"[" * 100_000, b" " * (1 << 21), b'{"version":1,"topics":["../x"]}',
                b'{"version":1,"options":{"path":"/etc"}}', b'{"version":1,"options":{"maxOffsetsPerTrigger":"1"}}',
                b'{"version":1,"columns":["nobody"]}', b'{"version":1,"options":{"leaseSeconds":"601"}}',
            ):  # fmt: skip
                with pytest.raises(InvalidOption) as refused:
                    store.ask(EXPLAIN_ACTION, body)
                assert str(small.root) not in str(refused.value) and "\n" not in str(refused.value)
            with pytest.raises(UnknownTopic, match="did you mean 'orders'"):
                far(running.location, topic="orderz")
            with pytest.raises(NotOffered, match="store, explain and stream"):
                store.ask("explane", b"")
            monkeypatch.setattr(client, "RETRY_S", 0.0)
            with running._plans.taken(), pytest.raises(TooManyStreams):
                store.ask(EXPLAIN_ACTION, b'{"version":1}')
            assert store.ask(EXPLAIN_ACTION, b'{"version":1}')["stores"][0]["splits"]


class Impostor(flight.FlightServerBase):  # type: ignore[misc]
    """Says what it is told to say."""

    answer: Any = None

    def do_action(self, _context: Any, action: Any) -> list[Any]:
        status = {"brokerName": "broker-a", "maxPhysicalOffset": 9}
        return [flight.Result(json.dumps(self.answer if action.type == EXPLAIN_ACTION else status).encode())]


@contextmanager
def impostor() -> Iterator[Impostor]:
    server = Impostor("grpc://127.0.0.1:0")
    try:
        yield server
    finally:
        server.shutdown()


def test_an_invalid_answer_is_refused_in_one_line() -> None:
    with impostor() as server:
        place = f"grpc://127.0.0.1:{server.port}"
        server.answer = {"stores": [{**STORE, "more": "of a later version"}]}
        (store,) = explain_options({"path": place}).stores
        assert (store.path, store.queues, store.ranges) == (place, {"orders/0": 1}, [(0, 9)])
        for wrong in (
            None,
            [],
            {},
            {"stores": 1},
            {"stores": [1]},
            {"stores": [{}]},
            *(
                {"stores": [{**STORE, name: value}]}
                for name in STORE
                for value in (None, [[1]], {"a": "b"}, "x", 1.5)
                if (name, value) != ("brokerName", "x")
            ),
            {"stores": [{**STORE, "brokerName": "\x1b[2J"}]},
            {"stores": [{**STORE, "queues": {"a\x1b[2J/0": 1}}]},
        ):
            server.answer = wrong
            with pytest.raises(RemoteFault, match="does not know") as refused:
                explain_options({"path": place})
            assert "\n" not in str(refused.value)


def test_a_server_that_is_killed_in_between_is_followed_by_another(
    small: SmallStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    copy = tmp_path / "two" / "broker-a" / "store"
    shutil.copytree(small.root, copy)
    explained = RemoteStore.explained
    with FlightProcess(small.root, "--token-file", tmp_path / "token") as first, served(copy) as second:

        def killed(store: RemoteStore, request: ScanRequest) -> Any:
            if store.location == first.location:
                first.process.kill()
                first.process.wait()
            return explained(store, request)

        monkeypatch.setattr(RemoteStore, "explained", killed)
        plan = far(f"{first.location},{second.location}")
        assert plan == moved(explain_options({"path": str(copy)}), second.location)
    with pytest.raises(ServerUnreachable):
        far("grpc://127.0.0.1:1,grpc://127.0.0.1:2")


def test_the_command_says_the_same_of_a_server_as_of_its_store(small: SmallStore, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    asked = ("--topic", "orders", "--where", '{"queueOffset":{">=":10}}', "--option", "minPartitions=3")
    token = ("--option", f"flightTokenFile={tmp_path / 'token'}")
    with served(small.root) as running:
        local = run("log", "plan", *asked, str(small.root))
        remote = run("log", "plan", *asked, *token, running.location)
        assert (local.exit_code, remote.exit_code) == (0, 0), remote.stderr
        assert remote.stdout == local.stdout != ""
        local = run("log", "plan", "--json", *asked, str(small.root))
        remote = run("log", "plan", "--json", *asked, *token, running.location)
        assert json.loads(remote.stdout) == {**json.loads(local.stdout), "store": running.location}
        for arguments, code, words in (
            ((*token, "--topic", "orderz"), ExitCode.USAGE, "did you mean 'orders'"),
            ((), ExitCode.STORE, "UNAUTHENTICATED"),
            (("--option", "table=queues", *token), ExitCode.USAGE, "there is no plan"),
        ):
            refused = run("log", "plan", *arguments, running.location)
            assert refused.exit_code == code and words in refused.stderr and "Traceback" not in refused.stderr
    gone = run("log", "plan", *token, "grpc://127.0.0.1:1")
    assert gone.exit_code == ExitCode.STORE and "SERVER_UNREACHABLE" in gone.stderr
    elsewhere = run("log", "cat", running.location)
    assert elsewhere.exit_code == ExitCode.USAGE and "NOT_A_STORE" in elsewhere.stderr, "other commands know none"


@pytest.mark.spark
def test_a_frame_is_explained(spark: SparkSession, small: SmallStore) -> None:
    with served(small.root) as running:
        frame = spark_bridge.read(spark, running.location, columns=["body"], topics=["orders"], flightToken=TOKEN)
        local = spark_bridge.read(spark, small.root, columns=["body"], topics=["orders"])
        assert explain_read(frame) == moved(explain_read(local), running.location)
        with pytest.raises(FlightError):
            explain_read(spark_bridge.read(spark, running.location, columns=["body"]))
