"""Ranges in plans: the same rows as a look at every record gives, and less of the log that is looked at for them."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spark_bridge import scanning
from spark_bridge.flight.explaining import explain_options
from spark_bridge.options.read import parse_options
from spark_bridge.plan import log_times
from spark_bridge.plan.explanation import bytes_of
from spark_bridge.plan.planner import CLOCK_SLACK_MS, plan_read
from spark_bridge.split.splits import Split
from store.reading import history
from tests.spark_bridge.stores import GOLDEN_STORES, SmallStore, read_rows, unpack_golden

TOPICS = ("orders", "payments", "refunds")
MESSAGES = 600
MINUTE_MS = 60_000
START_MS = 1_795_000_000_000
NAMES = ["topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp", "bornTimestamp"]
FIELDS = ("queueOffset", "physicalOffset", "storeTimestamp", "bornTimestamp")

Message = dict[str, Any]


def stored(number: int, chance: random.Random) -> int:
    """A minute a message, but for a clock that is put back now and then, by less than is spared."""
    return START_MS + number * MINUTE_MS - chance.choice((0, 0, 0, CLOCK_SLACK_MS - MINUTE_MS))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SmallStore:
    chance = random.Random(7)
    made = SmallStore(tmp_path_factory.mktemp("ranges") / "store", 4096)
    for number in range(MESSAGES):
        times = {"store_timestamp_ms": stored(number, chance), "born_timestamp_ms": START_MS + chance.randrange(10**8)}
        made.put(TOPICS[number % 3], b"x" * chance.randrange(80), number % 2, **times)
    made.dispatch()
    return made


@pytest.fixture(scope="module")
def messages(store: SmallStore) -> list[Message]:
    return [as_numbers(row) for row in read_rows(plans(store), NAMES)]


def as_numbers(row: Message) -> Message:
    times = {name: round(row[name].timestamp() * 1000) for name in ("storeTimestamp", "bornTimestamp")}
    return {**row, **times}


def plans(store: SmallStore, where: dict[str, Any] | None = None, **options: str) -> list[Split]:
    given = {"path": str(store.root), "splitBytes": "4096", **options}
    return plan_read(parse_options({**given, **({} if where is None else {"where": json.dumps(where)})}))


def found(splits: list[Split]) -> list[int]:
    return sorted(row["physicalOffset"] for row in read_rows(splits, ["physicalOffset"]))


def a_range(messages: list[Message], chance: random.Random) -> dict[str, dict[str, int]]:
    """Limits of a column or two, at values that are there, beside them, and beyond all."""
    where = {}
    for name in chance.sample(FIELDS, chance.choice((1, 1, 2))):
        values = sorted(message[name] for message in messages)
        limits = [chance.choice((-10, *values, values[-1] + 10**6)) + chance.choice((-1, 0, 0, 1)) for _ in range(2)]
        if name.endswith("Timestamp"):
            limits = [max(0, limit) for limit in limits]
        signs = chance.choice(((">=",), ("<",), (">=", "<"), (">", "<="), ("<=", ">")))
        where[name] = dict(zip(signs, sorted(limits), strict=False))
    return where


def admits(message: Message, where: dict[str, dict[str, int]]) -> bool:
    compared = {
        ">=": lambda value, limit: value >= limit,
        ">": lambda value, limit: value > limit,
        "<": lambda value, limit: value < limit,
        "<=": lambda value, limit: value <= limit,
    }
    return all(compared[sign](message[name], limit) for name, limits in where.items() for sign, limit in limits.items())


@pytest.mark.parametrize("reput_share", [0.0, 0.55, 1.0])
def test_a_range_gives_the_rows_that_a_check_of_every_record_gives(store, messages, reput_share, monkeypatch):
    reput = [*store.offsets, store.end][int(reput_share * MESSAGES)]
    monkeypatch.setattr("spark_bridge.plan.inventory.find_extent", lambda *_a, **_k: store.extent(reput))
    chance = random.Random(int(reput_share * 100))
    cuts = 0
    for _ in range(60):
        where, topic = a_range(messages, chance), chance.choice((None, *TOPICS))
        options = {} if topic is None else {"topic": topic}
        splits = plans(store, where, **options)
        wanted = [
            message["physicalOffset"]
            for message in messages
            if admits(message, where) and topic in (None, message["topic"])
        ]
        assert found(splits) == wanted, (where, topic)
        assert sum(map(bytes_of, splits)) <= sum(map(bytes_of, plans(store, **options))), (where, topic)
        cuts += sum(map(bytes_of, splits)) < sum(map(bytes_of, plans(store, **options)))
    assert cuts > 10


@pytest.mark.parametrize(("version", "name"), GOLDEN_STORES)
def test_stores_of_rocketmqs_own_have_the_same_rows_too(version, name, tmp_path):
    """Transactions, delays, batches, multi-dispatch queues, and times of a second in which all of it was written."""
    root, chance = unpack_golden(version, name, tmp_path), random.Random(version + name)
    whole = [as_numbers(row) for row in read_rows(plan_read(parse_options({"path": root})), NAMES)]
    topics = sorted({row["topic"] for row in whole})
    for _ in range(40):
        where, topic = a_range(whole, chance), chance.choice((None, *topics))
        options = {"path": root, "where": json.dumps(where), **({} if topic is None else {"topic": topic})}
        rows = read_rows(plan_read(parse_options(options)), NAMES)
        wanted = [row for row in whole if admits(row, where) and topic in (None, row["topic"])]
        assert sorted(map(_place, rows)) == sorted(map(_place, wanted)), (where, topic)


def _place(row: Message) -> tuple[Any, ...]:
    return row["topic"], row["queueId"], row["queueOffset"], row["physicalOffset"]


@pytest.mark.parametrize("options", [{}, {"topic": "orders"}, {"subscribePattern": "orders|refunds"}])
def test_a_plan_with_a_range_reads_less_of_the_log(store, messages, options):
    whole = sum(map(bytes_of, plans(store, **options)))
    middle = messages[MESSAGES // 2]["physicalOffset"]
    tenth = {">=": middle, "<": middle + store.end // 10}
    assert sum(map(bytes_of, plans(store, {"physicalOffset": tenth}, **options))) <= whole * 0.12
    hour = {">=": START_MS + 300 * MINUTE_MS, "<": START_MS + 360 * MINUTE_MS}
    assert sum(map(bytes_of, plans(store, {"storeTimestamp": hour}, **options))) <= whole * 0.4
    assert plans(store, {"physicalOffset": {">=": store.end}}, **options) == []
    assert plans(store, {"storeTimestamp": {"<": 5}}, **options) == []
    if options:  # a queue's offsets say nothing of where in the log they are
        assert sum(map(bytes_of, plans(store, {"queueOffset": {">=": 90}}, **options))) <= whole * 0.12
    else:
        assert sum(map(bytes_of, plans(store, {"queueOffset": {">=": 90}}))) == whole
    assert sum(map(bytes_of, plans(store, {"bornTimestamp": {"<": 5}}, **options))) == whole
    assert found(plans(store, {"bornTimestamp": {"<": 5}}, **options)) == []


def test_a_range_that_says_nothing_but_itself_is_no_rows_and_no_error(store):
    assert plans(store, {"queueOffset": {">=": 9, "<": 3}}, topic="orders") == []
    assert found(plans(store, {"storeTimestamp": {">=": START_MS + 9, "<": START_MS}})) == []
    assert plans(store, {"physicalOffset": {">": 2**63 - 1}}) == []


def test_part_of_a_segment_is_cut_into_splits_of_the_size_asked_for(store, messages):
    first, end = messages[100]["physicalOffset"] + 1, messages[400]["physicalOffset"] + 1
    splits = plans(store, {"physicalOffset": {">=": first, "<": end}})
    assert (splits[0].start, splits[-1].end) == (first, end)
    assert all(split.chain_from <= split.start for split in splits)
    assert found(splits) == [message["physicalOffset"] for message in messages[101:401]]


def test_a_time_that_cannot_be_read_cuts_nothing(tmp_path, store, messages, monkeypatch):
    hour = {"storeTimestamp": {">=": START_MS + 300 * MINUTE_MS, "<": START_MS + 360 * MINUTE_MS}}
    wanted = found(plans(store, hour))
    for unread in (lambda *_a: None, _raising):
        monkeypatch.setattr(log_times, "stored_ms", unread)
        monkeypatch.setattr(log_times, "stored_ms_at", unread)
        for options in ({}, {"topic": "orders"}):
            splits = plans(store, hour, **options)
            assert sum(map(bytes_of, splits)) == sum(map(bytes_of, plans(store, **options)))
        assert found(plans(store, hour)) == wanted


def test_a_start_or_an_end_by_time_leaves_nothing_out_for_a_time_that_cannot_be_read(tmp_path, monkeypatch):
    made = SmallStore(tmp_path, 4096)
    for number in range(200):
        made.put("t", b"x" * 50, store_timestamp_ms=START_MS + number * MINUTE_MS)
    made.dispatch()
    times = {"startingTimestamp": str(START_MS + 90 * MINUTE_MS), "endingTimestamp": str(START_MS + 110 * MINUTE_MS)}
    wanted = found(plans(made, topic="t", **times))
    assert wanted == made.offsets[90:110]
    read, read_at = history.stored_ms, history.stored_ms_at
    for number in range(80, 120):
        base, place = divmod(made.offsets[number], 4096)
        monkeypatch.setattr(log_times, "stored_ms_at", lambda fd, at, p=place: None if at == p else read_at(fd, at))
        monkeypatch.setattr(
            log_times, "stored_ms", lambda files, at, b=base: None if at == b * 4096 else read(files, at)
        )
        assert found(plans(made, topic="t", **times)) == wanted
        assert found(plans(made, **times)) == wanted


def _raising(*_args: Any) -> int:
    raise OSError(5, "Input/output error")


def test_a_scan_without_spark_has_the_ranges_of_its_conditions(store, messages, monkeypatch):
    planned: list[list[Split]] = []
    monkeypatch.setattr(scanning, "plan_read", lambda options: (planned.append(plan_read(options)), planned[-1])[1])
    whole = sum(map(bytes_of, plans(store, topic="orders")))
    moment = datetime.fromtimestamp(messages[550]["storeTimestamp"] / 1000, UTC)
    for conditions, wanted in (
        ([("queueOffset", ">=", 90), ("queueOffset", "<", 95)], lambda m: 90 <= m["queueOffset"] < 95),
        ([("physicalOffset", "==", messages[300]["physicalOffset"])], lambda m: m is messages[300]),
        ([("storeTimestamp", ">", moment)], lambda m: m["storeTimestamp"] > messages[550]["storeTimestamp"]),
        (
            [("queueOffset", ">", 89), ("queueOffset", "!=", 91)],
            lambda m: m["queueOffset"] == 90 or m["queueOffset"] > 91,
        ),
    ):
        rows = scanning.scan(store.root, topics=["orders"], columns=["physicalOffset"], where=conditions).read_all()
        offsets = [m["physicalOffset"] for m in messages if m["topic"] == "orders" and wanted(m)]
        assert sorted(rows["physicalOffset"].to_pylist()) == offsets
        assert sum(map(bytes_of, planned[-1])) < whole * 0.4


def test_a_plan_is_explained_and_holds_nothing(store: SmallStore, messages: list[Message]) -> None:
    leases = store.root / "leases"
    plan = explain_options({"path": str(store.root), "topic": "orders", "where": '{"queueOffset":{">=":10,"<":60}}'})
    (told,) = plan.stores
    wanted = [m for m in messages if m["topic"] == "orders" and 10 <= m["queueOffset"] < 60]
    assert told.queues == {"orders/0": 50, "orders/1": 50} and len(wanted) == 100
    assert (told.end_offset, told.dispatched_offset, told.is_running) == (store.end, store.end, False)
    assert plan.bytes == sum(size for _, size, topic, _, n in store.records if topic == "orders" and 10 <= n < 60)
    assert f"{plan.bytes:,} bytes" in str(plan) and "orders/0 (50)" in str(plan) and str(store.root) in str(plan)
    assert plan.as_json()["stores"][0]["queues"] == told.queues
    half = explain_options({"path": str(store.root), "where": '{"physicalOffset":{"<":4100}}'})
    assert half.stores[0].ranges == [(0, 4100)] and half.bytes == 4100
    assert explain_options({"path": str(store.root), "table": "queues"}).splits == 0
    assert not leases.exists() and not list(Path(store.root).glob("*lease*"))
