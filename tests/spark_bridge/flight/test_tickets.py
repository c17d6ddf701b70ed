"""Tickets: what a plan says comes back, without a place in it; what a stranger writes is refused before it is used."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_bridge.flight.errors import InvalidTicket
from spark_bridge.flight.tickets import OFFSETS_MAX, PIECES_MAX, TICKET_BYTES_MAX, encoded, parsed, placed, tickets_of
from spark_bridge.options.ranges import Range, Ranges
from spark_bridge.options.read import parse_options
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan.planner import plan_read
from spark_bridge.split.splits import (
    LogExtent,
    QueuePiece,
    QueueSplit,
    RangeSplit,
    RecordSplit,
    Selection,
)
from spark_bridge.split.stored import StoredBounds
from tests.spark_bridge.stores import GOLDEN_STORES, unpack_golden

LOG = LogExtent("/data/commitlog", 4096, 100, 7000, 8000, "/data", "broker-a")
ALL = Selection(
    frozenset({"a", "b%"}),
    frozenset({0, 3}),
    (("a", 0, 5, None), ("a", 1, 0, 7)),
    False,
    None,
    frozenset({("a", 0)}),
    (StoredBounds("a", 0, 1, 2), StoredBounds(None, None, None, 5)),
    frozenset({"red", "ü"}),
    frozenset({"k 1"}),
    Ranges(Range(3), Range(None, 9), Range(-5, 2**63 - 1)),
)
SPLITS = [
    RangeSplit(LOG, 0, 100, 200, 4096, ALL),
    RangeSplit(LOG, 4096, 4096, 4096, 8000, Selection()),
    QueueSplit(LOG, (QueuePiece("/data/consumequeue/a/0", "a", 0, 0, 9),), Selection(tags=frozenset({"x"}))),
    RecordSplit(LOG, (100, 300, 7999), Selection(keys=frozenset({"k"}))),
]
ROWS = {"mode": "failfast"}
VALID = [json.loads(encoded(ticket)) for split in SPLITS for ticket in tickets_of(split, ["body"], ROWS)]


@pytest.mark.parametrize("split", SPLITS)
def test_a_split_comes_back_where_it_is_placed(split) -> None:
    (ticket,) = tickets_of(split, ["body", "topic"], {"verifyCrc": "body"})
    text = encoded(ticket)
    assert b"/data" not in text, "no place"
    back = parsed(text)
    assert back == ticket and back.broker_name == "broker-a"
    assert placed(back.split, LOG, lambda topic, queue_id: f"/data/consumequeue/{topic}/{queue_id}") == split


@pytest.mark.parametrize(("version", "name"), GOLDEN_STORES)
@pytest.mark.parametrize(
    "options",
    [
        {}, {"minPartitions": "20"}, {"topic": "alphaFour,alphaEight"}, {"maxRecordsPerPartition": "3"},
        {"endingTimestamp": "-1d"}, {"startingTimestamp": "-99999999d", "subExpression": "TagA || b"},
        {"keys": "k1,k2", "includeSystemTopics": "true"}, {"where": '{"queueId":[0]}'},
        {"where": '{"queueOffset":{">=":3},"physicalOffset":{"<":9000},"bornTimestamp":{"<":"-1d"}}'},
    ],
)  # fmt: skip
def test_what_plans_say_is_always_taken(tmp_path: Path, version: str, name: str, options: dict[str, str]) -> None:
    root = unpack_golden(version, name, tmp_path)
    splits = plan_read(parse_options({"path": root, "allowMissingTopics": "true", **options}))
    for split in splits:
        for ticket in tickets_of(split, ["body"], {}):
            assert parsed(encoded(ticket)).split.log == ticket.split.log


def test_a_large_split_is_several_tickets_and_too_large_a_one_is_refused() -> None:
    pieces = tuple(QueuePiece("", f"topic-{number}", 0, 0, 1) for number in range(PIECES_MAX + 1))
    first, second = tickets_of(QueueSplit(LOG, pieces), ["body"], {})
    assert first.split.pieces + second.split.pieces == pieces
    offsets = tuple(range(200, 201 + OFFSETS_MAX))
    many = tickets_of(RecordSplit(LogExtent("", 1 << 20, 0, 1 << 20, 1 << 20), offsets, Selection()), ["body"], {})
    assert tuple(offset for ticket in many for offset in parsed(encoded(ticket)).split.offsets) == offsets
    long = Selection(keys=frozenset({"k" * TICKET_BYTES_MAX}))
    (large,) = tickets_of(RangeSplit(LOG, 0, 100, 100, 200, long), ["x"], {})
    with pytest.raises(InvalidOption, match="at most"):
        encoded(large)


@pytest.mark.parametrize(
    ("number", "name", "value"),
    [
        (0, "range", [0, 100, 200, 4097]),
        (0, "range", [0, 99, 200, 300]),
        (0, "range", [0, 201, 200, 300]),
        (0, "range", [1, 100, 200, 300]),
        (0, "range", [0, 100, 300, 300]),
        (0, "range", [0, 100, 200, 1 << 70]),
        (0, "range", [0, -1, 200, 300]),
        (0, "range", [0, 100, 200]),
        (0, "range", None),
        (0, "range", [0, 100, True, 300]),
        (0, "range", [0, 100, 200.0, 300]),
        (1, "range", [8192, 8192, 8192, 9000]),
        (0, "segment", 0),
        (0, "segment", 1 << 50),
        (0, "log", [8000, 7000, 100]),
        (0, "log", [0, 0]),
        (0, "broker", 7),
        (0, "version", 2),
        (0, "queues", [["a", 0, 0, 1]]),
        (2, "queues", []),
        (2, "queues", [["..", 0, 0, 1]]),
        (2, "queues", [["a/b", 0, 0, 1]]),
        (2, "queues", [["", 0, 0, 1]]),
        (2, "queues", [["a", -1, 0, 1]]),
        (2, "queues", [["a", 0, 1, 1]]),
        (2, "queues", [["a", 0, 0, 1 << 63]]),
        (2, "queues", [["a" * 300, 0, 0, 1]]),
        (2, "queues", [["a", "0", 0, 1]]),
        (3, "records", []),
        (3, "records", [300, 200]),
        (3, "records", [200, 200]),
        (3, "records", [8000]),
        (3, "records", [5]),
        (3, "records", list(range(100, 101 + OFFSETS_MAX))),
        (0, "select", []),
        (0, "select", {"x": 1}),
        (0, "select", {"topics": "a"}),
        (0, "select", {"topics": ["\ud800"]}),
        (0, "select", {"system": 1}),
        (0, "select", {"bounds": [["a", 0, 5]]}),
        (0, "columns", []),
        (0, "columns", "body"),
        (0, "columns", None),
        (0, "select", {"ranges": [[1, 2]]}),
        (0, "select", {"ranges": [[1, 1 << 63], [], [], []]}),
        (0, "select", {"ranges": [[True, 2]] * 4}),
        (0, "where", {}),
        (0, "where", [1]),
        (0, "rows", {"path": "/etc"}),
        (0, "rows", {"mode": 1}),
        (0, "path", "/etc"),
        (0, "log", [-1, 7000, 8000]),
    ],
)
def test_what_no_plan_says_is_refused(number: int, name: str, value: object) -> None:
    fields = copy.deepcopy(VALID[number])
    fields[name] = value
    with pytest.raises(InvalidTicket) as refused:
        parsed(json.dumps(fields).encode())
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    "text", [b"", b"\xff", b"[" * 100_000, b"1" * 5000, b" " * (TICKET_BYTES_MAX + 1), b"{}", b"null"]
)
def test_what_is_no_ticket_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidTicket):
        parsed(text)


SCALARS = st.none() | st.booleans() | st.integers() | st.integers(-5, 10_000) | st.text(max_size=5) | st.floats()
ANYTHING = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=5), max_leaves=12)


def _mutated(fields: dict[str, Any], at: list[int], value: Any) -> bytes:
    """The ticket with one of its inner values replaced."""
    fields = copy.deepcopy(fields)
    here: Any = fields
    for step in at:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        key = keys[step % len(keys)]
        inner = here[key]
        if not isinstance(inner, dict | list) or not inner or step == at[-1]:
            here[key] = value
            break
        here = inner
    return json.dumps(fields).encode()


@given(st.sampled_from(VALID), st.lists(st.integers(0, 50), min_size=1, max_size=4), ANYTHING)
def test_a_mutated_ticket_is_refused_or_says_what_its_own_bounds_allow(fields, at, value) -> None:
    try:
        split = parsed(_mutated(fields, at, value)).split
    except InvalidTicket:
        return
    log = split.log
    assert 0 <= log.min_physical_offset <= log.reput_from_offset <= log.max_physical_offset
    if isinstance(split, RangeSplit):
        assert split.base_offset <= split.chain_from <= split.start < split.end <= log.max_physical_offset
        assert split.end <= split.base_offset + log.segment_bytes and split.base_offset % log.segment_bytes == 0
    elif isinstance(split, QueueSplit):
        assert all(piece.start < piece.end and not set("/.") & set(piece.topic) for piece in split.pieces)
    else:
        assert list(split.offsets) == sorted(set(split.offsets)) and split.offsets[-1] < log.max_physical_offset


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused_as_a_ticket(text: bytes) -> None:
    with pytest.raises(InvalidTicket):
        parsed(text)
