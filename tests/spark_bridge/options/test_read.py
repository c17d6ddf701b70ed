"""Options of a read: what is accepted, and what an error tells."""

from __future__ import annotations

import pytest

from spark_bridge.options.read import InvalidOption, parse_options


def test_a_path_alone_reads_everything():
    options = parse_options({"path": "/store"})
    assert (options.paths, options.topics, options.starting_offsets) == (("/store",), None, ())
    assert not options.rows.verify_body_crc


def test_names_are_taken_in_any_case_and_subscribe_is_another_name_of_topic():
    assert parse_options({"PATH": "/s", "Subscribe": "a, b,a"}).topics == ("a", "b")


def test_offsets_as_json_select_their_topics_and_minus_numbers_are_the_queues_own_ends():
    options = parse_options(
        {
            "path": "/s",
            "startingOffsets": '{"t":{"0":42,"1":-2}}',
            "endingOffsets": '{"t":{"0":50,"1":-1},"u":{"a":{"2":7}}}',
        }
    )
    assert options.topics == ("t", "u")
    assert options.starting_offsets == ((("t", 0, None), 42), (("t", 1, None), -2))
    assert options.ending_offsets == ((("t", 0, None), 50), (("t", 1, None), -1), (("u", 2, "a"), 7))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "path is missing"),
        ({"path": "/s", "topics": "x"}, "did you mean 'topic'"),
        ({"path": "/s", "startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"path": "/s", "topic": "a", "subscribe": "b"}, "say the same thing twice"),
        ({"path": "/s", "topic": " , "}, "a topic"),
        ({"path": "/s", "verifyCrc": "all"}, "one of none, body"),
        ({"path": "/s", "startingOffsets": "latest"}, "always be empty"),
        ({"path": "/s", "endingOffsets": "earliest"}, "always be empty"),
        ({"path": "/s", "startingOffsets": "{"}, "give JSON as"),
        ({"path": "/s", "startingOffsets": '{"t":{"0":-7}}'}, "-7 is not an offset"),
        ({"path": "/s", "startingOffsets": '{"t":{"0":true}}'}, "True is not an offset"),
        ({"path": "/s", "startingOffsets": '{"t":{"0":-1}}'}, "always be empty"),
        ({"path": "/s", "topic": "a", "endingOffsets": '{"b":{"0":1}}'}, "topic 'b', not among"),
        ({"path": "/s", "splitBytes": "many"}, "a whole number"),
        ({"path": "/s", "minPartitions": "0"}, "at least 1"),
    ],
)
def test_errors_name_the_option_and_what_would_do(given, told):
    with pytest.raises(InvalidOption) as caught:
        parse_options(given)
    assert told in str(caught.value)
    assert caught.value.code == "INVALID_OPTION"


@pytest.mark.parametrize(
    ("option", "shape"),
    [
        ("where", '{{"topic":{}}}'),
        ("startingOffsets", '{{"t":{{"0":{}}}}}'),
        ("endingOffsetsByTimestamp", '{{"t":{{"0":{}}}}}'),
        ("assign", '{{"t":{}}}'),
        ("path", "[{}]"),
        ("keys", "[{}]"),
        ("columns", "[{}]"),
    ],
)
@pytest.mark.parametrize(
    ("value", "told"),
    [('"\\ud800"', "surrogate"), ("[" * 100_000, "recursion"), ('{"a":1,"a":2}', "'a' comes twice")],
)
def test_json_that_says_less_or_more_than_text_can_is_refused_in_one_short_line(option, shape, value, told):
    with pytest.raises(InvalidOption, match=f"^{option}=") as caught:
        parse_options({"path": "/s", option: shape.format(value)})
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(("option", "decode"), [("valueSchema", "json"), ("avroSchema", "avro")])
@pytest.mark.parametrize(("value", "told"), [('"\\ud800"', "surrogate"), ('{"a":1,"a":2}', "'a' comes twice")])
def test_schemas_with_surrogates_or_repeated_keys_are_refused(option, decode, value, told):
    with pytest.raises(InvalidOption, match=told):
        parse_options({"path": "/s", "decode": decode, option: f'{{"type":{value}}}'})
