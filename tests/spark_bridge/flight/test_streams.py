"""A stream whose driver has no store: the offsets, cuts and rows of one in place, whichever replica is asked."""

from __future__ import annotations

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from spark_bridge.flight import client, followed
from spark_bridge.flight.client import RemoteStore
from spark_bridge.flight.errors import FlightError, NotLetIn, ServerUnreachable, TicketBehind, TopicNotServed
from spark_bridge.flight.questions import NAMES as NAMES_QUESTION
from spark_bridge.flight.questions import STREAM_ACTION, VERSION, Question, parsed
from spark_bridge.flight.remote import remote_tails
from spark_bridge.flight.remote.stream_reader import RemoteStreamReader
from spark_bridge.flight.streams import Limits
from spark_bridge.options.flights import Flights
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan.names import UnknownTopic
from spark_bridge.records.spark_schema import schema_of
from spark_bridge.stream.offsets import DataLost, OffsetsMismatch
from spark_bridge.stream.reader import RocketMQStreamReader
from spark_bridge.stream.stores import StoreNotReady
from store.files.directory import StoreDirectory
from store.names import LEASES
from store.upkeep import snapshot_state
from tests.harness.conditions import await_that
from tests.spark_bridge.flights import TOKEN, served
from tests.spark_bridge.replica.test_replica import Broker
from tests.spark_bridge.stores import SmallStore
from tools.common.local_broker import free_port

NAMES = ["brokerName", "topic", "queueId", "queueOffset"]
TOPICS = ("orders", "payments")
FOR_EVER = ReadAllAvailable()


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    return filled(SmallStore(tmp_path / "north" / "store", 4096), 60)


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_tails, "PATIENCE_S", 0.0)
    monkeypatch.setattr(remote_tails, "COMPARE_EVERY_S", 0.0)
    monkeypatch.setattr(remote_tails, "ANSWER_S", 120.0)  # a busy machine is no server that has gone


def filled(store: SmallStore, count: int, topics: tuple[str, ...] = TOPICS, **fields: Any) -> SmallStore:
    """With so many messages, in turn to some topics of two queues each."""
    for number in range(len(store.records), count):
        store.put(topics[number % len(topics)], b"x" * (number % 50), number // len(topics) % 2, **fields)
    store.dispatch()
    return store


def copied(store: SmallStore, root: Path) -> SmallStore:
    """A replica elsewhere, of the same broker."""
    shutil.copytree(store.root, root / "north" / "store")
    return SmallStore(root / "north" / "store", store.segment_bytes, store.end, [*store.records])


def near(path: object, **options: str) -> RocketMQStreamReader:
    return RocketMQStreamReader(schema_of(NAMES), {"path": str(path), **options})


def far(place: str, **options: str) -> RemoteStreamReader:
    return RemoteStreamReader(schema_of(NAMES), {"path": place, "flightToken": TOKEN, **options})


def rows(reader: RocketMQStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[Any, ...]]:
    batches = [batch for partition in reader.partitions(start, end) for batch in reader.read(partition)]
    return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())


def batches_of(reader: RocketMQStreamReader) -> list[Any]:
    """What Spark would keep of it and be given by it: the start, and each batch's end and rows."""
    at = reader.initialOffset()
    seen: list[Any] = [at]
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        seen.append((end, rows(reader, at, end), reader.reportLatestOffset()))
        reader.commit(end)
        at = end
    reader.stop()
    return seen


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"maxOffsetsPerTrigger": "7"},
        {"maxBytesPerTrigger": "1000", "topic": "orders"},
        {"subscribePattern": "pay.*"},
        {"assign": '{"orders":[1]}', "minPartitions": "3"},
        {"startingOffsets": '{"orders":{"0":3,"1":-1}}'},
        {"startingOffsets": "latest"},
        {"startingTimestamp": "5000", "subExpression": "A || B"},
        {"startingSnapshot": "then", "maxOffsetsPerTrigger": "9"},
        {"includeSystemTopics": "true"},
    ],
)
def test_batches_are_those_of_a_stream_in_place(store: SmallStore, options: dict[str, str]) -> None:
    snapshot_state.take(store.root, "then", 3_600_000)
    filled(store, 100, ("orders", "TBW102", "payments"), store_timestamp_ms=5000, properties=b"TAGS\x01A\x02")
    with served(store.root) as server:
        remote, local = batches_of(far(server.location, **options)), batches_of(near(store.root, **options))
    assert remote == local
    assert len(remote) > 1 or options.get("startingOffsets") == "latest"


def test_one_checkpoint_goes_on_in_place_and_through_any_replica(store: SmallStore, tmp_path: Path) -> None:
    other = copied(store, tmp_path / "other")
    filled(store, 90)
    filled(other, 120)
    with served(store.root) as one, served(other.root) as two:
        places = f"{one.location},{two.location}"
        readers = [near(store.root), far(one.location), far(places), near(other.root), far(two.location)]
        at, read = readers[0].initialOffset(), []
        for reader in readers:
            end = reader.latestOffset(at, ReadMaxRows(10))
            read, at = read + rows(reader, at, end), end
            reader.stop()
        assert len(read) == len(set(read)) == 120
        behind = far(one.location)
        with pytest.raises(DataLost, match="topic orders queue 0: it was read to offset 30 but ends at 23"):
            behind.latestOffset(at, FOR_EVER)
        with pytest.raises(DataLost) as remote:
            behind.partitions({}, at)
        with pytest.raises(DataLost) as local:
            near(store.root).partitions({}, at)
        assert str(remote.value) == str(local.value), "a store that was set back is refused as in place"
        with pytest.raises(OffsetsMismatch):
            far(one.location).latestOffset({"north": at}, FOR_EVER)


def test_a_running_broker_is_believed_before_a_store_at_rest(store: SmallStore, tmp_path: Path) -> None:
    """A master that was left behind by a promotion holds what the new history does not have."""
    left_behind = copied(store, tmp_path / "old")
    filled(left_behind, 90)
    Broker(store.root, tmp_path / "regions", store.end, store.end)
    with served(left_behind.root) as old, served(store.root) as new:
        reader = far(f"{old.location},{new.location}")
        assert sum(end for queues in reader.latestOffset({}, FOR_EVER).values() for end in queues.values()) == 60
        reader.stop()


def test_what_goes_or_lags_in_the_middle_leaves_its_place_to_another(store: SmallStore, tmp_path: Path) -> None:
    other = copied(store, tmp_path / "other")
    with served(other.root) as two:
        with served(filled(store, 70).root) as one:
            reader = far(f"{one.location},{two.location}")
            start = reader.initialOffset()
            end = reader.latestOffset(start, FOR_EVER)
            assert len(rows(reader, start, end)) == 70, "who is behind serves none of what it lacks"
        with pytest.raises(DataLost, match="ends at"):
            reader.latestOffset(end, FOR_EVER)
        filled(other, 80)
        more = reader.latestOffset(end, FOR_EVER)
        assert len(rows(reader, end, more)) == 10
    with pytest.raises(ServerUnreachable):
        reader.latestOffset(more, FOR_EVER)
    reader.stop()


def test_a_server_that_is_started_again_five_times_costs_a_stream_nothing(
    store: SmallStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_tails, "PATIENCE_S", 120.0)
    port, count = free_port(), len(store.records)
    at: dict[str, Any] = {}
    read: list[tuple[Any, ...]] = []
    reader = far(f"grpc://127.0.0.1:{port}", maxOffsetsPerTrigger="20")
    for life in range(6):
        with served(store.root, port=port):
            filled(store, count + 10 * life)
            end = reader.latestOffset(at, ReadMaxRows(20))
            read, at = read + rows(reader, at, end), end
    reader.stop()
    assert len(read) == len(set(read)) == count + 50


def test_two_hundred_drivers_look_at_once(store: SmallStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than looks there are at a time, of a few selections: each gets its own answer."""
    monkeypatch.setattr(client, "RETRY_S", 600.0)  # the last one's turn comes late on a busy machine
    with served(store.root, limits=Limits(looks=2, looks_waiting=50)) as server, ThreadPoolExecutor(200) as pool:

        def ends(number: int) -> int:
            with RemoteStore(server.location, TOKEN) as asked:
                queue_id = number % 2
                options = {"assign": json.dumps({TOPICS[number % 3 % 2]: [queue_id]})}
                answer = asked.ask(STREAM_ACTION, Question("look", options).encoded())
            (queues,) = answer["queues"].values()
            return int(queues[str(queue_id)][1])

        assert list(pool.map(ends, range(200))) == [15] * 200


def test_several_brokers_by_name_and_wrong_places(store: SmallStore, tmp_path: Path) -> None:
    south = filled(SmallStore(tmp_path / "south" / "store", 4096), 10)
    with served(store.root) as one, served(south.root) as two:
        both = json.dumps([one.location, two.location])
        reader = far(both, maxOffsetsPerTrigger="20")
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(20))
        assert sorted(start) == ["north", "south"] == sorted(end)
        assert {row[0] for row in rows(reader, start, end)} == {"north", "south"}
        assert len(rows(reader, start, end)) == 20
        for place, match in (
            (f"{one.location},{two.location}", "one path is one broker's log"),
            (json.dumps([one.location, one.location.replace("127.0.0.1", "localhost")]), "one path, with commas"),
        ):
            with pytest.raises(InvalidOption, match=match):
                far(place).initialOffset()
        with pytest.raises(InvalidOption, match="commitBroker=HOST:PORT"):
            far(one.location, commitGroup="g")
        with pytest.raises(UnknownTopic, match="'orderz'"):
            far(both, topic="orderz").initialOffset()
        far(both, topic="orders,payments").initialOffset()


def test_a_killed_store_says_nothing_and_is_waited_for(store: SmallStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(store.root) as server:
        StoreDirectory(store.root).abort.touch()
        monkeypatch.setattr("spark_bridge.stream.reader.READY_S", 0.0)
        with pytest.raises(StoreNotReady, match="start its broker"):
            far(server.location).initialOffset()
        StoreDirectory(store.root).abort.unlink()
        assert far(server.location).initialOffset()


def test_a_question_waits_for_the_broker_that_recovers_its_store(
    store: SmallStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A promoted slave's, for example: between its roles nobody can say where the queues end."""
    abort, pauses = StoreDirectory(store.root).abort, list[float]()

    def recovered(seconds: float) -> None:
        pauses.append(seconds)
        abort.unlink(missing_ok=True)

    monkeypatch.setattr(remote_tails, "PATIENCE_S", 120.0)
    with served(store.root) as server:
        tail = remote_tails.RemoteTail(Flights(((server.location,),), TOKEN), [server.location], {})
        assert tail.look() is not None
        abort.touch()
        monkeypatch.setattr(remote_tails, "time", SimpleNamespace(monotonic=time.monotonic, sleep=recovered))
        assert tail.ask(NAMES_QUESTION, topics=("orders",)) == {}
        assert pauses
        tail.close()


def test_a_batch_that_is_planned_holds_the_log_until_the_driver_is_silent(store: SmallStore, tmp_path: Path) -> None:
    Broker(store.root, tmp_path / "regions", store.end, store.end)
    held = store.root / LEASES
    with served(store.root) as server:
        first, second = far(server.location), far(server.location)
        for reader in (first, second):
            reader.latestOffset({"orders": {"0": 5, "1": 5}, "payments": {"0": 5, "1": 5}}, FOR_EVER)
        low = min(offset for offset, _, _, _, queue_offset in store.records if queue_offset == 5)
        assert [json.loads(path.read_text())["low_offset"] for path in held.iterdir()] == [low, low]
        first._stores._moved.clear()
        first.latestOffset({"orders": {"0": 15, "1": 15}, "payments": {"0": 15, "1": 9}}, FOR_EVER)
        moved = min(offset for offset, _, topic, _, at in store.records if topic == "payments" and at == 9)
        assert {json.loads(path.read_text())["low_offset"] for path in held.iterdir()} > {low}
        assert max(json.loads(path.read_text())["low_offset"] for path in held.iterdir()) >= moved
        server._followed.sweep(float("inf"))
        assert not list(held.iterdir())
        for reader in (first, second):
            reader.stop()


def test_a_reader_of_some_topics_follows_no_others(store: SmallStore) -> None:
    with served(store.root, ["orders"]) as server:
        reader = far(server.location)
        assert reader.latestOffset(reader.initialOffset(), FOR_EVER).keys() == {"orders"}
        with pytest.raises(TopicNotServed):
            far(server.location, topic="payments").initialOffset()
        with pytest.raises(TopicNotServed):
            far(server.location, topic="nobody").initialOffset()
        assert far(server.location, subscribePattern="pay.*").initialOffset() == {}
        with pytest.raises(NotLetIn):
            RemoteStreamReader(schema_of(NAMES), {"path": server.location}).initialOffset()


HOSTILE = [
    b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"version":1}', b'{"version":true,"ask":"look"}',
    b'{"version":1,"ask":"rm"}', b'{"version":1,"ask":"look","more":1}', b'{"version":1,"ask":"look","options":[]}',
    b'{"version":1,"ask":"look","options":{"path":"/etc"}}',
    b'{"version":1,"ask":"look","options":{"commitGroup":"g"}}',
    b'{"version":1,"ask":"names","options":{"topic":"../../etc"}}', b'{"version":1,"ask":"look","seen":7}',
    b'{"version":1,"ask":"cut","spans":{"orders":{"0":[5,2]}}}', b'{"version":1,"ask":"cut","spans":{"orders":[1]}}',
    b'{"version":1,"ask":"cut","spans":{"orders":{"x":[0,1]}}}', b'{"version":1,"ask":"cut","rows":-1}',
    b'{"version":1,"ask":"cut","spans":{"../orders":{"0":[0,1]}}}',
    b'{"version":1,"ask":"sizes","spans":{"o":{"0":[0,0]}}}',
    b'{"version":1,"ask":"cut","spans":{"orders":{"0":[0,9223372036854775807]}},"rows":1}',
    b'{"version":1,"ask":"hold","done":{"orders":{"0":-1}},"holder":"h"}',
    b'{"version":1,"ask":"hold","holder":"' + b"h" * 200 + b'"}', b'{"version":1,"ask":"names","topics":"all"}',
    b'{"version":1,"ask":"look","options":{"table":"queues"}}', b'{"version":1,"ask":"look","options":{"keys":"k"}}',
]  # fmt: skip


@pytest.mark.parametrize("body", HOSTILE, ids=lambda body: body[:60].decode("ascii", "replace"))
def test_what_no_driver_asks_is_refused_in_one_line(store: SmallStore, body: bytes) -> None:
    with served(store.root) as server, RemoteStore(server.location, TOKEN) as asked:
        with pytest.raises((InvalidOption, TicketBehind, FlightError)) as refusal:
            asked.ask(STREAM_ACTION, body)
        assert str(store.root) not in str(refusal.value)
        assert vars(type(refusal.value))["code"] in ("INVALID_OPTION", "REPLICA_BEHIND", "UNKNOWN_TOPIC")
        assert asked.ask(STREAM_ACTION, Question("look", {}).encoded())["queues"], "and the next one is answered"


FIELDS = st.sampled_from(["ask", "options", "spans", "rows", "done", "orders", "0", "holder"])
LEAVES = st.none() | st.integers() | st.text(max_size=5)


@given(st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner)))
@settings(max_examples=100, deadline=None)
def test_any_json_is_a_question_or_is_refused(value: Any) -> None:
    fields = {"version": VERSION, "ask": "cut", **value} if isinstance(value, dict) else value
    try:
        parsed(json.dumps(fields).encode())
    except InvalidOption as refusal:
        assert "\n" not in str(refusal)


def test_what_a_server_keeps_of_streams_is_bounded(store: SmallStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "KEPT_MAX", 2)
    monkeypatch.setattr(followed, "HOLDERS_MAX", 2)
    monkeypatch.setattr(followed, "QUEUES_MAX", 3)
    monkeypatch.setattr(client, "RETRY_S", 0.0)
    with served(store.root) as server, RemoteStore(server.location, TOKEN) as asked:
        for number in range(5):
            look = Question("look", {"assign": json.dumps({"orders": [0, number]}), "allowMissingTopics": "true"})
            assert asked.ask(STREAM_ACTION, look.encoded())["queues"]["orders"]["0"] == [0, 15]
        assert len(server._followed._kept) == 2
        with pytest.raises(InvalidOption, match="4 queues, 3 at most"):
            asked.ask(STREAM_ACTION, Question("look", {}).encoded())
        await_that(lambda: not server._followed._kept or server._followed.sweep(float("inf")), "all is let go of")
