"""Tables' names: what topics are called in SQL, and which of them have no table."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_bridge.options.values import InvalidOption
from spark_bridge.sql.names import quoted, table_name, table_names
from spark_bridge.sql.registration import SCHEMA_BYTES_MAX, decoding_of


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("orders", "orders"), ("My-Topic", "My_Topic"), ("%RETRY%g-1", "RETRY_g_1"), ("a|b", "a_b"), ("%", "_"),
        ("_x_", "x"), ("select", "select"), ("12", "12"),
    ],
)  # fmt: skip
def test_a_name_is_one_that_sparks_catalogue_takes(topic, name):
    assert table_name(topic) == name


def test_topics_of_one_name_have_no_table_whichever_comes_first():
    for topics in (["orders", "Orders", "a-b", "a_b", "x"], ["x", "a_b", "Orders", "a-b", "orders"]):
        named = table_names(topics, {})
        assert named.tables == {"x": "x"}
        assert set(named.left_out) == {"orders", "Orders", "a-b", "a_b"}
        assert "names={'Orders': ...}" in named.left_out["Orders"]


def test_given_names_decide_what_tables_are_called():
    named = table_names(["orders", "Orders", "queues"], {"Orders": "orders_2", "queues": "queues_topic"})
    assert named.tables == {"orders": "orders", "Orders": "orders_2", "queues": "queues_topic"}
    taken = table_names(["a-b", "a_b"], {"a-b": "a_b"})
    assert taken.tables == {"a-b": "a_b"} and set(taken.left_out) == {"a_b"}


def test_metadata_tables_and_that_of_all_messages_come_before_topics():
    named = table_names(["queues", "Messages", "consumer-groups", "x"], {})
    assert named.tables == {"x": "x"}
    assert set(named.left_out) == {"queues", "Messages", "consumer-groups"}


def test_topics_that_no_option_can_name_have_no_table():
    assert set(table_names(["a,b", "a b", "ok"], {}).left_out) == {"a,b", "a b"}
    assert set(table_names(["é"], {}).tables) == {"é"}
    assert set(table_names(["x" * 200], {}).left_out) == {"x" * 200}


@pytest.mark.parametrize(
    "names", [{"a": "x`; DROP TABLE y"}, {"a": ""}, {"a": "queues"}, {"a": "same", "b": "SAME"}, {"a": "a.b"}]
)
def test_names_that_cannot_be_are_refused(names):
    with pytest.raises(InvalidOption, match=r"names\["):
        table_names(["a", "b"], names)


def test_names_are_quoted():
    assert quoted("data`base", "t") == "`data``base`.`t`"


def test_a_folder_of_schemas_says_how_to_decode_each_topic(tmp_path: Path) -> None:
    (tmp_path / "orders.avsc").write_text('{"type":"string"}\n')
    (tmp_path / "%RETRY%g.ddl").write_text("id bigint")
    assert decoding_of(tmp_path, "orders") == {"decode": "avro", "avroSchema": '{"type":"string"}'}
    assert decoding_of(tmp_path, "%RETRY%g") == {"decode": "json", "valueSchema": "id bigint"}
    assert decoding_of(tmp_path, "other") == {}
    below = tmp_path / "below"
    below.mkdir()
    assert decoding_of(below, "../orders") == {}
    (tmp_path / "orders.ddl").write_text("id bigint")
    (tmp_path / "large.ddl").write_bytes(b" " * (SCHEMA_BYTES_MAX + 1))
    (tmp_path / "bytes.ddl").write_bytes(b"\xff")
    for folder, topic, told in (
        (tmp_path, "orders", r"orders.avsc and orders.ddl"), (tmp_path, "large", "too long for a schema"),
        (tmp_path, "bytes", "not UTF-8"), (tmp_path / "nowhere", "orders", "not a directory"),
    ):  # fmt: skip
        with pytest.raises(InvalidOption, match=told):
            decoding_of(folder, topic)
