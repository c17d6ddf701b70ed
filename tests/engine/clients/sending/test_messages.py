"""What a remote producer refuses before it sends anything, and the form in which it sends the rest."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from engine.clients.cluster import Place
from engine.clients.sending.messages import Draft, Limits, batch_of, draft_of, transaction_fields
from engine.errors import MessageIllegal
from engine.producer.unique_keys import UniqueKeys
from engine.protocol.remoting.codes import RequestCode
from store.message.properties import KEYS, RESERVED_NAMES, TAGS, UNIQ_KEY, WAIT, parse_text
from store.message.topics import NOT_FOR_CLIENTS
from store.put.batch import items_of

IDS, LIMITS = UniqueKeys("10.0.0.1"), Limits(4096, 100_000)


def draft(topic: Any = "orders", body: Any = b"body", half_of: str | None = None, **fields: Any) -> Draft:
    return draft_of(topic, body, fields, IDS, LIMITS, half_of)  # type: ignore[arg-type]


def test_a_message_has_the_properties_that_java_gives_it() -> None:
    made = draft(tags="paid", keys=["17", "18"], properties={"x": "é"}, delay_level=3)
    assert parse_text(made.property_text) == {
        "KEYS": "17 18", "TAGS": "paid", "x": "é", "DELAY": "3", "UNIQ_KEY": made.message_ids[0], "WAIT": "true",
    }  # fmt: skip
    assert (made.body, made.sys_flag, made.code) == (b"body", 0, RequestCode.SEND_MESSAGE_V2)
    assert len(made.message_ids[0]) == 32 and made.message_ids[0].startswith("0A000001")


def test_a_body_can_be_a_str() -> None:
    assert draft(body="é").body == "é".encode()
    assert draft(body=bytearray(b"x")).body == b"x"


def test_a_body_of_4_kib_is_compressed_and_a_shorter_one_is_not() -> None:
    short, long = draft(body=b"x" * 4095), draft(body=b"x" * 4096)
    assert (len(short.body), short.sys_flag) == (4095, 0)
    assert (zlib.decompress(long.body), long.sys_flag) == (b"x" * 4096, 1)
    assert long.body == zlib.compress(b"x" * 4096, 5)


def test_the_header_is_that_of_a_java_client() -> None:
    header = draft(flag=7, body=b"x" * 5000).header("group", 3, 1_700_000_000_000)
    assert header | {"i": ""} == {
        "a": "group", "b": "orders", "c": "TBW102", "d": "4", "e": "3", "f": "1", "g": "1700000000000", "h": "7",
        "i": "", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip


def test_a_half_message_names_its_group() -> None:
    half = draft(half_of="payments")
    assert half.sys_flag == 4
    assert parse_text(half.property_text)["PGROUP"] == "payments" and "TRAN_MSG" in parse_text(half.property_text)
    with pytest.raises(MessageIllegal, match="delay level"):
        draft(half_of="payments", delay_level=1)


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_a_property_that_rocketmq_sets_itself_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(MessageIllegal, match=f"^property {name}: RocketMQ sets it itself; nothing was sent$"):
        draft(properties={name: "x"})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"topic": "a b"}, "illegal characters"), ({"topic": ""}, "illegal characters"),
        ({"topic": "x" * 128}, "wrong length"), ({"topic": 5}, "topic 5"),
        *(({"topic": name}, "belongs to the broker") for name in sorted(NOT_FOR_CLIENTS)),
        ({"body": b""}, "it is empty"), ({"body": b"x" * 100_001}, "the maximum is 100000"), ({"body": 5}, "body"),
        ({"properties": {"": "x"}}, "must not be empty"), ({"properties": {"a": "\1"}}, "separate properties"),
        ({"properties": {"a": "x" * 40_000}}, "the limit is 32767"), ({"properties": {"a": 5}}, "property a"),
        ({"tags": 5}, "property TAGS"), ({"keys": 5}, "keys 5"), ({"flag": 1 << 31}, "flag"),
        ({"delay_level": "x"}, "delay level"), ({"queue_id": -1}, "queue id -1"), ({"shard_by": 1.5}, "shard_by"),
        ({"queue_id": 1, "shard_by": "x"}, "cannot be given, too"),
    ],
)  # fmt: skip
def test_a_message_that_rocketmq_would_refuse_is_refused_before_it_is_sent(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(MessageIllegal, match=words) as raised:
        draft(**changed)
    assert "\n" not in str(raised.value) and str(raised.value).endswith("nothing was sent")


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(TypeError, match="'tag' is not an argument"):
        draft(tag="x")


def test_a_batch_is_one_body_with_an_id_for_each_message() -> None:
    batch = batch_of("orders", [b"1", "2"], {"tags": "t", "keys": ["a", None], "flag": 7}, IDS, LIMITS)
    items = list(items_of(batch.body))
    assert [(item.flag, item.body) for item in items] == [(7, b"1"), (7, b"2")]
    shown = [parse_text(item.properties.decode()) for item in items]
    assert [texts[UNIQ_KEY] for texts in shown] == list(batch.message_ids) and len(set(batch.message_ids)) == 2
    assert [(texts[TAGS], texts.get(KEYS), texts[WAIT]) for texts in shown] == [("t", "a", "true"), ("t", None, "true")]
    assert (batch.code, batch.header("g", 0, 1)["m"]) == (RequestCode.SEND_BATCH_MESSAGE, "true")


@pytest.mark.parametrize(
    ("bodies", "fields", "words"),
    [
        ([], {}, "at least one"), (b"ab", {}, "a list of bytes"), ([b""], {}, "it is empty"),
        ([b"a", b"b"], {"tags": ["x"]}, "one for each of its 2"), ([b"x" * 60_000] * 2, {}, "the maximum is 100000"),
    ],
)  # fmt: skip
def test_a_batch_that_rocketmq_would_refuse_is_refused(bodies: Any, fields: Any, words: str) -> None:
    with pytest.raises(MessageIllegal, match=words):
        batch_of("orders", bodies, fields, IDS, LIMITS)
    with pytest.raises(MessageIllegal, match="a retry topic"):
        batch_of("%RETRY%g", [b"x"], {}, IDS, LIMITS)


def test_a_key_and_a_place_mean_one_queue_and_a_number_does_not() -> None:
    assert draft(shard_by="customer-7").has_one_queue and draft(shard_by=7).has_one_queue
    assert draft(queue_id=Place("orders", "a", 1)).has_one_queue
    assert not draft(queue_id=1).has_one_queue and not draft().has_one_queue


@pytest.mark.parametrize(("decision", "expected"), [(True, "8"), (False, "12"), (None, "0")])
def test_the_end_of_a_transaction_says_what_was_decided(decision: bool | None, expected: str) -> None:
    fields = transaction_fields("payments", 3, 4096, ("ID", "TX"), decision)
    assert fields == {
        "producerGroup": "payments", "tranStateTableOffset": "3", "commitLogOffset": "4096", "msgId": "ID",
        "commitOrRollback": expected, "fromTransactionCheck": "false", "transactionId": "TX",
    }  # fmt: skip
