"""kill -9 of what stands between a client and the log: what a client was answered is stored, once, on both brokers.

With SYNC_FLUSH and a slave that is waited for.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import pytest

from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.sockets.client import PeerUnreachable, RemotingClient
from engine.shared_memory.cursors import SENDERS as SLOTS
from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from store.reading.log_reader import open_log
from store.reading.summary import messages
from tests.harness.conditions import await_that
from tests.harness.killing import kill_broker
from tools.common.local_broker import LocalBroker

SMALL = {
    "brokerName": "pair", "mappedFileSizeCommitLog": 256 * 1024, "ringSizeInBytes": 1 << 20, "maxMessageSize": 65536,
    "haReconnectInterval": 100, "slaveTimeout": 60_000, "syncFlushTimeout": 60_000,
}  # fmt: skip
SLAVE = {"brokerRole": "SLAVE", "brokerId": 1}
SENDER = "sender"  # whichever serves the slave
ROLES = ("front.0", "clients", "writer", "flusher", SENDER, "group_transfer", "dispatcher")
SENDERS, BETWEEN = 3, 60  # messages between two kills
ANSWER_SECONDS = 90.0


class Sender(threading.Thread):
    """A client that sends each message once, and knows which were answered well."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(name=name, daemon=True)
        self._address, self._ended = f"127.0.0.1:{port}", threading.Event()
        self.sent: list[bytes] = []
        self.stored: list[bytes] = []
        self.codes: Counter[int] = Counter()

    def run(self) -> None:
        with closing(RemotingClient(self._address, ANSWER_SECONDS)) as client:
            while not self._ended.is_set():
                body = f"{self.name} {len(self.sent)}".encode()
                self.sent.append(body)
                try:
                    code = client.invoke(self._message(body)).code
                except PeerUnreachable:
                    self._ended.wait(0.05)
                    continue
                self.codes[code] += 1
                if code == ResponseCode.SUCCESS:
                    self.stored.append(body)

    def _message(self, body: bytes) -> RemotingCommand:
        fields = {
            "producerGroup": "g",
            "topic": "t",
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": str(len(self.sent) % 4),
            "sysFlag": "0",
            "bornTimestamp": str(time.time_ns() // 1_000_000),
            "flag": "0",
            "properties": f"UNIQ_KEY\x01{self.name}{len(self.sent)}\x02",
            "reconsumeTimes": "0",
            "unitMode": "false",
            "batch": "false",
        }
        return RemotingCommand(RequestCode.SEND_MESSAGE, 1, ext_fields=fields, body=body)

    def end(self) -> None:
        """No message more."""
        self._ended.set()
        self.join()


def kill(counters: BrokerCounters, role: str) -> None:
    """It, or another sender, is back afterwards: a slave that returns at once is served from another slot."""
    names = SLOTS if role == SENDER else (role,)

    def running() -> set[int]:
        return {pid for name in names if (pid := counters.pids[name].read())}

    killed = await_that(running, f"{role} runs")
    for pid in killed:
        with suppress(ProcessLookupError):  # a sender that has ended meanwhile
            os.kill(pid, signal.SIGKILL)
    await_that(lambda: running() - killed, f"{role} is back")


def await_more(senders: list[Sender]) -> None:
    """Sending goes on."""
    wanted = sum(len(sender.stored) for sender in senders) + BETWEEN
    await_that(lambda: sum(len(sender.stored) for sender in senders) >= wanted, "messages are answered")


def bodies(broker: LocalBroker) -> Counter[bytes]:
    return Counter(bytes(message.body) for message in messages(open_log(broker.store)) if message.topic == "t")


@pytest.mark.crash
def test_what_was_answered_is_stored_whatever_is_killed_on_the_way(tmp_path: Path) -> None:
    dice = random.Random(14)
    with (
        LocalBroker(tmp_path / "a", brokerRole="SYNC_MASTER", flushDiskType="SYNC_FLUSH", **SMALL) as master,
        LocalBroker(tmp_path / "b", **SLAVE, haMasterAddress=master.ha_address, **SMALL) as slave,
    ):
        counters = BrokerCounters.attach(extent.require_running(master.store).region_directory)
        await_that(counters.in_sync_slaves.read, "a slave is in sync")
        senders = [Sender(f"sender-{number}", master.port) for number in range(SENDERS)]
        for sender in senders:
            sender.start()
        for role in dice.sample(ROLES, len(ROLES)):
            await_more(senders)
            kill(counters, role)
        await_more(senders)
        for sender in senders:
            sender.end()
        kill_broker(master)
        here, there = bodies(master), bodies(slave)
    stored = {body for sender in senders for body in sender.stored}
    assert len(stored) >= BETWEEN * (len(ROLES) + 1)
    for log in (here, there):
        assert stored <= log.keys() <= {body for sender in senders for body in sender.sent}
        assert max(log.values()) == 1, "nobody sent one twice, and nobody wrote one twice"
    assert here == there
