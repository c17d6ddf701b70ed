"""A store through Flight, in this process: the rows of a read in place, and errors that say enough and no more."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import flight

from spark_bridge.flight.client import RemoteStore, read_remote, read_ticket
from spark_bridge.flight.errors import (
    AddressNotAllowed,
    InvalidTicket,
    NotLetIn,
    NotOffered,
    NotWritable,
    OtherBroker,
    ServerUnreachable,
    TicketBehind,
    TopicNotServed,
)
from spark_bridge.flight.request import ScanRequest
from spark_bridge.flight.server import FlightServer
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan.names import UnknownTopic
from spark_bridge.scanning import scan
from store.errors import CorruptRecord, MalformedData, StoreError
from store.message.topics import is_system_topic
from tests.spark_bridge.flights import TOKEN, first_ticket, remote_rows, rows_in_place, served
from tests.spark_bridge.stores import GOLDEN_STORES, SmallStore, golden_lines, unpack_golden

GOLDEN = ("rocketmq-5.3.3", "master")
SCHEMA = pa.schema([("a", pa.int32())])


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> str:
    return unpack_golden(*GOLDEN, tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def server(golden: str):
    with served(golden) as running:
        yield running


@pytest.fixture
def small(tmp_path: Path) -> SmallStore:
    made = SmallStore(tmp_path / "one" / "broker-a" / "store", 4096)
    for number in range(60):
        made.put(("orders", "bills")[number % 2], b"x" * (number % 40), queue_id=number % 3)
    made.dispatch()
    return made


def ask(server: FlightServer, ticket: bytes) -> list[Any]:
    with RemoteStore(server.location, TOKEN) as store:
        return [row for batch in store.read(ticket) for row in batch.to_pylist()]


def changed(ticket: bytes, **fields: object) -> bytes:
    return json.dumps({**json.loads(ticket), **fields}).encode()


@pytest.mark.parametrize(("version", "name"), GOLDEN_STORES)
def test_rows_are_those_of_a_read_in_place(tmp_path: Path, version: str, name: str) -> None:
    root = unpack_golden(version, name, tmp_path)
    topics = sorted({line["topic"] for line in golden_lines(version, name, "message")})
    some = tuple(topic for topic in topics if not is_system_topic(topic))[:2]
    requests = [
        ScanRequest(),
        ScanRequest(options={"includeSystemTopics": "true", "verifyCrc": "body", "minPartitions": "7"}),
        ScanRequest(some, ("queueId", "BODY", "properties")),
        ScanRequest(some[:1], options={"maxRecordsPerPartition": "2"}),
        ScanRequest(options={"schema": "kafka", "includeHeaders": "true"}),
        ScanRequest(options={"mode": "permissive", "subExpression": "TagA || TagB"}),
        ScanRequest(options={"endingTimestamp": "-1h", "where": '{"queueId":[0,1]}'}),
    ]
    with served(root) as running:
        for request in requests:
            remote, local = remote_rows(running.location, request), rows_in_place(root, request)
            assert remote == local, request
        assert remote_rows(running.location, requests[0])


def test_offsets_keys_assigned_queues_and_patterns(server: FlightServer, golden: str) -> None:
    for options in (
        {"assign": '{"alphaEight":[2,5]}'}, {"startingOffsets": '{"alphaEight":{"0":1}}'},
        {"subscribePattern": "alpha.*"},
        {"assign": '{"alphaEight":{"broker-alpha":[2]}}'}, {"subscribePattern": "lphaFour"},
    ):  # fmt: skip
        request = ScanRequest(options=options)
        remote, local = remote_rows(server.location, request), rows_in_place(golden, request)
        key = lambda row: row["physicalOffset"]  # noqa: E731
        assert sorted(remote, key=key) == sorted(local, key=key), options
    assert remote_rows(server.location, ScanRequest(options={"subscribePattern": "lphaFour"})) == []
    keys = {line["keys"] for line in golden_lines(*GOLDEN, "message") if line.get("keys")}
    for key_ in sorted(keys)[:2]:
        request = ScanRequest(options={"keys": json.dumps([key_.split(" ")[0]])})
        assert remote_rows(server.location, request) == rows_in_place(golden, request)


def test_conditions_are_asked_on_the_server(server: FlightServer, golden: str) -> None:
    for where in (
        (("queueId", "in", (0, 2)), ("bodyLength", ">", 40)),
        (("topic", "==", "alphaFour"), ("queueOffset", ">=", 1)),
        (("storeTimestamp", ">", "2030-01-01T00:00:00"),),
        (("tags", "!=", "TagA"),),
    ):
        rows = list(scan(golden, where=list(where)).read_all().to_pylist())
        assert remote_rows(server.location, ScanRequest(where=where)) == rows, where
    with RemoteStore(server.location, TOKEN) as store:
        plan = store.plan(ScanRequest(("alphaFour",), where=(("queueOffset", ">=", 1),)))
        assert plan.records == -1
        for hostile in ([["body", "==", "x"]], [["queueId", "~", 1]], [["nobody", "==", 1]], [["topic", "in", []]]):
            with pytest.raises(InvalidOption, match="where"):
                list(store.read(changed(plan.tickets[0], where=hostile)))


def test_a_pattern_that_never_ends_elsewhere_ends_here(server: FlightServer) -> None:
    assert remote_rows(server.location, ScanRequest(options={"subscribePattern": "(a|a|aa)*" * 20 + "!"})) == []
    with pytest.raises(InvalidOption, match="RE2"):
        remote_rows(server.location, ScanRequest(options={"subscribePattern": "(?=alpha).*"}))


def test_the_store_topics_and_plan_are_described(server: FlightServer, golden: str) -> None:
    with RemoteStore(server.location, TOKEN) as store:
        told = store.store()
        assert told["brokerName"] == "broker-alpha" and told["version"] == "t" and not told["isRunning"]
        topics = store.topics()
        assert topics["alphaFour"] == len(rows_in_place(golden, ScanRequest(("alphaFour",)))) > 0
        assert store.topics("alphaE").keys() == {"alphaEight"} and not any(map(is_system_topic, topics))
        plan = store.plan(ScanRequest(("alphaFour",)))
        assert plan.records == topics["alphaFour"] and plan.log_bytes == -1
        assert (plan.broker_name, plan.end) == ("broker-alpha", told["maxPhysicalOffset"])
        whole = store.plan(ScanRequest())
        assert whole.records == -1 and whole.log_bytes == told["maxPhysicalOffset"] - told["minPhysicalOffset"]
        assert store.schema(ScanRequest(columns=("queueId",))).names == ["queueId"]
    with flight.FlightClient(server.location) as plain:
        options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
        info = plain.get_flight_info(flight.FlightDescriptor.for_path("alphaFour"), options)
        assert sum(plain.do_get(end.ticket, options).read_all().num_rows for end in info.endpoints) == plan.records
        assert [action.type for action in plain.list_actions(options)] == ["store", "explain", "stream"]


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1], TOKEN.upper()])
def test_a_caller_without_a_token_gets_nothing(server: FlightServer, token: str | None) -> None:
    with RemoteStore(server.location, token) as store:
        calls = (store.store, store.topics, lambda: store.plan(ScanRequest()), lambda: list(store.read(b"{}")))
        for call in calls:
            with pytest.raises(NotLetIn, match="authorization"):
                call()


@pytest.mark.parametrize(
    "headers",
    [
        [(b"authorization", TOKEN.encode())],
        [(b"authorization", b"Basic " + TOKEN.encode())],
        [(b"authorization", b"Bearer " + TOKEN.encode()), (b"authorization", b"Bearer other")],
    ],
)
def test_a_header_that_is_not_quite_right_lets_nobody_in(server: FlightServer, headers) -> None:
    with flight.FlightClient(server.location) as client, pytest.raises(flight.FlightUnauthenticatedError):
        list(client.list_flights(b"", flight.FlightCallOptions(headers=headers)))


def test_a_forbidden_address_gets_no_rows(golden: str) -> None:
    with served(golden, may_enter=lambda host: host != "127.0.0.1") as running, pytest.raises(AddressNotAllowed):
        remote_rows(running.location, ScanRequest())


def test_topics_that_are_kept_back_are_neither_served_nor_listed(small: SmallStore) -> None:
    orders = ScanRequest(("orders",))
    with served(small.root, ["orders", "none"]) as running:
        assert remote_rows(running.location, orders) == rows_in_place(small.root, orders)
        assert {row["topic"] for row in remote_rows(running.location, ScanRequest())} == {"orders"}
        assert remote_rows(running.location, ScanRequest(options={"subscribePattern": "b.*"})) == []
        assert remote_rows(running.location, ScanRequest(options={"where": '{"topic":"bills"}'})) == []
        with RemoteStore(running.location, TOKEN) as store:
            assert store.topics().keys() == {"orders"}
        for options in ({"topic": "bills"}, {"topic": "orders,bills"}, {"assign": '{"bills":[0]}'}, {"topic": "none"}):
            with pytest.raises(TopicNotServed) as refused:
                remote_rows(running.location, ScanRequest(options={**options, "allowMissingTopics": "false"}))
            assert str(refused.value).count("bills") == ("bills" in str(options)), "no name is told that was not asked"
        ticket = first_ticket(running, orders)
        pieces = json.loads(ticket)["queues"]
        for hostile in (
            changed(ticket, queues=[["bills", *piece[1:]] for piece in pieces]),
            first_ticket_of_all(small),
            changed(first_ticket_of_all(small), select={"topics": ["bills"]}),
        ):
            with pytest.raises(TopicNotServed):
                ask(running, hostile)


def first_ticket_of_all(small: SmallStore) -> bytes:
    with served(small.root) as open_to_all:
        return first_ticket(open_to_all, ScanRequest())


def test_a_ticket_outlives_its_server_and_is_any_replicas(small: SmallStore, tmp_path: Path) -> None:
    with served(small.root) as running, RemoteStore(running.location, TOKEN) as store:
        tickets = store.plan(ScanRequest()).tickets
    copy = tmp_path / "two" / "broker-a" / "store"
    shutil.copytree(small.root, copy)
    shutil.rmtree(small.root)
    with served(copy) as replica:
        assert [row["physicalOffset"] for ticket in tickets for row in ask(replica, ticket)] == small.offsets
    copy.rename(tmp_path / "broker-b")
    with served(tmp_path / "broker-b") as other, pytest.raises(OtherBroker, match=r"'broker-a'.*'broker-b'"):
        ask(other, tickets[0])


def test_a_replica_that_is_behind_says_so(small: SmallStore, tmp_path: Path) -> None:
    with served(small.root) as running:
        whole, orders = first_ticket(running, ScanRequest()), first_ticket(running, ScanRequest(("orders",)))
    behind = SmallStore(tmp_path / "two" / "broker-a" / "store", 4096)
    for number in range(20):
        behind.put(("orders", "bills")[number % 2], b"x" * (number % 40), queue_id=number % 3)
    behind.dispatch()
    with served(small.root) as ahead, served(behind.root) as server:
        for ticket in (whole, orders):
            with pytest.raises(TicketBehind, match="up to") as told:
                ask(server, ticket)
            assert told.value.code == "REPLICA_BEHIND" and told.value.planned > told.value.end
        with RemoteStore(server.location, TOKEN) as first, RemoteStore(ahead.location, TOKEN) as second:
            rows = [row for batch in read_ticket([first, second], whole) for row in batch.to_pylist()]
            assert rows == ask(ahead, whole) and len(rows) > 20


def test_entries_that_no_queue_has_are_no_lag(small: SmallStore) -> None:
    with served(small.root) as running:
        ticket = first_ticket(running, ScanRequest(("orders",)))
        for pieces in ([["orders", 0, 0, 1 << 62]], [["nowhere", 0, 0, 1]], [["orders", 77, 0, 1]]):
            with pytest.raises(InvalidTicket, match="ends at"):
                ask(running, changed(ticket, queues=pieces))


def test_a_chain_that_begins_inside_a_record_gives_nothing(small: SmallStore) -> None:
    with served(small.root) as running:
        ticket = first_ticket(running, ScanRequest())
        base, chain, start, end = json.loads(ticket)["range"]
        for inside in (chain + 1, chain + 4, chain + 50):
            with pytest.raises((CorruptRecord, InvalidTicket)) as told:
                ask(running, changed(ticket, range=[base, inside, max(start, inside), end]))
            assert str(small.root) not in str(told.value)
        with pytest.raises(InvalidTicket, match="segment"):
            ask(running, changed(ticket, segment=8192, range=[0, chain, start, end]))


def test_a_body_that_looks_like_a_record_is_not_one(tmp_path: Path) -> None:
    """A ticket may begin there: what it gets then, its sender could have had by reading the body."""
    store = SmallStore(tmp_path / "store", 1 << 16)
    store.put("orders", b"one")
    store.put("orders", b"two" * 100)
    with served(store.root) as running:
        ticket = first_ticket(running, ScanRequest())
        base, _chain, _start, end = json.loads(ticket)["range"]
        for at in range(store.offsets[1] + 1, store.offsets[1] + 200, 7):
            with pytest.raises((CorruptRecord, InvalidTicket)):
                ask(running, changed(ticket, range=[base, at, at, end]))


ERRORS = (StoreError, InvalidTicket, OtherBroker, InvalidOption, MalformedData)


def test_hostile_tickets_and_descriptors_end_in_a_line(server: FlightServer, golden: str) -> None:
    good = [first_ticket(server, ScanRequest()), first_ticket(server, ScanRequest(("alphaFour",)))]
    names = sorted({name for ticket in good for name in json.loads(ticket)})
    values = st.none() | st.integers(-2, 1 << 64) | st.text(max_size=8) | st.lists(st.integers(0, 1 << 40), max_size=4)

    with RemoteStore(server.location, TOKEN) as store:

        @settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
        @given(
            st.binary(max_size=64)
            | st.builds(
                lambda ticket, name, value: changed(ticket, **{name: value}),
                st.sampled_from(good),
                st.sampled_from(names),
                values | st.lists(values, max_size=4),
            )
        )
        def hostile(text: bytes) -> None:
            for call in (lambda: list(store.read(text)), lambda: plain_info(store, text)):
                try:
                    call()
                except Exception as error:
                    told = str(error)
                    assert isinstance(error, ERRORS) or type(error).__name__ in ("UnknownTopic",), repr(error)
                    assert golden not in told and "Traceback" not in told and "\n" not in told
                    assert ".py" not in told and len(told) < 5000

        hostile()
    assert remote_rows(server.location, ScanRequest(("alphaFour",))), "it serves on"


def plain_info(store: RemoteStore, command: bytes) -> None:
    store._asked(lambda options: store._client.get_flight_info(flight.FlightDescriptor.for_command(command), options))


def test_errors_are_those_of_a_read_in_place(server: FlightServer, golden: str) -> None:
    for request in (
        ScanRequest(("alphaFive",)),
        ScanRequest(columns=("nobody",)),
        ScanRequest(options={"minPartitions": "x"}),
        ScanRequest(options={"unknown": "x"}),
        ScanRequest(options={"startingOffsets": '{"alphaFour":{"0":999999}}'}),
        ScanRequest(options={"onlyConfirmed": "true"}),
        ScanRequest(columns=("body",), options={"mode": "permissive"}),
    ):
        with pytest.raises(Exception) as remote:
            remote_rows(server.location, request)
        if request.columns != ("body",):
            with pytest.raises(Exception) as local:
                rows_in_place(golden, request)
            assert (
                type(remote.value) is type(local.value)
                and vars(type(remote.value))["code"] == vars(type(local.value))["code"]
            )
        told = str(remote.value)
        assert golden not in told and "\n" not in told and "Traceback" not in told, told
    with pytest.raises(UnknownTopic, match="did you mean 'alphaFour'"):
        remote_rows(server.location, ScanRequest(("alphaFore",)))
    with pytest.raises(InvalidOption, match="leaseSeconds=601"):
        remote_rows(server.location, ScanRequest(options={"leaseSeconds": "601"}))


@pytest.mark.parametrize("topics", [None, ("orders",)])
def test_damage_is_the_same_error_and_the_same_rows(small: SmallStore, topics) -> None:
    file = small.root / "commitlog" / "00000000000000000000"
    content = bytearray(file.read_bytes())
    content[small.offsets[4] + 4] ^= 0xFF
    file.write_bytes(content)
    request = ScanRequest(topics, options={"allowMissingTopics": "true"})
    with served(small.root) as running:
        with pytest.raises(CorruptRecord) as local:
            rows_in_place(small.root, request)
        with pytest.raises(CorruptRecord) as remote:
            remote_rows(running.location, request)
        assert (remote.value.code, type(remote.value)) == (local.value.code, type(local.value))
        assert str(small.root) not in str(remote.value)
        permissive = ScanRequest(topics, options={"allowMissingTopics": "true", "mode": "permissive"})
        remote_, local_ = remote_rows(running.location, permissive), rows_in_place(small.root, permissive)
        assert len(remote_) == len(local_) and [row["body"] for row in remote_] == [row["body"] for row in local_]
        (told,) = [row["_error"] for row in remote_ if row["_error"]]
        assert "CORRUPT_RECORD" in told and str(small.root) not in told


def test_calls_of_flight_that_are_not_offered_are_refused(server: FlightServer) -> None:
    with RemoteStore(server.location, TOKEN) as store:
        with pytest.raises(NotOffered):
            store.ask("drop", b"")
        with pytest.raises(NotWritable):
            put = flight.FlightDescriptor.for_path("a")
            store._asked(lambda options: store._client.do_put(put, SCHEMA, options)[0].close())
        with pytest.raises(InvalidOption, match="a path of one part"):
            store._asked(lambda options: store._client.get_schema(flight.FlightDescriptor.for_path("a", "b"), options))


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(ServerUnreachable, match=r"grpc://127\.0\.0\.1:1"):
        read_remote("grpc://127.0.0.1:1", ScanRequest())
    for location in ("http://127.0.0.1:1", "127.0.0.1:8815", "/etc", ""):
        with pytest.raises(InvalidOption, match="not an address"):
            read_remote(location, ScanRequest())
