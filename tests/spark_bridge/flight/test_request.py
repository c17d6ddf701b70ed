"""What a client asks: as JSON and back, and what no request may say."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_bridge.flight.request import OPTIONS_MAX, REQUEST_BYTES_MAX, ScanRequest, parsed
from spark_bridge.options.read import parse_options
from spark_bridge.options.values import InvalidOption

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
REQUESTS = st.builds(
    ScanRequest,
    st.none() | st.lists(TEXTS, min_size=1, max_size=4).map(tuple),
    st.none() | st.lists(TEXTS, min_size=1, max_size=4).map(tuple),
    st.dictionaries(st.sampled_from(["minPartitions", "keys", "subExpression", "mode"]), TEXTS),
    st.lists(
        st.tuples(st.just("queueId"), st.sampled_from(["==", "<"]), st.integers(0, 9))
        | st.tuples(st.just("topic"), st.just("in"), st.lists(TEXTS, min_size=1, max_size=3).map(tuple))
    ).map(tuple),
)


@given(REQUESTS)
def test_a_request_comes_back_as_it_went(request: ScanRequest) -> None:
    assert parsed(request.encoded()) == request


def test_a_scan_request_has_the_options_of_a_read() -> None:
    request = ScanRequest(("orders", "bills"), ("queueId", "body"), {"startingTimestamp": "-10m", "keys": "k-1"})
    options = parse_options({**request.read_options, "path": "/store"})
    assert options.topics == ("orders", "bills") and options.columns == ("queueId", "body") and options.keys == ("k-1",)
    assert ScanRequest(options={"Mode": "permissive", "keys": "k"}).row_options == {"Mode": "permissive"}


@pytest.mark.parametrize(
    "option",
    [
        "path",
        "PATHS",
        "nameServer",
        "kafka.bootstrap.servers",
        "replicaPath",
        "flightTokenFile",
        "flightRoots",
        "tlsConfigFile",
    ],
)
def test_places_are_the_servers_matter(option: str) -> None:
    with pytest.raises(InvalidOption, match="names a place"):
        ScanRequest(options={option: "/etc"})


@pytest.mark.parametrize(
    ("topics", "columns", "options", "why"),
    [
        (("a",), None, {"subscribe": "b"}, "topics and the option subscribe"),
        (("a",), None, {"assign": '{"a":[0]}'}, "topics and the option assign"),
        (None, ("body",), {"Columns": "body"}, "columns and the option columns"),
        (None, None, {"keys": "a", "KEYS": "b"}, "twice"),
        (None, None, {"maxOffsetsPerTrigger": "1"}, "belongs to a stream"),
        (None, None, {f"o{number}": "" for number in range(OPTIONS_MAX + 1)}, "at most"),
    ],
)
def test_what_contradicts_itself_is_refused(topics, columns, options, why) -> None:
    with pytest.raises(InvalidOption, match=why):
        ScanRequest(topics, columns, options)


def test_a_table_is_asked_for_by_its_name_and_without_conditions() -> None:
    assert ScanRequest(options={"Table": "segments"}).is_of_table
    assert not ScanRequest(options={"mode": "permissive"}).is_of_table
    with pytest.raises(InvalidOption, match="metadata"):
        ScanRequest(options={"TABLE": "segments"}, where=(("queueId", "==", 1),))


@pytest.mark.parametrize(
    "command",
    [
        b"", b"\xff\xfe", b"[]", b"nothing", b'{"version":2}', b'{"version":true}', b'{"version":1,"more":1}',
        b'{"version":1,"topics":[]}', b'{"version":1,"topics":"a"}', b'{"version":1,"topics":[1]}',
        b'{"version":1,"options":{"keys":1}}', b'{"version":1,"options":[]}', b'{"version":1,"columns":[""]}',
        b'{"version":1,"version":1}', b'{"version":1,"where":[["body","==","x"]]}', b'{"version":1,"where":{}}',
        b'{"version":1,"where":[["queueId","==","x"]]}', b'{"version":1,"where":[[[],[],[]]]}',
        b'{"version":1,"where":[1]}', b"[" * 100_000, b" " * (REQUEST_BYTES_MAX + 1),
        b'{"version":1,"topics":["\\ud800"]}',
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused_in_a_line(command: bytes) -> None:
    with pytest.raises(InvalidOption) as refused:
        parsed(command)
    assert len(str(refused.value)) < 2000 and "\n" not in str(refused.value)


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.integers() | TEXTS,
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["version", "topics", "columns", "options", "x"]), inner)
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_command_is_parsed_or_refused(command: bytes) -> None:
    with suppress(InvalidOption):
        parsed(command)
