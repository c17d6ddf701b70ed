"""Bodies with tables by queue: read as written, in Java's order, whatever a client says; Java's texts of numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.broker import admin_bodies
from engine.protocol.broker.admin_bodies import Consumed, ConsumeStats
from engine.protocol.remoting.places import Place
from store.compat import line_of
from store.errors import MalformedData

NAMES = st.text(st.characters(exclude_characters="{}\0", exclude_categories=["Cs"]), min_size=1, max_size=9)


@given(st.dictionaries(st.tuples(NAMES, NAMES, st.integers(0, 99)), st.integers(-(2**63), 2**63 - 1), max_size=40))
def test_a_table_by_queue_is_read_as_it_was_written(table: dict[tuple[str, str, int], int]) -> None:
    offsets = {Place(*key): offset for key, offset in table.items()}
    assert admin_bodies.offsets_of(admin_bodies.reset_offsets(offsets), "offsetTable", "it") == offsets


@given(st.binary(max_size=60) | st.sampled_from([b'{"t":{{}:1}}', b'{"t":{1:2}}', b'{"t":{{"queueId":"x"}:1}}', b"[]"]))
def test_what_no_client_says_is_refused(body: bytes) -> None:
    try:
        admin_bodies.offsets_of(body, "t", "it")
    except MalformedData:
        return


def test_entries_stand_in_the_order_of_javas_maps() -> None:
    """As a 4.9.7 broker listed eight queues of broker-a."""
    queues = [Place("kept", "broker-a", number) for number in range(4)]
    text = admin_bodies.offsets_text(dict.fromkeys(queues, 0))
    listed = [int(part.partition(",")[0]) for part in text.split('"queueId":')[1:]]
    assert sorted(listed) == [0, 1, 2, 3]
    assert text == admin_bodies.offsets_text(dict.fromkeys(reversed(queues), 0)), "whatever order they came in"


@pytest.mark.parametrize(("compat", "has_pulls"), [("4.9", False), ("5", True)])
def test_a_groups_progress_follows_the_release_line(compat: str, has_pulls: bool) -> None:
    stats = ConsumeStats({Place("t", "b", 0): Consumed(9, 4, 6, 77)}, 1.5)
    body = admin_bodies.consume_stats(stats, line_of(compat)).decode()
    assert body.startswith('{"consumeTps":1.5,"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{')
    assert ('"pullOffset":6' in body) is has_pulls
    assert (stats.total_diff, stats.inflight_diff) == (5, 2)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (0.1, "0.1"), (1234.5, "1234.5"), (1e7, "1.0E7"), (12345678.5, "1.23456785E7"), (1e-4, "1.0E-4")],
)
def test_numbers_are_javas(value: float, text: str) -> None:
    assert admin_bodies.double(value) == text
