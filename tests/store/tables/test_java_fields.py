"""Fields as fastjson gives them to a Java class: what each kind takes, which names count, and what is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.tables import fastjson
from store.tables.fastjson import MalformedJson
from store.tables.java_fields import JavaFields, enum_of, flag_of, text_of, whole_of

NAMES = ("FIRST_ONE", "SECOND_ONE")
BYTES_MAX = 1 << 20
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.decimals(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def fields_of(text: str) -> JavaFields:
    return JavaFields(fastjson.sent(text.encode(), "it", BYTES_MAX), "it")


@pytest.mark.parametrize(
    ("value", "number"),
    [(7, 7), ("7", 7), ("+7", 7), ("1,000", 1000), ("7.0", 7), (Decimal("-1.9"), -1), (True, 1), (None, None),
     ("", None), ("null", None), ("NULL", None)],
)  # fmt: skip
def test_a_number_is_whole_quoted_or_cut(value: object, number: int | None) -> None:
    assert whole_of(value) == number


@pytest.mark.parametrize("value", ["x", "7.5", " 7", [], {}, [7], 2**63, str(2**63), Decimal("1e999"), "9" * 5000])
def test_what_is_not_a_number_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="whole number"):
        whole_of(value)


@pytest.mark.parametrize(
    ("value", "flag"),
    [(True, True), (1, True), (0, False), (2, False), ("TRUE", True), ("Y", True), ("T", True), ("N", False),
     ("0", False), ("", None), (None, None), (Decimal("1.5"), True)],
)  # fmt: skip
def test_a_flag_is_a_word_or_a_number(value: object, flag: bool | None) -> None:
    assert flag_of(value) is flag


@pytest.mark.parametrize("value", ["yes", "t", [], {}, 2**40])
def test_what_is_not_a_flag_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="neither true nor false"):
        flag_of(value)


def test_an_enum_is_a_name_in_any_case_or_an_ordinal_and_an_unknown_name_is_null() -> None:
    assert [enum_of(value, NAMES) for value in ("first_one", "SECOND_ONE", 1, "THIRD", "1", "", None)] == [
        "FIRST_ONE", "SECOND_ONE", "SECOND_ONE", None, None, None, None
    ]  # fmt: skip
    for value in (2, -1, Decimal(1), True, []):
        with pytest.raises(ValueError, match="ordinal"):
            enum_of(value, NAMES)


def test_a_text_is_whatever_was_written() -> None:
    said = [5, Decimal("1.50"), Decimal("1E+3"), True, [1, None], {"b": None, "c": {"d": 'x"y'}}]
    assert list(map(text_of, said)) == ["5", "1.50", "1E+3", "true", "[1,null]", '{"c":{"d":"x\\"y"}}']


def test_names_count_in_any_case_without_marks_and_behind_is() -> None:
    fields = fields_of('{"group_Name":"g","IS-unit_mode":1,"other":2}')
    assert (fields.text("groupName"), fields.flag("unitMode"), fields.number("missing", 9)) == ("g", True, 9)
    assert (fields.has("groupname"), fields.has("unitMode")) == (True, False)


@pytest.mark.parametrize("text", ["[]", "5", "null", "", '"{}"'])
def test_what_is_not_an_object_is_refused(text: str) -> None:
    with pytest.raises(MalformedJson, match="the body is not an object"):
        fields_of(text)


def test_an_object_stands_for_a_list_of_it_and_lists_are_bounded() -> None:
    assert [one.text("a") for one in fields_of('{"set":{"a":1}}').objects("set", 1)] == ["1"]
    for text in ('{"set":[{},{}]}', '{"set":"x"}', '{"set":[null]}'):
        with pytest.raises(MalformedJson, match="set"):
            list(fields_of(text).objects("set", 1))


@given(values)
def test_any_value_is_taken_or_refused(value: Any) -> None:
    fields = JavaFields({"a": value}, "it")
    for read in (fields.text, fields.number, fields.flag, lambda name: fields.one_of(name, NAMES)):
        try:
            read("a")
        except MalformedJson as refused:
            assert "record" not in str(refused)
