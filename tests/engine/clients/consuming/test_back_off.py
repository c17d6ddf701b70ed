"""Messages that a consumer failed to consume: when they come again, and what is said of them to brokers."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from engine.clients.consuming.back_off import (
    BROKER_DECIDES,
    DEAD_LETTER,
    RETRIES_MAX,
    Resent,
    delay_level,
    first_topic,
    resent,
    send_back_fields,
)
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.remoting.frame import decode as command_of
from engine.protocol.sending.send_back import SendBackHeader, send_back_header
from store.message import properties
from store.message.delay import DELAYS_MS
from store.message.host import Host
from store.message.record import Message, decode, encode
from store.put import resend

REQUESTS = Path(__file__).parents[3] / "fuzz" / "requests"
HOST = Host("127.0.0.1", 10911)


def message_of(topic: str = "orders", times: int = 0, offset: int = 512, **texts: str) -> Message:
    record = encode(
        topic=topic, body=b"packed", physical_offset=offset, flag=7, reconsume_times=times, store_host=HOST,
        properties=properties.format(texts),
    )  # fmt: skip
    return decode(record)


def recorded_send_back(version: str) -> dict[str, str]:
    """The header with which a Java consumer of that version gave a message back."""
    for line in (REQUESTS / f"client-{version}.txt").read_text().splitlines():
        request = command_of(base64.b64decode(line))
        if request.code == RequestCode.CONSUMER_SEND_MSG_BACK:
            return dict(request.ext_fields or {})
    raise AssertionError("no such request was recorded")


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_a_message_is_given_back_with_the_header_of_a_java_consumer(version: str) -> None:
    java = recorded_send_back(version)
    message = message_of(java["originTopic"], offset=int(java["offset"]), UNIQ_KEY=java["originMsgId"])
    assert send_back_fields(message, java["group"], java["bname"]) == java


def test_our_broker_reads_what_is_given_back() -> None:
    fields = send_back_fields(message_of(), "group", "broker-a", 3, DEAD_LETTER)
    request = RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, ext_fields=fields)
    assert send_back_header(request) == SendBackHeader(512, "group", -1, False, 3)
    assert send_back_fields(message_of(), "group", "broker-a")["delayLevel"] == str(BROKER_DECIDES)


def test_a_message_without_a_producers_id_is_named_by_its_brokers_id() -> None:
    assert send_back_fields(message_of(), "g", "b")["originMsgId"] == "7F00000100002A9F0000000000000200"


def test_the_delay_grows_from_ten_seconds_to_two_hours() -> None:
    levels = [delay_level(times) for times in range(RETRIES_MAX)]
    assert levels == list(range(3, 19))
    assert (DELAYS_MS[levels[0] - 1], DELAYS_MS[levels[-1] - 1]) == (10_000, 7_200_000)
    assert (delay_level(0), RETRIES_MAX) == (resend.SEND_BACK_LEVEL, resend.MAX_RECONSUME_TIMES)


def test_a_message_that_no_broker_takes_back_is_sent_to_the_retry_topic() -> None:
    first = message_of(TAGS="red", UNIQ_KEY="0A", TRAN_MSG="true", WAIT="true", RECONSUME_TIME="9")
    assert resent(first, b"body", "group") == Resent(
        "%RETRY%group",
        b"body",
        7,
        {"TAGS": "red", "UNIQ_KEY": "0A", "WAIT": "true", "ORIGIN_MESSAGE_ID": "0A", "RETRY_TOPIC": "orders",
         "DELAY": "3"},
        reconsume_times=1,
        max_reconsume_times=16,
    )  # fmt: skip


def test_a_retry_that_fails_keeps_the_first_topic_and_the_first_id() -> None:
    texts = {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "0A", "UNIQ_KEY": "0B", "DELAY": "3"}
    again = resent(message_of("%RETRY%group", times=1, **texts), b"body", "group", retries=5)
    assert again.properties == {**texts, "DELAY": "4"}
    assert (again.topic, again.reconsume_times, again.max_reconsume_times) == ("%RETRY%group", 2, 5)


@pytest.mark.parametrize(
    ("topic", "group", "wanted"),
    [
        ("orders", "group", "orders"),
        ("%RETRY%group", "group", "first"),
        ("%RETRY%other", "group", "%RETRY%other"),
    ],
)
def test_only_the_groups_own_retry_topic_stands_for_another(topic: str, group: str, wanted: str) -> None:
    assert first_topic(message_of(topic, RETRY_TOPIC="first"), group) == wanted


def test_a_retry_without_its_first_topic_is_taken_as_it_is() -> None:
    assert first_topic(message_of("%RETRY%group"), "group") == "%RETRY%group"
