"""Whole plans against RocketMQ's manifests: topics, queues, tags, keys, offsets, times, limits, several stores."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipc.process import start_time
from spark_bridge.options.read import parse_options
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan import inventory
from spark_bridge.plan.bounds import OffsetsLost
from spark_bridge.plan.planner import plan_read
from spark_bridge.plan.stores import resolve_stores
from spark_bridge.split import splits as splits_module
from spark_bridge.split.splits import LeaseTerms, RangeSplit, RecordSplit, Split
from store.files.directory import StoreDirectory
from store.message.record import SysFlag
from store.message.topics import is_system_topic
from store.reading import extent
from store.upkeep import leases
from tests.spark_bridge.stores import GOLDEN_STORES, Row, SmallStore, golden_lines, read_rows, unpack_golden

GOLDEN = ("rocketmq-5.3.3", "master")
ROW_PLACE = ["topic", "queueId", "queueOffset", "physicalOffset", "properties"]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> str:
    return unpack_golden(*GOLDEN, tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="module")
def lines() -> list[Row]:
    return golden_lines(*GOLDEN, "message")


def offsets_of(splits: list[Split]) -> list[int]:
    return sorted(row["physicalOffset"] for row in read_rows(splits, ["physicalOffset"]))


def read(root: str, **options: str) -> list[int]:
    """The physical offsets that a read gives."""
    return offsets_of(plan_read(parse_options({"path": root, **options})))


def expected(lines: list[Row], wanted: Callable[[Row], Any]) -> list[int]:
    return [line["physicalOffset"] for line in lines if wanted(line)]


def test_a_brokers_own_topics_are_read_on_request_only(golden, lines):
    visible = expected(lines, lambda line: not is_system_topic(line["topic"]))
    assert len(visible) < len(lines)
    assert read(golden) == visible
    assert read(golden, includeSystemTopics="true") == [line["physicalOffset"] for line in lines]
    for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "%RETRY%G_alpha"):
        assert read(golden, topic=topic) == expected(lines, lambda line, topic=topic: line["topic"] == topic)
    assert read(golden, where='{"topic":"SCHEDULE_TOPIC_XXXX"}') == []
    assert read(golden, subscribePattern=".*") == visible


def test_patterns_and_assigned_queues(golden, lines):
    four = expected(lines, lambda line: line["topic"] in ("alphaFour", "alphaTx"))
    assert read(golden, subscribePattern="alpha(Four|T.)") == four
    assert read(golden, subscribePattern="lphaFour") == [], "the whole name has to match"
    assigned = expected(lines, lambda line: line["topic"] == "alphaEight" and line["queueId"] in (2, 5))
    assert read(golden, assign='{"alphaEight":[2,5]}') == assigned
    assert read(golden, assign='{"alphaEight":{"broker-alpha":[2,5]}}') == assigned
    with pytest.raises(InvalidOption, match=r"no store of broker 'broker-b'.*did you mean 'broker-alpha'"):
        read(golden, assign='{"alphaEight":{"broker-b":[2]}}')


@pytest.mark.parametrize(("version", "name"), GOLDEN_STORES)
def test_tags_are_pruned_by_hash_and_then_compared(version, name, tmp_path):
    root, lines = unpack_golden(version, name, tmp_path), golden_lines(version, name, "message")
    tags = Counter(line["tags"] for line in lines if line["tags"])
    assert len(tags) > 2
    batches = {line["physicalOffset"] for line in lines if "INNER_NUM" in line["properties"]}  # of many tags each
    for tag in sorted(tags)[:4]:
        wanted = expected(lines, lambda line, tag=tag: line["tags"] == tag)
        found = read(root, subExpression=tag, includeSystemTopics="true")
        assert [offset for offset in found if offset not in batches] == wanted, tag
        for topic in {line["topic"] for line in lines if line["tags"] == tag}:
            in_topic = expected(lines, lambda line, t=topic, tag=tag: (line["topic"], line["tags"]) == (t, tag))
            found = read(root, subExpression=f"{tag} || none of them", topic=topic)
            assert [offset for offset in found if offset not in batches] == in_topic, (tag, topic)


def test_two_tags_of_one_hash_are_distinguished(tmp_path):
    made = SmallStore(tmp_path / "store", 4096)
    for number in range(20):
        made.put("orders", properties=b"TAGS\x01" + (b"Aa", b"BB")[number % 2])
    made.dispatch()
    entries = tmp_path / "store" / "consumequeue" / "orders" / "0" / f"{0:020d}"
    content = bytearray(entries.read_bytes())
    for number in range(20):
        content[20 * number + 12 : 20 * number + 20] = (2112).to_bytes(8)  # what both hash to
    entries.write_bytes(content)
    assert read(str(made.root), topic="orders", subExpression="BB") == made.offsets[1::2]
    entries.write_bytes(bytes(content).replace((2112).to_bytes(8), (7).to_bytes(8)))
    assert read(str(made.root), topic="orders", subExpression="BB") == [], "the queue's hash was believed"


def _is_inner_batch(line: Row) -> bool:
    return bool(line["sysFlag"] & SysFlag.INNER_BATCH)


@pytest.mark.parametrize(("version", "name"), GOLDEN_STORES)
def test_keys_are_found_through_the_index_as_rocketmq_finds_them(version, name, tmp_path):
    root = unpack_golden(version, name, tmp_path)
    by_key: dict[str, set[int]] = {}
    for line in golden_lines(version, name, "index"):
        if not is_system_topic(line["topic"]) and line["physicalOffsets"]:
            by_key.setdefault(line["key"], set()).update(line["physicalOffsets"])
    rows = read_rows(plan_read(parse_options({"path": root})), ROW_PLACE)
    carrying: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        properties = dict(row["properties"])
        for key in {properties.get("UNIQ_KEY"), *properties.get("KEYS", "").split(" ")} - {None, ""}:
            carrying[key].append(row["physicalOffset"])
    asked = sorted(by_key.keys() | carrying.keys())[:: len(by_key) // 12]
    assert len(asked) > 10
    batches = {line["physicalOffset"] for line in golden_lines(version, name, "message") if _is_inner_batch(line)}
    for key in asked:
        assert read(root, keys=key) == sorted(carrying[key]), key
        assert by_key.get(key, set()) - batches <= set(carrying[key]), "what the index names but in a batch of messages"
    first = rows[0]
    own = {"topic": first["topic"], "keys": dict(first["properties"])["UNIQ_KEY"]}
    behind = json.dumps({first["topic"]: {str(first["queueId"]): first["queueOffset"] + 1}})
    assert read(root, **own) == [first["physicalOffset"]] and read(root, **own, startingOffsets=behind) == []
    together = {at for key in asked for at in carrying[key]}
    assert set(read(root, keys=json.dumps(asked))) == together


def test_keys_are_found_with_part_of_the_index_or_without_it(golden, lines, tmp_path):
    root = shutil.copytree(golden, tmp_path / "store")
    keyed = [line for line in lines if not is_system_topic(line["topic"])][:: len(lines) // 20]
    keys = json.dumps([line["properties"]["UNIQ_KEY"] for line in keyed])
    wanted = read(golden, keys=keys)
    assert {line["physicalOffset"] for line in keyed} <= set(wanted)
    options = parse_options({"path": str(root), "keys": keys})
    assert any(isinstance(split, RecordSplit) for split in plan_read(options))
    for path in sorted((root / "index").iterdir())[::2]:
        path.unlink()
        assert read(str(root), keys=keys) == wanted
    for path in (root / "index").iterdir():
        content = bytearray(path.read_bytes())
        content[36:40] = (2**31 - 1).to_bytes(4)  # more entries than there is room for
        path.write_bytes(content)
    assert read(str(root), keys=keys) == wanted
    shutil.rmtree(root / "index")
    assert read(str(root), keys=keys) == wanted
    assert not any(isinstance(split, RecordSplit) for split in plan_read(options))


def test_times_bound_queues_and_ranges_alike(golden, lines):
    times = sorted({line["storeTimestamp"] for line in lines})
    visible = [line for line in lines if not is_system_topic(line["topic"])]
    for first, end in ((times[40], times[-40]), (times[0], times[3]), (times[-2], times[-1] + 1), (times[5], times[5])):
        bounds = {"startingTimestamp": str(first), "endingTimestamp": str(end)}
        assert read(golden, **bounds) == expected(visible, lambda ln, a=first, b=end: a <= ln["storeTimestamp"] < b)
        for topic in ("alphaEight", "SCHEDULE_TOPIC_XXXX"):
            wanted = expected(
                lines, lambda ln, a=first, b=end, t=topic: ln["topic"] == t and a <= ln["storeTimestamp"] < b
            )
            assert read(golden, topic=topic, **bounds) == wanted
    assert read(golden, startingTimestamp="-1m") == []
    assert read(golden, endingTimestamp="2001-01-01") == []
    middle = times[len(times) // 2]
    by_queue = json.dumps({"alphaEight": {"3": middle}, "alphaFour": {"broker-alpha": {"0": middle}}})
    bounded = {("alphaEight", 3), ("alphaFour", 0)}
    wanted = expected(
        lines,
        lambda ln: (
            ln["topic"] in ("alphaEight", "alphaFour")
            and ((ln["topic"], ln["queueId"]) not in bounded or ln["storeTimestamp"] >= middle)
        ),
    )
    assert read(golden, startingOffsetsByTimestamp=by_queue) == wanted
    with pytest.raises(InvalidOption, match="has no message stored at or after"):
        read(golden, topic="alphaOne", startingTimestamp="-1m", startingOffsetsByTimestampStrategy="error")
    with pytest.raises(InvalidOption, match="the end is before the start"):
        read(golden, startingTimestamp=str(middle), endingTimestamp=str(middle - 1))


def test_times_bound_what_is_not_dispatched_as_well(tmp_path, monkeypatch):
    made = SmallStore(tmp_path / "store", 1024)
    for number in range(60):
        made.put(("orders", "payments")[number % 2], b"x" * 30, number % 3, store_timestamp_ms=1000 + number // 4)
    made.dispatch()
    bounds = {"startingTimestamp": "1004", "endingTimestamp": "1011"}
    for reput in (0, made.offsets[18], made.offsets[30], made.offsets[50], made.end):
        monkeypatch.setattr("spark_bridge.plan.inventory.find_extent", lambda *_a, r=reput, **_k: made.extent(r))
        assert read(str(made.root), **bounds) == made.offsets[16:44], reput
        assert read(str(made.root), topic="orders", **bounds) == made.offsets[16:44:2], reput
        by_queue = {"startingOffsetsByTimestamp": '{"payments":{"1":1004}}', "topic": "payments"}
        wanted = [
            record[0]
            for n, record in enumerate(made.records)
            if record[2] == "payments" and (record[3] != 1 or n >= 16)
        ]
        assert read(str(made.root), **by_queue) == wanted, reput


def test_missing_offsets_are_an_error_unless_their_loss_may_pass(golden):
    def bounds(first: int, end: int) -> dict[str, str]:
        one = '{"alphaOne":{"0":%d}}'
        return {"startingOffsets": one % first, "endingOffsets": one % end}

    assert len(read(golden, **bounds(5, 9))) == 4
    assert read(golden, **bounds(7, 7)) == []
    with pytest.raises(OffsetsLost, match=r"endingOffsets of queue 0 .* offsets 83 to 99 are missing") as told:
        read(golden, **bounds(5, 100))
    assert told.value.code == "OFFSETS_LOST"
    assert len(read(golden, failOnDataLoss="false", **bounds(80, 100))) == 3
    with pytest.raises(InvalidOption, match="would end at 3, before it starts at 5"):
        read(golden, **bounds(5, 3))


def test_offsets_of_a_deleted_segment_are_reported_with_queue_range_and_file(tmp_path):
    made = SmallStore(tmp_path / "store", 1024)
    for _ in range(40):
        made.put("orders", b"x" * 50)
    made.dispatch()
    (made.root / "commitlog" / f"{0:020d}").unlink()
    gone = sum(offset < 1024 for offset in made.offsets)
    with pytest.raises(OffsetsLost) as told:
        read(str(made.root), startingOffsets='{"orders":{"0":1}}')
    assert f"offsets 1 to {gone - 1} are missing" in str(told.value)
    assert f"{1024:020d}" in str(told.value)
    assert read(str(made.root), startingOffsets='{"orders":{"0":1}}', failOnDataLoss="false") == made.offsets[gone:]
    assert read(str(made.root), topic="orders") == made.offsets[gone:]


@pytest.mark.parametrize(
    "selection",
    [
        {"topic": "alphaEight,alphaFour"},
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"subExpression": "AAAA"}, marks=pytest.mark.slow),
    ],
)
def test_limits_of_partitions_hold_for_every_one(golden, selection):
    whole = read(golden, **selection)
    for limit in (1, 7, 50):
        splits = plan_read(parse_options({"path": golden, "maxRecordsPerPartition": str(limit), **selection}))
        parts = [offsets_of([split]) for split in splits]
        assert max(map(len, parts)) <= limit
        assert sorted(offset for part in parts for offset in part) == whole
    for limit in (400, 10_000):
        splits = plan_read(parse_options({"path": golden, "maxBytesPerPartition": str(limit), **selection}))
        assert offsets_of(splits) == whole
        for split in splits:
            if isinstance(split, RangeSplit):
                assert split.end - split.start <= limit
            else:
                sizes = sum(row["bodyLength"] for row in read_rows([split], ["bodyLength"]))
                assert sizes < limit or len(offsets_of([split])) == 1


def test_as_many_partitions_as_asked_for(golden):
    for selection in ({}, {"topic": "alphaEight"}):
        for least in (1, 5, 40):
            splits = plan_read(parse_options({"path": golden, "minPartitions": str(least), **selection}))
            assert least <= len(splits)
            assert offsets_of(splits) == read(golden, **selection)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SmallStore:
    made = SmallStore(tmp_path_factory.mktemp("small") / "store", 2048)
    for number in range(60):
        made.put(("orders", "payments", "half")[number % 3], b"x" * (13 * number % 150), queue_id=number % 2)
    made.dispatch()
    return made


def two_stores(tmp_path: Path) -> dict[str, SmallStore]:
    """Stores of two brokers of one cluster, with topics of the same name."""
    found = {}
    for number, name in enumerate(("broker-a", "broker-b")):
        made = found[name] = SmallStore(tmp_path / name / "store", 4096)
        for count in range(10 + number):
            made.put("orders", b"%d" % count, queue_id=count % 2, store_timestamp_ms=1000 * number + count)
        made.dispatch()
    return found


def test_several_stores_are_one_table_with_their_brokers_names(tmp_path):
    stores = two_stores(tmp_path)
    roots = [str(made.root) for made in stores.values()]
    wanted = Counter({"broker-a": 10, "broker-b": 11})
    globbed = str(tmp_path / "*" / "store")
    for given_paths in ({"paths": json.dumps(roots)}, {"path": ",".join(roots)}, {"path": globbed}):
        splits = plan_read(parse_options(given_paths))
        assert Counter(row["brokerName"] for row in read_rows(splits, ["brokerName"])) == wanted
    options = parse_options({"path": globbed, "startingOffsets": '{"orders":{"broker-b":{"0":4}}}'})
    rows = Counter((row["brokerName"], row["queueId"]) for row in read_rows(plan_read(options)))
    assert rows == {("broker-a", 0): 5, ("broker-a", 1): 5, ("broker-b", 0): 2, ("broker-b", 1): 5}
    only = plan_read(parse_options({"path": globbed, "where": '{"brokerName":"broker-b"}'}))
    assert {split.log.broker_name for split in only} == {"broker-b"}
    with pytest.raises(InvalidOption, match="no directory of that pattern holds a store"):
        resolve_stores(parse_options({"path": str(tmp_path / "x*")}))


def test_a_replica_is_not_read_twice(tmp_path, golden):
    copy = shutil.copytree(golden, tmp_path / "slave")
    with pytest.raises(InvalidOption, match="hold the same log"):
        resolve_stores(parse_options({"paths": json.dumps([golden, str(copy)])}))
    link = tmp_path / "link"
    link.symlink_to(golden)
    options = parse_options({"paths": json.dumps([golden, str(link)])})
    assert [store.broker_name for store in resolve_stores(options)] == ["broker-alpha"]


def test_a_plan_holds_the_log_from_its_lowest_offset_on_while_its_process_lives(store, monkeypatch):
    monkeypatch.setattr(extent, "running", lambda _root: True)
    monkeypatch.setattr(inventory, "find_extent", lambda *_a, **_k: store.extent())
    root = str(store.root)
    splits = plan_read(parse_options({"path": root, "startingOffsets": '{"orders":{"0":8,"1":8}}'}))
    low = min(offset for offset in offsets_of(splits))
    now_ms = 1_000_000
    assert leases.held_from(root, now_ms) == low
    assert {split.log.lease for split in splits} == {LeaseTerms(root, low, 120_000)}
    names = [path.name for path in StoreDirectory(root).leases.iterdir()]
    assert len(names) == 2, "the plan's and this reader's"
    assert all(name.startswith(f"{os.getpid()}-{start_time(os.getpid())}-") for name in names)
    third = '{"orders":{"0":3}}'
    nothing = {"assign": '{"orders":[0]}', "startingOffsets": third, "endingOffsets": third}
    assert plan_read(parse_options({"path": root, **nothing})) == []
    assert len(list(StoreDirectory(root).leases.iterdir())) == 2, "a plan without splits holds nothing"
    with pytest.raises(OffsetsLost):
        plan_read(parse_options({"path": root, "startingOffsets": '{"orders":{"0":800}}'}))
    assert len(list(StoreDirectory(root).leases.iterdir())) == 2


def test_a_store_that_cannot_be_planned_leaves_no_lease_on_the_others(tmp_path, monkeypatch):
    stores = two_stores(tmp_path)
    extents = {str(made.root): made.extent() for made in stores.values()}
    first, second = sorted(extents)

    def found(root: str, *_arguments: object, **_options: object) -> object:
        if root == second:
            raise OSError("its log is out of reach")
        return extents[root]

    monkeypatch.setattr(extent, "running", lambda _root: True)
    monkeypatch.setattr(inventory, "find_extent", found)
    with pytest.raises(OSError, match="out of reach"):
        plan_read(parse_options({"paths": json.dumps([first, second])}))
    assert not list(StoreDirectory(first).leases.iterdir())


def test_a_plan_of_too_many_partitions_is_refused_before_it_is_made(store, monkeypatch):
    with pytest.raises(InvalidOption, match="minPartitions=100000000: at most 100000"):
        parse_options({"path": str(store.root), "minPartitions": "100000000"})
    monkeypatch.setattr(splits_module, "PARTITIONS_MAX", 5)
    store.dispatch()
    for many in ({"maxRecordsPerPartition": "1"}, {"maxBytesPerPartition": "1"}):
        for topic in ({}, {"topic": "orders"}):
            with pytest.raises(
                InvalidOption, match=r"the plan has more than 5 partitions.*maxRecordsPerPartition larger"
            ):
                plan_read(parse_options({"path": str(store.root), **many, **topic}))
    assert splits_module.bounded_list(range(3), range(2)) == [0, 1, 2, 0, 1]
    with pytest.raises(InvalidOption):
        splits_module.bounded_list(iter(lambda: 0, 1))


def test_each_store_of_a_list_may_be_a_file_url(tmp_path):
    roots = []
    for name in ("one", "two"):
        made = SmallStore(tmp_path / name)
        made.put("t", name.encode())
        roots.append(str(made.root))
    for given in (f"{roots[0]},file:{roots[1]}", f"file:{roots[0]},file://{roots[1]}"):
        assert [at.root for at in resolve_stores(parse_options({"path": given}))] == roots
