"""Options of a stream, by table."""

from __future__ import annotations

import pytest

from spark_bridge.options.read import parse_options
from spark_bridge.options.values import InvalidOption
from spark_bridge.stream.limits import Limits
from spark_bridge.stream.options import parse_stream_options, without_stream_only

PATH = {"path": "/data/store"}


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ({}, Limits()),
        ({"maxOffsetsPerTrigger": "7"}, Limits(rows_max=7)),
        ({"MAXBYTESPERTRIGGER": "7"}, Limits(bytes_max=7)),
        ({"minOffsetsPerTrigger": "7", "maxTriggerDelay": "90s"}, Limits(rows_min=7, delay_max_ms=90_000)),
        ({"maxTriggerDelay": "2 min"}, Limits(delay_max_ms=120_000)),
        ({"maxTriggerDelay": "1500"}, Limits(delay_max_ms=1500)),
    ],
)
def test_limits(given: dict[str, str], limits: Limits) -> None:
    assert parse_stream_options(PATH | given).limits == limits


@pytest.mark.parametrize(
    ("text", "latest", "starting", "topics"),
    [
        ("earliest", False, (), None),
        ("Latest", True, (), None),
        ('{"orders":{"0":42,"1":-1,"2":-2}}', False, (("orders", 0, 42), ("orders", 1, -1),
         ("orders", 2, -2)), ("orders",)),
    ],
)  # fmt: skip
def test_starting_offsets_of_a_stream_are_parsed(
    text: str, latest: bool, starting: tuple[tuple[str, int, int], ...], topics: tuple[str, ...] | None
) -> None:
    found = parse_stream_options(PATH | {"startingOffsets": text})
    assert (found.starts_latest, found.read.topics) == (latest, topics)
    assert tuple((*item.queue[:2], item.offset) for item in found.starting) == starting


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        ({"maxBytesPerTrigger": "many"}, "maxBytesPerTrigger"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay='soon'"),
        ({"maxTriggerDelay": "5 weeks"}, "15m"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "above maxOffsetsPerTrigger=8"),
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"maxOffsetPerTrigger": "8"}, "unknown option"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "startingOffsets"),
    ],
)
def test_wrong_options_of_a_stream_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        parse_stream_options(PATH | given)


def test_a_batch_read_warns_of_the_options_of_streams_and_its_schema_is_there_for_both() -> None:
    given = PATH | {"maxOffsetsPerTrigger": "8", "maxTriggerDelay": "1s"}
    with pytest.warns(UserWarning, match="maxOffsetsPerTrigger, maxTriggerDelay: without effect in a batch read"):
        assert parse_options(given) == parse_options(PATH)
    assert parse_options(without_stream_only(given | {"startingOffsets": "latest"})).path == "/data/store"


@pytest.mark.parametrize(
    ("given", "latest"),
    [
        ({}, True),
        ({"startingOffsets": "earliest"}, False),
        ({"startingOffsets": '{"orders":{"0":3}}'}, False),
        ({"startingTimestamp": "-1h"}, False),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":1}}'}, False),
    ],
)
def test_with_kafkas_columns_a_stream_starts_where_kafkas_does(given: dict[str, str], latest: bool) -> None:
    assert parse_stream_options({**PATH, "schema": "kafka", **given}).starts_latest is latest
    assert parse_stream_options(PATH | given).starts_latest is False
