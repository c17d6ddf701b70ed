"""What a broker does to a message, case by case: the rules that the golden stores do not show."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import InvalidMessage, PropertiesTooLarge, StoreError
from store.message.host import Host
from store.message.properties import CRC_PROPERTY_BYTES, parse_text
from store.message.record import MAGIC_V2, SysFlag, decode, shape_at
from store.message.topics import HALF_TOPIC
from store.put.batch import Item, batch_to_log, received_batch
from store.put.draft import Hole, draft_of
from store.put.policy import POLICIES, Facts, parse_properties, property_text
from store.put.request import SendRequest, Stored, received, to_log
from store.put.resend import delivered
from tests.harness.batches import batch_body

HERE = Host("127.0.0.1", 10911)
NOW_MS = 1_700_000_000_400
FACTS = {compat: Facts(policy=policy, store_host=HERE) for compat, policy in POLICIES.items()}
BOTH = pytest.mark.parametrize("compat", ["4.9", "5"])
KEY = "K" * 32


def ask(properties: dict[str, str], **fields: object) -> SendRequest:
    text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
    return replace(SendRequest(topic="t", body=b"body", properties=text), **fields)  # type: ignore[arg-type]


def stored(compat: str, request: SendRequest, **facts: object) -> Stored:
    known = replace(FACTS[compat], **facts)  # type: ignore[arg-type]
    return to_log(received(request, known, KEY), known)


def names(message: Stored) -> list[str]:
    return [part.partition("\x01")[0] for part in message.properties.split("\x02") if part]


def test_4_9_adds_its_cluster_and_takes_wait_away() -> None:
    message = stored("4.9", ask({"WAIT": "true", "TAGS": "a"}), cluster_name="c")
    assert message.properties == "CLUSTER\x01c\x02TAGS\x01a"
    assert message.fields["WAIT"] == "true", "whoever answers still knows"


def test_5_adds_region_trace_and_key_and_takes_the_pop_check_away() -> None:
    message = stored("5", ask({"WAIT": "true", "POP_CK": "x", "MSG_REGION": "theirs"}), region_id="r", trace_on=False)
    assert parse_text(message.properties) == {
        "MSG_REGION": "r", "UNIQ_KEY": KEY, "CLUSTER": "DefaultCluster", "WAIT": "true", "TRACE_ON": "false",
    }  # fmt: skip
    assert message.properties.endswith("\x02")


@BOTH
def test_a_clients_own_key_stays(compat: str) -> None:
    assert stored(compat, ask({"UNIQ_KEY": "mine"})).fields["UNIQ_KEY"] == "mine"


@BOTH
@pytest.mark.parametrize(
    ("level", "queue_id", "told"), [("1", 0, "1"), ("18", 17, "18"), ("19", 17, "18"), ("+2", 1, "+2")]
)
def test_a_delay_level_is_at_most_the_last(compat: str, level: str, queue_id: int, told: str) -> None:
    message = stored(compat, ask({"DELAY": level, "WAIT": "true"}, queue_id=3))
    assert (message.topic, message.queue_id) == ("SCHEDULE_TOPIC_XXXX", queue_id)
    found = parse_text(message.properties)
    assert (found["REAL_TOPIC"], found["REAL_QID"], found["DELAY"], found["WAIT"]) == ("t", "3", told, "true")


@BOTH
@pytest.mark.parametrize("level", ["0", "-1"])
def test_no_delay_level_is_no_delay(compat: str, level: str) -> None:
    assert stored(compat, ask({"DELAY": level})).topic == "t"


@BOTH
@pytest.mark.parametrize("level", ["x", "1.5", "99999999999", "1 "])
def test_a_delay_level_that_java_cannot_read_is_refused(compat: str, level: str) -> None:
    with pytest.raises(InvalidMessage, match="DELAY"):
        stored(compat, ask({"DELAY": level}))


@BOTH
@pytest.mark.parametrize(
    ("flags", "topic"), [(4, "t"), (12, "t"), (8, "SCHEDULE_TOPIC_XXXX"), (0, "SCHEDULE_TOPIC_XXXX")]
)
def test_prepared_and_rolled_back_messages_are_not_delayed(compat: str, flags: int, topic: str) -> None:
    assert stored(compat, ask({"DELAY": "1"}, sys_flag=flags)).topic == topic


@BOTH
def test_a_half_message_is_an_ordinary_one_of_its_topic(compat: str) -> None:
    message = stored(compat, ask({"TRAN_MSG": "TRUE", "UNIQ_KEY": KEY}, queue_id=2, sys_flag=4 | 1))
    assert (message.topic, message.queue_id, message.sys_flag) == (HALF_TOPIC, 0, 1)
    found = parse_text(message.properties)
    assert (found["REAL_TOPIC"], found["REAL_QID"]) == ("t", "2")
    assert ("__transactionId__" in found) == (compat == "5")


def test_a_retried_message_with_a_delay_is_no_half_message_in_5() -> None:
    request = ask({"TRAN_MSG": "true", "DELAY": "2"}, reconsume_times=1)
    assert stored("5", request).fields["REAL_TOPIC"] == "t"
    assert stored("4.9", request).fields["REAL_TOPIC"] == HALF_TOPIC, "4.9 delays the half message itself"


@pytest.mark.parametrize(
    ("compat", "times", "topic"),
    [("4.9", 15, "%RETRY%g"), ("4.9", 16, "%DLQ%g"), ("5", 16, "%RETRY%g"), ("5", 17, "%DLQ%g")],
)
def test_a_message_to_a_retry_topic_dies_of_too_many_attempts(compat: str, times: int, topic: str) -> None:
    message = stored(compat, ask({}, topic="%RETRY%g", queue_id=3, reconsume_times=times))
    assert message.topic == topic
    assert message.queue_id == (0 if topic.startswith("%DLQ%") else 3)
    assert (message.fields.get("DELAY") == "-1") == (compat == "5" and topic.startswith("%DLQ%"))


TIMERS = [
    {"TIMER_DELAY_SEC": "5"}, {"TIMER_DELAY_MS": "600"}, {"TIMER_DELIVER_MS": "1"}, {"TIMER_DELAY_SEC": "x"},
    {"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "k"}, {"TRAN_MSG": "true", "TIMER_DELAY_SEC": "5"},
]  # fmt: skip


@pytest.mark.parametrize("properties", TIMERS, ids=str)
def test_5_refuses_a_message_with_a_time_and_4_9_does_not_know_these_properties(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidMessage, match="this broker has no timer wheel"):
        stored("5", ask(properties))
    facts = FACTS["5"]
    batch = ask(properties, body=batch_body([Item(0, b"x", b"")]), batch=True)
    with pytest.raises(InvalidMessage, match="this broker has no timer wheel"):
        batch_to_log(received_batch(batch, facts), facts)
    assert stored("4.9", ask(properties)).topic == (HALF_TOPIC if "TRAN_MSG" in properties else "t")


def test_a_delay_level_comes_before_a_time() -> None:
    delayed = stored("5", ask({"TIMER_DELAY_SEC": "5", "TIMER_DELAY_MS": "5", "DELAY": "1"}))
    assert delayed.topic == "SCHEDULE_TOPIC_XXXX"
    assert "TIMER_DELAY" not in delayed.properties


def test_a_delayed_message_of_4_9_with_a_time_is_delivered_by_5() -> None:
    old = stored("4.9", ask({"TIMER_DELAY_SEC": "5", "TIMER_DELAY_MS": "5", "DELAY": "1"}))
    (record,) = draft_of(old, FACTS["4.9"]).pieces
    again = to_log(delivered(decode(record, 0), FACTS["5"]), FACTS["5"])
    assert again.topic == "t"


@BOTH
@pytest.mark.parametrize("topic", ["", "a b", "x" * 128, "SCHEDULE_TOPIC_XXXX", HALF_TOPIC, "SELF_TEST_TOPIC"])
def test_topics_that_clients_may_not_send_to(compat: str, topic: str) -> None:
    with pytest.raises(InvalidMessage, match="topic"):
        stored(compat, ask({}, topic=topic))


def test_limits_of_bodies_and_properties() -> None:
    for compat in ("4.9", "5"):
        room = 32767 - len(stored(compat, ask({"a": "x"})).properties) + 1
        facts = replace(FACTS[compat], message_bytes_max=10)
        draft_of(stored(compat, ask({"a": "x" * room}, body=b"b" * 10)), facts)
        with pytest.raises(InvalidMessage, match="maxMessageSize is 10"):
            draft_of(stored(compat, ask({}, body=b"b" * 11)), facts)
        with pytest.raises((InvalidMessage, PropertiesTooLarge), match="32767"):
            draft_of(stored(compat, ask({"a": "x" * (room + 1)})), facts)
    with pytest.raises(PropertiesTooLarge):
        draft_of(stored("4.9", ask({"a": "ü" * 16_400})), FACTS["4.9"])
    with pytest.raises(InvalidMessage, match="characters"):
        stored("4.9", ask({"a": "x" * 32_768}))


def test_only_4_9_stores_empty_bodies() -> None:
    assert stored("4.9", ask({}, body=b"")).body == b""
    with pytest.raises(InvalidMessage, match="empty"):
        stored("5", ask({}, body=b""))


def test_an_inner_batch_needs_a_topic_with_batch_queues() -> None:
    with pytest.raises(InvalidMessage, match="no batch queues"):
        stored("5", ask({"INNER_NUM": "3"}, sys_flag=SysFlag.INNER_BATCH))
    with pytest.raises(InvalidMessage, match="INNER_NUM"):
        stored("5", ask({"INNER_NUM": "3"}))
    assert stored("4.9", ask({"INNER_NUM": "3"})).topic == "t"
    facts = {"batch_topics": frozenset({"t"})}
    message = stored("5", ask({"INNER_NUM": "3"}, sys_flag=SysFlag.INNER_BATCH), **facts)
    draft = draft_of(message, replace(FACTS["5"], **facts))  # type: ignore[arg-type]
    assert (draft.step, draft.holes) == (3, (Hole.OWN_OFFSET,))


def test_a_topic_of_several_tags_sets_its_flag() -> None:
    assert stored("5", ask({}, sys_flag=1), multi_tag_topics=frozenset({"t"})).sys_flag == 3


def test_a_long_retry_topic_makes_a_record_of_version_2_in_5() -> None:
    nothing = parse_properties(POLICIES["5"], "")
    long = Stored(topic="%RETRY%" + "g" * 200, queue_id=0, body=b"b", properties="", fields=nothing)
    (record,) = draft_of(to_log(long, FACTS["5"]), FACTS["5"]).pieces
    assert shape_at(record, 0)[1] == MAGIC_V2
    assert decode(record).topic == long.topic
    with pytest.raises(InvalidMessage, match="allowed"):
        to_log(replace(long, topic="%RETRY%" + "g" * 249), FACTS["5"])
    with pytest.raises(InvalidMessage):
        to_log(long, FACTS["4.9"])


def test_a_record_with_a_crc_has_room_for_it_and_drops_the_clients_own() -> None:
    facts = replace(FACTS["5"], enabled_append_prop_crc=True)
    message = stored("5", ask({"__CRC32#": "1", "a": "b"}), enabled_append_prop_crc=True)
    draft = draft_of(message, facts)
    assert draft.has_crc
    assert draft.pieces[0].endswith(b"\x02" + bytes(CRC_PROPERTY_BYTES))
    assert b"__CRC32#" not in draft.pieces[0]
    assert not draft_of(stored("4.9", ask({})), replace(FACTS["4.9"], enabled_append_prop_crc=True)).has_crc


@pytest.mark.parametrize(
    ("compat", "properties", "facts", "others"),
    [
        ("4.9", {}, {"enable_multi_dispatch": True, "enable_lmq": True}, (("%LMQ%a", 0), ("b", 2))),
        ("4.9", {}, {"enable_multi_dispatch": True}, (("%LMQ%a", 2), ("b", 2))),
        ("4.9", {}, {"enable_lmq": True}, ()),
        ("5", {}, {"enable_lmq": True}, (("%LMQ%a", 0), None)),
        ("5", {}, {"enable_multi_dispatch": True}, ()),
        ("5", {"DELAY": "1"}, {"enable_lmq": True}, ()),
        ("4.9", {"DELAY": "1"}, {"enable_multi_dispatch": True}, (("%LMQ%a", 0), ("b", 0))),
    ],
)
def test_which_queues_a_message_names(
    compat: str, properties: dict[str, str], facts: dict[str, bool], others: object
) -> None:
    message = stored(compat, ask({"INNER_MULTI_DISPATCH": "%LMQ%a,b", **properties}, queue_id=2), **facts)
    assert draft_of(message, replace(FACTS[compat], **facts)).others == others  # type: ignore[arg-type]


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=6)


@BOTH
@given(properties=st.dictionaries(TEXT, TEXT, max_size=40))
def test_what_is_written_is_read_again_and_written_the_same(compat: str, properties: dict[str, str]) -> None:
    try:
        message = stored(compat, ask(properties))
    except StoreError:
        return
    policy = POLICIES[compat]
    again = parse_properties(policy, message.properties)
    assert parse_text(property_text(policy, again)) == parse_text(message.properties)
    assert names(message) == [name for name, _value in again.ordered()] or len(again) > 12
