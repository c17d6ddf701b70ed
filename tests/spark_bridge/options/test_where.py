"""The option `where`: what it admits, and what of it is refused."""

from __future__ import annotations

import pytest

from spark_bridge.options.values import InvalidOption
from spark_bridge.options.where import ANYTHING, Where, parse_where, where_text


def test_values_of_one_column_and_of_both_names_of_a_queue_are_met_together():
    assert parse_where(None) == ANYTHING
    assert parse_where('{"topic":"a","queueId":[0,1],"PARTITION":1}') == Where(frozenset("a"), frozenset({1}))
    assert parse_where('{"tags":["x"],"brokerName":[]}') == Where(tags=frozenset("x"), brokers=frozenset())


def test_what_a_condition_admits_is_written_as_it_is_read():
    text = where_text({"topic": {"b", 'a"'}, "queueId": {2, 1}})
    assert parse_where(text) == Where(frozenset({"b", 'a"'}), frozenset({1, 2}))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("topic = 'a'", "give JSON as"),
        ('["a"]', "give JSON as"),
        ('{"queueID ":1}', "did you mean 'queueId'"),
        ('{"body":"a"}', "no column 'body' that selects"),
        ('{"queueId":"1"}', "queueId takes whole numbers"),
        ('{"queueId":[true]}', "queueId takes whole numbers"),
        ('{"topic":[null]}', "topic takes texts"),
    ],
)
def test_a_refusal_says_what_would_do(text, told):
    with pytest.raises(InvalidOption, match="where=") as caught:
        parse_where(text)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
