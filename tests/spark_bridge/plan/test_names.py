"""Names that no store has are errors with the nearest name; those that any store knows in any way are not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_bridge.options.read import parse_options
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan import names
from spark_bridge.plan.names import UnknownTopic
from spark_bridge.plan.planner import plan_read
from spark_bridge.records.spark_schema import schema_of
from spark_bridge.stream.reader import RocketMQStreamReader
from spark_bridge.tables.reader import TableReader, table_schema
from store.errors import CorruptRecord
from tests.spark_bridge.stores import SmallStore, golden_lines, read_rows, unpack_golden

VERSIONS = ("rocketmq-4.9.7", "rocketmq-5.3.3")
LMQ = "%LMQ%one"


def read(root: object, **options: str) -> list[int]:
    rows = read_rows(plan_read(parse_options({"path": str(root), **options})), ["physicalOffset"])
    return sorted(row["physicalOffset"] for row in rows)


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    made = SmallStore(tmp_path / "broker-a" / "store", 4096)
    for number in range(40):
        made.put(("orders", "payments")[number % 2], queue_id=number % 4 // 2)
    made.dispatch()
    return made


def configure(store: SmallStore, **queues: int) -> None:
    """What topics.json says of topics that may have no message yet."""
    table = {
        topic: {"topicName": topic, "readQueueNums": 1, "writeQueueNums": count, "perm": 6}
        for topic, count in queues.items()
    }
    (store.root / "config").mkdir()
    text = json.dumps({"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": table})
    (store.root / "config" / "topics.json").write_text(text)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topic": "ordrs"}, "no topic 'ordrs'; did you mean 'orders'? known: orders, payments; allowMissingTopics="),
        ({"topic": "orders,payment"}, "no topic 'payment'; did you mean 'payments'"),
        ({"subscribe": "Orders"}, "no topic 'Orders'; did you mean 'orders'"),
        ({"topic": "../consumequeue/orders"}, "no topic '../consumequeue/orders'"),
        ({"topic": "%LMQ%none"}, "no multi-dispatch queue '%LMQ%none'; known: none"),
        ({"assign": '{"orders":[0,7]}'}, "no queue 7 of topic 'orders'; it has 0, 1;"),
        ({"assign": '{"ordrs":[0]}'}, "did you mean 'orders'"),
        ({"startingOffsets": '{"orders":{"2":0}}'}, "no queue 2 of topic 'orders'"),
        ({"endingOffsets": '{"ordrs":{"0":1}}'}, "did you mean 'orders'"),
        ({"startingOffsetsByTimestamp": '{"orders":{"5":1}}'}, "no queue 5 of topic 'orders'"),
        ({"topic": "ordrs", "keys": "k"}, "did you mean 'orders'"),
    ],
)
def test_a_name_that_no_store_has_is_an_error(store, options, told):
    with pytest.raises(UnknownTopic) as caught:
        read(store.root, **options)
    assert told in str(caught.value) and "\n" not in str(caught.value)
    assert caught.value.code == "UNKNOWN_TOPIC"
    if "topic" in options and "keys" not in options:
        with pytest.raises(UnknownTopic):
            TableReader(
                table_schema("queues"), parse_options({"path": str(store.root), "table": "queues", **options})
            ).partitions()


def test_missing_names_are_no_error_on_request(store):
    allowed = {"allowMissingTopics": "true"}
    assert read(store.root, topic="ordrs", **allowed) == []
    assert read(store.root, topic="orders,ordrs", **allowed) == store.offsets[::2]
    assert read(store.root, assign='{"orders":[7]}', **allowed) == []
    assert read(store.root, where='{"topic":"ordrs"}') == [], "where asks, it does not name"
    assert read(store.root, subscribePattern="ordr") == []


def test_a_topic_without_messages_is_no_error(store):
    configure(store, later=3)
    assert read(store.root, topic="later") == []
    assert read(store.root, assign='{"later":[2]}') == []
    with pytest.raises(UnknownTopic, match="queue 3 of topic 'later'; it has 0, 1, 2;"):
        read(store.root, assign='{"later":[3]}')


def test_what_is_not_dispatched_yet_or_has_lost_its_queues_is_found_in_the_log(store, monkeypatch):
    first = store.put("fresh", queue_id=6)  # in the log, and in no queue
    assert read(store.root, topic="fresh") == read(store.root, assign='{"fresh":[6]}') == [first]
    with pytest.raises(UnknownTopic):
        read(store.root, assign='{"fresh":[5]}')
    shutil.rmtree(store.root / "consumequeue")
    assert read(store.root, topic="orders") == store.offsets[:40:2]
    with pytest.raises(UnknownTopic, match="no topic 'ordrs'"):
        read(store.root, topic="ordrs")
    monkeypatch.setattr(names, "LOOKED_AT_BYTES", 1)
    with pytest.raises(UnknownTopic):  # the last segment has only the last ones
        assert store.offsets[-1] // 4096 > store.offsets[1] // 4096
        (store.root / "commitlog" / f"{store.offsets[-1] // 4096 * 4096:020d}").write_bytes(bytes(4096))
        read(store.root, topic="fresh")


def test_where_damage_hides_names_the_read_reports_the_damage(store):
    store.put("fresh")
    path = store.root / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[4] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(CorruptRecord, match="record at offset 0"):
        read(store.root, topic="ordrs")


def test_one_store_of_several_is_enough_and_a_brokers_queue_has_to_be_its_own(store, tmp_path):
    other = SmallStore(tmp_path / "broker-b" / "store", 4096)
    other.put("refunds", queue_id=3, store_timestamp_ms=1)
    other.dispatch()
    both = {"path": str(tmp_path / "*" / "store")}
    rows = read_rows(plan_read(parse_options({**both, "topic": "refunds,orders"})), ["topic"])
    assert len(rows) == 21
    own = plan_read(parse_options({**both, "assign": '{"refunds":{"broker-b":[3]}}'}))
    assert len(read_rows(own, ["topic"])) == 1
    with pytest.raises(UnknownTopic, match="no topic 'refunds'"):
        plan_read(parse_options({**both, "assign": '{"refunds":{"broker-a":[3]}}'}))
    with pytest.raises(UnknownTopic, match="all stores of this read: no topic 'refund'; did you mean 'refunds'"):
        plan_read(parse_options({**both, "topic": "refund"}))


def test_not_all_of_many_names_are_listed(store):
    for number in range(300):
        (store.root / "consumequeue" / f"topic-{number}" / "0").mkdir(parents=True)
    with pytest.raises(UnknownTopic, match="and 202 more; allowMissingTopics") as told:
        read(store.root, topic="ordrs")
    assert len(str(told.value)) < 3000


@pytest.mark.parametrize("version", VERSIONS)
def test_a_multi_dispatch_queue_is_read_by_its_name_alone(version, tmp_path):
    root = unpack_golden(version, "features", tmp_path)
    lines = golden_lines(version, "features", "queue")
    queues = {line["topic"]: line for line in lines if line["topic"].startswith("%LMQ%")}
    assert LMQ in queues
    for _twice in range(2):  # through queues, then through the log, as after a kill
        for name, line in queues.items():
            assert read(root, topic=name) == [entry[0] for entry in line["entries"]], name
            assert not set(read(root, topic=name)) - set(read(root))
        (Path(root) / "abort").touch()
    with pytest.raises(UnknownTopic, match="'%LMQ%onee'; did you mean '%LMQ%one'"):
        read(root, topic="%LMQ%onee")
    with pytest.raises(InvalidOption, match="read whole: name it as topic, without offsets"):
        read(root, startingOffsets=json.dumps({LMQ: {"0": 3}}))
    (Path(root) / "abort").unlink()
    reader = RocketMQStreamReader(schema_of(["physicalOffset"]), {"path": root, "topic": LMQ})
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    rows = [row["physicalOffset"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted(rows) == [entry[0] for entry in queues[LMQ]["entries"]]


def test_a_stream_that_names_nothing_of_a_store_ends_unless_it_may_come(store):
    def reader(**options: str) -> RocketMQStreamReader:
        return RocketMQStreamReader(schema_of(["topic"]), {"path": str(store.root), **options})

    with pytest.raises(UnknownTopic, match="did you mean 'orders'"):
        reader(topic="ordrs").initialOffset()
    (store.root / "batchconsumequeue" / "payments" / "0").mkdir(parents=True)
    with pytest.raises(InvalidOption, match=r"topic 'payments' has batch queues.*a stream cannot read it"):
        reader(topic="payments").initialOffset()
    with pytest.raises(UnknownTopic, match="queue 9"):
        reader(assign='{"orders":[9]}').initialOffset()
    waiting = reader(topic="later", allowMissingTopics="true")
    start = waiting.initialOffset()
    assert start == {} and waiting.latestOffset(start, ReadAllAvailable()) == {}
    store.put("later")
    store.dispatch()
    assert waiting.latestOffset(start, ReadAllAvailable()) == {"later": {"0": 1}}
    again = reader(topic="orders,ordrs")  # goes on from a checkpoint, with another topic by now
    with pytest.raises(UnknownTopic, match="'ordrs'"):
        again.latestOffset({"orders": {"0": 1}}, ReadAllAvailable())
    shutil.rmtree(store.root / "consumequeue" / "later")
    gone = reader(topic="later", failOnDataLoss="false")
    assert gone.latestOffset({"later": {"0": 1}}, ReadAllAvailable()) == {}, "what was read once is a loss, not a name"
