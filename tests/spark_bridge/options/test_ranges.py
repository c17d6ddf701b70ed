"""Ranges in the option `where`: how they are read, met and written, and what is refused."""

from __future__ import annotations

import pytest

from spark_bridge.options.queues import parse_moment
from spark_bridge.options.ranges import Range, Ranges
from spark_bridge.options.read import parse_options
from spark_bridge.options.values import InvalidOption
from spark_bridge.options.where import parse_where, where_text

NOW = 1_795_000_000_000


def test_limits_of_all_columns_and_of_both_names_are_met_together():
    text = '{"queueOffset":{">=":5,"<":9},"OFFSET":{">":6},"physicalOffset":{"<=":100},"topic":"a"}'
    where = parse_where(text)
    assert where.ranges_at(NOW) == Ranges(Range(7, 9), Range(None, 101))
    assert where.topics == frozenset("a")
    times = '{"storeTimestamp":{">=":"-2h","<":"2026-11-21T12:00:00.352Z"},"timestamp":{">":"-1s"}}'
    ranges = parse_where(times).ranges_at(NOW)
    assert ranges.stored_ms == Range(NOW - 7_200_000, 1_795_262_400_352)
    assert ranges.born_ms == Range(NOW - 999)


def test_a_time_is_the_millisecond_that_it_says():
    for ms in range(1000):
        assert parse_moment("x", f"2026-11-21T12:00:00.{ms:03d}Z").ms == 1_795_262_400_000 + ms


def test_ranges_are_intersected_clipped_and_widened():
    assert Range(3).met(Range(None, 9)).met(Range(5, 7)) == Range(5, 7)
    assert Range(3, 9).within(0, 5) == (3, 5)
    assert Range().within(2, 5) == (2, 5)
    assert Range(7, 3).within(0, 10) == (7, 7)  # nothing
    assert Range(None, -4).within(0, 10) == (0, 0)
    assert Range(5).widened(2) == Range(3)


def test_ranges_are_written_as_they_are_read():
    ranges = {"queueOffset": Range(3, 9), "storeTimestamp": Range(-5, 2**62), "physicalOffset": Range(None, 2**70)}
    read = parse_where(where_text({"topic": {"a"}}, ranges)).ranges_at(NOW)
    assert read == Ranges(Range(3, 9), Range(None, 2**63 - 1), Range(0, 10**15 - 1))
    assert where_text({}, {"queueOffset": Range()}) == "{}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"queueOffset":5}', "is limited by >=, >, < and <="),
        ('{"queueOffset":{}}', "is limited by >=, >, < and <="),
        ('{"queueOffset":{"=":5}}', "one of >=, >, < and <="),
        ('{"queueOffset":{">":"5"}}', "takes whole numbers"),
        ('{"queueOffset":{">":true}}', "takes whole numbers"),
        ('{"queueOffset":{">":1.5}}', "takes whole numbers"),
        ('{"physicalOffset":{"<":99999999999999999999}}', "whole numbers of 64 bits"),
        ('{"storeTimestamp":{">":"yesterday"}}', "ISO 8601"),
        ('{"storetime":{">":1}}', "did you mean 'storeTimestamp'"),
        ('{"queueOffset":{">":1,">":2}}', "comes twice"),
    ],
)
def test_a_refusal_says_what_would_do(text, told):
    with pytest.raises(InvalidOption) as caught:
        parse_where(text)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(InvalidOption):
        parse_options({"path": "/s", "where": text})
