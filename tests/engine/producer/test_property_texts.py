"""The quick way to a property string gives what the rules give, message by message; unique keys are unique."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import MessageIllegal
from engine.producer.property_texts import PropertyTexts, rows_of
from engine.producer.unique_keys import VARYING_DIGITS, UniqueKeys, milliseconds_into_month
from store.message.host import Host
from store.put.policy import POLICIES, Facts
from store.put.request import POLICY_PROPERTIES, SendRequest, received

FACTS = {compat: Facts(policy=policy, store_host=Host("127.0.0.1", 1)) for compat, policy in POLICIES.items()}
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=5)
FIELDS = st.dictionaries(TEXT.filter(lambda name: name not in POLICY_PROPERTIES), TEXT, max_size=30)


def texts(compat: str, *, unique_keys: bool = False) -> PropertyTexts:
    return PropertyTexts(FACTS[compat], UniqueKeys("127.0.0.1"), unique_keys=unique_keys)


@pytest.mark.parametrize("compat", ["4.9", "5"])
@given(fields=FIELDS)
def test_a_property_text_is_what_the_rules_say(compat: str, fields: dict[str, str]) -> None:
    fields = {**fields, "UNIQ_KEY": "mine"} if compat == "5" else fields
    sent = "\x02".join(f"{name}\x01{value}" for name, value in fields.items())
    expected = received(SendRequest(topic="t", body=b"b", properties=sent), FACTS[compat], "").properties
    assert texts(compat).of(fields) == expected.encode()
    assert texts(compat).of(fields) == expected.encode(), "also the second time"


@pytest.mark.parametrize("compat", ["4.9", "5"])
@given(fields=FIELDS)
def test_a_column_is_what_the_rules_say_but_for_its_unique_keys(compat: str, fields: dict[str, str]) -> None:
    made = texts(compat, unique_keys=True).column(2, fields)
    text, keys = made.column.data.tobytes(), UniqueKeys("127.0.0.1")
    begin = made.unique_at - len(keys.prefix)
    key = text[begin : made.unique_at + VARYING_DIGITS].decode()
    assert key.endswith(keys.text(made.unique_first)[-VARYING_DIGITS:])
    sent = "\x02".join(f"{name}\x01{value}" for name, value in {**fields, "UNIQ_KEY": key}.items())
    expected = received(SendRequest(topic="t", body=b"b", properties=sent), FACTS[compat], "").properties
    assert text == expected.encode()


NULS = ("\x00", "\x000\x00", "a\x00b", "\x001", "\x00unique\x00")


@pytest.mark.parametrize("name", NULS)
@pytest.mark.parametrize("value", NULS)
def test_names_and_values_may_have_a_nul_anywhere(name: str, value: str) -> None:
    made = texts("5").column(2, {name: value, "b": "w"}).column.data.tobytes().decode()
    pairs = dict(pair.split("\x01") for pair in made.split("\x02") if pair)
    assert (pairs[name], pairs["b"], len(pairs["UNIQ_KEY"])) == (value, "w", 32)


def test_a_value_may_look_like_a_format() -> None:
    assert b"%s\x01100%d" in texts("4.9").of({"%s": "100%d"})


def test_4_9_has_unique_keys_only_when_asked() -> None:
    assert b"UNIQ_KEY" not in texts("4.9").of({"TAGS": "a"})
    assert b"UNIQ_KEY\x017F000001" in texts("4.9", unique_keys=True).of({"TAGS": "a"})


def test_a_column_of_equal_messages_is_one_string_with_a_number_that_counts_up() -> None:
    column = texts("5").column(3, {"TAGS": "a"})
    (text,) = [column.column.data.tobytes()]
    digits = text[column.unique_at : column.unique_at + 12].decode()
    assert int(digits, 16) == column.unique_first & ((1 << 48) - 1)
    assert text[: column.unique_at].endswith(text[column.unique_at - 20 : column.unique_at])
    assert text[column.unique_at + 12 :].startswith(b"\x02")


def test_a_column_has_each_messages_own_and_lacks_what_is_empty() -> None:
    made = texts("4.9").column(3, {"TAGS": "a", "KEYS": ["k", None, ""]})
    ends, data = made.column.ends, made.column.data.tobytes()
    rows = [data[ends[k] : ends[k + 1]] for k in range(3)]
    assert rows == [texts("4.9").of(fields) for fields in ({"TAGS": "a", "KEYS": "k"}, {"TAGS": "a"}, {"TAGS": "a"})]
    assert list(rows_of(3, {"TAGS": "a", "KEYS": ["k", None, ""]}))[1:] == [{"TAGS": "a"}] * 2


def test_the_number_of_values_is_that_of_the_messages() -> None:
    with pytest.raises(MessageIllegal, match="2 values for 3"):
        texts("5").column(3, {"KEYS": ["a", "b"]})
    with pytest.raises(MessageIllegal, match="2 values for 3"):
        list(rows_of(3, {"KEYS": ["a", "b"]}))


def test_keys_never_come_twice_even_from_large_batches() -> None:
    keys = UniqueKeys("2001:db8::1")
    first = keys.reserve(200_000)
    assert keys.reserve(1) >= first + 200_000
    assert len(keys.text(first)) == 56
    assert keys.text(first) < keys.text(first + 1)


def test_the_time_in_a_key_is_that_of_its_month() -> None:
    assert milliseconds_into_month(0) >= 0
    assert 0 <= milliseconds_into_month(1_700_000_000_000) < 31 * 24 * 3600 * 1000
