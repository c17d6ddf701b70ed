"""Messages that name light queues on a running broker: how many queues there may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import NoQueueLeft
from engine.producer.producer import Producer
from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.sockets.client import RemotingClient
from tools.common.local_broker import LocalBroker

SMALL = {
    "brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": 256 * 1024, "ringSizeInBytes": 1 << 20,
    "enableLmq": "true", "enableMultiDispatch": "true", "maxLmqConsumeQueueNum": 3,
}  # fmt: skip
FIELDS = {
    "a": "g", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0", "j": "0",
    "k": "false", "m": "false",
}  # fmt: skip


def naming(*queues: str) -> str:
    return "INNER_MULTI_DISPATCH\x01" + ",".join(f"%LMQ%{queue}" for queue in queues) + "\x02"


@pytest.mark.parametrize("compat", ["4.9", "5"])
def test_a_message_that_names_one_light_queue_too_many_is_refused(tmp_path: Path, compat: str) -> None:
    with LocalBroker(tmp_path / "b", **SMALL, compat=compat) as broker:
        with RemotingClient(f"127.0.0.1:{broker.port}", timeout=60) as client:

            def sent(text: str) -> RemotingCommand:
                return client.invoke(RemotingCommand(310, ext_fields=FIELDS | {"i": text}, body=b"x"))

            assert sent(naming("a", "b", "c")).code == ResponseCode.SUCCESS
            refused = sent(naming("a", "d"))
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert str(refused.remark).startswith("[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and")
            assert sent(naming("c", "b")).code == ResponseCode.SUCCESS, "these are there"
            assert sent("").code == ResponseCode.SUCCESS
        with Producer(broker.store, timeout=60) as producer:
            with pytest.raises(NoQueueLeft, match="as many light queues as maxLmqConsumeQueueNum allows"):
                producer.send("t", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%d"})
            producer.send("t", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
    with (
        LocalBroker(tmp_path / "b", **SMALL, compat=compat) as broker, Producer(broker.store, timeout=60) as producer,
        pytest.raises(NoQueueLeft, match="maxLmqConsumeQueueNum"),
    ):  # fmt: skip
        producer.send("t", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%d"})
    light = [path.name for path in (broker.store / "consumequeue").iterdir() if path.name.startswith("%LMQ%")]
    assert sorted(light) == ["%LMQ%a", "%LMQ%b", "%LMQ%c"]
