"""Messages with a time of their own on a running broker of 5.x: every way of sending refuses them, none is stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.producer.producer import Producer, SendRequest
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.sockets.client import RemotingClient
from engine.shared_memory.cursors import BrokerCounters
from store.errors import InvalidMessage
from store.put.batch import Item
from store.reading import extent
from tests.harness.batches import batch_body
from tools.common.local_broker import LocalBroker

SMALL = {
    "brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": 256 * 1024, "ringSizeInBytes": 1 << 20, "compat": "5",
}  # fmt: skip
HEADER = {
    "producerGroup": "g", "topic": "t", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
    "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0", "properties": "", "reconsumeTimes": "0",
    "unitMode": "false", "maxReconsumeTimes": "16", "batch": "false",
}  # fmt: skip
SHORT = dict(zip(HEADER, "abcdefghijklm", strict=True))
TIMERS = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
REMARK = "accurate timer message is not enabled, timerWheelEnable is false"
BATCH = batch_body([Item(0, b"b", b"")])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("broker"), **SMALL) as running:
        yield running


def end_of_log(store: Path) -> int:
    return BrokerCounters.attach(extent.require_running(store).region_directory).max_physical_offset.read()


def asked(broker: LocalBroker, code: int, fields: dict[str, str], body: bytes = b"") -> RemotingCommand:
    with RemotingClient(f"127.0.0.1:{broker.port}", timeout=60) as client:
        return client.invoke(RemotingCommand(code, ext_fields=fields, body=body))


def sent(broker: LocalBroker, code: int, text: str) -> RemotingCommand:
    is_batch = str(code == RequestCode.SEND_BATCH_MESSAGE).lower()
    fields = {**HEADER, "properties": text, "batch": is_batch}
    if code != RequestCode.SEND_MESSAGE:
        fields = {SHORT[name]: value for name, value in fields.items()}
    return asked(broker, code, fields, BATCH)


@pytest.mark.parametrize("timer", TIMERS)
@pytest.mark.parametrize("more", ["", "TRAN_MSG\x01true\x02PGROUP\x01g\x02"], ids=["plain", "half"])
@pytest.mark.parametrize("code", [10, 310, 320])
def test_a_client_hears_that_there_is_no_timer_wheel(broker: LocalBroker, code: int, more: str, timer: str) -> None:
    assert sent(broker, code, "").code == ResponseCode.SUCCESS, "without a time it is stored"
    before = end_of_log(broker.store)
    answer = sent(broker, code, f"{more}{timer}\x0160\x02")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, REMARK)
    assert "recallHandle" not in (answer.ext_fields or {})
    assert end_of_log(broker.store) == before


def test_a_message_that_claims_to_be_in_the_wheel_gets_no_handle(broker: LocalBroker) -> None:
    answer = sent(broker, 310, "TIMER_OUT_MS\x011700000000000\x02DELAY\x0118\x02")
    assert answer.code == ResponseCode.SUCCESS
    assert "recallHandle" not in (answer.ext_fields or {})


@pytest.mark.parametrize("timer", TIMERS)
def test_timer_messages_of_a_local_producer_are_refused(broker: LocalBroker, timer: str) -> None:
    with Producer(broker.store, timeout=60) as producer:
        before = end_of_log(broker.store)
        with pytest.raises(InvalidMessage, match="no timer wheel, only delay levels"):
            producer.send("t", b"x", properties={timer: "60"})
        with pytest.raises(InvalidMessage, match="no timer wheel"):
            producer.send_half("t", b"x", group="g", properties={timer: "60"})
        with pytest.raises(InvalidMessage, match="no timer wheel"):
            producer.put_message(SendRequest(topic="t", body=BATCH, batch=True, properties=f"{timer}\x0160"))
        assert end_of_log(broker.store) == before


def test_nothing_is_recalled(broker: LocalBroker) -> None:
    answer = asked(broker, 370, {"producerGroup": "g", "topic": "t", "recallHandle": "x"})
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
