"""RemoteProducer at one Slipstream broker, without name servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.clients.sending.producer import RemoteProducer
from engine.protocol.ha.put_status import PutMessageStatus
from engine.remoting.sockets.client import PeerUnreachable
from engine.settings.config import ConfigError
from store.compat import LINES
from store.message.record import Message
from store.reading.opened import open_store
from tests.harness.certificates import Authority, server_file, tls_file
from tests.harness.conditions import SECONDS, await_that
from tools.common.local_broker import LocalBroker

SIZES = {
    "mappedFileSizeCommitLog": 1 << 20, "ringSizeInBytes": 1 << 20, "maxMessageSize": 65536,
    "brokerFastFailureEnable": "false", "osPageCacheBusyTimeOutMills": 600_000,
}  # fmt: skip


def messages(broker: LocalBroker, topic: str, count: int) -> list[Message]:
    """A topic's messages once there are so many in its queues."""
    read = lambda: list(open_store(broker.store).messages(topic))  # noqa: E731
    return await_that(lambda: now if len(now := read()) >= count else None, f"{count} messages are in their queues")


@pytest.mark.parametrize("compat", LINES)
def test_the_first_message_of_a_key_makes_the_topic_and_the_others_follow_it(tmp_path: Path, compat: str) -> None:
    with (
        LocalBroker(tmp_path / "b", compat=compat, **SIZES) as broker,
        RemoteProducer(broker=f"127.0.0.1:{broker.port}", group="g", timeout=SECONDS) as producer,
    ):
        results = [producer.send("made", f"{number}", shard_by="customer-7") for number in range(5)]
        assert len({(result.broker, result.queue_id) for result in results}) == 1
        assert [result.queue_offset for result in results] == list(range(5))
        assert [bytes(one.body) for one in messages(broker, "made", 5)] == [b"0", b"1", b"2", b"3", b"4"]
        assert [one.physical_offset for one in messages(broker, "made", 5)] == [one.physical_offset for one in results]


def test_messages_are_sent_over_tls(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path / "ca"), Authority(tmp_path / "other", "somebody else")
    file = server_file(tmp_path / "node.properties", authority.issue("node"), test_mode_enable="false")
    enforcing = {"tls.server.mode": "enforcing", "tls.config.file": file}
    mine, wrong = (
        tls_file(tmp_path / f"{name}.properties", client_authServer="true", client_trustCertPath=trusted.certificate,
                 test_mode_enable="false")
        for name, trusted in (("mine", authority), ("wrong", stranger))
    )  # fmt: skip
    with LocalBroker(tmp_path / "b", **SIZES, **enforcing) as broker:
        at = f"127.0.0.1:{broker.port}"
        with RemoteProducer(broker=at, group="g", timeout=SECONDS, tls_config=mine) as producer:
            assert producer.send("orders", "over TLS").status is PutMessageStatus.PUT_OK
        for tls_config in (wrong, None):
            refused = RemoteProducer(broker=at, group="g", timeout=SECONDS, tls_config=tls_config)
            with refused, pytest.raises(PeerUnreachable):
                refused.send("orders", "x")
        with pytest.raises(ConfigError):
            RemoteProducer(broker=at, group="g", tls_config=tmp_path / "missing.properties")
        assert [bytes(one.body) for one in messages(broker, "orders", 1)] == [b"over TLS"]
