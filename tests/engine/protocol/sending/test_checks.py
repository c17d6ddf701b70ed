"""What is looked at before a sent message is taken, in RocketMQ's order: of several faults the first one is answered.

Codes and remarks are those of 4.9.7 and 5.3.3: AbstractSendMessageProcessor.msgCheck, TopicValidator, and
EndTransactionProcessor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from engine.protocol.ha.put_status import PutMessageStatus
from engine.protocol.remoting.answers import Refused, Thrown
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.sending import answers, checks, end_transaction, send_back
from engine.protocol.sending.checks import SendingBroker
from engine.protocol.sending.end_transaction import Decision, EndHeader
from engine.protocol.sending.headers import EMPTY, attempts_max, send_header
from store.compat import LINES, line_of
from store.message.record import decode, encode
from store.message.topics import HALF_TOPIC, NOT_FOR_CLIENTS

NOW_MS, READ_WRITE, READ = 1_000_000, 6, 4
LONG = "x" * 128
BOTH = pytest.mark.parametrize("compat", LINES)
NUMBERS = {  # of RocketMQ's ResponseCode
    "4.9": {"wrong topic": 1, "queue id": 1},
    "5": {"wrong topic": 29, "queue id": 29},
}
TOPIC: dict[str, Any] = {
    "topicName": "t", "perm": 6, "readQueueNums": 2, "writeQueueNums": 4, "order": True,
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0,
}  # fmt: skip


def broker(compat: str, accepts_from_ms: int = 0) -> SendingBroker:
    return SendingBroker(line_of(compat), "10.0.0.1", accepts_from_ms, 1024)


def said_by(action: Callable[[], object]) -> tuple[int, str] | None:
    """The refusal, if it is one."""
    try:
        action()
    except Refused as refused:
        return int(refused.code), str(refused)
    return None


class Fault(NamedTuple):
    """What is wrong with a send, and what it is told when nothing before it is."""

    topic: str | None
    queue_id: int = 0
    permission: int = READ_WRITE
    accepts_from_ms: int = 0
    code: str | int = 0
    remark: str = ""


FORBIDDEN = "the broker[10.0.0.1] sending message is forbidden"
ILLEGAL = "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
TOO_LONG = "The specified topic is longer than topic max length."
FAULTS = (
    Fault("t", 99, READ, NOW_MS + 1, 1, "broker unable to service, until "),
    Fault("t", 99, READ, 0, 16, FORBIDDEN),
    Fault(None, 99, READ, 0, "wrong topic", "The specified topic is blank."),
    Fault(" ", 99, READ, 0, "wrong topic", "The specified topic is blank."),
    Fault(LONG + "/", 99, READ, 0, "wrong topic", ILLEGAL),
    Fault("t\n", 99, READ, 0, "wrong topic", ILLEGAL),
    Fault(LONG, 99, READ, 0, "wrong topic", TOO_LONG),
    Fault(HALF_TOPIC, 99, READ, 0, 16, f"Sending message to topic[{HALF_TOPIC}] is forbidden."),
    Fault("other", 99, READ, 0, 17, "topic[other] not exist, apply first please!"),
    Fault("t", 4, READ_WRITE, 0, "queue id", "request queueId[4] is illegal, TopicConfig [topicName=t, readQueue"),
)


def check(compat: str, fault: Fault) -> None:
    """A send to a broker that has the topic t alone, in the order in which a front calls what is checked."""
    header = EMPTY._replace(topic=fault.topic, queue_id=fault.queue_id)
    asked = broker(compat, fault.accepts_from_ms)
    checks.check_time(asked, NOW_MS)
    name = checks.check_name(asked, header, {"t": TOPIC}, fault.permission)
    if name != "t":
        raise checks.topic_missing(asked, name)
    checks.check_queue_id(asked, header, TOPIC, "10.0.0.2:5")


@BOTH
@pytest.mark.parametrize("fault", FAULTS)
def test_the_first_of_several_faults_is_reported(compat: str, fault: Fault) -> None:
    expected = NUMBERS[compat][fault.code] if isinstance(fault.code, str) else fault.code
    said = said_by(lambda: check(compat, fault))
    assert said is not None and said[0] == expected and said[1].startswith(fault.remark)


@BOTH
def test_valid_messages_pass_and_messages_to_system_topics_are_refused(compat: str) -> None:
    for topic, queue_id in (("t", 0), ("t", 3), ("t", -1)):
        check(compat, Fault(topic, queue_id))
    name = checks.check_name(broker(compat), EMPTY._replace(topic="%RETRY%g|-_9"), {}, READ)
    assert name == "%RETRY%g|-_9", "a broker that takes no messages refuses ordered topics alone"
    assert {said_by(lambda topic=topic: check(compat, Fault(topic))) for topic in NOT_FOR_CLIENTS} == {
        (16, f"Sending message to topic[{topic}] is forbidden.") for topic in NOT_FOR_CLIENTS
    }


@BOTH
def test_topics_are_shown_as_java_shows_them(compat: str) -> None:
    shown = checks.shown({**TOPIC, "perm": 5, "order": False}, line_of(compat))
    assert shown == (
        "TopicConfig [topicName=t, readQueueNums=2, writeQueueNums=4, perm=R-X, topicFilterType=SINGLE_TAG, "
        "topicSysFlag=0, order=false" + (", attributes={}]" if compat == "5" else "]")
    )


@BOTH
@pytest.mark.parametrize(
    ("status", "code", "remark"),
    [
        ("PUT_OK", 0, None), ("FLUSH_DISK_TIMEOUT", 10, None), ("SLAVE_NOT_AVAILABLE", 11, None),
        ("FLUSH_SLAVE_TIMEOUT", 12, None), ("SERVICE_NOT_AVAILABLE", 14, "service not available now. It may be"),
        ("MESSAGE_ILLEGAL", 13, "the message is illegal, maybe msg body or properties length not matched. msg body "
                                "length limit 1024B, msg properties length limit 32KB."),
        ("PROPERTIES_SIZE_EXCEEDED", 13, "the message is illegal, maybe"),
        ("CREATE_MAPPED_FILE_FAILED", 1, "create mapped file failed, server is busy or broken."),
        ("IN_SYNC_REPLICAS_NOT_ENOUGH", 1, "in-sync replicas not enough"), ("UNKNOWN_ERROR", 1, "UNKNOWN_ERROR"),
        ("WHEEL_TIMER_NOT_ENABLE", 1, "accurate timer message is not enabled, timerWheelEnable is false"),
    ],
)  # fmt: skip
def test_each_status_has_its_code_and_remark(compat: str, status: str, code: int, remark: str | None) -> None:
    told = answers.put_answer(PutMessageStatus[status], broker(compat), 97)
    assert told.code == code
    assert told.remark is None if remark is None else str(told.remark).startswith(remark)
    if code == 14:
        assert "[CL:  0.97 CQ:  0.97 INDEX:  0.97]" in str(told.remark)


def request(code: int, version: int = 407, **fields: str) -> RemotingCommand:
    return RemotingCommand(code, ext_fields=fields or None, version=version)


WRONG = ("", " 1", "1.0", "0x1", "2147483648", "-2147483649", "9" * 30, "٣", "1_0", "1\0", "true")


@pytest.mark.parametrize("text", WRONG)
@pytest.mark.parametrize(("long", "short"), [("queueId", "e"), ("sysFlag", "f"), ("flag", "h")])
def test_an_invalid_number_is_an_error_in_a_short_header_and_ignored_in_a_long_one(
    text: str, long: str, short: str
) -> None:
    fields = {"topic": "t", "queueId": "1", "sysFlag": "0", "flag": "0", "bornTimestamp": "1", long: text}
    header = send_header(request(RequestCode.SEND_MESSAGE, **fields))
    assert header.lacks == long
    for compat in LINES:
        with pytest.raises(Thrown, match=f"get{long[0].upper()}{long[1:]}"):
            checks.check_queue_id(broker(compat), header, TOPIC, "")
    with pytest.raises(Thrown, match=r"java\.lang\.NumberFormatException: For input string"):
        send_header(request(RequestCode.SEND_MESSAGE_V2, **{"b": "t", short: text}))


def test_a_send_header_may_be_empty_and_its_numbers_may_have_signs() -> None:
    assert send_header(request(RequestCode.SEND_MESSAGE_V2)) == EMPTY
    header = send_header(request(RequestCode.SEND_MESSAGE_V2, b="t", e="-1", f="+0", g="-9223372036854775808", h="7"))
    assert (header.queue_id, header.born_timestamp_ms, header.flag, header.lacks) == (-1, -(1 << 63), 7, "")
    assert send_header(request(RequestCode.SEND_MESSAGE_V2, b="t")).lacks == "queueId"


@pytest.mark.parametrize(("version", "said", "expected"), [(120, 3, 16), (121, 3, 3), (479, None, 16), (479, -1, -1)])
def test_clients_that_are_new_enough_say_how_often(version: int, said: int | None, expected: int) -> None:
    assert attempts_max(request(36, version), said, 16) == expected


@BOTH
def test_missing_fields_of_a_send_are_answered_with_javas_exceptions(compat: str) -> None:
    told = [
        said_by(lambda header=header, body=body: checks.check_whole(broker(compat), header, body))
        for header, body in ((EMPTY, 1), (EMPTY._replace(topic="t"), 0), (EMPTY._replace(topic="t"), 1))
    ]
    is_thrown = [one is not None and one[0] == 1 and "java.lang.NullPointerException" in one[1] for one in told]
    assert is_thrown == ([True, True, False] if compat == "5" else [is_thrown[0], is_thrown[1], False])
    lacks = EMPTY._replace(topic="t", default_topic="TBW102")
    assert "getDefaultTopicQueueNums" in str(said_by(lambda: checks.check_to_make(broker(compat), lacks)))
    lacks = EMPTY._replace(topic="t", default_topic_queue_nums=4)
    assert "NullPointerException" in str(said_by(lambda: checks.check_to_make(broker(compat), lacks)))


@pytest.mark.parametrize(("topic", "unit", "flag"), [("t", False, 0), ("t", True, 1), ("%RETRY%t", True, 2)])
def test_the_flag_of_a_topic_that_a_message_makes(topic: str, unit: bool, flag: int) -> None:
    assert checks.unit_flag(EMPTY._replace(topic=topic, unit_mode=unit)) == flag


# ends of transactions


def half(**properties: str) -> Any:
    text = "".join(f"{name}\x01{value}\x02" for name, value in {"PGROUP": "p", **properties}.items())
    record = encode(topic=HALF_TOPIC, body=b"x", queue_offset=7, properties=text.encode(), born_timestamp_ms=NOW_MS)
    return decode(record, 0)


END = EndHeader("p", 7, 100, Decision.COMMIT, False)


@pytest.mark.parametrize(
    ("header", "message", "expected"),
    [
        (END, half(), None),
        (END._replace(producer_group="q", half_queue_offset=8), None, (1, "Find prepared transaction message failed")),
        (END._replace(producer_group="q", half_queue_offset=8), half(), (1, "The producer group wrong")),
        (END._replace(half_queue_offset=8), half(), (1, "The transaction state table offset wrong")),
        (END._replace(half_queue_offset=None), half(), (1, "java.lang.NullPointerException")),
        (END._replace(half_physical_offset=None), half(), (1, "java.lang.NullPointerException")),
        (END, decode(encode(topic="t", body=b"x"), 0), (1, "Find prepared transaction message failed")),
    ],
)
def test_a_half_message_is_the_one_that_is_meant(header: EndHeader, message: Any, expected: object) -> None:
    said = said_by(lambda: end_transaction.check_half(message, header, NOW_MS, timeout_ms=1000, rejects_late=False))
    assert said == expected


@pytest.mark.parametrize(
    ("after_ms", "properties", "is_asked", "is_refused"),
    [
        (5000, {}, False, False), (5000, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "3"}, False, True),
        (3000, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "3"}, False, False),
        (5000, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "3"}, True, False),
        (1001, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "no number"}, False, True),
    ],
)  # fmt: skip
def test_an_end_after_the_immunity_time_is_refused_unless_the_broker_asked(
    after_ms: int, properties: dict[str, str], is_asked: bool, is_refused: bool
) -> None:
    for rejects_late in (True, False):
        said = said_by(
            lambda rejects=rejects_late: end_transaction.check_half(
                half(**properties),
                END._replace(is_asked=is_asked),
                NOW_MS + after_ms,
                timeout_ms=1000,
                rejects_late=rejects,
            )
        )
        assert (said is not None) == (is_refused and rejects_late)


@pytest.mark.parametrize(
    ("status", "code", "remark"),
    [
        ("PUT_OK", 0, None), ("FLUSH_DISK_TIMEOUT", 0, None), ("FLUSH_SLAVE_TIMEOUT", 0, None),
        ("SLAVE_NOT_AVAILABLE", 0, None), ("CREATE_MAPPED_FILE_FAILED", 1, "Create mapped file failed."),
        ("MESSAGE_ILLEGAL", 13, "The message is illegal, maybe msg body or properties length not matched. msg body "
                                "length limit 1024B, msg properties length limit 32KB."),
        ("SERVICE_NOT_AVAILABLE", 14, "Service not available now."), ("UNKNOWN_ERROR", 1, "UNKNOWN_ERROR"),
        ("WHEEL_TIMER_NOT_ENABLE", 1, "accurate timer message is not enabled, timerWheelEnable is false"),
    ],
)  # fmt: skip
def test_each_status_of_a_committed_message(status: str, code: int, remark: str | None) -> None:
    assert tuple(end_transaction.end_answer(PutMessageStatus[status], 1024)) == (code, remark)


# what consumers give back


@BOTH
def test_refused_send_backs_are_answered_with_rocketmqs_codes(compat: str) -> None:
    with pytest.raises(Thrown, match="NullPointerException"):
        send_back.send_back_header(request(36, offset="1"))
    header = send_back.send_back_header(request(36, group="g", offset="x", delayLevel="3"))
    assert (header.offset, header.delay_level, header.unit_mode) == (None, 3, False)
    told = (
        checks.group_missing(broker(compat), "g"),
        checks.forbidden(broker(compat)),
        send_back.topic_missing("t"),
        send_back.message_missing(5),
        send_back.lacks("offset", line_of(compat)),
    )
    assert [one.code for one in told] == [26, 16, 1, 1, 1]
    assert told[3].remark == "look message by offset failed, 5" and told[2].remark == "topic[t] not exist"
    refused = said_by(lambda: send_back.check_retry_topic({**TOPIC, "perm": 4}))
    assert refused == (16, "the topic[t] sending message is forbidden")
    send_back.check_retry_topic(TOPIC)
    name = send_back.status_name(PutMessageStatus.CREATE_MAPPED_FILE_FAILED, line_of(compat).put)
    assert name == ("CREATE_MAPPED_FILE_FAILED" if compat == "5" else "CREATE_MAPEDFILE_FAILED")
