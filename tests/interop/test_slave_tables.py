"""A slave of RocketMQ's, of either line, takes from a master of ours how far everything is, while clients move it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.remoting.codes import RequestCode
from tests.harness.conditions import await_that
from tests.interop import needs, rocketmq
from tests.interop.remoting import Client
from tests.interop.rocketmq import RocketMQBroker
from tests.interop.sides import OurNameServer, table_of
from tools.common.local_broker import LocalBroker

OFTEN = {
    "mappedFileSizeCommitLog": 256 * 1024,
    "brokerName": "broker-a",
    "flushConsumerOffsetInterval": 200,
    **rocketmq.PATIENCE,
    "flushDelayOffsetInterval": 200,
    "messageDelayLevel": "1s 2s",
    "ringSizeInBytes": 1 << 20,
    "maxMessageSize": 65536,
}
TAKEN = ("groups", "offsets", "delay offsets")
MESSAGES_MAX = 50_000  # minutes of them: a JVM may be slow to start


def offsets_of(store: Path) -> Any:
    return table_of(store, "offsets").get("t@g", {})


class Moving(threading.Thread):
    """A producer of delayed messages and a consumer in one, until it is ended."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port, self._ended = port, threading.Event()
        self.sent = 0

    def run(self) -> None:
        who = {"groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
               "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
               "subscriptionDataSet": [{"topic": "t", "subString": "*", "subVersion": 1}]}  # fmt: skip
        beat = json.dumps({"clientID": "c", "consumerDataSet": [who], "producerDataSet": []}).encode()
        with Client(self._port) as member, Client(self._port) as client:
            member.request(RequestCode.HEART_BEAT, body=beat)  # it is told who came: over a connection of its own
            while self.sent < MESSAGES_MAX and not self._ended.wait(0.01):
                client.send("t", self.sent % 2, b"delayed", f"DELAY\x01{1 + self.sent % 2}\x02")
                self.sent += 1
                fields = {"consumerGroup": "g", "topic": "t", "queueId": self.sent % 2, "commitOffset": self.sent}
                client.request(RequestCode.UPDATE_CONSUMER_OFFSET, fields)

    def end(self) -> None:
        """Nothing moves any more."""
        self._ended.set()
        self.join()


@pytest.mark.interop
@pytest.mark.parametrize("version", rocketmq.VERSIONS)
def test_a_real_slave_takes_slipstreams_offsets_and_groups_while_clients_run(version: str, tmp_path: Path) -> None:
    needs.need([version])
    compat = "5" if rocketmq.is_five(version) else "4.9"
    with (
        OurNameServer(tmp_path / "names", version) as names,
        LocalBroker(tmp_path / "m", namesrvAddr=names.address, compat=compat, **OFTEN) as ours,
    ):
        moving = Moving(ours.port)
        moving.start()
        settings = {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": names.address, "brokerName": "broker-a"}
        with RocketMQBroker(tmp_path / "s", version, mappedFileSizeCommitLog=256 * 1024, **settings) as slave:

            def taken() -> bool:
                slave.synchronize()
                delays = table_of(slave.store, "delay offsets")
                return min(delays.get(level, 0) for level in (1, 2)) > 0 and len(offsets_of(slave.store)) == 2

            await_that(taken, "the slave has offsets of everything", pause=0.5)
            first = offsets_of(slave.store)
            assert moving.is_alive(), "while clients run"

            def moved() -> bool:
                slave.synchronize()
                return all(offsets_of(slave.store)[queue] > first[queue] for queue in first)

            await_that(moved, "it takes them again", pause=0.5)
            moving.end()

            def is_equal() -> bool:
                slave.synchronize()
                is_last = sorted(offsets_of(slave.store).values()) == [moving.sent - 1, moving.sent]
                return is_last and all(table_of(slave.store, what) == table_of(ours.store, what) for what in TAKEN[1:])

            await_that(is_equal, "both say the same, and the last of it", pause=0.5)
            delivered = sum(table_of(ours.store, "delay offsets").values())
            await_that(lambda: delivered <= moving.sent and "g" in table_of(slave.store, "groups"), "and the group")
